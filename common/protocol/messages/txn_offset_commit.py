"""TxnOffsetCommit: a producer commits a group's offsets as part of its transaction (KIP-98, KIP-447) (core).

Version 5 adds the partition of the group's offsets to the transaction by itself (KIP-890, transaction.version 2). From
version 6 on, topics have their id instead of their name (KIP-1319).
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Kind, Struct, Uuid, field, message, struct


@struct
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(default=-1, versions="2+", ignorable=True)
    committed_metadata: str | None = ""


@struct
class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(default="", versions="0-5", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest(Struct):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Int32 = field(default=-1, versions="3+")
    member_id: str = field(default="", versions="3+")
    group_instance_id: str | None = field(default=None, versions="3+")
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


@struct
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(default="", versions="0-5", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse(Struct):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
