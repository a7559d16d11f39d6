"""Finds the records of a batch without decoding their values and headers (core).

Compaction needs the key of each record, whether it has a value, and the bytes as they are; a record that survives is copied,
not encoded again. Produce requests to compacted topics are checked in the same way.
"""

from collections.abc import Iterator
from typing import NamedTuple

from common.parts import Buffer
from common.records.batch import BATCH_OVERHEAD, BatchHeader, InvalidRecordBatch
from common.records.decompression import decompress
from common.records.record import append_varint, read_varint

# The largest batch that is decompressed, in bytes. A batch may be up to 2 GiB, but no producer sends one that large.
OPENED_BYTES_MAX = 256 << 20


class RecordSpan(NamedTuple):
    """One record of a batch: `payload[start:end]`, its length included."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: memoryview | None
    has_value: bool


def opened_payload(header: BatchHeader, batch: Buffer, *, size_max: int = OPENED_BYTES_MAX) -> memoryview:
    """Returns the records of a whole batch, decompressed if necessary. Raises InvalidRecordBatch."""
    payload = memoryview(batch)[BATCH_OVERHEAD:]
    if not header.compression:
        return payload
    return memoryview(decompress(header.compression, payload, size_max=size_max))


def record_spans(header: BatchHeader, payload: memoryview) -> Iterator[RecordSpan]:
    """Yields every record of a batch in order. Raises InvalidRecordBatch if they do not fill the payload exactly."""
    position, end = 0, len(payload)
    for _ in range(header.record_count):
        start = position
        size, body = read_varint(payload, position)
        position = body + size
        if size <= 0 or position > end:
            raise InvalidRecordBatch(f"a record claims {size} bytes, {end - body} are left")
        # The attributes come first and are unused.
        timestamp_delta, at = read_varint(payload, body + 1)
        offset_delta, at = read_varint(payload, at)
        key_size, at = read_varint(payload, at)
        key = None
        if key_size >= 0:
            key = payload[at : at + key_size]
            at += key_size
        value_size, at = read_varint(payload, at) if at < position else (-1, position + 1)
        if at + max(value_size, 0) > position or key_size < -1 or value_size < -1:
            raise InvalidRecordBatch("the fields of a record go past its end")
        yield RecordSpan(start, position, timestamp_delta, offset_delta, key, value_size >= 0)
    if position != end:
        raise InvalidRecordBatch(f"{end - position} bytes follow the last record of a batch")


def with_timestamp_delta(payload: memoryview, span: RecordSpan, timestamp_delta: int) -> bytearray:
    """Returns the record with another timestamp delta, as it needs when the base timestamp of its batch changes."""
    _, body = read_varint(payload, span.start)
    _, rest = read_varint(payload, body + 1)
    changed = bytearray(payload[body : body + 1])
    append_varint(changed, timestamp_delta)
    changed += payload[rest : span.end]
    record = bytearray()
    append_varint(record, len(changed))
    return record + changed
