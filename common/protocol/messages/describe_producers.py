"""DescribeProducers: what a replica knows about the producers of a partition (KIP-664) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct


@struct
class TopicRequest(Struct):
    name: str = ""
    partition_indexes: list[Int32] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersRequest(Struct):
    topics: list[TopicRequest] = field(default_factory=list)


@struct
class ProducerState(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = field(default_factory=list)


@struct
class TopicResponse(Struct):
    name: str = ""
    partitions: list[PartitionResponse] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersResponse(Struct):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = field(default_factory=list)
