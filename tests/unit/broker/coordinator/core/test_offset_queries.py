"""OffsetFetch and OffsetDelete."""

import pytest

from broker.coordinator.core.group_shard import TOMBSTONES_AT_ONCE
from common.ids import Uuid
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from common.records.group_records import OffsetCommitKey, OffsetCommitValue, encode_key, encode_offset
from tests.unit.broker.coordinator.core.group_world import GroupWorld, subscription

TOPIC_ID = Uuid(b"0123456789abcdef")


def test_an_offset_comes_with_its_leader_epoch_and_metadata() -> None:
    """A partition without an offset is no error. The topic's id is handed back to the shell."""
    world = GroupWorld()
    world.commit(7, metadata="m", leader_epoch=3)
    topic = OffsetFetchRequestTopics(name="t", topic_id=TOPIC_ID, partition_indexes=[0, 1])
    waiter = world.waiter()
    request = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    world.carry_out(world.shard.fetch_offsets(world.now, waiter, request))
    expected = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, committed_leader_epoch=3, metadata="m"),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1, committed_leader_epoch=-1, metadata=""),
    ]
    assert world.answer(waiter) == OffsetFetchResponseGroup(
        group_id="g", topics=[OffsetFetchResponseTopics(name="t", topic_id=TOPIC_ID, partitions=expected)]
    )


def test_all_offsets_of_a_group_are_those_of_no_other() -> None:
    world = GroupWorld()
    for group, topic, partition in [("g", "t", 0), ("g", "t", 1), ("g", "u", 0), ("h", "v", 0)]:
        world.commit(7, group=group, topic=topic, partition=partition)
    assert world.fetch() == {("t", 0): 7, ("t", 1): 7, ("u", 0): 7}
    assert world.fetch(group="h") == {("v", 0): 7}


def test_a_group_that_does_not_exist_has_no_offsets() -> None:
    world = GroupWorld()
    assert world.fetch(("t", 0)) == {("t", 0): -1}
    assert world.fetch() == {}


def test_deleting_an_offset_writes_a_tombstone() -> None:
    """A partition without an offset needs none, and one that is named twice needs one."""
    world = GroupWorld()
    world.commit(7)
    world.commit(8, partition=1)
    assert world.delete_offsets(("t", 0), ("t", 0), ("t", 5)) == ["NONE", "NONE", "NONE"]
    assert [value for _, value in world.log[2:]] == [None]
    assert world.fetch() == {("t", 1): 8}
    assert world.replayed().offsets.get("g", "t", 0) is None


@pytest.mark.parametrize(("group", "error"), [("", "INVALID_GROUP_ID"), ("missing", "GROUP_ID_NOT_FOUND")])
def test_only_groups_that_exist_have_offsets_to_delete(group: str, error: str) -> None:
    assert GroupWorld().delete_offsets(("t", 0), group=group) == [error]


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_offsets_of_subscribed_topics_stay(state: str) -> None:
    """Topics to which no consumer of the group is subscribed may lose theirs."""
    world = GroupWorld()
    world.commit(7)
    world.commit(8, topic="u")
    leader, _ = world.completing_group() if state == "CompletingRebalance" else world.stable_group()
    if state == "PreparingRebalance":
        world.join(leader)
    assert world.delete_offsets(("t", 0), ("u", 0)) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    assert world.fetch() == {("t", 0): 7}


def test_an_empty_group_is_subscribed_to_nothing() -> None:
    world = GroupWorld()
    members = world.stable_group()
    world.leave(*members)
    world.commit(7)
    assert world.delete_offsets(("t", 0)) == ["NONE"]


def test_what_other_clients_read_is_unknown() -> None:
    """Groups of Connect workers and the like must be empty."""
    world = GroupWorld()
    world.commit(7)
    world.stable_group(protocol_type="connect", protocols={"sessioned": b""})
    assert world.delete_offsets(("t", 0)) == ["NON_EMPTY_GROUP"]


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\x00", b"\x00\x01", b"\xff\xff" + subscription("t")[2:], subscription("t")[:-6], b"\x00\x01\x7f\xff\xff\xff"],
)
def test_consumers_with_unreadable_metadata_may_read_any_topic(metadata: bytes) -> None:
    world = GroupWorld()
    world.commit(7, topic="u")
    world.stable_group(protocols={"range": metadata})
    assert world.group().subscribed_topics is None
    assert world.delete_offsets(("u", 0)) == ["GROUP_SUBSCRIBED_TO_TOPIC"]


def test_metadata_of_a_later_version_is_read() -> None:
    """Later versions append fields."""
    world = GroupWorld()
    world.stable_group(protocols={"range": b"\x00\x63" + subscription("t", "u")[2:] + b"later"})
    assert world.group().subscribed_topics == frozenset({"t", "u"})


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    """In all groups, subscribed or not."""
    world = GroupWorld()
    for group in ("g", "h"):
        world.commit(7, group=group, topic="t")
        world.commit(7, group=group, topic="u", partition=1)
    world.stable_group()
    world.carry_out(*world.shard.topics_deleted(world.now, ["t", "unknown"]))
    assert world.fetch() == world.fetch(group="h") == {("u", 1): 7}
    assert world.replayed().offsets.take_topics({"t"}) == []


def test_the_tombstones_of_a_topic_with_very_many_offsets_are_written_in_turns() -> None:
    """So the event loop is never held for all of them. The offsets themselves are gone at once, and a new topic of the name
    gets none before the last tombstone is written, which would delete it."""
    world = GroupWorld()
    count = 2 * TOMBSTONES_AT_ONCE + 1
    value = encode_offset(OffsetCommitValue(offset=7))
    for number in range(count):
        record = (encode_key(OffsetCommitKey(group=f"g{number % 2}", topic="t", partition=number)), value)
        world.log.append(record)
    world.reload()
    world.log.clear()
    world.carry_out(*world.shard.topics_deleted(world.now, ["t"]))
    assert world.fetch(group="g0") == world.fetch(group="g1") == {}
    assert len(world.log) == TOMBSTONES_AT_ONCE
    assert world.commit(8, group="g0") == "COORDINATOR_LOAD_IN_PROGRESS"
    assert world.commit(8, group="g0", topic="u") == "NONE"
    world.carry_out(*world.shard.topics_deleted(world.now, ["another"]))
    world.advance(0)
    assert not world.timers
    assert len({key for key, written in world.log if written is None}) == count
    assert world.commit(8, group="g0") == "NONE"
    assert world.fetch(group="g0") == {("t", 0): 8, ("u", 0): 8}


def test_tombstones_beyond_one_batch_come_in_further_steps() -> None:
    """The answer comes with the last of them."""
    world = GroupWorld(batch_bytes_max=500)
    for partition in range(50):
        world.commit(7, partition=partition)
    waiter = world.waiter()
    steps = world.shard.delete_group(world.now, waiter, "g")
    assert len(steps) > 3
    assert sum(len(step.records) for step in steps) == 51
    assert all(sum(len(record.key) for record in step.records) < 500 for step in steps)
    assert [len(step.answers) for step in steps] == [0] * (len(steps) - 1) + [1]
