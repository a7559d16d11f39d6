"""One partition's log: an ordered sequence of record batches in segments, in one folder of a log directory (shell).

Counterpart of Kafka's UnifiedLog and LocalLog; the metadata log is a `Log` too. Appending is a plain call: it assigns the
offsets and moves `log_end_offset` at once, so pipelined requests get consecutive offsets. The bytes follow through the
AppendPipeline, which moves `written_offset` in order; readers never see anything beyond `written_offset`. Operations that
change files by name (rolling, truncating, deleting, renaming) run under a lock or as `Steps`, so that none of them looks for
a file that another has already removed: the ENOENT would take the whole directory offline.

One failed operation fails the whole log. From then on it acknowledges nothing, not even appends that the disk reports as
written later, until its owner loads it again.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from common.environment.interface import LogDir, LogDirError
from common.ids import LeaderEpoch, Offset, TopicId
from common.parts import FileRegion
from common.records.batch import (
    CONTROL_BIT,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    BatchHeader,
    set_base_offset_and_epoch,
)
from common.records.end_transaction import EndTransactionMarker, decode_end_transaction
from common.storage.append_pipeline import AppendPipeline, OnFailed, OnWritten
from common.storage.batch_search import Span, locate_in_memory, locate_in_page_cache, locate_on_disk
from common.storage.compaction.swap import open_cleaned, swap_steps
from common.storage.errors import LogClosed, OffsetOutOfRange, UnexpectedOffset
from common.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from common.storage.log_config import LogSettings
from common.storage.log_segments import LogSegments
from common.storage.names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    FolderKind,
    marked_partition_folder,
    parse_partition_folder,
)
from common.storage.new_log import FIRST_OFFSET, NewLog, create_first_segments
from common.storage.outstanding import Outstanding, Steps
from common.storage.partition_metadata import load_partition_metadata
from common.storage.producers.log_producers import LogProducers
from common.storage.producers.state import ProducerState
from common.storage.recovery import Recovery, load_segments
from common.storage.retention import Expiry, expired_segments
from common.storage.segment import RELATIVE_OFFSET_MAX, Segment, SegmentFile
from common.storage.timestamp_search import TimestampOffset, first_at_or_after, newest
from common.storage.transaction_index import AbortedTransaction

NO_UPPER_OFFSET = Offset(2**63 - 1)
# The most rolled segments of a log that may await their syncs while records are copied into it that no client waits for.
ROLLED_AHEAD_MAX = 2


class Appended(NamedTuple):
    """The first and the last offset of the appended batches."""

    first_offset: Offset
    last_offset: Offset


@dataclass(frozen=True, slots=True)
class LogRead:
    """Whole batches of one segment. `parts` is empty if there is nothing to read.

    `first_offset` is that of the first batch and may be below the requested offset. The next read starts at `next_offset`.
    """

    parts: list[FileRegion]
    size: int
    first_offset: Offset
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A segment that was removed by retention or by raising the log start."""

    base_offset: Offset
    size: int


class Log:
    """Created by `create` or `load`. Callers only read the attributes, except that `config` may be replaced at any time."""

    log_start_offset: Offset
    """The first offset that may be read. Moves back only if the log is truncated below it or starts over."""
    log_end_offset: Offset
    """The offset of the next record. Advances with every append, before the bytes are written; truncation moves it back."""
    recovery_point: Offset
    """Everything below this offset survives a power cut, including indexes and leader epochs.

    Invariant: recovery_point <= written_offset <= log_end_offset. Advances after syncs; truncation moves it back."""

    def __init__(
        self,
        log_dir: LogDir,
        name: str,
        config: LogSettings,
        topic_id: TopicId | None,
        *,
        segments: list[Segment],
        leader_epochs: LeaderEpochs,
        producers: LogProducers,
        log_start_offset: Offset,
        recovery_point: Offset,
        recovery: Recovery,
    ) -> None:
        self.log_dir = log_dir
        self.name = name
        self.config = config
        self.topic_id = topic_id
        self.leader_epochs = leader_epochs
        # Includes the producers of batches that are still on their way to the disk.
        self.producers = producers
        self.recovery = recovery
        # The error of the first operation that failed; later errors do not replace it. `delete_rename` resets it to None.
        self.failure: LogDirError | None = None
        # A callback that the owner sets. Called when `failure` is set.
        self.on_failed: Callable[[], None] | None = None
        # A callback that the owner sets. Called with the names of the files of removed segments, *.deleted; the owner passes
        # them to `remove_deleted` after file.delete.delay.ms. Without the callback they are removed at once.
        self.on_deleted: Callable[[list[str]], None] | None = None
        # True once the log is closed, abandoned or deleted, or the process shuts down. Never reset.
        self.is_closed = False
        self.log_start_offset = log_start_offset
        self.log_end_offset = Offset(segments[-1].next_offset)
        self.recovery_point = recovery_point
        self._segments = LogSegments(segments)
        # Held while the log is flushed, truncated, shortened by retention, renamed, closed or deleted.
        self._lock = asyncio.Lock()
        # True while segments are truncated, closed or renamed. An append during that time is a bug of the owner.
        self._is_changing = False
        self._appends = AppendPipeline(log_dir, self.log_end_offset, self._fail)
        # Runs all Steps of this log: for rolling, truncating, deleting, and for the files beside the segments. They run to
        # their end even if the caller is cancelled.
        self._background = Outstanding()
        # Rolled segments that may not survive a power cut yet, oldest first. A segment leaves the queue once its
        # `undone` is 0 and all older ones have left; the recovery point then moves to the segment's end.
        self._undurable: deque[Segment] = deque()
        # True while `_store_epochs_steps` runs. Invariant: it runs at most once at a time.
        self._is_storing_epochs = False
        # True if leader-epoch-checkpoint is older than `leader_epochs`. The file is stored before the recovery point moves.
        self._epochs_changed = False

    # --- life ----------------------------------------------------------------------------------------------------
    @classmethod
    async def create(
        cls, log_dir: LogDir, name: str, config: LogSettings, topic_id: TopicId, *, start_offset: Offset = FIRST_OFFSET
    ) -> "Log":
        """Creates one log. See `create_all`."""
        (log,) = await cls.create_all(log_dir, [NewLog(name, config, topic_id, start_offset)])
        return log

    @classmethod
    async def create_all(cls, log_dir: LogDir, new: Sequence[NewLog]) -> list["Log"]:
        """Creates logs in new folders, durable when this returns. They share their syncs. Raises LogExists, then without
        creating any, and LogDirError."""
        segments = await create_first_segments(log_dir, new)
        return [cls._created(log_dir, each, segment) for each, segment in zip(new, segments, strict=True)]

    @classmethod
    def _created(cls, log_dir: LogDir, new: NewLog, segment: Segment) -> "Log":
        return cls(
            log_dir,
            new.name,
            new.config,
            new.topic_id,
            segments=[segment],
            leader_epochs=LeaderEpochs(),
            producers=LogProducers(log_dir),
            log_start_offset=new.start_offset,
            recovery_point=new.start_offset,
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
        """Loads the log from an existing folder. Both offsets come from the checkpoints.

        `clean` means that the clean shutdown marker was there. Without it, everything from the recovery point on is
        validated and the log is truncated at the first bad byte; `recovery` reports the loss. A torn tail never fails the
        load. Raises MalformedPartitionMetadata and LogDirError.
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
            producers=loaded.producers,
            log_start_offset=Offset(max(log_start_offset, loaded.segments[0].base_offset)),
            recovery_point=Offset(end if intact else min(recovery_point, end)),
            recovery=loaded.recovery,
        )
        if loaded.leader_epochs_changed:
            log._store_epochs()
        return log

    async def close(self) -> None:
        """Flushes everything, writes the index files and closes the files, for a clean shutdown."""
        async with self._lock:
            # Check for a failure first: a log that failed and was abandoned is closed as well, but was never flushed.
            self._check_not_failed()
            if self.is_closed:
                return
            with self._changing():
                await self._settle()
                await self._sync()
                self.is_closed = True
                self._start(self._close_steps())
                await self._background.wait()
            self._retire()
            self._check_not_failed()

    def _close_steps(self) -> Steps:
        newest_segment = self._segments.newest
        newest_segment.seal()
        yield from newest_segment.index_file_steps()
        yield from self.producers.close_steps(self.name, self.log_end_offset)

    async def delete_rename(self, unique: bytes) -> str:
        """Closes the log and renames its folder durably to `<topic>-<p>.<32 hex>-delete`. Returns the new name.

        `unique` is 16 bytes long. The owner removes the folder after file.delete.delay.ms.
        """
        parsed = parse_partition_folder(self.name)
        assert parsed is not None
        name = marked_partition_folder(parsed.topic, parsed.partition, FolderKind.DELETE, unique)
        async with self._lock:
            self.is_closed = True
            # Let queued operations end first: they use the old name, and would not find the folder after the rename.
            await self._settle()
            self._retire()
            # A failed log is deleted like any other. From here on only a failure of the rename counts.
            self.failure = None
            self._start(self._rename_steps(name))
            await self._background.wait()
            self._check_not_failed()
        return name

    def _rename_steps(self, name: str) -> Steps:
        self._segments.begin_move_to(name)
        yield self.log_dir.rename(self.name, name)
        self.name = name
        # A search that has just asked for an index file by the old name finds none, and rebuilds the index from the batches.
        self._segments.move_to(name)
        yield self.log_dir.fsync_dir()

    async def rename(self, name: str) -> None:
        """Renames the folder durably while the log stays open, as when a future log becomes the current one.

        The owner must not append meanwhile. An error does not fail the log, because `name` still says which folder the log
        is in: the old one, or the new one if only the sync of the directory failed. Raises LogClosed and LogDirError.
        """
        async with self._lock:
            self._check_usable()
            with self._changing():
                # Let queued operations end first: they use the old name, and would not find the folder after the rename.
                await self._settle()
                self._check_usable()
                failures: list[LogDirError | None] = []
                self._background.run(self._rename_steps(name), on_failure=failures.append)
                await self._background.wait()
            if failures:
                raise failures[0] or LogClosed(f"{self.log_dir.path}/{self.name} was given up")

    async def abandon(self) -> None:
        """Closes the files of a log that failed while its directory did not, so that the log can be loaded again."""
        assert self.failure is not None, "only a failed log is abandoned"
        async with self._lock:
            self.is_closed = True
            # Let all Steps end first: after a reload they could miss files that it removed, or remove files that it opened.
            await self._settle()
            self._retire()

    def lose_directory(self) -> None:
        """Fails the log because its directory went offline. It will not be closed, since nothing can be written any more."""
        self._fail(LogDirError(self.log_dir.path, "close", errno.EIO, detail="the directory is offline"))

    def _retire(self) -> None:
        """Lets go of the files and of what would keep the log in memory. Nothing is appended to it any more."""
        self._segments.retire_files()
        self._appends.end()

    def _fail(self, error: LogDirError | None) -> None:
        """Fails the log. `error` is None if an operation was given up unfinished because the process is shutting down."""
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
        """Forbids appends while segments are truncated, closed or renamed. Only followers truncate, and never while they
        append."""
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False

    def _start(self, steps: Steps) -> None:
        """Runs the steps in the background. A failure fails the log."""
        self._background.run(steps, on_failure=self._fail)

    async def _run(self, steps: Steps) -> None:
        """Runs the steps in the background and waits until they have ended, whatever else is under way. They go on if the
        caller is cancelled. Raises LogDirError if the log has failed."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def run() -> Steps:
            yield from steps
            end()

        def fail(error: LogDirError | None) -> None:
            self._fail(error)
            end()

        self._background.run(run(), on_failure=fail)
        await ended
        self._check_not_failed()

    async def _settle(self) -> None:
        """Returns when no append and no background operation of this log is in flight."""
        while not self._appends.is_idle or self._background.count:
            await self._background.wait()
            await self._appends.wait()

    @property
    def written_offset(self) -> Offset:
        """The kernel has every record below this offset, so these records can be read."""
        return self._appends.written_offset

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes, including bytes that are still queued."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_base_offsets(self) -> list[Offset]:
        """The base offsets of all segments, ascending."""
        return self._segments.base_offsets

    # --- appending -----------------------------------------------------------------------------------------------
    def append_as_leader(
        self,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        *,
        leader_epoch: LeaderEpoch,
        on_written: OnWritten,
        on_failed: OnFailed,
    ) -> Appended:
        """Stamps offsets and epoch into validated batches, in place, and sends them to the disk.

        Calls `on_written` once the kernel has these batches and all earlier ones, or `on_failed` if the append fails. The
        call comes in a later turn of the event loop. The views must be writable, and the caller leaves them unchanged until
        the call. Raises LogClosed, and LogDirError if the log has failed.
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
        for header, view in batches:
            last_offset = next_offset + header.last_offset_delta
            if header.producer_id > NO_PRODUCER_ID:
                self._note_producer(header, next_offset, decode_end_transaction(view) if header.is_control else None)
            segment.note_batch(
                first_offset=next_offset,
                last_offset=last_offset,
                size=header.size,
                max_timestamp=header.max_timestamp,
                index_interval=index_interval,
            )
            next_offset = Offset(last_offset + 1)
        self.log_end_offset = offset
        buffers = [view for _, view in batches]
        self._appends.send(segment, position, buffers, offset, on_written=on_written, on_failed=on_failed)
        return Appended(first_offset, Offset(offset - 1))

    def append_as_follower(
        self,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        view: memoryview,
        *,
        on_written: OnWritten,
        on_failed: OnFailed,
    ) -> Appended:
        """Appends whole, validated batches that already have their offsets and epochs. `view` is the memory that holds them
        one after the other.

        Calls `on_written` or `on_failed` like `append_as_leader`; the caller leaves `view` unchanged until the call. Raises
        UnexpectedOffset, BatchError if a marker cannot be read, LogClosed, and LogDirError if the log has failed.
        """
        self._check_appendable()
        if not batches:
            raise UnexpectedOffset(f"{self.name}: there is no batch to append")
        markers = self._check_offsets(batches)
        first_offset, last_offset = batches[0][0].base_offset, batches[-1][0].last_offset
        segment = self._segment_for(batches, size=len(view), last_offset=last_offset)
        position = segment.size
        index_interval = self.config.index_interval_bytes
        epoch = UNDEFINED_EPOCH
        for header, _ in batches:
            base_offset = header.base_offset
            if header.partition_leader_epoch != epoch:
                epoch = LeaderEpoch(header.partition_leader_epoch)
                self._epochs_changed |= self.leader_epochs.assign(epoch, Offset(base_offset))
            if header.producer_id > NO_PRODUCER_ID:
                self._note_producer(header, base_offset, markers.get(base_offset))
            segment.note_batch(
                first_offset=base_offset,
                last_offset=base_offset + header.last_offset_delta,
                size=header.batch_length + LOG_OVERHEAD,
                max_timestamp=header.max_timestamp,
                index_interval=index_interval,
            )
        assert segment.size == position + len(view), "the view holds the batches and nothing else"
        self.log_end_offset = Offset(last_offset + 1)
        self._appends.send(segment, position, [view], self.log_end_offset, on_written=on_written, on_failed=on_failed)
        return Appended(Offset(first_offset), Offset(last_offset))

    def _check_offsets(self, batches: Sequence[tuple[BatchHeader, memoryview]]) -> dict[int, EndTransactionMarker | None]:
        """Raises UnexpectedOffset unless the batches continue the log. Returns the markers among them, by their offsets."""
        expected: int = self.log_end_offset
        markers: dict[int, EndTransactionMarker | None] = {}
        for header, batch in batches:
            base_offset, delta = header.base_offset, header.last_offset_delta
            if base_offset < expected or delta < 0:
                raise UnexpectedOffset(
                    f"{self.name}: a batch of offsets {base_offset} to {header.last_offset} cannot follow {expected}"
                )
            expected = base_offset + delta + 1
            if header.attributes & CONTROL_BIT and header.producer_id > NO_PRODUCER_ID:
                markers[base_offset] = decode_end_transaction(batch)
        return markers

    def _note_producer(self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker | None) -> None:
        completed = self.producers.state.note(header, base_offset, marker)
        if completed is not None and not completed.is_commit:
            self._segments.note_aborted(completed)

    def find_duplicate(self, header: BatchHeader) -> Appended | None:
        """Returns where a client's batch with a producer id was appended before, None if it is new.

        The leader calls this before it appends the batch; `when_written` then acknowledges a duplicate. Raises
        ProducerRefused, LogClosed, and LogDirError if the log has failed.
        """
        self._check_appendable()
        found = self.producers.state.find_duplicate(header)
        return None if found is None else Appended(Offset(found.first_offset), Offset(found.last_offset))

    def when_written(self, *, on_written: OnWritten, on_failed: OnFailed) -> None:
        """Calls `on_written` once the kernel has everything that was appended so far, or `on_failed` if it will not."""
        self._appends.when_written(on_written=on_written, on_failed=on_failed)

    def begin_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Adds an entry to `leader_epochs`: the epoch of a new leader starts at the log end, before it has any batch.

        With this entry the leader can answer followers that ask where an earlier epoch ended.
        """
        self._epochs_changed |= self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def _check_appendable(self) -> None:
        self._check_usable()
        if self._is_changing:
            raise RuntimeError(f"{self.name}: append while the log's files change")

    def _segment_for(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, size: int, last_offset: int) -> Segment:
        """Returns the newest segment, after rolling if it has no room for these batches."""
        segment = self._segments.newest
        max_timestamp = max([header.max_timestamp for header, _ in batches])
        if segment.is_full_for(size=size, max_timestamp=max_timestamp, last_offset=last_offset, config=self.config):
            # The new segment starts where the old one ends, even if these batches follow a gap: recovery treats a gap
            # between two segments as lost records. Only a gap too wide for the indexes is left between the segments.
            return self._roll(max(self.log_end_offset, last_offset - RELATIVE_OFFSET_MAX))
        return segment

    def _release(self, segment: Segment) -> None:
        """Starts the held appends of a segment whose file can now be written."""
        self._appends.release(segment)
        if segment is not self._segments.newest:
            # The segment was rolled while it was held, so `_roll` has left the sync and the index files to this method.
            self._start(self._finish_rolled_steps(segment))

    # --- rolling and flushing ------------------------------------------------------------------------------------
    async def roll(self) -> Offset:
        """Starts a new segment at the log end, unless the newest one is empty. Returns the newest base offset."""
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
        self._start(self._open_steps(new))
        self._start(self.producers.store_steps(self.name, base_offset))
        if not old.is_held:
            self._start(self._finish_rolled_steps(old))
        return new

    def _open_steps(self, segment: Segment) -> Steps:
        handle = yield self.log_dir.open(segment.path(), create=True)
        segment.file = SegmentFile(self.log_dir, handle)
        self._release(segment)
        # Without this sync, a power cut could lose the directory entry of a file whose content was synced.
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
        """Moves the recovery point past the oldest rolled segments, as far as they are durable.

        Stores leader-epoch-checkpoint first if the epochs have changed: recovery trusts that file below the recovery point
        and rebuilds the epochs above it from the batches. So a new epoch is not stored until the recovery point moves, and
        no append waits for the file. When a disk dies, a broker becomes leader of many partitions at once; one sync for
        each of them would delay their first records.
        """
        if self.failure is not None:
            # The append that failed may be missing from a rolled segment, even if later syncs of that segment succeed.
            return
        if self._is_storing_epochs or not self._undurable or self._undurable[0].undone:
            return
        if self._epochs_changed:
            # `_store_epochs_steps` calls this method again when it is done.
            self._store_epochs()
            return
        while self._undurable and self._undurable[0].undone == 0:
            segment = self._undurable.popleft()
            self.recovery_point = Offset(max(self.recovery_point, segment.next_offset))
        assert self.recovery_point <= self.written_offset

    @property
    def outruns_syncs(self) -> bool:
        """Whether more than ROLLED_AHEAD_MAX rolled segments await their syncs. All logs of the directory share one queue of
        syncs, so a caller that copies records for which no client waits then awaits `wait_for_rolled` first."""
        is_syncing = self._background.count > 0 and self.failure is None and not self.is_closed
        return is_syncing and len(self._undurable) > ROLLED_AHEAD_MAX

    async def wait_for_rolled(self) -> None:
        """Returns once the log no longer outruns its syncs, which is also when it has failed or was closed."""
        while self.outruns_syncs:
            await self._background.wait_for_an_end()

    async def flush(self, up_to: Offset | None = None) -> Offset:
        """Syncs all appends so far and returns the recovery point. Skips the sync if that point already reaches `up_to`."""
        if up_to is not None and up_to <= self.recovery_point:
            return self.recovery_point
        async with self._lock:
            await self._sync()
        return self.recovery_point

    async def _sync(self) -> None:
        self._check_usable()
        target = self.log_end_offset
        while self._is_unfinished_below(target):
            if self._epochs_changed:
                self._store_epochs()
            await self._background.wait_for_an_end()
            self._check_usable()
        if target <= self.recovery_point:
            return
        segment = self._segments.newest
        assert segment.file is not None
        try:
            # The sync covers all appends queued so far, because operations on one file keep their order.
            await self.log_dir.fsync(segment.file.handle)
        except LogDirError as error:
            self._fail(error)
            raise
        self._check_not_failed()
        self.recovery_point = max(self.recovery_point, target)

    def _is_unfinished_below(self, target: Offset) -> bool:
        """Whether background steps must end before a sync of the newest segment makes everything below `target` durable.

        What is appended meanwhile does not count: a log may roll again before the last roll is durable, all the time."""
        newest = self._segments.newest
        return (
            self._epochs_changed
            or self._is_storing_epochs
            or (bool(self._undurable) and self._undurable[0].base_offset < target)
            or (newest.base_offset <= target and (newest.undone > 0 or newest.is_held))
        )

    def write_back(self, *, forget: bool = False) -> asyncio.Future[None]:
        """Starts syncing the written part of the newest segment, without holding up appends to the directory.

        The recovery point does not move; a later `flush` moves it and has little left to sync. The returned future completes
        when the sync has ended, even if it failed; a failed sync fails the log. `forget` then drops the segment's pages from
        the cache. Raises LogClosed, and LogDirError if the log has already failed.
        """
        self._check_usable()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def fail(error: LogDirError | None) -> None:
            self._fail(error)
            end()

        self._background.run(self._write_back_steps(end, forget=forget), on_failure=fail)
        return ended

    def _write_back_steps(self, end: Callable[[], None], *, forget: bool) -> Steps:
        segment = self._segments.newest
        # A segment that was just added has no file yet, and nothing in it.
        if segment.file is not None:
            # The kernel reports a failed write to only one sync. If it is reported to this one, the recovery point must not
            # pass the segment, even if the segment has been rolled and the sync of the roll succeeds.
            segment.undone += 1
            yield self.log_dir.write_back(segment.file.handle, forget=forget)
            segment.undone -= 1
            self._advance_recovery_point()
        end()

    def _store_epochs(self) -> None:
        """Replaces leader-epoch-checkpoint, and does so again if the epochs change in the meantime."""
        self._epochs_changed = True
        if not self._is_storing_epochs:
            self._is_storing_epochs = True
            self._start(self._store_epochs_steps())

    def _store_epochs_steps(self) -> Steps:
        while self._epochs_changed:
            self._epochs_changed = False
            name = f"{self.name}/{LEADER_EPOCH_CHECKPOINT_FILE}"
            yield self.log_dir.replace_file(name, self.leader_epochs.format())
        self._is_storing_epochs = False
        self._advance_recovery_point()

    # --- taking over another log ---------------------------------------------------------------------------------
    async def take_over(self, other: "Log") -> None:
        """Adopts the leader epochs, producers and log start of `other`, of which this log is a full copy, and syncs
        everything.

        Both logs end at the same offset, and the owner appends to neither. The epochs are adopted because copied batches
        show only the epochs that have records, and a leader must also know where an epoch without records ended. In the same
        way `other` may know producers whose batches were deleted before the copy began. When this returns, the recovery
        point is the log end. Raises LogClosed and LogDirError.
        """
        async with self._lock:
            self._check_usable()
            assert self.log_end_offset == other.log_end_offset, "the copy is not complete"
            with self._changing():
                self._adopt_epochs(other.leader_epochs)
                self.producers.state = other.producers.state.copy()
                self.raise_log_start_offset(other.log_start_offset)
                await self._delete_below_start()
                await self._sync()
        assert self.recovery_point == self.log_end_offset

    def _adopt_epochs(self, epochs: LeaderEpochs) -> None:
        adopted = LeaderEpochs(epochs.entries)
        # This log may start later than the other one.
        adopted.truncate_from_start(self.log_start_offset)
        if adopted.entries != self.leader_epochs.entries:
            self.leader_epochs = adopted
            self._store_epochs()

    # --- reading -------------------------------------------------------------------------------------------------
    async def read(
        self, offset: int, *, max_bytes: int, upper_offset: int = NO_UPPER_OFFSET, min_one_batch: bool = True
    ) -> LogRead:
        """Returns whole batches, beginning with the one that holds `offset`: at most `max_bytes`, all below `upper_offset`.

        With `min_one_batch` the first batch is returned even if it exceeds `max_bytes`. Does not suspend if the position is
        known in memory. Raises OffsetOutOfRange, LogDirError, and BatchError if the disk holds anything other than batches.
        """
        return self._as_read(await self._locate(offset, max_bytes, upper_offset, min_one_batch))

    def read_at_once(
        self, offset: int, *, max_bytes: int, upper_offset: int = NO_UPPER_OFFSET, min_one_batch: bool = True
    ) -> LogRead | None:
        """Like `read`, but returns None where that would have to wait. Raises OffsetOutOfRange and LogDirError."""
        span = self._locate_at_once(offset, max_bytes, upper_offset, min_one_batch)
        return None if span is None else self._as_read(span)

    async def read_with_aborted(
        self, offset: int, *, max_bytes: int, upper_offset: int, min_one_batch: bool = True
    ) -> tuple[LogRead, list[AbortedTransaction]]:
        """Like `read`, and also returns the aborted transactions whose records may be among those read.

        Compaction removes the records of an aborted transaction and then its entry. So both are looked up in the same
        segments: an entry that is missing must mean that its records are."""

        async def find() -> tuple[Span, list[AbortedTransaction]]:
            span = await self._find_span(offset, max_bytes, upper_offset, min_one_batch)
            if not span.size:
                return span, []
            return span, await self._segments.aborted_transactions(offset, span.next_offset)

        span, aborted = await self._segments.in_one_generation(find)
        return self._as_read(span), aborted

    async def read_bytes(
        self, offset: int, *, max_bytes: int, upper_offset: int = NO_UPPER_OFFSET, min_one_batch: bool = True
    ) -> bytes:
        """Like `read`, but returns the bytes themselves; empty if there is nothing to read."""
        span = await self._locate(offset, max_bytes, upper_offset, min_one_batch)
        return await span.segment.read(span.position, span.size) if span.size else b""

    def _as_read(self, span: Span) -> LogRead:
        first_offset, next_offset = Offset(span.first_offset), Offset(span.next_offset)
        if not span.size:
            return LogRead([], 0, first_offset, next_offset)
        assert span.segment.file is not None
        region = self.log_dir.region(span.segment.file.handle, span.position, span.size)
        return LogRead([region], span.size, first_offset, next_offset)

    def _locate_at_once(self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool) -> Span | None:
        """Returns the span to read if that is known in memory or from the page cache."""
        self._check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        upper_offset = min(upper_offset, self._appends.written_offset)
        span = locate_in_memory(
            self._segments.holding(offset),
            offset,
            max_bytes=max_bytes,
            upper_offset=upper_offset,
            min_one_batch=min_one_batch,
        )
        return span or locate_in_page_cache(
            self._segments, offset, max_bytes=max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch
        )

    async def _locate(self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool) -> Span:
        return await self._segments.in_one_generation(
            lambda: self._find_span(offset, max_bytes, upper_offset, min_one_batch)
        )

    async def _find_span(self, offset: int, max_bytes: int, upper_offset: int, min_one_batch: bool) -> Span:
        span = self._locate_at_once(offset, max_bytes, upper_offset, min_one_batch)
        if span is not None:
            return span
        upper_offset = min(upper_offset, self._appends.written_offset)
        return await locate_on_disk(
            self._segments, offset, max_bytes=max_bytes, upper_offset=upper_offset, min_one_batch=min_one_batch
        )

    # --- transactions --------------------------------------------------------------------------------------------
    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the first transaction begins that is open, or whose marker is not replicated yet; None if there is none."""
        offset = self.producers.state.first_unstable_offset
        return None if offset is None else Offset(max(offset, self.log_start_offset))

    def replicated_up_to(self, high_watermark: Offset) -> None:
        """Notes the high watermark, also after a truncation or a load. Transactions that end below it are stable."""
        self.producers.state.replicated_up_to(high_watermark)

    async def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that end at or after `start_offset` and begin below `upper_offset`.

        A reader needs them to skip the records of these transactions between the two offsets. `upper_offset` must not be
        beyond the first unstable offset. Raises LogClosed, LogDirError, and BatchError if an index is damaged."""

        async def collect() -> list[AbortedTransaction]:
            self._check_usable()
            return await self._segments.aborted_transactions(start_offset, upper_offset)

        return await self._segments.in_one_generation(collect)

    # --- offsets by time -----------------------------------------------------------------------------------------
    async def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Returns the first record, in offset order, whose timestamp is at least `timestamp`; None if there is none."""

        async def find() -> TimestampOffset | None:
            self._check_usable()
            return await first_at_or_after(self._segments, timestamp, from_offset=self.log_start_offset)

        return await self._segments.in_one_generation(find)

    async def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp, None if no record has a timestamp."""

        async def find() -> TimestampOffset | None:
            self._check_usable()
            return await newest(self._segments, from_offset=self.log_start_offset)

        return await self._segments.in_one_generation(find)

    # --- truncation ----------------------------------------------------------------------------------------------
    def lower_recovery_point(self, offset: Offset) -> None:
        """Lowers the recovery point so that it is not above the log end that `truncate_to(offset)` will leave.

        The owner calls this and stores the recovery point before it truncates.
        """
        if offset < self.recovery_point:
            # If `offset` is inside a batch, truncation ends the log at the start of that batch. The start is not known here,
            # so lower the recovery point to the start of the segment.
            self.recovery_point = Offset(min(offset, self._segments.holding(offset).base_offset))

    async def truncate_to(self, offset: Offset) -> Offset:
        """Truncates the log at `offset`, or at the start of the batch that holds it. Returns the new log end offset.

        The owner must first lower the recovery point and store it. Otherwise, after a crash, the old, higher recovery point
        would vouch for bytes that were never synced.
        """
        async with self._lock:
            self._check_usable()
            if offset >= self.log_end_offset:
                # A leader that was deposed before its first append has left an epoch that starts at the log end. If we kept
                # that entry, it would conflict with the new leader's epochs, and every fetch would report the divergence.
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
        """Drops everything and continues at `offset`, as a follower does if its log ends before the leader's starts."""
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
            if end < self.producers.state.end_offset:
                producers = await self.producers.state_at(self.name, segments, end)
            else:
                producers = self.producers.state
        # Do not suspend from here until `_cut_steps` is queued: only then do memory and the disk's queue agree again.
        removed = segments[number + 1 :]
        kept.is_held = True
        self._segments.replace([*segments[:number], kept], removed)
        self.producers.state = producers
        self._end_at(end)
        if self.leader_epochs.truncate_from_end(end):
            self._store_epochs()
        self._start(self._cut_steps(kept, position, removed))
        await self._background.wait()

    def _cut_steps(self, kept: Segment, position: int, removed: list[Segment]) -> Steps:
        yield from self.producers.drop_beyond_steps(self.name, self.log_end_offset)
        # Remove the newest segment first and sync each removal, so that a crash leaves a log too long but without a hole.
        for segment in reversed(removed):
            if segment.file is None:
                yield self.log_dir.remove(segment.path())
            else:
                yield from segment.removal_steps()
            yield self.log_dir.fsync_dir(self.name)
        # Remove index files that reach past the new end: a later start would take them for indexes of newer records.
        yield from kept.index_removal_steps()
        assert kept.file is not None
        yield self.log_dir.truncate(kept.file.handle, position)
        # Without a sync, a power cut could bring the truncated bytes back, below a later recovery point or before a newer
        # segment.
        yield self.log_dir.fsync(kept.file.handle)
        self._release(kept)
        yield from self._dispose_steps(removed)

    async def _start_over(self, offset: Offset) -> None:
        removed = [*self._segments]
        new = Segment(self.log_dir, self.name, offset)
        new.is_held = True
        self._segments.replace([new], removed)
        self._end_at(offset)
        self.producers.state = ProducerState()
        self.log_start_offset = offset
        if self.leader_epochs.clear():
            self._store_epochs()
        self._start(self._start_over_steps(new, removed))
        await self._background.wait()

    def _start_over_steps(self, new: Segment, removed: list[Segment]) -> Steps:
        yield from self.producers.drop_all_steps(self.name)
        # Rename the old segments away first: one of them may have the same name as the new one.
        for segment in reversed(removed):
            yield from segment.removal_steps()
        new.undone = 1
        yield from self._open_steps(new)
        yield from self._dispose_steps(removed)

    def _end_at(self, offset: Offset) -> None:
        self.log_end_offset = offset
        self._appends.restart_at(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    # --- compaction ----------------------------------------------------------------------------------------------
    @property
    def generation(self) -> int:
        """Changes whenever segments are removed or replaced; what was read from a segment before may be out of date then."""
        return self._segments.generation

    def durable_segments(self) -> list[Segment]:
        """Returns the segments that take no more appends and survive a power cut, oldest first."""
        self._check_usable()
        return [each for each in [*self._segments][:-1] if each.next_offset <= self.recovery_point and not each.undone]

    async def create_cleaned(self, base_offset: int) -> Segment:
        """Creates the file of a segment that is to replace others. Raises LogClosed and LogDirError."""
        async with self._lock:
            self._check_usable()
            return await open_cleaned(self.log_dir, self.name, base_offset)

    async def discard_cleaned(self, cleaned: Segment) -> None:
        """Removes the file of a segment that will not replace any."""
        assert cleaned.file is not None
        cleaned.file.retire()
        async with self._lock:
            if not self.is_closed:
                await self.log_dir.remove(cleaned.cleaned_path(self.name))

    async def swap_in(self, cleaned: Segment, replaced: Sequence[Segment]) -> bool:
        """Durably puts a written and synced segment into the place of others that follow each other. Returns False, and
        changes nothing, if any of them is no longer in the log. Raises LogClosed and LogDirError."""
        async with self._lock:
            self._check_usable()
            # A segment cannot be renamed safely while it or its index files are being written to disk.
            while any(segment.undone for segment in replaced):
                await self._background.wait_for_an_end()
                self._check_usable()
            segments = [*self._segments]
            number = self._segments.number_of(replaced[0].base_offset)
            after = number + len(replaced)
            if after >= len(segments) or any(a is not b for a, b in zip(segments[number:after], replaced, strict=True)):
                return False
            cleaned.folder = self.name
            cleaned.undone = 1
            self._segments.replace([*segments[:number], cleaned, *segments[after:]], [*replaced])
            await self._run(self._swap_steps(cleaned, replaced))
        return True

    def _swap_steps(self, cleaned: Segment, replaced: Sequence[Segment]) -> Steps:
        yield from self.producers.drop_within_steps(self.name, replaced[0].base_offset, replaced[-1].next_offset)
        yield from swap_steps(cleaned, replaced)
        yield from self._dispose_steps(replaced)

    # --- deletion ------------------------------------------------------------------------------------------------
    def raise_log_start_offset(self, offset: Offset) -> bool:
        """Makes everything below `offset` unreadable. The next deletion removes segments below it. Never lowers the start.

        Returns whether anything changed. Raises OffsetOutOfRange if `offset` is beyond the log end.
        """
        if offset <= self.log_start_offset:
            return False
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        self.log_start_offset = offset
        if self.leader_epochs.truncate_from_start(offset):
            self._store_epochs()
        return True

    async def delete_segments_before(self, offset: Offset) -> list[DeletedSegment]:
        """Raises the log start to `offset` and removes the segments entirely below it, except the newest segment.

        The owner makes sure that `offset` is not above the high watermark or, in the metadata log, the end of the latest
        snapshot.
        """
        async with self._lock:
            self._check_usable()
            self.raise_log_start_offset(offset)
            return await self._delete_below_start()

    async def delete_expired(self, expiry: Expiry, *, now_ms: int, high_watermark: Offset) -> list[DeletedSegment]:
        """Removes segments that exceed retention by time or size, and segments below the log start."""
        async with self._lock:
            self._check_usable()
            segments = list(self._segments)
            count = await expired_segments(segments, expiry, now_ms=now_ms, high_watermark=high_watermark)
            # The newest segment may have grown while `expired_segments` waited for the disk.
            while count and self._segments[count - 1].next_offset > high_watermark:
                count -= 1
            if count:
                if count == len(self._segments):
                    # All segments have expired. The newest segment can only be removed once there is a newer one.
                    self._roll(self.log_end_offset)
                self.raise_log_start_offset(Offset(self._segments[count].base_offset))
            return await self._delete_below_start()

    async def _delete_below_start(self) -> list[DeletedSegment]:
        # A segment cannot be renamed safely while it or its index files are being written to disk. Do not wait for the
        # other segments: on a busy disk the log may roll again before the last roll is durable, all the time.
        while any(segment.undone for segment in self._below_start()):
            await self._background.wait_for_an_end()
            self._check_usable()
        removed = self._below_start()
        if not removed:
            return []
        self._segments.replace([*self._segments][len(removed) :], removed)
        await self._run(self._delete_steps(removed))
        return [DeletedSegment(Offset(segment.base_offset), segment.size) for segment in removed]

    def _below_start(self) -> list[Segment]:
        return [*self._segments][: self._segments.number_of(self.log_start_offset)]

    def _delete_steps(self, removed: list[Segment]) -> Steps:
        for segment in removed:
            yield from segment.removal_steps()
            yield from self.producers.drop_steps(self.name, segment.base_offset)
            # Sync each removal: if a power cut brought back an older segment but not the next, the log would have a hole.
            yield self.log_dir.fsync_dir(self.name)
        yield from self._dispose_steps(removed)

    def _dispose_steps(self, removed: Sequence[Segment]) -> Steps:
        names = [segment.deleted_name for segment in removed]
        if self.on_deleted is None:
            yield from self._remove_steps(names)
        else:
            self.on_deleted(names)

    def remove_deleted(self, names: Sequence[str]) -> bool:
        """Starts removing files that `on_deleted` was called with. Returns False while the folder is being renamed, so that
        the owner tries again. Files that are left when the log is closed are removed at the next start."""
        if self._is_changing:
            return False
        if not self.is_closed and self.failure is None:
            # A failure does no harm to the log.
            self._background.run(self._remove_steps(names), on_failure=lambda _: None)
        return True

    def _remove_steps(self, names: Sequence[str]) -> Steps:
        for name in names:
            yield self.log_dir.remove(f"{self.name}/{name}")
