"""Decides which records of a batch survive compaction, and builds the batch that is left (core).

Counterpart of the record filter of Kafka's Cleaner and of MemoryRecords.filterTo, with these rules:

1. A record survives unless the map has a later one with its key. Records beyond the end of the map all survive. Records
   without a key do not: they are from a time when the topic was not compacted.
2. A batch keeps its base offset, last offset, epoch, and producer with its sequence, so offsets never change. The records
   that survive are copied as they are.
3. A tombstone survives for delete.retention.ms, so that a reader that has seen the value also sees the tombstone. When a
   batch with tombstones is compacted for the first time, its base timestamp becomes the *delete horizon*, the time when they
   may go (KIP-534). By then every older record of their keys is gone, because compaction goes through a log from its start.
4. A batch that lost all records is dropped, unless the caller keeps it empty.
5. The records of aborted transactions do not survive, and their keys do not count.
6. A transaction marker survives as long as a batch of its transaction does. Then it gets a delete horizon like a tombstone.
   Other control records survive.

Deciding about many records takes long, so the functions are generators that yield now and then to let other work go on.
"""

from collections.abc import Generator

from common.parts import Buffer
from common.records.batch import DELETE_HORIZON_BIT, BatchHeader, assemble_batch
from common.records.compression import compress, compress_in_slices
from common.records.record import timestamp_sum
from common.storage.compaction.offset_map import OffsetMap
from common.storage.compaction.record_spans import RecordSpan, opened_payload, record_spans, with_timestamp_delta

# About half a millisecond of work.
SLICE_RECORDS = 128
_TIMESTAMP_MAX = 2**63 - 1


def note_keys(header: BatchHeader, batch: Buffer, offsets: OffsetMap) -> Generator[None, None, bool]:
    """Notes the keys of a batch in the map, except for records below the first dirty offset. Returns False if the map is
    full. Raises InvalidRecordBatch."""
    if not header.is_control and header.record_count:
        first_offset = offsets.end_offset
        for number, span in enumerate(record_spans(header, opened_payload(header, batch))):
            offset = header.base_offset + span.offset_delta
            if span.key is not None and offset >= first_offset and not offsets.put(span.key, offset):
                return False
            if number % SLICE_RECORDS == SLICE_RECORDS - 1:
                yield
    offsets.end_offset = max(offsets.end_offset, header.next_offset)
    return True


def filter_batch(
    header: BatchHeader,
    batch: Buffer,
    offsets: OffsetMap,
    *,
    is_kept_empty: bool,
    now_ms: int,
    delete_retention_ms: int,
) -> Generator[None, None, Buffer | None]:
    """Returns what is left of a batch of data that is not aborted: `batch` itself if that is everything, None if it is
    dropped. Raises InvalidRecordBatch."""
    if header.base_offset >= offsets.end_offset:
        return batch
    if not header.record_count:
        return batch if is_kept_empty else None
    payload = opened_payload(header, batch)
    horizon_ms = header.delete_horizon_ms
    is_horizon_past = horizon_ms is not None and horizon_ms <= now_ms
    kept: list[RecordSpan] = []
    has_tombstones = False
    for number, span in enumerate(record_spans(header, payload)):
        if number % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield
        offset = header.base_offset + span.offset_delta
        if offset < offsets.end_offset:
            if span.key is None or offsets.has_later(span.key, offset):
                continue
            if not span.has_value:
                if is_horizon_past:
                    continue
                has_tombstones = True
        kept.append(span)
    new_horizon_ms = None
    if has_tombstones and horizon_ms is None:
        new_horizon_ms = min(now_ms + delete_retention_ms, _TIMESTAMP_MAX)
    elif len(kept) == header.record_count:
        return batch
    if not kept:
        return _without_records(header) if is_kept_empty else None
    changed, records = _with_records(header, payload, kept, new_horizon_ms)
    compressed = yield from compress_in_slices(header.compression, records)
    return assemble_batch(changed, compressed)


def filter_aborted(header: BatchHeader, batch: Buffer, *, is_kept_empty: bool) -> Buffer | None:
    """Returns what is left of a batch of an aborted transaction: nothing, or a batch without records (rule 5)."""
    if not is_kept_empty:
        return None
    return _without_records(header) if header.record_count else batch


def filter_marker(
    header: BatchHeader,
    batch: Buffer,
    *,
    may_go: bool,
    is_kept_empty: bool,
    now_ms: int,
    delete_retention_ms: int,
) -> Buffer | None:
    """Returns what is left of a control batch (rule 6). `may_go`: no batch of the transaction is left. Raises
    InvalidRecordBatch."""
    if not may_go:
        return batch
    if not header.record_count:
        return batch if is_kept_empty else None
    horizon_ms = header.delete_horizon_ms
    if horizon_ms is None:
        payload = opened_payload(header, batch)
        new_horizon_ms = min(now_ms + delete_retention_ms, _TIMESTAMP_MAX)
        changed, records = _with_records(header, payload, [*record_spans(header, payload)], new_horizon_ms)
        return assemble_batch(changed, compress(header.compression, records))
    if horizon_ms > now_ms:
        return batch
    return _without_records(header) if is_kept_empty else None


def _without_records(header: BatchHeader) -> bytearray:
    attributes = header.attributes & ~7 & ~DELETE_HORIZON_BIT
    return assemble_batch(header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0), b"")


def _with_records(
    header: BatchHeader, payload: memoryview, kept: list[RecordSpan], new_horizon_ms: int | None
) -> tuple[BatchHeader, bytearray]:
    """Returns the header and the records that are left, which are to be compressed."""
    records = bytearray()
    max_timestamp = header.max_timestamp
    if not header.has_log_append_time:
        max_timestamp = max(timestamp_sum(header.base_timestamp, span.timestamp_delta) for span in kept)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if new_horizon_ms is None:
        for span in kept:
            records += payload[span.start : span.end]
    else:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, new_horizon_ms
        moved_by = header.base_timestamp - new_horizon_ms
        for span in kept:
            records += with_timestamp_delta(payload, span, timestamp_sum(span.timestamp_delta, moved_by))
    changed = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(kept)
    )
    return changed, records
