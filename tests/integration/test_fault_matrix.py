"""Runs every fault of the lab on a leader's and on a follower's disk, under load (tests/integration/faults/matrix.py)."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.event_tail import EventTail, time_of
from tests.integration.faults.matrix import (
    BY_PROBE,
    CASES,
    DEADLINE_MS,
    EXT4,
    FAULTY_EXT4,
    FAULTY_XFS,
    PARTITIONS,
    ROLES,
    SLACK_SECONDS,
    TOPIC,
    Case,
    MatrixCluster,
    Seen,
    go_through,
    matrix_cluster,
    table,
)
from tools.lab.disk_faults import FILLER, slow_blocks, swap
from tools.lab.disk_lab import heal_disk

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

SLOW_SECONDS = 4.0
BUSY_MIB = 28
BUSY_BLOCK_MS = 120
# The cases with the marker `brief`. They cover each way to notice a fault and each way to bring the disk back.
BRIEF = {
    "power cut, ext4",
    "shutdown, journal only, xfs",
    "emergency read-only, ext4",
    "disk full, ext4",
    "freeze, xfs",
    "lazy unmount, ext4",
    "fresh disk, ext4",
    "block hang, ext4",
    "lost writeback, ext4",
}
MATRIX = [
    pytest.param(
        case,
        id=case.name.replace(", ", "-").replace(" ", "-"),
        marks=[pytest.mark.brief] if case.name in BRIEF else [],
    )
    for case in CASES
]
assert {case.name for case in CASES} >= BRIEF


class Clusters:
    """The cluster that all cases share. After a failed case the next one gets a new cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._current: MatrixCluster | None = None
        self._made = 0
        self.rows: list[Seen] = []

    @contextmanager
    def current(self) -> Iterator[MatrixCluster]:
        if self._current is None:
            self._made += 1
            self._current = self._stack.enter_context(matrix_cluster(self._folder / str(self._made)))
        try:
            yield self._current
        except BaseException as error:
            self.take_down(error)
            raise

    def take_down(self, error: BaseException | None = None) -> None:
        self._current = None
        stack = self._stack.pop_all()
        stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


@pytest.fixture(scope="module")
def clusters(faulty_disks: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    clusters = Clusters(tmp_path_factory.mktemp("matrix"))
    yield clusters
    print("\n" + table(clusters.rows))
    clusters.take_down()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("case", MATRIX)
def test_a_disk_fails_under_load(clusters: Clusters, case: Case, role: str) -> None:
    """The directory is offline within its time limit, no acknowledged record is lost, other directories are not affected,
    and the recovery in docs/operations.md works."""
    with clusters.current() as matrix:
        clusters.rows.append(go_through(matrix, case, role))


@pytest.mark.parametrize("role", ROLES)
def test_two_disks_change_places_under_load(clusters: Clusters, role: str) -> None:
    """Both directories are offline within the probe's interval, and nothing is written to the wrong disk. Once the disks are
    back in place, all records are there."""
    with clusters.current() as matrix:
        matrix.until_whole()
        broker, first, inside = matrix.victim(EXT4, role)
        second = Path(broker.files.data_dirs[FAULTY_EXT4])
        inside |= matrix.partitions_in(broker, second)
        with matrix.load(inside):
            events = EventTail(broker)
            swapped, began = time.time(), time.monotonic()
            swap(first, second)
            for path in (first, second):
                failed = events.wait_for_event("log_dir_failed", log_dir=str(path))
                assert "ESTALE" in failed["cause"]
                slack = SLACK_SECONDS + matrix.cluster.standstills.seconds_since(began)
                assert time_of(failed) - swapped < BY_PROBE + slack
            matrix.wait_for_acks()
            assert broker.stop() == 0
            for path in (first, second):
                heal_disk(path)
            broker.start()
            broker.wait_for("broker_running")
            matrix.cluster.until_in_sync(TOPIC)
        assert matrix.partitions_in(broker, first) | matrix.partitions_in(broker, second) == inside


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("disk", [FAULTY_EXT4, FAULTY_XFS], ids=["ext4", "xfs"])
def test_a_slow_disk_stays(clusters: Clusters, disk: int, role: str) -> None:
    """Every block takes 100 ms, so probes and syncs are slow but succeed. The directory stays online, every partition keeps
    acknowledging, including those on this disk, and no replica leaves an ISR."""
    with clusters.current() as matrix:
        matrix.until_whole()
        broker, path, inside = matrix.victim(disk, role)
        before = matrix.cluster.leadership(TOPIC)
        with matrix.load(inside) as (writer, bystander):
            events = EventTail(broker)
            slow_blocks(path, delay_ms=100)
            for each in (writer, bystander):
                each.forget_pauses()
            began = time.monotonic()
            while time.monotonic() < began + SLOW_SECONDS:
                matrix.wait_for_acks()
            assert not events.has("log_dir_failed")
            assert matrix.cluster.leadership(TOPIC) == before
            pause = bystander.longest_pause(set(range(PARTITIONS)) - inside)
            assert pause < 1.5 + matrix.cluster.standstills.seconds_since(began)
            heal_disk(path)
            matrix.cluster.until_in_sync(TOPIC)


@contextmanager
def large_file_being_synced(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Lets another process write a large file to the disk and sync it."""
    filler = path / FILLER
    command = ["dd", "if=/dev/zero", f"of={filler}", "bs=1M", f"count={BUSY_MIB}", "conv=fsync"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            filler.unlink(missing_ok=True)


def longest_sync(path: Path, is_over: Callable[[], bool]) -> float:
    """Syncs a small file again and again, as a probe does. Returns how many seconds the longest sync took."""
    longest = 0.0
    file = path / ".small"
    while not is_over():
        with file.open("wb") as small:
            small.write(bytes(4096))
            small.flush()
            began = time.monotonic()
            os.fsync(small.fileno())
            longest = max(longest, time.monotonic() - began)
        file.unlink()
    return longest


@pytest.mark.parametrize("disk", [pytest.param(FAULTY_EXT4, marks=pytest.mark.brief), FAULTY_XFS], ids=["ext4", "xfs"])
def test_a_busy_disk_stays(clusters: Clusters, disk: int) -> None:
    """Another process syncs a large file on a slow disk. Even the sync of a small file then takes longer than the deadline
    of an operation, but the disk writes one block after the other. The directory stays online, every partition keeps
    acknowledging, and no leader moves."""
    with clusters.current() as matrix:
        matrix.until_whole()
        broker, path, inside = matrix.victim(disk, "leader")
        before = matrix.cluster.leadership(TOPIC)
        with matrix.load(inside) as (writer, bystander):
            events = EventTail(broker)
            slow_blocks(path, delay_ms=BUSY_BLOCK_MS)
            for each in (writer, bystander):
                each.forget_pauses()
            began = time.monotonic()
            with large_file_being_synced(path) as process, ThreadPoolExecutor(1) as pool:
                syncing = pool.submit(longest_sync, path, lambda: process.poll() is not None)
                while process.poll() is None:
                    matrix.wait_for_acks()
                longest = syncing.result()
                heal_disk(path)
            pause = bystander.longest_pause(set(range(PARTITIONS)) - inside)
            inside_pause = writer.longest_pause(inside)
            print(f"longest sync of a small file {longest:.1f} s, longest pause on the disk {inside_pause:.1f} s")
            assert longest > DEADLINE_MS / 1000, "the disk was not busy enough to show anything"
            assert not events.has("log_dir_failed")
            assert matrix.cluster.leadership(TOPIC) == before
            assert pause < 1.5 + matrix.cluster.standstills.seconds_since(began)
            matrix.cluster.until_in_sync(TOPIC)
