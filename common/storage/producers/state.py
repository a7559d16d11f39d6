"""What one log knows about its producers: duplicates, gaps, and transactions (core, KIP-98 and KIP-360).

Counterpart of Kafka's ProducerStateManager, ProducerStateEntry and ProducerAppendInfo. The leader checks each batch with a
producer id before it appends the batch. Every replica notes what it appends, so that a new leader can go on checking.

1. A batch with the epoch and the sequence numbers of one of the producer's last five batches is a duplicate. It is not
   appended again; its answer names the offsets of the first one.
2. An epoch below the latest one is refused. A higher epoch must begin with sequence number 0.
3. Within an epoch, each batch continues where the last one ended.
4. A producer without an entry may begin with any sequence number. Its entry may have expired, or its batches may have been
   deleted before this replica could see them, so this is not the producer's mistake.

5. A transaction begins with a producer's first transactional batch and ends with a marker. Until then every batch of the
   producer must be transactional.
6. A marker is refused if its producer epoch or its coordinator epoch is below the latest one. Its producer epoch may be
   higher: the coordinator fences a producer in this way. The producer's sequence then begins with 0 again. A marker of
   transaction.version 2 has an epoch of its own, above that of its transaction. If the open transaction has the marker's
   epoch, it is the next one, and the marker has been sent twice: it must not end that one.
7. The group coordinator writes transactional batches in a producer's name, without sequence numbers. Only their epoch is
   checked.

Deleting records leaves the entries of their producers. An entry expires after producer.id.expiration.ms without a batch,
unless its transaction is open.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from common.records.batch import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from common.records.end_transaction import EndTransactionMarker
from common.storage.producers.sequences import last_sequence, sequence_after
from common.storage.producers.transactions import CompletedTransaction, Transactions

# A client has at most this many requests in flight, so it retries no older batch than these.
BATCHES_KEPT: Final = 5
NO_COORDINATOR_EPOCH: Final = -1
NO_OFFSET: Final = -1


class ProducerRefused(Exception):
    """The leader must not append the batch. The text is for humans."""


class OutOfOrderSequence(ProducerRefused):
    """The batch does not follow the producer's last one (rules 2 and 3)."""


class InvalidProducerEpoch(ProducerRefused):
    """A producer with a newer epoch has written (rules 2 and 6)."""


class InvalidTransactionState(ProducerRefused):
    """The batch is not part of the producer's open transaction (rule 5)."""


class TransactionCoordinatorFenced(ProducerRefused):
    """A transaction coordinator with a newer epoch has written a marker (rule 6)."""


class ProducedBatch(NamedTuple):
    """One batch of a producer: its sequence numbers, its offsets, and its largest timestamp."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """The state of one producer id. Each batch makes a new entry, so that a snapshot only has to refer to the entries."""

    epoch: int = NO_PRODUCER_EPOCH
    # The last batches, ascending. Invariant: all have `epoch`, and there are at most BATCHES_KEPT. Empty after a transaction
    # marker with a new epoch. A batch without sequence numbers (rule 7) has -1 for both.
    batches: Sequence[ProducedBatch] = []
    # The largest timestamp of the last batch or marker. The entry expires by this time.
    last_timestamp: int = NO_TIMESTAMP
    # The epoch of the transaction coordinator that wrote the last marker.
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    # The first offset of the transaction under way, NO_OFFSET if there is none. Such an entry does not expire.
    transaction_first_offset: int = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


_UNKNOWN: Final = ProducerEntry()


class ProducerState:
    """The producers of one log, as of its end."""

    __slots__ = ("_entries", "end_offset", "transactions")

    def __init__(self, entries: Mapping[int, ProducerEntry] | None = None, *, end_offset: int = 0) -> None:
        """`end_offset` is the offset of the snapshot that the entries come from."""
        self._entries: dict[int, ProducerEntry] = dict(entries or {})
        # Invariant: the open transactions are those of the entries.
        self.transactions = Transactions(
            entry.transaction_first_offset for entry in self._entries.values() if entry.transaction_first_offset != NO_OFFSET
        )
        # No batch with a producer id at or beyond this offset has been noted. A log that is truncated at or beyond it keeps
        # its state.
        self.end_offset = end_offset

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """The entries by producer id."""
        return self._entries

    def copy(self) -> "ProducerState":
        """Returns a copy, which does not change with this state."""
        copied = ProducerState(self._entries, end_offset=self.end_offset)
        copied.transactions = self.transactions.copy()
        return copied

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer's transaction is open and was begun, or continued, with this epoch."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset != NO_OFFSET and entry.epoch == producer_epoch

    # --- checking ------------------------------------------------------------------------------------------------
    def validate_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Checks the epoch of a batch or a marker. Raises InvalidProducerEpoch."""
        entry = self._entries.get(producer_id)
        latest_epoch = NO_PRODUCER_EPOCH if entry is None else entry.epoch
        if producer_epoch < 0 or producer_epoch < latest_epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {producer_epoch}, the latest is {latest_epoch}")

    def validate_marker(self, marker: EndTransactionMarker) -> None:
        """Checks a marker that is to be appended (rule 6). Raises InvalidProducerEpoch and TransactionCoordinatorFenced."""
        self.validate_epoch(marker.producer_id, marker.producer_epoch)
        if marker.has_own_epoch and self.has_open_transaction(marker.producer_id, marker.producer_epoch):
            raise InvalidProducerEpoch(
                f"the open transaction of producer {marker.producer_id} with epoch {marker.producer_epoch} is the one after "
                "this marker"
            )
        entry = self._entries.get(marker.producer_id)
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the coordinator of producer {marker.producer_id} has epoch {marker.coordinator_epoch}, "
                f"the latest is {entry.coordinator_epoch}"
            )

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        """Returns the earlier batch if `header`, which has a producer id, is a duplicate; None if it is to be appended.

        Raises OutOfOrderSequence, InvalidProducerEpoch and InvalidTransactionState.
        """
        self.validate_epoch(header.producer_id, header.producer_epoch)
        entry = self._entries.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if entry is None or (sequence == NO_SEQUENCE and header.is_transactional):
            return None
        if epoch != entry.epoch:
            expected = 0
        else:
            expected = sequence_after(entry.last_sequence, 1)
            if sequence != expected:
                duplicate = _batch_with(entry, sequence, last_sequence(header))
                if duplicate is not None:
                    return duplicate
        if sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} with epoch {epoch} sent sequence number {sequence}, {expected} is next"
            )
        if entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} sent a batch outside of its transaction, which began at offset "
                f"{entry.transaction_first_offset}"
            )
        return None

    # --- changing ------------------------------------------------------------------------------------------------
    def note(
        self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker | None = None
    ) -> CompletedTransaction | None:
        """Takes up a batch with a producer id that is appended at `base_offset`, or was found there. `marker` is that of a
        control batch, None if compaction has removed it. Returns the transaction that ends here, if it has data."""
        last_offset = base_offset + header.last_offset_delta
        self.end_offset = last_offset + 1
        entry = self._entries.get(header.producer_id, _UNKNOWN)
        _, batches, _, coordinator_epoch, transaction_first_offset = entry
        if entry.epoch != header.producer_epoch:
            batches = []
        timestamp = header.max_timestamp
        completed = None
        if header.attributes & CONTROL_BIT:
            if marker is not None:
                coordinator_epoch = marker.coordinator_epoch
            if transaction_first_offset != NO_OFFSET:
                completed = self._end_transaction(header.producer_id, transaction_first_offset, last_offset, marker)
                transaction_first_offset = NO_OFFSET
        else:
            if header.attributes & TRANSACTIONAL_BIT and transaction_first_offset == NO_OFFSET:
                transaction_first_offset = base_offset
                self.transactions.begin(base_offset)
            sequence = header.base_sequence
            batch = ProducedBatch(sequence, last_sequence(header), base_offset, last_offset, timestamp)
            batches = [*batches[1 - BATCHES_KEPT :], batch]
        # By position: keywords double the time that it takes to create a tuple.
        self._entries[header.producer_id] = ProducerEntry(
            header.producer_epoch, batches, timestamp, coordinator_epoch, transaction_first_offset
        )
        return completed

    def _end_transaction(
        self, producer_id: int, first_offset: int, last_offset: int, marker: EndTransactionMarker | None
    ) -> CompletedTransaction:
        last_stable_offset = self.transactions.end(first_offset, last_offset)
        # Without its marker, a transaction has no records left in the log either, so no reader needs to know about it.
        is_commit = marker is None or marker.is_commit
        return CompletedTransaction(producer_id, first_offset, last_offset, last_stable_offset, is_commit)

    def replicated_up_to(self, high_watermark: int) -> None:
        """Notes the high watermark. What ends below it no longer holds back the last stable offset."""
        self.transactions.replicated_up_to(high_watermark)

    def remove_expired(self, *, now_ms: int, expiration_ms: int) -> int:
        """Removes the entries without a batch for `expiration_ms`. Returns their number."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)


def _batch_with(entry: ProducerEntry, first: int, last: int) -> ProducedBatch | None:
    return next((each for each in entry.batches if each.first_sequence == first and each.last_sequence == last), None)
