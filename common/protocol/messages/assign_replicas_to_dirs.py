"""AssignReplicasToDirs: a broker reports to the controller which directory holds which replica (KIP-858) (core).

The directory ids in request and response are assigned directory ids: LOST and the other two reserved ids may appear, in the
cluster's numbering. Topics are identified by id only.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import AssignedDirectoryId, Int16, Int32, Int64, Kind, Struct, field, message, struct


@struct
class RequestPartitionData(Struct):
    partition_index: Int32 = 0


@struct
class RequestTopicData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[RequestPartitionData] = field(default_factory=list)


@struct
class RequestDirectoryData(Struct):
    id: AssignedDirectoryId = ZERO_UUID
    topics: list[RequestTopicData] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+")
class AssignReplicasToDirsRequest(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: list[RequestDirectoryData] = field(default_factory=list)


@struct
class ResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class ResponseTopicData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[ResponsePartitionData] = field(default_factory=list)


@struct
class ResponseDirectoryData(Struct):
    id: AssignedDirectoryId = ZERO_UUID
    topics: list[ResponseTopicData] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+")
class AssignReplicasToDirsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[ResponseDirectoryData] = field(default_factory=list)
