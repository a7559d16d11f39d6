"""Offsets of consumer groups: who may commit and read them, and when they go."""

import pytest

from broker.coordinator.core.consumer_group.consumer_member import LEAVING_STATIC_EPOCH
from broker.coordinator.core.consumer_group.group_log import apply
from broker.coordinator.core.result import Caller
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from common.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    OwnedTopicPartitions,
)
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld, topic_id
from tests.unit.broker.coordinator.core.group_world import CALLER

OLD_CLIENT = Caller("client", "/127.0.0.1", knows_missing_groups=False)
RETENTION_MS = 100_000
SESSION_MS = 45_000


def fetch_error(world: ConsumerWorld, member_id: str | None, epoch: int) -> str:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=topics)
    waiter = world.waiter()
    world.carry_out(world.shard.fetch_offsets(world.now, waiter, request))
    return ErrorCode(world.answer(waiter).error_code).name


@pytest.mark.parametrize(
    ("member_id", "epoch", "caller", "error"),
    [
        ("a", 3, CALLER, "NONE"),
        ("a", 2, CALLER, "STALE_MEMBER_EPOCH"),
        ("a", 4, CALLER, "STALE_MEMBER_EPOCH"),
        ("b", 2, CALLER, "UNKNOWN_MEMBER_ID"),
        ("", -1, CALLER, "UNKNOWN_MEMBER_ID"),
        ("a", 3, OLD_CLIENT, "UNSUPPORTED_VERSION"),
    ],
)
def test_commits_to_a_group_with_members(member_id: str, epoch: int, caller: Caller, error: str) -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.beat("a", 2, topics=["t", "u"], owned={1: [0, 1, 2, 3]})
    assert world.member("a").epoch == 3
    assert world.commit(7, member_id=member_id, generation=epoch, caller=caller) == error
    assert world.fetch(("t", 0)) == {("t", 0): 7 if error == "NONE" else -1}


def test_a_member_commits_what_it_keeps_also_in_an_earlier_epoch() -> None:
    """KIP-1251. A member may have sent its position before it heard of its new epoch. What it is to give up counts as kept
    until it says that it has; what it was given later does not."""
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1, 2, 3]})
    assert (world.member("a").epoch, world.numbers_of("a")) == (2, ([0, 1], [2, 3]))
    world.beat("a", 2, owned={1: [0, 1]})
    assert (world.member("a").epoch, world.numbers_of("a")) == (3, ([0, 1], []))
    assert world.commit_of("a", 2, {0: 10, 1: 11}) == "NONE"
    assert world.commit_of("a", 2, {0: 12, 2: 13}) == "STALE_MEMBER_EPOCH"
    assert world.commit_of("a", 4, {0: 12}) == "STALE_MEMBER_EPOCH"
    assert world.fetch() == {("t", 0): 10, ("t", 1): 11}
    world.beat("b", 3)
    assert world.numbers_of("b") == ([2, 3], [])
    assert world.commit_of("b", 2, {2: 20}) == "STALE_MEMBER_EPOCH"
    assert world.commit_of("b", 3, {2: 20}) == "NONE"
    world.reload()
    assert world.member("a").assignment_epochs == {topic_id(1): {0: 2, 1: 2}}


def test_a_partition_that_was_away_is_kept_from_its_return_on() -> None:
    """A position that was sent before the other member had the partition must not undo what that one has committed."""
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1, 2, 3]})
    world.beat("a", 2, owned={1: [0, 1]})
    world.beat("b", 3)
    assert world.commit_of("b", 3, {2: 20}) == "NONE"
    world.beat("b", -1)
    world.beat("a", 3)
    assert (world.member("a").epoch, world.numbers_of("a")) == (4, ([0, 1, 2, 3], []))
    assert world.commit_of("a", 2, {2: 5}) == "STALE_MEMBER_EPOCH"
    assert world.commit_of("a", 2, {0: 5}) == "NONE"
    assert world.fetch(("t", 2)) == {("t", 2): 20}


def test_a_static_member_that_comes_back_may_commit_at_once() -> None:
    world = ConsumerWorld()
    world.enter("a", instance="i")
    world.beat("a", LEAVING_STATIC_EPOCH, instance="i")
    assert world.commit_of("a", 2, {0: 5}) == "STALE_MEMBER_EPOCH"
    world.enter("a2", instance="i")
    assert world.member("a2").assignment_epochs == {topic_id(1): dict.fromkeys(range(4), 0)}
    assert world.commit_of("a2", 0, {0: 6}) == "NONE"


def test_a_record_without_epochs_counts_from_the_epoch_of_its_member() -> None:
    """Such are those of older releases."""
    world = ConsumerWorld()
    world.enter("a")
    group, member = world.consumer_group(), world.member("a")
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    for epochs in (None, [7]):
        owned = OwnedTopicPartitions(topic_id=topic_id(1), partitions=[0, 1], assignment_epochs=epochs)
        apply(group, key, ConsumerGroupCurrentMemberAssignmentValue(member_epoch=1, assigned_partitions=[owned]))
        assert world.member("a").assignment_epochs == {topic_id(1): {0: 1, 1: 1}}
    assert member.epoch == 2


def test_a_commit_is_no_heartbeat() -> None:
    world = ConsumerWorld()
    world.enter("a")
    assert world.commit(7, member_id="a", generation=2) == "NONE"
    assert world.last_step.timers == []


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, "NONE"),
        ("a", 2, "NONE"),
        ("a", 0, "STALE_MEMBER_EPOCH"),
        ("b", 1, "UNKNOWN_MEMBER_ID"),
        (None, 1, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_who_may_read_offsets(member_id: str | None, epoch: int, error: str) -> None:
    world = ConsumerWorld()
    world.enter("a")
    assert fetch_error(world, member_id, epoch) == error


def test_an_empty_group_takes_commits_of_administrators() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.beat("a", -1)
    assert world.commit(7) == "NONE"
    assert world.fetch() == {("t", 0): 7}
    # The group is still a consumer group, and the offset is its own.
    assert world.listed(types=["consumer"]) == {"g": "Empty"}


def test_offsets_of_subscribed_topics_stay() -> None:
    """Also while the group is empty, the time counts from the commit, as in Kafka."""
    world = ConsumerWorld(offsets_retention_ms=RETENTION_MS)
    world.enter("a")
    world.commit(7, member_id="a", generation=2)
    world.commit(8, topic="u", member_id="a", generation=2)
    world.advance(SESSION_MS - 1)
    world.beat("a", 2)
    assert world.delete_offsets(("t", 0), ("u", 0)) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    world.commit(8, topic="u", member_id="a", generation=2)
    for _ in range(RETENTION_MS // SESSION_MS + 1):
        world.advance(SESSION_MS - 1)
        world.beat("a", 2)
    world.expire()
    assert world.fetch() == {("t", 0): 7}
    world.beat("a", -1)
    world.expire()
    assert world.fetch() == {}
    assert not world.shard.consumer_groups
    assert not world.replayed(compacted=True).consumer_groups


def test_an_empty_group_without_offsets_expires() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.expire()
    assert world.listed() == {"g": "Stable"}
    world.beat("a", -1)
    world.expire()
    assert world.listed() == {}
    assert not world.timers
