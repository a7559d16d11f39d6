"""The committed offsets of the groups of a shard (core).

The values are those of the records. They are never changed in place.
"""

from collections.abc import Mapping, Set

from common.records.group_records import OffsetCommitKey, OffsetCommitValue

NO_OFFSETS: Mapping[str, Mapping[int, OffsetCommitValue]] = {}


class CommittedOffsets:
    """One offset for each group, topic and partition. It changes only by a commit, a delete or its expiry."""

    def __init__(self) -> None:
        # By group, topic and partition. Invariant: no dict in it is empty.
        self._by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        return self._by_group.get(group_id, NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def keys_of_group(self, group_id: str) -> list[OffsetCommitKey]:
        return [
            OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]

    def take_topics(self, names: Set[str]) -> list[tuple[str, str, Mapping[int, OffsetCommitValue]]]:
        """Removes all offsets of these topics. Returns them by group and topic."""
        taken: list[tuple[str, str, Mapping[int, OffsetCommitValue]]] = []
        for group_id, topics in self._by_group.items():
            taken += [(group_id, topic, topics.pop(topic)) for topic in sorted(topics.keys() & names)]
        for group_id, _, partitions in taken:
            self._count -= len(partitions)
            if not self._by_group.get(group_id, True):
                del self._by_group[group_id]
        return taken

    def put(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        partitions = self._by_group.setdefault(key.group, {}).setdefault(key.topic, {})
        self._count += key.partition not in partitions
        partitions[key.partition] = value

    def remove(self, key: OffsetCommitKey) -> None:
        """Removes the offset, if there is one."""
        topics = self._by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group]
