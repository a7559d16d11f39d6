"""Kills many disks under acks=all load: no acknowledged record is lost.

DISKRAFT_DISK_KILLS sets the number of rounds (6 by default; 300 take half an hour). DISKRAFT_DISK_KILL_SEED, set to the seed
that a run printed, repeats its random choices. In each round one of three things happens to one broker: one of its disks
dies; one of its disks loses power and the process is killed; or all its disks lose power and the process is killed. The
disks of the other brokers are untouched, so every record keeps an in-sync replica.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, remake_disk, watched_cluster
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.topics import create_topic
from tools.lab import disk_faults
from tools.lab.disk_lab import heal_disk, revive_disk
from tools.lab.local_cluster import LocalNode

KILLS = int(os.environ.get("DISKRAFT_DISK_KILLS", "6"))
SEED = os.environ.get("DISKRAFT_DISK_KILL_SEED") or str(random.randrange(1_000_000))
TOPIC = "t"
PARTITIONS = 6
OVERRIDES = {
    "diskraft.log.dir.operation.timeout.ms": "2000",
    "diskraft.log.dir.free.bytes.floor": "0",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "6000",
}
# Small segments, so that logs roll and sync often.
TOPIC_CONFIG = {"min.insync.replicas": "2", "segment.bytes": "65536"}
# After a pause the producer sends large batches, and a batch larger than a segment would be refused permanently.
CLIENT = {"batch.size": 16384}
WAYS: list[Callable[[Path], None]] = [
    disk_faults.cut_power,
    disk_faults.cut_power,
    disk_faults.shut_down_flushing,
    disk_faults.shut_down_flushing_journal,
    disk_faults.make_read_only,
    disk_faults.freeze,
    disk_faults.fail_reads,
    disk_faults.fail_writes,
    disk_faults.hang_blocks,
    disk_faults.run_out_of_blocks,
]
XFS, FAULTY = 1, 2
"""The indexes of a broker's XFS disk and of its disk with failing blocks."""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.brief,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(120 + 30 * KILLS),
    pytest.mark.usefixtures("faulty_disks"),
]


def test_rounds_of_dying_disks(tmp_path: Path) -> None:
    """After each round every replica must get back in sync. Every few rounds all acknowledged records are read."""
    rng = random.Random(SEED)
    print(f"DISKRAFT_DISK_KILLS={KILLS} DISKRAFT_DISK_KILL_SEED={SEED}")
    disks = 0
    with watched_cluster(tmp_path, disks=3, overrides=OVERRIDES, prepare=with_other_disks) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, configs=TOPIC_CONFIG)
        for broker in cluster.brokers:
            # A round may kill all disks of the broker. The broker then halts with this reason.
            cluster.expect_end(broker, "the last log directory")
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS, rate=300, size=300, options=CLIENT) as writer:
            writer.wait_for_acks()
            for number in range(1, KILLS + 1):
                disks += one_round(cluster, rng, number)
                cluster.until_in_sync(TOPIC)
                writer.wait_for_acks()
                if number % 10 == 0:
                    promised = dict(writer.acknowledged)
                    assert_nothing_lost(cluster.bootstrap, TOPIC, promised, partitions=range(PARTITIONS))
                    print(f"round {number}: {len(promised)} records acknowledged, none lost", flush=True)
            writer.stop()
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        assert writer.errors == {}
        print(f"{len(writer.acknowledged)} records acknowledged over {KILLS} rounds with {disks} dead disks, none lost")


def with_other_disks(cluster: WatchedCluster) -> None:
    for broker in cluster.brokers:
        remake_disk(broker.files.data_dirs[XFS], size_mib=320, file_system="xfs")
        remake_disk(broker.files.data_dirs[FAULTY], size_mib=128, faulty=True)
        cluster.format(broker)


def one_round(cluster: WatchedCluster, rng: random.Random, number: int) -> int:
    """Kills disks of one broker, and brings it back as an operator would. Returns how many disks died."""
    broker = rng.choice(cluster.brokers)
    kind = rng.choice(("one disk", "one disk", "one disk and the process", "power cut"))
    if kind == "one disk":
        path = Path(rng.choice(broker.files.data_dirs))
        way = rng.choice([way for way in WAYS if is_possible(way, broker, path)])
        print(f"round {number}: broker {broker.files.node_id}, {path.name}: {way.__name__}", flush=True)
        way(path)
        broker.wait_for("log_dir_failure_acknowledged")
        heal_disk(path)
        assert broker.stop() == 0
        dead = [path]
    else:
        paths = [Path(path) for path in broker.files.data_dirs]
        dead = paths if kind == "power cut" else [rng.choice(paths)]
        print(f"round {number}: broker {broker.files.node_id}, {kind}", flush=True)
        for path in dead:
            disk_faults.cut_power(path)
        broker.kill()
    for path in dead:
        revive_disk(path)
    broker.start()
    broker.wait_for("broker_running")
    return len(dead)


def is_possible(way: Callable[[Path], None], broker: LocalNode, path: Path) -> bool:
    """Whether this disk can fail in this way."""
    if way in (disk_faults.fail_reads, disk_faults.fail_writes, disk_faults.hang_blocks, disk_faults.run_out_of_blocks):
        return str(path) == broker.files.data_dirs[FAULTY]
    return way is not disk_faults.make_read_only or str(path) != broker.files.data_dirs[XFS]
