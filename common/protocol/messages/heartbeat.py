"""Heartbeat: keeps a member of a classic group alive and reports a rebalance to it (core)."""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message


@message(kind=Kind.REQUEST, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest(Struct):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="3+")


@message(kind=Kind.RESPONSE, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatResponse(Struct):
    throttle_time_ms: Int32 = field(default=0, versions="1+", ignorable=True)
    error_code: Int16 = 0
