"""DescribeTransactions: the state of transactional ids at their coordinator (KIP-664) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsRequest(Struct):
    transactional_ids: list[str] = field(default_factory=list)


@struct
class TopicData(Struct):
    topic: str = ""
    partitions: list[Int32] = field(default_factory=list)


@struct
class TransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsResponse(Struct):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = field(default_factory=list)
