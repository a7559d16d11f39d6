"""Who may commit and read the offsets of a consumer group (core)."""

from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_commit import OffsetCommitRequest


def consumer_commit_error(
    group: ConsumerGroup, request: OffsetCommitRequest, *, knows_member_epochs: bool
) -> ErrorCode | None:
    """Returns why the sender may not commit. A sender that is not a member may commit while the group is empty."""
    if request.generation_id_or_member_epoch < 0 and group.is_empty:
        return None
    member = group.member(request.member_id)
    if member is not None and member.classic is None and not knows_member_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    return member_epoch_error(group, request.member_id, request.generation_id_or_member_epoch)


def member_epoch_error(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode | None:
    """Returns why this is no member in its current epoch."""
    member = group.member(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.epoch == epoch:
        return None
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
