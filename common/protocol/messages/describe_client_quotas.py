"""DescribeClientQuotas: the quotas of users, clients and addresses that match a filter (KIP-546) (core)."""

from enum import IntEnum

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Float64, Int8, Int16, Int32, Kind, Struct, field, message, struct


class QuotaMatch(IntEnum):
    """The values of `match_type`: this name, the default entity of the type, or any entity of the type."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


@struct
class ComponentData(Struct):
    entity_type: str = ""
    match_type: Int8 = 0
    match: str | None = ""


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Struct):
    components: list[ComponentData] = field(default_factory=list)
    strict: bool = False


@struct
class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


@struct
class ValueData(Struct):
    key: str = ""
    value: Float64 = 0.0


@struct
class EntryData(Struct):
    entity: list[EntityData] = field(default_factory=list)
    values: list[ValueData] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = field(default_factory=list)
