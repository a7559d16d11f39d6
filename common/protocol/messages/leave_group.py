"""LeaveGroup: members leave a group (core).

From version 3 on, one request may remove several members, each by its id or, for a static member, by its instance id alone
(KIP-345); the answer then has an error for each.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class MemberIdentity(Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = field(default=None, versions="5+", ignorable=True)


@message(kind=Kind.REQUEST, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest(Struct):
    group_id: str = ""
    member_id: str = field(default="", versions="0-2")
    members: list[MemberIdentity] = field(default_factory=list, versions="3+")


@struct
class MemberResponse(Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    error_code: Int16 = 0


@message(kind=Kind.RESPONSE, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="1+", ignorable=True)
    error_code: Int16 = 0
    members: list[MemberResponse] = field(default_factory=list, versions="3+")
