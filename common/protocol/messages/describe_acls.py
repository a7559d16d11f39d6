"""DescribeAcls: the ACLs that match a filter (KIP-140, KIP-290) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct

# Kafka's PatternType.LITERAL.
LITERAL = 3


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsRequest(Struct):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = LITERAL
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class AclDescription(Struct):
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DescribeAclsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = LITERAL
    acls: list[AclDescription] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = field(default_factory=list)
