"""The transactional ids of one partition of `__transaction_state` (core).

Counterpart of Kafka's TransactionCoordinator with its TransactionStateManager. The state is built by `replay` while the
partition is loaded; afterwards the operations change it and return the records that change it likewise when replayed.

1. Two records decide a transaction: Prepare makes the outcome final, and the client has its answer then; Complete says that
   every partition has its marker. What must follow the first is in `Step.markers_due`, and `markers_written` brings the
   second. A shard that is loaded with a prepared transaction makes its markers due again, so a marker may be written twice.
2. Until Complete, requests for the next transaction are answered with CONCURRENT_TRANSACTIONS, and clients try again.
3. A transaction that is older than its timeout is aborted with a raised epoch, so that its producer can do no more.
4. A client of transaction.version 2 gets a new epoch with the end of each transaction (KIP-890, `end_transaction`). The
   version of its requests decides that, as in Kafka, and not the level of the feature, which the client learns later.

An operation takes the waiter of a request and answers it. `knows_fencing` says whether the client understands
PRODUCER_FENCED (KIP-588); older ones get INVALID_PRODUCER_EPOCH.
"""

from collections.abc import Callable, Collection, Iterable
from copy import copy

from broker.coordinator.core.result import Answer, CoordinatorRecord, MarkersDue, Now, Step, Waiter
from broker.coordinator.core.transactions.end_transaction import bumping_end_result, end_needs_producer_id, end_result
from broker.coordinator.core.transactions.init_producer_id import (
    begin_producer,
    init_error,
    invalid_init,
    needs_producer_id,
    new_transaction,
)
from broker.coordinator.core.transactions.partitions import add_error, partition_results
from broker.coordinator.core.transactions.queries import TransactionFilter, describe, list_transaction
from broker.coordinator.core.transactions.settings import TransactionSettings
from broker.coordinator.core.transactions.state import TransactionState
from broker.coordinator.core.transactions.transaction import TIMEOUT, Transaction, TransactionPartition
from common.metadata.metadata_version import EPOCH_BUMP_TRANSACTION_VERSION
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from common.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from common.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from common.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from common.protocol.messages.list_transactions import ListTransactionsResponse
from common.records.batch import BATCH_OVERHEAD
from common.records.end_transaction import EndTransactionMarker
from common.records.transaction_records import (
    decode_transaction,
    decode_transaction_key,
    encode_transaction_key,
    is_newer_transaction,
)

# The most that the other parts of a tombstone take beside its key.
_TOMBSTONE_OVERHEAD = 36
# The lengths and deltas of a record with a value.
_RECORD_OVERHEAD = 40


class TransactionShard:
    """One shard. Time and fresh producer ids come as arguments. `level` returns that of transaction.version."""

    def __init__(self, settings: TransactionSettings, level: Callable[[], int] = lambda: 0) -> None:
        self._settings = settings
        self._level = level
        # By transactional id. Comes with the first InitProducerId or from the log, and goes when it expires.
        self._transactions: dict[str, Transaction] = {}

    @property
    def transactions(self) -> Collection[Transaction]:
        return self._transactions.values()

    # --- loading and unloading -----------------------------------------------------------------------------------

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Applies a record of the log while the shard is loaded. Not to be called with the shard's own appends.

        As in Kafka, keys of other versions and values of newer ones are skipped: an upgrade that was taken back may have
        left them. Raises ProtocolError for a malformed record."""
        transactional_id = None if key is None else decode_transaction_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._transactions.pop(transactional_id, None)
        elif not is_newer_transaction(value):
            self._transactions[transactional_id] = Transaction.from_value(transactional_id, decode_transaction(value))

    def replay_transactional(self, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        """Skips the record: nothing writes transactions into this topic."""

    def replay_marker(self, marker: EndTransactionMarker) -> None:
        """Does nothing, for the same reason."""

    def loaded(self, now: Now) -> Step:
        """Ends the load. Starts the timeouts of open transactions, and makes the markers of prepared ones due."""
        step = Step()
        for transaction in self._transactions.values():
            if transaction.state is TransactionState.ONGOING:
                step.timers.append(transaction.timeout(now))
            elif transaction.state.is_prepared:
                step.markers_due.append(transaction.markers_due())
        return step

    def unloaded(self, error: ErrorCode) -> list[Answer]:
        """No request waits in the shard itself. The shard must not be used afterwards; its timers are void."""
        self._transactions.clear()
        return []

    # --- producers -----------------------------------------------------------------------------------------------

    def needs_producer_id(self, request: InitProducerIdRequest) -> bool:
        """Whether `init_producer_id` needs a fresh producer id to answer this request."""
        if invalid_init(request, self._settings) is not None:
            return False
        return needs_producer_id(self._transactions.get(request.transactional_id or ""), request)

    def init_producer_id(
        self, now: Now, waiter: Waiter, request: InitProducerIdRequest, fresh_id: int | None, *, knows_fencing: bool
    ) -> Step:
        """Answers with InitProducerIdResponse. `fresh_id` is an id that no other producer has; None if none was needed when
        the request came."""
        step = Step()
        transaction = self._transactions.get(request.transactional_id or "")
        error = invalid_init(request, self._settings)
        if error is None and transaction is not None:
            error = init_error(transaction, request)
        if error is None and fresh_id is None and needs_producer_id(transaction, request):
            # It was not needed a moment ago. The client is to try again.
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is None and transaction is not None and transaction.state is TransactionState.ONGOING:
            self._abort(step, transaction, now)
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not None:
            response = InitProducerIdResponse(error_code=_for_client(error, knows_fencing=knows_fencing), producer_epoch=-1)
            step.answers.append(Answer(waiter, response))
            return step
        if transaction is None:
            assert fresh_id is not None
            transaction = new_transaction(request, fresh_id, now)
            self._transactions[transaction.transactional_id] = transaction
        else:
            begin_producer(transaction, request, fresh_id, now)
        step.records.append(transaction.to_record(self._level()))
        response = InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
        step.answers.append(Answer(waiter, response))
        return step

    # --- transactions --------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        now: Now,
        waiter: Waiter,
        asked: AddPartitionsToTxnTransaction,
        *,
        knows_fencing: bool,
        transaction_version: int = 0,
    ) -> Step:
        """Answers with AddPartitionsToTxnResult. The shell has seen to it that all exist. `transaction_version` is
        2 if a leader asks for a client that has not asked itself."""
        step = Step()
        partitions = frozenset((topic.name, index) for topic in asked.topics for index in topic.partitions)
        transaction = self._transactions.get(asked.transactional_id)
        error = add_error(transaction, asked.producer_id, asked.producer_epoch)
        if error is ErrorCode.NONE and transaction is not None:
            if self._fits(transaction, partitions, now):
                self._add(step, transaction, partitions, now, version=transaction_version)
            elif transaction_version >= EPOCH_BUMP_TRANSACTION_VERSION:
                # The sender of a Produce would split its batch because of the other error.
                error = ErrorCode.TRANSACTION_ABORTABLE
            else:
                error = ErrorCode.MESSAGE_TOO_LARGE
        result = partition_results(asked, lambda _: _for_client(error, knows_fencing=knows_fencing))
        step.answers.append(Answer(waiter, result))
        return step

    def verify_partitions(self, now: Now, waiter: Waiter, asked: AddPartitionsToTxnTransaction) -> Step:
        """Answers with AddPartitionsToTxnResult: which of the partitions are in the open transaction (KIP-890)."""
        transaction = self._transactions.get(asked.transactional_id)
        error = add_error(transaction, asked.producer_id, asked.producer_epoch)
        known = frozenset() if transaction is None else transaction.partitions

        def result(partition: TransactionPartition) -> ErrorCode:
            if error is not ErrorCode.NONE:
                return error
            return ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE

        return Step(answers=[Answer(waiter, partition_results(asked, result))])

    def add_offsets(
        self,
        now: Now,
        waiter: Waiter,
        transactional_id: str,
        producer: tuple[int, int],
        partition: TransactionPartition,
        *,
        knows_fencing: bool,
    ) -> Step:
        """Answers with AddOffsetsToTxnResponse. `producer` is an id and epoch, `partition` that of the group's offsets."""
        step = Step()
        transaction = self._transactions.get(transactional_id)
        error = add_error(transaction, *producer)
        if error is ErrorCode.NONE and transaction is not None:
            if self._fits(transaction, frozenset([partition]), now):
                self._add(step, transaction, frozenset([partition]), now, version=0)
            else:
                error = ErrorCode.MESSAGE_TOO_LARGE
        response = AddOffsetsToTxnResponse(error_code=_for_client(error, knows_fencing=knows_fencing))
        step.answers.append(Answer(waiter, response))
        return step

    def end_transaction(self, now: Now, waiter: Waiter, request: EndTxnRequest, *, knows_fencing: bool) -> Step:
        """Answers with EndTxnResponse, once the outcome is decided."""
        step = Step()
        transaction = self._transactions.get(request.transactional_id)
        result = end_result(transaction, request)
        if result.is_due and transaction is not None:
            transaction.prepare(now, is_commit=request.committed, version=0)
            self._prepared(step, transaction)
        response = EndTxnResponse(error_code=_for_client(result.error, knows_fencing=knows_fencing))
        step.answers.append(Answer(waiter, response))
        return step

    def end_needs_producer_id(self, request: EndTxnRequest) -> bool:
        """Whether `end_bumping` needs a fresh producer id to answer this request."""
        return end_needs_producer_id(self._transactions.get(request.transactional_id), request)

    def end_bumping(self, now: Now, waiter: Waiter, request: EndTxnRequest, fresh_id: int | None) -> Step:
        """Answers with EndTxnResponse, once the outcome is decided: the end of a transaction of version 2, and the id and
        epoch with which its producer goes on. `fresh_id` is None if none was needed when the request came."""
        step = Step()
        transaction = self._transactions.get(request.transactional_id)
        result = bumping_end_result(transaction, request)
        error, is_due = result.error, result.is_due
        if is_due and fresh_id is None and end_needs_producer_id(transaction, request):
            # It was not needed a moment ago. The client is to try again.
            error, is_due = ErrorCode.CONCURRENT_TRANSACTIONS, False
        response = EndTxnResponse(error_code=error)
        if error is ErrorCode.NONE:
            assert transaction is not None
            if is_due:
                transaction.prepare(
                    now, is_commit=request.committed, version=EPOCH_BUMP_TRANSACTION_VERSION, fresh_id=fresh_id
                )
                self._prepared(step, transaction)
            response.producer_id, response.producer_epoch = transaction.next_producer
        step.answers.append(Answer(waiter, response))
        return step

    def markers_written(self, now: Now, due: MarkersDue) -> Step:
        """Completes the transaction: all of its partitions have their markers."""
        step = Step()
        transaction = self._transactions.get(due.transactional_id)
        if transaction is not None and transaction.state.is_prepared and transaction.markers_due() == due:
            transaction.complete(now)
            step.records.append(transaction.to_record(self._level()))
        return step

    def timer_fired(self, now: Now, key: tuple[str, ...]) -> list[Step]:
        """Aborts a transaction that has reached its timeout."""
        kind, transactional_id = key
        assert kind == TIMEOUT
        step = Step()
        transaction = self._transactions.get(transactional_id)
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            self._abort(step, transaction, now)
        return [step]

    def expirable(self) -> list[str]:
        """Returns the transactional ids that `expire` has to look at: all."""
        return list(self._transactions)

    def expire(self, now: Now, ids: Iterable[str]) -> list[Step]:
        """Forgets those of the transactional ids that have not been used for `transactional.id.expiration.ms`. The shell
        goes through all of them each `transaction.remove.expired.transaction.cleanup.interval.ms`."""
        unused_since_ms = now.wall_ms - self._settings.transactional_id_expiration_ms
        expired = [
            each
            for each in map(self._transactions.get, ids)
            if each is not None and each.state.may_begin and each.last_update_ms <= unused_since_ms
        ]
        for transaction in expired:
            transaction.expire(now)
            del self._transactions[transaction.transactional_id]
        return list(self._tombstones(each.transactional_id for each in expired))

    def _tombstones(self, transactional_ids: Iterable[str]) -> Iterable[Step]:
        step, size = Step(), BATCH_OVERHEAD
        for transactional_id in transactional_ids:
            key = encode_transaction_key(transactional_id)
            record_size = _TOMBSTONE_OVERHEAD + len(key)
            if step.records and size + record_size > self._settings.batch_bytes_max:
                yield step
                step, size = Step(), BATCH_OVERHEAD
            step.records.append(CoordinatorRecord(key, None))
            size += record_size
        if step.records:
            yield step

    def _add(
        self, step: Step, transaction: Transaction, partitions: frozenset[TransactionPartition], now: Now, *, version: int
    ) -> None:
        is_open = transaction.state is TransactionState.ONGOING
        if not partitions or (is_open and partitions <= transaction.partitions):
            return
        transaction.add(partitions, now, version=version)
        step.records.append(transaction.to_record(self._level()))
        if not is_open:
            step.timers.append(transaction.timeout(now))

    def _fits(self, transaction: Transaction, partitions: frozenset[TransactionPartition], now: Now) -> bool:
        """Whether a record can name these partitions as well. An append that fails would take all other transactions of the
        log's partition with it."""
        grown = copy(transaction)
        size = 0
        # Which form of the record is the larger one depends on the topics, and the end may be written in the other one.
        for version in (0, EPOCH_BUMP_TRANSACTION_VERSION):
            grown.add(partitions, now, version=version)
            record = grown.to_record(version)
            size = max(size, len(record.key) + len(record.value or b""))
        return BATCH_OVERHEAD + _RECORD_OVERHEAD + size <= self._settings.batch_bytes_max

    def _abort(self, step: Step, transaction: Transaction, now: Now) -> None:
        transaction.fence(now, level=self._level())
        self._prepared(step, transaction)

    def _prepared(self, step: Step, transaction: Transaction) -> None:
        step.timers.append(transaction.no_timeout())
        step.records.append(transaction.to_record(self._level()))
        step.markers_due.append(transaction.markers_due())

    # --- queries -------------------------------------------------------------------------------------------------

    def describe_transaction(self, now: Now, waiter: Waiter, transactional_id: str) -> Step:
        """Answers with the TransactionState of DescribeTransactionsResponse."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
            response = DescribedTransaction(error_code=error, transactional_id=transactional_id)
        else:
            response = describe(transaction)
        return Step(answers=[Answer(waiter, response)])

    def list_transactions(self, now: Now, waiter: Waiter, asked: TransactionFilter) -> Step:
        """Answers with ListTransactionsResponse of this shard's transactions, without the unknown filters."""
        found = [list_transaction(each) for each in self._transactions.values() if asked.admits(each, now)]
        return Step(answers=[Answer(waiter, ListTransactionsResponse(transaction_states=found))])


def _for_client(error: ErrorCode, *, knows_fencing: bool) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and not knows_fencing else error
