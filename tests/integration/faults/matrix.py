"""The fault matrix: every way for a disk to fail, on a leader's disk and on a follower's, and what must hold afterwards.

One cluster of three brokers goes through all cases. Each broker has a disk of every kind in `DISKS`; brokers 1 and 2 lead,
broker 3 only follows. After each fault the test recovers the cluster as docs/operations.md says, so that the next
case starts with a healthy cluster. The matrix test and the benchmark of the detection times use this module.

All times begin when the fault is complete: how long it takes to cause the fault says nothing about the daemons.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.environment.disk_operations import LOCK_FILE
from common.protocol.errors import ErrorCode
from tests.integration.cluster import (
    WatchedCluster,
    directory_id,
    is_listening,
    open_files_under,
    remake_disk,
    until,
    watched_cluster,
)
from tests.integration.event_tail import EventTail, time_of
from tests.integration.loop_disks import loop_devices_under
from tests.integration.traffic import Promises, Writer, assert_nothing_lost
from tests.interop.topics import create_topic
from tools.lab import disk_faults
from tools.lab.disk_lab import Disk, heal_disk, mount_disk, revive_disk
from tools.lab.local_cluster import LocalNode

TOPIC = "t"
PARTITIONS = 12
LEADERS = {index: 1 + index // 4 % 2 for index in range(PARTITIONS)}
FOLLOWER_ONLY = 3
ASSIGNMENTS = {index: [leader, 3 - leader, FOLLOWER_ONLY] for index, leader in LEADERS.items()}
# Small segments are soon full, and a full segment is synced. Only fsync reports data that the kernel could not write.
TOPIC_CONFIG = {"min.insync.replicas": "2", "segment.bytes": "32768"}
RATE = 300
RECORD_BYTES = 600
# After a pause the client sends large batches. The broker would refuse a batch larger than a segment for good.
CLIENT = {"batch.size": 16384}

DEADLINE_MS = 2000
PROBE_MS = 1000
OVERRIDES = {
    "diskraft.log.dir.operation.timeout.ms": str(DEADLINE_MS),
    "diskraft.log.dir.probe.interval.ms": str(PROBE_MS),
    # The small disks have less free space than the default floor, so they would get no new replicas.
    "diskraft.log.dir.free.bytes.floor": "0",
    "broker.heartbeat.interval.ms": "500",
    # The timeout is long: the matrix does not test fencing, and a busy machine must not cause it.
    "broker.session.timeout.ms": "18000",
    # Before each fault the preferred replicas must lead again, so rebalance often.
    "leader.imbalance.check.interval.seconds": "1",
}

EXT4, XFS, FAULTY_EXT4, FAULTY_XFS = range(4)
"""The kinds of disks. Each broker has one of each, in this order."""
# File system, size in MiB, and whether faults can be injected below it. The smallest XFS has some 300 MiB.
DISKS = {
    EXT4: ("ext4", 64, False),
    XFS: ("xfs", 320, False),
    FAULTY_EXT4: ("ext4", 64, True),
    FAULTY_XFS: ("xfs", 320, True),
}

# Added to the time limits of all checks, because a busy machine may delay the daemons.
SLACK_SECONDS = 1.0
# The test waits this much longer than the bound for an event, so that a failure can report how long the event took.
PATIENCE_SECONDS = 60.0
AT_ONCE = 0.5
"""The bound for faults that make the next append fail. The disk is under load, so this append follows soon."""
BY_PROBE = PROBE_MS / 1000 + 0.5
"""The bound for faults that the probe finds at the latest."""
BY_SEGMENT = 8.0
"""The bound for faults that show only when a segment is full, because it is then synced and the next one created."""
BY_DEADLINE = DEADLINE_MS / 1000 + 1.0
"""The bound for a hung disk. The next operation starts after one probe interval at the latest, and then exceeds its
deadline."""

Recovery = Callable[["MatrixCluster", LocalNode, Path], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, the kind of disk that it hits, the cause that the broker must report within `bound` seconds, and the
    recovery."""

    name: str
    disk: int
    strike: Callable[[Path], None]
    cause: str
    bound: float
    recover: Recovery
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of one case. The times are in seconds, `offline` and `moved` since the fault."""

    case: Case
    role: str
    cause: str
    offline: float
    moved: float
    """When the controller had moved the leaders, or removed the replicas from their ISRs."""
    stood_still: float
    """The longest time in which a partition in the directory acknowledged nothing."""
    elsewhere: float
    """The longest time in which any other partition acknowledged nothing."""


def by_mounting_again(matrix: "MatrixCluster", broker: LocalNode, path: Path) -> None:
    """Stops the broker, mounts the disk again and starts the broker."""
    heal_disk(path)
    stop(broker, path)
    revive_disk(path)
    broker.start()


def by_mounting_while_it_runs(matrix: "MatrixCluster", broker: LocalNode, path: Path) -> None:
    """Mounts the disk again while the broker runs. The broker has no open descriptor in the directory, not even of `.lock`,
    so umount succeeds without --lazy. The disk comes back with its id, but the directory stays offline until the broker is
    started again."""
    id_text = broker.wait_for("log_dir_offline", log_dir=str(path))["directory_id"]
    until(lambda: not open_files_under(broker, str(path)), f"every descriptor in {path} closed")
    revive_disk(path)
    assert directory_id(str(path)) == id_text
    matrix.wait_for_acks()
    with matrix.cluster.admin() as admin:
        results = {each.log_dir: each.error_code for each in admin.log_dirs(broker.files.node_id)}
    others = {other: ErrorCode.NONE for other in broker.files.data_dirs if other != str(path)}
    assert results == others | {str(path): ErrorCode.KAFKA_STORAGE_ERROR}
    assert broker.stop() == 0
    broker.start()


def by_waiting(matrix: "MatrixCluster", broker: LocalNode, path: Path) -> None:
    """Lets the disk answer again and waits until its stuck threads are released. The directory stays offline until the
    broker is started again."""
    cluster = matrix.cluster
    broker.wait_for("log_dir_threads_stuck", log_dir=str(path))
    before = cluster.leadership(TOPIC)
    heal_disk(path)
    broker.wait_for("log_dir_threads_released", log_dir=str(path))
    matrix.wait_for_acks()
    assert cluster.leadership(TOPIC) == before
    stop(broker, path)
    broker.start()


def by_making_room(matrix: "MatrixCluster", broker: LocalNode, path: Path) -> None:
    """Stops the broker, frees space on the disk and starts the broker."""
    stop(broker, path)
    disk_faults.make_room(path)
    broker.start()


def by_mounting_what_vanished(matrix: "MatrixCluster", broker: LocalNode, path: Path) -> None:
    """Checks that nothing was written below the mount point and that the broker has released the disk. Stops the broker, and
    checks that it refuses to start with an empty folder in place of the disk. Then mounts the disk and starts the
    broker."""
    cluster = matrix.cluster
    assert os.listdir(path) == [], "something was written past the mount"
    held = str(Disk(path).source)
    until(lambda: held not in loop_devices_under(cluster.folder), f"the loop device of {path} is released")
    stop(broker, path)
    cluster.expect_end(broker, "^No `meta.properties` found in .*is the disk mounted")
    broker.start()
    assert broker.wait_until_ended() == 1
    assert "is the disk mounted" in broker.last_line()
    # The refused start has left this below the mount point, where the next case must find nothing.
    (path / LOCK_FILE).unlink()
    mount_disk(Disk(path))
    broker.start()


def by_formatting(matrix: "MatrixCluster", broker: LocalNode, path: Path) -> None:
    """Stops the broker, formats the empty disk and starts the broker."""
    stop(broker, path)
    matrix.cluster.format(broker)
    broker.start()


def stop(broker: LocalNode, path: Path) -> None:
    """Waits until the broker has closed the failed directory, then stops the broker. It must end with status 0."""
    until(lambda: not open_files_under(broker, str(path)), f"every descriptor in {path} closed")
    assert broker.stop() == 0


CASES = [
    Case("power cut, ext4", EXT4, disk_faults.cut_power, "EIO", AT_ONCE, by_mounting_while_it_runs),
    Case("power cut, xfs", XFS, disk_faults.cut_power, "EIO", AT_ONCE, by_mounting_again),
    Case("shutdown with flush, ext4", EXT4, disk_faults.shut_down_flushing, "EIO", AT_ONCE, by_mounting_again),
    Case("shutdown with flush, xfs", XFS, disk_faults.shut_down_flushing, "EIO", AT_ONCE, by_mounting_again),
    Case("shutdown, journal only, ext4", EXT4, disk_faults.shut_down_flushing_journal, "EIO", AT_ONCE, by_mounting_again),
    Case("shutdown, journal only, xfs", XFS, disk_faults.shut_down_flushing_journal, "EIO", AT_ONCE, by_mounting_again),
    Case("emergency read-only, ext4", EXT4, disk_faults.make_read_only, "EIO|EROFS", AT_ONCE, by_mounting_again),
    Case("disk full, ext4", EXT4, disk_faults.fill, "ENOSPC", AT_ONCE, by_making_room, is_full=True),
    # XFS preallocates blocks for the active segment, so the disk is not full until the next segment is created.
    Case("disk full, xfs", XFS, disk_faults.fill, "ENOSPC", BY_SEGMENT, by_making_room, is_full=True),
    Case("no inodes, ext4", EXT4, disk_faults.use_up_inodes, "ENOSPC", BY_SEGMENT, by_making_room, is_full=True),
    Case("freeze, ext4", EXT4, disk_faults.freeze, "ETIMEDOUT", BY_DEADLINE, by_waiting),
    Case("freeze, xfs", XFS, disk_faults.freeze, "ETIMEDOUT", BY_DEADLINE, by_waiting),
    Case("lazy unmount, ext4", EXT4, disk_faults.vanish, "ESTALE", BY_PROBE, by_mounting_what_vanished),
    Case("lazy unmount, xfs", XFS, disk_faults.vanish, "ESTALE", BY_PROBE, by_mounting_what_vanished),
    Case("fresh disk, ext4", EXT4, disk_faults.put_fresh, "ESTALE", BY_PROBE, by_formatting),
    Case("read errors, ext4", FAULTY_EXT4, disk_faults.fail_reads, "EIO", BY_PROBE, by_mounting_again),
    Case("read errors, xfs", FAULTY_XFS, disk_faults.fail_reads, "EIO", BY_PROBE, by_mounting_again),
    Case("write errors, ext4", FAULTY_EXT4, disk_faults.fail_writes, "EIO|EROFS", BY_PROBE, by_mounting_again),
    Case("write errors, xfs", FAULTY_XFS, disk_faults.fail_writes, "EIO", BY_PROBE, by_mounting_again),
    Case("block errors, ext4", FAULTY_EXT4, disk_faults.fail_blocks, "EIO|EROFS", BY_PROBE, by_mounting_again),
    Case("block hang, ext4", FAULTY_EXT4, disk_faults.hang_blocks, "ETIMEDOUT", BY_DEADLINE, by_waiting),
    Case("block hang, xfs", FAULTY_XFS, disk_faults.hang_blocks, "ETIMEDOUT", BY_DEADLINE, by_waiting),
    # Where the journal meets the error before an fsync does, ext4 makes itself read-only and xfs shuts down.
    Case("lost writeback, ext4", FAULTY_EXT4, disk_faults.run_out_of_blocks, "ENOSPC|EROFS", BY_SEGMENT, by_mounting_again),
    Case("lost writeback, xfs", FAULTY_XFS, disk_faults.run_out_of_blocks, "ENOSPC|EIO", BY_SEGMENT, by_mounting_again),
]
ROLES = ("leader", "follower")


class MatrixCluster:
    """The cluster of the matrix, and the records that were acknowledged to clients while it ran."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self.cluster = cluster
        self.promises: Promises = {}
        self.written = 0
        # The clients that write during `load`.
        self._writers: tuple[Writer, ...] = ()

    def until_whole(self) -> None:
        """Waits until every replica is in sync and the preferred replicas lead."""
        self.cluster.until_in_sync(TOPIC)

        def is_balanced() -> bool:
            return {index: leader for index, (leader, _) in self.cluster.leadership(TOPIC).items()} == LEADERS

        until(is_balanced, "the preferred replicas lead")

    def victim(self, disk: int, role: str) -> tuple[LocalNode, Path, set[int]]:
        """Finds a broker whose disk of this kind holds leaders (`role` is "leader") or only followers. Returns the broker,
        the path of the disk, and the partitions on it."""
        for broker in self.cluster.brokers:
            path = Path(broker.files.data_dirs[disk])
            inside = self.partitions_in(broker, path)
            leads = any(LEADERS[index] == broker.files.node_id for index in inside)
            if inside and leads == (role == "leader"):
                return broker, path, inside
        raise AssertionError(f"no disk of kind {DISKS[disk]} holds a {role}")

    def partitions_in(self, broker: LocalNode, path: Path) -> set[int]:
        """Returns the partitions that have a replica in this directory."""
        places = self.cluster.until_placed(TOPIC, 3 * PARTITIONS)
        node_id = broker.files.node_id
        return {index for (owner, index), place in places.items() if owner == node_id and place == str(path)}

    @contextmanager
    def load(self, inside: set[int]) -> Iterator[tuple[Writer, Writer]]:
        """Runs two clients: one writes to the partitions `inside` the directory, the other to all other partitions.
        Afterwards reads back every record acknowledged so far. There are two clients because a broker answers the requests
        of a connection in order: with one client, a hung disk would delay the partitions on other disks too."""
        elsewhere = set(range(PARTITIONS)) - inside
        with self._writer(inside) as writer, self._writer(elsewhere) as bystander:
            self._writers = writer, bystander
            self.wait_for_acks()
            yield writer, bystander
            for each in self._writers:
                each.stop()
                self.written = max(self.written, each.sent)
                self.promises |= each.acknowledged
                assert each.errors == {}, f"refused for good: {dict(each.errors)}"
        # Read only after the preferred replicas lead again: while leaders change, a reader has to retry.
        self.until_whole()
        assert_nothing_lost(self.cluster.bootstrap, TOPIC, self.promises, partitions=range(PARTITIONS))

    def wait_for_acks(self) -> None:
        """Waits until every partition has acknowledged a record that was sent after this call."""
        for each in self._writers:
            each.wait_for_acks()

    def _writer(self, partitions: set[int]) -> Writer:
        return Writer(
            self.cluster.bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            only=sorted(partitions),
            rate=RATE * len(partitions) // PARTITIONS,
            size=RECORD_BYTES,
            first=self.written,
            options=CLIENT,
        )


@contextmanager
def matrix_cluster(folder: Path) -> Iterator[MatrixCluster]:
    """Yields one cluster for the whole matrix, with a disk of every kind in each broker."""

    def with_every_kind_of_disk(cluster: WatchedCluster) -> None:
        for broker in cluster.brokers:
            for number, (file_system, size_mib, faulty) in DISKS.items():
                remake_disk(broker.files.data_dirs[number], size_mib=size_mib, file_system=file_system, faulty=faulty)
            cluster.format(broker)

    with watched_cluster(
        folder, disks=len(DISKS), disk_mib=16, overrides=OVERRIDES, prepare=with_every_kind_of_disk
    ) as cluster:
        create_topic(cluster.bootstrap, TOPIC, configs=TOPIC_CONFIG, partitions=PARTITIONS, assignments=ASSIGNMENTS)
        yield MatrixCluster(cluster)


def go_through(matrix: MatrixCluster, case: Case, role: str) -> Seen:
    """Runs one case under load, checks what must hold, and recovers the cluster."""
    cluster = matrix.cluster
    matrix.until_whole()
    broker, path, inside = matrix.victim(case.disk, role)
    with matrix.load(inside) as writers:
        seen = strike(matrix, writers, case, role, broker, path, inside)
        case.recover(matrix, broker, path)
        broker.wait_for("broker_running")
        cluster.until_in_sync(TOPIC)
        matrix.wait_for_acks()
    return seen


def strike(
    matrix: MatrixCluster,
    writers: tuple[Writer, Writer],
    case: Case,
    role: str,
    broker: LocalNode,
    path: Path,
    inside: set[int],
) -> Seen:
    """Causes the fault, waits until every partition acknowledges again, and checks the logged cause, the times and the
    leaders."""
    cluster = matrix.cluster
    writer, bystander = writers
    id_text = directory_id(str(path))
    assert open_files_under(broker, str(path))
    before = cluster.leadership(TOPIC)
    # Besides those of TOPIC there may be partitions of __consumer_offsets, which the consumers' groups bring with them.
    replicas = sum((folder / "partition.metadata").exists() for folder in path.iterdir())
    of_broker, of_controller = EventTail(broker), EventTail(cluster.controller)
    case.strike(path)
    for each in writers:
        each.forget_pauses()
    struck, struck_monotonic = time.time(), time.monotonic()
    failed = of_broker.wait_for_event("log_dir_failed", log_dir=str(path), seconds=case.bound + PATIENCE_SECONDS)
    offline = max(0.0, time_of(failed) - struck)
    moved = max(0.0, of_controller.wait_for("leaders_moved", directory_id=id_text) - struck)
    assert of_broker.wait_for_event("log_dir_offline", directory_id=id_text)["replicas"] == replicas
    matrix.wait_for_acks()
    stood_still, elsewhere = writer.longest_pause(inside), bystander.longest_pause(set(range(PARTITIONS)) - inside)
    slack = SLACK_SECONDS + cluster.standstills.seconds_since(struck_monotonic)
    limit = case.bound + slack
    assert any(name in failed["cause"] for name in case.cause.split("|")), failed["cause"]
    assert failed["is_full"] is case.is_full
    assert offline < limit, f"offline after {offline:.2f} s, the bound is {case.bound} s (machine: {slack:.1f} s)"
    # The partitions outside the directory keep their leaders and epochs; no leader is left in the directory.
    led = {index for index in inside if before[index][0] == broker.files.node_id}
    assert bool(led) == (role == "leader")
    after = until(lambda: led_elsewhere(cluster, led, broker), f"{sorted(led)} led by others")
    assert {index: after[index] for index in after if index not in led} == {
        index: was for index, was in before.items() if index not in led
    }
    assert elsewhere < slack + 0.5, f"partitions on other disks stood still for {elsewhere:.1f} s (machine: {slack:.1f} s)"
    assert stood_still < limit + 2.5, (
        f"partitions on the failed disk stood still for {stood_still:.1f} s (machine: {slack:.1f} s)"
    )
    assert is_listening(broker.files.port)
    return Seen(case, role, failed["cause"], offline, moved, stood_still, elsewhere)


def led_elsewhere(cluster: WatchedCluster, led: set[int], broker: LocalNode) -> dict[int, tuple[int, int]] | None:
    """Returns leaders and epochs once other brokers lead all partitions in `led`, else None. The broker that
    answers may not know about the elections yet."""
    found = cluster.leadership(TOPIC)
    return found if all(found[index][0] not in (broker.files.node_id, -1) for index in led) else None


def table(rows: list[Seen]) -> str:
    """Returns the results as a human-readable table."""
    lines = [f"{'fault':30}{'disk of':>10}{'offline':>10}{'moved':>9}{'stood still':>13}{'elsewhere':>11}  seen as"]
    lines += [
        f"{row.case.name:30}{row.role:>10}{row.offline * 1000:>7.0f} ms{row.moved * 1000:>6.0f} ms"
        f"{row.stood_still * 1000:>10.0f} ms{row.elsewhere * 1000:>8.0f} ms  {row.cause.rpartition(': ')[2]}"
        for row in rows
    ]
    return "\n".join(lines)
