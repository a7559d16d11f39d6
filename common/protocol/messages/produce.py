"""Produce: a client appends record batches to partitions (core).

Records pass through as bytes: decoding returns a view of the received frame. With `acks` 0 no response is sent. Versions
below 3 carry the old message formats and are not declared, although the API is advertised from 0 for librdkafka (see
`registry`). `current_leader` and `node_endpoints` (KIP-951) save the client a Metadata request after a leader change.
Version 12 looks like 11, but the leader adds its partitions to the producer's transaction (KIP-890). Version 13 replaced the
names of topics with their ids (KIP-516).
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Records, Struct, field, message, struct


@struct
class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records | None = None


@struct
class TopicProduceData(Struct):
    name: str = field(default="", versions="3-12", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceRequest(Struct):
    transactional_id: str | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)


@struct
class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


@struct
class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = field(default=-1, versions="5+", ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list, versions="8+", ignorable=True)
    error_message: str | None = field(default=None, versions="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch, versions="10+", tag=0, ignorable=True)


@struct
class TopicProduceResponse(Struct):
    name: str = field(default="", versions="3-12", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)


@struct
class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


@message(kind=Kind.RESPONSE, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceResponse(Struct):
    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, versions="10+", tag=0, ignorable=True)
