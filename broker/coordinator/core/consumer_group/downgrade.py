"""How a consumer group becomes a classic group when only classic members are left (core; KIP-848, online migration).

Counterpart of convertToClassicGroup in Kafka's GroupMetadataManager. The group epoch becomes the generation, and the members
are to join again, because what the others had is to be assigned by a leader now. The tombstones of the consumer group and
the record of the classic group are one batch.

That record names no leader, because no leader has assigned anything yet. A coordinator that loads it starts the rebalance
again. Where a classic group has its members' assignments, the record has what each member owns. Kafka writes the target
assignment there, and after a failover no rebalance starts until something else triggers one.
"""

from collections.abc import Collection

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.consumer_group.assignment import Assignment
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember
from broker.coordinator.core.consumer_group.embedded_protocol import encode_assignment
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.group_member import GroupMember
from broker.coordinator.core.turn import Turn


def downgraded(
    turn: Turn, group: ConsumerGroup, topics: TopicsView, *, without: Collection[ConsumerMember]
) -> ClassicGroup | None:
    """Returns the classic group that this group becomes without these members, or None if it stays a consumer group. The
    consumer group is not changed."""
    size = group.size - len(without)
    classic_size = group.classic_size - sum(each.classic is not None for each in without)
    if not 0 < size == classic_size or size > turn.settings.group_max_size or not turn.settings.can_downgrade_groups:
        return None
    leaving = {each.member_id for each in without}
    return ClassicGroup.of_consumers(
        group.group_id,
        group.epoch,
        [_member(each, topics) for each in group.members if each.member_id not in leaving],
        turn.now,
    )


def _member(member: ConsumerMember, topics: TopicsView) -> GroupMember:
    classic = member.classic
    assert classic is not None
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=dict(classic.protocols),
        assignment=encode_assignment(_owned(member), topics, classic.metadata),
    )


def _owned(member: ConsumerMember) -> Assignment:
    topic_ids = member.assigned.keys() | member.pending_revocation.keys()
    return {
        each: member.assigned.get(each, frozenset()) | member.pending_revocation.get(each, frozenset()) for each in topic_ids
    }
