"""What a quorum driver tells the part of the daemon that holds the metadata state.

Shell side of Kafka's RaftClient.Listener. All calls come on the loop, in offset order, and hold committed records only. Easy
to get wrong: `handle_leader_change` that names this node comes only after every record of earlier epochs was delivered, so
that whoever becomes the active controller starts with the complete state.
"""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Protocol

from common.ids import LeaderEpoch, Offset
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.records.metadata_records import KnownRecord


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """All there is before `end_offset`. `records` can be iterated once; each record is decoded when it is asked for."""

    end_offset: Offset
    epoch: LeaderEpoch
    last_contained_timestamp: int
    records: Iterable[KnownRecord]


class MetadataListener(Protocol):
    """The receiving end. An exception out of any of these is fatal for the daemon."""

    def handle_commit(self, batch: CommittedBatch) -> None:
        """The next batch. Control batches come too, without records."""

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> Awaitable[None] | None:
        """Replaces everything delivered before. What comes next waits until the awaitable, if there is one, is done."""

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Another leader, or none, or a new epoch."""
