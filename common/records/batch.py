"""Record batch v2: Kafka's unit of appending, replicating and reading (core).

Counterpart of Kafka's DefaultRecordBatch and DefaultRecord. The hot paths read the 61-byte header with one struct, check the
CRC-32C over a memoryview and pass the records through as bytes. Only the metadata log and the tools look at single records.

The base offset and the partition leader epoch lie *before* the range covered by the CRC, which starts at the attributes. A
leader can therefore stamp both in place without invalidating the producer's checksum. Changing the timestamp type or the
maximum timestamp does require a new checksum. `batch_length` counts the bytes after the length field, so a whole batch is 12
bytes longer.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

Buffer = bytes | bytearray | memoryview

BATCH_OVERHEAD = 61
LOG_OVERHEAD = 12  # the size of base offset and batch length, which `batch_length` does not count
CURRENT_MAGIC = 2

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
HIGHEST_COMPRESSION_CODE = 4  # none, gzip, snappy, lz4, zstd

# The size of the smallest record: length, attributes, two deltas, key length, value length and header count take at least
# one byte each.
_RECORD_SIZE_MIN = 7
# The maximum expansion factor, indexed by compression code. The formats themselves set these limits, so no valid batch
# exceeds them. gzip: 258 bytes from two bits. snappy: 64 from three bytes. lz4: 255 from each byte that extends a match.
# zstd: a 128 KiB block from the four bytes of the smallest block.
EXPANSION_MAX = (1, 1032, 22, 255, 32768)

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
# Attributes, last offset delta, base timestamp and maximum timestamp, which follow each other.
_TIMED = struct.Struct(">hiqq")
_UNSIGNED = struct.Struct(">I")
_EPOCH = struct.Struct(">i")

_MAGIC_POSITION = 16
_EPOCH_POSITION = 12
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21


class BatchError(Exception):
    """Something is wrong with a record batch; the subclass says what."""


class CorruptBatch(BatchError):
    """The checksum is wrong, or the bytes do not form a batch."""


class TruncatedBatch(CorruptBatch):
    """The batch claims a size that differs from the bytes present."""


class OldFormat(BatchError):
    """The batch is of the format v0 or v1."""


class InvalidRecordBatch(BatchError):
    """The checksum is right, but the counts or the records contradict each other."""


class CompressedBatch(BatchError):
    """The caller asked for the records of a compressed batch without passing a decompressor."""


class BatchHeader(NamedTuple):
    """The fields of a batch header, in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The compression code: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may remove the tombstones of the batch; None if it has not been set. The base
        timestamp holds it, and the timestamps of the records count from there (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def record_timestamp_max(self) -> int:
        """The largest timestamp of a record, -1 if there is none. A batch without records keeps the maximum of those that
        compaction has removed."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def has_log_append_time(self) -> bool:
        """Whether the broker set the timestamp. If so, the timestamp of every record is `max_timestamp`."""
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)


@dataclass(frozen=True, slots=True)
class Record:
    """One record. A decoded key or value is a view into the batch; `offset` is ignored when a batch is encoded."""

    key: Buffer | None
    value: Buffer | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[tuple[str, Buffer | None], ...] = ()
    offset: int = -1


# --- headers -----------------------------------------------------------------------------------------------------


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header at `position`. Raises OldFormat, TruncatedBatch, or CorruptBatch for an impossible magic or size."""
    available = len(buffer) - position
    # Check the magic first: it is at the same place in every format, and a whole message of an old format can be shorter
    # than our header. The client then gets the error for an old format, not the one for damaged bytes.
    if available > _MAGIC_POSITION and buffer[position + _MAGIC_POSITION] != CURRENT_MAGIC:
        raise _wrong_magic(buffer[position + _MAGIC_POSITION])
    if available < BATCH_OVERHEAD:
        raise TruncatedBatch(f"a record batch header needs {BATCH_OVERHEAD} bytes, {available} are left")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
        raise CorruptBatch(f"record batch claims a length of {header.batch_length}")
    return header


def split_batches(buffer: Buffer, *, allow_partial_tail: bool = False) -> list[tuple[BatchHeader, memoryview]]:
    """Splits `buffer` into batches without copying and without verifying checksums.

    With `allow_partial_tail`, a last batch that is cut off is dropped, because a fetch response may end with such a batch.
    Otherwise such a batch raises TruncatedBatch.
    """
    view = memoryview(buffer)
    batches = []
    position = 0
    end = len(view)
    while position < end:
        try:
            header = read_header(view, position)
        except TruncatedBatch:
            if allow_partial_tail:
                break
            raise
        batch_end = position + header.size
        if batch_end > end:
            if allow_partial_tail:
                break
            raise TruncatedBatch(f"record batch of {header.size} bytes, {end - position} are left")
        batches.append((header, view[position:batch_end]))
        position = batch_end
    return batches


def validate_integrity(header: BatchHeader, view: Buffer) -> None:
    """Checks magic, size and checksum, as recovery and followers do. Raises OldFormat, TruncatedBatch or CorruptBatch."""
    if header.magic != CURRENT_MAGIC:
        raise _wrong_magic(header.magic)
    if len(view) != header.size:
        raise TruncatedBatch(f"record batch claims {header.size} bytes and has {len(view)}")
    computed = crc32c(memoryview(view)[_ATTRIBUTES_POSITION:])
    if computed != header.crc:
        raise CorruptBatch(f"record batch has CRC {header.crc:#010x}, its bytes give {computed:#010x}")


def _wrong_magic(magic: int) -> BatchError:
    error = OldFormat if 0 <= magic < CURRENT_MAGIC else CorruptBatch
    return error(f"record batch has magic {magic}, only {CURRENT_MAGIC} is served")


def split_intact_batches(buffer: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """Splits like `split_batches` with `allow_partial_tail`, and checks each batch like `validate_integrity`. Raises a
    subclass of BatchError."""
    batches = find_intact_batches(buffer)
    rest = memoryview(buffer)[sum(header.size for header, _ in batches) :]
    # What is left is the start of a batch, or a batch with a wrong checksum, or no batch at all.
    for damaged in split_batches(rest, allow_partial_tail=True):
        validate_integrity(*damaged)
    return batches


def find_intact_batches(buffer: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """Returns the whole batches with a right checksum at the start of the buffer, up to the first bytes that are none.

    It takes one pass, because followers and recovery do this with every batch, and with small ones they do little else.
    """
    view = memoryview(buffer)
    batches: list[tuple[BatchHeader, memoryview]] = []
    position = 0
    end = len(view)
    while end - position >= BATCH_OVERHEAD:
        header = BatchHeader._make(_HEADER.unpack_from(view, position))
        if header.magic != CURRENT_MAGIC or header.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
            break
        batch_end = position + header.batch_length + LOG_OVERHEAD
        if batch_end > end or crc32c(view[position + _ATTRIBUTES_POSITION : batch_end]) != header.crc:
            break
        batches.append((header, view[position:batch_end]))
        position = batch_end
    return batches


def validate_batch(header: BatchHeader, view: Buffer) -> None:
    """Checks integrity, and that the counts in the header are consistent, without reading the records. Raises a subclass of
    BatchError."""
    validate_integrity(header, view)
    if header.record_count <= 0:
        raise InvalidRecordBatch(f"record batch holds {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise InvalidRecordBatch(
            f"record batch counts {header.record_count} records and its last offset delta is {header.last_offset_delta}"
        )
    compression = header.attributes & COMPRESSION_MASK
    if compression > HIGHEST_COMPRESSION_CODE:
        raise InvalidRecordBatch(f"record batch has the unknown compression code {compression}")
    # Kafka reads the records and counts them; we only check that this many records could fit. Without that check, a false
    # count could use up many segments' worth of offsets.
    records_size = len(view) - BATCH_OVERHEAD
    if header.record_count * _RECORD_SIZE_MIN > records_size * EXPANSION_MAX[compression]:
        raise InvalidRecordBatch(f"record batch counts {header.record_count} records in {records_size} bytes")


def validate_produced_batch(header: BatchHeader, view: Buffer) -> None:
    """Checks what `validate_batch` checks, and rejects what clients must not send: offsets of their own, control batches,
    and a producer id without a sequence."""
    validate_batch(header, view)
    if header.base_offset:
        raise InvalidRecordBatch(f"the base offset of a client's batch is 0, not {header.base_offset}")
    if header.attributes & CONTROL_BIT:
        raise InvalidRecordBatch("a client may not write control records")
    if header.producer_id != NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidRecordBatch(f"producer {header.producer_id} sent base sequence {header.base_sequence}")


# --- changes in place --------------------------------------------------------------------------------------------


def set_base_offset_and_epoch(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Stamps the batch at the start of the buffer. The checksum stays valid, because it covers neither field."""
    _OFFSET.pack_into(buffer, 0, base_offset)
    _EPOCH.pack_into(buffer, _EPOCH_POSITION, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, timestamp_ms: int) -> BatchHeader:
    """Gives all records of the batch at the start of the buffer this timestamp, and returns the new header. The records stay
    as they are: their own timestamps no longer count. Computes the checksum."""
    header = read_header(buffer)
    _TIMED.pack_into(
        buffer,
        _ATTRIBUTES_POSITION,
        header.attributes | TIMESTAMP_TYPE_BIT,
        header.last_offset_delta,
        header.base_timestamp,
        timestamp_ms,
    )
    with memoryview(buffer) as view:
        _UNSIGNED.pack_into(buffer, _CRC_POSITION, crc32c(view[_ATTRIBUTES_POSITION:]))
    return read_header(buffer)


def replace_records(header: BatchHeader, payload: Buffer) -> bytearray:
    """Returns a batch with the fields of `header` and with these encoded records. Computes length and checksum."""
    out = bytearray(BATCH_OVERHEAD)
    out += payload
    _HEADER.pack_into(out, 0, *header._replace(batch_length=len(out) - LOG_OVERHEAD, crc=0))
    with memoryview(out) as view:
        _UNSIGNED.pack_into(out, _CRC_POSITION, crc32c(view[_ATTRIBUTES_POSITION:]))
    return out


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
    out = bytearray(BATCH_OVERHEAD)
    out += compress(payload) if compress is not None else payload
    _fill_header(
        out,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        record_count=len(records),
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return out


def encode_values_batch(values: Sequence[Buffer], *, base_offset: int, leader_epoch: int, timestamp_ms: int) -> bytearray:
    """Encodes records that have no keys or headers and share one timestamp, like those of the metadata log."""
    if not values:
        raise ValueError("a record batch holds at least one record")
    out = bytearray(BATCH_OVERHEAD)
    head = bytearray()
    for offset_delta, value in enumerate(values):
        head.clear()
        head += b"\x00\x00"  # attributes, and a timestamp delta of zero
        append_varint(head, offset_delta)
        head.append(1)  # the varint of -1: the record has no key
        append_varint(head, len(value))
        append_varint(out, len(head) + len(value) + 1)
        out += head
        out += value
        out.append(0)  # no headers
    _fill_header(
        out,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=0,
        record_count=len(values),
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    return out


def value_record_size_max(value_size: int) -> int:
    """Returns an upper bound on the bytes that a value of this size adds to a batch of `encode_values_batch`."""
    # Record length, offset delta and value length take up to five bytes each, the other fields one byte each (four of them).
    return value_size + 19


def _fill_header(
    out: bytearray,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    _HEADER.pack_into(
        out,
        0,
        base_offset,
        len(out) - LOG_OVERHEAD,
        leader_epoch,
        CURRENT_MAGIC,
        0,
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    with memoryview(out) as view:
        _UNSIGNED.pack_into(out, _CRC_POSITION, crc32c(view[_ATTRIBUTES_POSITION:]))


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
