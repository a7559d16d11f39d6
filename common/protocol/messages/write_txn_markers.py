"""WriteTxnMarkers: a transaction coordinator ends transactions in the partitions of one leader (core, KIP-98).

Brokers send it to each other. Version 0 was removed in Kafka 4.0. Version 2 names the version of the transaction, so that a
leader knows whether its epoch was raised at the end (KIP-1228).
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Bool, Int8, Int16, Int32, Int64, Kind, String, Struct, field, message, struct


@struct
class WritableTxnMarkerTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = field(default_factory=list)


@struct
class WritableTxnMarker(Struct):
    """`transaction_result` is true for COMMIT. `transaction_version` is 2 if the coordinator has raised the epoch."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = field(default=0, versions="2+", ignorable=True)


@message(kind=Kind.REQUEST, api_key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Struct):
    markers: list[WritableTxnMarker] = field(default_factory=list)


@struct
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult(Struct):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)


@struct
class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse(Struct):
    markers: list[WritableTxnMarkerResult] = field(default_factory=list)
