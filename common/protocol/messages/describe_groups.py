"""DescribeGroups: the state and the members of classic groups (core).

`protocol_data` is the name of the chosen protocol. Up to version 5, a group that does not exist is described as Dead;
version 6 answers GROUP_ID_NOT_FOUND.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import NOT_ASKED
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Struct):
    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = field(default=False, versions="3+")


@struct
class DescribedGroupMember(Struct):
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="4+", ignorable=True)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@struct
class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = field(default=None, versions="6+", ignorable=True)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: Int32 = field(default=NOT_ASKED, versions="3+")


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="1+", ignorable=True)
    groups: list[DescribedGroup] = field(default_factory=list)
