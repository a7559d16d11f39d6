"""A shard with consumer groups that is loaded from its log, whole or compacted."""

from dataclasses import replace

import pytest

from broker.coordinator.core.consumer_group.consumer_member import MemberState
from broker.coordinator.core.result import TimerChange
from common.protocol.errors import ProtocolError
from common.protocol.schema import Struct
from common.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    encode_consumer_key,
    encode_consumer_value,
)
from common.time_units import NS_PER_MS
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld
from tests.unit.broker.coordinator.core.group_world import REBALANCE_MS


def test_a_load_starts_the_sessions_and_the_time_to_revoke() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1, 2, 3]})
    world.advance(1_000)
    world.reload()
    assert world.last_step.timers == [
        TimerChange(("consumer-session", "g", "a"), (world.now_ms + 45_000) * NS_PER_MS),
        TimerChange(("consumer-rebalance", "g", "a"), (world.now_ms + REBALANCE_MS) * NS_PER_MS),
        TimerChange(("consumer-session", "g", "b"), (world.now_ms + 45_000) * NS_PER_MS),
    ]
    # Nobody has to do anything twice.
    assert world.told(world.beat("a", 2, owned={1: [0, 1]})) == (3, None)
    assert world.told(world.beat("b", 3, owned={})) == (3, {1: [2, 3]})


def test_a_load_sees_topics_that_have_changed_meanwhile() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.topics.add_partitions("t", 5)
    world.reload()
    assert world.told(world.beat("a", 2)) == (3, {1: [0, 1, 2, 3, 4]})


def test_a_log_that_ends_within_a_heartbeat_is_sound() -> None:
    """A heartbeat may take several batches, and the broker may die between any two of them."""
    for end in range(1, 12):
        world = ConsumerWorld()
        world.enter("a")
        world.enter("b")
        assert len(world.log) == 11
        del world.log[end:]
        world.reload()
        answers = [world.enter(member_id) for member_id in ("a", "b") for _ in range(2)]
        assert {world.refused(answer) for answer in answers} <= {"NONE", "FENCED_MEMBER_EPOCH"}
        for group in world.shard.consumer_groups:
            group.check()
            assert group.target_epoch == group.epoch


def test_an_epoch_that_no_group_has_reached_is_an_error() -> None:
    """The next epochs would leave 32 bits, and could not be written. A client may have written it, as __admin_client."""
    epoch = 2**31 - 1
    records: list[tuple[ConsumerGroupKey, Struct]] = [
        (ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=epoch)),
        (
            ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
        ),
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
            ConsumerGroupCurrentMemberAssignmentValue(member_epoch=epoch),
        ),
    ]
    for key, value in records:
        with pytest.raises(ProtocolError):
            ConsumerWorld().shard.replay(encode_consumer_key(key), encode_consumer_value(value))


def test_a_state_of_a_later_release_makes_the_member_rejoin() -> None:
    world = ConsumerWorld()
    world.enter("a")
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=1, previous_member_epoch=0, state=9)
    world.log.append((encode_consumer_key(key), encode_consumer_value(value)))
    world.reload()
    before = world.member("a")
    assert before.state is MemberState.UNKNOWN
    assert world.refused(world.beat("a", 1, owned={1: [0]})) == "FENCED_MEMBER_EPOCH"
    assert world.refused(world.beat("a", 1)) == "FENCED_MEMBER_EPOCH"
    assert world.member("a") == replace(before)
    assert world.told(world.beat("a", 1, owned={})) == (2, {1: [0, 1, 2, 3]})
