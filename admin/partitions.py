"""The types with which callers name partitions and replicas (core)."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionReplica:
    """The replica of a partition on a broker."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


def partitions_by_topic(partitions: Iterable[TopicPartition | TopicPartitionReplica]) -> dict[str, list[int]]:
    """Groups the partition numbers by topic. Topics and numbers keep the given order."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return topics
