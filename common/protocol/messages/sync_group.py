"""SyncGroup: the leader of a classic group hands in the assignment, and each member fetches its own (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class SyncGroupRequestAssignment(Struct):
    member_id: str = ""
    assignment: bytes = b""


@message(kind=Kind.REQUEST, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupRequest(Struct):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="3+")
    protocol_type: str | None = field(default=None, versions="5+", ignorable=True)
    protocol_name: str | None = field(default=None, versions="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="1+", ignorable=True)
    error_code: Int16 = 0
    protocol_type: str | None = field(default=None, versions="5+", ignorable=True)
    protocol_name: str | None = field(default=None, versions="5+", ignorable=True)
    assignment: bytes = b""
