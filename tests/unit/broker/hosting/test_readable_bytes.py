"""The counts of readable bytes: each write counts once for each isolation, when its readers may see it."""

import random

import pytest

from broker.hosting.readable_bytes import ENTRIES_MAX, ReadableBytes, ReadIsolation
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
    advance(readable, 4, 4)
    assert counts(readable) == (120, 100, 100)
    advance(readable, 5, 4)
    assert counts(readable) == (120, 120, 100)
    readable.written(Offset(6), 1)
    advance(readable, 6, 4)
    assert counts(readable) == (121, 121, 100)
    advance(readable, 6, 5)
    assert counts(readable) == (121, 121, 120)
    advance(readable, 6, 6)
    assert counts(readable) == (121, 121, 121)


@pytest.mark.parametrize(
    ("high_watermark", "last_stable_offset", "expected"),
    [(9, 9, (120, 120, 120)), (7, 7, (121, 120, 120)), (7, 4, (122, 121, 120))],
)
def test_after_a_restart_each_range_counts_as_one_byte(
    high_watermark: int, last_stable_offset: int, expected: tuple[int, int, int]
) -> None:
    readable = ReadableBytes()
    readable.written(Offset(3), 120)
    readable.restart(
        log_end_offset=Offset(9), high_watermark=Offset(high_watermark), last_stable_offset=Offset(last_stable_offset)
    )
    assert counts(readable) == expected
    advance(readable, 9, 9)
    assert counts(readable) == (expected[0],) * 3


@pytest.mark.parametrize("seed", range(10))
def test_a_long_transaction_takes_bounded_memory(seed: int) -> None:
    """While it is open, ten times as many writes are committed as are counted one by one. Then the last stable offset
    advances in steps. Each step that passes a write counts at least one byte as stable, and in the end all are."""
    rng = random.Random(seed)
    readable = ReadableBytes()
    end = 10 * ENTRIES_MAX
    for offset in range(1, end + 1):
        readable.written(Offset(offset), 1)
        advance(readable, offset, 0)
    assert counts(readable) == (end, end, 0)
    assert len(readable._unstable) <= ENTRIES_MAX
    stable = 0
    while stable < end:
        stable = min(end, stable + rng.randint(1, end // 20))
        advance(readable, end, stable)
        assert readable.of(ReadIsolation.TXN_COMMITTED) >= stable - end // ENTRIES_MAX * 2
    assert counts(readable) == (end, end, end)


@pytest.mark.parametrize("seed", range(10))
def test_a_follower_that_has_stopped_costs_bounded_memory(seed: int) -> None:
    """While it holds the high watermark back, ten times as many writes come as are counted one by one. Then the high
    watermark advances in steps. Each step counts what it passes, and in the end all is committed."""
    rng = random.Random(seed)
    readable = ReadableBytes()
    end = 10 * ENTRIES_MAX
    for offset in range(1, end + 1):
        readable.written(Offset(offset), 1)
    assert counts(readable) == (end, 0, 0)
    assert len(readable._uncommitted) <= ENTRIES_MAX
    committed = 0
    while committed < end:
        committed = min(end, committed + rng.randint(1, end // 20))
        advance(readable, committed, committed)
        assert readable.of(ReadIsolation.HIGH_WATERMARK) >= committed - end // ENTRIES_MAX * 2
    assert counts(readable) == (end, end, end)
