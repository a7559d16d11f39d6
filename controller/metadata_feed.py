"""Keeps a MetadataState in step with the committed metadata log (shell).

Counterpart of Kafka's QuorumMetaLogListener: the controller's listener at the quorum driver. On a standby it replays
committed records, but holds back those of an open transaction. On the active controller the state is already ahead of the
log, because operations replay their own records when they append them, so a commit only advances the position. A state that
is ahead cannot be rolled back, so when the controller loses leadership, the state is dropped and a new feed starts from the
newest snapshot.
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

# How many records of a snapshot are replayed before the event loop may run other tasks.
SNAPSHOT_SLICE = 2_000


class MetadataFeed:
    """A MetadataListener that keeps a single state. Calls the matching callback after it has processed an event, until
    `detach` is called."""

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
        # Whether this feed still processes events. Cleared by `detach`, never set again.
        self._is_attached = True
        # The metadata. On a standby it has all committed records except those of an open transaction; on the active
        # controller it may be ahead of the log. Replaced when a snapshot is loaded.
        self.state = MetadataState()
        # Holds back the records of an open transaction. Sees every committed record, even while `is_ahead`, so it always
        # knows whether a transaction is open.
        self.transactions = TransactionBuffer()
        # Whether the state already has each record before its commit is reported. Set when the controller becomes active,
        # never cleared: a feed that was ahead is dropped with its state.
        self.is_ahead = False
        # The last offset of the latest committed batch or loaded snapshot, and the time when the record at that offset was
        # appended.
        self.committed_offset = Offset(-1)
        self.committed_wall_ms = 0

    def detach(self) -> None:
        """Makes the feed ignore all further events."""
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
        # Build a new state, because loading yields to the event loop and the old state stays in use meanwhile.
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
