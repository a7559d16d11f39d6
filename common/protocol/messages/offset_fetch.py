"""OffsetFetch: the committed offsets of a group, or of several groups from version 8 on (KIP-709) (core).

A null `topics` (from version 2 on) asks for all topics that have a committed offset. A partition without one is answered
with offset -1. From version 10 on, topics have their id instead of their name.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Kind, Struct, Uuid, field, message, struct


@struct
class OffsetFetchRequestTopic(Struct):
    name: str = ""
    partition_indexes: list[Int32] = field(default_factory=list)


@struct
class OffsetFetchRequestTopics(Struct):
    name: str = field(default="", versions="8-9", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
    partition_indexes: list[Int32] = field(default_factory=list)


@struct
class OffsetFetchRequestGroup(Struct):
    group_id: str = ""
    member_id: str | None = field(default=None, versions="9+", ignorable=True)
    member_epoch: Int32 = field(default=-1, versions="9+", ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchRequest(Struct):
    group_id: str = field(default="", versions="1-7")
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list, versions="1-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list, versions="8+")
    require_stable: bool = field(default=False, versions="7+")


@struct
class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(default=-1, versions="5-7", ignorable=True)
    metadata: str | None = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)


@struct
class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(default=-1, ignorable=True)
    metadata: str | None = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopics(Struct):
    name: str = field(default="", versions="8-9", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)


@struct
class OffsetFetchResponseGroup(Struct):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: Int16 = 0


@message(kind=Kind.RESPONSE, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list, versions="1-7")
    error_code: Int16 = field(default=0, versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list, versions="8+")
