"""CreateTopics (core).

A topic's layout is given either by `assignments` or by `num_partitions` and `replication_factor`; from version 4 on, -1
means the broker's default (KIP-464). The config error code is the only tagged field of the response.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


@struct
class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = field(default_factory=list)


@struct
class CreatableTopicConfig(Struct):
    name: str = ""
    value: str | None = None


@struct
class CreatableTopic(Struct):
    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsRequest(Struct):
    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: Int32 = 60000
    validate_only: bool = False


@struct
class CreatableTopicConfigs(Struct):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


@struct
class CreatableTopicResult(Struct):
    name: str = ""
    topic_id: Uuid = field(default=ZERO_UUID, versions="7+", ignorable=True)
    error_code: Int16 = 0
    error_message: str | None = None
    topic_config_error_code: Int16 = field(default=0, versions="5+", tag=0, ignorable=True)
    num_partitions: Int32 = field(default=-1, versions="5+", ignorable=True)
    replication_factor: Int16 = field(default=-1, versions="5+", ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list, versions="5+", ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsResponse(Struct):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)
