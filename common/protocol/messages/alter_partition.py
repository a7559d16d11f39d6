"""AlterPartition: a leader proposes a new ISR to the controller (KIP-497, KIP-841, KIP-903) (core).

Version 3 replaces `new_isr` with a list that also carries each member's broker epoch. `leader_recovery_state` 1 means that
the leader is recovering from an unclean election. The response repeats what the controller committed.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Int64, Kind, Struct, field, message, struct


@struct
class BrokerState(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


@struct
class RequestPartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: list[Int32] = field(default_factory=list, versions="2")
    new_isr_with_epochs: list[BrokerState] = field(default_factory=list, versions="3+")
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


@struct
class RequestTopicData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[RequestPartitionData] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="2+")
class AlterPartitionRequest(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[RequestTopicData] = field(default_factory=list)


@struct
class ResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = field(default_factory=list)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


@struct
class ResponseTopicData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[ResponsePartitionData] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="2+")
class AlterPartitionResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = field(default_factory=list)
