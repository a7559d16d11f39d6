"""From appended batches to the listeners: nothing before it is committed, everything then, in order (shell).

Answers to the listener contexts of KafkaRaftClient and to Kafka's BatchAccumulator. Appended batches wait here in memory
until the high watermark passes them. A *live* listener is called in the same step in which the watermark moves; one that
is not (just registered, after a restart, or because a snapshot replaced the log) reads from the disk until it has caught
up. Easy to get wrong: between "nothing is missing" and "live" there may be no await, or a batch falls between the two.
"""

import asyncio
from collections import deque
from heapq import heappop, heappush

from common.ids import BrokerId, LeaderEpoch, Offset
from common.metadata.record_reader import MetadataRecordReader
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch, UnreadableBatch, decode_batch
from common.raft.errors import NotLeader, QuorumFailure
from common.raft.listener import LoadedSnapshot, MetadataListener
from common.raft.metadata_log import MetadataLog
from common.records.batch import BatchHeader
from common.storage.errors import OffsetOutOfRange

# Small pieces: a listener that catches up replays each of them in one step of the loop.
_CATCH_UP_BYTES = 256 * 1024


class ListenerFeed:
    """One listener and how far it has come."""

    def __init__(self, listener: MetadataListener) -> None:
        self.listener = listener
        # Everything before has been delivered.
        self.next_offset = Offset(0)
        # Invariant: a live feed has been given everything that is committed.
        self.is_live = False
        # Unregistered: nothing more is delivered.
        self.is_closed = False
        # Set when there is, or may be, something to catch up with.
        self.behind = asyncio.Event()
        self.behind.set()
        self.announced: LeaderAndEpoch | None = None

    def fall_behind(self) -> None:
        self.is_live = False
        self.behind.set()

    def deliver(self, batch: CommittedBatch) -> None:
        """Raises whatever the listener raises."""
        if batch.base_offset != self.next_offset:
            raise QuorumFailure(f"the metadata log continues at {batch.base_offset}, the listener is at {self.next_offset}")
        self.listener.handle_commit(batch)
        self.next_offset = batch.next_offset


class CommitQueue:
    """The batches that are not committed yet, the listeners, and whoever waits for a commit."""

    def __init__(
        self, log: MetadataLog, reader: MetadataRecordReader, *, node_id: BrokerId, committed_offset: Offset
    ) -> None:
        self._log = log
        # Decodes what is read for the first time; it knows the numbering from the log's start.
        self._reader = reader
        self._node_id = node_id
        # Appended by a leader (decoded) or fetched (not yet), ascending and without a gap.
        self._uncommitted: deque[CommittedBatch | tuple[BatchHeader, memoryview]] = deque()
        self.committed_offset = committed_offset
        """Everything before it may be delivered. A batch boundary at or below the high watermark."""
        self.committed_bytes = 0
        """Counts the bytes that were committed since the start."""
        self.feeds: list[ListenerFeed] = []
        self._waiters: list[tuple[Offset, int, asyncio.Future[None]]] = []
        self._waiter_count = 0
        self._leader: LeaderAndEpoch | None = None
        self._epoch_start_offset: Offset | None = None

    # --- batches -------------------------------------------------------------------------------------------------
    def push(self, batch: CommittedBatch) -> None:
        """A batch that this node, as the leader, appends."""
        self._uncommitted.append(batch)

    def push_fetched(self, header: BatchHeader, view: memoryview) -> None:
        """A batch that was fetched from the leader and is in the log."""
        self._uncommitted.append((header, view))

    def drop_from(self, offset: Offset) -> None:
        """Batches from `offset` on will not be committed: never appended, or truncated."""
        while self._uncommitted and _base_offset(self._uncommitted[-1]) >= offset:
            self._uncommitted.pop()

    def advance(self, high_watermark: Offset) -> None:
        """Delivers what is committed now, then wakes those who waited for it. Raises whatever a listener raises."""
        while self._uncommitted and _last_offset(self._uncommitted[0]) < high_watermark:
            self._deliver(self._decoded(self._uncommitted.popleft()))
        if self._uncommitted:
            high_watermark = min(high_watermark, _base_offset(self._uncommitted[0]))
        self.committed_offset = max(self.committed_offset, high_watermark)
        for feed in self.feeds:
            if feed.next_offset < self.committed_offset:
                feed.fall_behind()
            self.announce_to(feed)
        self._resolve_waiters()

    def _deliver(self, batch: CommittedBatch) -> None:
        self.committed_bytes += batch.size
        for feed in self.feeds:
            if feed.is_live and feed.next_offset == batch.base_offset:
                feed.deliver(batch)

    def _decoded(self, batch: CommittedBatch | tuple[BatchHeader, memoryview]) -> CommittedBatch:
        if isinstance(batch, CommittedBatch):
            return batch
        try:
            return decode_batch(*batch, self._reader)
        except UnreadableBatch as error:
            raise QuorumFailure(str(error)) from error

    def start_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """A snapshot has replaced the log. Every listener has to load it."""
        self._uncommitted.clear()
        self.committed_offset = max(self.committed_offset, snapshot_id.offset)
        for feed in self.feeds:
            if feed.next_offset < self.committed_offset:
                feed.fall_behind()

    # --- listeners -----------------------------------------------------------------------------------------------
    def register(self, listener: MetadataListener) -> ListenerFeed:
        feed = ListenerFeed(listener)
        self.feeds.append(feed)
        return feed

    def unregister(self, listener: MetadataListener) -> None:
        """The listener is called no more, even if a call to another one is under way now."""
        for feed in self.feeds:
            if feed.listener is listener:
                feed.is_closed = True
                feed.is_live = False
                feed.behind.set()
        # A new list: somebody may be walking along the old one.
        self.feeds = [feed for feed in self.feeds if not feed.is_closed]

    @property
    def all_live(self) -> bool:
        return all(feed.is_live for feed in self.feeds)

    def announce(self, leader: LeaderAndEpoch, epoch_start_offset: Offset | None) -> None:
        """The leader has changed; `epoch_start_offset` where this node's own epoch begins."""
        self._leader = leader
        self._epoch_start_offset = epoch_start_offset
        for feed in self.feeds:
            self.announce_to(feed)

    def announce_to(self, feed: ListenerFeed) -> None:
        """Tells one listener the leader, unless it knows, or it is too early."""
        leader = self._leader
        if leader is None or leader == feed.announced or feed.is_closed:
            return
        start = self._epoch_start_offset
        leads = leader.leader_id == self._node_id
        # This node's own leadership waits until the first record of its epoch, and so everything before, was delivered.
        if leads and (not feed.is_live or start is None or feed.next_offset <= start):
            return
        feed.announced = leader
        feed.listener.handle_leader_change(leader)

    async def keep_up(self, feed: ListenerFeed) -> None:
        """Brings the listener up to date from the disk whenever it has fallen behind, as long as it is registered."""
        while not feed.is_closed:
            await feed.behind.wait()
            feed.behind.clear()
            while feed.next_offset < self.committed_offset and not feed.is_closed:
                if not await self._catch_up(feed):
                    break
            else:
                feed.is_live = not feed.is_closed
                self.announce_to(feed)
                self._resolve_waiters()

    async def _catch_up(self, feed: ListenerFeed) -> bool:
        """One step: the newest snapshot, or a piece of the log. False when neither has anything more."""
        snapshot_id = self._log.latest_snapshot
        if snapshot_id is not None and feed.next_offset < snapshot_id.offset:
            is_new = feed.next_offset == 0
            if is_new or feed.next_offset < self._log.log.log_start_offset:
                await self._load_snapshot(feed, snapshot_id)
                return True
        try:
            batches = await self._log.read_batches(
                feed.next_offset, upper_offset=self.committed_offset, max_bytes=_CATCH_UP_BYTES
            )
        except OffsetOutOfRange:
            # A snapshot replaced the log while it was read.
            return feed.next_offset < self._log.log.log_start_offset
        for header, view in batches:
            batch = self._decoded((header, view))
            if feed.is_closed:
                break
            feed.deliver(batch)
        return bool(batches)

    async def _load_snapshot(self, feed: ListenerFeed, snapshot_id: OffsetAndEpoch) -> None:
        content = await self._log.read_snapshot(snapshot_id)
        done = feed.listener.handle_load_snapshot(
            LoadedSnapshot(
                end_offset=snapshot_id.offset,
                epoch=LeaderEpoch(snapshot_id.epoch),
                last_contained_timestamp=content.last_contained_timestamp,
                records=content.records(self._reader),
            )
        )
        if done is not None:
            await done
        feed.next_offset = snapshot_id.offset

    # --- waiting for a commit ------------------------------------------------------------------------------------
    def wait_for(self, offset: Offset) -> "asyncio.Future[None]":
        """Done when `offset` is committed and every live listener has been called for it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiter_count += 1
        heappush(self._waiters, (offset, self._waiter_count, future))
        self._resolve_waiters()
        return future

    def fail_waiters(self, epoch: LeaderEpoch, leader_id: BrokerId | None) -> None:
        """What they wait for will not be committed by this leader."""
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(NotLeader(epoch, leader_id))
                # Whoever waited may be gone; asking marks the error as seen.
                future.exception()

    def _resolve_waiters(self) -> None:
        while self._waiters and self._waiters[0][0] < self.committed_offset:
            future = heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)


def _base_offset(batch: CommittedBatch | tuple[BatchHeader, memoryview]) -> Offset:
    return batch.base_offset if isinstance(batch, CommittedBatch) else Offset(batch[0].base_offset)


def _last_offset(batch: CommittedBatch | tuple[BatchHeader, memoryview]) -> Offset:
    return batch.last_offset if isinstance(batch, CommittedBatch) else Offset(batch[0].last_offset)
