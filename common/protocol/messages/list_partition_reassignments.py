"""ListPartitionReassignments: the reassignments that are not completed yet (KIP-455) (core).

A null `topics` asks for all reassignments. In a response, `replicas` includes the replicas that are being added and those
that are being removed.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class ListPartitionReassignmentsTopics(Struct):
    name: str = ""
    partition_indexes: list[Int32] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Struct):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] = field(default_factory=list)
    adding_replicas: list[Int32] = field(default_factory=list)
    removing_replicas: list[Int32] = field(default_factory=list)


@struct
class OngoingTopicReassignment(Struct):
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    topics: list[OngoingTopicReassignment] = field(default_factory=list)
