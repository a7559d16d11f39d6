"""When committed offsets expire (KIP-211), and groups with them."""

from broker.coordinator.core.group_shard import GroupShard
from common.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group,
    encode_key,
    encode_offset,
)
from tests.unit.broker.coordinator.core.group_world import SESSION_MS, GroupWorld

RETENTION_MS = 100_000


def world_with_short_retention() -> GroupWorld:
    return GroupWorld(offsets_retention_ms=RETENTION_MS)


def test_the_offsets_of_a_simple_group_expire_one_by_one() -> None:
    """Each after its own commit. The group goes with the last."""
    world = world_with_short_retention()
    world.commit(7)
    world.advance(10_000)
    world.commit(8, partition=1)
    world.advance(RETENTION_MS - 10_001)
    world.expire()
    assert len(world.log) == 2
    world.advance(1)
    world.expire()
    assert world.fetch() == {("t", 1): 8}
    assert world.listed() == {"g": "Empty"}
    world.advance(10_000)
    world.expire()
    assert world.listed() == {}
    assert len(world.shard.offsets) == 0
    assert not list(world.replayed().groups)


def test_a_new_commit_begins_the_retention_anew() -> None:
    world = world_with_short_retention()
    world.commit(7)
    world.advance(RETENTION_MS - 1)
    world.commit(8)
    world.advance(RETENTION_MS - 1)
    world.expire()
    assert world.fetch() == {("t", 0): 8}


def test_the_offsets_of_an_empty_group_expire_after_it_became_empty() -> None:
    """All at once, however old their commits are; also if the group was loaded meanwhile."""
    world = world_with_short_retention()
    (member_id,) = world.stable_group(1)
    world.commit(7, member_id=member_id, generation=1)
    for _ in range(2 * RETENTION_MS // 5_000):
        world.advance(5_000)
        world.heartbeat(member_id)
    world.commit(8, partition=1, member_id=member_id, generation=1)
    world.leave(member_id)
    world.advance(RETENTION_MS - 1)
    world.reload()
    world.expire()
    assert world.fetch() == {("t", 0): 7, ("t", 1): 8}
    world.advance(1)
    world.expire()
    assert world.listed() == {}


def test_a_group_with_members_keeps_the_offsets_of_its_topics() -> None:
    """Those of other topics expire after their commit."""
    world = world_with_short_retention()
    world.commit(7)
    world.commit(7, topic="u")
    (member_id,) = world.stable_group(1)
    for _ in range(RETENTION_MS // 5_000):
        world.advance(5_000)
        world.heartbeat(member_id)
    world.expire()
    assert world.fetch() == {("t", 0): 7}
    assert world.state() == "Stable"


def test_nothing_expires_during_a_rebalance() -> None:
    world = world_with_short_retention()
    world.commit(7, topic="u")
    world.advance(RETENTION_MS)
    world.join_with_new_id()
    world.expire()
    assert world.fetch() == {("u", 0): 7}
    world.end_initial_rebalance()
    world.expire()
    assert world.fetch() == {("u", 0): 7}


def test_nothing_expires_while_the_subscriptions_are_unknown() -> None:
    """Neither of consumers with unreadable metadata, nor of other clients."""
    for options in ({"protocols": {"range": b"?"}}, {"protocol_type": "connect"}):
        world = world_with_short_retention()
        world.commit(7, topic="u")
        world.advance(RETENTION_MS)
        world.stable_group(1, **options)
        world.expire()
        assert world.fetch() == {("u", 0): 7}


def test_an_offset_with_a_retention_time_of_its_own_expires_by_that() -> None:
    """Sooner or later than the others."""
    world = world_with_short_retention()
    world.commit(7, retention_ms=1_000)
    world.commit(8, partition=1, retention_ms=2 * RETENTION_MS)
    world.advance(999)
    world.expire()
    assert world.fetch() == {("t", 0): 7, ("t", 1): 8}
    world.advance(1)
    world.expire()
    assert world.fetch() == {("t", 1): 8}
    world.advance(2 * RETENTION_MS - 1_001)
    world.expire()
    assert world.fetch() == {("t", 1): 8}
    world.advance(1)
    world.expire()
    assert world.fetch() == {}


def test_an_empty_group_of_an_old_record_expires_by_its_commits() -> None:
    """Versions 0 and 1 of the group's record do not say since when it is empty."""
    world = world_with_short_retention()
    world.shard = GroupShard(world.settings)
    group = (
        encode_key(GroupMetadataKey(group="g")),
        encode_group(GroupMetadataValue(protocol_type="consumer", protocol=None)),
    )
    value = OffsetCommitValue(offset=7, commit_timestamp=world.now_ms)
    offset = encode_key(OffsetCommitKey(group="g", topic="t")), encode_offset(value)
    for record in (group, offset):
        world.shard.replay(*record)
    world.advance(RETENTION_MS - 1)
    world.expire()
    assert world.fetch() == {("t", 0): 7}
    world.advance(1)
    world.expire()
    assert world.listed() == {}


def test_an_empty_group_without_offsets_is_removed_unless_somebody_is_about_to_join() -> None:
    world = world_with_short_retention()
    member_id = world.new_id()
    world.expire()
    assert world.listed() == {"g": "Empty"}
    world.advance(SESSION_MS)
    world.expire()
    assert world.listed() == {}
    assert world.error(world.join(member_id)) == "UNKNOWN_MEMBER_ID"
    assert not list(world.replayed().groups)
