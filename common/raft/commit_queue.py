"""Delivers committed batches to the listeners, in offset order (shell).

Counterpart of the listener contexts of KafkaRaftClient and of Kafka's BatchAccumulator. Appended batches wait here in memory
until the high watermark passes them. Each listener has a feed in one of two states:

    catching up --everything committed was delivered--> live --a snapshot replaced the log--> catching up

`advance` calls a *live* listener directly, in the event loop step in which the watermark moves. For a listener that is
catching up (just registered, or after a snapshot) the batches are read from the log. `keep_up` must not await between
finding that nothing is missing and declaring the feed live. Otherwise a batch committed in between would be lost.

A live listener that needs more than one step for a batch is catching up from then on, too. So is every listener of a node
that fetched more than RECORDS_PER_STEP records at once, in one batch or in several.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from common.ids import BrokerId, LeaderEpoch, Offset
from common.metadata.record_reader import MetadataRecordReader
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch, UnreadableBatch, decode_batch, decode_batch_in_slices
from common.raft.errors import QuorumFailure
from common.raft.listener import LoadedSnapshot, MetadataListener
from common.raft.metadata_log import MetadataLog
from common.records.batch import BatchHeader
from common.slices import result_in_slices
from common.storage.errors import OffsetOutOfRange

# How much of the log to read at once for a listener that is catching up.
_CATCH_UP_BYTES = 256 * 1024
# Batches with more records than this together are not decoded and delivered in one event loop step. These are about 4 ms. A
# single batch may have more; it is decoded in several steps and delivered in one, and its listener may replay it in several.
RECORDS_PER_STEP = 1_000


class ListenerFeed:
    """One listener and its position in the log."""

    def __init__(self, listener: MetadataListener) -> None:
        self.listener = listener
        # The offset of the next record to deliver. Every earlier record has been delivered. Never decreases.
        self.next_offset = Offset(0)
        # Whether `advance` calls the listener directly. Invariant: whenever no method of the queue is running, a live feed
        # has received everything that is committed. Set by `keep_up`, cleared by `fall_behind` and `unregister`.
        self.is_live = False
        # What `keep_up` has to await before the next delivery: the rest of a batch that was delivered while the feed was
        # live. Invariant: None while the feed is live.
        self.unfinished: Coroutine[Any, Any, None] | None = None
        # Set once, by `unregister`. A closed feed delivers nothing more.
        self.is_closed = False
        # Wakes `keep_up`. Set when there may be something to catch up with, so it is set from the start.
        self.behind = asyncio.Event()
        self.behind.set()
        # The last leader that this listener was notified of; None before the first.
        self.announced: LeaderAndEpoch | None = None

    def fall_behind(self) -> None:
        self.is_live = False
        self.behind.set()

    def deliver(self, batch: CommittedBatch) -> Coroutine[Any, Any, None] | None:
        """Calls the listener with the next batch. The next delivery has to wait for what this returns. Raises what the
        listener raises."""
        if batch.base_offset != self.next_offset:
            raise QuorumFailure(f"the metadata log continues at {batch.base_offset}, the listener is at {self.next_offset}")
        rest = self.listener.handle_commit(batch)
        self.next_offset = batch.next_offset
        return rest


class CommitQueue:
    """The uncommitted batches and the listeners."""

    def __init__(
        self, log: MetadataLog, reader: MetadataRecordReader, *, node_id: BrokerId, committed_offset: Offset
    ) -> None:
        self._log = log
        # Decodes batches that were fetched or read from disk. The driver has already set its numbering to the log's.
        self._reader = reader
        self._node_id = node_id
        # The batches that are not yet committed, in offset order: decoded if this node made them as leader, not yet decoded
        # if it fetched them. Invariant: there are no gaps, and the first batch starts at or after `committed_offset`.
        self._uncommitted: deque[CommittedBatch | tuple[BatchHeader, memoryview]] = deque()
        self.committed_offset = committed_offset
        """Everything before this offset may be delivered. A batch boundary, at most the high watermark. Never decreases."""
        self.committed_bytes = 0
        """Bytes of all batches committed since startup. Never decreases."""
        # The feeds of the listeners, in the order of registration. `unregister` replaces the list.
        self.feeds: list[ListenerFeed] = []
        # The arguments of the last `announce`: the current leader, and where this node's own epoch starts if it leads.
        self._leader: LeaderAndEpoch | None = None
        self._epoch_start_offset: Offset | None = None

    # --- batches -------------------------------------------------------------------------------------------------
    def push(self, batch: CommittedBatch) -> None:
        """Adds a batch that this node has scheduled as leader."""
        self._uncommitted.append(batch)

    def push_fetched(self, header: BatchHeader, view: memoryview) -> None:
        """Adds a batch that was fetched from the leader and is already in the log."""
        self._uncommitted.append((header, view))

    def drop_from(self, offset: Offset) -> None:
        """Drops the batches at or after `offset`, which were never appended or have been truncated."""
        while self._uncommitted and _base_offset(self._uncommitted[-1]) >= offset:
            self._uncommitted.pop()

    def advance(self, high_watermark: Offset) -> None:
        """Delivers the batches before `high_watermark`. Raises what a listener raises."""
        fetched_count = 0
        while self._uncommitted and _last_offset(self._uncommitted[0]) < high_watermark:
            batch = self._uncommitted.popleft()
            if not isinstance(batch, CommittedBatch):
                header, _ = batch
                fetched_count += header.record_count
                if fetched_count > RECORDS_PER_STEP:
                    # Do not deliver the rest here. Every listener reads it from the log later, in several steps.
                    self.committed_bytes += header.size
                    continue
            self._deliver(self._decoded(batch))
        if self._uncommitted:
            high_watermark = min(high_watermark, _base_offset(self._uncommitted[0]))
        self.committed_offset = max(self.committed_offset, high_watermark)
        for feed in self.feeds:
            if feed.next_offset < self.committed_offset:
                feed.fall_behind()
            self.announce_to(feed)

    def _deliver(self, batch: CommittedBatch) -> None:
        self.committed_bytes += batch.size
        for feed in self.feeds:
            if feed.is_live and feed.next_offset == batch.base_offset:
                feed.unfinished = feed.deliver(batch)
                if feed.unfinished is not None:
                    feed.fall_behind()

    def _decoded(self, batch: CommittedBatch | tuple[BatchHeader, memoryview]) -> CommittedBatch:
        if isinstance(batch, CommittedBatch):
            return batch
        try:
            return decode_batch(*batch, self._reader)
        except UnreadableBatch as error:
            raise QuorumFailure(str(error)) from error

    async def _decoded_in_steps(self, header: BatchHeader, view: memoryview) -> CommittedBatch:
        if header.record_count <= RECORDS_PER_STEP:
            return self._decoded((header, view))
        try:
            return await result_in_slices(decode_batch_in_slices(header, view, self._reader), items=RECORDS_PER_STEP)
        except UnreadableBatch as error:
            raise QuorumFailure(str(error)) from error

    def start_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Notes that a snapshot has replaced the log. Every listener that has not passed the snapshot's end has to load the
        snapshot."""
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
        """Stops calling the listener. May be called while another listener is being called."""
        for feed in self.feeds:
            if feed.listener is listener:
                feed.is_closed = True
                feed.is_live = False
                feed.behind.set()
        # Make a new list, because a caller may be iterating over the old one.
        self.feeds = [feed for feed in self.feeds if not feed.is_closed]

    @property
    def all_live(self) -> bool:
        return all(feed.is_live for feed in self.feeds)

    def announce(self, leader: LeaderAndEpoch, epoch_start_offset: Offset | None) -> None:
        """Notifies all listeners of a leader change. `epoch_start_offset` is set if this node leads."""
        self._leader = leader
        self._epoch_start_offset = epoch_start_offset
        for feed in self.feeds:
            self.announce_to(feed)

    def announce_to(self, feed: ListenerFeed) -> None:
        """Notifies one listener of the leader, unless the listener already knows it or must first receive more records."""
        leader = self._leader
        if leader is None or leader == feed.announced or feed.is_closed:
            return
        start = self._epoch_start_offset
        leads = leader.leader_id == self._node_id
        # Announce this node's own leadership only after delivering the first record of its epoch, which comes after all
        # records of earlier epochs.
        if leads and (not feed.is_live or start is None or feed.next_offset <= start):
            return
        feed.announced = leader
        feed.listener.handle_leader_change(leader)

    async def keep_up(self, feed: ListenerFeed) -> None:
        """Catches the listener up from the log whenever it falls behind, until it is unregistered."""
        try:
            await self._keep_up(feed)
        finally:
            if feed.unfinished is not None:
                feed.unfinished.close()

    async def _keep_up(self, feed: ListenerFeed) -> None:
        while not feed.is_closed:
            await feed.behind.wait()
            feed.behind.clear()
            if feed.is_closed:
                break
            rest, feed.unfinished = feed.unfinished, None
            if rest is not None:
                await rest
            while feed.next_offset < self.committed_offset and not feed.is_closed:
                if not await self._catch_up(feed):
                    break
            else:
                feed.is_live = not feed.is_closed
                self.announce_to(feed)

    async def _catch_up(self, feed: ListenerFeed) -> bool:
        """Delivers the newest snapshot or a piece of the log. Returns False if there is nothing more to deliver."""
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
            # A snapshot replaced the log during the read. If this listener needs the snapshot, the next call loads it.
            return feed.next_offset < self._log.log.log_start_offset
        in_step = 0
        for header, view in batches:
            if in_step and in_step + header.record_count > RECORDS_PER_STEP:
                await asyncio.sleep(0)
                in_step = 0
            if feed.is_closed:
                break
            in_step += header.record_count
            batch = await self._decoded_in_steps(header, view)
            if feed.is_closed:
                break
            rest = feed.deliver(batch)
            if rest is not None:
                await rest
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


def _base_offset(batch: CommittedBatch | tuple[BatchHeader, memoryview]) -> Offset:
    return batch.base_offset if isinstance(batch, CommittedBatch) else Offset(batch[0].base_offset)


def _last_offset(batch: CommittedBatch | tuple[BatchHeader, memoryview]) -> Offset:
    return batch.last_offset if isinstance(batch, CommittedBatch) else Offset(batch[0].last_offset)
