"""A consumer group: its members, epochs, target assignment and who has which partition (core).

Counterpart of Kafka's ConsumerGroup. Everything but the soft state at the end of `__init__` comes from records, and is
changed only by `group_log.apply`, while the shard is loaded as well as afterwards.

* The group epoch rises with each change of a subscription or of the subscribed topics. Until a target assignment of that
  epoch is computed, the group is Assigning, and its members keep to the former one as far as they are still subscribed.
* A group is Reconciling until every member has reached the target assignment.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from broker.coordinator.core.consumer_group.assignment import NOTHING, Assignment, union
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember
from broker.coordinator.core.consumer_group.topic_matching import TopicMatching
from broker.coordinator.core.consumer_group.topic_subscribers import TopicSubscribers
from common.ids import TopicId

CONSUMER_TYPE: Final = "consumer"
NO_TOPICS_HASH: Final = 0
# Stands for the time of a target assignment if it is not known when that was computed.
UNKNOWN_TIME: Final = 0


class ConsumerGroupState(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """One group."""

    def __init__(self, group_id: str, subscribers: TopicSubscribers) -> None:
        self.group_id = group_id
        # Invariant: never falls. Begins at 1, as in Kafka since 4.3, because a member may join while there is nothing to
        # assign, and 0 is the epoch of one that has not joined.
        self.epoch = 1
        # The hash of the subscribed topics as they were when the epoch last rose.
        self.metadata_hash = NO_TOPICS_HASH
        # The epoch for which the target assignment was computed. Invariant: never above `epoch`; -1 while the group is being
        # deleted.
        self.target_epoch = 1
        # When it was computed, by the wall clock in milliseconds.
        self.assigned_ms = UNKNOWN_TIME
        self._targets: dict[str, Assignment] = {}
        self._members: dict[str, ConsumerMember] = {}
        # The member id of each static member by its instance id.
        self._static_members: dict[str, str] = {}
        # Which member has each partition, or has not confirmed yet that it has revoked it.
        self._owners: dict[TopicId, dict[int, str]] = {}
        # The topics that each regular expression matched when it was last resolved.
        self._resolved: dict[str, frozenset[str]] = {}
        # How many members subscribe by each regular expression. Invariant: no value is 0.
        self._regex_counts: dict[str, int] = {}
        # How many members are subscribed to each topic, by name or by a regular expression. Invariant: no value is 0, and
        # `_subscribers` knows the group under each of these topics.
        self._topic_counts: dict[str, int] = {}
        self._subscribers = subscribers
        # How many members speak the classic protocol, and how many of them support each of its protocols. Invariant: no
        # value is 0.
        self.classic_size = 0
        self._classic_supporters: dict[str, int] = {}
        # Whether the log has a record of the kind that Kafka 4.0 wrote and 4.1 deletes.
        self.has_partition_metadata = False
        self._state: ConsumerGroupState | None = None

        # Soft state, of which the log knows nothing. A subscribed topic has changed; the next heartbeat compares the hash.
        self.needs_refresh = True
        # The regular expressions that match more topics than a record can name. They count as matching none.
        self.too_wide_regexes: set[str] = set()
        # The epoch and the assignor whose target assignment was larger than a record; None if there is none. It is not
        # computed again with each heartbeat.
        self.refused_target: tuple[int, str] | None = None
        # The version of the set of topics to which the regular expressions were resolved, and when that was.
        self.resolved_version = -1
        self.resolved_ns: int | None = None
        # The resolution under way, and the version of the set of topics that it looks at.
        self.matching: TopicMatching | None = None
        self.matching_version = -1
        # The classic members that have been told to join again and have not yet. Invariant: each has a join timer.
        self.rejoining: set[str] = set()

    # Reading.

    @property
    def state(self) -> ConsumerGroupState:
        if self._state is None:
            self._state = self._find_state()
        return self._state

    def _find_state(self) -> ConsumerGroupState:
        if not self._members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self._members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def members(self) -> Collection[ConsumerMember]:
        return self._members.values()

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def subscribed_topics(self) -> Collection[str]:
        return self._topic_counts.keys()

    @property
    def resolved(self) -> Mapping[str, frozenset[str]]:
        return self._resolved

    @property
    def regexes(self) -> Collection[str]:
        """The regular expressions by which members subscribe, resolved or not."""
        return self._regex_counts.keys()

    def member(self, member_id: str) -> ConsumerMember | None:
        return self._members.get(member_id)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self._static_members.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def target(self, member_id: str) -> Assignment:
        return self._targets.get(member_id, NOTHING)

    def targets(self) -> Mapping[str, Assignment]:
        return self._targets

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Returns the names of the topics to which the member is subscribed; some of them may not exist."""
        if member.topic_regex is None:
            return member.topic_names
        return member.topic_names | self._resolved.get(member.topic_regex, frozenset())

    def supports_classic(self, protocols: Iterable[str]) -> bool:
        """Whether a member with these classic protocols may join: all other classic members support one of them."""
        return any(self._classic_supporters.get(name, 0) == self.classic_size for name in protocols)

    def has_unreleased_target(self, member: ConsumerMember) -> bool:
        """Whether another member still has a partition that this one is to get."""
        return any(
            not self.is_free_for(member.member_id, topic_id, index)
            for topic_id, partitions in self.target(member.member_id).items()
            for index in partitions
        )

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._topic_counts

    def is_free_for(self, member_id: str, topic_id: TopicId, index: int) -> bool:
        """Whether no other member has the partition."""
        return self._owners.get(topic_id, {}).get(index, member_id) == member_id

    # Changing. Only for `group_log`.

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash, self._state = epoch, metadata_hash, None

    def set_target_epoch(self, epoch: int, assigned_ms: int) -> None:
        self.target_epoch, self.assigned_ms, self._state = epoch, assigned_ms, None

    def set_target(self, member_id: str, target: Assignment | None) -> None:
        if target is None:
            self._targets.pop(member_id, None)
        else:
            self._targets[member_id] = target

    def put_member(self, member: ConsumerMember) -> None:
        """Adds the member, or replaces it as it was."""
        old = self._members.get(member.member_id)
        if old is not None:
            self._forget(old)
        self._members[member.member_id] = member
        # Most changes are about what the member owns, and it may be subscribed to every topic of the cluster.
        if old is None or (old.topic_names, old.topic_regex) != (member.topic_names, member.topic_regex):
            if old is not None:
                self._unsubscribe(old)
            self._subscribe(member)
        if member.instance_id is not None:
            self._static_members[member.instance_id] = member.member_id
        self._count_classic(member, 1)
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        self._state = None

    def remove_member(self, member_id: str) -> None:
        member = self._members.pop(member_id, None)
        if member is not None:
            self._forget(member)
            self._unsubscribe(member)
            self.rejoining.discard(member_id)
            self._state = None

    def resolve(self, regex: str, topics: frozenset[str] | None) -> None:
        """Sets the topics that the regular expression matches; None for one that no member has any more."""
        before, after = self._resolved.get(regex, frozenset()), topics or frozenset()
        affected = [member for member in self._members.values() if member.topic_regex == regex]
        for topic in before ^ after:
            change = sum(topic not in member.topic_names for member in affected)
            self._count_topic(topic, change if topic in after else -change)
        if topics is None:
            self._resolved.pop(regex, None)
        else:
            self._resolved[regex] = topics

    def forget_subscriptions(self) -> None:
        """Takes the group out of the index. It must not be used afterwards."""
        for topic in list(self._topic_counts):
            self._subscribers.remove(topic, self.group_id)

    def _subscribe(self, member: ConsumerMember) -> None:
        for topic in self.topics_of(member):
            self._count_topic(topic, 1)
        if member.topic_regex is not None:
            self._regex_counts[member.topic_regex] = self._regex_counts.get(member.topic_regex, 0) + 1

    def _unsubscribe(self, member: ConsumerMember) -> None:
        for topic in self.topics_of(member):
            self._count_topic(topic, -1)
        if member.topic_regex is not None:
            self._regex_counts[member.topic_regex] -= 1
            if not self._regex_counts[member.topic_regex]:
                del self._regex_counts[member.topic_regex]

    def _forget(self, member: ConsumerMember) -> None:
        """Forgets what the member is and owns, but not to what it is subscribed."""
        if member.instance_id is not None and self._static_members.get(member.instance_id) == member.member_id:
            del self._static_members[member.instance_id]
        self._count_classic(member, -1)
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                self._disown(member.member_id, topic_id, partitions)

    def _disown(self, member_id: str, topic_id: TopicId, partitions: frozenset[int]) -> None:
        owners = self._owners.get(topic_id, {})
        for index in partitions:
            if owners.get(index) == member_id:
                del owners[index]
        if not owners:
            self._owners.pop(topic_id, None)

    def _count_classic(self, member: ConsumerMember, change: int) -> None:
        if member.classic is None:
            return
        self.classic_size += change
        for name, _ in member.classic.protocols:
            count = self._classic_supporters.get(name, 0) + change
            assert count >= 0
            if count:
                self._classic_supporters[name] = count
            else:
                del self._classic_supporters[name]

    def _count_topic(self, topic: str, change: int) -> None:
        before = self._topic_counts.get(topic, 0)
        after = before + change
        assert after >= 0
        if after:
            self._topic_counts[topic] = after
        else:
            self._topic_counts.pop(topic, None)
        if before == 0 < after:
            self._subscribers.add(topic, self.group_id)
        elif after == 0 < before:
            self._subscribers.remove(topic, self.group_id)

    def check(self) -> None:
        """Asserts the invariants that span several fields."""
        owners: dict[tuple[TopicId, int], str] = {}
        counts: dict[str, int] = {}
        for member in self._members.values():
            for topic in self.topics_of(member):
                counts[topic] = counts.get(topic, 0) + 1
            for assignment in (member.assigned, member.pending_revocation):
                assert all(assignment.values())
                for topic_id, partitions in assignment.items():
                    for index in partitions:
                        assert owners.setdefault((topic_id, index), member.member_id) == member.member_id
            has = union(member.assigned, member.pending_revocation)
            assert {topic: frozenset(part) for topic, part in member.assignment_epochs.items()} == has
            assert member.epoch <= self.epoch
        assert owners == {(topic, index): each for topic, part in self._owners.items() for index, each in part.items()}
        assert counts == self._topic_counts
        assert all(self._subscribers.has(topic, self.group_id) for topic in counts)
        assert self._static_members == {m.instance_id: m.member_id for m in self._members.values() if m.instance_id}
        assert self._targets.keys() <= self._members.keys()
        supporters = Counter(
            name for m in self._members.values() if m.classic is not None for name, _ in m.classic.protocols
        )
        assert supporters == self._classic_supporters
        assert self.classic_size == sum(m.classic is not None for m in self._members.values())
        assert all((m := self._members.get(each)) is not None and m.classic is not None for each in self.rejoining)
        assert self._resolved.keys() <= self._regex_counts.keys()
        assert self.target_epoch <= self.epoch
        assert self.state is self._find_state()
