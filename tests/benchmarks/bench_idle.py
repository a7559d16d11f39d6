"""What partitions cost that nobody writes to: the CPU time of a broker that leads half of them and follows the other half.

    python -m tests.benchmarks.bench_idle [--quick] [--partitions 1000 2700 5000] [--seconds 20] [--folder FOLDER]

For each number, topics with twice as many partitions are created on two brokers with one directory each, so that each broker
follows that many partitions and leads as many. When all replicas are in sync, the benchmark waits until a broker's CPU time
no longer falls, and then takes the CPU time of both brokers for some seconds, as a share of one core. The same with Apache
Kafka in the same run, if Java and its jars are there. The goal is under 3 % with 5,000 follower partitions.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.measuring import cpu_seconds, print_result
from tests.interop.apache_kafka import NoJars
from tests.interop.apache_kafka_cluster import ApacheKafkaCluster
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

BROKERS = 2
# A request writes at most 10,000 records.
PARTITIONS_OF_A_TOPIC = 2000
GOAL_PERCENT = 3.0
# What the creation has left behind, such as the compilation of Java's code, ends within this time.
SETTLE_SECONDS_MAX = 120.0
SETTLE_INTERVAL_SECONDS = 5.0


def percent_of_a_core(pids: Sequence[int], seconds: float) -> float:
    """Returns the mean CPU time of the processes during the next seconds."""
    before, begun = sum(map(cpu_seconds, pids)), time.monotonic()
    time.sleep(seconds)
    used = sum(map(cpu_seconds, pids)) - before
    return 100 * used / (time.monotonic() - begun) / len(pids)


def settled(pids: Sequence[int], seconds: float) -> float:
    """Waits until the use of CPU time no longer falls, and then measures it."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    last = percent_of_a_core(pids, SETTLE_INTERVAL_SECONDS)
    while time.monotonic() < deadline:
        now = percent_of_a_core(pids, SETTLE_INTERVAL_SECONDS)
        if now > 0.9 * last:
            break
        last = now
    return percent_of_a_core(pids, seconds)


@contextmanager
def diskraft(folder: Path) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    cluster = LocalCluster.create(folder, brokers=BROKERS, disks=1, loop=False, overrides={})
    try:
        cluster.start()
        yield cluster.bootstrap, lambda: [node.pid for node in cluster.brokers if node.pid is not None]
    finally:
        cluster.kill()
        cluster.delete()


@contextmanager
def apache_kafka(folder: Path) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    with ApacheKafkaCluster(folder, brokers=BROKERS, overrides={}) as cluster:
        yield cluster.bootstrap, lambda: cluster.pids


def measure(bootstrap: str, pids: list[int], partitions: int, seconds: float) -> float:
    left = BROKERS * partitions
    while left:
        count = min(left, PARTITIONS_OF_A_TOPIC)
        left -= count
        create_topic(bootstrap, f"quiet-{left}", partitions=count, replication_factor=BROKERS)
    return round(settled(pids, seconds), 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 partitions, and 5 seconds")
    parser.add_argument("--partitions", type=int, nargs="+", help="default 1000 2700 5000")
    parser.add_argument("--seconds", type=float, help="default 20")
    parser.add_argument("--folder", type=Path, help="where the nodes write (default: a new temporary folder)")
    given = parser.parse_args(arguments)
    counts = given.partitions or ([300] if given.quick else [1000, 2700, 5000])
    seconds = given.seconds or (5.0 if given.quick else 20.0)
    for partitions in counts:
        figures: dict[str, float | None] = {"diskraft": None, "apache_kafka": None}
        for name, cluster in (("diskraft", diskraft), ("apache_kafka", apache_kafka)):
            with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=given.folder) as folder:
                try:
                    with cluster(Path(folder) / name) as (bootstrap, pids):
                        figures[name] = measure(bootstrap, pids(), partitions, seconds)
                except NoJars as reason:
                    print(f"Apache Kafka was not measured: {reason}", file=sys.stderr)
        text = f"{partitions} follower partitions at rest: {figures['diskraft']} % of a core a broker"
        if figures["apache_kafka"] is not None:
            text += f", Apache Kafka {figures['apache_kafka']} %"
        print_result(
            "idle",
            "python -m tests.benchmarks.bench_idle",
            {"follower_partitions": partitions, "goal_percent_at_5000": GOAL_PERCENT, "percent_of_a_core": figures},
            text,
        )


if __name__ == "__main__":
    main()
