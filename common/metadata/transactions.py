"""Holds back the records of a metadata transaction until it is complete (core).

Counterpart of the transaction handling in Kafka's MetadataBatchLoader (KIP-868). A change larger than one batch is written
between BeginTransactionRecord and EndTransactionRecord, and a reader of the log must apply all of it or none.

A held record keeps its own offset but takes effect only when the end record is read. Until then the reader's applied offset
is the offset just before the begin record (`stable_offset`).
"""

from collections.abc import Sequence

from common.ids import Offset
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KnownRecord,
)

RecordAndOffset = tuple[KnownRecord, Offset]


class TransactionError(Exception):
    """The log begins a transaction inside another one, or ends or aborts one that never began."""


class TransactionBuffer:
    """Takes the committed records in log order, and returns each one when it may be applied."""

    def __init__(self) -> None:
        # The records held back for the open transaction, without its begin record. None while no transaction is open.
        self._held: list[RecordAndOffset] | None = None
        # The offset of the last begin record. Meaningful only while a transaction is open.
        self._begin_offset = Offset(-1)
        # The offset of the last record passed to `feed`, held back or not, or set by `reset`.
        self._last_offset = Offset(-1)

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun but not ended."""
        return self._held is not None

    @property
    def stable_offset(self) -> Offset:
        """The offset up to which every record has been returned or aborted, inclusive; -1 before the first record."""
        return self._last_offset if self._held is None else Offset(self._begin_offset - 1)

    def feed(self, record: KnownRecord, offset: Offset) -> Sequence[RecordAndOffset]:
        """Takes the next record and returns all records that may now be applied. Raises TransactionError."""
        self._last_offset = offset
        if isinstance(record, BeginTransactionRecord):
            if self._held is not None:
                raise TransactionError(
                    f"a transaction begins at offset {offset}, the one of offset {self._begin_offset} is still open"
                )
            self._held = []
            self._begin_offset = offset
            return ()
        if isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            if self._held is None:
                raise TransactionError(f"{type(record).__name__} at offset {offset}, and no transaction is open")
            held, self._held = self._held, None
            return held if isinstance(record, EndTransactionRecord) else ()
        if self._held is not None:
            self._held.append((record, offset))
            return ()
        return ((record, offset),)

    def reset(self, last_offset: Offset) -> None:
        """Continues after `last_offset`, the last offset of a loaded snapshot or of a control batch.

        Drops the records of an open transaction: a snapshot never ends inside one.
        """
        self._held = None
        self._last_offset = last_offset
