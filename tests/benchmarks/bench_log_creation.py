"""How long a cluster takes to create the logs of many partitions, and what creating them together saves on one disk.

    python -m tests.benchmarks.bench_log_creation [--quick] [--partitions 4000] [--plain] [--folder FOLDER]

One disk: logs are created one by one, and in groups that share their syncs. Cluster: three brokers with two disks each, and
topics with two replicas; the time runs from the first request to the last event `log_created`. The disks are loop-mounted
ext4 images if this is possible, else (or with --plain) folders.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import uvloop

from common.environment.real import RealEnvironment
from common.ids import TopicId, Uuid
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.new_log import LOGS_PER_CREATION_MAX, NewLog
from tests.benchmarks.measuring import cpu_seconds, print_result
from tests.blocking_admin import BlockingAdmin
from tools.lab.disk_lab import make_disk, remove_disk, why_no_loop_disks
from tools.lab.local_cluster import LocalCluster

BROKERS = 3
DISKS = 2
REPLICAS = 2
DISK_MIB = 512
# A request writes at most 10,000 records.
PARTITIONS_OF_A_TOPIC = 2000
SECONDS_MAX = 600.0
POLL_SECONDS = 0.25
LOGS_ON_ONE_DISK = 4 * LOGS_PER_CREATION_MAX
CREATED = b'"log_created"'


async def create_in_groups(path: Path, name: str, group_size: int) -> float:
    """Returns how many logs a second are created on a disk in groups of this size."""
    log_dir = RealEnvironment("bench").log_dir(str(path), operation_timeout_ns=60 * 10**9)
    await log_dir.attach()
    new = [NewLog(f"{name}-{number}", LogConfig(), TopicId(Uuid(b"t" * 16))) for number in range(LOGS_ON_ONE_DISK)]
    begun = time.perf_counter()
    for first in range(0, len(new), group_size):
        await Log.create_all(log_dir, new[first : first + group_size])
    seconds = time.perf_counter() - begun
    await log_dir.close()
    return len(new) / seconds


def measure_one_disk(folder: Path, *, is_loop: bool) -> dict[str, float]:
    """Returns the logs a second by the size of the group."""
    path = folder / "disk"
    if is_loop:
        make_disk(path, size_mib=DISK_MIB)
    else:
        path.mkdir()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return {
                str(size): round(runner.run(create_in_groups(path, f"of-{size}", size)), 1)
                for size in (1, 8, LOGS_PER_CREATION_MAX)
            }
    finally:
        if is_loop:
            remove_disk(path)


def measure_cluster(folder: Path, partitions: int, *, is_loop: bool) -> dict[str, float]:
    """Returns the time until the last log exists, and the CPU time of the daemons in it."""
    cluster = LocalCluster.create(folder, brokers=BROKERS, disks=DISKS, loop=is_loop, disk_mib=DISK_MIB)
    try:
        cluster.start()
        pids = [node.pid for node in cluster.nodes.values() if node.pid is not None]
        cpu_before, begun_at = sum(map(cpu_seconds, pids)), time.time()
        _create_topics(cluster.bootstrap, partitions)
        _wait_for_logs(cluster, REPLICAS * partitions)
        seconds = _last_log_created_at(cluster) - begun_at
        cpu = sum(map(cpu_seconds, pids)) - cpu_before
    finally:
        cluster.kill()
        cluster.delete()
    return {
        "seconds": round(seconds, 1),
        "logs_per_second": round(REPLICAS * partitions / seconds, 1),
        "cpu_ms_per_log": round(1000 * cpu / (REPLICAS * partitions), 2),
    }


def _create_topics(bootstrap: str, partitions: int) -> None:
    with BlockingAdmin(bootstrap) as admin:
        for first in range(0, partitions, PARTITIONS_OF_A_TOPIC):
            count = min(partitions - first, PARTITIONS_OF_A_TOPIC)
            topic = CreatableTopic(name=f"new-{first}", num_partitions=count, replication_factor=REPLICAS)
            response: CreateTopicsResponse = admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message


def _wait_for_logs(cluster: LocalCluster, count: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    # Asking the brokers would cost them time that they need to create the logs.
    while sum(Path(node.files.log).read_bytes().count(CREATED) for node in cluster.brokers) < count:
        assert time.monotonic() < deadline, f"not all of {count} logs exist after {SECONDS_MAX:g} s"
        time.sleep(POLL_SECONDS)


def _last_log_created_at(cluster: LocalCluster) -> float:
    created = [event for node in cluster.brokers for event in node.events() if event["event"] == "log_created"]
    return max(datetime.fromisoformat(event["timestamp"]).timestamp() for event in created)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="400 partitions")
    parser.add_argument("--partitions", type=int, help="default 4000")
    parser.add_argument("--plain", action="store_true", help="use folders even if loop-mounted disks are possible")
    parser.add_argument("--folder", type=Path, help="where the disks are (default: a new temporary folder)")
    given = parser.parse_args(arguments)
    partitions = given.partitions or (400 if given.quick else 4000)
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=given.folder) as name:
        folder = Path(name)
        reason = "not asked for" if given.plain else why_no_loop_disks(folder)
        if reason is not None:
            print(f"folders instead of loop-mounted disks: {reason}", file=sys.stderr)
        one_disk = measure_one_disk(folder, is_loop=reason is None)
        cluster = measure_cluster(folder / "cluster", partitions, is_loop=reason is None)
    figures: dict[str, Any] = {
        "partitions": partitions,
        "disks": "folders" if reason is not None else "loop-mounted ext4",
        "one_disk_logs_per_second": one_disk,
        "cluster": cluster,
    }
    largest = str(LOGS_PER_CREATION_MAX)
    print_result(
        "log_creation",
        "python -m tests.benchmarks.bench_log_creation",
        figures,
        f"{partitions} partitions x {REPLICAS} on {BROKERS * DISKS} disks: all logs exist after {cluster['seconds']} s "
        f"({cluster['logs_per_second']} logs/s, {cluster['cpu_ms_per_log']} ms CPU each); one disk: {one_disk['1']} logs/s "
        f"one by one, {one_disk[largest]} in groups of {largest}",
    )


if __name__ == "__main__":
    main()
