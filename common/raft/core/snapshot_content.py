"""The binary format of a metadata snapshot (core).

Counterpart of Kafka's RecordsSnapshotWriter and RecordsSnapshotReader (KIP-630). A snapshot is a control batch with the
header and the quorum records, then data batches, then a control batch with the footer. Base offsets count from 0 and are
unrelated to the log's offsets; every batch carries the snapshot's epoch. Only the footer proves that the file is complete,
so a file without one is not a snapshot, however many valid batches it holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from common.ids import LeaderEpoch, Offset
from common.metadata.record_reader import MetadataRecordReader
from common.parts import Buffer
from common.protocol.numbering import Numbering
from common.raft.core.quorum_records import QuorumRecords
from common.raft.core.record_batches import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, check_batch, decode_values, encode_batches
from common.records.batch import BatchError, BatchHeader, split_batches
from common.records.control import (
    ControlMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    UnknownControlRecord,
    encode_control_batch,
    iterate_control_records,
)
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import KnownRecord


class InvalidSnapshot(Exception):
    """The bytes do not form a complete snapshot; the text says why."""


class SnapshotEncoder:
    """Encodes one snapshot. Call `header` once, then `records` any number of times, then `footer` once."""

    def __init__(self, *, epoch: LeaderEpoch, numbering: Numbering, written_ms: int) -> None:
        self._epoch = epoch
        self._numbering = numbering
        self._written_ms = written_ms
        self._next_offset = Offset(0)

    def header(self, last_contained_timestamp: int, quorum_messages: Sequence[ControlMessage] = ()) -> bytearray:
        """Encodes the header, followed by the quorum records. `last_contained_timestamp` is the append time of the newest
        batch that the snapshot covers."""
        header = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp)
        return self._control([header, *quorum_messages])

    def records(self, records: Sequence[ApiMessageAndVersion]) -> list[bytearray]:
        """Encodes records as data batches. Raises EncodeError for a value that the record's version cannot hold."""
        batches = encode_batches(
            records,
            base_offset=self._next_offset,
            epoch=self._epoch,
            append_time_ms=self._written_ms,
            numbering=self._numbering,
            is_atomic=False,
            bytes_max=BATCH_BYTES_MAX,
            records_max=BATCH_RECORDS_MAX,
        )
        if batches:
            self._next_offset = batches[-1].batch.next_offset
        return [encoded.buffer for encoded in batches]

    def footer(self) -> bytearray:
        return self._control([SnapshotFooterRecord()])

    def _control(self, messages: Sequence[ControlMessage]) -> bytearray:
        batch = encode_control_batch(
            messages, timestamp_ms=self._written_ms, base_offset=self._next_offset, leader_epoch=self._epoch
        )
        self._next_offset = Offset(self._next_offset + len(messages))
        return batch


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The content of a complete snapshot with verified checksums. `batches` holds only the data batches."""

    last_contained_timestamp: int
    quorum_records: QuorumRecords
    batches: tuple[tuple[BatchHeader, memoryview], ...]

    def records(self, reader: MetadataRecordReader) -> Iterator[KnownRecord]:
        """Decodes the records lazily. Raises UnreadableBatch."""
        for header, view in self.batches:
            yield from decode_values(header, view, reader)


def parse_snapshot(content: Buffer) -> SnapshotContent:
    """Checks that the snapshot is complete and returns its content.

    Raises InvalidSnapshot, and UnreadableBatch for a batch with a wrong checksum or wrong counts.
    """
    try:
        batches = split_batches(content)
    except BatchError as error:
        raise InvalidSnapshot(str(error)) from error
    for header, view in batches:
        check_batch(header, view)
    controls = [_control_messages(view) if header.is_control else [] for header, view in batches]
    if not controls or not controls[0] or not isinstance(controls[0][0], SnapshotHeaderRecord):
        raise InvalidSnapshot("it does not begin with a snapshot header")
    if not controls[-1] or not isinstance(controls[-1][-1], SnapshotFooterRecord):
        raise InvalidSnapshot("it does not end with a snapshot footer")
    return SnapshotContent(
        last_contained_timestamp=controls[0][0].last_contained_log_timestamp,
        quorum_records=QuorumRecords().after(chain.from_iterable(controls)),
        batches=tuple(batch for batch in batches if not batch[0].is_control),
    )


def _control_messages(view: memoryview) -> list[ControlMessage | UnknownControlRecord]:
    try:
        return [record.message for record in iterate_control_records(view)]
    except BatchError as error:
        raise InvalidSnapshot(str(error)) from error
