"""Reassignments of partitions to other brokers as an AdminClient shows and starts them (core, KIP-455)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from admin.partitions import TopicPartition, partitions_by_topic
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress."""

    replicas: tuple[int, ...]
    """All replicas, those that are being added or removed included."""
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


def alter_request(
    targets: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool, timeout_ms: int
) -> AlterPartitionReassignmentsRequest:
    """Returns the request for these replicas; None cancels the reassignment of a partition."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for partition, replicas in targets.items():
        wanted = None if replicas is None else list(replicas)
        reassignable = ReassignablePartition(partition_index=partition.partition, replicas=wanted)
        topics.setdefault(partition.topic, []).append(reassignable)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        allow_replication_factor_change=allow_replication_factor_change,
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def list_request(partitions: Iterable[TopicPartition] | None, *, timeout_ms: int) -> ListPartitionReassignmentsRequest:
    """Returns the request for these partitions, or for all."""
    topics = None
    if partitions is not None:
        by_topic = partitions_by_topic(partitions)
        topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=each) for name, each in by_topic.items()]
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)


def reassignments(response: ListPartitionReassignmentsResponse) -> dict[TopicPartition, PartitionReassignment]:
    return {
        TopicPartition(topic.name, each.partition_index): PartitionReassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }
