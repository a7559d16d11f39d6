"""Which records of a batch survive, and how segments are grouped, without a log."""

from dataclasses import dataclass

import pytest

from common.parts import Buffer
from common.records.batch import CONTROL_BIT, TIMESTAMP_TYPE_BIT, InvalidRecordBatch, read_header, validate_integrity
from common.records.compression import compress
from common.records.decompression import decompress
from common.records.record import Record, encode_batch, iterate_records
from common.slices import at_once
from common.storage.compaction.batch_filter import filter_batch, note_keys
from common.storage.compaction.offset_map import OffsetMap, entries_max
from common.storage.compaction.record_spans import record_spans
from common.storage.compaction.segment_groups import group_bytes_max, group_segments

LONG_KEY = b"k" * 40


def batch(*pairs: tuple[bytes | None, bytes | None], base_offset: int = 0, attributes: int = 0) -> bytearray:
    records = [Record(key, value, 10 * number) for number, (key, value) in enumerate(pairs)]
    return encode_batch(records, base_offset=base_offset, attributes=attributes, producer_id=5, base_sequence=3)


def filtered(encoded: Buffer, offsets: OffsetMap, *, is_kept_empty: bool = False, now_ms: int = 100) -> Buffer | None:
    work = filter_batch(
        read_header(encoded),
        encoded,
        offsets,
        is_kept_empty=is_kept_empty,
        now_ms=now_ms,
        delete_retention_ms=1000,
    )
    return at_once(work)


def map_of(end_offset: int, **offsets: int) -> OffsetMap:
    found = OffsetMap(0, 100)
    for key, offset in sorted(offsets.items(), key=lambda each: each[1]):
        assert found.put(key.encode(), offset)
    found.end_offset = end_offset
    return found


def test_a_batch_that_keeps_everything_is_not_copied() -> None:
    encoded = batch((b"a", b"1"), (b"b", b"2"))
    assert filtered(encoded, map_of(100, a=0, b=1)) is encoded
    assert filtered(encoded, map_of(100)) is encoded


def test_what_is_left_keeps_its_place_and_its_producer() -> None:
    encoded = batch((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), base_offset=50)
    kept = filtered(encoded, map_of(100, a=60, c=70))
    assert kept is not None
    header = read_header(kept)
    validate_integrity(header, kept)
    assert (header.base_offset, header.last_offset, header.record_count) == (50, 52, 1)
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (5, 3, 10)
    [record] = iterate_records(kept)
    assert (record.offset, bytes(record.key or b""), record.timestamp_ms) == (51, b"b", 10)


def test_records_beyond_the_end_of_the_map_stay() -> None:
    encoded = batch((b"a", b"1"), (b"a", None), (None, b"3"), base_offset=50)
    kept = filtered(encoded, map_of(51, a=50))
    assert kept is encoded
    assert filtered(encoded, map_of(50, a=49)) is encoded
    kept = filtered(encoded, map_of(52, a=51))
    assert kept is not None
    assert [record.offset for record in iterate_records(kept)] == [51, 52]


def test_a_batch_without_records_left_goes_or_stays_empty() -> None:
    encoded = batch((b"a", b"1"), base_offset=7)
    assert filtered(encoded, map_of(100, a=50)) is None
    kept = filtered(encoded, map_of(100, a=50), is_kept_empty=True)
    assert kept is not None
    header = read_header(kept)
    validate_integrity(header, kept)
    assert (header.size, header.record_count, header.last_offset, header.producer_id) == (61, 0, 7, 5)
    assert header.record_timestamp_max == -1
    assert list(iterate_records(kept)) == []
    assert filtered(kept, map_of(100), is_kept_empty=True) is kept
    assert filtered(kept, map_of(100)) is None


def test_a_tombstone_stays_until_the_delete_horizon() -> None:
    encoded = batch((b"a", None), (b"b", b"2"))
    kept = filtered(encoded, map_of(100, a=0), now_ms=500)
    assert kept is not None
    assert read_header(kept).delete_horizon_ms == 1500
    assert [record.timestamp_ms for record in iterate_records(kept)] == [0, 10]
    assert filtered(kept, map_of(100), now_ms=1499) is kept
    later = filtered(kept, map_of(100), now_ms=1500)
    assert later is not None
    assert [record.offset for record in iterate_records(later)] == [1]


def test_control_batches_are_never_touched() -> None:
    encoded = batch((b"\0\0\0\1", b""), attributes=CONTROL_BIT)
    assert filtered(encoded, map_of(100)) is encoded
    offsets = OffsetMap(0, 10)
    assert at_once(note_keys(read_header(encoded), encoded, offsets))
    assert (len(offsets), offsets.end_offset) == (0, 1)


def test_log_append_time_is_kept() -> None:
    encoded = batch((b"a", b"1"), (b"b", b"2"), attributes=TIMESTAMP_TYPE_BIT)
    kept = filtered(encoded, map_of(100, b=50))
    assert kept is not None
    assert [record.timestamp_ms for record in iterate_records(kept)] == [10]


def test_keys_are_noted_from_the_first_dirty_offset_on() -> None:
    encoded = batch((b"a", b"1"), (LONG_KEY, b"2"), (None, b"3"), base_offset=20)
    offsets = OffsetMap(21, 10)
    assert at_once(note_keys(read_header(encoded), encoded, offsets))
    assert (len(offsets), offsets.end_offset) == (1, 23)
    assert offsets.has_later(LONG_KEY, 20)
    assert not offsets.has_later(LONG_KEY, 21)
    assert not offsets.has_later(b"a", 0)


def test_a_full_map_ends_at_the_record_that_does_not_fit() -> None:
    encoded = batch((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))
    offsets = OffsetMap(0, 2)
    assert not at_once(note_keys(read_header(encoded), encoded, offsets))
    assert (len(offsets), offsets.end_offset) == (2, 3)


def test_the_memory_is_shared_by_all_cleaners() -> None:
    assert entries_max(buffer_bytes=200_000, load_factor=0.5, cleaners=2) == 250
    assert entries_max(buffer_bytes=1, load_factor=0.5, cleaners=2) == 1


@pytest.mark.parametrize("compression", range(5))
@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_what_is_compressed_can_be_read(compression: int, size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    packed = compress(compression, payload)
    assert compression == 0 or bytes(decompress(compression, memoryview(packed), size_max=1 << 20)) == payload


@pytest.mark.parametrize("cut", range(1, 25))
def test_broken_records_are_refused(cut: int) -> None:
    encoded = batch((b"key", b"value"), (b"other", None))
    header = read_header(encoded)
    payload = memoryview(encoded)[61:]
    assert len(payload) > 24
    with pytest.raises(InvalidRecordBatch):
        list(record_spans(header, payload[:-cut]))
    with pytest.raises(InvalidRecordBatch):
        list(record_spans(header._replace(record_count=1), payload))


@dataclass
class Sized:
    base_offset: int
    next_offset: int
    size: int


def test_segments_are_grouped_by_size_and_range() -> None:
    segments = [Sized(0, 10, 40), Sized(10, 20, 60), Sized(20, 30, 1), Sized(30, 2**31 + 20, 1), Sized(2**31 + 20, 2**32, 9)]
    groups = group_segments(segments, 100)
    assert [[each.base_offset for each in group] for group in groups] == [[0, 10], [20, 30], [2**31 + 20]]
    assert [len(group) for group in group_segments([Sized(0, 1, 500), Sized(1, 2, 500)], 100)] == [1, 1]
    assert group_segments([], 100) == []


@pytest.mark.parametrize(
    ("segment_index_bytes", "index_interval_bytes", "group_bytes"),
    [
        (10 * 1024**2, 4096, 1024**3),
        # Two entries and that of the seal, each after more than 1000 bytes.
        (36, 1000, 2 * 1001),
        # A batch has 61 bytes at least, so there cannot be an entry after fewer.
        (36, 0, 2 * 61),
        # With room for that of the seal only, each segment stays a segment of its own.
        (12, 0, 0),
    ],
)
def test_a_group_has_no_more_index_entries_than_a_segment(
    segment_index_bytes: int, index_interval_bytes: int, group_bytes: int
) -> None:
    found = group_bytes_max(1024**3, segment_index_bytes=segment_index_bytes, index_interval_bytes=index_interval_bytes)
    assert found == group_bytes


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_large_batch_is_compressed_again_in_slices(code: int) -> None:
    """With gzip or lz4, a megabyte takes a tenth of a second and more."""
    records = [Record(b"k", bytes(1 << 20), 0), Record(b"k", bytes(1 << 20), 0)]
    encoded = encode_batch(records, attributes=code, compress=lambda payload: compress(code, payload))
    work = filter_batch(read_header(encoded), encoded, map_of(2, k=1), is_kept_empty=False, now_ms=0, delete_retention_ms=1)
    assert sum(1 for _ in work) >= 16
