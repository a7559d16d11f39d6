"""Groups of the consumer protocol under any sequence of joins, leaves, lost answers, changes of topics, and reloads.

Clients follow the protocol. After each step no partition may belong to two members: a member owns what it has said that it
owns, and what it has been told to own since. Epochs never go back, and a shard that is loaded from the log, compacted or
not, equals the one that wrote it. In the end the clients that are left must own their topics, each partition once.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import MemberState
from broker.coordinator.core.group_shard import GroupShard
from common.configuration.group import GroupConfig
from tests.property.profiles import examples
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import Consumer, ConsumerWorld

GROUPS = st.sampled_from(["g", "g", "h"])
NAMES = st.sampled_from(["t", "u", "v"])
SUBSCRIPTIONS = st.sampled_from([["t"], ["t"], ["u"], ["t", "u"], ["t", "u", "v"], []])
REGEXES = st.sampled_from([None, None, "[tu]", "u|v"])
INSTANCES = st.sampled_from([None, None, "one", "two"])
NUMBERS = st.integers(0, 20)
PAUSES_MS = st.sampled_from([100, 5_000, 20_000, 44_999, 60_000])
HEARTBEAT_MS = 5_000
SETTLING_ROUNDS = 60
# In a batch of this size, every target assignment has room.
LARGE_BATCH = 1_000_000

Owned = set[tuple[int, int]]


class Machine(RuleBasedStateMachine):
    """Two groups with up to eight clients."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld()
        self.clients: list[Consumer] = []
        self.born = 0
        self.epochs: dict[str, int] = {}
        self.member_epochs: dict[tuple[str, str], int] = {}

    @initialize(
        size_max=st.sampled_from([3, 100]),
        batch=st.sampled_from([300, LARGE_BATCH]),
        interval=st.sampled_from([0, 1, 7_000]),
    )
    def begin(self, size_max: int, batch: int, interval: int) -> None:
        self.world = ConsumerWorld(group_consumer_max_size=size_max, batch_bytes_max=batch, offsets_retention_ms=500_000)
        self.world.group_configs = {each: GroupConfig(consumer_assignment_interval_ms=interval) for each in ("g", "h")}

    def one(self, number: int) -> Consumer | None:
        return self.clients[number % len(self.clients)] if self.clients else None

    # --- clients -------------------------------------------------------------------------------------------------

    @rule(group=GROUPS, instance=INSTANCES, topics=SUBSCRIPTIONS, regex=REGEXES)
    def start(self, group: str, instance: str | None, topics: list[str], regex: str | None) -> None:
        if len(self.clients) < 8:
            self.born += 1
            client = Consumer(self.world, f"m{self.born}", group, instance)
            client.topics, client.regex = topics, regex
            self.clients.append(client)
            client.act()

    @rule(number=NUMBERS, loses_answer=st.booleans())
    def act(self, number: int, loses_answer: bool) -> None:
        client = self.one(number)
        if client is not None:
            client.act(loses_answer=loses_answer)
            self.expect_only_what_is_wanted(client)

    @rule(rounds=st.integers(1, 6), slow=st.none() | NUMBERS)
    def run_clients(self, rounds: int, slow: int | None) -> None:
        idle = None if slow is None else self.one(slow)
        for _ in range(rounds):
            for client in self.clients:
                if client is not idle:
                    client.act()
            self.world.advance(HEARTBEAT_MS)

    @rule(number=NUMBERS)
    def die(self, number: int) -> None:
        client = self.one(number)
        if client is not None:
            self.clients.remove(client)

    @rule(number=NUMBERS, comes_back=st.booleans())
    def leave(self, number: int, comes_back: bool) -> None:
        """A static member may come back under another id."""
        client = self.one(number)
        if client is None:
            return
        self.clients.remove(client)
        is_static = client.instance is not None
        client.leave(for_a_while=is_static and comes_back)
        if is_static and comes_back:
            self.start(client.group, client.instance, client.topics, client.regex)

    @rule(number=NUMBERS, topics=SUBSCRIPTIONS, regex=REGEXES)
    def subscribe(self, number: int, topics: list[str], regex: str | None) -> None:
        client = self.one(number)
        if client is not None:
            client.topics, client.regex = topics, regex
            client.act()
            self.expect_only_what_is_wanted(client)

    @rule(number=NUMBERS, late=st.integers(0, 2), offset=NUMBERS)
    def commit(self, number: int, late: int, offset: int) -> None:
        """Only a member in its current epoch may commit."""
        client = self.one(number)
        if client is None or client.epoch == 0:
            return
        group = next((each for each in self.world.shard.consumer_groups if each.group_id == client.group), None)
        member = None if group is None else group.member(client.member_id)
        epoch = client.epoch - late
        error = self.world.commit(offset, member_id=client.member_id, generation=epoch, group=client.group)
        if member is not None:
            assert error == ("NONE" if member.epoch == epoch else "STALE_MEMBER_EPOCH")
        elif group is not None and (epoch >= 0 or not group.is_empty):
            assert error == "UNKNOWN_MEMBER_ID"

    # --- topics, administrators, the shard itself ----------------------------------------------------------------

    @rule(name=NAMES, partitions=st.integers(1, 6))
    def change_topic(self, name: str, partitions: int) -> None:
        """The topic is created, or grows."""
        topics = self.world.topics
        if name not in topics.topic_ids:
            topics.create(name, partitions)
            self.world.change(name)
        elif partitions > len(topics.topics[topics.topic_ids[name]].partitions):
            topics.add_partitions(name, partitions)
            self.world.change(name, has_other_names=False)

    @rule(name=NAMES)
    def delete_topic(self, name: str) -> None:
        if name in self.world.topics.topic_ids:
            self.world.topics.delete(name)
            self.world.change(name)
            self.world.carry_out(*self.world.shard.topics_deleted(self.world.now, [name]))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        if self.world.delete_group(group) == "NONE":
            self.forget(group)

    @rule()
    def expire(self) -> None:
        self.world.expire()
        left = {group.group_id for group in self.world.shard.consumer_groups}
        for group in self.epochs.keys() - left:
            self.forget(group)

    def forget(self, group: str) -> None:
        self.epochs.pop(group, None)
        self.member_epochs = {key: epoch for key, epoch in self.member_epochs.items() if key[0] != group}

    @rule(ms=PAUSES_MS)
    def pause(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def reload(self) -> None:
        self.world.reload()

    # --- what must always hold -----------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        for group in self.world.shard.consumer_groups:
            owners: dict[tuple[int, int], str] = {}
            for (group_id, member_id), owned in self.world.owned.items():
                if group_id == group.group_id and group.member(member_id) is not None:
                    for partition in owned:
                        assert owners.setdefault(partition, member_id) == member_id, partition

    @invariant()
    def epochs_never_go_back(self) -> None:
        for group in self.world.shard.consumer_groups:
            assert group.epoch >= self.epochs.get(group.group_id, 0)
            self.epochs[group.group_id] = group.epoch
            for member in group.members:
                key = (group.group_id, member.member_id)
                assert member.is_away or member.epoch >= self.member_epochs.get(key, 0)
                self.member_epochs[key] = member.epoch
                assert member.epoch <= group.epoch

    @invariant()
    def a_loaded_shard_equals_this_one(self) -> None:
        for compacted in (False, True):
            loaded = self.world.replayed(compacted=compacted)
            assert contents(loaded) == contents(self.world.shard)

    @invariant()
    def timers_run_while_they_are_needed(self) -> None:
        for group in self.world.shard.consumer_groups:
            for member in group.members:
                assert ("consumer-session", group.group_id, member.member_id) in self.world.timers
                is_revoking = member.state.name == "UNREVOKED_PARTITIONS" and not member.is_away
                assert (("consumer-rebalance", group.group_id, member.member_id) in self.world.timers) == is_revoking

    def teardown(self) -> None:
        for _ in range(SETTLING_ROUNDS):
            for client in self.clients:
                client.act()
            self.world.advance(HEARTBEAT_MS)
        for group in self.world.shard.consumer_groups:
            self.expect_settled(group)
        self.clients.clear()
        self.world.advance(100_000)
        assert all(group.is_empty for group in self.world.shard.consumer_groups)
        assert not self.world.timers

    def expect_only_what_is_wanted(self, client: Consumer) -> None:
        """A member that has just sent a heartbeat has nothing of other topics, unless it is to give them up: also while the
        target assignment is older than its subscription."""
        group = next((each for each in self.world.shard.consumer_groups if each.group_id == client.group), None)
        member = None if group is None else group.member(client.member_id)
        if group is None or member is None or self.world.settings.batch_bytes_max < LARGE_BATCH:
            return
        if member.state in (MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS) and not member.is_away:
            wanted = {self.world.topics.topic_ids.get(name) for name in group.topics_of(member)}
            assert member.assigned.keys() <= wanted

    def expect_settled(self, group: ConsumerGroup) -> None:
        clients = [each for each in self.clients if each.group == group.group_id and not each.has_failed]
        assert {each.member_id for each in clients} == {member.member_id for member in group.members}
        if not clients:
            return
        assert group.state.value == "Stable"
        assert all(each.epoch == group.epoch for each in clients)
        names = {name for client in clients for name in self.subscribed(client)}
        topics = self.world.topics
        wanted = sorted(
            (int.from_bytes(bytes(topics.topic_ids[name]), "big"), index)
            for name in names & topics.topic_ids.keys()
            for index in topics.topics[topics.topic_ids[name]].partitions
        )
        assert sorted((topic, index) for each in clients for topic, part in each.owned.items() for index in part) == wanted
        self.expect_nobody_is_left_out(clients)

    def expect_nobody_is_left_out(self, clients: list[Consumer]) -> None:
        """No client owns nothing while another one has several partitions of a topic that it wants."""
        if self.world.settings.batch_bytes_max < LARGE_BATCH:
            return
        for idle in (each for each in clients if not each.owned):
            for name in self.subscribed(idle) & self.world.topics.topic_ids.keys():
                number = int.from_bytes(bytes(self.world.topics.topic_ids[name]), "big")
                assert all(len(each.owned.get(number, ())) < 2 for each in clients)

    def subscribed(self, client: Consumer) -> set[str]:
        by_regex = {None: "", "[tu]": "tu", "u|v": "uv"}[client.regex]
        return {*client.topics, *by_regex}


def contents(shard: GroupShard) -> dict[str, Any]:
    """Returns everything of the consumer groups that is in the log."""
    return {
        group.group_id: (
            group.epoch,
            group.metadata_hash,
            group.target_epoch,
            group.assigned_ms,
            {member.member_id: member for member in group.members},
            dict(group.targets()),
            dict(group.resolved),
            set(group.subscribed_topics),
            group.state,
        )
        for group in shard.consumer_groups
    }


Machine.TestCase.settings = settings(examples(150), stateful_step_count=50)
TestConsumerGroups = pytest.mark.slow(Machine.TestCase)
