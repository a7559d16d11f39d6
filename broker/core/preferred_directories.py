"""The directories that clients prefer for replicas which are not here yet (core, KIP-113).

Counterpart of LogManager's preferredLogDirs. They are kept in memory only:

1. The preference for a replica of a topic that the metadata contains belongs to the topic id. It is dropped when the topic
   is deleted, so a new topic of the same name has none.
2. The preference for a replica of a topic or partition that is still to be created belongs to the name. The first log that
   is created here for the partition of that name uses it up.
3. A client can name any number of topics. Beyond `NAMES_MAX` preferences by name, the oldest one is forgotten.
"""

from common.ids import DirectoryId, TopicIdPartition
from common.metadata.state import MetadataState

NAMES_MAX = 10_000


class PreferredDirectories:
    """Remembers by the rules above. Reads the names of the topics in the applied metadata."""

    def __init__(self, state: MetadataState) -> None:
        self._state = state
        # Rule 1. Changes when: a client prefers, the log is created, or a decision finds that the topic is gone.
        self._by_id: dict[TopicIdPartition, DirectoryId] = {}
        # Rules 2 and 3, the oldest first. Changes when: a client prefers, or the log is created.
        self._by_name: dict[tuple[str, int], DirectoryId] = {}

    def of(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory in which the replica's log is to be created, if a client prefers one."""
        preferred = self._by_id.get(key)
        return self._by_name.get(self._named(key)) if preferred is None else preferred

    def prefer(self, key: TopicIdPartition, directory_id: DirectoryId | None) -> None:
        """Sets or, with None, drops the preference for a replica whose partition the metadata contains."""
        self.forget(key)
        if directory_id is not None:
            self._by_id[key] = directory_id

    def prefer_by_name(self, topic: str, partition: int, directory_id: DirectoryId | None) -> None:
        """Sets or, with None, drops the preference for a replica whose partition the metadata does not contain."""
        self._by_name.pop((topic, partition), None)
        if directory_id is not None:
            self._by_name[topic, partition] = directory_id
        if len(self._by_name) > NAMES_MAX:
            del self._by_name[next(iter(self._by_name))]

    def forget(self, key: TopicIdPartition) -> None:
        """Drops what is preferred for the replica, by its id or its name."""
        self._by_id.pop(key, None)
        self._by_name.pop(self._named(key), None)

    def partition_is_gone(self, key: TopicIdPartition) -> None:
        self._by_id.pop(key, None)

    def _named(self, key: TopicIdPartition) -> tuple[str, int]:
        topic = self._state.topics.get(key.topic_id)
        # No topic has an empty name.
        return "" if topic is None else topic.name, key.partition
