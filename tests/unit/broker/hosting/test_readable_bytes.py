"""The counts of readable bytes: each write counts once for each isolation, when its readers may see it."""

import bisect
import random

import pytest

from broker.hosting.readable_bytes import ENTRIES_MAX, UNKNOWN_SIZE, ReadableBytes, ReadIsolation
from common.ids import Offset


def counts(readable: ReadableBytes) -> tuple[int, int, int]:
    return (
        readable.of(ReadIsolation.LOG_END),
        readable.of(ReadIsolation.HIGH_WATERMARK),
        readable.of(ReadIsolation.TXN_COMMITTED),
    )


def advance(readable: ReadableBytes, high_watermark: int, last_stable_offset: int) -> None:
    readable.advanced(high_watermark=Offset(high_watermark), last_stable_offset=Offset(last_stable_offset))


def test_a_write_counts_when_each_offset_has_passed_it() -> None:
    readable = ReadableBytes()
    readable.written(Offset(3), 100)
    readable.written(Offset(5), 20)
    assert counts(readable) == (120, 0, 0)
    advance(readable, 3, 3)
    assert counts(readable) == (120, 100, 100)
    advance(readable, 5, 3)
    assert counts(readable) == (120, 120, 100)
    readable.written(Offset(6), 1)
    advance(readable, 6, 3)
    assert counts(readable) == (121, 121, 100)
    advance(readable, 6, 5)
    assert counts(readable) == (121, 121, 120)
    advance(readable, 6, 6)
    assert counts(readable) == (121, 121, 121)


@pytest.mark.parametrize("isolation", [ReadIsolation.HIGH_WATERMARK, ReadIsolation.TXN_COMMITTED])
def test_an_offset_inside_of_what_was_written_at_once_counts_the_whole_write_again_and_again(
    isolation: ReadIsolation,
) -> None:
    """A fetch that has begun between two advances is woken by the second one, too. An offset that stands still counts
    nothing."""
    readable = ReadableBytes()
    readable.written(Offset(10), 100)
    readable.written(Offset(12), 7)
    for offset, expected in ((4, 100), (4, 100), (7, 200), (10, 300), (10, 300), (11, 307), (12, 314)):
        advance(readable, offset, offset)
        assert readable.of(isolation) == expected


def test_after_a_restart_any_advance_satisfies_every_fetch() -> None:
    """The sizes of what is in the log are unknown then. What is written later counts as usual."""
    readable = ReadableBytes()
    readable.written(Offset(3), 120)
    readable.restart(log_end_offset=Offset(9), high_watermark=Offset(7), last_stable_offset=Offset(4))
    assert counts(readable) == (120, 0, 0)
    advance(readable, 7, 5)
    assert counts(readable) == (120, 0, UNKNOWN_SIZE)
    readable.written(Offset(10), 50)
    advance(readable, 8, 7)
    assert counts(readable) == (170, UNKNOWN_SIZE, 2 * UNKNOWN_SIZE)
    advance(readable, 9, 9)
    assert counts(readable) == (170, 2 * UNKNOWN_SIZE, 3 * UNKNOWN_SIZE)
    advance(readable, 10, 10)
    assert counts(readable) == (170, 2 * UNKNOWN_SIZE + 50, 3 * UNKNOWN_SIZE + 50)


def test_an_offset_ahead_of_the_noted_writes_counts_them_when_they_are_noted() -> None:
    """Two appends are written in the same step, and the first moves the high watermark into the second."""
    readable = ReadableBytes()
    readable.written(Offset(3), 10)
    advance(readable, 5, 5)
    assert counts(readable) == (10, 10, 10)
    readable.written(Offset(8), 20)
    advance(readable, 5, 5)
    assert counts(readable) == (30, 30, 30)


def test_an_offset_that_goes_back_counts_nothing_twice() -> None:
    """A log that is truncated below its high watermark may have a transaction open again that had ended. Until the counts
    start again, the last stable offset goes back and forth."""
    readable = ReadableBytes()
    readable.written(Offset(3), 10)
    for offset in (3, 1, 2, 3):
        advance(readable, 3, offset)
        assert counts(readable) == (10, 10, 10)


@pytest.mark.parametrize("writes_max", [3, ENTRIES_MAX])
@pytest.mark.parametrize("seed", range(5))
def test_a_count_grows_at_least_by_what_became_readable(seed: int, writes_max: int) -> None:
    """Batches of random sizes are written, several at once. Each time, the count of each offset grows at least by the bytes
    of the batches that the offset has passed, whatever was restarted and however many writes were waiting."""
    rng = random.Random(seed)
    readable = ReadableBytes()
    ends, position = [0], 0
    # The bytes up to each offset at which a batch ends.
    positions = {0: 0}
    passed = [0, 0]
    for _ in range(30):
        before, seen = [positions[each] for each in passed], counts(readable)[1:]
        for _ in range(rng.randint(0, writes_max)):
            begin = position
            for _ in range(rng.randint(1, 3)):
                ends.append(ends[-1] + rng.randint(1, 3))
                positions[ends[-1]] = position = position + rng.randint(1, 1000)
            readable.written(Offset(ends[-1]), position - begin)
        behind = bisect.bisect_left(ends, passed[0])
        passed[0] = ends[rng.randint(behind, len(ends) - 1)] if rng.random() < 0.7 else passed[0]
        if rng.random() < 0.5:
            passed[1] = ends[rng.randint(bisect.bisect_left(ends, passed[1]), bisect.bisect_left(ends, passed[0]))]
        advance(readable, *passed)
        now = counts(readable)[1:]
        assert all(
            after - earlier >= positions[offset] - where
            for after, earlier, offset, where in zip(now, seen, passed, before, strict=True)
        )
        assert max(len(readable._committed._ahead), len(readable._stable._ahead)) <= ENTRIES_MAX
        if rng.random() < 0.1:
            readable.restart(
                log_end_offset=Offset(ends[-1]), high_watermark=Offset(passed[0]), last_stable_offset=Offset(passed[1])
            )
