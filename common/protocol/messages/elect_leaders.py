"""ElectLeaders: elects preferred leaders or, from version 1 on, leaders for leaderless partitions (KIP-183, KIP-460) (core).

A null `topic_partitions` means all partitions. Version 0 has no top-level error code, so if a request fails as a whole, the
response carries the error in every partition as well.
"""

from enum import IntEnum

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@struct
class TopicPartitions(Struct):
    topic: str = ""
    partitions: list[Int32] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersRequest(Struct):
    election_type: Int8 = field(default=0, versions="1+")
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: Int32 = 60000


@struct
class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


@struct
class ReplicaElectionResult(Struct):
    topic: str = ""
    partition_result: list[PartitionResult] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, versions="1+", ignorable=True)
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
