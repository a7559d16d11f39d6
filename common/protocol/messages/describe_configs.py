"""DescribeConfigs: the configuration of topics and brokers, and the source of each value (core).

A null `configuration_keys` asks for all keys of the resource. The value of a sensitive key is always null.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


@struct
class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Struct):
    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = field(default=False, versions="3+")


@struct
class DescribeConfigsSynonym(Struct):
    name: str = ""
    value: str | None = None
    source: Int8 = 0


@struct
class DescribeConfigsResourceResult(Struct):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: Int8 = field(default=0, versions="3+", ignorable=True)
    documentation: str | None = field(default=None, versions="3+", ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)
