"""What partitions cost the controller, from 1,000 to 100,000 of them, beside Apache Kafka's controller.

    python -m tests.benchmarks.bench_controller_scale [--quick] [--partitions N …] [--rounds 5] [--folder FOLDER]

One controller runs in a process of its own, and scripted brokers speak to it over sockets (`scripted_brokers`). Broker 1 has
eleven directories and leads all partitions, a tenth of them in each of the first ten directories; every partition has a
second replica, on broker 2 or 3. Broker 4 has no partitions; a process of its own sends its heartbeats, one every 20 ms.
Three observers fetch the metadata log. Per number of partitions, the benchmark prints

    creation      how long the controller takes to create a tenth of the partitions,
    assignment    and to record the directories of broker 1's replicas of them (AssignReplicasToDirs),
    failure       how long it takes from the heartbeat that reports a directory with a tenth of the partitions until that is
                  answered, and until the last observer has the new leaders, for several directories one after the other,
    bytes         the size of that heartbeat,
    memory        per partition: what the process has more than before the first partition,
    restart       from the start of the process until it answers a heartbeat: from the log, and from a snapshot,
    snapshot      how long its file is being written, and its size,

and in each of these phases the longest step of Diskraft's event loop in CPU time, and the longest time in which a heartbeat
of broker 4 was answered. The nodes write to /dev/shm unless a folder is given: disks are not what is measured here.
Apache Kafka's controller is measured in the same run if Java and its jars are found.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.ids import TopicId
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.benchmarks.bench_scale import SHARED_MEMORY
from tests.benchmarks.measured_controllers import ApacheController, DiskraftController, MeasuredController
from tests.benchmarks.measuring import percentile, print_result
from tests.benchmarks.scripted_brokers import (
    HeartbeatWitness,
    MetadataObservers,
    ScriptedBroker,
    directory_id,
)
from tests.interop.apache_kafka import NoJars

BLOCKS = 10
PARTITIONS_OF_A_TOPIC = 1_000
# A request may write 10,000 records; the record of the topic is one of them.
TOPICS_PER_REQUEST = 5
OBSERVERS = 3
SECONDS_MAX = 120.0
POLL_SECONDS = 0.005
# No large batch arrives for this long after the last one.
QUIET_SECONDS = 1.0
SNAPSHOT_INTERVAL_MS = 2_000
# The phases in which the controller was active from the beginning.
RUNNING_PHASES = ("creation", "assignment", "failure", "snapshot")
GOALS = {
    "moved_p99_ms": 3_000,
    "assignment_of_10000_ms": 5_000,
    "restart_ms": 15_000,
    "bytes_per_partition": 1_536,
    "step_ms": 100,
}


@dataclass(slots=True)
class Phase:
    """One phase: how long each of its operations took, and who had to wait meanwhile. All in milliseconds."""

    milliseconds: list[float] = field(default_factory=list)
    step_ms: float | None = None
    heartbeat_ms: float = 0.0

    def as_json(self) -> dict[str, Any]:
        figures = times(self.milliseconds) | {"longest_heartbeat_ms": round(self.heartbeat_ms, 1)}
        return figures if self.step_ms is None else figures | {"longest_step_ms": self.step_ms}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A controller and its brokers; the last broker's heartbeats are sent by the witness."""

    controller: MeasuredController
    brokers: Sequence[ScriptedBroker]
    witness: HeartbeatWitness
    observers: MetadataObservers

    @property
    def leader(self) -> ScriptedBroker:
        return self.brokers[0]

    @contextmanager
    def phase(self, name: str, phases: dict[str, Phase]) -> Iterator[Phase]:
        self.controller.longest_step(f"before {name}")
        self.witness.ask()
        phase = phases[name] = Phase()
        yield phase
        phase.heartbeat_ms = self.witness.ask()
        phase.step_ms = self.controller.longest_step(name)


def times(milliseconds: Sequence[float]) -> dict[str, float]:
    return {
        "p50_ms": round(percentile(milliseconds, 0.5), 1),
        "p99_ms": round(percentile(milliseconds, 0.99), 1),
        "samples": len(milliseconds),
    }


def milliseconds_since(begun: float) -> float:
    return (time.monotonic() - begun) * 1000


def create_block(cluster: Cluster, block: int, partitions: int) -> list[tuple[TopicId, int]]:
    """Creates topics with this many partitions in all. Returns the partitions."""
    sizes = [PARTITIONS_OF_A_TOPIC] * (partitions // PARTITIONS_OF_A_TOPIC)
    sizes += [partitions % PARTITIONS_OF_A_TOPIC] if partitions % PARTITIONS_OF_A_TOPIC else []
    topics = [
        CreatableTopic(
            name=f"topic-{block}-{number}",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2 + index % 2]) for index in range(size)
            ],
        )
        for number, size in enumerate(sizes)
    ]
    created: list[tuple[TopicId, int]] = []
    for start in range(0, len(topics), TOPICS_PER_REQUEST):
        request = CreateTopicsRequest(topics=topics[start : start + TOPICS_PER_REQUEST], timeout_ms=int(SECONDS_MAX * 1000))
        response = cluster.brokers[1].connection.send(request, CreateTopicsResponse)
        for topic in response.topics:
            assert topic.error_code == ErrorCode.NONE, f"{topic.name}: {topic.error_message}"
            created += [(TopicId(topic.topic_id), index) for index in range(topic.num_partitions)]
    return created


def fail_directories(cluster: Cluster, rounds: int, phases: dict[str, Phase]) -> dict[str, Any]:
    """Loses one directory after the other. Returns the bytes of the first report and of a heartbeat without one, and how
    long it took until the observers had the new leaders."""
    leader = cluster.leader
    leader.heartbeat()
    sizes = {"heartbeat_bytes": leader.connection.request_bytes}
    moved: list[float] = []
    with cluster.phase("failure", phases) as answered:
        for number in range(rounds):
            cluster.observers.ask()
            lost = [directory_id(leader.broker_id, each) for each in range(number + 1)]
            begun = time.monotonic()
            response = leader.heartbeat(lost)
            answered.milliseconds.append(milliseconds_since(begun))
            assert response.error_code == ErrorCode.NONE, f"a report was answered with {response.error_code}"
            sizes.setdefault("report_bytes", leader.connection.request_bytes)
            moved.append((last_arrival(cluster.observers) - begun) * 1000)
    return sizes | {"moved": times(moved)}


def last_arrival(observers: MetadataObservers) -> float:
    """Waits until large batches have ceased to arrive. Returns when the last one arrived."""
    deadline = time.monotonic() + SECONDS_MAX
    last = 0.0
    while not last or time.monotonic() - last < QUIET_SECONDS:
        assert time.monotonic() < deadline, "the observers do not get the change"
        time.sleep(QUIET_SECONDS / 10)
        last = max(last, observers.ask())
    return last


def restart(cluster: Cluster, name: str, phases: dict[str, Phase]) -> None:
    """Stops the controller and measures the time from its start to the first answered heartbeat."""
    cluster.controller.stop()
    with cluster.phase(name, phases) as phase:
        begun = time.monotonic()
        cluster.controller.start()
        wait_until(lambda: is_active(cluster), "the controller does not become active")
        phase.milliseconds.append(milliseconds_since(begun))
    for broker in cluster.brokers:
        broker.reconnect()


def is_active(cluster: Cluster) -> bool:
    broker = cluster.brokers[1]
    try:
        broker.reconnect()
        return broker.heartbeat().error_code == ErrorCode.NONE
    except OSError:
        return False


def wait_until(is_true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(POLL_SECONDS)


def write_snapshot(cluster: Cluster, phases: dict[str, Phase]) -> int:
    """Restarts the controller with a short interval between snapshots. Measures how long the first one that it writes is
    being written, and returns its size."""
    folder = cluster.controller.log_folder
    known = set(folder.glob("*.checkpoint"))
    cluster.controller.configure({"metadata.log.max.snapshot.interval.ms": str(SNAPSHOT_INTERVAL_MS)})
    restart(cluster, "start_before_snapshot", phases)
    with cluster.phase("snapshot", phases) as phase:
        wait_until(lambda: bool([*folder.glob("*.part"), *(set(folder.glob("*.checkpoint")) - known)]), "no snapshot")
        begun = time.monotonic()
        wait_until(lambda: bool(set(folder.glob("*.checkpoint")) - known), "the snapshot does not end")
        phase.milliseconds.append(milliseconds_since(begun))
    written = sorted(set(folder.glob("*.checkpoint")) - known)[0]
    size = written.stat().st_size
    cluster.controller.configure({"metadata.log.max.snapshot.interval.ms": "0"})
    return size


def measure(controller: MeasuredController, partitions: int, rounds: int) -> dict[str, Any]:
    controller.start()
    directories = {1: BLOCKS + 1, 2: 1, 3: 1, 4: 1}
    brokers = [
        ScriptedBroker(controller.address, controller.cluster_id, broker_id, number)
        for broker_id, number in directories.items()
    ]
    for broker in brokers:
        broker.join()
    with (
        HeartbeatWitness(brokers[-1]) as witness,
        MetadataObservers(controller.address, controller.cluster_id, OBSERVERS) as observers,
    ):
        return measured(Cluster(controller, brokers, witness, observers), partitions, rounds)


def measured(cluster: Cluster, partitions: int, rounds: int) -> dict[str, Any]:
    controller, phases = cluster.controller, dict[str, Phase]()
    cluster.witness.ask()
    memory = controller.memory_bytes()
    blocks: list[list[tuple[TopicId, int]]] = []
    with cluster.phase("creation", phases) as creation:
        for block in range(BLOCKS):
            begun = time.monotonic()
            blocks.append(create_block(cluster, block, partitions // BLOCKS))
            creation.milliseconds.append(milliseconds_since(begun))
    with cluster.phase("assignment", phases) as assignment:
        for block, created in enumerate(blocks):
            begun = time.monotonic()
            cluster.leader.assign(created, directory_id(cluster.leader.broker_id, block))
            assignment.milliseconds.append(milliseconds_since(begun))
    grown = controller.memory_bytes() - memory
    failures = fail_directories(cluster, rounds, phases)
    restart(cluster, "start_from_log", phases)
    snapshot_bytes = write_snapshot(cluster, phases)
    restart(cluster, "start_from_snapshot", phases)
    return {
        "in_the_lost_directory": partitions // BLOCKS,
        "bytes_per_partition": round(grown / partitions),
        "bytes_per_partition_after_restart": round((controller.memory_bytes() - memory) / partitions),
        "snapshot_bytes": snapshot_bytes,
        **failures,
        **{name: phase.as_json() for name, phase in phases.items()},
    }


def print_figures(name: str, partitions: int, figures: dict[str, Any]) -> None:
    phases = {key: each for key, each in figures.items() if isinstance(each, dict)}
    steps = [each["longest_step_ms"] for each in phases.values() if "longest_step_ms" in each]
    longest_heartbeat = max(phases[phase]["longest_heartbeat_ms"] for phase in RUNNING_PHASES)
    text = (
        f"{name}, {partitions} partitions: {figures['in_the_lost_directory']} created in {phases['creation']['p50_ms']:.0f} "
        f"ms, assigned in {phases['assignment']['p50_ms']:.0f} ms (longest {phases['assignment']['p99_ms']:.0f}); their "
        f"directory lost: answered after {phases['failure']['p50_ms']:.0f} ms (p99 {phases['failure']['p99_ms']:.0f}), "
        f"new leaders at the observers after {phases['moved']['p50_ms']:.0f} ms (p99 {phases['moved']['p99_ms']:.0f}), "
        f"reported with {figures['report_bytes']} bytes; {figures['bytes_per_partition']} bytes of memory per partition; "
        f"start from the log {phases['start_from_log']['p50_ms']:.0f} ms, from a snapshot "
        f"{phases['start_from_snapshot']['p50_ms']:.0f} ms; snapshot of {figures['snapshot_bytes']} bytes in "
        f"{phases['snapshot']['p50_ms']:.0f} ms; another broker's heartbeat waits for {longest_heartbeat:.0f} ms at most"
    )
    if steps:
        text += f", longest step of the event loop {max(steps):.0f} ms"
    command = "python -m tests.benchmarks.bench_controller_scale"
    print_result(
        "controller_scale", command, {"controller": name, "partitions": partitions, "goals": GOALS, **figures}, text
    )


def run(make: Callable[[Path], MeasuredController], partitions: int, rounds: int, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=folder) as name:
        controller = make(Path(name))
        try:
            print_figures(controller.name, partitions, measure(controller, partitions, rounds))
        finally:
            controller.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 partitions, two lost directories")
    parser.add_argument("--partitions", type=int, nargs="+", help="default 1000 10000 100000; multiples of ten")
    parser.add_argument("--rounds", type=int, help="how many directories are lost (default 5, at most 10)")
    parser.add_argument("--folder", type=Path, default=SHARED_MEMORY, help="where the nodes write (default: /dev/shm)")
    arguments = parser.parse_args()
    counts = arguments.partitions or ([1_000] if arguments.quick else [1_000, 10_000, 100_000])
    rounds = min(arguments.rounds or (2 if arguments.quick else 5), BLOCKS)
    for partitions in counts:
        run(DiskraftController, partitions, rounds, arguments.folder)
        try:
            run(ApacheController, partitions, rounds, arguments.folder)
        except NoJars as reason:
            print(f"Apache Kafka's controller was not measured: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
