"""Metadata: brokers, and topics with their partitions, leaders and replicas (core).

A request for all topics has an empty list in version 0 and null from version 1 on. From version 1 on, an empty list asks for
no topics. From version 10 on a topic may be requested by id, with a null name. `offline_replicas` (version 5) shows clients
that a directory has failed. Version 13 has an error of the whole answer (KIP-1102), with which a broker could send its
clients back to their bootstrap servers.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
    name: str | None = field(default="", nullable="10+")


@message(kind=Kind.REQUEST, api_key=ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataRequest(Struct):
    topics: list[MetadataRequestTopic] | None = field(default_factory=list, nullable="1+")
    allow_auto_topic_creation: bool = field(default=True, versions="4+")
    include_cluster_authorized_operations: bool = field(default=False, versions="8-10")
    include_topic_authorized_operations: bool = field(default=False, versions="8+")


@struct
class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = field(default=None, versions="1+", ignorable=True)


@struct
class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = field(default=-1, versions="7+", ignorable=True)
    replica_nodes: list[Int32] = field(default_factory=list)
    isr_nodes: list[Int32] = field(default_factory=list)
    offline_replicas: list[Int32] = field(default_factory=list, versions="5+", ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: str | None = field(default="", nullable="12+")
    topic_id: Uuid = field(default=ZERO_UUID, versions="10+", ignorable=True)
    is_internal: bool = field(default=False, versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Int32 = field(default=-0x80000000, versions="8+")


@message(kind=Kind.RESPONSE, api_key=ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = field(default=None, versions="2+", ignorable=True)
    controller_id: Int32 = field(default=-1, versions="1+", ignorable=True)
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: Int32 = field(default=-0x80000000, versions="8-10")
    error_code: Int16 = field(default=0, versions="13+", ignorable=True)
