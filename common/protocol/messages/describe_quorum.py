"""DescribeQuorum: leader, voters and observers of the metadata log (KIP-595, KIP-836, KIP-853) (core).

`replica_directory_id` is a plain uuid, zero if unknown; it is not an assigned directory id.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, UInt16, field, message, struct


@struct
class RequestPartitionData(Struct):
    partition_index: Int32 = 0


@struct
class RequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[RequestPartitionData] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Struct):
    topics: list[RequestTopicData] = field(default_factory=list)


@struct
class ReplicaState(Struct):
    replica_id: Int32 = 0
    replica_directory_id: Uuid = field(default=ZERO_UUID, versions="2+", ignorable=True)
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = field(default=-1, versions="1+", ignorable=True)
    last_caught_up_timestamp: Int64 = field(default=-1, versions="1+", ignorable=True)


@struct
class ResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = field(default=None, versions="2+", ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = field(default_factory=list)
    observers: list[ReplicaState] = field(default_factory=list)


@struct
class ResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[ResponsePartitionData] = field(default_factory=list)


@struct
class Listener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


@struct
class Node(Struct):
    node_id: Int32 = 0
    listeners: list[Listener] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = field(default=None, versions="2+", ignorable=True)
    topics: list[ResponseTopicData] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list, versions="2+", ignorable=True)
