"""The voters that the metadata log names, from kraft.version 1 on (core).

Counterpart of Kafka's KRaftControlRecordStateMachine (KIP-853). Apache Kafka's controllers keep the set of voters in control
records of the log. Diskraft's nodes take their voters from the configuration. They copy these records into their snapshots,
because the log before a snapshot is deleted, and without the records Apache Kafka's controller elects no leader.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from common.raft.core.record_batches import UnreadableBatch
from common.records.batch import BatchError, BatchHeader
from common.records.control import (
    ControlMessage,
    KRaftVersionRecord,
    UnknownControlRecord,
    VotersRecord,
    iterate_control_records,
)


@dataclass(frozen=True, slots=True)
class QuorumRecords:
    """The newest record of each kind. None if there was none, as in a log of kraft.version 0."""

    kraft_version: KRaftVersionRecord | None = None
    voters: VotersRecord | None = None

    @property
    def messages(self) -> tuple[KRaftVersionRecord | VotersRecord, ...]:
        """The records in the order in which a snapshot holds them."""
        return tuple(message for message in (self.kraft_version, self.voters) if message is not None)

    def after(self, messages: Iterable[ControlMessage | UnknownControlRecord]) -> "QuorumRecords":
        """Returns what holds after these control records."""
        newest = self
        for message in messages:
            if isinstance(message, KRaftVersionRecord):
                newest = replace(newest, kraft_version=message)
            elif isinstance(message, VotersRecord):
                newest = replace(newest, voters=message)
        return newest

    def after_batch(self, header: BatchHeader, view: memoryview) -> "QuorumRecords":
        """Returns what holds after this batch of the log. Raises UnreadableBatch."""
        if not header.is_control:
            return self
        try:
            return self.after(record.message for record in iterate_control_records(view))
        except BatchError as error:
            raise UnreadableBatch(f"the batch at offset {header.base_offset} of the metadata log: {error}") from error
