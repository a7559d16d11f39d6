"""Listeners of committed records and those who wait for a commit (shell).

Every listener has its own position. One that is *live* is called in the same step in which the high watermark moves; one
that is not (just registered, or a snapshot replaced the log) reads the log from the disk until it has caught up. Easy to
get wrong: between "nothing is missing" and "live" there may be no await, or a batch falls between the two.
"""

import asyncio
from heapq import heappop, heappush

from common.ids import BrokerId, Offset
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.raft.errors import NotLeader, QuorumFailure
from common.raft.listener import MetadataListener


class ListenerFeed:
    """One listener and how far it has come."""

    def __init__(self, listener: MetadataListener) -> None:
        self.listener = listener
        # Everything before has been delivered.
        self.next_offset = Offset(0)
        self.is_live = False
        # Set while the listener has to catch up from the disk.
        self.behind = asyncio.Event()
        self.behind.set()
        self._announced: LeaderAndEpoch | None = None

    def fall_behind(self) -> None:
        """What comes next is no longer in memory."""
        self.is_live = False
        self.behind.set()

    def become_live(self) -> None:
        self.behind.clear()
        self.is_live = True

    def deliver(self, batch: CommittedBatch) -> None:
        """Hands over the next batch. Raises whatever the listener raises."""
        if batch.base_offset != self.next_offset:
            raise QuorumFailure(f"the metadata log continues at {batch.base_offset}, the listener is at {self.next_offset}")
        self.listener.handle_commit(batch)
        self.next_offset = batch.next_offset

    def announce(self, leader: LeaderAndEpoch, *, node_id: BrokerId, epoch_start_offset: Offset | None) -> None:
        """Tells the leader, once. This node's own leadership waits until its first record was delivered."""
        if leader == self._announced:
            return
        if leader.leader_id == node_id and (
            not self.is_live or epoch_start_offset is None or self.next_offset <= epoch_start_offset
        ):
            return
        self._announced = leader
        self.listener.handle_leader_change(leader)


class CommitWaiters:
    """Who waits for which offset to be committed and delivered."""

    def __init__(self) -> None:
        self._waiters: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._sequence = 0

    def add(self, offset: Offset) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heappush(self._waiters, (offset, self._sequence, future))
        return future

    def resolve(self, next_offset: Offset) -> None:
        """Everything before `next_offset` is done."""
        while self._waiters and self._waiters[0][0] < next_offset:
            future = heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: NotLeader) -> None:
        """None of the offsets will be committed by this leader."""
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(NotLeader(error.epoch, error.leader_id))
                # Whoever waited may be gone; asking marks the error as seen.
                future.exception()
