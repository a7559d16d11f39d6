"""Who may commit and read the offsets of a consumer group (core).

A member may commit in its epoch. In an earlier one it may commit the partitions that it has had without a break since then
(KIP-1251): a rebalance that leaves it a partition does not lose the position that it has just sent.
"""

from collections.abc import Sequence

from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember
from common.ids import TopicId
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from common.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic


def consumer_commit_error(
    group: ConsumerGroup, request: OffsetCommitRequest, *, knows_member_epochs: bool
) -> ErrorCode | None:
    """Returns why the sender may not commit. A sender that is not a member may commit while the group is empty."""
    if request.generation_id_or_member_epoch < 0 and group.is_empty:
        return None
    member = group.member(request.member_id)
    if member is not None and member.classic is None and not knows_member_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    return member_commit_error(group, request.member_id, request.generation_id_or_member_epoch, request.topics)


def member_commit_error(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
) -> ErrorCode | None:
    """Returns why this is no member that may commit these partitions in this epoch. One that it may not commit refuses the
    request, as in Kafka."""
    member = group.member(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.epoch == epoch:
        return None
    has_kept_all = epoch < member.epoch and all(
        member.may_commit(epoch, TopicId(topic.topic_id), each.partition_index)
        for topic in topics
        for each in topic.partitions
    )
    return None if has_kept_all else _epoch_error(member)


def member_epoch_error(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode | None:
    """Returns why this is no member in its current epoch."""
    member = group.member(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return None if member.epoch == epoch else _epoch_error(member)


def _epoch_error(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
