"""ListGroups: the groups that this broker coordinates, filtered by state (KIP-518) and type (KIP-848) (core).

An empty filter lets everything through.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsRequest(Struct):
    states_filter: list[str] = field(default_factory=list, versions="4+")
    types_filter: list[str] = field(default_factory=list, versions="5+")


@struct
class ListedGroup(Struct):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = field(default="", versions="4+", ignorable=True)
    group_type: str = field(default="", versions="5+", ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="1+", ignorable=True)
    error_code: Int16 = 0
    groups: list[ListedGroup] = field(default_factory=list)
