"""AlterConfigs: replaces the whole dynamic configuration of topics and brokers (core).

A key that the request leaves out goes back to its default. Two clients that read, change and write the same resource
therefore undo each other's changes, which is why KIP-339 replaced this API by IncrementalAlterConfigs.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


@struct
class AlterableConfig(Struct):
    name: str = ""
    value: str | None = None


@struct
class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsRequest(Struct):
    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""


@message(kind=Kind.RESPONSE, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")
class AlterConfigsResponse(Struct):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
