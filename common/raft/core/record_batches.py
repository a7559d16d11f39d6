"""From metadata records to batches of the metadata log, and back (core).

Answers to Kafka's BatchAccumulator and RecordsBatchReader. A batch is the unit of atomicity: it is on the disk whole or not
at all, and is delivered whole. Easy to get wrong: records that must appear together may not be split; when they do not fit
one batch the caller has to write a metadata transaction, so they are refused and nothing is appended.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.ids import LeaderEpoch, Offset
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.errors import ProtocolError
from common.protocol.numbering import Numbering
from common.records.batch import (
    BATCH_OVERHEAD,
    BatchError,
    BatchHeader,
    encode_values_batch,
    iterate_values,
    validate_batch,
    value_record_size_max,
)
from common.records.metadata_frame import ApiMessageAndVersion, encode_record
from common.records.metadata_records import KnownRecord

BATCH_BYTES_MAX = 8 * 1024 * 1024
BATCH_RECORDS_MAX = 10_000


class RecordsTooLarge(Exception):
    """Records that must stand in one batch do not fit it."""


class UnreadableBatch(Exception):
    """A batch of the metadata log does not hold what it should. Fatal: what follows builds on it."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A whole batch, decoded. A control batch (LeaderChange) has no records and moves the offset on all the same."""

    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    append_time_ms: int
    records: Sequence[KnownRecord]
    # Bytes in the log, which say when the next snapshot is due.
    size: int = 0

    @property
    def next_offset(self) -> Offset:
        return Offset(self.last_offset + 1)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch ready to be appended, with the records that it holds."""

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
    """One batch, or as many as needed when the records need not stay together. Raises RecordsTooLarge."""
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
    """The ranges of `values` that go into one batch each."""
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
    """A batch of the log or of a snapshot, records decoded. Raises UnreadableBatch."""
    return CommittedBatch(
        base_offset=Offset(header.base_offset),
        last_offset=Offset(header.last_offset),
        epoch=LeaderEpoch(header.partition_leader_epoch),
        append_time_ms=header.max_timestamp,
        records=() if header.is_control else tuple(decode_values(header, view, reader)),
        size=header.size,
    )


def decode_values(header: BatchHeader, view: memoryview, reader: MetadataRecordReader) -> Iterator[KnownRecord]:
    """The records of a data batch, one by one. Raises UnreadableBatch."""
    try:
        for _, value in iterate_values(view):
            yield reader.decode(value)
    except (BatchError, ProtocolError, ValueError) as error:
        raise UnreadableBatch(f"the batch at offset {header.base_offset} of the metadata log: {error}") from error


def check_batch(header: BatchHeader, view: memoryview) -> None:
    """Checksum and counts of a batch that came from another node or from the disk. Raises UnreadableBatch."""
    try:
        validate_batch(header, view)
    except BatchError as error:
        raise UnreadableBatch(f"the batch at offset {header.base_offset} of the metadata log: {error}") from error
