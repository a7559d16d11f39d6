"""Record batch v2: Kafka's unit of appending, replicating and reading (core).

Counterpart of Kafka's DefaultRecordBatch. The hot paths read the 61-byte header with one struct, check the CRC-32C over a
memoryview and pass the records through as bytes. `common/records/record.py` reads and writes single records.

The base offset and the partition leader epoch lie *before* the range covered by the CRC, which starts at the attributes. A
leader can therefore stamp both in place without invalidating the producer's checksum. Changing the timestamp type or the
maximum timestamp does require a new checksum. `batch_length` counts the bytes after the length field, so a whole batch is 12
bytes longer.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

from common.parts import Buffer

BATCH_OVERHEAD = 61
LOG_OVERHEAD = 12  # the size of base offset and batch length, which `batch_length` does not count
CURRENT_MAGIC = 2

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
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
_LENGTH = struct.Struct(">i")
_EPOCH = struct.Struct(">i")

_MAGIC_POSITION = 16
_LENGTH_POSITION = 8
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


# --- changes -----------------------------------------------------------------------------------------------------


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


def new_header(
    record_count: int,
    *,
    base_offset: int,
    leader_epoch: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> BatchHeader:
    """Returns the header of a batch with consecutive offsets, for `assemble_batch`."""
    return BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=record_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )


def assemble_batch(header: BatchHeader, payload: Buffer) -> bytearray:
    """Returns the batch with these encoded records and the fields of `header`, except its length and checksum, which are
    computed."""
    out = bytearray(BATCH_OVERHEAD)
    out += payload
    _HEADER.pack_into(out, 0, *header)
    _LENGTH.pack_into(out, _LENGTH_POSITION, len(out) - LOG_OVERHEAD)
    with memoryview(out) as view:
        _UNSIGNED.pack_into(out, _CRC_POSITION, crc32c(view[_ATTRIBUTES_POSITION:]))
    return out
