"""Which log is compacted next, and up to where."""

from collections.abc import Sequence

import pytest

from broker.core.compaction import (
    Cleanable,
    CompactionRules,
    SegmentAge,
    choose_next,
    cleanable_part,
    first_dirty_offset,
)

# Three full segments of ten records each, written at times 100 to 399.
SEGMENTS = [
    SegmentAge(0, 10, 1000, 100, 199),
    SegmentAge(10, 20, 1000, 200, 299),
    SegmentAge(20, 30, 1000, 300, 399),
]


def part(
    *,
    segments: Sequence[SegmentAge] = SEGMENTS,
    dirty_from: int = 0,
    last_stable_offset: int = 30,
    now_ms: int = 1000,
    ratio: float = 0.5,
    min_lag_ms: int = 0,
    max_lag_ms: int = 2**63 - 1,
) -> Cleanable:
    rules = CompactionRules(
        min_cleanable_dirty_ratio=ratio, min_compaction_lag_ms=min_lag_ms, max_compaction_lag_ms=max_lag_ms
    )
    return cleanable_part(
        segments, first_dirty_offset=dirty_from, last_stable_offset=last_stable_offset, now_ms=now_ms, rules=rules
    )


@pytest.mark.parametrize(
    ("checkpointed", "start", "end", "expected"),
    [(0, 0, 30, 0), (12, 0, 30, 12), (30, 0, 30, 30), (31, 0, 30, 0), (12, 20, 30, 20), (40, 20, 30, 20)],
)
def test_a_checkpoint_that_does_not_fit_the_log_starts_over(checkpointed: int, start: int, end: int, expected: int) -> None:
    assert first_dirty_offset(checkpointed, log_start_offset=start, log_end_offset=end) == expected


@pytest.mark.parametrize(
    ("last_stable_offset", "end", "cleanable_bytes"), [(30, 30, 3000), (29, 20, 2000), (20, 20, 2000), (9, 0, 0), (0, 0, 0)]
)
def test_only_whole_segments_below_the_last_stable_offset_are_cleanable(
    last_stable_offset: int, end: int, cleanable_bytes: int
) -> None:
    found = part(last_stable_offset=last_stable_offset)
    assert (found.end_offset, found.cleanable_bytes, found.is_due) == (end, cleanable_bytes, cleanable_bytes > 0)


@pytest.mark.parametrize(
    ("dirty_from", "clean", "cleanable", "is_due"),
    [(0, 0, 3000, True), (5, 0, 3000, True), (10, 1000, 2000, True), (20, 2000, 1000, False), (30, 3000, 0, False)],
)
def test_a_log_is_due_above_its_ratio(dirty_from: int, clean: int, cleanable: int, is_due: bool) -> None:
    """A segment that is clean only in part counts as dirty."""
    found = part(dirty_from=dirty_from)
    assert (found.clean_bytes, found.cleanable_bytes, found.is_due) == (clean, cleanable, is_due)
    assert found.ratio == cleanable / 3000


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 30), (600, 30), (601, 30), (602, 20), (702, 10), (802, 0)])
def test_a_segment_with_a_young_record_and_all_later_ones_stay(lag_ms: int, end: int) -> None:
    assert part(min_lag_ms=lag_ms).end_offset == end


@pytest.mark.parametrize(("dirty_from", "now_ms", "is_due"), [(20, 1000, False), (20, 1301, True), (30, 5000, False)])
def test_an_old_dirty_record_makes_a_log_due(dirty_from: int, now_ms: int, is_due: bool) -> None:
    """The oldest record of the clean part does not count."""
    found = part(dirty_from=dirty_from, now_ms=now_ms, max_lag_ms=1000)
    assert found.ratio < found.min_ratio
    assert found.is_due == is_due


def test_segments_without_timestamps_never_make_a_log_overdue() -> None:
    found = part(segments=[SegmentAge(0, 10, 1000)], ratio=1, max_lag_ms=1)
    assert not found.is_due


def test_the_dirtiest_log_that_is_due_is_next() -> None:
    logs = {"clean": part(dirty_from=30), "half": part(dirty_from=10), "dirty": part(), "idle": part(last_stable_offset=0)}
    assert choose_next(logs) == "dirty"
    del logs["dirty"]
    assert choose_next(logs) == "half"
    del logs["half"]
    assert choose_next(logs) is None


def test_an_empty_log_is_never_due() -> None:
    assert not part(segments=[], ratio=0).is_due
