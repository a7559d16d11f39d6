"""OffsetCommit: who may commit in which state, and what is stored."""

import pytest

from common.ids import Uuid
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.records.group_records import OffsetCommitKey, OffsetCommitValue, decode_key, decode_offset
from tests.unit.broker.coordinator.core.group_world import CALLER, OLD_CALLER, SESSION_MS, GroupWorld

TOPIC_ID = Uuid(b"0123456789abcdef")


def test_a_commit_is_written_and_read_back() -> None:
    world = GroupWorld()
    assert world.commit(7, metadata="m", leader_epoch=3, topic_id=TOPIC_ID) == "NONE"
    ((key, value),) = world.log
    assert value is not None
    assert decode_key(key) == OffsetCommitKey(group="g", topic="t", partition=0)
    written = OffsetCommitValue(offset=7, leader_epoch=3, metadata="m", commit_timestamp=world.now_ms, topic_id=TOPIC_ID)
    assert decode_offset(value) == written
    assert world.fetch(("t", 0)) == {("t", 0): 7}


def test_a_commit_of_nobody_makes_a_simple_group() -> None:
    """Also under the empty group id, which old clients may use."""
    world = GroupWorld()
    assert world.commit(7) == "NONE"
    assert world.commit(8, group="") == "NONE"
    assert world.listed() == {"g": "Empty", "": "Empty"}
    assert world.describe().protocol_type == ""


def test_a_later_commit_replaces_the_offset_even_by_a_smaller_one() -> None:
    world = GroupWorld()
    for offset in (7, 5):
        world.commit(offset)
    assert world.fetch() == {("t", 0): 5}
    assert len(world.shard.offsets) == 1


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("PreparingRebalance", "NONE"),
        ("CompletingRebalance", "REBALANCE_IN_PROGRESS"),
        ("Stable", "NONE"),
        ("Empty", "UNKNOWN_MEMBER_ID"),
    ],
)
def test_members_commit_in_each_state(state: str, error: str) -> None:
    """A member may still commit when the group prepares to rebalance, but not before it knows its assignment."""
    world = GroupWorld()
    leader, follower = world.completing_group() if state == "CompletingRebalance" else world.stable_group()
    if state == "PreparingRebalance":
        world.join(leader)
    if state == "Empty":
        world.leave(leader, follower)
    assert world.commit(7, member_id=follower, generation=1) == error
    assert world.fetch(("t", 0)) == {("t", 0): 7 if error == "NONE" else -1}


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        ("follower", 0, "ILLEGAL_GENERATION"),
        ("follower", 2, "ILLEGAL_GENERATION"),
        ("follower", -1, "ILLEGAL_GENERATION"),
        ("stranger", 1, "UNKNOWN_MEMBER_ID"),
        ("stranger", -1, "UNKNOWN_MEMBER_ID"),
        ("", 1, "UNKNOWN_MEMBER_ID"),
        ("", -1, "UNKNOWN_MEMBER_ID"),
    ],
)
@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_group_with_members_takes_commits_only_from_them(state: str, member: str, generation: int, error: str) -> None:
    world = GroupWorld()
    leader, follower = world.completing_group() if state == "CompletingRebalance" else world.stable_group()
    if state == "PreparingRebalance":
        world.join(leader)
    records = len(world.log)
    member_id = follower if member == "follower" else member
    assert world.commit(7, member_id=member_id, generation=generation) == error
    assert len(world.log) == records


def test_an_administrator_commits_for_an_empty_group() -> None:
    world = GroupWorld()
    members = world.stable_group()
    world.leave(*members)
    assert world.commit(7) == "NONE"
    assert world.commit(8, member_id="anybody") == "NONE"


def test_a_member_of_a_group_that_does_not_exist_cannot_commit() -> None:
    world = GroupWorld()
    assert world.commit(7, member_id="m", generation=1) == "GROUP_ID_NOT_FOUND"
    assert world.commit(7, member_id="m", generation=1, caller=OLD_CALLER) == "ILLEGAL_GENERATION"
    assert world.listed() == {}


def test_commits_keep_a_member_alive() -> None:
    world = GroupWorld()
    (member_id,) = world.stable_group(1)
    for offset in range(3):
        world.advance(SESSION_MS - 1)
        assert world.commit(offset, member_id=member_id, generation=1) == "NONE"
    assert world.state() == "Stable"


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (None, "NONE"),
        ("x" * 10, "NONE"),
        ("x" * 11, "OFFSET_METADATA_TOO_LARGE"),
        ("\U0001f600" * 5, "NONE"),
        ("\U0001f600" * 6, "OFFSET_METADATA_TOO_LARGE"),
    ],
)
def test_metadata_is_limited_as_java_counts_it(metadata: str | None, error: str) -> None:
    """A character beyond the basic plane counts twice."""
    world = GroupWorld(offset_metadata_max_bytes=10)
    assert world.commit(7, metadata=metadata) == error
    assert len(world.log) == (error == "NONE")


def test_null_metadata_is_stored_as_empty() -> None:
    world = GroupWorld()
    world.commit(7, metadata=None)
    stored = world.shard.offsets.get("g", "t", 0)
    assert stored is not None
    assert stored.metadata == ""


def test_each_partition_has_its_own_result() -> None:
    """One with too much metadata does not keep the others from being stored."""
    world = GroupWorld(offset_metadata_max_bytes=10)
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 11),
        OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata="x"),
    ]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    waiter = world.waiter()
    world.carry_out(world.shard.commit_offsets(world.now, waiter, CALLER, request))
    (topic,) = world.answer(waiter).topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 12), (1, 0)]
    assert world.fetch() == {("t", 1): 2}


def errors_of_commit(world: GroupWorld, partitions: int, metadata: str = "") -> set[int]:
    asked = [OffsetCommitRequestPartition(partition_index=each, committed_metadata=metadata) for each in range(partitions)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=asked)])
    waiter = world.waiter()
    world.carry_out(world.shard.commit_offsets(world.now, waiter, CALLER, request))
    return {each.error_code for each in world.answer(waiter).topics[0].partitions}


@pytest.mark.parametrize(("partitions", "metadata"), [(11, ""), (10, "m")])
def test_a_commit_that_does_not_fit_one_batch_stores_nothing(partitions: int, metadata: str) -> None:
    """A record takes 72 bytes and its metadata, and a batch 61."""
    world = GroupWorld(batch_bytes_max=10 * 72 + 61)
    assert errors_of_commit(world, partitions, metadata) == {28}
    assert world.log == []
    assert world.listed() == {}
    assert errors_of_commit(world, 10) == {0}
    assert len(world.log) == 10


def test_more_offsets_than_fit_any_batch_are_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """That took half a second for 100,000 of them."""
    monkeypatch.delattr("broker.coordinator.core.offset_commit.encode_key")
    assert errors_of_commit(GroupWorld(), 100_000) == {28}


def test_a_retention_time_beyond_all_times_is_kept_as_for_ever() -> None:
    world = GroupWorld()
    assert world.commit(7, retention_ms=2**63 - 1) == "NONE"
    ((_, value),) = world.log
    assert value is not None
    assert decode_offset(value).expire_timestamp == 2**63 - 1


def test_a_retention_time_of_its_own_is_kept_with_the_offset() -> None:
    """Such a record has no room for the leader epoch and the topic id, so the shard does not keep them either."""
    world = GroupWorld()
    world.commit(7, retention_ms=5_000, leader_epoch=3, topic_id=TOPIC_ID)
    expected = OffsetCommitValue(offset=7, commit_timestamp=world.now_ms, expire_timestamp=world.now_ms + 5_000)
    assert world.shard.offsets.get("g", "t", 0) == expected
    assert world.replayed().offsets.get("g", "t", 0) == expected
