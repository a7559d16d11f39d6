"""The group coordinator's core under any sequence of requests, failures of clients, and reloads.

Clients follow the protocol as real ones do; a stranger sends requests with ids and generations that it has picked up
somewhere. After each step, the shard must equal one that is loaded from its log, also if that was compacted, and the
committed offsets must be those of the last accepted commits. In the end the clients that are left must come to share one
generation, and when they too have gone, nobody may be waiting.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.group_state import GroupState
from common.protocol.errors import ErrorCode
from common.protocol.messages.join_group import JoinGroupResponse
from common.protocol.messages.leave_group import MemberIdentity
from common.protocol.messages.sync_group import SyncGroupResponse
from common.records.group_records import GroupMetadataKey, OffsetCommitValue, encode_key
from tests.property.profiles import examples
from tests.unit.broker.coordinator.core.group_world import CALLER, OLD_CALLER, SESSION_MS, GroupWorld, subscription

GROUPS = st.sampled_from(["g", "g", "h"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.integers(0, 2)
NUMBERS = st.integers(0, 20)
PAUSES_MS = st.sampled_from([100, 1_000, 5_000, 30_000, 200_000])
INSTANCES = st.sampled_from([None, None, "one", "two"])
SELDOM = st.sampled_from([False, False, False, False, True])
HEARTBEAT_MS = 1_000
# A member that is gone may hold up the others by a rebalance timeout more than once.
SETTLING_ROUNDS = 400
# What the members' protocols may be. All have one in common.
PREFERENCES = st.sampled_from([["range"], ["range", "sticky"], ["sticky", "range"]])

Offsets = dict[tuple[str, str, int], OffsetCommitValue]


class Client:
    """A consumer that follows the classic protocol."""

    def __init__(self, world: GroupWorld, group: str, instance: str | None, names: list[str], *, is_old: bool) -> None:
        self.world = world
        self.group = group
        self.instance = instance
        self.names = names
        self.topics = ["t"]
        self.caller = OLD_CALLER if is_old and instance is None else CALLER
        self.member_id = ""
        self.generation = -1
        # The request under way, and whether it is a JoinGroup.
        self.waiter: int | None = None
        self.is_joining = False
        self.is_stable = False
        # Another client has taken its name, or the group is full.
        self.has_failed = False

    def act(self) -> None:
        """Does what the client would do about now: takes an answer in, or heartbeats."""
        if self.has_failed:
            return
        if self.waiter is not None:
            if self.waiter in self.world.answers:
                self.take_answer()
        elif self.is_stable:
            error = self.world.heartbeat(
                self.member_id, generation=self.generation, instance=self.instance, group=self.group
            )
            self.obey(error)
        else:
            self.join()

    def join(self) -> None:
        self.is_stable = False
        protocols = {name: subscription(*self.topics) for name in self.names}
        self.waiter = self.world.join(
            self.member_id, instance=self.instance, protocols=protocols, caller=self.caller, group=self.group
        )
        self.is_joining = True

    def take_answer(self) -> None:
        assert self.waiter is not None
        answer: JoinGroupResponse | SyncGroupResponse = self.world.answer(self.waiter)
        self.waiter = None
        error = ErrorCode(answer.error_code).name
        if isinstance(answer, JoinGroupResponse):
            if error == "MEMBER_ID_REQUIRED":
                self.member_id = answer.member_id
                self.join()
                return
            if error == "NONE":
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self.sync(answer)
                return
        elif error == "NONE":
            self.is_stable = True
        self.obey(error)

    def sync(self, joined: JoinGroupResponse) -> None:
        is_leader = joined.leader == self.member_id and not joined.skip_assignment
        assignment = {each.member_id: each.member_id.encode() for each in joined.members} if is_leader else {}
        self.waiter = self.world.sync(
            self.member_id, assignment, generation=self.generation, instance=self.instance, group=self.group
        )
        self.is_joining = False

    def obey(self, error: str) -> None:
        """Rejoins or gives up, as the error asks for."""
        if error == "NONE":
            return
        self.is_stable = False
        if error in ("FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED", "INCONSISTENT_GROUP_PROTOCOL"):
            self.has_failed = True
            return
        assert error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "NOT_COORDINATOR"), error
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = ""
        self.join()


class GroupMachine(RuleBasedStateMachine):
    """Two groups with up to a dozen clients, and a stranger."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()
        self.clients: list[Client] = []
        # The offsets that should be committed.
        self.committed: Offsets = {}
        # The greatest generation of each group since the shard was loaded.
        self.generations: dict[str, int] = {}

    @initialize(size_max=st.sampled_from([3, 100]), delay_ms=st.sampled_from([0, 3_000]))
    def begin(self, size_max: int, delay_ms: int) -> None:
        self.world = GroupWorld(
            group_max_size=size_max, group_initial_rebalance_delay_ms=delay_ms, offsets_retention_ms=500_000
        )

    # --- clients ------------------------------------------------------------------------------------------------

    @rule(group=GROUPS, instance=INSTANCES, names=PREFERENCES, is_old=SELDOM)
    def start(self, group: str, instance: str | None, names: list[str], is_old: bool) -> None:
        """Starts a client. If one of the same name runs, it goes on as a zombie."""
        if len(self.clients) < 12:
            self.clients.append(Client(self.world, group, instance, names, is_old=is_old))
            self.clients[-1].act()

    @rule(number=NUMBERS)
    def die(self, number: int) -> None:
        """Stops a client without a word."""
        if self.clients:
            self.clients.pop(number % len(self.clients))

    @rule(number=NUMBERS, by_name=st.booleans())
    def leave(self, number: int, by_name: bool) -> None:
        if self.clients:
            client = self.clients.pop(number % len(self.clients))
            member_id = "" if by_name and client.instance is not None else client.member_id
            self.world.leave(MemberIdentity(member_id=member_id, group_instance_id=client.instance), group=client.group)

    @rule(number=NUMBERS, topics=st.sampled_from([["t"], ["u"], ["t", "u"]]))
    def subscribe(self, number: int, topics: list[str]) -> None:
        """A stable client rejoins with another subscription."""
        if self.clients:
            client = self.clients[number % len(self.clients)]
            client.topics = topics
            if client.is_stable:
                client.join()

    @rule(number=NUMBERS)
    def retry(self, number: int) -> None:
        """A client loses its connection and sends its JoinGroup again."""
        if self.clients:
            client = self.clients[number % len(self.clients)]
            if client.waiter is not None and client.is_joining and not client.has_failed:
                client.join()

    @rule(number=NUMBERS)
    def run_one_client(self, number: int) -> None:
        """The others are slow."""
        if self.clients:
            self.clients[number % len(self.clients)].act()

    @rule(rounds=st.integers(1, 12), slow=st.none() | NUMBERS)
    def run_clients(self, rounds: int, slow: int | None) -> None:
        """Lets the clients run for a while, but for one of them, which may be a leader that the others wait for."""
        idle = None if slow is None or not self.clients else self.clients[slow % len(self.clients)]
        for _ in range(rounds):
            for client in self.clients:
                if client is not idle:
                    client.act()
            self.world.advance(HEARTBEAT_MS)

    @rule(number=NUMBERS, topic=TOPICS, partition=PARTITIONS, offset=NUMBERS)
    def commit(self, number: int, topic: str, partition: int, offset: int) -> None:
        if self.clients:
            client = self.clients[number % len(self.clients)]
            self.expect_commit(client.group, client.member_id, client.generation, client.instance, topic, partition, offset)

    def expect_commit(
        self,
        group: str,
        member_id: str,
        generation: int,
        instance: str | None,
        topic: str,
        partition: int,
        offset: int,
    ) -> None:
        error = self.world.commit(
            offset,
            topic=topic,
            partition=partition,
            member_id=member_id,
            generation=generation,
            instance=instance,
            group=group,
        )
        if error == "NONE":
            value = OffsetCommitValue(offset=offset, commit_timestamp=self.world.now_ms)
            self.committed[group, topic, partition] = value

    # --- a stranger, administrators, and the shard itself ---------------------------------------------------------

    def some_member_id(self, number: int) -> str:
        """Returns an id that somebody may have given away, or an invented one."""
        ids = ["", "stranger", *(client.member_id for client in self.clients)]
        return ids[number % len(ids)]

    @rule(group=GROUPS, number=NUMBERS, instance=INSTANCES, kind=st.sampled_from(["join", "sync", "heartbeat", "commit"]))
    def intrude(self, group: str, number: int, instance: str | None, kind: str) -> None:
        member_id, generation = self.some_member_id(number), number % 3 - 1 + self.world.generation(group)
        if kind == "join":
            self.world.join(member_id, instance=instance, group=group)
        elif kind == "sync":
            self.world.sync(member_id, {member_id: b"all"}, generation=generation, instance=instance, group=group)
        elif kind == "heartbeat":
            self.world.heartbeat(member_id, generation=generation, instance=instance, group=group)
        else:
            self.expect_commit(group, member_id, generation, instance, "t", 0, number)

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS, offset=NUMBERS)
    def commit_as_administrator(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.expect_commit(group, "", -1, None, topic, partition, offset)

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS)
    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        if self.world.delete_offsets((topic, partition), group=group) == ["NONE"]:
            self.committed.pop((group, topic, partition), None)

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.world.carry_out(*self.world.shard.topics_deleted(self.world.now, [topic]))
        self.committed = {key: value for key, value in self.committed.items() if key[1] != topic}

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        if self.world.delete_group(group) == "NONE":
            self.committed = {key: value for key, value in self.committed.items() if key[0] != group}
            self.generations.pop(group, None)

    @rule()
    def expire(self) -> None:
        """Expiry may take offsets, but changes none. When it takes which is shown elsewhere."""
        self.world.expire()
        left = committed_in(self.world.shard)
        assert left.items() <= self.committed.items()
        self.committed = left
        self.generations = {group: each for group, each in self.generations.items() if self.world.generation(group) >= 0}

    @rule(ms=PAUSES_MS)
    def pause(self, ms: int) -> None:
        """All clients are silent for a while."""
        self.world.advance(ms)

    @rule()
    def reload(self) -> None:
        """Another broker leads the partition now."""
        self.world.reload()
        self.generations.clear()

    # --- what must always hold ------------------------------------------------------------------------------------

    @invariant()
    def offsets_are_those_of_the_last_commits(self) -> None:
        assert committed_in(self.world.shard) == self.committed

    @invariant()
    def generations_never_fall(self) -> None:
        for group in self.world.shard.groups:
            assert group.generation >= self.generations.get(group.group_id, 0)
            self.generations[group.group_id] = group.generation

    @invariant()
    def a_loaded_shard_equals_this_one(self) -> None:
        """Of a group that is rebalancing, the log has an earlier generation."""
        for compacted in (False, True):
            loaded = self.world.replayed(compacted=compacted)
            assert committed_in(loaded) == self.committed
            theirs = {group.group_id: group for group in loaded.groups}
            for group in self.world.shard.groups:
                other = theirs.get(group.group_id)
                if other is None:
                    # A simple group that has lost all its offsets is remembered only until it is loaded, unless members
                    # have joined and been written meanwhile.
                    assert compacted
                    assert dict(self.world.log).get(encode_key(GroupMetadataKey(group=group.group_id))) is None
                    assert self.world.fetch(group=group.group_id) == {}
                elif group.state in (GroupState.EMPTY, GroupState.STABLE):
                    assert (other.state, other.to_value()) == (group.state, group.to_value())
                    assert other.subscribed_topics == group.subscribed_topics
                else:
                    assert other.generation <= group.generation
            assert theirs.keys() <= {group.group_id for group in self.world.shard.groups}

    @invariant()
    def timers_run_while_they_are_needed(self) -> None:
        """A member without a session timer would never be missed."""
        for group in self.world.shard.groups:
            is_preparing = group.state is GroupState.PREPARING_REBALANCE
            assert (("join", group.group_id) in self.world.timers) == is_preparing
            assert (("sync", group.group_id) in self.world.timers) == bool(group.pending_syncs)
            for member_id in group.pending_members:
                assert ("session", group.group_id, member_id) in self.world.timers
            for member in group.members:
                assert member.is_alive_by_waiting or ("session", group.group_id, member.member_id) in self.world.timers

    def has_settled(self, name: str) -> bool:
        """Whether the clients of the group are its members, all in one stable generation."""
        clients = [client for client in self.clients if client.group == name and not client.has_failed]
        if not clients:
            return True
        group = next((each for each in self.world.shard.groups if each.group_id == name), None)
        return (
            group is not None
            and group.state is GroupState.STABLE
            and all(client.is_stable and client.generation == group.generation for client in clients)
            and {client.member_id for client in clients} == {member.member_id for member in group.members}
        )

    def teardown(self) -> None:
        """Left to themselves, the clients come together; without clients, nothing is left waiting."""
        for _ in range(SETTLING_ROUNDS):
            for client in list(self.clients):
                client.act()
            self.world.advance(HEARTBEAT_MS)
            if self.has_settled("g") and self.has_settled("h"):
                break
        else:
            raise AssertionError("the clients do not come together")
        self.world.advance(100 * SESSION_MS)
        self.world.advance(1_000 * SESSION_MS)
        assert not self.world.timers
        assert self.world.waiting == set()
        assert {group.state for group in self.world.shard.groups} <= {GroupState.EMPTY}


def committed_in(shard: GroupShard) -> Offsets:
    return {
        (group.group_id, topic, partition): value
        for group in shard.groups
        for topic, partitions in shard.offsets.of_group(group.group_id).items()
        for partition, value in partitions.items()
    }


GroupMachine.TestCase.settings = settings(examples(60), stateful_step_count=40)
TestGroupMachine = pytest.mark.slow(GroupMachine.TestCase)
