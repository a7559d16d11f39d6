"""What partitions cost on the event loop of the broker that hosts them, while no client writes to them.

    python -m tests.benchmarks.bench_scale [--quick] [--partitions 1000 5000 20000] [--seconds 20] [--folder FOLDER]

One broker with two directories hosts that many partitions, as the only replica of each. The benchmark prints the longest
step of the broker's event loop (`tests.benchmarks.watched_node`)

    creation   while a topic of CREATED_PARTITIONS partitions is created,
    questions  while a dashboard asks for all partitions, their offsets and the sizes of their logs,
    fetch      while a consumer without a fetch session, as those of librdkafka, fetches from all partitions,
    rest       while nothing happens for some seconds,
    shutdown   during an ordered shutdown,
    start      during the next start, until the broker runs,
    failure    while one of the two directories fails, until the controller has acknowledged it,

and the CPU time at rest as a share of one core, without the watch. The goal is no step over 25 ms with 5,000 partitions.
The nodes write to /dev/shm unless a folder is given: disks are not what is measured here. Each partition takes a file
descriptor; where the process may not have enough of them, the broker hosts fewer partitions.
"""

import argparse
import json
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from common.protocol.messages.list_offsets import (
    CONSUMER_REPLICA_ID,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.benchmarks.bench_idle import settled
from tests.benchmarks.measuring import print_result
from tests.blocking_admin import BlockingAdmin
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster, LocalNode, free_ports

DISKS = 2
PARTITIONS_OF_A_TOPIC = 1000
CREATED_PARTITIONS = 100
GOAL_MILLISECONDS = 25.0
# What a broker needs besides its partitions.
DESCRIPTORS = 500
SECONDS_MAX = 600.0
FETCH_WAIT_MS = 300
MAX_BYTES = 1 << 20
# After an event that ends a phase, the broker still works on what led to it.
AFTERWARDS_SECONDS = 2.0
SHARED_MEMORY = Path("/dev/shm")


class WatchedNode:
    """A node whose event loop is watched."""

    def __init__(self, node: LocalNode, folder: Path) -> None:
        self.node = node
        self._report = folder / "steps"
        self._socket = folder / "watch"
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._seen = 0
        # A node that is watched by Prometheus collects its metrics every second.
        (port,) = free_ports(1)
        override = f"diskraft.prometheus.listener=127.0.0.1:{port}"
        watch = ("tests.benchmarks.watched_node", str(self._socket), str(self._report), override)
        node.prefix = (sys.executable, "-m", *watch)

    def watch(self, is_on: bool) -> None:
        self._sender.sendto(b"on" if is_on else b"off", str(self._socket))

    def longest_step(self, phase: str) -> float:
        """Returns the longest step since the last call in milliseconds, and describes it on stderr."""
        lines = self._report.read_text().splitlines() if self._report.exists() else []
        steps = [json.loads(line) for line in lines[self._seen :]]
        self._seen = len(lines)
        if not steps:
            return 0.0
        longest = max(steps, key=lambda step: step["milliseconds"])
        print(f"{phase}: {len(steps)} noticed, longest {longest}", file=sys.stderr, flush=True)
        return float(longest["milliseconds"])


def host(cluster: LocalCluster, partitions: int) -> None:
    """Creates topics with this many partitions in all."""
    left = partitions
    while left:
        count = min(left, PARTITIONS_OF_A_TOPIC)
        left -= count
        create_topic(cluster.bootstrap, f"quiet-{left}", partitions=count, replication_factor=1)


def ask_about_everything(cluster: LocalCluster) -> None:
    (node,) = cluster.brokers
    with BlockingAdmin(cluster.bootstrap) as admin:
        topics = [
            ListOffsetsTopic(
                name=topic.name or "",
                partitions=[
                    ListOffsetsPartition(partition_index=each.partition_index, timestamp=LATEST) for each in topic.partitions
                ],
            )
            for topic in admin.metadata().topics
        ]
        admin.send(ListOffsetsRequest(replica_id=CONSUMER_REPLICA_ID, topics=topics), node.files.node_id)
        admin.send(DescribeLogDirsRequest(topics=None), node.files.node_id)


def fetch_from_everywhere(cluster: LocalCluster) -> None:
    """Fetches from all partitions, which are empty, until the fetch has waited for its whole time."""
    (node,) = cluster.brokers
    with BlockingAdmin(cluster.bootstrap) as admin:
        topics = [
            FetchTopic(
                topic_id=topic.topic_id,
                partitions=[
                    FetchPartition(partition=each.partition_index, partition_max_bytes=MAX_BYTES)
                    for each in topic.partitions
                ],
            )
            for topic in admin.metadata().topics
        ]
        request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=MAX_BYTES, topics=topics)
        response: FetchResponse = admin.send(request, node.files.node_id)
        errors = {data.error_code for topic in response.responses for data in topic.partitions}
        assert errors == {ErrorCode.NONE}, errors


def fail_directory(node: LocalNode) -> None:
    """Puts another folder in the directory's place, which the broker's probe takes for a lost mount."""
    path = Path(node.files.data_dirs[1])
    path.rename(path.with_name(f"{path.name}-away"))
    path.mkdir()


def measure(folder: Path, partitions: int, seconds: float) -> dict[str, Any]:
    cluster = LocalCluster.create(folder, brokers=1, disks=DISKS, loop=False)
    (node,) = cluster.brokers
    broker = WatchedNode(node, folder)
    steps: dict[str, float] = {}
    try:
        cluster.start()
        broker.watch(False)
        host(cluster, partitions - CREATED_PARTITIONS)
        broker.watch(True)
        broker.longest_step("the first start")
        create_topic(cluster.bootstrap, "created", partitions=CREATED_PARTITIONS, replication_factor=1)
        steps["creation"] = broker.longest_step("creation")
        ask_about_everything(cluster)
        steps["questions"] = broker.longest_step("questions")
        fetch_from_everywhere(cluster)
        steps["fetch"] = broker.longest_step("fetch")
        broker.watch(False)
        assert node.pid is not None
        idle_percent = round(settled([node.pid], seconds), 2)
        broker.watch(True)
        time.sleep(seconds)
        steps["rest"] = broker.longest_step("rest")
        node.stop()
        steps["shutdown"] = broker.longest_step("shutdown")
        node.start()
        node.wait_for("broker_running", seconds=SECONDS_MAX)
        time.sleep(AFTERWARDS_SECONDS)
        steps["start"] = broker.longest_step("start")
        fail_directory(node)
        node.wait_for("log_dir_failure_acknowledged", seconds=SECONDS_MAX)
        time.sleep(AFTERWARDS_SECONDS)
        steps["failure"] = broker.longest_step("failure")
    finally:
        cluster.kill()
        cluster.delete()
    return {"longest_step_ms": steps, "idle_percent_of_a_core": idle_percent}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 partitions, and 5 seconds")
    parser.add_argument("--partitions", type=int, nargs="+", help="default 1000 5000 20000")
    parser.add_argument("--seconds", type=float, help="default 20")
    parser.add_argument("--folder", type=Path, help="where the nodes write (default: /dev/shm)")
    given = parser.parse_args(arguments)
    counts = given.partitions or ([300] if given.quick else [1000, 5000, 20_000])
    seconds = given.seconds or (5.0 if given.quick else 20.0)
    _, descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    for partitions in [min(count, descriptors_max - DESCRIPTORS) for count in counts]:
        with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=given.folder or SHARED_MEMORY) as folder:
            figures = measure(Path(folder) / "cluster", partitions, seconds)
        steps = ", ".join(f"{phase} {milliseconds:g} ms" for phase, milliseconds in figures["longest_step_ms"].items())
        print_result(
            "scale",
            "python -m tests.benchmarks.bench_scale",
            {"partitions": partitions, "goal_ms_at_5000": GOAL_MILLISECONDS, **figures},
            f"{partitions} partitions: longest step of the loop at {steps}; idle {figures['idle_percent_of_a_core']} % of a "
            "core",
        )


if __name__ == "__main__":
    main()
