"""OffsetForLeaderEpoch: the end offset of a leader epoch, for truncation (KIP-101, KIP-320) (core).

`leader_epoch` in the response is the largest epoch at or below the requested one. A consumer sends replica id -2, the
default, so that it is never taken for broker 0.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct


@struct
class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


@struct
class OffsetForLeaderTopic(Struct):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Struct):
    replica_id: Int32 = field(default=-2, versions="3+", ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


@struct
class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult(Struct):
    topic: str = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Struct):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
