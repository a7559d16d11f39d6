"""ListConfigResources: the names of everything that has a configuration (KIP-1142) (core).

Version 0 is ListClientMetricsResources (KIP-714): it asks for, and its response can name, client metrics resources only. In
version 1 an empty list of types asks for all.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct

CLIENT_METRICS = 16


@message(kind=Kind.REQUEST, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Struct):
    resource_types: list[Int8] = field(default_factory=list, versions="1+")


@struct
class ConfigResource(Struct):
    resource_name: str = ""
    resource_type: Int8 = field(default=CLIENT_METRICS, versions="1+", ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = field(default_factory=list)
