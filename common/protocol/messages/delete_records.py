"""DeleteRecords: raises the start of partitions, so that older records can no longer be read (KIP-107) (core).

`low_watermark` in the response is the start of the log on the in-sync replica that is furthest behind. Offset -1 in the
request means the high watermark.
"""

from typing import Final

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct

TO_HIGH_WATERMARK: Final = -1


@struct
class DeleteRecordsPartition(Struct):
    partition_index: Int32 = 0
    offset: Int64 = 0


@struct
class DeleteRecordsTopic(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Struct):
    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: Int32 = 0


@struct
class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Struct):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
