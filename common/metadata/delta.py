"""The changes in a MetadataState since the delta was created (core).

Counterpart of Kafka's MetadataDelta, but the other way round: the state itself has already changed, and the delta keeps the
old values. A broker lets replay fill one delta with the changes of several commits, then updates its replicas accordingly
and starts a new delta.

Each key keeps its *first* old value, the value before the whole delta. A topic that was created and removed within one delta
does not appear at all. Removing a topic also removes its partitions from `changed_partitions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.ids import BrokerId, Offset, TopicId, TopicIdPartition
from common.metadata.registrations import BrokerRegistration, PartitionRegistration, Topic

# A configured resource: its type (ConfigResourceType) and its name.
ConfigResource = tuple[int, str]


@dataclass(slots=True)
class MetadataDelta:
    """The changed keys in order of their first change, mapped to their old values. None means the key did not exist."""

    # The created and changed partitions, except partitions of removed topics.
    changed_partitions: dict[TopicIdPartition, PartitionRegistration | None] = field(default_factory=dict)
    # The offset of the record that created each partition. For a partition from a snapshot, the lowest offset that the
    # record can have had. Invariant: the keys are the keys of `changed_partitions` whose old value is None.
    created_partitions: dict[TopicIdPartition, Offset] = field(default_factory=dict)
    # The topics that were created. The values are the new topics, because there is no old value.
    created_topics: dict[TopicId, Topic] = field(default_factory=dict)
    # The topics that were removed, each with the partitions that it had at that time.
    removed_topics: dict[TopicId, Topic] = field(default_factory=dict)
    changed_brokers: dict[BrokerId, BrokerRegistration | None] = field(default_factory=dict)
    # The resources whose configuration changed. An old value may be empty but is never None.
    changed_configs: dict[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    # The features whose finalized level changed. The old level is 0 if the feature was not finalized.
    changed_features: dict[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (
            self.changed_partitions
            or self.created_topics
            or self.removed_topics
            or self.changed_brokers
            or self.changed_configs
            or self.changed_features
        )

    def note_partition(self, key: TopicIdPartition, before: PartitionRegistration | None, offset: Offset) -> None:
        """Notes that the record at this offset created or changed the partition."""
        if key not in self.changed_partitions:
            self.changed_partitions[key] = before
            if before is None:
                self.created_partitions[key] = offset

    def note_removed_topic(self, topic: Topic) -> None:
        """Notes that the topic was removed, and drops everything noted about its partitions."""
        for partition in topic.partitions:
            key = TopicIdPartition(topic.id, partition)
            self.changed_partitions.pop(key, None)
            self.created_partitions.pop(key, None)
        if self.created_topics.pop(topic.id, None) is None:
            self.removed_topics[topic.id] = topic
