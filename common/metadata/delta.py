"""What changed in a MetadataState since the delta was made (core).

Answers to Kafka's MetadataDelta, turned round: the state itself has moved on, and the delta keeps what was there before. A
broker makes one for each stretch of committed records, lets replay fill it, and then brings its replicas in line.

Easy to get wrong: each key keeps the *first* value seen, the one from before the whole delta. A topic that was created and
removed within one delta appears nowhere; a removed topic takes its partitions out of `changed_partitions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.ids import BrokerId, Offset, TopicId, TopicIdPartition
from common.metadata.registrations import BrokerRegistration, PartitionRegistration, Topic

# Resource type (ConfigResourceType) and name.
ConfigResource = tuple[int, str]


@dataclass(slots=True)
class MetadataDelta:
    """Insertion-ordered collections of what changed; values are what was there before, None for nothing."""

    changed_partitions: dict[TopicIdPartition, PartitionRegistration | None] = field(default_factory=dict)
    # The offset of the record that created the partition, or, after loading a snapshot, the lowest that it can have been.
    created_partitions: dict[TopicIdPartition, Offset] = field(default_factory=dict)
    created_topics: dict[TopicId, Topic] = field(default_factory=dict)
    # With the partitions that the topic had when it was removed.
    removed_topics: dict[TopicId, Topic] = field(default_factory=dict)
    changed_brokers: dict[BrokerId, BrokerRegistration | None] = field(default_factory=dict)
    changed_configs: dict[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    # Level 0 stands for a feature that was not finalized.
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
        """The partition was created or changed by the record of this offset."""
        if key not in self.changed_partitions:
            self.changed_partitions[key] = before
            if before is None:
                self.created_partitions[key] = offset

    def note_removed_topic(self, topic: Topic) -> None:
        """The topic is gone, with everything that was noted of its partitions."""
        for partition in topic.partitions:
            key = TopicIdPartition(topic.id, partition)
            self.changed_partitions.pop(key, None)
            self.created_partitions.pop(key, None)
        if self.created_topics.pop(topic.id, None) is None:
            self.removed_topics[topic.id] = topic
