"""How much memory a broker takes at rest, with 2,000 idle connections, and with 200 groups of three members.

    python -m tests.benchmarks.bench_memory [--quick] [--connections 2000] [--groups 200] [--folder FOLDER]

Each row is the resident memory of the node (VmRSS) after the one before: the connections have each sent one request, the
members of the groups have their assignments. A node of Apache Kafka gets the same connections in the same run if its jars
and Java are there. Kafka's node is broker and controller in one process; to compare, add our controller at rest. Java's heap
is 1 GiB, as in Kafka's start script, and touched only as needed; what the JVM has once taken it keeps.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.measuring import print_result, resident_bytes
from tests.crowd import join_groups, opened
from tests.interop.apache_kafka import ApacheKafkaNode, NoJars
from tools.lab.local_cluster import LocalCluster

MB = 1_000_000
MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Memory:
    """The resident memory of one node in MB."""

    at_rest: float
    connections: float
    groups: float

    def __str__(self) -> str:
        return (
            f"{self.at_rest:.0f} MB at rest, {self.connections:.0f} with the connections, {self.groups:.0f} with the groups"
        )


def measure(address: str, pid: int, *, connections: int, groups: int) -> Memory:
    """Connects to a running node and returns its memory in each situation."""

    def resident_mb() -> float:
        return round(resident_bytes(pid) / MB, 1)

    # One connection first, so that what is loaded with the first request counts as being at rest.
    with opened(address, 1):
        at_rest = resident_mb()
    with opened(address, connections):
        with_connections = resident_mb()
    with opened(address, groups * MEMBERS) as opened_connections:
        join_groups(opened_connections, members=MEMBERS)
        with_groups = resident_mb()
    return Memory(at_rest, with_connections, with_groups)


def overrides(connections: int) -> dict[str, str]:
    limit = str(2 * connections)
    return {"max.connections": limit, "max.connections.per.ip": limit, "offsets.topic.replication.factor": "1"}


def ours(folder: Path, *, connections: int, groups: int) -> tuple[Memory, float]:
    """Returns the memory of our broker, and that of its controller at rest."""
    cluster = LocalCluster.create(folder, brokers=1, disks=2, loop=False, overrides=overrides(connections))
    try:
        cluster.start()
        broker, controller = cluster.brokers[0], cluster.controller
        assert broker.pid is not None and controller.pid is not None
        controller_mb = round(resident_bytes(controller.pid) / MB, 1)
        return measure(broker.files.address, broker.pid, connections=connections, groups=groups), controller_mb
    finally:
        cluster.kill()
        cluster.delete()


def apaches(folder: Path, *, connections: int, groups: int) -> Memory | None:
    try:
        with ApacheKafkaNode(folder, disks=2, overrides=overrides(connections)) as node:
            return measure(node.bootstrap, node.pid, connections=connections, groups=groups)
    except NoJars as reason:
        print(f"Apache Kafka was not measured: {reason}", file=sys.stderr)
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the connections and groups")
    parser.add_argument("--connections", type=int, help="default 2000")
    parser.add_argument("--groups", type=int, help="default 200")
    parser.add_argument("--folder", type=Path, help="where the nodes write (default: a new temporary folder)")
    given = parser.parse_args(arguments)
    connections = given.connections or (200 if given.quick else 2_000)
    groups = given.groups or (20 if given.quick else 200)
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=given.folder) as name:
        memory, controller_mb = ours(Path(name) / "ours", connections=connections, groups=groups)
        kafka = apaches(Path(name) / "apache", connections=connections, groups=groups)
    figures = {
        "connections": connections,
        "groups": groups,
        "broker_mb": asdict(memory),
        "controller_mb": controller_mb,
        "apache_mb": None if kafka is None else asdict(kafka),
    }
    text = (
        f"{connections} idle connections, {groups} groups of {MEMBERS}: broker {memory}; controller {controller_mb:.0f} MB"
    )
    if kafka is not None:
        text += f"; Apache Kafka's node {kafka}"
    print_result("memory", "python -m tests.benchmarks.bench_memory", figures, text)


if __name__ == "__main__":
    main()
