"""Which partition of its internal topic a group or a transactional id belongs to, on this broker (core).

As in Kafka, a key is hashed over the number of partitions that the topic had when this broker first published it. With the
present number, a topic that gets more partitions would give most keys another one at once, so the offsets of their groups
would seem lost, while the members would go on in the old partition. A broker that starts later takes the new number.
"""

from broker.coordinator.core.group_partition import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, group_partition
from common.ids import TopicId, TopicIdPartition
from common.metadata.state import MetadataState


class KeyPartitions:
    """See the module docstring. All its users within a broker must share one object."""

    def __init__(self, state: MetadataState) -> None:
        self._state = state
        # The id and the first published number of partitions of each internal topic, by name.
        self._first: dict[str, tuple[TopicId, int]] = {}

    def metadata_changed(self) -> None:
        """Notes the size of an internal topic that is new. Called with each published delta. What is replayed before the
        first one may be older than what other brokers started with."""
        for topic_name in (OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            first = self._size(topic_name)
            if first is not None:
                self._first[topic_name] = first

    def find(self, topic_name: str, key: str) -> TopicIdPartition | None:
        """Returns the partition of the key. None means that the topic does not exist yet."""
        size = self._size(topic_name)
        if size is None:
            return None
        topic_id, count = size
        return TopicIdPartition(topic_id, group_partition(key, count))

    def _size(self, topic_name: str) -> tuple[TopicId, int] | None:
        topic = self._state.topic_named(topic_name)
        if topic is None or not topic.partitions:
            return None
        first = self._first.get(topic_name)
        return first if first is not None and first[0] == topic.id else (topic.id, len(topic.partitions))
