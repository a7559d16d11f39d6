"""ConsumerGroupDescribe (core)."""

from broker.coordinator.core.consumer_group.assignment import Assignment, union
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup, ConsumerGroupState
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember
from broker.coordinator.core.consumer_group.target_assignment import preferred_assignor
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode, cut_message
from common.protocol.messages.consumer_group_describe import (
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)

# The type of a member says which protocol it speaks.
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe_consumer_group(turn: Turn, group: ConsumerGroup, topics: TopicsView) -> DescribedConsumerGroup:
    """Describes the group with what its members own and what they are to own. As in Kafka since 4.3, a member still owns
    what it has not confirmed as revoked. Topics that are gone are left out."""
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(turn, group.members),
        members=[_member(group, member, topics) for member in group.members],
    )


def describe_missing_consumer_group(group_id: str, *, is_classic: bool) -> DescribedConsumerGroup:
    """Describes a group that does not exist, or that is described by DescribeGroups."""
    text = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
    return DescribedConsumerGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=cut_message(text),
        group_id=group_id,
        group_state=ConsumerGroupState.DEAD.value,
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> DescribedConsumer:
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        assignment=_assignment(union(member.assigned, member.pending_revocation), topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(assignment: Assignment, topics: TopicsView) -> DescribedAssignment:
    named = sorted(
        (topics.topics[topic_id].name, topic_id, sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in topics.topics
    )
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=partitions)
            for name, topic_id, partitions in named
        ]
    )
