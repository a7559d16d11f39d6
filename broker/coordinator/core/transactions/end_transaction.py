"""EndTxn: whether a producer may end its transaction (core).

A repeated request gets the answer that the first one got, if the outcome is the same: CONCURRENT_TRANSACTIONS while markers
are being written, then success.
"""

from dataclasses import dataclass

from broker.coordinator.core.transactions.state import TransactionState
from broker.coordinator.core.transactions.transaction import Transaction
from common.protocol.errors import ErrorCode
from common.protocol.messages.end_txn import EndTxnRequest


@dataclass(frozen=True, slots=True)
class EndResult:
    """The answer to the request, and whether the transaction is to be ended now."""

    error: ErrorCode = ErrorCode.NONE
    is_due: bool = False


def end_result(transaction: Transaction | None, request: EndTxnRequest) -> EndResult:
    """Judges the request of a client."""
    if transaction is None or transaction.producer_id != request.producer_id:
        return EndResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        return EndResult(ErrorCode.PRODUCER_FENCED)
    prepared, complete = _ENDS[request.committed]
    if transaction.state is TransactionState.ONGOING:
        return EndResult(is_due=True)
    if transaction.state is prepared:
        return EndResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    return EndResult() if transaction.state is complete else EndResult(ErrorCode.INVALID_TXN_STATE)


# The states of a transaction that is being ended and has been ended, by whether it is committed.
_ENDS = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}
