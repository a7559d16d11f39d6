"""When snapshots are written and deleted."""

import pytest

from common.ids import LeaderEpoch, Offset
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.snapshot_policy import Retention, SnapshotTriggers, StoredSnapshot
from common.time_units import NS_PER_S


@pytest.mark.parametrize(
    ("record_bytes", "seconds", "due"),
    [(0, 10_000, False), (1, 59, False), (1, 60, True), (999, 0, False), (1_000, 0, True)],
)
def test_bytes_or_time_make_a_snapshot_due(record_bytes: int, seconds: int, due: bool) -> None:
    """A snapshot is due after enough bytes of records, or after the interval if there is any new record."""
    triggers = SnapshotTriggers(record_bytes_max=1_000, interval_ms=60_000)
    assert triggers.is_due(record_bytes=record_bytes, since_last_ns=seconds * NS_PER_S) is due


def test_an_interval_of_zero_turns_the_clock_off() -> None:
    """With an interval of zero, only the bytes of new records make a snapshot due."""
    triggers = SnapshotTriggers(record_bytes_max=1_000, interval_ms=0)
    assert not triggers.is_due(record_bytes=999, since_last_ns=10**9 * NS_PER_S)
    assert triggers.is_due(record_bytes=1_000, since_last_ns=0)


def stored(offset: int, modified_ms: int) -> StoredSnapshot:
    return StoredSnapshot(OffsetAndEpoch(Offset(offset), LeaderEpoch(1)), 100, modified_ms)


@pytest.mark.parametrize(
    ("bytes_max", "ms_max", "surplus"),
    [(-1, -1, False), (1_200, -1, False), (1_199, -1, True), (-1, 50, False), (-1, 49, True)],
)
def test_the_oldest_goes_for_size_or_age(bytes_max: int, ms_max: int, surplus: bool) -> None:
    """The oldest snapshot is surplus if log and snapshots together exceed the size limit, or if it exceeds the age limit."""
    snapshots = [stored(10, 50), stored(20, 90)]
    retention = Retention(bytes_max=bytes_max, ms_max=ms_max)
    assert retention.oldest_is_surplus(snapshots, log_bytes=1_000, wall_ms=100) is surplus


def test_the_only_snapshot_stays() -> None:
    """The only snapshot is kept at any size and age, because the log below its end offset may be deleted."""
    assert not Retention(bytes_max=0, ms_max=0).oldest_is_surplus([stored(10, 0)], log_bytes=1, wall_ms=10**9)
