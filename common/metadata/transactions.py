"""Holds back the records of a metadata transaction until it is complete (core).

A change that is larger than one batch is written between BeginTransactionRecord and EndTransactionRecord; whoever follows
the log must see all of it or nothing. Answers to the transaction handling of Kafka's MetadataBatchLoader.

Easy to get wrong: a record that was held back keeps its own offset, but becomes visible at the offset of the end record.
Until then the follower's applied offset is the one before the begin record (`stable_offset`).
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
    """The log begins a transaction within another one, or ends one that never began."""


class TransactionBuffer:
    """Takes committed records in the order of the log and gives back those that may be applied now."""

    def __init__(self) -> None:
        self._held: list[RecordAndOffset] | None = None
        self._begin_offset = Offset(-1)
        self._last_offset = Offset(-1)

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._held is not None

    @property
    def stable_offset(self) -> Offset:
        """The last offset up to which everything fed has been given back or aborted; -1 before the first record."""
        return self._last_offset if self._held is None else Offset(self._begin_offset - 1)

    def feed(self, record: KnownRecord, offset: Offset) -> Sequence[RecordAndOffset]:
        """What may be applied after this record. Raises TransactionError."""
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
        """A snapshot whose last record has this offset replaced everything; snapshots never end within a transaction."""
        self._held = None
        self._last_offset = last_offset
