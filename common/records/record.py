"""The records in a record batch v2 (core).

Counterpart of Kafka's DefaultRecord. A record is written as varints and bytes; its offset and its timestamp are relative to
those of the batch. Produced, replicated and fetched records are usually passed through unread (`common/records/batch.py`).
The metadata log, the coordinators, compaction and the tools read them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from common.parts import Buffer
from common.records.batch import (
    BATCH_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CompressedBatch,
    InvalidRecordBatch,
    TruncatedBatch,
    assemble_batch,
    new_header,
    read_header,
)


@dataclass(frozen=True, slots=True)
class Record:
    """One record. A decoded key or value is a view into the batch; `offset` is ignored when a batch is encoded."""

    key: Buffer | None
    value: Buffer | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[tuple[str, Buffer | None], ...] = ()
    offset: int = -1


# --- varints -----------------------------------------------------------------------------------------------------


def timestamp_sum(base: int, delta: int) -> int:
    """Adds two signed 64-bit numbers as Kafka does: a sum out of range wraps around. Both come from a client, which may have
    sent anything, and no field of a batch or of a response can hold more."""
    return (base + delta + (1 << 63)) % (1 << 64) - (1 << 63)


def append_varint(out: bytearray, value: int) -> None:
    """Appends a signed number of up to 64 bits as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Returns the zigzag varint at `position` and the position after it. Raises InvalidRecordBatch."""
    rest = 0
    shift = 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            rest |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise InvalidRecordBatch("a varint has more than ten bytes")
    except IndexError:
        raise InvalidRecordBatch("the records end within a varint") from None
    if rest >> 64:
        raise InvalidRecordBatch("a varint holds more than 64 bits")
    return (rest >> 1) ^ -(rest & 1), position


# --- encoding ----------------------------------------------------------------------------------------------------


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compress: Callable[[bytearray], bytes] | None = None,
) -> bytearray:
    """Encodes at least one record as a batch with consecutive offsets from `base_offset`.

    `attributes` must name the compression that `compress` performs.
    """
    if not records:
        raise ValueError("a record batch holds at least one record")
    base_timestamp = records[0].timestamp_ms
    payload = bytearray()
    for offset_delta, record in enumerate(records):
        _append_record(payload, record, offset_delta, record.timestamp_ms - base_timestamp)
    header = new_header(
        len(records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return assemble_batch(header, compress(payload) if compress is not None else payload)


def encode_values_batch(values: Sequence[Buffer], *, base_offset: int, leader_epoch: int, timestamp_ms: int) -> bytearray:
    """Encodes records that have no keys or headers and share one timestamp, like those of the metadata log."""
    if not values:
        raise ValueError("a record batch holds at least one record")
    payload = bytearray()
    head = bytearray()
    for offset_delta, value in enumerate(values):
        head.clear()
        head += b"\x00\x00"  # attributes, and a timestamp delta of zero
        append_varint(head, offset_delta)
        head.append(1)  # the varint of -1: the record has no key
        append_varint(head, len(value))
        append_varint(payload, len(head) + len(value) + 1)
        payload += head
        payload += value
        payload.append(0)  # no headers
    header = new_header(
        len(values),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
    )
    return assemble_batch(header, payload)


def value_record_size_max(value_size: int) -> int:
    """Returns an upper bound on the bytes that a value of this size adds to a batch of `encode_values_batch`."""
    # Record length, offset delta and value length take up to five bytes each, the other fields one byte each (four of them).
    return value_size + 19


def _append_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(1)  # attributes, unused in v2
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_nullable_bytes(body, record.key)
    _append_nullable_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for name, value in record.headers:
        encoded_name = name.encode("utf-8")
        append_varint(body, len(encoded_name))
        body += encoded_name
        _append_nullable_bytes(body, value)
    append_varint(out, len(body))
    out += body


def _append_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(1)  # the varint of -1
    else:
        append_varint(out, len(value))
        out += value


# --- decoding ----------------------------------------------------------------------------------------------------


def iterate_records(batch: Buffer, *, decompress: Callable[[int, memoryview], Buffer] | None = None) -> Iterator[Record]:
    """Iterates over the records of one whole batch. Offsets and timestamps are absolute, keys and values are views.

    `decompress(code, view)` is called for a compressed batch; without it, such a batch raises CompressedBatch. Raises
    InvalidRecordBatch for malformed records. The caller verifies the checksum.
    """
    view = memoryview(batch)
    header = read_header(view)
    if header.size != len(view):
        raise TruncatedBatch(f"record batch claims {header.size} bytes and has {len(view)}")
    payload = view[BATCH_OVERHEAD:]
    if header.compression:
        if decompress is None:
            raise CompressedBatch(f"record batch is compressed with code {header.compression}")
        payload = memoryview(decompress(header.compression, payload))
    if header.record_count < 0:
        raise InvalidRecordBatch(f"record batch holds {header.record_count} records")
    return _iterate_payload(header, payload)


def iterate_values(batch: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Yields (offset, value) for each record of an uncompressed batch. This is the fast path for the metadata log.

    Raises what `iterate_records` raises, and InvalidRecordBatch for a record without a value.
    """
    view = memoryview(batch)
    header = read_header(view)
    base_offset = header.base_offset
    if header.size != len(view) or header.compression or header.record_count < 0:
        # The fast path cannot read this batch, so leave it to `iterate_records`, which raises the specific error.
        for record in iterate_records(view):
            yield record.offset, _value_of(record)
        return
    end = len(view)
    position = BATCH_OVERHEAD
    for _ in range(header.record_count):
        size, start = read_varint(view, position)
        if size <= 0 or size > end - start:
            raise InvalidRecordBatch(f"a record claims {size} bytes, {end - start} are left")
        position = start + size
        plain = _plain_value(view, start, position)
        if plain is not None:
            offset_delta, value_start = plain
            yield base_offset + offset_delta, view[value_start : position - 1]
        else:
            record = _read_record(header, view[start:position])
            yield record.offset, _value_of(record)
    if position != end:
        raise InvalidRecordBatch(f"{end - position} bytes follow the last record of a batch")


def _plain_value(view: memoryview, start: int, end: int) -> tuple[int, int] | None:
    """Returns the offset delta and the value's start for a record as written by `encode_values_batch`, None for any other.

    The fast path accepts a record only if its timestamp delta takes one byte, its offset delta and its value length take one
    or two bytes each, and it has no key and no headers.
    """
    if end - start < 7 or view[start + 1] >= 0x80 or view[end - 1]:
        return None
    offset_delta = view[start + 2]
    position = start + 3
    if offset_delta >= 0x80:
        offset_delta = (offset_delta & 0x7F) | (view[position] << 7)
        position += 1
    length = view[position + 1]
    key_position = position
    position += 2
    if length >= 0x80:
        length = (length & 0x7F) | (view[position] << 7)
        position += 1
    # Return None for longer varints and for negative numbers. If the continuation bit of the second byte is set, the number
    # is 0x4000 or more; an odd number is the zigzag form of a negative one.
    if (offset_delta | length) & ~0x3FFE or view[key_position] != 1 or position + (length >> 1) + 1 != end:
        return None
    return offset_delta >> 1, position


def _value_of(record: Record) -> memoryview:
    if record.value is None:
        raise InvalidRecordBatch("a record of the metadata log has no value")
    return memoryview(record.value)


def _iterate_payload(header: BatchHeader, payload: memoryview) -> Iterator[Record]:
    position = 0
    end = len(payload)
    for _ in range(header.record_count):
        size, position = read_varint(payload, position)
        if size < 0 or size > end - position:
            raise InvalidRecordBatch(f"a record claims {size} bytes, {end - position} are left")
        yield _read_record(header, payload[position : position + size])
        position += size
    if position != end:
        raise InvalidRecordBatch(f"{end - position} bytes follow the last record of a batch")


def _read_record(header: BatchHeader, body: memoryview) -> Record:
    if not body:
        raise InvalidRecordBatch("a record has no bytes")
    timestamp_delta, position = read_varint(body, 1)
    offset_delta, position = read_varint(body, position)
    key, position = _read_nullable_bytes(body, position)
    value, position = _read_nullable_bytes(body, position)
    header_count, position = read_varint(body, position)
    headers: tuple[tuple[str, Buffer | None], ...] = ()
    if header_count:
        headers, position = _read_headers(body, position, header_count)
    if position != len(body):
        raise InvalidRecordBatch(f"{len(body) - position} bytes follow the fields of a record")
    timestamp_ms = (
        header.max_timestamp if header.has_log_append_time else timestamp_sum(header.base_timestamp, timestamp_delta)
    )
    return Record(key, value, timestamp_ms, headers, header.base_offset + offset_delta)


def _read_headers(body: memoryview, position: int, count: int) -> tuple[tuple[tuple[str, Buffer | None], ...], int]:
    # A header takes at least two bytes, so a count above half the remaining bytes is bogus. Refuse it before the loop.
    if count < 0 or count > (len(body) - position) // 2:
        raise InvalidRecordBatch(f"a record claims {count} headers")
    headers: list[tuple[str, Buffer | None]] = []
    for _ in range(count):
        name, position = _read_nullable_bytes(body, position)
        if name is None:
            raise InvalidRecordBatch("a record header has no name")
        value, position = _read_nullable_bytes(body, position)
        try:
            headers.append((str(name, "utf-8"), value))
        except UnicodeDecodeError:
            raise InvalidRecordBatch("the name of a record header is not UTF-8") from None
    return tuple(headers), position


def _read_nullable_bytes(body: memoryview, position: int) -> tuple[memoryview | None, int]:
    size, position = read_varint(body, position)
    if size == -1:
        return None, position
    end = position + size
    if size < 0 or end > len(body):
        raise InvalidRecordBatch(f"a field claims {size} bytes, {len(body) - position} are left")
    return body[position:end], end
