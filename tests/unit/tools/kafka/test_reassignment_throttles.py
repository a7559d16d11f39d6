"""Tests which replicas and brokers the throttles of a reassignment are set on."""

from admin.configs import ConfigChange, ConfigResource, ResourceType
from admin.partitions import TopicPartition
from admin.reassignments import PartitionReassignment
from common.protocol.messages.incremental_alter_configs import ConfigOperation
from tools.kafka import reassignment_throttles as throttles
from tools.kafka.reassignment_throttles import PartitionMove

T_0, T_1, U_0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def move(sources: set[int], destinations: set[int]) -> PartitionMove:
    return PartitionMove(frozenset(sources), frozenset(destinations))


def test_data_comes_from_the_replicas_that_have_it() -> None:
    """A partition that is being reassigned already keeps its sources, although its current replicas include the new ones.
    Reassignments in progress that are not in the file are throttled too."""
    ongoing = {
        T_1: PartitionReassignment((3, 1, 2), (3,), (1,)),
        U_0: PartitionReassignment((1, 2), (2,), ()),
    }
    moves = throttles.partition_moves({T_0: (2, 3), T_1: (1, 4)}, ongoing, {T_0: (1, 2), T_1: (3, 1, 2)})
    assert moves == {T_0: move({1, 2}, {3}), T_1: move({1, 2}, {4}), U_0: move({1}, {2})}


def test_the_throttled_replicas_of_a_topic_are_one_sorted_list() -> None:
    changes = throttles.topic_throttles({T_1: move({1, 2}, {4}), T_0: move({2}, {3, 1}), U_0: move({1}, set())})
    assert changes == {
        ConfigResource(ResourceType.TOPIC, "t"): [
            ConfigChange("leader.replication.throttled.replicas", ConfigOperation.SET, "0:2,1:1,1:2"),
            ConfigChange("follower.replication.throttled.replicas", ConfigOperation.SET, "0:1,0:3,1:4"),
        ],
        ConfigResource(ResourceType.TOPIC, "u"): [
            ConfigChange("leader.replication.throttled.replicas", ConfigOperation.SET, "0:1"),
            ConfigChange("follower.replication.throttled.replicas", ConfigOperation.SET, ""),
        ],
    }


def test_rates_are_set_and_removed_broker_by_broker() -> None:
    one, two = ConfigResource(ResourceType.BROKER, "1"), ConfigResource(ResourceType.BROKER, "2")
    rate = [ConfigChange("a.rate", ConfigOperation.SET, "7")]
    assert throttles.broker_throttles({2, 1}, ["a.rate"], 7) == {one: rate, two: rate}
    removed = throttles.without_broker_throttles([1])[one]
    assert {change.operation for change in removed} == {ConfigOperation.DELETE}
    assert [change.name for change in removed] == [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ]
