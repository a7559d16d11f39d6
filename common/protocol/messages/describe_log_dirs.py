"""DescribeLogDirs: what each log directory of a broker holds (KIP-113) (core).

Directories are identified by path; this is one of the few messages without directory ids. A null `topics` asks for all
topics; in version 0 an empty list does as well, as KIP-113 has it. Apache Kafka 4 has removed version 0, whose bytes are
those of version 1. File system sizes (KIP-827) are -1 if unknown. Version 5 says which directories are cordoned (KIP-1066).
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct


@struct
class DescribableLogDirTopic(Struct):
    topic: str = ""
    partitions: list[Int32] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+")
class DescribeLogDirsRequest(Struct):
    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)


@struct
class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False


@struct
class DescribeLogDirsTopic(Struct):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


@struct
class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: Int64 = field(default=-1, versions="4+", ignorable=True)
    usable_bytes: Int64 = field(default=-1, versions="4+", ignorable=True)
    is_cordoned: bool = field(default=False, versions="5+", ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+")
class DescribeLogDirsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(default_factory=list)
