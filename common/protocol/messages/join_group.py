"""JoinGroup: a member joins or rejoins a classic group and learns the generation (core).

The answer waits until the rebalance completes. From version 4 on, a member without an id is first given one with
MEMBER_ID_REQUIRED (KIP-394); version 5 has static members (KIP-345); version 9 tells a returning static leader that it must
not assign (KIP-814). Without a rebalance timeout (version 0) the session timeout serves as one.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class JoinGroupRequestProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


@message(kind=Kind.REQUEST, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest(Struct):
    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = field(default=-1, versions="1+", ignorable=True)
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="5+")
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = field(default=None, versions="8+", ignorable=True)


@struct
class JoinGroupResponseMember(Struct):
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="5+", ignorable=True)
    metadata: bytes = b""


@message(kind=Kind.RESPONSE, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="2+", ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: str | None = field(default=None, versions="7+", ignorable=True)
    protocol_name: str | None = field(default="", nullable="7+")
    leader: str = ""
    skip_assignment: bool = field(default=False, versions="9+")
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
