"""LeaveGroup for classic groups (core)."""

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.membership import membership_error
from broker.coordinator.core.rebalance import maybe_complete_join, rebalance_or_complete_join, remove_member
from broker.coordinator.core.turn import SESSION, Turn
from common.protocol.errors import ErrorCode
from common.protocol.messages.leave_group import MemberIdentity, MemberResponse


def leave_group(turn: Turn, group: ClassicGroup, leaving: list[MemberIdentity]) -> list[MemberResponse]:
    """Removes the members that can be found, and returns how each fared. One rebalance follows for all of them."""
    size_before = group.size
    responses = [
        MemberResponse(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=_leave(turn, group, each),
        )
        for each in leaving
    ]
    if group.size < size_before:
        rebalance_or_complete_join(turn, group)
    else:
        # A pending member may have been the last one for whom the others waited.
        maybe_complete_join(turn, group)
    return responses


def _leave(turn: Turn, group: ClassicGroup, leaving: MemberIdentity) -> ErrorCode:
    if leaving.member_id in group.pending_members:
        group.pending_members.remove(leaving.member_id)
        turn.cancel_timer((SESSION, group.group_id, leaving.member_id))
        return ErrorCode.NONE
    if not leaving.member_id:
        # An administrator removes a static member by its name alone.
        member = group.static_member(leaving.group_instance_id)
    else:
        error = membership_error(group, leaving.member_id, leaving.group_instance_id)
        if error is not None:
            return error
        member = group.member(leaving.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    remove_member(turn, group, member)
    return ErrorCode.NONE
