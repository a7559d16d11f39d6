"""AlterReplicaLogDirs: moves replicas between the log directories of a broker (KIP-113) (core).

Directories are identified by path, as in DescribeLogDirs. The response has no top-level error code: an error that concerns
the whole request is repeated for each partition.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class AlterReplicaLogDirTopic(Struct):
    name: str = ""
    partitions: list[Int32] = field(default_factory=list)


@struct
class AlterReplicaLogDir(Struct):
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Struct):
    dirs: list[AlterReplicaLogDir] = field(default_factory=list)


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
