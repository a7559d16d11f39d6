"""AddPartitionsToTxn and AddOffsetsToTxn: which producer may add to its transaction (core)."""

from collections.abc import Callable

from broker.coordinator.core.transactions.transaction import EPOCH_MAX, Transaction, TransactionPartition
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)


def add_error(transaction: Transaction | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Returns why the producer may not add to its transaction, or not yet."""
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.state.is_prepared and transaction.next_producer == (producer_id, producer_epoch):
        # It may have another producer id already, which the transaction gets only when it is complete.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # No producer was given the last epoch. A transaction with it could not be fenced any more.
    if transaction.producer_epoch != producer_epoch or producer_epoch == EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def partition_results(
    asked: AddPartitionsToTxnTransaction, result: Callable[[TransactionPartition], ErrorCode]
) -> AddPartitionsToTxnResult:
    """Returns the result of each partition."""
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=result((topic.name, index))
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )
