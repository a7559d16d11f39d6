"""OffsetCommit: a consumer stores its position in each partition (core).

A consumer without a group membership sends generation -1 and an empty member id. From version 10 on, topics have their id
instead of their name.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Kind, Struct, Uuid, field, message, struct


@struct
class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(default=-1, versions="6+", ignorable=True)
    committed_metadata: str | None = ""


@struct
class OffsetCommitRequestTopic(Struct):
    name: str = field(default="", versions="2-9", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitRequest(Struct):
    group_id: str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="7+")
    retention_time_ms: Int64 = field(default=-1, versions="2-4", ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


@struct
class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetCommitResponseTopic(Struct):
    name: str = field(default="", versions="2-9", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
