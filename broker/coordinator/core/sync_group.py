"""SyncGroup and Heartbeat for classic groups (core)."""

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.membership import generation_error
from broker.coordinator.core.rebalance import current_assignment, expect_no_sync, hand_out_assignment, restart_session
from broker.coordinator.core.result import Waiter
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync_group(turn: Turn, group: ClassicGroup, waiter: Waiter, request: SyncGroupRequest) -> None:
    """Answers the member with its assignment, when the leader has handed it in."""
    error = _sync_error(group, request)
    member = group.member(request.member_id)
    if error is not None or member is None:
        turn.answer(waiter, SyncGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID))
        return
    expect_no_sync(turn, group, member)
    if group.state is GroupState.STABLE:
        turn.answer(waiter, current_assignment(group, member))
        return
    if member.sync_waiter is not None:
        # The client has lost patience with that request and sent this one instead.
        turn.answer(member.sync_waiter, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_waiter = waiter
    if group.is_leader(member):
        hand_out_assignment(turn, group, {each.member_id: each.assignment for each in request.assignments})


def heartbeat(turn: Turn, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    """Keeps the member alive and returns what it must know."""
    error = generation_error(group, request.member_id, request.group_instance_id, request.generation_id)
    member = group.member(request.member_id)
    if error is not None or member is None:
        return error or ErrorCode.UNKNOWN_MEMBER_ID
    restart_session(turn, group, member)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode | None:
    error = generation_error(group, request.member_id, request.group_instance_id, request.generation_id)
    if error is not None:
        return error
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else None
