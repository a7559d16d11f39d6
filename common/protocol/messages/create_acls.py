"""CreateAcls: adds ACLs, each with a result of its own (KIP-140, KIP-290) (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.messages.describe_acls import LITERAL
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


@struct
class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = LITERAL
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(kind=Kind.REQUEST, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsRequest(Struct):
    creations: list[AclCreation] = field(default_factory=list)


@struct
class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""


@message(kind=Kind.RESPONSE, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = field(default_factory=list)
