"""ListOffsets: finds the first offset at or after a timestamp, or a special point of the log (core).

If there is no record at or after the timestamp, the response has offset -1 and timestamp -1 without an error.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Int64, Kind, Struct, field, message, struct

# Special values of the request's replica id. The second asks any replica for what it has itself.
CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
# The values of the request's timestamp that ask for a special point of the log.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


@struct
class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Int32 = field(default=-1, versions="4+", ignorable=True)
    timestamp: Int64 = 0


@struct
class ListOffsetsTopic(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsRequest(Struct):
    replica_id: Int32 = 0
    isolation_level: Int8 = field(default=0, versions="2+")
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=0, versions="10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = field(default=-1, versions="4+", ignorable=True)


@struct
class ListOffsetsTopicResponse(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
