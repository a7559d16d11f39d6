"""How a classic group of consumers becomes a consumer group while it has members (core; KIP-848, online migration).

Counterpart of convertToConsumerGroup in Kafka's GroupMetadataManager. It happens when a member joins by a
ConsumerGroupHeartbeat. The members keep their ids, and their generation becomes their epoch. The tombstone of the classic
group and the records of the consumer group are one batch, so the log never shows half a group.

A member of the new group owns what the leader has assigned to it and what it has said to own when it last joined: during a
rebalance, a cooperative consumer goes on reading what it is about to give up. Kafka takes only the assignment, so there a
partition can have two readers for a moment. What the member has given up by now is free once it has joined again.
"""

from collections.abc import Iterable
from dataclasses import replace

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.consumer_group.assignment import NOTHING, Assignment, epochs_of
from broker.coordinator.core.consumer_group.consumer_group import NO_TOPICS_HASH, UNKNOWN_TIME, ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import ClassicMembership, ConsumerMember
from broker.coordinator.core.consumer_group.embedded_protocol import (
    has_user_data,
    partitions_by_id,
    read_assignment,
    read_subscription,
)
from broker.coordinator.core.consumer_group.group_log import (
    write_assignment,
    write_epoch,
    write_member,
    write_target,
    write_target_epoch,
)
from broker.coordinator.core.consumer_group.refusal import Refused
from broker.coordinator.core.consumer_group.topic_subscribers import TopicSubscribers
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.group_member import GroupMember
from broker.coordinator.core.result import CoordinatorRecord
from broker.coordinator.core.turn import Turn
from common.ids import TopicId
from common.protocol.errors import ErrorCode, ProtocolError
from common.records.group_records import GroupMetadataKey, encode_key


def upgraded(
    turn: Turn, classic: ClassicGroup, topics: TopicsView, subscribers: TopicSubscribers
) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
    """Returns the consumer group that this group becomes, and the records of the change. Raises Refused if it cannot become
    one. The classic group is not changed."""
    _validate_upgrade(turn, classic)
    try:
        if any(has_user_data(each.assignment) for each in classic.members):
            raise _refused(classic, "its assignor gives the members data of its own, which would be lost")
        members = _members(classic, topics)
    except ProtocolError as error:
        raise _refused(classic, f"the metadata of a member is not a consumer's: {error}") from error
    group = ConsumerGroup(classic.group_id, subscribers)
    # The records are made as if for batches of any size, because they must not be split.
    unlimited = Turn(turn.now, replace(turn.settings, batch_bytes_max=2**62), turn.config_of)
    for member in members:
        write_member(unlimited, group, member)
    # A group whose first rebalance is under way has no generation yet.
    epoch = max(classic.generation, group.epoch)
    write_epoch(unlimited, group, epoch, NO_TOPICS_HASH)
    for member in members:
        write_target(unlimited, group, member.member_id, member.assigned)
    write_target_epoch(unlimited, group, epoch, UNKNOWN_TIME)
    for member in members:
        write_assignment(unlimited, group, member)
    tombstone = CoordinatorRecord(encode_key(GroupMetadataKey(group=classic.group_id)), None)
    records = [tombstone, *unlimited.step.records]
    if not turn.fits_one_batch(records):
        group.forget_subscriptions()
        raise _refused(classic, "its records do not fit into one batch")
    return group, records


def _validate_upgrade(turn: Turn, classic: ClassicGroup) -> None:
    if not classic.uses_consumer_protocol:
        raise _refused(classic, f"its members are no consumers, but of type {classic.protocol_type}")
    if not turn.settings.can_upgrade_groups:
        raise _refused(classic, "group.consumer.migration.policy does not allow it")
    if classic.size > turn.settings.group_consumer_max_size:
        raise _refused(classic, "it has more members than group.consumer.max.size")


def _refused(classic: ClassicGroup, reason: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {classic.group_id} is not a consumer group and cannot become one while it has members: {reason}.",
    )


def _members(classic: ClassicGroup, topics: TopicsView) -> list[ConsumerMember]:
    members = list(classic.members)
    subscriptions = [read_subscription(_metadata(classic, each)) for each in members]
    assigned = [read_assignment(each.assignment, topics) for each in members]
    owned = [partitions_by_id(each.owned_partitions, topics) for each in subscriptions]
    # Where two members name the same partition, the newer statement counts. An assignment is newer than what was owned
    # before it.
    by_generation = sorted(range(len(members)), key=lambda number: -subscriptions[number].generation_id)
    claims = [*enumerate(assigned), *((number, owned[number]) for number in by_generation)]
    has = _without_conflicts(claims, len(members))
    return [
        ConsumerMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMembership(
                session_timeout_ms=member.session_timeout_ms, protocols=tuple(member.protocols.items())
            ),
            epoch=classic.generation,
            previous_epoch=classic.generation,
            assigned=assignment,
            assignment_epochs=epochs_of(assignment, classic.generation),
        )
        for member, subscription, assignment in zip(members, subscriptions, has, strict=True)
    ]


def _metadata(classic: ClassicGroup, member: GroupMember) -> bytes:
    # A member that has joined for the next generation may not support the protocol of this one.
    preferred = next(iter(member.protocols.values()))
    return preferred if classic.protocol_name is None else member.protocols.get(classic.protocol_name, preferred)


def _without_conflicts(claims: Iterable[tuple[int, Assignment]], members: int) -> list[Assignment]:
    """Returns what each member has, by its number, if of several claims to a partition the first counts."""
    owners: dict[tuple[TopicId, int], int] = {}
    for number, assignment in claims:
        for topic_id, partitions in assignment.items():
            for index in partitions:
                owners.setdefault((topic_id, index), number)
    has: list[dict[TopicId, frozenset[int]]] = [{} for _ in range(members)]
    for (topic_id, index), number in owners.items():
        has[number][topic_id] = has[number].get(topic_id, frozenset()) | {index}
    return [each or NOTHING for each in has]
