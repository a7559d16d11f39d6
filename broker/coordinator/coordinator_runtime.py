"""The partitions of an internal topic that this broker coordinates: a CoordinatorPartition for each that it leads (shell).

Counterpart of Kafka's CoordinatorRuntime. A key, such as the id of a group, belongs to the partition that it hashes to,
and its coordinator is the leader of that partition. `Replicas` calls `role_changed` for every replica whose role may have
changed, so the coordinator never looks for changes by itself.
"""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import ClassVar, Generic

from broker.coordinator.coordinator_partition import CoordinatorPartition, CoordinatorSettings, LoadCounts
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.core.result import MarkersDue
from broker.coordinator.shard import Operation, S
from broker.coordinator.waiting_request import WaitingRequest
from broker.hosting.partition import Partition
from common.environment.interface import Environment
from common.ids import DirectoryId, LeaderEpoch, TopicIdPartition
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode


class CoordinatorRuntime(Generic[S]):
    """See the module docstring."""

    # The name of the internal topic.
    topic: ClassVar[str]

    def __init__(
        self,
        env: Environment,
        state: MetadataState,
        settings: CoordinatorSettings,
        *,
        key_partitions: KeyPartitions,
        new_shard: Callable[[], S],
        task_group: asyncio.TaskGroup,
    ) -> None:
        self.load_counts = LoadCounts()
        self._env = env
        self._state = state
        self._settings = settings
        self._key_partitions = key_partitions
        self._new_shard = new_shard
        self._task_group = task_group
        # The partitions that this broker leads. Changes only in `role_changed`.
        self._partitions: dict[TopicIdPartition, CoordinatorPartition[S]] = {}
        self._suspected: Container[DirectoryId] = ()
        # The last leader epoch in which this broker led a partition that it no longer leads.
        self._former: dict[TopicIdPartition, LeaderEpoch] = {}

    def watch(self, suspected: SuspectedDirectories) -> None:
        """Makes every request get its answer although a directory hangs. Call it before the first partition is led."""
        assert not self._partitions
        self._suspected = suspected
        suspected.subscribe(self._directory_suspected)

    # --- what changes --------------------------------------------------------------------------------------------

    def _directory_suspected(self, directory_id: DirectoryId) -> None:
        for each in self._partitions.values():
            if each.partition.waits_for_any((directory_id,)):
                each.look_for_hung_directories()

    def role_changed(self, partition: Partition) -> None:
        """Loads or unloads a partition whose role may have changed. If it has not, the ISR may have."""
        if partition.topic != self.topic:
            return
        known = self._partitions.get(partition.key)
        if known is not None:
            if known.partition is partition and partition.is_leader and known.leader_epoch == partition.replica.leader_epoch:
                known.partition_changed()
                return
            del self._partitions[partition.key]
            self._former[partition.key] = known.leader_epoch
            known.close(ErrorCode.NOT_COORDINATOR)
            self._closed(known)
        if partition.is_leader:
            self._partitions[partition.key] = CoordinatorPartition(
                self._env,
                partition,
                self._settings,
                new_shard=self._new_shard,
                counts=self.load_counts,
                task_group=self._task_group,
                send_markers=self._markers_due,
                suspected=self._suspected,
            )

    def _closed(self, known: CoordinatorPartition[S]) -> None:
        """Hook for what goes with a partition that is no longer led."""

    def _markers_due(self, owner: CoordinatorPartition[S], due: MarkersDue) -> None:
        raise AssertionError(f"a shard of {self.topic} ends no transactions")

    # --- requests ------------------------------------------------------------------------------------------------

    def perform(self, key: str, waiting: WaitingRequest, operation: Operation[S]) -> None:
        """Carries out an operation on the shard of this key. Refuses the request if this broker is not the coordinator of
        the key, or not yet."""
        found = self._partition_of(key)
        if found is None:
            waiting.refuse(self._refusal_of(key))
        else:
            found.perform(waiting, operation)

    def loaded_and_loading(self) -> Sequence[CoordinatorPartition[S]]:
        """Returns all partitions that this broker coordinates, in the order of their numbers."""
        return sorted(self._partitions.values(), key=lambda each: each.partition.index)

    def leads_another(self, listed: Container[TopicIdPartition]) -> bool:
        """Whether this broker leads a partition that is not among these. Its replica is still being made, or its disk is
        lost and no other leader is elected yet."""
        topic_id = self._state.topic_ids.get(self.topic)
        return topic_id is not None and any(
            registration.leader == self._settings.broker_id and TopicIdPartition(topic_id, index) not in listed
            for index, registration in self._state.topics[topic_id].partitions.items()
        )

    def _partition_of(self, key: str) -> CoordinatorPartition[S] | None:
        found = self._key_partitions.find(self.topic, key)
        return None if found is None else self._partitions.get(found)

    def _refusal_of(self, key: str) -> ErrorCode:
        """Returns the error for a key whose partition is not led here. While the replica of a new leader is still being
        made, NOT_COORDINATOR would send the client away from the right broker (and crashes librdkafka's AdminClient). It is
        right if this broker has led in this very epoch: then its disk is lost, and another leader will be elected."""
        found = self._key_partitions.find(self.topic, key)
        partition = None if found is None else self._state.partition(*found)
        if found is None or partition is None:
            return ErrorCode.NOT_COORDINATOR
        has_led = self._former.get(found) == partition.leader_epoch
        if partition.leader != self._settings.broker_id or has_led:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
