"""DeleteGroups: deletes empty groups with their committed offsets (core). Version 3 says why a group was not deleted."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+")
class DeleteGroupsRequest(Struct):
    groups_names: list[str] = field(default_factory=list)


@struct
class DeletableGroupResult(Struct):
    group_id: str = ""
    error_code: Int16 = 0
    error_message: str | None = field(default=None, versions="3+", ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+")
class DeleteGroupsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = field(default_factory=list)
