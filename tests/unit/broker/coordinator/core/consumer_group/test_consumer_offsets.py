"""Offsets of consumer groups: who may commit and read them, and when they go."""

import pytest

from broker.coordinator.core.result import Caller
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld
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
        ("a", 2, CALLER, "NONE"),
        ("a", 1, CALLER, "STALE_MEMBER_EPOCH"),
        ("a", 3, CALLER, "STALE_MEMBER_EPOCH"),
        ("b", 2, CALLER, "UNKNOWN_MEMBER_ID"),
        ("", -1, CALLER, "UNKNOWN_MEMBER_ID"),
        ("a", 2, OLD_CLIENT, "UNSUPPORTED_VERSION"),
    ],
)
def test_commits_to_a_group_with_members(member_id: str, epoch: int, caller: Caller, error: str) -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.beat("a", 1, topics=["t", "u"], owned={1: [0, 1, 2, 3]})
    assert world.member("a").epoch == 2
    assert world.commit(7, member_id=member_id, generation=epoch, caller=caller) == error
    assert world.fetch(("t", 0)) == {("t", 0): 7 if error == "NONE" else -1}


def test_a_commit_is_no_heartbeat() -> None:
    world = ConsumerWorld()
    world.enter("a")
    assert world.commit(7, member_id="a", generation=1) == "NONE"
    assert world.last_step.timers == []


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, "NONE"),
        ("a", 1, "NONE"),
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
    world.commit(7, member_id="a", generation=1)
    world.commit(8, topic="u", member_id="a", generation=1)
    world.advance(SESSION_MS - 1)
    world.beat("a", 1)
    assert world.delete_offsets(("t", 0), ("u", 0)) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    world.commit(8, topic="u", member_id="a", generation=1)
    for _ in range(RETENTION_MS // SESSION_MS + 1):
        world.advance(SESSION_MS - 1)
        world.beat("a", 1)
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
