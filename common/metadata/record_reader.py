"""Decodes the records of one metadata log or snapshot, in order (core).

A record at the start of the log sets the numbering of the reserved directory ids in all later records, so a reader has to
remember the numbering. A caller that starts in the middle of a log passes the numbering of the preceding snapshot. If a
transaction is aborted, the numbering is again what it was before the transaction.
"""

from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, numbering_of_level
from common.parts import Buffer
from common.protocol.numbering import Numbering
from common.records.metadata_frame import FRAME_VERSION, decode_record
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    FeatureLevelRecord,
    KnownRecord,
)
from common.records.partition_layouts import RECORD_TYPE, VERSION, PartitionLayouts


class MetadataRecordReader:
    """Decodes records and tracks the numbering that the log selects. A log that selects none uses Apache's numbering."""

    def __init__(self, numbering: Numbering = Numbering.APACHE) -> None:
        # The numbering for the next record. Changes when a record of the numbering feature is decoded, and back when its
        # transaction is aborted.
        self.numbering = numbering
        # The numbering before the last transaction began; None before the first.
        self._numbering_before: Numbering | None = None
        self._layouts = PartitionLayouts()

    def decode(self, frame: Buffer) -> KnownRecord:
        """Decodes the next record. Raises ProtocolError, or UnknownMetadataVersion for an unknown numbering."""
        if len(frame) > 3 and frame[0] == FRAME_VERSION and frame[1] == RECORD_TYPE and frame[2] == VERSION:
            partition = self._layouts.decode(bytes(frame[3:]), self.numbering)
            if partition is not None:
                return partition
        record = decode_record(frame, self.numbering)
        if isinstance(record, FeatureLevelRecord):
            if record.name == DIRECTORY_NUMBERING_FEATURE:
                self.numbering = numbering_of_level(record.feature_level)
        elif isinstance(record, BeginTransactionRecord):
            self._numbering_before = self.numbering
        elif isinstance(record, AbortTransactionRecord):
            self.end_aborted_transaction()
        return record

    def end_aborted_transaction(self) -> None:
        """Returns to the numbering before the transaction that was begun last."""
        if self._numbering_before is not None:
            self.numbering = self._numbering_before
