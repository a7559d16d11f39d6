"""Both sparse indexes: Kafka's bytes worked out by hand, lookups, truncation, and rejection of corrupt content."""

import struct
from collections.abc import Sequence
from contextlib import suppress

import pytest

from common.storage.index_entries import CorruptIndex, IndexEntries
from common.storage.offset_index import OffsetIndex
from common.storage.time_index import TimeIndex

# Base offset 100: the batch that ends at 103 begins at 4200, the one that ends at 110 begins at 70000.
OFFSET_BYTES = bytes.fromhex("00000003 00001068 0000000a 00011170")
# No batch up to offset 103 is newer than 0x0102030405060708, and none up to 110 is newer than 0x0102030405060709.
TIME_BYTES = bytes.fromhex("0102030405060708 00000003 0102030405060709 0000000a")


def offset_index() -> OffsetIndex:
    index = OffsetIndex(100)
    index.append(103, 4200)
    index.append(110, 70_000)
    return index


def time_index() -> TimeIndex:
    index = TimeIndex(100)
    index.maybe_append(0x0102030405060708, 103)
    index.maybe_append(0x0102030405060709, 110)
    return index


def test_the_offset_indexs_bytes() -> None:
    assert offset_index().to_bytes() == OFFSET_BYTES
    parsed = OffsetIndex.from_bytes(OFFSET_BYTES, base_offset=100, end_offset=111, segment_size=70_100)
    assert parsed.entries == [(103, 4200), (110, 70_000)]
    assert OffsetIndex.from_bytes(b"", base_offset=0, end_offset=0, segment_size=0).entries == []


def test_the_time_indexs_bytes() -> None:
    assert time_index().to_bytes() == TIME_BYTES
    parsed = TimeIndex.from_bytes(TIME_BYTES, base_offset=100, end_offset=111)
    assert parsed.entries == [(0x0102030405060708, 103), (0x0102030405060709, 110)]
    assert TimeIndex.from_bytes(b"", base_offset=0, end_offset=0).last is None


def test_an_offset_is_looked_up_at_or_before_its_batch() -> None:
    index = offset_index()
    first, second = index.entries
    assert [index.batch_for(offset) for offset in (99, 100, 102)] == [None] * 3
    assert [index.batch_for(offset) for offset in (103, 109, 110, 999)] == [first, first, second, second]
    assert [index.batch_at_or_before(position) for position in (0, 4199)] == [None] * 2
    assert [index.batch_at_or_before(position) for position in (4200, 69_999, 70_000)] == [first, first, second]
    assert (index.last_offset, index.last_position) == (110, 70_000)
    assert (OffsetIndex(5).last_offset, OffsetIndex(5).last_position) == (5, 0)


def test_a_time_is_looked_up_where_nothing_before_is_as_new() -> None:
    index = TimeIndex(100)
    index.maybe_append(50, 103)
    index.maybe_append(50, 105)  # not newer
    index.maybe_append(40, 107)  # older
    index.maybe_append(-1, 108)  # no timestamp
    index.maybe_append(60, 110)
    assert index.entries == [(50, 103), (60, 110)]
    assert [index.offset_for(time) for time in (0, 49, 50, 59, 60, 99)] == [100, 100, 103, 103, 110, 110]
    assert index.last == (60, 110)


def test_truncation_forgets_what_lies_behind_the_end() -> None:
    index, times = offset_index(), time_index()
    index.truncate_to_position(70_000)
    times.truncate_to_offset(110)
    assert index.entries == [(103, 4200)]
    assert times.entries == [(0x0102030405060708, 103)]


def test_a_copy_is_independent() -> None:
    index, times = offset_index(), time_index()
    index.copy().append(120, 80_000)
    times.copy().maybe_append(2**62, 120)
    assert (len(index), len(times)) == (2, 2)


@pytest.mark.parametrize(
    ("content", "end_offset", "segment_size"),
    [
        (OFFSET_BYTES[:-1], 111, 70_100),  # cut off
        (OFFSET_BYTES, 110, 70_100),  # beyond the segment's end
        (OFFSET_BYTES, 111, 70_000),
        (OFFSET_BYTES + bytes(8), 111, 70_100),  # zeros, as in a file that was not synced
        (OFFSET_BYTES[8:] + OFFSET_BYTES[:8], 111, 70_100),
        (b"\xff" * 8, 111, 70_100),
    ],
)
def test_a_corrupt_offset_index_is_noticed(content: bytes, end_offset: int, segment_size: int) -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex.from_bytes(content, base_offset=100, end_offset=end_offset, segment_size=segment_size)


@pytest.mark.parametrize(
    ("content", "end_offset"),
    [
        (TIME_BYTES[:-1], 111),
        (TIME_BYTES, 110),
        (TIME_BYTES + bytes(12), 111),
        (TIME_BYTES[12:] + TIME_BYTES[:12], 111),
        (bytes(8) + b"\xff" * 4, 111),
    ],
)
def test_a_corrupt_time_index_is_noticed(content: bytes, end_offset: int) -> None:
    with pytest.raises(CorruptIndex):
        TimeIndex.from_bytes(content, base_offset=100, end_offset=end_offset)


ORDERED = range(1, 101)


def offset_content(entries: Sequence[int]) -> bytes:
    return b"".join(struct.pack(">ii", number, 10 * number) for number in entries)


def time_content(entries: Sequence[int]) -> bytes:
    return b"".join(struct.pack(">qi", 1000 * number, number) for number in entries)


@pytest.mark.parametrize("damaged", [2, 50, 95])
@pytest.mark.parametrize("wrong", [0, 31, 77, 200])
def test_a_corrupt_entry_never_leads_a_lookup_too_far(damaged: int, wrong: int) -> None:
    """Loading looks only at the first and the last entry. A lookup finds the right entry, an earlier one, or notices the
    damage; never a later one, with which a search would skip records."""
    numbers = [*ORDERED]
    numbers[damaged] = wrong
    index = OffsetIndex.from_bytes(offset_content(numbers), base_offset=0, end_offset=101, segment_size=2000)
    times = TimeIndex.from_bytes(time_content(numbers), base_offset=0, end_offset=101)
    for number in ORDERED:
        with suppress(CorruptIndex):
            found = index.batch_for(number)
            assert found is None or (found.last_offset <= number and found.position == 10 * found.last_offset)
        with suppress(CorruptIndex):
            assert times.offset_for(1000 * number) <= number
    with pytest.raises(CorruptIndex):
        index.check_order()
    with pytest.raises(CorruptIndex):
        times.check_order()


def test_a_lookup_reads_few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop must not stand still for an index of megabytes."""
    numbers = range(1, 100_001)
    index = OffsetIndex.from_bytes(offset_content(numbers), base_offset=0, end_offset=200_000, segment_size=2_000_000)
    read: list[int] = []
    entry_of = IndexEntries.__getitem__

    def counted(entries: IndexEntries, number: int) -> tuple[int, int]:
        read.append(number)
        return entry_of(entries, number)

    monkeypatch.setattr(IndexEntries, "__getitem__", counted)
    assert index.batch_for(77_777) == (77_777, 777_770)
    assert len(read) < 30
