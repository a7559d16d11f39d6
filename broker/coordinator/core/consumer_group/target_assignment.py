"""The group epoch and the target assignment of a consumer group (core). Counterpart of Kafka's TargetAssignmentBuilder."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b

from broker.coordinator.core.consumer_group.assignment import NOTHING, Assignment, epochs_of
from broker.coordinator.core.consumer_group.assignor import MemberSpec
from broker.coordinator.core.consumer_group.assignors import ASSIGNORS
from broker.coordinator.core.consumer_group.consumer_group import NO_TOPICS_HASH, UNKNOWN_TIME, ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember
from broker.coordinator.core.consumer_group.group_log import (
    assignment_record,
    write_epoch,
    write_target,
    write_target_epoch,
)
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.turn import Turn

_HASH_BYTES = 8
# What a record of what a member owns takes for each partition and topic.
_PARTITION_BYTES, _TOPIC_BYTES = 8, 40


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Returns a number that changes with the ids and the partitions of these topics. Only compared with its own former
    values, so it need not be the one that Kafka computes. Unlike there, racks are not in it, because no assignor reads
    them."""
    digest = blake2b(digest_size=_HASH_BYTES)
    is_empty = True
    for name in sorted(names):
        topic_id = topics.topic_ids.get(name)
        if topic_id is not None:
            digest.update(bytes(topic_id) + len(topics.topics[topic_id].partitions).to_bytes(4, "big"))
            is_empty = False
    return NO_TOPICS_HASH if is_empty else int.from_bytes(digest.digest(), "big", signed=True)


def raise_epoch(turn: Turn, group: ConsumerGroup, topics: TopicsView) -> None:
    """The subscriptions have changed."""
    write_epoch(turn, group, group.epoch + 1, metadata_hash(group.subscribed_topics, topics))
    group.needs_refresh = False


def maybe_raise_epoch(turn: Turn, group: ConsumerGroup, topics: TopicsView) -> None:
    """Raises the epoch if the subscribed topics are not what they were."""
    current = metadata_hash(group.subscribed_topics, topics)
    group.needs_refresh = False
    if current != group.metadata_hash:
        write_epoch(turn, group, group.epoch + 1, current)


def is_assignment_due(turn: Turn, group: ConsumerGroup) -> bool:
    """Whether the next target assignment is to be computed now: the members or topics have changed, and the last assignment
    is older than the group's `consumer.assignment.interval.ms` (KIP-1263). One from the future counts as old, because the
    clock has been set back since."""
    if group.epoch == group.target_epoch:
        return False
    age_ms = turn.now.wall_ms - group.assigned_ms
    is_recent = 0 <= age_ms < turn.config_of(group.group_id).consumer_assignment_interval_ms
    return group.assigned_ms == UNKNOWN_TIME or not is_recent


def assign(turn: Turn, group: ConsumerGroup, topics: TopicsView) -> bool:
    """Computes the target assignment for the current epoch. Writes the targets that differ from those before.

    Returns False, and writes nothing, if a member would get more partitions than a record can name. The group keeps its
    former target until its members or topics have changed, or the assignor."""
    assignor = preferred_assignor(turn, group.members)
    if group.refused_target == (group.epoch, assignor):
        return False
    # A group of hundreds of members has as many subscriptions to the same topics, so look each topic up once.
    known = {name: topics.topic_ids[name] for name in group.subscribed_topics if name in topics.topic_ids}
    counts = {topic_id: len(topics.topics[topic_id].partitions) for topic_id in known.values()}
    specs = {}
    for member in group.members:
        ids = frozenset([known[name] for name in group.topics_of(member) if name in known])
        specs[member.member_id] = MemberSpec(member.instance_id, ids, group.target(member.member_id))
    assigned = ASSIGNORS[assignor](specs, counts)
    if not all(_fits_record(turn, group, member, assigned[member.member_id]) for member in group.members):
        group.refused_target = group.epoch, assignor
        return False
    for member_id in sorted(assigned):
        if member_id not in group.targets() or assigned[member_id] != group.target(member_id):
            write_target(turn, group, member_id, assigned[member_id])
    write_target_epoch(turn, group, group.epoch, turn.now.wall_ms)
    return True


def _fits_record(turn: Turn, group: ConsumerGroup, member: ConsumerMember, target: Assignment) -> bool:
    """Whether the records of a member that owns its whole target fit into a batch. A larger batch would make the
    coordinator load the shard again. The largest record is the current assignment, which has an epoch for each partition."""
    # Nearly every assignment is far from that.
    if _PARTITION_BYTES * sum(map(len, target.values())) + _TOPIC_BYTES * len(target) < turn.settings.batch_bytes_max // 2:
        return True
    owner = replace(member, assigned=target, pending_revocation=NOTHING, assignment_epochs=epochs_of(target, group.epoch))
    return turn.fits_one_batch([assignment_record(group, owner)])


def preferred_assignor(turn: Turn, members: Iterable[ConsumerMember]) -> str:
    """Returns the assignor that most members ask for. On a tie, and if none does, that of the configuration's order."""
    offered = turn.settings.group_consumer_assignors
    votes = Counter(member.server_assignor for member in members if member.server_assignor in offered)
    return max(offered, key=lambda name: (votes[name], -offered.index(name)))
