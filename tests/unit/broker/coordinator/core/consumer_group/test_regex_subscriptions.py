"""Members that subscribe by a regular expression."""

from typing import Any

import pytest

from broker.coordinator.core.consumer_group.regex_resolution import REFRESH_INTERVAL_MS, TOPICS_AT_ONCE
from common.records.consumer_group_records import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld
from tests.unit.broker.coordinator.core.group_world import START_MS

RESOLUTION = ("regex-resolution", "g")
KEY = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*")


def test_a_member_gets_what_its_expression_matches() -> None:
    """At first it owns nothing. A moment later the topics are known, and its next heartbeat brings them."""
    world = ConsumerWorld()
    world.topics.create("other", 1)
    world.topics.create("two", 1)
    assert world.told(world.enter("a", regex="t.*")) == (1, {})
    assert world.timers[RESOLUTION] == START_MS * 1_000_000
    world.advance(0)
    value = ConsumerGroupRegularExpressionValue(topics=["t", "two"], version=0, timestamp=START_MS)
    assert world.written[0] == (KEY, value)
    assert RESOLUTION not in world.timers
    assert world.told(world.beat("a", 1, owned={})) == (2, {1: [0, 1, 2, 3], 3: [0]})
    assert world.delete_offsets(("two", 0), ("other", 0)) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    (loaded,) = world.replayed(compacted=True).consumer_groups
    assert loaded.resolved == {"t.*": {"t", "two"}}


def test_a_second_member_with_the_expression_need_not_wait() -> None:
    world = ConsumerWorld()
    world.enter("a", regex="t.*")
    world.advance(0)
    world.beat("a", 1, owned={})
    world.beat("b", 0, regex="t.*", owned={}, rebalance_ms=1_000)
    assert world.consumer_group().target("b") == {next(iter(world.topics.topics)): {2, 3}}
    assert RESOLUTION not in world.timers


@pytest.mark.parametrize("first", [{"topics": ["t"]}, {"regex": "t"}])
def test_members_that_name_a_topic_in_different_ways_share_it(first: dict[str, Any]) -> None:
    """The group reads no other topics when the second expression has been resolved, but for one more member."""
    world = ConsumerWorld()
    world.enter("a", **first)
    world.advance(0)
    world.beat("a", 1)
    world.enter("b", regex="t.*")
    world.advance(0)
    world.beat("b", world.member("b").epoch)
    assert sorted(len(each[world.topics.topic_ids["t"]]) for each in world.consumer_group().targets().values()) == [2, 2]


def test_an_expression_that_matches_nothing_moves_nothing() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b", regex="x.*")
    world.advance(0)
    assert world.consumer_group().epoch == world.consumer_group().target_epoch == 2


def test_new_topics_are_found_but_not_too_often() -> None:
    world = ConsumerWorld()
    world.enter("a", regex="t.*")
    world.advance(0)
    world.beat("a", 1, owned={})
    world.topics.create("two", 1)
    world.change("two")
    assert world.told(world.beat("a", 2)) == (2, None)
    world.advance(REFRESH_INTERVAL_MS - 1)
    world.beat("a", 2)
    assert RESOLUTION not in world.timers
    world.advance(1)
    world.beat("a", 2)
    world.advance(0)
    assert world.told(world.beat("a", 2)) == (3, {1: [0, 1, 2, 3], 2: [0]})
    # A change of a matched topic needs no resolution.
    world.topics.add_partitions("two", 2)
    world.change("two", has_other_names=False)
    assert world.told(world.beat("a", 3)) == (4, {1: [0, 1, 2, 3], 2: [0, 1]})


def test_many_topics_are_looked_at_in_turns() -> None:
    """So the event loop is never held for all of them."""
    world = ConsumerWorld()
    for number in range(2 * TOPICS_AT_ONCE):
        world.topics.create(f"topic{number}", 1)
    world.enter("a", regex="topic1.")
    turns = 0
    while RESOLUTION in world.timers:
        turns += 1
        del world.timers[RESOLUTION]
        world.carry_out(*world.shard.timer_fired(world.now, RESOLUTION))
    assert turns == 3
    epoch, assigned = world.told(world.beat("a", 1, owned={}))
    assert (epoch, len(assigned or {})) == (2, 10)


def test_a_resolution_ends_while_topics_are_created_all_the_time() -> None:
    """It looks at those that there were when it began. The others are found by the next one."""
    world = ConsumerWorld()
    for number in range(2 * TOPICS_AT_ONCE):
        world.topics.create(f"topic{number}", 1)
    world.enter("a", regex="topic1.")
    for name in [f"topic1{letter}" for letter in "abcdefghij"]:
        if RESOLUTION in world.timers:
            del world.timers[RESOLUTION]
            world.carry_out(*world.shard.timer_fired(world.now, RESOLUTION))
        world.topics.create(name, 1)
        world.change(name)
    epoch, assigned = world.told(world.beat("a", 1, owned={}))
    assert (epoch, len(assigned or {})) == (2, 10)
    world.advance(REFRESH_INTERVAL_MS)
    world.beat("a", 2)
    world.advance(0)
    epoch, assigned = world.told(world.beat("a", 2))
    assert (epoch, len(assigned or {})) == (3, 20)


def test_an_expression_that_matches_too_many_topics_for_a_record_is_refused() -> None:
    """An append that fails would take all groups of the partition with it. The member learns why it gets nothing."""
    world = ConsumerWorld(batch_bytes_max=1_000)
    for number in range(20):
        world.topics.create(f"topic-{number:0100}", 1)
    world.enter("a", regex="topic.*")
    world.advance(0)
    assert world.consumer_group().resolved == {"topic.*": frozenset()}
    assert world.refused(world.beat("a", 1)) == "INVALID_REGULAR_EXPRESSION"
    assert world.told(world.beat("a", 1, owned={}, topics=["t"], regex="")) == (2, {1: [0, 1, 2, 3]})


def test_an_expression_that_was_too_wide_is_resolved_again_when_topics_have_gone() -> None:
    world = ConsumerWorld(batch_bytes_max=1_000)
    names = [f"topic-{number:0100}" for number in range(20)]
    for name in names:
        world.topics.create(name, 1)
    world.enter("a", regex="topic.*")
    world.advance(0)
    assert world.refused(world.beat("a", 1)) == "INVALID_REGULAR_EXPRESSION"
    for name in names[1:]:
        world.topics.delete(name)
    world.change(*names[1:])
    world.advance(REFRESH_INTERVAL_MS)
    assert world.refused(world.beat("a", 1)) == "NONE"
    world.advance(0)
    assert world.told(world.beat("a", 1, owned={})) == (2, {2: [0]})


def test_an_expression_that_nobody_has_is_forgotten() -> None:
    """An empty text ends the subscription by an expression, and the names remain."""
    world = ConsumerWorld()
    world.enter("a", regex="t.*", topics=["t"])
    world.advance(0)
    assert world.told(world.beat("a", 2, regex="")) == (4, None)
    assert (KEY, None) in world.written
    assert world.consumer_group().resolved == {}
    assert world.refused(world.beat("a", 4, regex="[")) == "INVALID_REGULAR_EXPRESSION"
    assert world.told(world.beat("a", 4)) == (4, None)


def test_a_load_resolves_again() -> None:
    """Topics may have come and gone while nobody was looking."""
    world = ConsumerWorld()
    world.enter("a", regex="t.*")
    world.advance(0)
    world.beat("a", 1, owned={})
    world.topics.create("two", 1)
    world.reload()
    assert world.told(world.beat("a", 2)) == (2, None)
    world.advance(0)
    assert world.told(world.beat("a", 2)) == (3, {1: [0, 1, 2, 3], 2: [0]})
