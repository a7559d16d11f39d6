"""How long it takes after a disk dies until its directory is offline, its leaders have moved, and produces are acknowledged.

    python -m tests.benchmarks.bench_disk_failure [--quick] [--kills 30] [--large 2000] [--folder FOLDER]

Needs root and loop devices. A controller and three brokers run in their own processes on loop-mounted ext4 disks, and
librdkafka writes with acks=all. An ioctl shuts down the victim's file system in the kernel. Times count from the ioctl's
return, so an event before the return has a negative time. Times come from the daemons' events and the client's delivery
callbacks. Between two kills the victim's broker is stopped, the disk is mounted again as the crash left it, the broker is
started, and the benchmark waits for all replicas. At the end, one disk is killed in a separate cluster with 2,000 partitions
in the lost directory. The goal is a p99 below 1.5 s, with 2,000 partitions below 0.6 s, with 10,000 below 3 s. Each replica
takes a file descriptor of its broker, which has twice as many as the lost directory: where a process may not have enough of
them, the directory has fewer partitions.
"""

import argparse
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.benchmarks.measuring import percentile, print_result
from tests.blocking_admin import BlockingAdmin
from tests.integration.event_tail import EventTail
from tests.interop.topics import create_topic, wait_until_in_sync
from tools.lab.disk_lab import kill_disk, revive_disk, why_no_loop_disks
from tools.lab.local_cluster import LocalCluster

TOPIC = "bench"
BROKERS = 3
PARTITIONS = 30
RATE = 1000
# Lower than RATE: a follower's fetch lists all its partitions, so a broker with thousands of them sustains less.
LARGE_RATE = 300
SECONDS_MAX = 120.0
PARTITIONS_PER_SECOND_MIN = 40
GOAL_MS = 1500.0
DISK_MIB = 256
# An empty log takes six files, and ext4 makes one inode for each 4 KiB.
DISK_BYTES_PER_PARTITION = 96 * 1024
# What a broker needs besides its partitions.
DESCRIPTORS = 500
LARGE_DISKS = 2
LARGE_GOALS_MS = {2_000: 600.0, 10_000: 3_000.0}
# The client writes to at most this many of the partitions led from the lost directory. With this many, one of them
# acknowledges soon after the failover, and the writes alone are no load for the brokers.
WRITTEN_PARTITIONS_MAX = 60


@dataclass(frozen=True, slots=True)
class Failure:
    """The milliseconds from one kill of a disk to each event, and the numbers of replicas and leaders affected."""

    offline_ms: float
    moved_ms: float
    acknowledged_ms: float
    partitions: int
    leaders: int


@dataclass(frozen=True, slots=True)
class Victim:
    """A directory, and the partitions of the topic that it holds and leads."""

    broker_id: int
    path: Path
    partitions: frozenset[int]
    led: frozenset[int]

    @property
    def directory_id(self) -> str:
        lines = (self.path / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


class Writer:
    """Writes to partitions in turn at a steady rate and records the time of every acknowledgement."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self._rate = rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(SECONDS_MAX * 1000),
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
            }
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self.partitions: tuple[int, ...] = ()
        self.acknowledged: list[tuple[int, float]] = []
        self.failures: list[str] = []

    @contextmanager
    def writing_to(self, partitions: tuple[int, ...]) -> Iterator[None]:
        self.partitions = partitions
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
            left = self._producer.flush(SECONDS_MAX)
        assert left == 0, f"{left} records were never answered"

    def wait_for_acknowledgement(self, partitions: frozenset[int], since: float) -> float:
        """Waits for the first acknowledgement from these partitions at or after `since`, and returns its time."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            found = [at for partition, at in list(self.acknowledged) if at >= since and partition in partitions]
            if found:
                return min(found)
            assert time.monotonic() < deadline, f"no new leader of {sorted(partitions)} acknowledged anything"
            time.sleep(0.005)

    def _write(self) -> None:
        started = time.monotonic()
        sent = 0
        while not self._stopped.is_set():
            due = int((time.monotonic() - started) * self._rate)
            while sent < due:
                partition = self.partitions[sent % len(self.partitions)]
                self._producer.produce(
                    TOPIC, sent.to_bytes(8, "big"), partition=partition, on_delivery=self._delivered(partition)
                )
                sent += 1
            self._producer.poll(0.002)

    def _delivered(self, partition: int) -> Callable[[Any, Any], None]:
        def callback(error: Any, _: Any) -> None:
            if error is None:
                self.acknowledged.append((partition, time.time()))
            else:
                self.failures.append(str(error))

        return callback


def choose_victim(cluster: LocalCluster, admin: BlockingAdmin) -> Victim:
    """Returns the directory with the most leaders. If several have the same number, returns the first."""
    (topic,) = admin.metadata([TOPIC]).topics
    leaders = {part.partition_index: part.leader_id for part in topic.partitions}
    victims: list[Victim] = []
    for broker_id in sorted(admin.brokers()):
        for result in admin.log_dirs(broker_id):
            held = [part.partition_index for each in result.topics if each.name == TOPIC for part in each.partitions]
            led = frozenset(partition for partition in held if leaders[partition] == broker_id)
            victims.append(Victim(broker_id, Path(result.log_dir), frozenset(held), led))
    victim = max(victims, key=lambda each: len(each.led))
    assert victim.led, "no directory leads anything"
    return victim


def fail(cluster: LocalCluster, victim: Victim, rate: int) -> Failure:
    """Kills the victim's disk during writes and returns how long the failover took."""
    broker, controller = cluster.broker(victim.broker_id), cluster.controller
    directory_id = victim.directory_id
    led = sorted(victim.led)[:WRITTEN_PARTITIONS_MAX]
    others = [partition for partition in range(PARTITIONS) if partition not in victim.led]
    writer = Writer(cluster.bootstrap, rate)
    with writer.writing_to((*led, *others)):
        # Before the kill, let the client find the leaders and write steadily.
        writer.wait_for_acknowledgement(victim.led, 0.0)
        time.sleep(0.5)
        broker_events, controller_events = EventTail(broker), EventTail(controller)
        killed_at = time.time()
        kill_disk(victim.path)
        offline_at = broker_events.wait_for("log_dir_offline", directory_id=directory_id)
        moved_at = controller_events.wait_for("leaders_moved", directory_id=directory_id)
        acknowledged_at = writer.wait_for_acknowledgement(frozenset(led), moved_at)
    assert not writer.failures, writer.failures[0]
    return Failure(
        offline_ms=(offline_at - killed_at) * 1000,
        moved_ms=(moved_at - killed_at) * 1000,
        acknowledged_ms=(acknowledged_at - killed_at) * 1000,
        partitions=len(victim.partitions),
        leaders=len(victim.led),
    )


def repair(cluster: LocalCluster, victim: Victim, partitions: int) -> None:
    """Stops the broker, mounts the disk again, starts the broker and waits for its replicas."""
    broker = cluster.broker(victim.broker_id)
    broker.stop()
    revive_disk(victim.path)
    broker.start()
    broker.wait_for("broker_running")
    with BlockingAdmin(cluster.bootstrap) as admin:
        wait_until_in_sync(admin, TOPIC, partitions=partitions, replication_factor=BROKERS, seconds=SECONDS_MAX)


@contextmanager
def running_cluster(folder: Path, *, disks: int, partitions: int) -> Iterator[LocalCluster]:
    disk_mib = max(DISK_MIB, partitions // disks * DISK_BYTES_PER_PARTITION >> 20)
    cluster = LocalCluster.create(folder, brokers=BROKERS, disks=disks, loop=True, disk_mib=disk_mib)
    try:
        cluster.start()
        create_topic(
            cluster.bootstrap,
            TOPIC,
            partitions=partitions,
            replication_factor=BROKERS,
            configs={"min.insync.replicas": "2"},
            seconds=SECONDS_MAX + partitions / PARTITIONS_PER_SECOND_MIN,
        )
        yield cluster
    finally:
        cluster.kill()
        cluster.delete()


def many_kills(folder: Path, kills: int) -> list[Failure]:
    failures: list[Failure] = []
    with running_cluster(folder, disks=3, partitions=PARTITIONS) as cluster:
        for number in range(kills):
            with BlockingAdmin(cluster.bootstrap) as admin:
                victim = choose_victim(cluster, admin)
            failure = fail(cluster, victim, RATE)
            failures.append(failure)
            print(
                f"  kill {number + 1} of {kills}: broker {victim.broker_id} {victim.path.name}, {failure.leaders} leaders "
                f"of {failure.partitions} partitions: offline {failure.offline_ms:.0f} ms, moved {failure.moved_ms:.0f} ms, "
                f"acknowledged {failure.acknowledged_ms:.0f} ms",
                file=sys.stderr,
                flush=True,
            )
            repair(cluster, victim, PARTITIONS)
    return failures


def large_kill(folder: Path, partitions_in_directory: int) -> Failure:
    """Kills a disk of a cluster with two disks per broker. Every broker has a replica of every partition, half of them in
    each directory."""
    with running_cluster(folder, disks=LARGE_DISKS, partitions=LARGE_DISKS * partitions_in_directory) as cluster:
        with BlockingAdmin(cluster.bootstrap) as admin:
            victim = choose_victim(cluster, admin)
        return fail(cluster, victim, LARGE_RATE)


def possible(partitions_in_directory: int) -> int:
    """Returns this number, or how many partitions at most a directory can have here."""
    _, descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(partitions_in_directory, (descriptors_max - DESCRIPTORS) // LARGE_DISKS)


def large_goal_ms(partitions_in_directory: int) -> float:
    return next((goal for most, goal in LARGE_GOALS_MS.items() if partitions_in_directory <= most), GOAL_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three kills, and 200 partitions instead of 2,000")
    parser.add_argument("--kills", type=int, help="how often a disk dies (default 30; 0 leaves that out)")
    parser.add_argument("--large", type=int, help="partitions in the directory that is lost last; 0 leaves that out")
    parser.add_argument("--folder", type=Path, help="where the disks' images lie (default: a new temporary folder)")
    arguments = parser.parse_args()
    kills = arguments.kills if arguments.kills is not None else (3 if arguments.quick else 30)
    large = possible(arguments.large if arguments.large is not None else (200 if arguments.quick else 2000))
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name:
        folder = Path(name)
        reason = why_no_loop_disks(folder)
        if reason is not None:
            sys.exit(f"disk_failure was not measured, no loop-mounted disks can be made here: {reason}")
        failures = many_kills(folder / "many", kills) if kills else []
        last = large_kill(folder / "large", large) if large else None
    figures: dict[str, Any] = {
        "kills": len(failures),
        "partitions": PARTITIONS,
        "records_per_s": RATE,
        "goal_p99_ms": GOAL_MS,
    }
    text = f"disk dead, {len(failures)} kills"
    if failures:
        for what in ("offline_ms", "moved_ms", "acknowledged_ms"):
            values = [getattr(failure, what) for failure in failures]
            figures[what] = {
                "p50": round(percentile(values, 0.5), 1),
                "p99": round(percentile(values, 0.99), 1),
                "max": round(max(values), 1),
            }
        text += (
            f": directory offline after {figures['offline_ms']['p50']:.0f} ms (p99 "
            f"{figures['offline_ms']['p99']:.0f}), leaders moved {figures['moved_ms']['p50']:.0f} (p99 "
            f"{figures['moved_ms']['p99']:.0f}), first acknowledged produce {figures['acknowledged_ms']['p50']:.0f} (p99 "
            f"{figures['acknowledged_ms']['p99']:.0f}, goal under {GOAL_MS:.0f})"
        )
    if last is not None:
        figures["large"] = {
            "partitions_in_directory": last.partitions,
            "leaders": last.leaders,
            "goal_ms": large_goal_ms(last.partitions),
            "records_per_s": LARGE_RATE,
            "offline_ms": round(last.offline_ms, 1),
            "moved_ms": round(last.moved_ms, 1),
            "acknowledged_ms": round(last.acknowledged_ms, 1),
        }
        text += (
            f"; with {last.partitions} partitions in the directory, {last.leaders} of them led there: offline "
            f"{last.offline_ms:.0f}, moved {last.moved_ms:.0f}, acknowledged {last.acknowledged_ms:.0f} ms (goal under "
            f"{large_goal_ms(last.partitions):.0f})"
        )
    print_result("disk_failure", "python -m tests.benchmarks.bench_disk_failure", figures, text)


if __name__ == "__main__":
    main()
