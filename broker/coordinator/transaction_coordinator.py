"""The transaction coordinator of a broker: the transactional ids of the led partitions of `__transaction_state` (shell).

Counterpart of Kafka's TransactionCoordinator, as far as it is not core. What it has in common with the group coordinator is
in `coordinator_runtime`. The coordinator epoch in a marker is the leader epoch of the transaction's partition.
"""

from collections.abc import Callable

from broker.coordinator.coordinator_partition import CoordinatorPartition
from broker.coordinator.coordinator_runtime import CoordinatorRuntime
from broker.coordinator.core.group_partition import TRANSACTION_STATE_TOPIC
from broker.coordinator.core.result import MarkersDue
from broker.coordinator.core.transactions.shard import TransactionShard

SendMarkers = Callable[[CoordinatorPartition[TransactionShard], MarkersDue], None]
DropMarkers = Callable[[CoordinatorPartition[TransactionShard]], None]


class TransactionCoordinator(CoordinatorRuntime[TransactionShard]):
    """See the module docstring. `attach` must be called before the first partition is led."""

    topic = TRANSACTION_STATE_TOPIC
    # None until `attach`.
    _send_markers: SendMarkers | None = None
    _drop_markers: DropMarkers | None = None

    def attach(self, *, send_markers: SendMarkers, drop_markers: DropMarkers) -> None:
        """Connects the coordinator with the sender of its markers, which needs the replicas, which need the coordinator."""
        self._send_markers = send_markers
        self._drop_markers = drop_markers

    def shard_of(self, transactional_id: str) -> TransactionShard | None:
        """Returns the loaded shard of this id, if this broker has it."""
        found = self._partition_of(transactional_id)
        return None if found is None else found.shard

    def _markers_due(self, owner: CoordinatorPartition[TransactionShard], due: MarkersDue) -> None:
        assert self._send_markers is not None
        self._send_markers(owner, due)

    def _closed(self, known: CoordinatorPartition[TransactionShard]) -> None:
        if self._drop_markers is not None:
            self._drop_markers(known)
