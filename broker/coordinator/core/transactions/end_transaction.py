"""EndTxn: whether a producer may end its transaction (core).

A repeated request gets the answer that the first one got, if the outcome is the same: CONCURRENT_TRANSACTIONS while markers
are being written, then success.

The end of a transaction of version 2 raises the epoch (KIP-890). A retry of the same EndTxn carries the old epoch, and the
EndTxn of the next transaction the new one, so the coordinator can tell them apart:

                     abort                  commit
                     repeated   next        repeated   next
    Empty            fenced     is due      fenced     INVALID_TXN_STATE
    PrepareAbort     busy       busy        busy       busy
    PrepareCommit    INVALID..  busy        busy       busy
    CompleteAbort    success    is due      fenced     INVALID_TXN_STATE
    CompleteCommit   INVALID..  is due      success    INVALID_TXN_STATE

If a producer commits a transaction that was aborted, it was the coordinator that aborted it, after the timeout or because a
new producer came. The late producer is fenced, as with version 1 (KAFKA-20785): a fenced client can start over, and
INVALID_TXN_STATE is fatal to it.

An abort with nothing to abort is due because the producer may not know whether the coordinator knows of its transaction,
and only a new epoch keeps out what may still be under way. Busy is CONCURRENT_TRANSACTIONS. While a marker cannot be
written, the batches of the next transaction are refused, so the producer may give that one up meanwhile.
"""

from dataclasses import dataclass

from broker.coordinator.core.transactions.state import TransactionState
from broker.coordinator.core.transactions.transaction import EPOCH_MAX, Transaction
from common.protocol.errors import ErrorCode
from common.protocol.messages.end_txn import EndTxnRequest


@dataclass(frozen=True, slots=True)
class EndResult:
    """The answer to the request, and whether the transaction is to be ended now."""

    error: ErrorCode = ErrorCode.NONE
    is_due: bool = False


def end_result(transaction: Transaction | None, request: EndTxnRequest) -> EndResult:
    """Judges the request of a client whose epoch stays the same."""
    if transaction is None or transaction.producer_id != request.producer_id:
        return EndResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        return EndResult(ErrorCode.PRODUCER_FENCED)
    if transaction.state is TransactionState.ONGOING:
        return EndResult(is_due=True)
    return _repeated(transaction, request)


def bumping_end_result(transaction: Transaction | None, request: EndTxnRequest) -> EndResult:
    """Judges the request of a client that gets a new epoch."""
    if transaction is None:
        return EndResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    state = transaction.state
    has_ended = state not in (TransactionState.ONGOING, TransactionState.EMPTY)
    if has_ended and transaction.is_ended_by(request.producer_id, request.producer_epoch):
        if request.committed and state in _ENDS[False]:
            # A producer does not change its mind, so it was the coordinator.
            return EndResult(ErrorCode.CONCURRENT_TRANSACTIONS if state.is_prepared else ErrorCode.PRODUCER_FENCED)
        repeated = _repeated(transaction, request)
        # The coordinator has aborted it at the last epoch that a producer can have. Another id is due, now that there is a
        # producer to go on with it.
        is_due = repeated.error is ErrorCode.NONE and not request.committed and transaction.producer_epoch == EPOCH_MAX
        return EndResult(is_due=True) if is_due else repeated
    if state.is_prepared and transaction.next_producer == (request.producer_id, request.producer_epoch):
        return EndResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.producer_id != request.producer_id:
        return EndResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        return EndResult(ErrorCode.PRODUCER_FENCED)
    if state is TransactionState.ONGOING:
        # Even with the greatest epoch, which only a coordinator of Apache Kafka gives to a producer.
        return EndResult(is_due=True)
    if request.producer_epoch == EPOCH_MAX:
        return EndResult(ErrorCode.PRODUCER_FENCED)
    if not request.committed:
        return EndResult(is_due=True)
    return EndResult(ErrorCode.INVALID_TXN_STATE)


def end_needs_producer_id(transaction: Transaction | None, request: EndTxnRequest) -> bool:
    """Whether the end of this transaction, which raises the epoch, needs a fresh producer id."""
    return transaction is not None and transaction.is_epoch_exhausted and bumping_end_result(transaction, request).is_due


def _repeated(transaction: Transaction, request: EndTxnRequest) -> EndResult:
    prepared, complete = _ENDS[request.committed]
    if transaction.state is prepared:
        return EndResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    return EndResult() if transaction.state is complete else EndResult(ErrorCode.INVALID_TXN_STATE)


# The states of a transaction that is being ended and has been ended, by whether it is committed.
_ENDS = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}
