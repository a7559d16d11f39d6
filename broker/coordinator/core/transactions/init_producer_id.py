"""InitProducerId with a transactional id: which producer id and epoch a producer gets (KIP-98, KIP-360) (core).

1. A new producer gets the next epoch, so that every older producer with this transactional id is fenced.
2. If a transaction is open, it is aborted first, with a raised epoch. The producer tries again after CONCURRENT_TRANSACTIONS
   until the abort is complete.
3. A producer that names the id and epoch that it has gets the next epoch only if no later producer has taken over. If it
   repeats the request, because it did not get the answer, it gets the same answer again.
4. When the epochs of a producer id are exhausted, the transactional id gets another producer id. The decision is here, but
   fresh ids come from the controller, so the shell asks `needs_producer_id` first.
"""

from typing import Final

from broker.coordinator.core.result import Now
from broker.coordinator.core.transactions.settings import TransactionSettings
from broker.coordinator.core.transactions.transaction import EPOCH_MAX, Transaction, is_exhausted
from common.protocol.errors import ErrorCode
from common.protocol.messages.init_producer_id import InitProducerIdRequest
from common.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_FIRST_EPOCH: Final = 0


def invalid_init(request: InitProducerIdRequest, settings: TransactionSettings) -> ErrorCode | None:
    """Returns why the request can never succeed."""
    if not request.transactional_id or (request.producer_id == NO_PRODUCER_ID) != (
        request.producer_epoch == NO_PRODUCER_EPOCH
    ):
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= settings.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def needs_producer_id(transaction: Transaction | None, request: InitProducerIdRequest) -> bool:
    """Whether the request can succeed only with a fresh producer id."""
    if transaction is None:
        return True
    return transaction.state.may_begin and transaction.is_epoch_exhausted and not _is_repeated(transaction, request)


def new_transaction(request: InitProducerIdRequest, fresh_id: int, now: Now) -> Transaction:
    """Returns the state of a transactional id that is seen for the first time, or again after it has expired."""
    return Transaction(
        transactional_id=request.transactional_id or "",
        producer_id=fresh_id,
        producer_epoch=_FIRST_EPOCH,
        timeout_ms=request.transaction_timeout_ms,
        last_update_ms=now.wall_ms,
    )


def init_error(transaction: Transaction, request: InitProducerIdRequest) -> ErrorCode | None:
    """Returns why the request must fail, or fails for now. None while a transaction is open, which is to be aborted first.

    Kafka also lets a producer with an older epoch abort the open transaction. Here it is fenced at once."""
    if _names_producer(request) and not _is_valid_producer(transaction, request):
        return ErrorCode.PRODUCER_FENCED
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    known = {transaction.producer_epoch}
    if transaction.state.may_begin:
        known.add(transaction.last_producer_epoch)
    if _names_producer(request) and request.producer_epoch not in known:
        return ErrorCode.PRODUCER_FENCED
    return None


def begin_producer(transaction: Transaction, request: InitProducerIdRequest, fresh_id: int | None, now: Now) -> None:
    """Gives the transactional id to the producer. `fresh_id` is set if `needs_producer_id`."""
    timeout_ms = request.transaction_timeout_ms
    epoch = transaction.producer_epoch
    if _is_repeated(transaction, request):
        transaction.begin_epoch(epoch, now, timeout_ms=timeout_ms, last_epoch=transaction.last_producer_epoch)
        return
    last_epoch = request.producer_epoch if _names_producer(request) else NO_PRODUCER_EPOCH
    if transaction.is_epoch_exhausted:
        assert fresh_id is not None
        transaction.rotate_producer_id(fresh_id, now, timeout_ms=timeout_ms, last_epoch=last_epoch)
    else:
        transaction.begin_epoch(epoch + 1, now, timeout_ms=timeout_ms, last_epoch=last_epoch)


def _names_producer(request: InitProducerIdRequest) -> bool:
    return request.producer_id != NO_PRODUCER_ID


def _is_repeated(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether the producer asks for the epoch that it was given, as in rule 3. The greatest epoch is given to no producer:
    it comes from an abort by the coordinator."""
    names_another = _names_producer(request) and request.producer_epoch != transaction.producer_epoch
    return names_another and transaction.producer_epoch < EPOCH_MAX


def _is_valid_producer(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether the named producer has the current id, or the one that follows, which an EndTxn has answered already, or the
    one before it and repeats the request that changed the id."""
    return request.producer_id in (transaction.producer_id, transaction.next_producer_id) or (
        request.producer_id == transaction.last_producer_id and is_exhausted(request.producer_epoch)
    )
