"""AlterPartitionReassignments: starts, changes and cancels moves of replicas to other brokers (KIP-455, KIP-860) (core).

If `replicas` is null, the partition's reassignment is cancelled. From version 1 on, a request can forbid changing the number
of replicas.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


@struct
class ReassignableTopic(Struct):
    name: str = ""
    partitions: list[ReassignablePartition] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Struct):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: bool = field(default=True, versions="1+")
    topics: list[ReassignableTopic] = field(default_factory=list)


@struct
class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


@struct
class ReassignableTopicResponse(Struct):
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Struct):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: bool = field(default=True, versions="1+", ignorable=True)
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[ReassignableTopicResponse] = field(default_factory=list)
