"""Keeps a MetadataState in step with the committed metadata log (shell).

The receiving end of the quorum driver on a controller; Kafka's QuorumMetaLogListener. On a standby it replays what is
committed, holding back the records of an open transaction. On the active controller the state is ahead of the log, because
operations replay their own records when they append them; a commit then only moves the position on. Easy to get wrong: a
state that has been ahead and lost the leadership cannot be taken back. It is dropped, and a new feed starts from the newest
snapshot.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from common.environment.interface import Environment
from common.ids import Offset
from common.metadata.state import MetadataState
from common.metadata.transactions import TransactionBuffer
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.raft.listener import LoadedSnapshot
from controller.event_queue import loop_turn

# Records replayed in one go while a snapshot is loaded.
SNAPSHOT_SLICE = 2_000


class MetadataFeed:
    """A MetadataListener for one state. Until `detach`, both callbacks hear what their names say, after the feed did."""

    def __init__(
        self,
        env: Environment,
        *,
        on_leader_change: Callable[["MetadataFeed", LeaderAndEpoch], None],
        on_commit: Callable[[Offset], None],
    ) -> None:
        self._env = env
        self._on_leader_change = on_leader_change
        self._on_commit = on_commit
        self._is_attached = True
        self.state = MetadataState()
        self.transactions = TransactionBuffer()
        # Set by the active controller: the state has these records already.
        self.is_ahead = False
        self.committed_offset = Offset(-1)
        self.committed_wall_ms = 0

    def detach(self) -> None:
        """Whatever still comes is ignored."""
        self._is_attached = False

    def handle_commit(self, batch: CommittedBatch) -> None:
        if not self._is_attached:
            return
        offset = batch.base_offset
        for record in batch.records:
            ready = self.transactions.feed(record, offset)
            if not self.is_ahead:
                for applied, applied_offset in ready:
                    self.state.replay(applied, offset=applied_offset)
            offset = Offset(offset + 1)
        self.committed_offset = batch.last_offset
        self.committed_wall_ms = batch.append_time_ms
        self._on_commit(batch.last_offset)

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> Coroutine[Any, Any, None] | None:
        return self._load(snapshot) if self._is_attached else None

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        if self._is_attached:
            self._on_leader_change(self, leader)

    async def _load(self, snapshot: LoadedSnapshot) -> None:
        # The old state answers until the new one is complete.
        state = MetadataState()
        last_offset = Offset(snapshot.end_offset - 1)
        for number, record in enumerate(snapshot.records, start=1):
            state.replay(record, offset=last_offset)
            if number % SNAPSHOT_SLICE == 0:
                await loop_turn()
        self.state = state
        self.transactions.reset(last_offset)
        self.committed_offset = last_offset
        self.committed_wall_ms = snapshot.last_contained_timestamp
        self._env.log.info("metadata_snapshot_loaded", end_offset=snapshot.end_offset, epoch=snapshot.epoch)
