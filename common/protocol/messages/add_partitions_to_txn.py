"""AddPartitionsToTxn: a producer adds partitions to its transaction (KIP-98) (core).

From version 4 on brokers use it too, to verify that a partition is in a transaction (KIP-890). These versions hold several
transactions; clients stay at version 3. Version 5 knows TRANSACTION_ABORTABLE.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct


@struct
class AddPartitionsToTxnTopic(Struct):
    name: str = ""
    partitions: list[Int32] = field(default_factory=list)


@struct
class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Struct):
    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list, versions="4+")
    v3_and_below_transactional_id: str = field(default="", versions="0-3")
    v3_and_below_producer_id: Int64 = field(default=0, versions="0-3")
    v3_and_below_producer_epoch: Int16 = field(default=0, versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list, versions="0-3")


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


@struct
class AddPartitionsToTxnTopicResult(Struct):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


@struct
class AddPartitionsToTxnResult(Struct):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list, versions="4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list, versions="0-3")
