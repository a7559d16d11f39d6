"""One partition's log: an ordered sequence of record batches in segments, under one folder of a log directory (shell).

Counterpart of Kafka's UnifiedLog and LocalLog; the metadata log uses it too. Appending is a plain call: it assigns the
offsets and moves `log_end_offset` at once, so that pipelined requests get consecutive offsets. The bytes follow through the
AppendPipeline, which moves `written_offset` in order; readers never see beyond it. Whatever changes files by name (rolling,
truncating, deleting, renaming) runs one at a time, under a lock or as `Steps`, so that no operation ever meets a file that
another one of this log has taken away: such an ENOENT would take the whole directory offline.

One failed operation fails the log as a whole. It acknowledges nothing any more, not even what the disk reports as written
later, until its owner loads it again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from common.environment.interface import LogDir, LogDirError
from common.ids import LeaderEpoch, Offset, TopicId
from common.parts import FileRegion
from common.records.batch import BatchHeader, set_base_offset_and_epoch, split_batches
from common.storage.append_pipeline import AppendPipeline
from common.storage.batch_search import Span, locate_in_memory, locate_on_disk
from common.storage.errors import LogClosed, LogExists, OffsetOutOfRange, UnexpectedOffset
from common.storage.leader_epochs import LeaderEpochs
from common.storage.log_config import LogSettings
from common.storage.log_segments import LogSegments
from common.storage.names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    FolderKind,
    marked_partition_folder,
    parse_partition_folder,
)
from common.storage.outstanding import Outstanding, Steps
from common.storage.partition_metadata import load_partition_metadata, store_partition_metadata
from common.storage.recovery import Recovery, load_segments
from common.storage.retention import Expiry, expired_segments
from common.storage.segment import RELATIVE_OFFSET_MAX, Segment, SegmentFile
from common.storage.timestamp_search import TimestampOffset, first_at_or_after, newest

FIRST_OFFSET = Offset(0)
NO_UPPER_OFFSET = Offset(2**63 - 1)


class Appended(NamedTuple):
    """The place that batches were given. `written` completes when the kernel has them and all before them.

    It raises LogDirError when that will never happen. Cancelling it changes nothing for the log.
    """

    first_offset: Offset
    last_offset: Offset
    written: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class LogRead:
    """Whole batches of one segment; no parts when there is nothing to read.

    `first_offset` is that of the first batch and may be below the one asked for; `next_offset` is where to go on.
    """

    parts: list[FileRegion]
    size: int
    first_offset: Offset
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A segment that retention or a raised log start has removed."""

    base_offset: Offset
    size: int


class Log:
    """Made by `create` or `load`. Attributes are for reading; `config` may be replaced at any time."""

    log_start_offset: Offset
    """The first offset that may be read. Never goes back, except by truncation below it."""
    log_end_offset: Offset
    """The offset that the next record gets."""
    recovery_point: Offset
    """Everything below it survives a power cut, indexes and leader epochs included.

    Invariant: recovery_point <= written_offset <= log_end_offset."""

    def __init__(
        self,
        log_dir: LogDir,
        name: str,
        config: LogSettings,
        topic_id: TopicId | None,
        *,
        segments: list[Segment],
        leader_epochs: LeaderEpochs,
        log_start_offset: Offset,
        recovery_point: Offset,
        recovery: Recovery,
    ) -> None:
        self.log_dir = log_dir
        self.name = name
        self.config = config
        self.topic_id = topic_id
        self.leader_epochs = leader_epochs
        self.recovery = recovery
        # The first failure. None again once the log is renamed for deletion.
        self.failure: LogDirError | None = None
        # Set by the owner; called once, when the log fails, whatever it was doing.
        self.on_failed: Callable[[], None] | None = None
        self.is_closed = False
        self.log_start_offset = log_start_offset
        self.log_end_offset = Offset(segments[-1].next_offset)
        self.recovery_point = recovery_point
        self._segments = LogSegments(segments)
        # Held by whatever flushes, cuts, deletes or ends the log.
        self._lock = asyncio.Lock()
        # While segments are cut or closed. An append then is a bug of the owner.
        self._is_changing = False
        self._appends = AppendPipeline(log_dir, self.log_end_offset, self._fail)
        # Rolls, deletions and files beside the segments: Steps that go on when the caller is gone.
        self._background = Outstanding(self._fail)
        # Rolled segments that a power cut may still hurt, oldest first. One leaves when it has nothing `undone` and all
        # before it have left; then the recovery point moves to its end.
        self._undurable: deque[Segment] = deque()
        self._is_storing_epochs = False
        # leader-epoch-checkpoint on the disk is older than `leader_epochs`. Stored before the recovery point moves.
        self._epochs_changed = False

    # --- life ----------------------------------------------------------------------------------------------------
    @classmethod
    async def create(
        cls,
        log_dir: LogDir,
        name: str,
        config: LogSettings,
        topic_id: TopicId | None,
        *,
        start_offset: Offset = FIRST_OFFSET,
    ) -> "Log":
        """A new log in a new folder, durably there when this returns. Raises LogExists."""
        if await log_dir.stat(name) is not None:
            raise LogExists(f"{log_dir.path}/{name} is there already")
        await log_dir.mkdir(name)
        segment = Segment(log_dir, name, start_offset)
        segment.file = SegmentFile(log_dir, await log_dir.open(segment.path(), create=True))
        await log_dir.fsync_dir(name)
        if topic_id is not None:
            # After everything else that can fail: with its topic id the folder counts as that topic's log.
            await store_partition_metadata(log_dir, name, topic_id)
        # The folder's own entry comes last: after a crash there is a whole log or none.
        await log_dir.fsync_dir()
        return cls(
            log_dir,
            name,
            config,
            topic_id,
            segments=[segment],
            leader_epochs=LeaderEpochs(),
            log_start_offset=start_offset,
            recovery_point=start_offset,
            recovery=Recovery(),
        )

    @classmethod
    async def load(
        cls,
        log_dir: LogDir,
        name: str,
        config: LogSettings,
        *,
        recovery_point: Offset = FIRST_OFFSET,
        log_start_offset: Offset = FIRST_OFFSET,
        clean: bool = False,
    ) -> "Log":
        """The log in an existing folder. Both offsets are from the checkpoints; `clean` says that the marker was there.

        Without the marker everything from the recovery point on is validated and cut off at the first bad byte; what
        was lost is in `recovery`. A torn end never makes this fail. Raises MalformedPartitionMetadata and LogDirError.
        """
        topic_id = await load_partition_metadata(log_dir, name)
        loaded = await load_segments(
            log_dir, name, config, recovery_point=recovery_point, log_start_offset=log_start_offset, clean=clean
        )
        end = loaded.segments[-1].next_offset
        intact = clean and not loaded.recovery.lost_anything
        log = cls(
            log_dir,
            name,
            config,
            topic_id,
            segments=loaded.segments,
            leader_epochs=loaded.leader_epochs,
            log_start_offset=Offset(max(log_start_offset, loaded.segments[0].base_offset)),
            recovery_point=Offset(end if intact else min(recovery_point, end)),
            recovery=loaded.recovery,
        )
        if loaded.leader_epochs_changed:
            log._store_epochs()
        return log

    async def close(self) -> None:
        """Flushes everything, writes the index files and lets go of the files. For an orderly end."""
        async with self._lock:
            # A log that failed and was abandoned was never flushed.
            self._check_not_failed()
            if self.is_closed:
                return
            with self._changing():
                await self._settle()
                await self._sync()
                self.is_closed = True
                self._background.run(self._close_steps())
                await self._background.wait()
            self._segments.retire_files()
            self._check_not_failed()

    def _close_steps(self) -> Steps:
        newest_segment = self._segments.newest
        newest_segment.seal()
        yield from newest_segment.index_file_steps()

    async def delete_rename(self, unique: bytes) -> str:
        """Ends the log and gives its folder the name `<topic>-<p>.<32 hex>-delete`, durably. Returns the new name.

        `unique` is 16 bytes. The owner removes the folder when file.delete.delay.ms has passed.
        """
        parsed = parse_partition_folder(self.name)
        assert parsed is not None
        name = marked_partition_folder(parsed.topic, parsed.partition, FolderKind.DELETE, unique)
        async with self._lock:
            self.is_closed = True
            # Operations that are still queued use the old name and would not find the folder.
            await self._settle()
            self._segments.retire_files()
            # A log that failed is deleted like any other. From here on only a failure of the renaming counts.
            self.failure = None
            self._background.run(self._rename_steps(name))
            await self._background.wait()
            self._check_not_failed()
        return name

    def _rename_steps(self, name: str) -> Steps:
        yield self.log_dir.rename(self.name, name)
        self.name = name
        yield self.log_dir.fsync_dir()

    async def abandon(self) -> None:
        """Lets go of the files of a log that has failed although its directory has not, so that it can be loaded again."""
        assert self.failure is not None, "only a failed log is abandoned"
        async with self._lock:
            self.is_closed = True
            # A later step would meet files that loading has taken away, or take away what loading has opened.
            await self._settle()
            self._segments.retire_files()

    def _fail(self, error: LogDirError | None) -> None:
        """Fails the log. None: the operation was given up unfinished, the process is on its way out."""
        if error is None:
            self.is_closed = True
        is_first = error is not None and self.failure is None
        if is_first:
            self.failure = error
        self._appends.fail(error)
        if is_first and self.on_failed is not None:
            self.on_failed()

    def _check_not_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _check_usable(self) -> None:
        self._check_not_failed()
        if self.is_closed:
            raise LogClosed(f"{self.log_dir.path}/{self.name} is closed")

    @contextmanager
    def _changing(self) -> Generator[None, None, None]:
        """No append may come while segments are cut or closed: only a follower truncates, and it appends nothing then."""
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False

    async def _settle(self) -> None:
        """Returns when nothing of this log is on its way to the disk."""
        while not self._appends.is_idle or self._background.count:
            await self._background.wait()
            await self._appends.wait()

    @property
    def written_offset(self) -> Offset:
        """Everything below it is in the kernel."""
        return self._appends.written_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, queued ones included."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_base_offsets(self) -> list[Offset]:
        """Ascending."""
        return self._segments.base_offsets

    # --- appending -----------------------------------------------------------------------------------------------
    def append_as_leader(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: LeaderEpoch) -> Appended:
        """Gives validated batches their offsets and epoch, in place, and sends them to the disk.

        The views must be writable and stay unchanged until `written` completes. Raises LogDirError when the log has
        failed, and LogClosed.
        """
        self._check_appendable()
        first_offset = offset = self.log_end_offset
        size = 0
        for header, view in batches:
            set_base_offset_and_epoch(view, offset, leader_epoch)
            offset = Offset(offset + header.last_offset_delta + 1)
            size += header.size
        segment = self._segment_for(batches, size=size, last_offset=offset - 1)
        self._epochs_changed |= self.leader_epochs.assign(leader_epoch, first_offset)
        position = segment.size
        next_offset = first_offset
        index_interval = self.config.index_interval_bytes
        for header, _ in batches:
            last_offset = next_offset + header.last_offset_delta
            segment.note_batch(
                first_offset=next_offset,
                last_offset=last_offset,
                size=header.size,
                max_timestamp=header.max_timestamp,
                index_interval=index_interval,
            )
            next_offset = Offset(last_offset + 1)
        self.log_end_offset = offset
        written = self._appends.send(segment, position, [view for _, view in batches], offset)
        return Appended(first_offset, Offset(offset - 1), written)

    def append_as_follower(self, view: memoryview) -> Appended:
        """Appends whole validated batches that have their offsets and epochs already.

        `view` must stay unchanged until `written` completes. Raises UnexpectedOffset, BatchError for bytes that are not
        whole batches, LogDirError when the log has failed, and LogClosed.
        """
        self._check_appendable()
        batches = split_batches(view)
        expected = self.log_end_offset
        for header, _ in batches:
            if header.base_offset < expected or header.last_offset_delta < 0:
                raise UnexpectedOffset(
                    f"{self.name}: a batch of offsets {header.base_offset} to {header.last_offset} cannot follow {expected}"
                )
            expected = Offset(header.next_offset)
        if not batches:
            raise UnexpectedOffset(f"{self.name}: there is no batch to append")
        first_offset = Offset(batches[0][0].base_offset)
        segment = self._segment_for(batches, size=len(view), last_offset=expected - 1)
        position = segment.size
        index_interval = self.config.index_interval_bytes
        for header, _ in batches:
            self._epochs_changed |= self.leader_epochs.assign(
                LeaderEpoch(header.partition_leader_epoch), Offset(header.base_offset)
            )
            segment.note_batch(
                first_offset=header.base_offset,
                last_offset=header.last_offset,
                size=header.size,
                max_timestamp=header.max_timestamp,
                index_interval=index_interval,
            )
        self.log_end_offset = expected
        return Appended(first_offset, Offset(expected - 1), self._appends.send(segment, position, [view], expected))

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """A leader's epoch begins at the log's end, before there is a batch of it. Followers that ask where an earlier
        epoch ended are answered from this entry."""
        self._epochs_changed |= self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def _check_appendable(self) -> None:
        self._check_usable()
        if self._is_changing:
            raise RuntimeError(f"{self.name}: append during a truncation")

    def _segment_for(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, size: int, last_offset: int) -> Segment:
        """The newest segment, after a roll if it has no room for these batches."""
        segment = self._segments.newest
        max_timestamp = max(header.max_timestamp for header, _ in batches)
        if segment.is_full_for(size=size, max_timestamp=max_timestamp, last_offset=last_offset, config=self.config):
            # Begins where the old one ends, even if a gap precedes these batches: recovery takes a gap between two segments
            # for a lost piece. Only a gap too wide for the indexes is left open.
            return self._roll(max(self.log_end_offset, last_offset - RELATIVE_OFFSET_MAX))
        return segment

    def _release(self, segment: Segment) -> None:
        """The segment's file is open."""
        self._appends.release(segment)
        if segment is not self._segments.newest:
            # It was rolled before it was even open.
            self._background.run(self._finish_rolled_steps(segment))

    # --- rolling and flushing ------------------------------------------------------------------------------------
    async def roll(self) -> Offset:
        """Begins a new segment at the log's end, unless the newest one is empty. Returns the newest base offset."""
        async with self._lock:
            self._check_usable()
            if self._segments.newest.size:
                self._roll(self.log_end_offset)
            await self._background.wait()
            self._check_not_failed()
        return Offset(self._segments.newest.base_offset)

    def _roll(self, base_offset: int) -> Segment:
        old = self._segments.newest
        new = Segment(self.log_dir, self.name, base_offset)
        new.is_held = True
        new.undone = 1
        old.seal()
        old.undone += 1
        self._undurable.append(old)
        self._segments.add(new)
        self._background.run(self._open_steps(new))
        if not old.is_held:
            self._background.run(self._finish_rolled_steps(old))
        return new

    def _open_steps(self, segment: Segment) -> Steps:
        handle = yield self.log_dir.open(segment.path(), create=True)
        segment.file = SegmentFile(self.log_dir, handle)
        self._release(segment)
        # Without this a power cut could lose the name of a file whose content was synced.
        yield self.log_dir.fsync_dir(self.name)
        segment.undone -= 1
        self._advance_recovery_point()

    def _finish_rolled_steps(self, segment: Segment) -> Steps:
        assert segment.file is not None
        yield self.log_dir.fsync(segment.file.handle)
        yield from segment.index_file_steps()
        segment.undone -= 1
        segment.forget_indexes()
        self._advance_recovery_point()

    def _advance_recovery_point(self) -> None:
        """Moves it past the rolled segments that are safe, in order.

        It waits for the leader epochs too: recovery believes leader-epoch-checkpoint below the recovery point, and reads
        the epochs from the batches above it. So no append waits for that file, and an epoch that only began is not stored
        until the recovery point moves. When a disk dies a broker becomes leader of many partitions at once, and a sync for
        each of them would keep the first records waiting.
        """
        if self.failure is not None:
            # A rolled segment may lack the very append that failed. Those after it are sound, and prove nothing about it.
            return
        if self._is_storing_epochs or not self._undurable or self._undurable[0].undone:
            return
        if self._epochs_changed:
            # Comes back here when that is done.
            self._store_epochs()
            return
        while self._undurable and self._undurable[0].undone == 0:
            segment = self._undurable.popleft()
            self.recovery_point = Offset(max(self.recovery_point, segment.next_offset))
        assert self.recovery_point <= self.written_offset

    async def flush(self, up_to: Offset | None = None) -> Offset:
        """Syncs what has been appended so far, at least below `up_to`. Returns the recovery point."""
        if up_to is not None and up_to <= self.recovery_point:
            return self.recovery_point
        async with self._lock:
            await self._sync()
        return self.recovery_point

    async def _sync(self) -> None:
        self._check_usable()
        # A roll syncs the older segments by itself.
        while self._background.count or self._epochs_changed:
            if self._epochs_changed:
                self._store_epochs()
            await self._background.wait()
            self._check_usable()
        target, segment = self.log_end_offset, self._segments.newest
        if target <= self.recovery_point:
            return
        assert segment.file is not None
        try:
            # Runs after all appends queued so far, because operations of one file keep their order.
            await self.log_dir.fsync(segment.file.handle)
        except LogDirError as error:
            self._fail(error)
            raise
        self._check_not_failed()
        self.recovery_point = max(self.recovery_point, target)

    def _store_epochs(self) -> None:
        """Replaces leader-epoch-checkpoint, once more afterwards if the epochs change meanwhile."""
        self._epochs_changed = True
        if not self._is_storing_epochs:
            self._is_storing_epochs = True
            self._background.run(self._store_epochs_steps())

    def _store_epochs_steps(self) -> Steps:
        while self._epochs_changed:
            self._epochs_changed = False
            name = f"{self.name}/{LEADER_EPOCH_CHECKPOINT_FILE}"
            yield self.log_dir.replace_file(name, self.leader_epochs.format())
        self._is_storing_epochs = False
        self._advance_recovery_point()

    # --- reading -------------------------------------------------------------------------------------------------
    async def read(
        self, offset: int, *, max_bytes: int, upper_offset: int = NO_UPPER_OFFSET, min_one_batch: bool = True
    ) -> LogRead:
        """Whole batches from the one that holds `offset`, of at most `max_bytes`, all below `upper_offset`.

        `min_one_batch` gives the first batch even when it is larger. Does not suspend when the place is in memory.
        Raises OffsetOutOfRange, LogDirError, and BatchError where the disk holds something other than batches.
        """
        return self._as_read(await self._locate(offset, max_bytes, upper_offset, min_one_batch))

    async def read_bytes(
        self, offset: int, *, max_bytes: int, upper_offset: int = NO_UPPER_OFFSET, min_one_batch: bool = True
    ) -> bytes:
        """The bytes that `read` would give; empty when there is nothing to read."""
        span = await self._locate(offset, max_bytes, upper_offset, min_one_batch)
        return await span.segment.read(span.position, span.size) if span.size else b""

    def _as_read(self, span: Span) -> LogRead:
        first_offset, next_offset = Offset(span.first_offset), Offset(span.next_offset)
        if not span.size:
            return LogRead([], 0, first_offset, next_offset)
        assert span.segment.file is not None
        region = self.log_dir.region(span.segment.file.handle, span.position, span.size)
        return LogRead([region], span.size, first_offset, next_offset)

    def _locate_in_memory(self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool) -> Span | None:
        self._check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        return locate_in_memory(
            self._segments.holding(offset),
            offset,
            max_bytes=max_bytes,
            upper_offset=min(upper_offset, self._appends.written_offset),
            min_one_batch=min_one_batch,
        )

    async def _locate(self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool) -> Span:
        async def locate() -> Span:
            span = self._locate_in_memory(offset, max_bytes, upper_offset, min_one_batch)
            if span is not None:
                return span
            return await locate_on_disk(
                self._segments,
                offset,
                max_bytes=max_bytes,
                upper_offset=min(upper_offset, self._appends.written_offset),
                min_one_batch=min_one_batch,
            )

        return await self._segments.in_one_generation(locate)

    # --- offsets by time -----------------------------------------------------------------------------------------
    async def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after `timestamp`, in offset order; None when there is none."""

        async def find() -> TimestampOffset | None:
            self._check_usable()
            return await first_at_or_after(self._segments, timestamp, from_offset=self.log_start_offset)

        return await self._segments.in_one_generation(find)

    async def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp; None when no record has one."""

        async def find() -> TimestampOffset | None:
            self._check_usable()
            return await newest(self._segments, from_offset=self.log_start_offset)

        return await self._segments.in_one_generation(find)

    # --- truncation ----------------------------------------------------------------------------------------------
    def lower_recovery_point(self, offset: Offset) -> None:
        """For the owner, before it cuts the log at `offset`: the recovery point is below wherever the log will end, and can
        be stored."""
        if offset < self.recovery_point:
            # A cut inside a batch ends the log at the batch's beginning, which is in the same segment.
            self.recovery_point = Offset(min(offset, self._segments.holding(offset).base_offset))

    async def truncate_to(self, offset: Offset) -> Offset:
        """Cuts the log off at `offset`, or at the start of the batch that holds it. Returns the new log end offset.

        The owner lowers the recovery point and stores it before: an old, higher one would vouch after a crash for bytes
        that were never synced.
        """
        async with self._lock:
            self._check_usable()
            if offset >= self.log_end_offset:
                # A leader that was deposed before its first append left an epoch that begins at the end. Kept, it would
                # go on contradicting the new leader, which then answers with the same divergence for ever.
                if self.leader_epochs.truncate_from_end(offset):
                    self._store_epochs()
                return self.log_end_offset
            with self._changing():
                await self._settle()
                self._check_usable()
                if offset < self._segments[0].base_offset:
                    await self._start_over(offset)
                else:
                    await self._cut(offset)
            self._check_not_failed()
        return self.log_end_offset

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drops everything and goes on at `offset`, as for a follower whose leader's log begins past its end."""
        async with self._lock:
            self._check_usable()
            with self._changing():
                await self._settle()
                self._check_usable()
                await self._start_over(offset)
            self._check_not_failed()

    async def _cut(self, offset: Offset) -> None:
        segments = [*self._segments]
        number = self._segments.number_of(offset)
        segment = segments[number]
        assert segment.file is not None
        with segment.file.in_use():
            first_offset, position = await segment.find_batch(offset) or (offset, segment.written_size)
            end = Offset(min(offset, first_offset))
            kept = await segment.first_part(position, end_offset=end, index_interval=self.config.index_interval_bytes)
        # From here on nothing suspends until memory and the queue of the disk agree again.
        removed = segments[number + 1 :]
        kept.is_held = True
        self._segments.replace([*segments[:number], kept], removed)
        self._end_at(end)
        if self.leader_epochs.truncate_from_end(end):
            self._store_epochs()
        self._background.run(self._cut_steps(kept, position, removed))
        await self._background.wait()

    def _cut_steps(self, kept: Segment, position: int, removed: list[Segment]) -> Steps:
        # The newest goes first, and durably, so that a crash leaves a log that is too long but has no hole.
        for segment in reversed(removed):
            if segment.file is None:
                yield self.log_dir.remove(segment.path())
            else:
                yield from segment.removal_steps()
            yield self.log_dir.fsync_dir(self.name)
        # Index files that reach past the new end would be taken for those of what is appended next.
        yield from kept.index_removal_steps()
        assert kept.file is not None
        yield self.log_dir.truncate(kept.file.handle, position)
        # A power cut must not bring back what was cut off, below a recovery point or in front of a newer segment.
        yield self.log_dir.fsync(kept.file.handle)
        self._release(kept)
        for segment in removed:
            yield from segment.delete_steps()

    async def _start_over(self, offset: Offset) -> None:
        removed = [*self._segments]
        new = Segment(self.log_dir, self.name, offset)
        new.is_held = True
        self._segments.replace([new], removed)
        self._end_at(offset)
        self.log_start_offset = offset
        if self.leader_epochs.clear():
            self._store_epochs()
        self._background.run(self._start_over_steps(new, removed))
        await self._background.wait()

    def _start_over_steps(self, new: Segment, removed: list[Segment]) -> Steps:
        # One of the old ones may have the name of the new one.
        for segment in reversed(removed):
            yield from segment.removal_steps()
        new.undone = 1
        yield from self._open_steps(new)
        for segment in removed:
            yield from segment.delete_steps()

    def _end_at(self, offset: Offset) -> None:
        self.log_end_offset = offset
        self._appends.restart_at(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    # --- deletion ------------------------------------------------------------------------------------------------
    def raise_log_start_offset(self, offset: Offset) -> bool:
        """Makes everything below `offset` unreadable; the segments go with the next deletion. Never lowers it."""
        if offset <= self.log_start_offset:
            return False
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        self.log_start_offset = offset
        if self.leader_epochs.truncate_from_start(offset):
            self._store_epochs()
        return True

    async def delete_segments_before(self, offset: Offset) -> list[DeletedSegment]:
        """Raises the log start to `offset` and removes the segments that lie wholly below it. The newest one stays.

        The owner makes sure that `offset` is not above the high watermark, or the latest snapshot.
        """
        async with self._lock:
            self._check_usable()
            self.raise_log_start_offset(offset)
            return await self._delete_below_start()

    async def delete_expired(self, expiry: Expiry, *, now_ms: int, high_watermark: Offset) -> list[DeletedSegment]:
        """Removes what retention by time or size no longer keeps, and what lies below the log start."""
        async with self._lock:
            self._check_usable()
            if self._background.count:
                await self._background.wait()
                self._check_usable()
            segments = list(self._segments)
            count = await expired_segments(segments, expiry, now_ms=now_ms, high_watermark=high_watermark)
            # The newest one may have grown in the meantime.
            while count and self._segments[count - 1].next_offset > high_watermark:
                count -= 1
            if count:
                if count == len(self._segments):
                    # Everything is too old, the newest segment included, which can only go when there is a newer one.
                    self._roll(self.log_end_offset)
                self.raise_log_start_offset(Offset(self._segments[count].base_offset))
            return await self._delete_below_start()

    async def _delete_below_start(self) -> list[DeletedSegment]:
        # A segment on its way to the disk, or whose index is being written, cannot be renamed safely.
        while self._background.count:
            await self._background.wait()
        self._check_usable()
        segments = [*self._segments]
        count = self._segments.number_of(self.log_start_offset)
        removed = segments[:count]
        if not removed:
            return []
        self._segments.replace(segments[count:], removed)
        self._background.run(self._delete_steps(removed))
        await self._background.wait()
        self._check_not_failed()
        return [DeletedSegment(Offset(segment.base_offset), segment.size) for segment in removed]

    def _delete_steps(self, removed: list[Segment]) -> Steps:
        for segment in removed:
            yield from segment.removal_steps()
            # One after the other: an older segment that is back after a power cut, and the next one not, is a hole.
            yield self.log_dir.fsync_dir(self.name)
        for segment in removed:
            yield from segment.delete_steps()
