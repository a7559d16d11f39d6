"""Classic and consumer groups of the same id, and requests about either type."""

import pytest

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.result import Caller
from common.protocol.errors import ErrorCode
from common.protocol.messages.join_group import JoinGroupResponse
from common.records.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicMetadata,
    encode_consumer_key,
    encode_consumer_value,
)
from common.records.group_records import GroupMetadataKey, encode_key
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld

OLD_ADMIN = Caller("", "", knows_missing_groups=False)


def test_a_classic_group_whose_members_are_no_consumers_takes_none() -> None:
    """Its assignments are not those of consumers, so it cannot become a consumer group."""
    world = ConsumerWorld()
    (member,) = world.stable_group(1)
    assert world.refused(world.enter("a")) == "GROUP_ID_NOT_FOUND"
    assert world.refused(world.beat("a", 2)) == "GROUP_ID_NOT_FOUND"
    assert world.heartbeat(member) == "NONE"
    assert world.describe_consumers().error_message == "Group g is not a consumer group."


def test_a_consumer_group_takes_only_consumers() -> None:
    """It looks at the metadata of a new member only after it has given it an id, and names no id in a refusal, as Kafka."""
    world = ConsumerWorld()
    world.enter("a")
    assert world.error(world.join(protocol_type="connect")) == "INCONSISTENT_GROUP_PROTOCOL"
    assert world.error(world.join(protocols={})) == "INCONSISTENT_GROUP_PROTOCOL"
    first = world.join(protocols={"range": b"\x00"})
    assert world.error(first) == "MEMBER_ID_REQUIRED"
    second = world.join(world.answers[first].member_id, protocols={"range": b"\x00"})
    assert world.answers[second] == JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert world.error(world.sync("a", generation=1)) == "UNKNOWN_MEMBER_ID"
    assert world.heartbeat("a", generation=1) == "UNKNOWN_MEMBER_ID"
    assert world.told(world.beat("a", 2)) == (2, None)


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets() -> None:
    world = ConsumerWorld()
    (member,) = world.stable_group(1)
    world.commit(7, member_id=member, generation=1)
    world.leave(member)
    assert world.refused(world.beat("a", 2)) == "GROUP_ID_NOT_FOUND"
    # The generation goes on as the epoch: 1 was the member's, 2 the empty group's.
    assert world.told(world.enter("a")) == (3, {1: [0, 1, 2, 3]})
    assert world.written[0] == (GroupMetadataKey(group="g"), None)
    assert world.fetch() == {("t", 0): 7}
    for shard in (world.shard, world.replayed(), world.replayed(compacted=True)):
        assert not shard.groups
        assert [group.group_id for group in shard.consumer_groups] == ["g"]


def test_an_empty_consumer_group_becomes_a_classic_group_with_its_offsets() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.commit(7, member_id="a", generation=2)
    world.beat("a", -1)
    epoch = world.consumer_group().epoch
    world.stable_group(1)
    assert world.generation() == epoch + 1
    assert world.fetch() == {("t", 0): 7}
    for shard in (world.shard, world.replayed(), world.replayed(compacted=True)):
        assert [group.group_id for group in shard.groups] == ["g"]
        assert not shard.consumer_groups
    # Nothing of the former group is in the way of another change.
    world.change("t")


def test_a_group_of_committed_offsets_becomes_a_consumer_group() -> None:
    world = ConsumerWorld()
    world.commit(7)
    assert world.told(world.enter("a")) == (2, {1: [0, 1, 2, 3]})
    for shard in (world.replayed(), world.replayed(compacted=True)):
        assert not shard.groups
        assert [group.group_id for group in shard.consumer_groups] == ["g"]


def test_lists_by_type_and_state() -> None:
    world = ConsumerWorld()
    world.enter("a", group="new")
    world.stable_group(1)
    world.commit(1, group="simple")
    assert world.listed() == {"new": "Stable", "g": "Stable", "simple": "Empty"}
    assert world.listed(types=["Consumer"]) == {"new": "Stable"}
    assert world.listed(types=["classic"]) == {"g": "Stable", "simple": "Empty"}
    assert world.listed(types=["consumer"], states=["empty"]) == {}
    assert world.listed(states=["stable"]) == {"new": "Stable", "g": "Stable"}


@pytest.mark.parametrize(("caller", "error"), [(None, "GROUP_ID_NOT_FOUND"), (OLD_ADMIN, "NONE")])
def test_describe_groups_takes_a_consumer_group_for_dead(caller: Caller | None, error: str) -> None:
    world = ConsumerWorld()
    world.enter("a")
    described = world.describe() if caller is None else world.describe(caller=caller)
    assert described.group_state == "Dead"
    assert described.error_message == (None if caller else "Group g is not a classic group.")
    assert world.refused(described) == error  # type: ignore[arg-type]


def test_a_consumer_group_is_described() -> None:
    world = ConsumerWorld()
    world.enter("a", rack="r", instance="one")
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1, 2, 3]}, instance="one")
    described = world.describe_consumers()
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Reconciling", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (3, 3)
    shown = [
        (
            each.member_id,
            each.instance_id,
            each.rack_id,
            each.member_epoch,
            each.subscribed_topic_names,
            each.subscribed_topic_regex,
            [(part.topic_name, part.partitions) for part in each.assignment.topic_partitions],
            [(part.topic_name, part.partitions) for part in each.target_assignment.topic_partitions],
            each.member_type,
        )
        for each in described.members
    ]
    assert shown == [
        ("a", "one", "r", 2, ["t"], "", [("t", [0, 1, 2, 3])], [("t", [0, 1])], 1),
        ("b", None, None, 3, ["t"], "", [], [("t", [2, 3])], 1),
    ]
    world.topics.delete("t")
    assert world.describe_consumers().members[0].assignment.topic_partitions == []
    assert world.refused(world.describe_consumers("h")) == "GROUP_ID_NOT_FOUND"  # type: ignore[arg-type]
    assert world.refused(world.describe_consumers("")) == "INVALID_GROUP_ID"  # type: ignore[arg-type]


def test_a_consumer_group_is_deleted_when_it_is_empty() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.commit(7, member_id="a", generation=2)
    assert world.delete_group() == "NON_EMPTY_GROUP"
    world.beat("a", -1)
    assert world.delete_group() == "NONE"
    assert world.listed() == {}
    assert world.fetch() == {}
    for shard in (world.replayed(), world.replayed(compacted=True)):
        assert not shard.groups
        assert not shard.consumer_groups


def test_the_record_that_only_kafka_4_0_wrote_is_deleted() -> None:
    """It is read, and the next record of the group's epoch brings its tombstone."""
    world = ConsumerWorld()
    old_key = encode_consumer_key(ConsumerGroupPartitionMetadataKey(group_id="g"))
    old_value = ConsumerGroupPartitionMetadataValue(topics=[TopicMetadata(topic_name="t", num_partitions=4)])
    key, value = ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=5)
    world.log = [
        (encode_consumer_key(key), encode_consumer_value(value)),
        (old_key, encode_consumer_value(old_value)),
    ]
    world.shard = world.replayed()
    assert world.told(world.enter("a")) == (6, {1: [0, 1, 2, 3]})
    assert (old_key, None) in world.log
    assert not world.consumer_group().has_partition_metadata


def test_tombstones_without_a_group_are_nothing() -> None:
    """The cleaner may have left no more of a group that was deleted."""
    shard = GroupShard(GroupSettings())
    world = ConsumerWorld()
    world.enter("a", regex="t.*")
    world.advance(0)
    world.beat("a", -1)
    world.delete_group()
    for key, value in world.log:
        if value is None:
            shard.replay(key, None)
    assert not shard.groups
    assert not shard.consumer_groups
    assert encode_key(GroupMetadataKey(group="g")) not in {key for key, _ in world.log}
