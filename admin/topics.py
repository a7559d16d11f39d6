"""Topics as an AdminClient shows them, and the requests about them (core)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from admin.partitions import TopicPartition
from common.ids import Uuid
from common.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from common.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from common.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Give either the two counts, which default to the cluster's, or the brokers of each partition."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    replicas_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as it was created. The counts are -1 if the caller may not see them."""

    topic_id: Uuid
    num_partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    topic_id: Uuid
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Counterpart of Kafka's TopicPartitionInfo."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    """Replicas on brokers that are fenced, and replicas in directories that are offline."""
    eligible_leader_replicas: tuple[int, ...] | None = None
    """None if the broker cannot say, because it does not serve DescribeTopicPartitions."""
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    """In the order of their numbers."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic, and the brokers of each added partition; None lets the controller choose the
    brokers."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


def partitions_request(wanted: Mapping[str, NewPartitions], *, timeout_ms: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=each.total_count,
                assignments=None
                if each.new_assignments is None
                else [CreatePartitionsAssignment(broker_ids=list(broker_ids)) for broker_ids in each.new_assignments],
            )
            for name, each in wanted.items()
        ],
        timeout_ms=timeout_ms,
    )


def create_request(topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(broker_ids))
                    for index, broker_ids in topic.replicas_assignments.items()
                ],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def topic_metadata(result: CreatableTopicResult) -> TopicMetadata:
    return TopicMetadata(result.topic_id, result.num_partitions, result.replication_factor)


def topic_listing(topic: MetadataResponseTopic) -> TopicListing:
    return TopicListing(topic.name or "", topic.topic_id, topic.is_internal)


def parts_request(names: Sequence[str], cursor: Cursor | None) -> DescribeTopicPartitionsRequest:
    """Asks for the partitions of the topics from the cursor on."""
    wanted = [name for name in names if cursor is None or name >= cursor.topic_name]
    return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in wanted], cursor=cursor)


def add_part(found: dict[str, DescribeTopicPartitionsResponseTopic], part: DescribeTopicPartitionsResponseTopic) -> None:
    """Adds what a response says about a topic to what the responses before it said."""
    name = part.name or ""
    before = found.get(name)
    if before is None or part.error_code != 0 or part.topic_id != before.topic_id:
        # A topic that was deleted or created again in the meantime is described as it is now.
        found[name] = part
    else:
        before.partitions += part.partitions


def topic_description(topic: MetadataResponseTopic | DescribeTopicPartitionsResponseTopic) -> TopicDescription:
    partitions = [_partition_description(each) for each in topic.partitions]
    partitions.sort(key=lambda each: each.partition)
    return TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions))


def leaders_of(topics: Iterable[TopicDescription]) -> dict[TopicPartition, int | None]:
    """Returns the leader of each partition, None if there is none."""
    return {TopicPartition(topic.name, each.partition): each.leader for topic in topics for each in topic.partitions}


def _partition_description(
    partition: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition,
) -> PartitionDescription:
    eligible: list[int] | None = None
    last_known: list[int] | None = None
    if isinstance(partition, DescribeTopicPartitionsResponsePartition):
        eligible, last_known = partition.eligible_leader_replicas, partition.last_known_elr
    return PartitionDescription(
        partition.partition_index,
        partition.leader_id if partition.leader_id >= 0 else None,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        None if eligible is None else tuple(eligible),
        None if last_known is None else tuple(last_known),
    )
