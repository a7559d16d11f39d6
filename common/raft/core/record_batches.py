"""Encodes metadata records into batches of the metadata log and decodes them again (core).

Counterpart of Kafka's BatchAccumulator and RecordsBatchReader. A batch is the unit of atomicity: it is on disk completely or
not at all, and listeners get it in one piece. Records that must become visible together must not be split across batches. If
they do not fit into one batch, `encode_batches` refuses them and the caller has to write a metadata transaction instead.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from common.ids import LeaderEpoch, Offset
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.records.batch import BATCH_OVERHEAD, BatchError, BatchHeader, validate_batch
from common.records.metadata_frame import ApiMessageAndVersion, encode_record
from common.records.metadata_records import KnownRecord
from common.records.record import encode_values_batch, iterate_values, value_record_size_max

BATCH_BYTES_MAX = 8 * 1024 * 1024
BATCH_RECORDS_MAX = 10_000


class RecordsTooLarge(Exception):
    """Records that must share one batch do not fit into it."""


class UnreadableBatch(Exception):
    """A batch of the metadata log is corrupt or cannot be decoded. Fatal, because the rest of the log builds on it."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A whole decoded batch. For a control batch (LeaderChange) `records` is empty, but the batch still takes up offsets."""

    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    append_time_ms: int
    records: Sequence[KnownRecord]
    # The size of the batch in the log, in bytes. The sum over the committed batches decides when the next snapshot is due.
    size: int = 0

    @property
    def next_offset(self) -> Offset:
        return Offset(self.last_offset + 1)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch that is ready to be appended, together with its decoded form."""

    buffer: bytearray
    batch: CommittedBatch


def encode_batches(
    records: Sequence[ApiMessageAndVersion],
    *,
    base_offset: Offset,
    epoch: LeaderEpoch,
    append_time_ms: int,
    numbering: Numbering,
    is_atomic: bool,
    bytes_max: int = BATCH_BYTES_MAX,
    records_max: int = BATCH_RECORDS_MAX,
) -> list[EncodedBatch]:
    """Encodes the records into one batch if `is_atomic`, otherwise into several if needed. Raises RecordsTooLarge."""
    values = [encode_record(entry.record, entry.version, numbering) for entry in records]
    groups = list(_split(values, bytes_max=bytes_max, records_max=records_max))
    if is_atomic and len(groups) > 1:
        raise RecordsTooLarge(f"{len(values)} records must stand in one batch and fill {len(groups)}")
    batches = []
    for start, end in groups:
        buffer = encode_values_batch(
            values[start:end], base_offset=base_offset, leader_epoch=epoch, timestamp_ms=append_time_ms
        )
        last_offset = Offset(base_offset + end - start - 1)
        held = tuple(entry.record for entry in records[start:end])
        batch = CommittedBatch(base_offset, last_offset, epoch, append_time_ms, held, len(buffer))
        batches.append(EncodedBatch(buffer, batch))
        base_offset = batch.next_offset
    return batches


def _split(values: Sequence[bytes], *, bytes_max: int, records_max: int) -> Iterator[tuple[int, int]]:
    """Splits `values` into index ranges that fit one batch each."""
    start = 0
    size = BATCH_OVERHEAD
    for index, value in enumerate(values):
        added = value_record_size_max(len(value))
        if BATCH_OVERHEAD + added > bytes_max:
            raise RecordsTooLarge(f"one record of {len(value)} bytes does not fit a batch of {bytes_max}")
        if index - start == records_max or size + added > bytes_max:
            yield start, index
            start, size = index, BATCH_OVERHEAD
        size += added
    if start < len(values):
        yield start, len(values)


def decode_batch(header: BatchHeader, view: memoryview, reader: MetadataRecordReader) -> CommittedBatch:
    """Decodes a batch of the metadata log. Raises UnreadableBatch."""
    return _committed(header, () if header.is_control else decode_values(header, view, reader))


def _committed(header: BatchHeader, records: Iterable[KnownRecord]) -> CommittedBatch:
    return CommittedBatch(
        base_offset=Offset(header.base_offset),
        last_offset=Offset(header.last_offset),
        epoch=LeaderEpoch(header.partition_leader_epoch),
        append_time_ms=header.max_timestamp,
        records=tuple(records),
        size=header.size,
    )


def decode_batch_in_slices(
    header: BatchHeader, view: memoryview, reader: MetadataRecordReader
) -> Generator[None, None, CommittedBatch]:
    """`decode_batch` for a batch of many records: yields after each record."""
    records: list[KnownRecord] = []
    for record in () if header.is_control else decode_values(header, view, reader):
        records.append(record)
        yield
    return _committed(header, records)


def decode_values(header: BatchHeader, view: memoryview, reader: MetadataRecordReader) -> Iterator[KnownRecord]:
    """Decodes the records of a data batch lazily. Raises UnreadableBatch."""
    try:
        for _, value in iterate_values(view):
            yield reader.decode(value)
    except (BatchError, ProtocolError, ValueError) as error:
        raise UnreadableBatch(f"the batch at offset {header.base_offset} of the metadata log: {error}") from error


def check_batch(header: BatchHeader, view: memoryview) -> None:
    """Checks a batch from another node or from disk: its checksum, and the counts in its header. Raises UnreadableBatch."""
    try:
        validate_batch(header, view)
    except BatchError as error:
        raise UnreadableBatch(f"the batch at offset {header.base_offset} of the metadata log: {error}") from error
