"""A classic consumer group: its members, generation, protocol and state (core).

Counterpart of Kafka's ClassicGroup. This module keeps the data consistent; when a group rebalances is decided in `rebalance`
and in the modules of the requests. `group_state` draws the states.

* A group without a protocol type is a simple group: it has never had a member and only owns committed offsets. It has no
  record of its own in the log.
* The members of a group in PreparingRebalance include those that have not rejoined yet. One that has rejoined awaits the end
  of the join phase.
* Pending members are not members. They matter only while the group waits for all members to join.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from broker.coordinator.core.group_member import GroupMember, Protocols
from broker.coordinator.core.group_state import GroupState, may_become
from broker.coordinator.core.result import CoordinatorRecord, Now, Waiter
from broker.coordinator.core.subscription import subscribed_topics
from common.protocol.errors import ProtocolError
from common.records.group_records import (
    NO_TIMESTAMP,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_group,
    encode_key,
)

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
# No group has had more generations, or epochs: at one a second, that takes 34 years. A group that is loaded with as many can
# still go on counting in 32 bits.
GENERATION_MAX: Final = 2**30


class InvalidGroup(ProtocolError):
    """No coordinator can have written this record."""


class ClassicGroup:
    """One group. Every member is added, changed and removed through the methods, which keep the counts."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Invariant: changes only along the arrows of `group_state`.
        self.state = GroupState.EMPTY
        # The wall clock at the last change of state, None for a simple group and for records of old versions. Offsets of an
        # empty group expire from then on (KIP-211).
        self.state_timestamp_ms: int | None = None
        # Invariant: never falls while the shard is loaded. Rises by one with each completed join phase.
        self.generation = 0
        # What the members' protocols are for, "consumer" for consumers; None for a simple group. Changes when the first
        # member joins an empty group.
        self.protocol_type: str | None = None
        # The protocol that the members of this generation chose. Invariant: every member supports it, except in
        # PreparingRebalance; None when there are no members.
        self.protocol_name: str | None = None
        # The member that assigns. Invariant: a member; None if and only if there are none. When it leaves, the eldest
        # follows.
        self.leader_id: str | None = None
        # The members by id, in the order in which they came. Invariant: empty if and only if the state is Empty or Dead,
        # except in PreparingRebalance, where all may have left.
        self._members: dict[str, GroupMember] = {}
        # The member id of each static member by its instance id. Invariant: exactly the static members of `_members`.
        self._static_members: dict[str, str] = {}
        # How many members support each protocol. A protocol that all support may be chosen.
        self._supporters: dict[str, int] = {}
        # The ids given out with MEMBER_ID_REQUIRED whose clients have not joined with them yet (KIP-394). Invariant: none of
        # them is a member, and each has a session timer.
        self.pending_members: set[str] = set()
        # The members of this generation that have not sent SyncGroup. Invariant: empty except in CompletingRebalance and
        # Stable; while it is not empty, the sync timer is set.
        self.pending_syncs: set[str] = set()
        # How many members have a join waiter. Invariant: 0 except in PreparingRebalance.
        self._awaiting_join = 0
        # By how much the initial rebalance may still be extended; None outside the first rebalance of an empty group. Set
        # when it begins, lowered by each extension.
        self.initial_delay_left_ms: int | None = None
        # Whether a member has joined since the initial delay was last extended.
        self.has_new_member = False
        # The topics to which the members of this generation are subscribed, None if that is unknown: no generation yet, or
        # metadata that is not a consumer's. Changes with the generation and when a static member comes back.
        self.subscribed_topics: frozenset[str] | None = None
        # Whether no leader has assigned anything to these members: they come from a consumer group and are to join again.
        # Invariant: False once a generation has begun. The record of such a group has no leader.
        self.must_rebalance = False

    # Reading.

    @property
    def members(self) -> Iterator[GroupMember]:
        """The members, the eldest first. The group must not be changed meanwhile."""
        return iter(self._members.values())

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def awaiting_join(self) -> int:
        return self._awaiting_join

    @property
    def is_initial_rebalance(self) -> bool:
        return self.initial_delay_left_ms is not None

    @property
    def has_everybody_joined(self) -> bool:
        return self._awaiting_join == len(self._members) and not self.pending_members

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the group waits for its members: as long as the most patient one asks for."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def member(self, member_id: str) -> GroupMember | None:
        return self._members.get(member_id)

    def static_member(self, group_instance_id: str | None) -> GroupMember | None:
        member_id = None if group_instance_id is None else self._static_members.get(group_instance_id)
        return None if member_id is None else self._members[member_id]

    def is_leader(self, member: GroupMember) -> bool:
        return member.member_id == self.leader_id

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join: at least one of them is supported by all members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == len(self._members) for name in protocols
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be reading the topic. Consumers with unknown subscriptions may read any."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def metadata_of(self, member: GroupMember) -> bytes:
        assert self.protocol_name is not None
        return member.protocols[self.protocol_name]

    def select_protocol(self) -> str:
        """Returns the protocol that most members prefer among those that all support. On a tie, the one whose first voter
        is the eldest."""
        candidates = {name for name, count in self._supporters.items() if count == len(self._members)}
        votes: dict[str, int] = {}
        for member in self._members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    # Members.

    def add_member(self, member: GroupMember, protocol_type: str) -> None:
        assert member.member_id not in self._members
        if not self._members:
            self.protocol_type = protocol_type
        assert protocol_type == self.protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static_members
            self._static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_members.discard(member.member_id)
        self._members[member.member_id] = member
        self._count_protocols(member, 1)
        self._awaiting_join += member.join_waiter is not None

    def remove_member(self, member: GroupMember) -> None:
        """Removes the member. Its waiting requests must have been answered."""
        assert member.join_waiter is None
        assert member.sync_waiter is None
        del self._members[member.member_id]
        self._count_protocols(member, -1)
        self.pending_syncs.discard(member.member_id)
        if member.group_instance_id is not None:
            del self._static_members[member.group_instance_id]
        if self.is_leader(member):
            self.leader_id = next(iter(self._members), None)

    def replace_static_member(self, old: GroupMember, new: GroupMember) -> None:
        """Puts a static member that has come back in place of its former self, with its rank and its assignment."""
        assert new.group_instance_id is not None
        assert old.group_instance_id == new.group_instance_id
        assert new.member_id not in self._members
        new.assignment = old.assignment
        is_leader = self.is_leader(old)
        # The order is the order of age, so the dict is built again. This happens once for each restart of a client.
        rest = [new if each is old else each for each in self._members.values()]
        self.remove_member(old)
        self._members = {each.member_id: each for each in rest}
        self._count_protocols(new, 1)
        self._awaiting_join += new.join_waiter is not None
        self._static_members[new.group_instance_id] = new.member_id
        if is_leader or self.leader_id is None:
            self.leader_id = new.member_id

    def update_member(
        self, member: GroupMember, protocols: Protocols, *, session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def set_join_waiter(self, member: GroupMember, waiter: Waiter) -> None:
        assert member.join_waiter is None
        member.join_waiter = waiter
        self._awaiting_join += 1

    def take_join_waiter(self, member: GroupMember) -> Waiter | None:
        """Returns the member's waiting JoinGroup, which no longer waits."""
        waiter, member.join_waiter = member.join_waiter, None
        self._awaiting_join -= waiter is not None
        return waiter

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is a member that has joined. Returns False if none has."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.join_waiter is not None:
            return True
        joined = next((each for each in self._members.values() if each.join_waiter is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def _count_protocols(self, member: GroupMember, change: int) -> None:
        for name in member.protocols:
            count = self._supporters.get(name, 0) + change
            assert count >= 0
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    # State.

    def become(self, state: GroupState, now: Now) -> None:
        assert may_become(self.state, state), f"group {self.group_id} cannot go from {self.state} to {state}"
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    def begin_generation(self, now: Now) -> None:
        """Ends the join phase. The group now has the protocol of the members that are left, or is empty."""
        self.generation += 1
        self.must_rebalance = False
        self.initial_delay_left_ms = None
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self._members else None
        self.update_subscription()
        self.become(GroupState.COMPLETING_REBALANCE if self._members else GroupState.EMPTY, now)

    def update_subscription(self) -> None:
        """Reads the subscriptions of the members again."""
        if not self.uses_consumer_protocol:
            self.subscribed_topics = None
        elif not self._members:
            self.subscribed_topics = frozenset()
        else:
            self.subscribed_topics = subscribed_topics(self.metadata_of(member) for member in self._members.values())

    def check(self) -> None:
        """Asserts the invariants that span several fields."""
        state, members = self.state, self._members
        assert (self.leader_id in members) if members else self.leader_id is None
        assert self._static_members == {m.group_instance_id: m.member_id for m in members.values() if m.is_static}
        assert self._awaiting_join == sum(m.join_waiter is not None for m in members.values())
        assert not self.pending_members & members.keys()
        assert self.pending_syncs <= members.keys()
        if state is not GroupState.PREPARING_REBALANCE:
            assert bool(members) == (state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE))
            assert self._awaiting_join == 0
            assert not self.is_initial_rebalance
            assert all(self.protocol_name in m.protocols for m in members.values())
        if state is not GroupState.COMPLETING_REBALANCE:
            assert all(m.sync_waiter is None for m in members.values())
        if state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE):
            assert not self.pending_syncs

    # The log.

    def to_value(self) -> GroupMetadataValue:
        """Returns the value of the group's record. Only in Empty and Stable, the states that are written."""
        assert self.state in (GroupState.EMPTY, GroupState.STABLE)
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=None if self.must_rebalance else self.leader_id,
            current_state_timestamp=NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=self.metadata_of(member),
                    assignment=member.assignment,
                )
                for member in self._members.values()
            ],
        )

    def to_record(self) -> CoordinatorRecord:
        return CoordinatorRecord(encode_key(GroupMetadataKey(group=self.group_id)), encode_group(self.to_value()))

    @classmethod
    def of_consumers(cls, group_id: str, generation: int, members: Iterable[GroupMember], now: Now) -> "ClassicGroup":
        """Returns a stable group of these members of a consumer group. They are to join again."""
        group = cls(group_id)
        group.state, group.state_timestamp_ms, group.generation = GroupState.STABLE, now.wall_ms, generation
        for member in members:
            group.add_member(member, CONSUMER_PROTOCOL_TYPE)
        group.protocol_name = group.select_protocol()
        group.must_rebalance = True
        group.update_subscription()
        return group

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """Returns the group that this record describes. Raises InvalidGroup."""
        ids = [each.member_id for each in value.members]
        instances = [each.group_instance_id for each in value.members if each.group_instance_id is not None]
        if len({*ids}) < len(ids) or len({*instances}) < len(instances):
            raise InvalidGroup(f"a record of group {group_id} names a member twice")
        if value.generation > GENERATION_MAX:
            raise InvalidGroup(f"a record of group {group_id} has the generation {value.generation}")
        group = cls(group_id)
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        group.state_timestamp_ms = None if value.current_state_timestamp == NO_TIMESTAMP else value.current_state_timestamp
        group.generation = value.generation
        for each in value.members:
            group.add_member(
                GroupMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout_ms=each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
                    session_timeout_ms=each.session_timeout,
                    protocols={value.protocol or "": each.subscription},
                    assignment=each.assignment,
                ),
                value.protocol_type,
            )
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol or "" if value.members else value.protocol
        if value.leader in group._members:
            group.leader_id = value.leader
        group.must_rebalance = bool(value.members) and value.leader is None
        group.update_subscription()
        return group
