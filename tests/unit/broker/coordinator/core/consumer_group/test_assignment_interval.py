"""Assignments at intervals (KIP-1263): members that join or leave shortly after one another are assigned together."""

from typing import Any

import pytest

from common.configuration.group import GroupConfig
from tests.unit.broker.coordinator.core.consumer_group.classic_consumer import COOPERATIVE, ClassicConsumer
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import Consumer, ConsumerWorld
from tests.unit.broker.coordinator.core.group_world import GROUP

INTERVAL_MS = 1_000


def interval_world(**settings: Any) -> ConsumerWorld:
    world = ConsumerWorld(**settings)
    world.group_configs[GROUP] = GroupConfig(consumer_assignment_interval_ms=INTERVAL_MS)
    return world


def test_members_that_join_within_an_interval_are_assigned_together() -> None:
    """The first member gets everything at once. The others own nothing, in the epoch of that assignment, until it is old
    enough."""
    world = interval_world()
    assert world.told(world.enter("a")) == (2, {1: [0, 1, 2, 3]})
    world.advance(1)
    assert world.told(world.enter("b")) == (2, {})
    assert world.told(world.enter("c")) == (2, {})
    world.advance(INTERVAL_MS - 2)
    assert world.told(world.beat("c", 2)) == (2, None)
    group = world.consumer_group()
    assert (group.epoch, group.target_epoch, group.state.value) == (4, 2, "Assigning")
    world.advance(1)
    assert world.told(world.beat("b", 2)) == (4, None)
    assert (group.target_epoch, group.state.value) == (4, "Reconciling")
    assert sorted(len(each.get(world.topics.topic_ids["t"], ())) for each in group.targets().values()) == [1, 1, 2]


def test_a_change_after_the_interval_is_assigned_at_once() -> None:
    world = interval_world()
    world.enter("a")
    world.advance(INTERVAL_MS)
    world.enter("b")
    assert world.consumer_group().target_epoch == 3


def test_the_interval_can_be_changed_while_a_group_waits() -> None:
    world = interval_world()
    world.enter("a")
    world.enter("b")
    world.group_configs[GROUP] = GroupConfig(consumer_assignment_interval_ms=0)
    assert world.told(world.beat("b", 2))[0] == 3


def test_a_clock_that_was_set_back_stops_no_group() -> None:
    world = interval_world()
    world.enter("a")
    world.now_ms -= 3_600_000
    assert world.told(world.enter("b"))[0] == 3


def test_a_loaded_group_waits_for_the_rest_of_the_interval() -> None:
    world = interval_world()
    world.enter("a")
    world.enter("b")
    world.reload()
    assert world.told(world.beat("b", 2)) == (2, None)
    world.advance(INTERVAL_MS)
    assert world.told(world.beat("b", 2)) == (3, None)


def test_what_a_member_has_unsubscribed_from_it_gives_up_at_once() -> None:
    """It keeps the rest of the former assignment. No other member gets what it has given up before the next assignment."""
    world = interval_world()
    world.topics.create("u", 2)
    world.enter("a", topics=["t", "u"])
    owned = {1: [0, 1, 2, 3], 2: [0, 1]}
    assert world.told(world.beat("a", 2, topics=["u"], owned=owned)) == (2, {2: [0, 1]})
    assert world.told(world.beat("a", 2, owned={2: [0, 1]})) == (2, None)
    assert world.told(world.enter("b")) == (2, {})
    world.advance(INTERVAL_MS)
    assert world.told(world.beat("b", 2)) == (4, {1: [0, 1, 2, 3]})
    assert world.told(world.beat("a", 2)) == (4, None)


def test_a_static_member_that_comes_back_within_the_interval_has_what_it_had() -> None:
    world = interval_world()
    world.enter("a", instance="one")
    world.enter("b")
    world.beat("a", -2, instance="one")
    assert world.told(world.enter("c", instance="one")) == (2, {1: [0, 1, 2, 3]})


def test_the_last_assignment_of_a_group_counts_although_its_members_have_left() -> None:
    """As in Kafka: a consumer that restarts within the interval gets its partitions with a later heartbeat."""
    world = interval_world()
    world.enter("a")
    world.beat("a", -1)
    assert world.told(world.enter("b")) == (2, {})
    world.advance(INTERVAL_MS)
    assert world.told(world.beat("b", 2)) == (4, {1: [0, 1, 2, 3]})


def test_the_first_assignment_after_an_upgrade_does_not_wait() -> None:
    """The upgraded group starts with the assignment of the classic group's leader, whose age is not known."""
    world = interval_world(group_initial_rebalance_delay_ms=0)
    old, new = ClassicConsumer(world, COOPERATIVE), Consumer(world, "new")
    for _ in range(4):
        old.act()
        world.advance(10)
    new.act()
    group = world.consumer_group()
    assert group.target_epoch == group.epoch == 2


def test_classic_members_join_again_when_it_is_time_for_an_assignment() -> None:
    """Until then, their heartbeats and SyncGroups are answered as if nothing had changed."""
    world = interval_world()
    new, old = Consumer(world, "new"), ClassicConsumer(world, COOPERATIVE)
    new.act()
    for _ in range(3):
        old.act()
    assert (old.generation, old.owned) == (2, set())
    assert world.heartbeat(old.member_id, generation=2) == "NONE"
    world.advance(INTERVAL_MS)
    assert world.heartbeat(old.member_id, generation=2) == "REBALANCE_IN_PROGRESS"
    for _ in range(10):
        old.act()
        new.act()
    assert (len(old.owned), len(new.owned[1]), old.generation) == (2, 2, 3)


@pytest.mark.parametrize("state", ["Stable", "Assigning"])
def test_a_heartbeat_that_changes_nothing_writes_nothing(state: str) -> None:
    world = interval_world()
    world.enter("a")
    if state == "Assigning":
        world.enter("b")
    written = len(world.log)
    assert world.told(world.beat("a", 2)) == (2, None)
    assert world.consumer_group().state.value == state
    assert len(world.log) == written
