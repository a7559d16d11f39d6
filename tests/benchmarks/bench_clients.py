"""Diskraft and Apache Kafka under the same client, on the same machine, in the same run.

    python -m tests.benchmarks.bench_clients [--quick] [--rounds 3] [--only PART] [--folder FOLDER]

Each is a controller and three brokers with one directory each, with default settings but for
group.initial.rebalance.delay.ms=0. The client is librdkafka, with the same settings for both. Topics have three replicas.
Rounds alternate between the two, and the first ones warm up and are discarded, so a busy moment of the machine affects both
alike, and Java has compiled its code. What was written is still in the page cache when it is read. Every figure is a median
of the rounds, and the last column says how many times better Diskraft is: above 1, it is ahead. CPU time is that of the
three brokers together, memory their mean. `startup` is a broker that starts again after a clean shutdown, until another
broker lists it.

Needs Java, and Maven or KAFKA_HOME. Without them it says so, and ends without a figure.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.benchmarks.bench_produce_fetch import recycle_memory
from tests.benchmarks.client_loads import (
    QUIET,
    fetch,
    latencies,
    produce,
    rebalance_seconds,
    single_records,
    wait_until_replicated,
)
from tests.benchmarks.measuring import cpu_seconds, percentile, print_result, resident_bytes, spread
from tests.interop.apache_kafka import NoJars
from tests.interop.apache_kafka_cluster import ApacheKafkaCluster
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

BROKERS = 3
OVERRIDES = {"group.initial.rebalance.delay.ms": "0"}
RECORD_BYTES = (100, 1000, 10_000)
READ_BYTES = 1000
# One reading of what a round has written takes a fraction of a second.
READS = 3
RATES = (100, 500)
MEMBERS = (3, 50)
PARTITIONS = 60
START_SECONDS_MAX = 120.0
MB = 1_000_000


@dataclass(slots=True)
class Contender:
    """One of the two clusters, with what was measured: the values of each row."""

    name: str
    bootstrap: str
    pids: Callable[[], list[int]]
    """The processes of the brokers, which change when a broker restarts."""
    stop_broker: Callable[[int], object]
    start_broker: Callable[[int], object]
    values: dict[str, list[float]] = field(default_factory=dict)

    def note(self, row: str, value: float) -> None:
        self.values.setdefault(row, []).append(value)

    def cpu(self) -> float:
        return sum(map(cpu_seconds, self.pids()))

    def resident_mb(self) -> float:
        """Returns the mean of the brokers' resident memory."""
        pids = self.pids()
        return sum(map(resident_bytes, pids)) / len(pids) / MB

    @contextmanager
    def topic(self, name: str, partitions: int = 1) -> Iterator[str]:
        """Creates a topic and deletes it, so that what has been measured does not fill the page cache."""
        yield create_topic(self.bootstrap, name, partitions=partitions, replication_factor=BROKERS)
        # A client that goes out of scope cancels its requests.
        client = AdminClient(QUIET | {"bootstrap.servers": self.bootstrap})
        (deleted,) = client.delete_topics([name]).values()
        deleted.result(START_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is done in one round."""

    megabytes: float
    seconds: float


# --- parts -----------------------------------------------------------------------------------------------------------


def measure_throughput(contender: Contender, extent: Extent, number: int, folder: Path) -> None:
    for acks in ("1", "all"):
        for size in RECORD_BYTES:
            # Smaller records take longer, above all in the client.
            megabytes = extent.megabytes * (0.3 if size < 1000 else 1)
            recycle_memory(folder, megabytes * BROKERS * 1.2)
            with contender.topic(f"produce-{acks}-{size}-{number}") as topic:
                row, cpu = f"{size} B, acks={acks}", contender.cpu()
                contender.note(
                    f"produce {row}, MB/s",
                    produce(contender.bootstrap, topic, acks=acks, record_bytes=size, megabytes=megabytes),
                )
                wait_until_replicated(contender.bootstrap, topic, record_bytes=size, megabytes=megabytes)
                contender.note(f"produce {row}, CPU s/GB", (contender.cpu() - cpu) / megabytes * 1000)
                if acks == "all" and size == READ_BYTES:
                    contender.note("memory under load, MB", contender.resident_mb())
                    cpu = contender.cpu()
                    rate = fetch(contender.bootstrap, topic, record_bytes=size, times=READS)
                    contender.note(f"fetch {size} B, MB/s", rate)
                    contender.note(f"fetch {size} B, CPU s/GB", (contender.cpu() - cpu) / megabytes / READS * 1000)


def measure_requests(contender: Contender, extent: Extent, number: int, _: Path) -> None:
    for acks in ("1", "all"):
        with contender.topic(f"requests-{acks}-{number}") as topic:
            rate = single_records(contender.bootstrap, topic, acks=acks, seconds=extent.seconds)
            contender.note(f"requests of one record, acks={acks}, 1/s", rate)


def measure_latency(contender: Contender, extent: Extent, number: int, _: Path) -> None:
    for rate in RATES:
        with contender.topic(f"latency-{rate}-{number}") as topic:
            found = latencies(contender.bootstrap, topic, rate=rate, seconds=extent.seconds)
            for name, fraction in (("p50", 0.5), ("p99", 0.99)):
                contender.note(f"produce to consume at {rate}/s, {name}, ms", percentile(found, fraction))


def measure_groups(contender: Contender, _: Extent, number: int, __: Path) -> None:
    with contender.topic(f"groups-{number}", PARTITIONS) as topic:
        for members in MEMBERS:
            seconds = rebalance_seconds(
                contender.bootstrap, topic, f"group-{members}-{number}", members=members, partitions=PARTITIONS
            )
            contender.note(f"rebalance of {members} members and one, ms", seconds * 1000)


def measure_startup(contender: Contender, _: Extent, __: int, ___: Path) -> None:
    others = AdminClient(QUIET | {"bootstrap.servers": contender.bootstrap})
    contender.stop_broker(1)
    until_listed(others, BROKERS - 1)
    started = time.perf_counter()
    contender.start_broker(1)
    until_listed(others, BROKERS)
    contender.note("start of a broker, ms", (time.perf_counter() - started) * 1000)


def until_listed(client: AdminClient, brokers: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            if len(client.list_topics(timeout=1.0).brokers) == brokers:
                return
        except KafkaException:
            # The client has asked the broker that has just been stopped.
            pass
        assert time.monotonic() < deadline, f"not {brokers} brokers within {START_SECONDS_MAX:g} s"
        time.sleep(0.01)


Part = Callable[[Contender, Extent, int, Path], None]
PARTS: dict[str, Part] = {
    "throughput": measure_throughput,
    "requests": measure_requests,
    "latency": measure_latency,
    "groups": measure_groups,
    "startup": measure_startup,
}


# --- the run ---------------------------------------------------------------------------------------------------------


@contextmanager
def diskraft(folder: Path) -> Iterator[Contender]:
    cluster = LocalCluster.create(folder, brokers=BROKERS, disks=1, loop=False, overrides=OVERRIDES)
    try:
        cluster.start()
        yield Contender(
            "diskraft",
            cluster.bootstrap,
            pids=lambda: [node.pid for node in cluster.brokers if node.pid is not None],
            stop_broker=lambda number: cluster.broker(number).stop(),
            start_broker=lambda number: cluster.broker(number).start(),
        )
    finally:
        cluster.kill()
        cluster.delete()


@contextmanager
def apache_kafka(folder: Path) -> Iterator[Contender]:
    with ApacheKafkaCluster(folder, brokers=BROKERS, overrides=OVERRIDES) as cluster:
        yield Contender(
            "apache_kafka",
            cluster.bootstrap,
            pids=lambda: cluster.pids,
            stop_broker=cluster.stop_node,
            start_broker=cluster.start_node,
        )


def run(parts: list[str], extent: Extent, *, rounds: int, warm_up: int, folder: Path) -> list[Contender]:
    with ExitStack() as stack:
        theirs = stack.enter_context(apache_kafka(folder / "apache-kafka"))
        ours = stack.enter_context(diskraft(folder / "diskraft"))
        contenders = [ours, theirs]
        at_rest = {each.name: each.resident_mb() for each in contenders}
        for part in parts:
            for number in range(warm_up + rounds):
                for contender in contenders:
                    before = dict(contender.values)
                    PARTS[part](contender, extent, number, folder)
                    if number < warm_up:
                        # The rows of this part are new, so this discards what the warm-up has measured.
                        contender.values = before
            print(f"{part} is measured", file=sys.stderr, flush=True)
        for contender in contenders:
            contender.note("memory at rest, MB", at_rest[contender.name])
        return contenders


def advantage(row: str, ours: float, theirs: float) -> float:
    """Returns how many times better ours is: rates shall be high, everything else low."""
    return ours / theirs if row.endswith("/s") and "CPU" not in row else theirs / ours


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds, for a first look")
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part (default: all)")
    parser.add_argument("--folder", type=Path, help="where the brokers write (default: a new temporary folder)")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    extent = Extent(megabytes=20, seconds=2) if arguments.quick else Extent(megabytes=80, seconds=5)
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name:
        try:
            parts = arguments.only or list(PARTS)
            ours, theirs = run(parts, extent, rounds=rounds, warm_up=1 if arguments.quick else 2, folder=Path(name))
        except NoJars as error:
            print(f"bench_clients: nothing to compare with, NOTHING was measured: {error}", file=sys.stderr)
            return 0
    rows: dict[str, dict[str, Any]] = {}
    for row, values in ours.values.items():
        ratio = advantage(row, median(values), median(theirs.values[row]))
        rows[row] = {"diskraft": spread(values), "apache_kafka": spread(theirs.values[row]), "advantage": round(ratio, 2)}
    width = max(map(len, rows))
    for row, found in rows.items():
        print(
            f"{row:{width}}  Diskraft {found['diskraft']['median']:>9}  Apache Kafka {found['apache_kafka']['median']:>9}  "
            f"{found['advantage']:>6}",
            file=sys.stderr,
        )
    behind = [row for row, found in rows.items() if found["advantage"] < 1]
    text = f"Diskraft is ahead of Apache Kafka in {len(rows) - len(behind)} of {len(rows)} figures; behind in: {behind}"
    print_result("clients", "python -m tests.benchmarks.bench_clients", {"rounds": rounds, "rows": rows}, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
