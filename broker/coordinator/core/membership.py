"""Whether the sender of a request is the member that it says it is (core)."""

from broker.coordinator.core.classic_group import ClassicGroup
from common.protocol.errors import ErrorCode


def membership_error(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
    """Returns why this is no member: it is unknown, or a static member that another client has replaced."""
    if group_instance_id is not None:
        static_member = group.static_member(group_instance_id)
        if static_member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static_member.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if group.member(member_id) is not None else ErrorCode.UNKNOWN_MEMBER_ID


def generation_error(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode | None:
    """Returns why the request does not come from a member of the current generation."""
    error = membership_error(group, member_id, group_instance_id)
    if error is None and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error
