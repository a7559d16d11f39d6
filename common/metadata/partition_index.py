"""Indexes partitions by the brokers and directories of their replicas, by ISR member, and by leader (core).

The controller uses these indexes when a broker or a directory comes or goes. Counterpart of `brokersToIsrs` and
`directoriesToPartitions` in Kafka's ReplicationControlManager. The partitions being reassigned are indexed as well, like
Kafka's `reassigningTopics`. The returned lists are in insertion order, and an entry that changes moves to the end of its
index. So the order depends only on the records: all nodes that replayed the same records return the same lists.
"""

from collections.abc import Generator, Iterable

from common.ids import BrokerId, DirectoryId, TopicIdPartition
from common.metadata.registrations import PartitionRegistration

# A dict used as an ordered set.
_Partitions = dict[TopicIdPartition, None]


class PartitionIndex:
    """The indexes of one MetadataState. The state reports every partition that it adds, changes or removes."""

    __slots__ = ("_in_directory", "_led_by", "_reassigning", "_with_isr_member")

    def __init__(self) -> None:
        # Invariant of the first three indexes: no inner dict is empty, so a key is present only if it has a partition.

        # The partitions of each broker and directory. Invariant: a partition is listed under (replicas[i], directories[i])
        # for each of its replicas, even if the directory id is a reserved one.
        self._in_directory: dict[BrokerId, dict[DirectoryId, _Partitions]] = {}
        # The partitions by ISR member. Invariant: a partition is listed under each member of its ISR.
        self._with_isr_member: dict[BrokerId, _Partitions] = {}
        # The partitions by leader. Invariant: a partition is listed under its leader, or under NO_LEADER if it has none.
        self._led_by: dict[BrokerId, _Partitions] = {}
        # The partitions with a reassignment in progress.
        self._reassigning: _Partitions = {}

    # --- reading ------------------------------------------------------------------------------------------------
    def in_directory(self, broker_id: BrokerId, directory_id: DirectoryId) -> list[TopicIdPartition]:
        return list(self._in_directory.get(broker_id, {}).get(directory_id, ()))

    def directories_of(self, broker_id: BrokerId) -> list[DirectoryId]:
        return list(self._in_directory.get(broker_id, ()))

    def of_broker(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        """Lists the broker's partitions, directory by directory."""
        return [key for partitions in self._in_directory.get(broker_id, {}).values() for key in partitions]

    def with_isr_member(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        return list(self._with_isr_member.get(broker_id, ()))

    def led_by(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        return list(self._led_by.get(broker_id, ()))

    def leads_any(self, broker_id: BrokerId) -> bool:
        return broker_id in self._led_by

    def reassigning(self) -> list[TopicIdPartition]:
        return list(self._reassigning)

    def copy_in_slices(self) -> Generator[None, None, "PartitionIndex"]:
        """Copies the indexes. Yields after each slice; they must not change before the end."""
        copy = PartitionIndex()
        copy._reassigning = dict(self._reassigning)
        for broker_id, directories in self._in_directory.items():
            copied = copy._in_directory[broker_id] = {}
            for directory_id, partitions in directories.items():
                copied[directory_id] = dict(partitions)
                yield
        for broker_id, partitions in self._with_isr_member.items():
            copy._with_isr_member[broker_id] = dict(partitions)
            yield
        for broker_id, partitions in self._led_by.items():
            copy._led_by[broker_id] = dict(partitions)
            yield
        return copy

    # --- updating -----------------------------------------------------------------------------------------------
    def add(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        """Adds a new partition."""
        self._add_replicas(key, partition)
        _add(self._with_isr_member, partition.isr, key)
        self._led_by.setdefault(partition.leader, {})[key] = None
        if partition.is_reassigning:
            self._reassigning[key] = None

    def change(self, key: TopicIdPartition, before: PartitionRegistration, partition: PartitionRegistration) -> None:
        """Updates the indexes of a partition whose registration was `before`."""
        # Compare by identity, which is fast: equal tuples are nearly always the same object. If they are not, the needless
        # update only moves the entry to the end.
        if partition.replicas is not before.replicas or partition.directories is not before.directories:
            self._drop_replicas(key, before)
            self._add_replicas(key, partition)
        if partition.isr is not before.isr:
            _drop(self._with_isr_member, before.isr, key)
            _add(self._with_isr_member, partition.isr, key)
        if partition.leader != before.leader:
            _drop(self._led_by, (before.leader,), key)
            self._led_by.setdefault(partition.leader, {})[key] = None
        if partition.is_reassigning:
            self._reassigning[key] = None
        elif before.is_reassigning:
            del self._reassigning[key]

    def remove(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        """Removes a partition of a removed topic."""
        self._drop_replicas(key, partition)
        _drop(self._with_isr_member, partition.isr, key)
        _drop(self._led_by, (partition.leader,), key)
        self._reassigning.pop(key, None)

    def _add_replicas(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        index = self._in_directory
        for replica, directory_id in zip(partition.replicas, partition.directories, strict=True):
            directories = index.get(replica)
            if directories is None:
                index[replica] = {directory_id: {key: None}}
                continue
            partitions = directories.get(directory_id)
            if partitions is None:
                directories[directory_id] = {key: None}
            else:
                partitions[key] = None

    def _drop_replicas(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        for replica, directory_id in zip(partition.replicas, partition.directories, strict=True):
            directories = self._in_directory[replica]
            partitions = directories[directory_id]
            del partitions[key]
            if not partitions:
                del directories[directory_id]
                if not directories:
                    del self._in_directory[replica]


def _add(index: dict[BrokerId, _Partitions], brokers: Iterable[BrokerId], key: TopicIdPartition) -> None:
    for broker_id in brokers:
        partitions = index.get(broker_id)
        if partitions is None:
            index[broker_id] = {key: None}
        else:
            partitions[key] = None


def _drop(index: dict[BrokerId, _Partitions], brokers: Iterable[BrokerId], key: TopicIdPartition) -> None:
    for broker_id in brokers:
        partitions = index[broker_id]
        del partitions[key]
        if not partitions:
            del index[broker_id]
