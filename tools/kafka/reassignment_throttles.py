"""The throttles of a reassignment: which replicas and brokers they are set on, and how they are removed (core, KIP-73).

`--throttle` is for replication between brokers only: the replicas that data comes from are throttled as leaders, those that
it goes to as followers. Moves between the directories of a broker have a rate of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from admin.configs import ConfigChange, ConfigResource, ResourceType
from admin.partitions import TopicPartition
from admin.reassignments import PartitionReassignment
from common.protocol.messages.incremental_alter_configs import ConfigOperation

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

Changes = Mapping[ConfigResource, Sequence[ConfigChange]]


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """The brokers that the data of a partition comes from, and those that it goes to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def partition_moves(
    targets: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, PartitionReassignment],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, PartitionMove]:
    """Returns the moves of these targets, and of all reassignments in progress: the lists of throttled replicas are set as a
    whole, so a topic's other moves would lose their throttle."""
    moves = {
        partition: PartitionMove(frozenset(each.replicas) - frozenset(each.adding_replicas), frozenset(each.adding_replicas))
        for partition, each in ongoing.items()
    }
    for partition, target in targets.items():
        # While the partition is being reassigned, its current replicas include those that have no data yet.
        sources = moves[partition].sources if partition in moves else frozenset(current[partition])
        moves[partition] = PartitionMove(sources, frozenset(target) - sources)
    return moves


def topic_throttles(moves: Mapping[TopicPartition, PartitionMove]) -> Changes:
    """Returns the changes that name the throttled replicas of each topic."""
    changes = {}
    for topic in sorted({partition.topic for partition in moves}):
        own = [(partition.partition, move) for partition, move in moves.items() if partition.topic == topic]
        leaders = {f"{index}:{broker_id}" for index, move in own for broker_id in move.sources}
        followers = {f"{index}:{broker_id}" for index, move in own for broker_id in move.destinations}
        changes[ConfigResource(ResourceType.TOPIC, topic)] = [
            ConfigChange(LEADER_REPLICAS, ConfigOperation.SET, ",".join(sorted(leaders))),
            ConfigChange(FOLLOWER_REPLICAS, ConfigOperation.SET, ",".join(sorted(followers))),
        ]
    return changes


def broker_throttles(broker_ids: Iterable[int], names: Iterable[str], rate: int) -> Changes:
    """Returns the changes that set these rates on brokers, in bytes per second."""
    changes = [ConfigChange(name, ConfigOperation.SET, str(rate)) for name in names]
    return {_broker(broker_id): changes for broker_id in sorted(broker_ids)}


def without_broker_throttles(broker_ids: Iterable[int]) -> Changes:
    deleted = [ConfigChange(name, ConfigOperation.DELETE) for name in (LEADER_RATE, FOLLOWER_RATE, MOVE_RATE)]
    return {_broker(broker_id): deleted for broker_id in sorted(broker_ids)}


def without_topic_throttles(topics: Iterable[str]) -> Changes:
    deleted = [ConfigChange(name, ConfigOperation.DELETE) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
    return {ConfigResource(ResourceType.TOPIC, topic): deleted for topic in sorted(topics)}


def _broker(broker_id: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(broker_id))
