"""A shard that is loaded from its log. That it equals the shard that wrote the log is a property test."""

import pytest

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.group_state import GroupState
from common.protocol.codec import encode_with_version
from common.protocol.errors import ProtocolError
from common.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group,
    encode_key,
    encode_offset,
)
from tests.unit.broker.coordinator.core.group_world import RANGE, REBALANCE_MS, SESSION_MS, GroupWorld

GROUP_KEY = encode_key(GroupMetadataKey(group="g"))
OFFSET_KEY = encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
OFFSET = encode_offset(OffsetCommitValue(offset=7))


def test_the_members_of_a_loaded_group_go_on() -> None:
    """They keep their generation and their assignment, and learn nothing of the reload."""
    world = GroupWorld()
    leader, follower = world.stable_group()
    world.reload()
    assert [world.heartbeat(each) for each in (leader, follower)] == ["NONE", "NONE"]
    assert world.synced(world.sync(follower)) == follower.encode()
    assert world.commit(7, member_id=follower, generation=1) == "NONE"


def test_the_sessions_of_loaded_members_begin_anew() -> None:
    """The members that are gone are noticed, and those that only had no coordinator for a while are not blamed."""
    world = GroupWorld()
    world.stable_group()
    world.now_ms += 10 * SESSION_MS
    world.reload()
    world.advance(SESSION_MS - 1)
    assert world.state() == "Stable"
    world.advance(1)
    assert world.state() == "Empty"


def test_a_rebalance_that_was_not_completed_is_forgotten() -> None:
    """Those who waited are sent away, and the former generation stands."""
    world = GroupWorld()
    leader, follower = world.stable_group()
    _, newcomer = world.join_with_new_id()
    waiter = world.join(leader)
    world.reload()
    assert [world.error(each) for each in (newcomer, waiter)] == ["NOT_COORDINATOR"] * 2
    assert world.heartbeat(follower) == "NONE"


def test_a_leader_that_is_not_the_eldest_leads_on() -> None:
    """The eldest is a static member that was away when the generation began."""
    world = GroupWorld()
    waiters = [world.join(instance=instance) for instance in ("one", "two")]
    world.end_initial_rebalance()
    members = [world.answer(waiter).member_id for waiter in waiters]
    world.assign(members)
    waiter = world.join(members[1], instance="two", protocols={"range": RANGE["range"] + b"new"})
    for _ in range(REBALANCE_MS // 5_000):
        world.heartbeat(members[0], instance="one")
        world.advance(5_000)
    assert world.answer(waiter).leader == members[1]
    world.sync(members[1])
    world.reload()
    assert world.group().leader_id == members[1]
    assert [member.member_id for member in world.group().members] == members


def test_records_of_later_groups_are_skipped() -> None:
    """Also a record without a key, which Kafka never writes there."""
    shard = GroupShard(GroupSettings())
    shard.replay(b"\x00\x0e\x00\x01g", b"\x00\x00anything")
    shard.replay(b"\x00\x0f\x00\x01g", None)
    shard.replay(None, b"anything")
    assert not list(shard.groups)


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\x00", b""), (OFFSET_KEY, b""), (OFFSET_KEY, b"\x00\x09"), (GROUP_KEY, b"\x00"), (GROUP_KEY + b"x", None)],
)
def test_a_malformed_record_is_an_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        GroupShard(GroupSettings()).replay(key, value)


@pytest.mark.parametrize(("ids", "instances"), [("aa", (None, None)), ("ab", ("i", "i"))])
def test_a_record_that_names_a_member_twice_is_an_error(ids: str, instances: tuple[str | None, ...]) -> None:
    """A client may have written it, as __admin_client."""
    members = [
        MemberMetadata(member_id=member_id, group_instance_id=instance, subscription=RANGE["range"])
        for member_id, instance in zip(ids, instances, strict=True)
    ]
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="a", members=members)
    with pytest.raises(ProtocolError):
        GroupShard(GroupSettings()).replay(GROUP_KEY, encode_group(value))


def test_a_generation_that_no_group_has_reached_is_an_error() -> None:
    """The next generations would leave 32 bits, and could not be written."""
    value = GroupMetadataValue(protocol_type="consumer", generation=2**31 - 1)
    with pytest.raises(ProtocolError):
        GroupShard(GroupSettings()).replay(GROUP_KEY, encode_group(value))


def test_offsets_without_a_group_make_a_simple_group() -> None:
    """Also if the group was deleted while it had offsets."""
    shard = GroupShard(GroupSettings())
    shard.replay(OFFSET_KEY, OFFSET)
    assert [(group.group_id, group.state, group.protocol_type) for group in shard.groups] == [("g", GroupState.EMPTY, None)]
    shard.replay(GROUP_KEY, encode_group(GroupMetadataValue(protocol_type="consumer", protocol=None, leader=None)))
    assert [group.protocol_type for group in shard.groups] == ["consumer"]
    shard.replay(GROUP_KEY, None)
    assert [group.protocol_type for group in shard.groups] == [None]
    assert len(shard.offsets) == 1


def test_a_tombstone_of_what_is_not_there_changes_nothing() -> None:
    """Its record may have been compacted away."""
    shard = GroupShard(GroupSettings())
    shard.replay(OFFSET_KEY, None)
    shard.replay(GROUP_KEY, None)
    assert not list(shard.groups)
    assert len(shard.offsets) == 0


def test_old_members_have_no_rebalance_timeout() -> None:
    """Version 0 of the record lacks it, and the session timeout stands in."""
    member = MemberMetadata(member_id="m", session_timeout=5_000, subscription=RANGE["range"])
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member])
    shard = GroupShard(GroupSettings())
    shard.replay(GROUP_KEY, encode_with_version(value, 0))
    (group,) = shard.groups
    assert (group.state, group.generation, group.leader_id) == (GroupState.STABLE, 4, "m")
    assert group.rebalance_timeout_ms == 5_000
    group.check()
