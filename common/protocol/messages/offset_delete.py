"""OffsetDelete: deletes committed offsets of topics to which no member of the group is subscribed (KIP-496) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = 0


@struct
class OffsetDeleteRequestTopic(Struct):
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.OFFSET_DELETE, versions="0", flexible="none")
class OffsetDeleteRequest(Struct):
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


@struct
class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.OFFSET_DELETE, versions="0", flexible="none")
class OffsetDeleteResponse(Struct):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
