"""Static members of consumer groups (KIP-345 in KIP-848): they go, come back under another id, and are fenced."""

import pytest

from broker.coordinator.core.result import TimerChange
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld

SESSION_MS = 45_000


def two_members(world: ConsumerWorld) -> None:
    """Member a, whose instance id is one, has partitions 0 and 1; member b has the others. Both are in epoch 2."""
    world.enter("a", instance="one")
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1]}, instance="one")
    world.beat("b", 3, owned={})
    assert world.consumer_group().state.value == "Stable"


def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    """Nobody is told of anything, and it takes up its assignment under its new id."""
    world = ConsumerWorld()
    two_members(world)
    answer = world.beat("a", -2, instance="one")
    assert (answer.error_code, answer.member_epoch) == (0, -2)
    assert len(world.written) == 1
    assert world.member("a").is_away
    assert world.told(world.beat("b", 3)) == (3, None)
    assert world.told(world.enter("c", instance="one")) == (3, {1: [0, 1]})
    assert TimerChange(("consumer-session", "g", "a"), None) in world.last_step.timers
    assert world.consumer_group().member("a") is None
    assert world.consumer_group().epoch == 3
    assert world.refused(world.beat("a", 3, instance="one")) == "FENCED_INSTANCE_ID"
    assert world.refused(world.beat("a", 3)) == "UNKNOWN_MEMBER_ID"


def test_a_static_member_whose_join_was_not_answered_joins_again() -> None:
    """It gets what the lost answer gave it. Taken for another one that wants its instance id, the Java client would end."""
    world = ConsumerWorld()
    lost = world.told(world.enter("a", instance="one"))
    assert world.told(world.enter("a", instance="one")) == lost == (2, {1: [0, 1, 2, 3]})
    assert world.consumer_group().epoch == 2
    world.reload()
    assert world.told(world.beat("a", 2, owned={1: [0, 1, 2, 3]}, instance="one")) == (2, None)


def test_a_static_member_that_was_fenced_joins_again_with_its_id() -> None:
    world = ConsumerWorld()
    two_members(world)
    assert world.refused(world.beat("a", 2, owned={1: [2]}, instance="one")) == "FENCED_MEMBER_EPOCH"
    assert world.told(world.enter("a", instance="one")) == (3, {1: [0, 1]})
    assert world.refused(world.enter("c", instance="one")) == "UNRELEASED_INSTANCE_ID"


def test_a_static_member_that_stays_away_is_removed() -> None:
    world = ConsumerWorld()
    two_members(world)
    world.beat("a", -2, instance="one")
    world.advance(SESSION_MS - 1)
    world.beat("b", 3)
    world.advance(1)
    assert world.told(world.beat("b", 3, owned={1: [2, 3]})) == (4, {1: [0, 1, 2, 3]})
    assert world.told(world.enter("c", instance="one")) == (5, {})


def test_a_static_member_may_change_its_subscription_while_it_is_away() -> None:
    """It has nothing to revoke, because it has nothing."""
    world = ConsumerWorld()
    world.topics.create("u", 1)
    two_members(world)
    world.beat("a", -2, instance="one")
    assert world.told(world.enter("c", instance="one", topics=["u"])) == (4, {2: [0]})
    assert world.told(world.beat("b", 3, owned={1: [2, 3]})) == (4, {1: [0, 1, 2, 3]})


def test_a_member_that_leaves_while_it_must_revoke_has_revoked() -> None:
    world = ConsumerWorld()
    world.enter("a", instance="one")
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1, 2, 3]}, instance="one")
    world.beat("a", -2, instance="one")
    assert world.last_step.timers == [TimerChange(("consumer-rebalance", "g", "a"), None)]
    assert world.told(world.beat("b", 3, owned={})) == (3, {1: [2, 3]})
    world.reload()
    assert set(world.timers) == {("consumer-session", "g", "a"), ("consumer-session", "g", "b")}
    assert world.told(world.enter("c", instance="one")) == (3, {1: [0, 1]})


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance", "error"),
    [
        ("c", 0, "one", "UNRELEASED_INSTANCE_ID"),
        ("a", 0, "one", "NONE"),
        ("c", 3, "one", "FENCED_INSTANCE_ID"),
        ("c", -1, "one", "FENCED_INSTANCE_ID"),
        ("c", -2, "one", "FENCED_INSTANCE_ID"),
        ("a", 3, "two", "UNKNOWN_MEMBER_ID"),
        ("a", -2, "two", "UNKNOWN_MEMBER_ID"),
        ("a", 2, "one", "FENCED_MEMBER_EPOCH"),
        ("a", 3, "one", "NONE"),
        ("a", -1, "one", "NONE"),
    ],
)
def test_who_is_the_static_member(member_id: str, epoch: int, instance: str, error: str) -> None:
    world = ConsumerWorld()
    two_members(world)
    if epoch == 0:
        assert world.refused(world.enter(member_id, instance=instance)) == error
    else:
        assert world.refused(world.beat(member_id, epoch, instance=instance)) == error
