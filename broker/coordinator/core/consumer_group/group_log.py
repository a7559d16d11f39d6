"""The records of a consumer group: how they are made, and what each one changes (core).

`apply` is the only way in which the state of a group changes. An operation makes a record, applies it and hands it to the
shell; a load applies the records of the log. So a loaded group cannot differ from the one that wrote the log.

The records of one operation may come to more than a batch, because a target assignment has a record for each member. They
are then written as several batches. A log that ends between two of them shows a group whose epoch is above that of its
target, or a member that is not reconciled, and the next heartbeat goes on from there.
"""

from dataclasses import replace
from typing import Final

from broker.coordinator.core.classic_group import GENERATION_MAX, InvalidGroup
from broker.coordinator.core.consumer_group.assignment import (
    NOTHING,
    Assignment,
    Epochs,
    epochs_of,
    from_wire,
    to_wire,
    union,
)
from broker.coordinator.core.consumer_group.consumer_group import UNKNOWN_TIME, ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import (
    LEAVING_EPOCH,
    ClassicMembership,
    ConsumerMember,
    MemberState,
)
from broker.coordinator.core.result import CoordinatorRecord
from broker.coordinator.core.turn import Turn
from common.ids import TopicId
from common.protocol.schema import Struct
from common.records.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    OwnedTopicPartitions,
    TopicPartitions,
    encode_consumer_key,
    encode_consumer_value,
)

NO_TARGET_EPOCH: Final = -1

_KNOWN_STATES: Final = frozenset(each.value for each in MemberState)

# --- what a record changes -------------------------------------------------------------------------------------------


def validate_epoch(key: ConsumerGroupKey, value: Struct) -> None:
    """Raises InvalidGroup for a record of the log with an epoch that no coordinator can have written."""
    match value:
        case ConsumerGroupMetadataValue():
            epoch = value.epoch
        case ConsumerGroupTargetAssignmentMetadataValue():
            epoch = value.assignment_epoch
        case ConsumerGroupCurrentMemberAssignmentValue():
            epoch = value.member_epoch
        case _:
            return
    if epoch > GENERATION_MAX:
        raise InvalidGroup(f"a record of group {key.group_id} has the epoch {epoch}")


def apply(group: ConsumerGroup, key: ConsumerGroupKey, value: Struct | None) -> None:
    """Changes the group as the record says. A value of None is a tombstone. Does not remove the group itself, whose last
    record is the tombstone of its ConsumerGroupMetadata."""
    match key, value:
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
            group.set_epoch(value.epoch, value.metadata_hash)
        case ConsumerGroupPartitionMetadataKey(), _:
            group.has_partition_metadata = value is not None
        case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
            group.put_member(_with_metadata(_member(group, key.member_id), value))
        case ConsumerGroupMemberMetadataKey(), None:
            group.remove_member(key.member_id)
        case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
            group.set_target_epoch(value.assignment_epoch, value.assignment_timestamp)
        case ConsumerGroupTargetAssignmentMetadataKey(), None:
            group.set_target_epoch(NO_TARGET_EPOCH, UNKNOWN_TIME)
        case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue():
            group.set_target(key.member_id, from_wire(value.topic_partitions))
        case ConsumerGroupTargetAssignmentMemberKey(), None:
            group.set_target(key.member_id, None)
        case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue():
            group.put_member(_with_assignment(_member(group, key.member_id), value))
        case ConsumerGroupCurrentMemberAssignmentKey(), None:
            _clear_assignment(group, key.member_id)
        case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
            group.resolve(key.regular_expression, frozenset(value.topics))
        case ConsumerGroupRegularExpressionKey(), None:
            group.resolve(key.regular_expression, None)


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.member(member_id) or ConsumerMember(member_id=member_id)


def _with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        # Kafka writes an empty text for a member that has given up its regular expression.
        topic_regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=_classic(value.classic_member_metadata),
    )


def _classic(value: ClassicMemberMetadata | None) -> ClassicMembership | None:
    if value is None or not value.supported_protocols:
        return None
    return ClassicMembership(
        session_timeout_ms=value.session_timeout_ms,
        protocols=tuple((each.name, each.metadata) for each in value.supported_protocols),
    )


def _with_assignment(member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    assigned, pending = from_wire(value.assigned_partitions), from_wire(value.partitions_pending_revocation)
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in _KNOWN_STATES else MemberState.UNKNOWN,
        assigned=assigned,
        pending_revocation=pending,
        assignment_epochs=epochs_of(
            union(assigned, pending),
            value.member_epoch,
            _epochs([*value.assigned_partitions, *value.partitions_pending_revocation]),
        ),
    )


def _epochs(topics: list[OwnedTopicPartitions]) -> Epochs:
    """Returns the epochs that a record has. Those of a topic whose number does not fit do not count, as in Kafka."""
    found: dict[TopicId, dict[int, int]] = {}
    for each in topics:
        if each.assignment_epochs is not None and len(each.assignment_epochs) == len(each.partitions):
            found.setdefault(TopicId(each.topic_id), {}).update(zip(each.partitions, each.assignment_epochs, strict=True))
    return found


def _clear_assignment(group: ConsumerGroup, member_id: str) -> None:
    member = group.member(member_id)
    if member is not None:
        group.put_member(
            replace(
                member,
                epoch=LEAVING_EPOCH,
                previous_epoch=LEAVING_EPOCH,
                assigned=NOTHING,
                pending_revocation=NOTHING,
                assignment_epochs={},
            )
        )


# --- making records --------------------------------------------------------------------------------------------------


def metadata_record(group: ConsumerGroup, member: ConsumerMember) -> CoordinatorRecord:
    """Returns the record of what the member is and subscribes to."""
    key, value = _metadata(group, member)
    return CoordinatorRecord(encode_consumer_key(key), encode_consumer_value(value))


def write_member(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Writes what the member is and subscribes to."""
    _write(turn, group, *_metadata(group, member))


def assignment_record(group: ConsumerGroup, member: ConsumerMember) -> CoordinatorRecord:
    """Returns the record of the member's epoch, and of what it owns and is to revoke."""
    key, value = _assignment(group, member)
    return CoordinatorRecord(encode_consumer_key(key), encode_consumer_value(value))


def write_assignment(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Writes the member's epoch, and what it owns and is to revoke."""
    _write(turn, group, *_assignment(group, member))


def _assignment(
    group: ConsumerGroup, member: ConsumerMember
) -> tuple[ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue]:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_owned(member, member.assigned),
        partitions_pending_revocation=_owned(member, member.pending_revocation),
    )
    return key, value


def _owned(member: ConsumerMember, assignment: Assignment) -> list[OwnedTopicPartitions]:
    topics = to_wire(assignment, OwnedTopicPartitions)
    for each in topics:
        epochs = member.assignment_epochs[TopicId(each.topic_id)]
        each.assignment_epochs = [epochs[index] for index in each.partitions]
    return topics


def write_removal(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Writes the tombstones of a member. Its place in the group is free then, and all that it owned."""
    for key in _member_keys(group.group_id, member_id):
        _write(turn, group, key, None)


def write_epoch(turn: Turn, group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
    _drop_partition_metadata(turn, group)
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    _write(turn, group, ConsumerGroupMetadataKey(group_id=group.group_id), value)


def write_target(turn: Turn, group: ConsumerGroup, member_id: str, target: Assignment) -> None:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_wire(target, TopicPartitions))
    _write(turn, group, key, value)


def write_target_epoch(turn: Turn, group: ConsumerGroup, epoch: int, assigned_ms: int) -> None:
    """Writes the epoch of the target assignment, and when it was computed: a time of the wall clock, or UNKNOWN_TIME."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id)
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=assigned_ms)
    _write(turn, group, key, value)


def resolved_record(turn: Turn, group: ConsumerGroup, regex: str, topics: frozenset[str], version: int) -> CoordinatorRecord:
    """Returns the record of the topics that a regular expression matches."""
    key, value = _resolved(turn, group, regex, topics, version)
    return CoordinatorRecord(encode_consumer_key(key), encode_consumer_value(value))


def write_resolved(turn: Turn, group: ConsumerGroup, regex: str, topics: frozenset[str], version: int) -> None:
    _write(turn, group, *_resolved(turn, group, regex, topics, version))


def _resolved(
    turn: Turn, group: ConsumerGroup, regex: str, topics: frozenset[str], version: int
) -> tuple[ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue]:
    key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
    return key, ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=turn.now.wall_ms)


def write_unsubscribed_regexes(turn: Turn, group: ConsumerGroup) -> None:
    """Writes the tombstones of regular expressions by which no member subscribes any more."""
    for regex in sorted(group.resolved.keys() - group.regexes):
        key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
        _write(turn, group, key, None)


def write_deletion(turn: Turn, group: ConsumerGroup) -> None:
    """Writes the tombstones of an empty group."""
    assert group.is_empty
    write_unsubscribed_regexes(turn, group)
    _write(turn, group, ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    _drop_partition_metadata(turn, group)
    _write(turn, group, ConsumerGroupMetadataKey(group_id=group.group_id), None)


def tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Returns the tombstones of all records of the group. They do not change the group; its owner forgets it."""
    group_id = group.group_id
    keys: list[ConsumerGroupKey] = []
    for member in group.members:
        keys += _member_keys(group_id, member.member_id)
    keys += [
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex) for regex in sorted(group.resolved)
    ]
    keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
    if group.has_partition_metadata:
        keys.append(ConsumerGroupPartitionMetadataKey(group_id=group_id))
    keys.append(ConsumerGroupMetadataKey(group_id=group_id))
    return [CoordinatorRecord(encode_consumer_key(key), None) for key in keys]


def _member_keys(group_id: str, member_id: str) -> tuple[ConsumerGroupKey, ...]:
    """Returns the keys of a member's records, in the order in which they are deleted."""
    return (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )


def _metadata(
    group: ConsumerGroup, member: ConsumerMember
) -> tuple[ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue]:
    return (
        ConsumerGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None if member.classic is None else _classic_metadata(member.classic),
        ),
    )


def _classic_metadata(classic: ClassicMembership) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
    )


def _drop_partition_metadata(turn: Turn, group: ConsumerGroup) -> None:
    if group.has_partition_metadata:
        _write(turn, group, ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None)


def _write(turn: Turn, group: ConsumerGroup, key: ConsumerGroupKey, value: Struct | None) -> None:
    apply(group, key, value)
    turn.write_splitting(
        CoordinatorRecord(encode_consumer_key(key), None if value is None else encode_consumer_value(value))
    )
