"""Writes the appends of one log to the disk and counts them as written in offset order (shell).

Kafka's LocalLog writes under a lock on the request's thread. Here an append is a plain call that returns before its bytes
are written: the log assigns the offsets and the position, and the pipeline does the rest.

    send ──> held ──────────────> at the LogDir ──> done ──────────────────> written
             until the segment's  several at once,  until all earlier        `written_offset` moves,
             file is open         in any order      appends are done         `on_written` is called

An append that must survive a power cut (flush.messages) is not done until the log has also synced it.

1. `written_offset` moves in offset order. Two segments are two files, so a later append can finish first. It then waits
   until all earlier appends are done.
2. One failed append ends the pipeline. Later appends may be on the disk after a hole, or not at all. So `fail` takes back
   every append that is not written yet, and completions that the disk reports afterwards no longer count.
3. The callbacks of an append run in a later step of the event loop, never from inside a method of the pipeline. Appends that
   are written together, as one group of the LogDir, share that step.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from common.environment.interface import LogDir, LogDirError
from common.environment.pending_write import PendingWrite
from common.ids import Offset
from common.storage.outstanding import Outstanding
from common.storage.segment import Segment

OnWritten = Callable[[], None]
"""Called when the kernel has the bytes of this append and of all earlier ones, and has synced those that must be."""

OnFailed = Callable[[LogDirError | None], None]
"""Called when the append has failed. The error is None if the append was given up because the process is shutting down."""


class AwaitedAppend:
    """Turns the two callbacks of an append into a future, for callers that await their append.

    The future belongs to the caller. Cancelling it changes nothing for the log.
    """

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def failed(self, error: LogDirError | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.cancel()
        else:
            self.ended.set_exception(error)
            # The caller may never await the future. Retrieving the exception here keeps asyncio from logging it.
            self.ended.exception()


class _Append(PendingWrite):
    """An append that is not written yet."""

    __slots__ = ("end_offset", "end_position", "is_done", "on_failed", "on_written", "pipeline", "segment")

    def __init__(
        self,
        pipeline: "AppendPipeline",
        segment: Segment,
        end_position: int,
        end_offset: Offset,
        on_written: OnWritten,
        on_failed: OnFailed,
    ) -> None:
        # Not by the base class: for each append of a small record, that would be a call more.
        self._is_settled = False
        self.pipeline = pipeline
        self.segment = segment
        self.end_position = end_position
        self.end_offset = end_offset
        self.on_written = on_written
        self.on_failed = on_failed
        # Whether the kernel has the bytes, and has synced them if they must be.
        self.is_done = False

    def written(self) -> None:
        self.is_done = True
        self.pipeline.note_done()

    def failed(self, error: Exception | None) -> None:
        assert error is None or isinstance(error, LogDirError)
        self.pipeline.note_failed(error)


class _SyncedAppend(_Append):
    """An append that is done only once it is synced, too."""

    __slots__ = ("is_in_kernel", "is_synced")

    is_in_kernel: bool
    is_synced: bool

    def written(self) -> None:
        self.is_in_kernel = True
        self.is_done = self.is_synced
        self.pipeline.note_done()

    def note_synced(self) -> None:
        self.is_synced = True
        self.is_done = self.is_in_kernel


class AppendPipeline:
    """Writes the appends of one Log, which decides when appending is allowed. Calls `on_failure` if a write fails."""

    __slots__ = (
        "_held",
        "_in_order",
        "_log_dir",
        "_loop",
        "_on_failure",
        "_outstanding",
        "_unsynced",
        "_written",
        "written_offset",
    )

    def __init__(self, log_dir: LogDir, written_offset: Offset, on_failure: Callable[[LogDirError | None], None]) -> None:
        self._log_dir = log_dir
        self._loop = asyncio.get_running_loop()
        # The kernel has every record below this offset, and has synced those that must be. Advances when the oldest append
        # is done; `restart_at` resets it.
        self.written_offset = written_offset
        # Every append that was sent and is not written yet, in offset order. Invariant: the first one is not done.
        self._in_order: deque[_Append] = deque()
        # The appends of `_in_order` whose segment is held, in the same order, each with its position and bytes.
        self._held: list[tuple[_Append, int, Sequence[memoryview]]] = []
        # The appends of `_in_order` that must be synced and are not, in the same order.
        self._unsynced: list[_SyncedAppend] = []
        # The callbacks of written appends, in offset order. While there are any, `_call_back` is scheduled.
        self._written: deque[OnWritten] = deque()
        self._outstanding = Outstanding()
        # None once the pipeline has ended. The callback belongs to the log, which refers to the pipeline: while it is kept,
        # only a garbage collection can free the two.
        self._on_failure: Callable[[LogDirError | None], None] | None = on_failure

    def send(
        self,
        segment: Segment,
        position: int,
        buffers: Sequence[memoryview],
        end_offset: Offset,
        *,
        must_be_synced: bool = False,
        on_written: OnWritten,
        on_failed: OnFailed,
    ) -> None:
        """Queues `buffers` for writing at `position`. `segment.size` must already include them.

        Calls one of the two callbacks, once. If the append `must_be_synced`, the log syncs it and calls `note_synced`.
        """
        if must_be_synced:
            append: _Append = self._unsynced_append(segment, end_offset, on_written, on_failed)
        else:
            append = _Append(self, segment, segment.size, end_offset, on_written, on_failed)
        self._in_order.append(append)
        if segment.is_held:
            self._held.append((append, position, buffers))
        else:
            self._write(append, position, buffers)

    def _unsynced_append(
        self, segment: Segment, end_offset: Offset, on_written: OnWritten, on_failed: OnFailed
    ) -> _SyncedAppend:
        append = _SyncedAppend(self, segment, segment.size, end_offset, on_written, on_failed)
        append.is_in_kernel = append.is_synced = False
        self._unsynced.append(append)
        return append

    @property
    def has_unsynced(self) -> bool:
        """Whether any append waits for a sync."""
        return bool(self._unsynced)

    def note_synced(self, offset: Offset) -> None:
        """Notes that everything below `offset` would survive a power cut."""
        count = 0
        for append in self._unsynced:
            if append.end_offset > offset:
                break
            append.note_synced()
            count += 1
        if count:
            del self._unsynced[:count]
            # It counts what is done now. No operation has ended, so one begins for it.
            self._outstanding.begin()
            self.note_done()

    def when_written(self, *, on_written: OnWritten, on_failed: OnFailed) -> None:
        """Calls `on_written` when all appends sent so far are written, or `on_failed` if one of them fails."""
        if not self._in_order:
            self._loop.call_soon(on_written)
            return
        # An append of nothing, done from the start: its turn comes after all earlier ones.
        last = self._in_order[-1]
        nothing = _Append(self, last.segment, last.end_position, last.end_offset, on_written, on_failed)
        nothing.is_done = True
        self._in_order.append(nothing)

    def release(self, segment: Segment) -> None:
        """Sends the appends held for this segment, whose file can now be written."""
        segment.is_held = False
        # Other segments may still be waiting for their files, which open in any order. Their appends stay held.
        held, self._held = self._held, []
        for append in held:
            if append[0].segment is segment:
                self._write(*append)
            else:
                self._held.append(append)

    def fail(self, error: LogDirError | None) -> None:
        """Takes back every append that is not written yet.

        `error` is None if the LogDir gave the operation up unfinished because the process is shutting down.
        """
        self._on_failure = None
        self._held.clear()
        self._unsynced.clear()
        taken_back, self._in_order = self._in_order, deque()
        for append in taken_back:
            self._loop.call_soon(append.on_failed, error)

    def end(self) -> None:
        """Ends the pipeline of a log that is closed. Call only while no append is in flight."""
        assert not self._in_order
        self._on_failure = None

    def restart_at(self, offset: Offset) -> None:
        """Continues at `offset`, the new end of a truncated log. Call only while no append is in flight."""
        assert not self._in_order
        self.written_offset = offset

    @property
    def is_idle(self) -> bool:
        """Whether the LogDir has no appends of this log left to write."""
        return not self._outstanding.count

    async def wait(self) -> None:
        """Returns when the LogDir has finished or failed every append of this log."""
        await self._outstanding.wait()

    def _write(self, append: _Append, position: int, buffers: Sequence[memoryview]) -> None:
        assert append.segment.file is not None
        self._outstanding.begin()
        self._log_dir.start_append(append.segment.file.handle, position, buffers, append)

    # --- for the appends -----------------------------------------------------------------------------------------
    def note_done(self) -> None:
        """Notes that the kernel has the bytes of one more append."""
        in_order, written = self._in_order, self._written
        while in_order and in_order[0].is_done:
            first = in_order.popleft()
            first.segment.written_size = first.end_position
            self.written_offset = first.end_offset
            if not written:
                self._loop.call_soon(self._call_back)
            written.append(first.on_written)
        self._outstanding.end()

    def note_failed(self, error: LogDirError | None) -> None:
        """Reports that an append has failed, or was given up if there is no error."""
        if self._on_failure is not None:
            self._on_failure(error)
        self._outstanding.end()

    def _call_back(self) -> None:
        written = self._written
        try:
            while written:
                written.popleft()()
        finally:
            if written:
                # A callback has failed, which ends the daemon.
                self._loop.call_soon(self._call_back)
