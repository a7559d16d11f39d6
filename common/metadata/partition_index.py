"""Which partitions a broker or one of its directories has, which it is in sync for, and which it leads (core).

What the controller asks when a broker or a directory comes or goes. Kafka's ReplicationControlManager keeps the same in its
`brokersToIsrs` and `directoriesToPartitions`. Lists come back in insertion order, and an entry that changes goes to the end
of its index. So the order follows from the records alone: nodes that replayed the same ones list the same.
"""

from collections.abc import Iterable

from common.ids import BrokerId, DirectoryId, TopicIdPartition
from common.metadata.registrations import PartitionRegistration

# Used as an ordered set.
_Partitions = dict[TopicIdPartition, None]


class PartitionIndex:
    """Follows MetadataState: it is called for every partition that is added, changed or removed."""

    __slots__ = ("_in_directory", "_led_by", "_with_isr_member")

    def __init__(self) -> None:
        # Invariant, of all three: no inner dict is empty, so a key says that there is a partition.
        # Invariant: a partition stands under (replicas[i], directories[i]) for each of its replicas, reserved directory ids
        # included.
        self._in_directory: dict[BrokerId, dict[DirectoryId, _Partitions]] = {}
        # Invariant: a partition stands under each member of its ISR.
        self._with_isr_member: dict[BrokerId, _Partitions] = {}
        # Invariant: a partition stands under its leader. NO_LEADER is a key like any other.
        self._led_by: dict[BrokerId, _Partitions] = {}

    # --- reading ------------------------------------------------------------------------------------------------
    def in_directory(self, broker_id: BrokerId, directory_id: DirectoryId) -> list[TopicIdPartition]:
        return list(self._in_directory.get(broker_id, {}).get(directory_id, ()))

    def of_broker(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        """Directory by directory."""
        return [key for partitions in self._in_directory.get(broker_id, {}).values() for key in partitions]

    def with_isr_member(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        return list(self._with_isr_member.get(broker_id, ()))

    def led_by(self, broker_id: BrokerId) -> list[TopicIdPartition]:
        return list(self._led_by.get(broker_id, ()))

    def leads_any(self, broker_id: BrokerId) -> bool:
        return broker_id in self._led_by

    # --- following ----------------------------------------------------------------------------------------------
    def add(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        """A new partition."""
        self._add_replicas(key, partition)
        _add(self._with_isr_member, partition.isr, key)
        self._led_by.setdefault(partition.leader, {})[key] = None

    def change(self, key: TopicIdPartition, before: PartitionRegistration, partition: PartitionRegistration) -> None:
        """A partition that was `before`."""
        # Equal tuples are nearly always the same object; if not, indexing them again is merely work done twice.
        if partition.replicas is not before.replicas or partition.directories is not before.directories:
            self._drop_replicas(key, before)
            self._add_replicas(key, partition)
        if partition.isr is not before.isr:
            _drop(self._with_isr_member, before.isr, key)
            _add(self._with_isr_member, partition.isr, key)
        if partition.leader != before.leader:
            _drop(self._led_by, (before.leader,), key)
            self._led_by.setdefault(partition.leader, {})[key] = None

    def remove(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        """A partition of a topic that is removed."""
        self._drop_replicas(key, partition)
        _drop(self._with_isr_member, partition.isr, key)
        _drop(self._led_by, (partition.leader,), key)

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
