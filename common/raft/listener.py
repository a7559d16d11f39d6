"""The interface through which a quorum driver passes committed metadata to its daemon.

Counterpart of Kafka's RaftClient.Listener. All calls happen on the event loop, in offset order, with committed records only.
The `handle_leader_change` that names this node itself comes only after every record of earlier epochs has been delivered, so
a new active controller starts with the complete state.
"""

from collections.abc import Awaitable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from common.ids import LeaderEpoch, Offset
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.records.metadata_records import KnownRecord


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A snapshot that covers every record before `end_offset`. `records` decodes lazily and can be iterated only once."""

    end_offset: Offset
    epoch: LeaderEpoch
    last_contained_timestamp: int
    records: Iterable[KnownRecord]


class MetadataListener(Protocol):
    """Receives the committed metadata. An exception from any of these methods is fatal for the daemon."""

    def handle_commit(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
        """Applies the next batch. Control batches are delivered too, without records. If it returns a coroutine, the next
        call waits for it. The coroutine is closed instead if the listener is unregistered before it has begun."""

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> Awaitable[None] | None:
        """Replaces everything delivered before. If it returns an awaitable, the next call waits for it."""

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Notes that the leader or the epoch has changed. `leader.leader_id` is None if no leader is known."""
