"""DeleteAcls: removes the ACLs that match any of the filters (KIP-140, KIP-290) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.messages.describe_acls import LITERAL
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = LITERAL
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(kind=Kind.REQUEST, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsRequest(Struct):
    filters: list[DeleteAclsFilter] = field(default_factory=list)


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = LITERAL
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsResponse(Struct):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)
