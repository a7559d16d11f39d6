"""One transactional id: its producer, and the transaction that is open or was the last (core).

Counterpart of Kafka's TransactionMetadata. Kafka keeps the state that a record under way will bring apart from the present
one, and refuses other requests meanwhile with CONCURRENT_TRANSACTIONS. Here the state changes at once and the answers wait
for the records, as everywhere in this package.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.coordinator.core.result import CoordinatorRecord, MarkersDue, Now, TimerChange
from broker.coordinator.core.transactions.state import TransactionState, may_become
from common.metadata.metadata_version import EPOCH_BUMP_TRANSACTION_VERSION, FLEXIBLE_RECORDS_TRANSACTION_VERSION
from common.protocol.errors import ProtocolError
from common.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PRODUCER_EPOCH_MAX
from common.records.transaction_records import (
    CLASSIC_VALUE_VERSION,
    FLEXIBLE_VALUE_VERSION,
    PartitionsSchema,
    TransactionLogValue,
    encode_transaction,
    encode_transaction_key,
)
from common.time_units import NS_PER_MS

NO_TIMESTAMP: Final = -1
# The largest epoch is kept for fencing and for the last marker of a producer id: a producer never gets it. A coordinator of
# Apache Kafka may have given it to one (KAFKA-20090), and its open transaction may be loaded here.
EPOCH_MAX: Final = PRODUCER_EPOCH_MAX
_EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
_WRITTEN_STATES: Final = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}

# The first part of the key of the timer of an open transaction. The transactional id follows.
TIMEOUT: Final = "timeout"

TransactionPartition = tuple[str, int]


class InvalidTransaction(ProtocolError):
    """A record has a state that this version does not know, or is one that no coordinator can have written."""


@dataclass(slots=True)
class Transaction:
    """See the module docstring."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_update_ms: int
    state: TransactionState = TransactionState.EMPTY
    # Invariant: not empty while Ongoing, and empty unless Ongoing or prepared.
    partitions: frozenset[TransactionPartition] = frozenset()
    # When the transaction began, by the wall clock.
    start_ms: int = NO_TIMESTAMP
    # The producer id that follows once the transaction is complete. Invariant: set only while prepared, and only if the end
    # of the transaction has exhausted the epochs of the present one.
    next_producer_id: int = NO_PRODUCER_ID
    # The transaction.version with which the open or prepared transaction was last changed: at 2, its end raises the epoch.
    version: int = 0
    # What a producer knew before its last InitProducerId (KIP-360), or before its last EndTxn of version 2. Only the id is
    # in the log, and not in the classic version of the record.
    last_producer_id: int = field(default=NO_PRODUCER_ID, compare=False)
    last_producer_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)

    @classmethod
    def from_value(cls, transactional_id: str, value: TransactionLogValue) -> "Transaction":
        """Raises InvalidTransaction."""
        if value.transaction_status not in _WRITTEN_STATES:
            raise InvalidTransaction(f"a record of __transaction_state has the state {value.transaction_status}")
        is_followed = value.next_producer_id != NO_PRODUCER_ID
        if is_followed and not (
            TransactionState(value.transaction_status).is_prepared and value.producer_epoch == EPOCH_MAX
        ):
            raise InvalidTransaction(f"a producer id follows on {value.producer_id}, whose epochs are not exhausted")
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            last_update_ms=value.transaction_last_update_timestamp_ms,
            state=TransactionState(value.transaction_status),
            partitions=frozenset(
                (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            next_producer_id=value.next_producer_id,
            version=value.client_transaction_version,
            last_producer_id=value.previous_producer_id,
        )

    def to_record(self, level: int) -> CoordinatorRecord:
        """`level` is that of transaction.version. What the classic record cannot hold is written into a flexible one at any
        level: a client that has not noticed a downgrade yet still ends its transactions with version 2."""
        is_flexible = level >= FLEXIBLE_RECORDS_TRANSACTION_VERSION or self.bumps_epoch
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.last_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None
            if self.state is TransactionState.EMPTY
            else [PartitionsSchema(topic=topic, partition_ids=each) for topic, each in self.by_topic().items()],
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.version,
        )
        version = FLEXIBLE_VALUE_VERSION if is_flexible else CLASSIC_VALUE_VERSION
        return CoordinatorRecord(encode_transaction_key(self.transactional_id), encode_transaction(value, version))

    def by_topic(self) -> dict[str, list[int]]:
        """Returns the partitions by topic, sorted."""
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(self.partitions):
            topics.setdefault(topic, []).append(index)
        return topics

    # --- epochs --------------------------------------------------------------------------------------------------

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether a producer can get no further epoch, and needs another id."""
        return is_exhausted(self.producer_epoch)

    @property
    def bumps_epoch(self) -> bool:
        """Whether the end of the transaction raises the epoch, or has raised it."""
        return self.version >= EPOCH_BUMP_TRANSACTION_VERSION

    @property
    def next_producer(self) -> tuple[int, int]:
        """The id and epoch with which the producer goes on once the transaction is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def is_ended_by(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer had the transaction, which is prepared or complete, and goes on with the epoch that the end
        has brought.

        An abort by the coordinator looks alike, as in Kafka: a producer that missed its timeout learns of the abort when it
        asks for one itself."""
        if not self.bumps_epoch:
            return False
        if self.producer_id == producer_id and self.producer_epoch == producer_epoch + 1:
            return True
        was_exhausted = producer_epoch == _EPOCH_EXHAUSTED and self.producer_epoch == 0
        return was_exhausted and self.last_producer_id == producer_id and not self.state.is_prepared

    def begin_epoch(self, epoch: int, now: Now, *, timeout_ms: int, last_epoch: int) -> None:
        """Gives the id to a producer with this epoch, without an open transaction."""
        self._become(TransactionState.EMPTY, now)
        self.producer_epoch, self.last_producer_epoch = epoch, last_epoch
        self.timeout_ms = timeout_ms
        self.start_ms = NO_TIMESTAMP

    def rotate_producer_id(self, producer_id: int, now: Now, *, timeout_ms: int, last_epoch: int) -> None:
        """Gives the id to a producer with another producer id, because the epochs of the old one are exhausted."""
        former = self.producer_id
        self.begin_epoch(0, now, timeout_ms=timeout_ms, last_epoch=last_epoch)
        self.producer_id, self.last_producer_id = producer_id, former

    # --- transactions --------------------------------------------------------------------------------------------

    def add(self, partitions: Iterable[TransactionPartition], now: Now, *, version: int) -> None:
        """Adds partitions, and begins a transaction if none is open."""
        if self.state is not TransactionState.ONGOING:
            self.start_ms = now.wall_ms
        self._become(TransactionState.ONGOING, now)
        self.partitions = self.partitions.union(partitions)
        self.version = version
        # The producer has the answer to its last request, so it does not repeat it.
        self.last_producer_id = NO_PRODUCER_ID

    def prepare(self, now: Now, *, is_commit: bool, version: int, fresh_id: int | None = None) -> None:
        """Decides the outcome of the open transaction, or of one without partitions that only raises the epoch. `fresh_id`
        is set if the epochs are exhausted and this raises the epoch."""
        if self.state is not TransactionState.ONGOING:
            self.start_ms = now.wall_ms
        self._become(TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT, now)
        self.version = version
        if not self.bumps_epoch:
            return
        if self.is_epoch_exhausted:
            assert fresh_id is not None
            self.next_producer_id = fresh_id
        # It may be the greatest one already, after an abort by the coordinator or from a coordinator of Apache Kafka.
        if self.producer_epoch < EPOCH_MAX:
            self.last_producer_epoch = self.producer_epoch
            self.producer_epoch += 1

    def fence(self, now: Now, *, level: int) -> None:
        """Raises the epoch, so that the producer can add nothing more, and aborts its transaction.

        With version 2 the producer gets that epoch if it asks for the abort before another one has taken the id over. A
        transaction with the greatest epoch is aborted with that: its producer can add nothing more anyway."""
        self.version = max(self.version, level if level >= EPOCH_BUMP_TRANSACTION_VERSION else 0)
        self._become(TransactionState.PREPARE_EPOCH_FENCE, now)
        self.last_producer_epoch = self.producer_epoch if self.bumps_epoch else NO_PRODUCER_EPOCH
        self.producer_epoch = min(self.producer_epoch + 1, EPOCH_MAX)
        self._become(TransactionState.PREPARE_ABORT, now)

    def complete(self, now: Now) -> None:
        """Ends a transaction whose partitions all have their markers."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        self._become(TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT, now)
        self.partitions = frozenset()
        if self.next_producer_id != NO_PRODUCER_ID:
            self.last_producer_id = self.producer_id
            self.producer_id, self.producer_epoch = self.next_producer
            self.next_producer_id = NO_PRODUCER_ID

    def expire(self, now: Now) -> None:
        """Ends the use of the transactional id."""
        self._become(TransactionState.DEAD, now)

    def markers_due(self) -> MarkersDue:
        assert self.state.is_prepared
        return MarkersDue(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            is_commit=self.state is TransactionState.PREPARE_COMMIT,
            partitions=self.partitions,
            transaction_version=self.version,
        )

    def _become(self, state: TransactionState, now: Now) -> None:
        assert may_become(self.state, state), f"{self.state.name} to {state.name}"
        self.state = state
        self.last_update_ms = now.wall_ms

    # --- timers --------------------------------------------------------------------------------------------------

    def timeout(self, now: Now) -> TimerChange:
        """Returns the timer that aborts the open transaction once it is older than its timeout."""
        assert self.state is TransactionState.ONGOING
        # The wall clock may have been set back meanwhile; then the timeout begins anew.
        left_ms = min(self.timeout_ms, max(0, self.start_ms + self.timeout_ms - now.wall_ms))
        return TimerChange((TIMEOUT, self.transactional_id), now.ns + left_ms * NS_PER_MS)

    def no_timeout(self) -> TimerChange:
        return TimerChange((TIMEOUT, self.transactional_id), None)


def is_exhausted(epoch: int) -> bool:
    """Whether no producer may follow this epoch with the same producer id."""
    return epoch >= _EPOCH_EXHAUSTED
