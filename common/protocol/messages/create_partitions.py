"""CreatePartitions: adds partitions to existing topics (KIP-195) (core).

`count` is the new total number of partitions. `assignments` lists the replicas of each new partition; null lets the
controller choose them.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = field(default_factory=list)


@struct
class CreatePartitionsTopic(Struct):
    name: str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Struct):
    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: Int32 = 0
    validate_only: bool = False


@struct
class CreatePartitionsTopicResult(Struct):
    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None


@message(kind=Kind.RESPONSE, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
