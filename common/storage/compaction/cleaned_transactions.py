"""Follows the transactions of a log while compaction goes through it (core, KIP-98).

Counterpart of Kafka's CleanedTransactionMetadata. The batches are passed in the order of their offsets, and before them the
aborted transactions that they may belong to. Everything that compaction reads is below the last stable offset, so the
outcome of each transaction is known.

1. The records of an aborted transaction go at once.
2. A marker may go when no batch of its transaction is left in the log. It then stays for delete.retention.ms, so that a
   reader that has seen the transaction's records also sees its end.
3. An aborted transaction stays in the index as long as one of its batches, possibly without records, is in the log.
"""

import heapq
from collections.abc import Callable, Iterable

from common.records.batch import BatchHeader
from common.records.end_transaction import EndTransactionMarker
from common.storage.transaction_index import AbortedTransaction


class _Aborted:
    """An aborted transaction whose marker is still to come."""

    __slots__ = ("entry", "has_batches")

    def __init__(self, entry: AbortedTransaction) -> None:
        self.entry = entry
        # Whether one of its batches has been passed.
        self.has_batches = False


class CleanedTransactions:
    """See the module docstring."""

    __slots__ = ("_aborted", "_coming", "_committed")

    def __init__(self) -> None:
        # The aborted transactions that have not begun yet, as a heap by first offset.
        self._coming: list[tuple[int, AbortedTransaction]] = []
        # Those that have begun, by producer id.
        self._aborted: dict[int, _Aborted] = {}
        # The producers with batches of a committed transaction whose marker is still to come.
        self._committed: set[int] = set()

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Adds aborted transactions. One that spans several segments may be added again with each of them."""
        for each in aborted:
            heapq.heappush(self._coming, (each.first_offset, each))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Passes a batch of data. Returns whether it belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.has_batches = True
        return True

    def may_go(
        self, header: BatchHeader, marker: EndTransactionMarker | None, keep: Callable[[AbortedTransaction], None]
    ) -> bool:
        """Passes a control batch, with its marker if it has one. Returns whether no batch of the transaction is left. Calls
        `keep` with an aborted transaction that still has batches (rule 3)."""
        self._begin_up_to(header.last_offset)
        if marker is None:
            return not header.record_count
        if marker.is_commit:
            is_left = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not is_left
        aborted = self._aborted.pop(header.producer_id, None)
        if aborted is None or not aborted.has_batches:
            return True
        keep(aborted.entry)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, entry = heapq.heappop(self._coming)
            if entry.last_offset >= offset:
                self._aborted.setdefault(entry.producer_id, _Aborted(entry))
