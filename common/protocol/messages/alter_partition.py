"""AlterPartition: a leader proposes a new ISR to the controller (KIP-497, KIP-841, KIP-903) (core).

Version 1 adds `leader_recovery_state`; 1 means that the leader is recovering from an unclean election. Version 2 names
topics by id instead of by name. Version 3 replaces `new_isr` with a list that also carries each member's broker epoch. A
sender that does not know the version fills in both. The response repeats what the controller committed.
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
    new_isr: list[Int32] = field(default_factory=list, versions="0-2", ignorable=True)
    new_isr_with_epochs: list[BrokerState] = field(default_factory=list, versions="3+", ignorable=True)
    leader_recovery_state: Int8 = field(default=0, versions="1+")
    partition_epoch: Int32 = 0


@struct
class RequestTopicData(Struct):
    topic_name: str = field(default="", versions="0-1", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="2+", ignorable=True)
    partitions: list[RequestPartitionData] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+")
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
    leader_recovery_state: Int8 = field(default=0, versions="1+", ignorable=True)
    partition_epoch: Int32 = 0


@struct
class ResponseTopicData(Struct):
    topic_name: str = field(default="", versions="0-1", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="2+", ignorable=True)
    partitions: list[ResponsePartitionData] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+")
class AlterPartitionResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = field(default_factory=list)
