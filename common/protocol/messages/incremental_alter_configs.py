"""IncrementalAlterConfigs: changes single keys of the dynamic configuration of topics and brokers (core; KIP-339).

A key that the request leaves out keeps its value. For each key in the request, the operation sets or deletes the value, or
adds elements to a list or removes them from it.
"""

from enum import IntEnum

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


class ConfigOperation(IntEnum):
    """The values of `config_operation`, Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@struct
class AlterableConfig(Struct):
    name: str = ""
    config_operation: Int8 = 0
    value: str | None = None


@struct
class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Struct):
    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""


@message(kind=Kind.RESPONSE, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse(Struct):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
