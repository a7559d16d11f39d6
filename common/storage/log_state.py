"""What a partition's log consists of, and the rules under which its files change (shell).

`Log` is the whole: one object, with a module for each kind of operation. Here is what they all share.

    LogState            log_state.py            the state, its failure, and the work in the background
    LogReads            log_reads.py            whole batches, aborted transactions, offsets by time
    LogSyncs            log_syncs.py            rolling, and what survives a power cut
    LogAppends          log_appends.py          appending as leader and as follower
    SegmentDeletion     segment_deletion.py     retention, and raising the log start
    SegmentReplacement  segment_replacement.py  putting a compacted segment into the place of others
    LogTruncation       log_truncation.py       cutting the log's end, and starting over

1. Operations that change files by name (rolling, truncating, deleting, renaming) run under a lock or as `Steps`, so that
   none of them looks for a file that another has already removed: the ENOENT would take the whole directory offline.
2. One failed operation fails the whole log. From then on it acknowledges nothing, not even appends that the disk reports as
   written later, until its owner loads it again.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from common.environment.interface import LogDir, LogDirError
from common.ids import Offset, TopicId
from common.storage.append_pipeline import AppendPipeline
from common.storage.errors import LogClosed
from common.storage.leader_epochs import LeaderEpochs
from common.storage.log_config import LogSettings
from common.storage.log_segments import LogSegments
from common.storage.outstanding import Outstanding, Steps
from common.storage.producers.log_producers import LogProducers
from common.storage.recovery import Recovery
from common.storage.segment import Segment


class LogState:
    """See the module docstring. The owner only reads the attributes, except that `config` may be replaced at any time."""

    log_start_offset: Offset
    """The first offset that may be read. Moves back only if the log is truncated below it or starts over."""
    log_end_offset: Offset
    """The offset of the next record. Advances with every append, before the bytes are written; truncation moves it back."""
    recovery_point: Offset
    """Everything below this offset survives a power cut, including leader epochs. So do the indexes below `recovery_start`.

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
        # A callback that the owner sets. Called when the recovery point or the log start may have changed, or the log end
        # has moved back.
        self.on_offsets_changed: Callable[[], None] | None = None
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
        # The oldest segment without a file, while its predecessor has one and too many rolled segments await their syncs.
        # The end of such a sync opens it. Invariant: None if no such sync is under way, unless the log has failed.
        self._unopened: Segment | None = None
        # True while `_store_epochs_steps` runs. Invariant: it runs at most once at a time.
        self._is_storing_epochs = False
        # The end of the last append that had to be synced before it counted as written, or of what was durable otherwise.
        # flush.messages counts from here. Invariant: what is below is durable or waits for a sync, `_maybe_sync_appends`.
        self._flush_offset = recovery_point
        # The end of the last sync for appends; see `synced_offset`.
        self._synced_offset = recovery_point
        # True while `_maybe_sync_appends` is to be called in the next turn of the event loop.
        self._is_sync_scheduled = False
        # True while `_sync_appends_steps` runs. Invariant: it runs at most once at a time.
        self._is_syncing_appends = False
        # True if leader-epoch-checkpoint is older than `leader_epochs`. The file is stored before the recovery point moves.
        self._epochs_changed = False

    @property
    def written_offset(self) -> Offset:
        """The kernel has every record below this offset, and has synced those that flush.messages wants synced. So these
        records can be read."""
        return self._appends.written_offset

    @property
    def synced_offset(self) -> Offset:
        """Every record below this offset survives a power cut. Unlike below the recovery point, the leader epochs need
        not."""
        return max(self.recovery_point, self._synced_offset)

    @property
    def recovery_start(self) -> Offset:
        """Where a load after a crash has to begin: what the checkpoint has for the recovery point.

        Such a load trusts all segments before the one with this offset, including their indexes. A flush moves the recovery
        point to the log end, but a segment gets its index files when it is rolled. So the newest segment, and those that are
        not durable yet, stay beyond this offset even if their records are synced."""
        oldest = self._undurable[0] if self._undurable else self._segments.newest
        return Offset(min(self.recovery_point, oldest.base_offset))

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes, including bytes that are still queued."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_base_offsets(self) -> list[Offset]:
        """The base offsets of all segments, ascending."""
        return self._segments.base_offsets

    @property
    def generation(self) -> int:
        """Changes whenever segments are removed or replaced; what was read from a segment before may be out of date then."""
        return self._segments.generation

    def _note_offsets_changed(self) -> None:
        if self.on_offsets_changed is not None:
            self.on_offsets_changed()

    # --- failure -------------------------------------------------------------------------------------------------
    def lose_directory(self) -> None:
        """Fails the log because its directory went offline. It will not be closed, since nothing can be written any more."""
        self._fail(LogDirError(self.log_dir.path, "close", errno.EIO, detail="the directory is offline"))

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

    def _retire(self) -> None:
        """Releases the files and what would keep the log in memory. Nothing is appended to it any more."""
        self._segments.retire_files()
        self._appends.end()

    def _check_not_failed(self) -> None:
        if self.failure is not None:
            # Without what earlier requests have left in it: each would stay in memory with its records.
            raise self.failure.with_traceback(None)

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

    # --- work in the background ----------------------------------------------------------------------------------
    def _start(self, steps: Steps) -> None:
        """Runs the steps in the background. A failure fails the log."""
        self._background.run(steps, on_failure=self._fail)

    def _start_watched(self, steps: Steps) -> asyncio.Future[None]:
        """Like `_start`. The returned future completes when the steps have ended, even if they failed."""
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
        return ended

    async def _run(self, steps: Steps) -> None:
        """Runs the steps in the background and waits until they have ended, whatever else is under way. They go on if the
        caller is cancelled. Raises LogDirError if the log has failed."""
        await self._start_watched(steps)
        self._check_not_failed()

    async def _settle(self) -> None:
        """Returns when no append and no background operation of this log is in flight."""
        while not self._appends.is_idle or self._background.count:
            await self._background.wait()
            await self._appends.wait()
