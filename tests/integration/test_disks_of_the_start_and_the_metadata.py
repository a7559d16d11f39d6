"""Disk faults outside a running broker's data directories: a disk that fails before the broker starts, and the disk of the
metadata log, on a broker and on the controller."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, remake_disk, watched_cluster
from tests.integration.endings import assert_gone_while_stuck, connected
from tests.integration.event_tail import EventTail
from tests.integration.traffic import Writer, assert_nothing_lost, write_some
from tests.interop.topics import create_topic
from tools.lab import disk_faults
from tools.lab.disk_faults import make_room
from tools.lab.disk_lab import Disk, heal_disk, make_disk, revive_disk
from tools.lab.local_cluster import LocalNode

pytestmark = [
    pytest.mark.lab,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("faulty_disks"),
]

TOPIC = "t"
PARTITIONS = 6
DEADLINE_MS = 2000
OVERRIDES = {
    "diskraft.log.dir.operation.timeout.ms": str(DEADLINE_MS),
    "diskraft.log.dir.free.bytes.floor": "0",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "18000",
}
Strike = Callable[[Path], None]


@pytest.mark.parametrize(
    "strike",
    [
        disk_faults.make_read_only,
        disk_faults.fail_reads,
        disk_faults.fail_writes,
        disk_faults.run_out_of_blocks,
        disk_faults.hang_blocks,
        pytest.param(disk_faults.freeze, marks=pytest.mark.brief),
    ],
    ids=lambda strike: strike.__name__,
)
def test_a_broker_starts_with_a_disk_that_fails(tmp_path: Path, strike: Strike) -> None:
    """The disk is mounted again before it fails, so that none of its files are cached. The broker starts without the
    directory on it, logs that, and serves the replicas in its other directory. Once the disk works again, the next start
    brings all replicas back in sync."""

    def with_a_faulty_disk(cluster: WatchedCluster) -> None:
        remake_disk(cluster.broker(1).files.data_dirs[1], size_mib=64, faulty=True)
        cluster.format(cluster.broker(1))

    with watched_cluster(tmp_path, disks=2, overrides=OVERRIDES, prepare=with_a_faulty_disk) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        places = cluster.until_placed(TOPIC, 3 * PARTITIONS)
        promises = write_some(cluster.bootstrap, TOPIC, partitions=PARTITIONS, count=300, size=200)
        broker = cluster.broker(1)
        path = Path(broker.files.data_dirs[1])
        dead = {index for (owner, index), place in places.items() if owner == 1 and place == str(path)}
        assert broker.stop() == 0
        revive_disk(path)
        strike(path)
        broker.start()
        broker.wait_for("log_dir_offline_at_start", log_dir=str(path))
        broker.wait_for("broker_running")
        cluster.until_in_sync(TOPIC, partitions=sorted(set(range(PARTITIONS)) - dead))
        promises |= write_some(cluster.bootstrap, TOPIC, partitions=PARTITIONS, count=300, first=300, size=200)
        heal_disk(path)
        assert broker.stop() == 0
        revive_disk(path)
        broker.start()
        broker.wait_for("broker_running")
        cluster.until_in_sync(TOPIC)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(PARTITIONS))


@dataclass(frozen=True, slots=True)
class MetadataFault:
    """What happens to the disk, within how many seconds the node must halt, and the cause that it must log."""

    strike: Strike
    bound: float
    recover: Strike = revive_disk
    cause: str = ""


CUT_POWER = MetadataFault(disk_faults.cut_power, 2.5)
READ_ONLY = MetadataFault(disk_faults.make_read_only, 2.5)
NO_WRITES = MetadataFault(disk_faults.fail_writes, 2.5)
NO_READS = MetadataFault(disk_faults.fail_reads, 2.5)
NO_BLOCKS = MetadataFault(disk_faults.run_out_of_blocks, 8.0)
HANG = MetadataFault(disk_faults.hang_blocks, DEADLINE_MS / 1000 + 2.5, heal_disk, "ETIMEDOUT")
FREEZE = MetadataFault(disk_faults.freeze, DEADLINE_MS / 1000 + 2.5, heal_disk, "ETIMEDOUT")
# The bound is long because appends succeed until the last block of the metadata log is full.
FULL = MetadataFault(disk_faults.fill, 20.0, make_room)
METADATA_FAULTS = [
    *(("controller", fault) for fault in (CUT_POWER, NO_WRITES, NO_READS, NO_BLOCKS, HANG, FREEZE, FULL)),
    *(("broker", fault) for fault in (READ_ONLY, NO_BLOCKS, HANG, FREEZE, FULL)),
]
BRIEF_METADATA_FAULTS = {("controller", CUT_POWER), ("broker", READ_ONLY), ("broker", FREEZE)}


@pytest.mark.parametrize(
    ("role", "fault"),
    [
        pytest.param(
            role,
            fault,
            id=f"{role}-{fault.strike.__name__}",
            marks=[pytest.mark.brief] if (role, fault) in BRIEF_METADATA_FAULTS else [],
        )
        for role, fault in METADATA_FAULTS
    ],
)
def test_the_disk_of_the_metadata_log_fails(tmp_path: Path, role: str, fault: MetadataFault) -> None:
    """The node halts and logs one reason, even if its data directories are healthy. Even if a thread hangs, its port is
    closed, its connections end and the locks of its data directories are free. Without the broker, the other brokers keep
    serving; without the controller, the leaders keep serving. Once the disk is mended, the node comes back and has all
    metadata."""
    with cluster_with_metadata_disk(tmp_path, role) as (cluster, node, path):
        cluster.expect_end(node, f"the metadata (directory {path} failed|log cannot be (written|followed)).*{fault.cause}")
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as writer:
            writer.wait_for_acks()
            events, of_controller = EventTail(node), EventTail(cluster.controller)
            with connected(node) as client:
                fault.strike(path)
                struck = time.time()
                halted = events.wait_for("node_halted", seconds=fault.bound + 20) - struck
                healthy = node.files.data_dirs if role == "broker" else []
                assert_gone_while_stuck(node, client, healthy=list(healthy))
            print(f"{fault.strike.__name__} of the {role}'s metadata disk: halted after {halted:.2f} s")
            writer.wait_for_acks()
            if role == "broker":
                assert of_controller.wait_for_event("broker_fenced")["reason"] == "the broker asked for it"
            # Heal the disk first: a process cannot end while one of its threads hangs in the kernel.
            heal_disk(path)
            assert node.wait_until_ended() == 1
            fault.recover(path)
            node.start()
            node.wait_for("controller_active" if role == "controller" else "broker_running")
            cluster.until_in_sync(TOPIC)
            create_topic(cluster.bootstrap, "new", partitions=3)
            writer.wait_for_acks()
            writer.stop()
        assert halted < fault.bound, f"halted after {halted:.2f} s, the bound is {fault.bound} s"
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))


@contextmanager
def cluster_with_metadata_disk(folder: Path, role: str) -> Iterator[tuple[WatchedCluster, LocalNode, Path]]:
    """Runs a cluster in which one node has its metadata log on a separate disk, whose blocks can be made to fail."""
    made: list[tuple[LocalNode, Path]] = []

    def on_a_disk_of_its_own(cluster: WatchedCluster) -> None:
        node = cluster.controller if role == "controller" else cluster.broker(1)
        path = Path(node.files.metadata_dir).with_name("metadata-disk")
        make_disk(path, size_mib=32, faulty=True)
        cluster.set_properties(node, metadata_log_dir=str(path))
        if role == "controller":
            cluster.set_properties(node, log_dirs=str(path))
        cluster.format(node)
        made.append((node, path))

    with watched_cluster(folder, disks=1, loop=False, overrides=OVERRIDES, prepare=on_a_disk_of_its_own) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        ((node, path),) = made
        assert Disk(path).is_faulty
        yield cluster, node, path
