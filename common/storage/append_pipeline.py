"""How the appends of one log get to the disk, and in which order they count as written (shell).

Kafka's LocalLog writes under a lock on the request's thread; here an append is a plain call and its bytes follow. The log
assigns the offsets and the place, the pipeline does the rest:

    send ──> held ──────────────> at the LogDir ──> done ──────────────────> written
             while the segment's  several at once,  until all appends        `written_offset` moves,
             file is not open     any order         before it are done       its future completes

1. `written_offset` moves in the order of the offsets. Two segments are two files, so a later append may be done first; it
   then waits for its turn.
2. A failed append ends the pipeline. What follows it is on the disk at a wrong place or not at all, so `fail` takes back
   every append that is not written yet, and none that the disk reports later counts.
3. The futures belong to the callers. Cancelling one changes nothing for the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from common.environment.interface import LogDir, LogDirError
from common.ids import Offset
from common.storage.outstanding import Outstanding
from common.storage.segment import Segment


@dataclass(slots=True, eq=False)
class _Append:
    """An append that is not written yet."""

    segment: Segment
    end_position: int
    end_offset: Offset
    written: "asyncio.Future[None]"
    is_done: bool = False


class AppendPipeline:
    """Owned by a Log, which decides when it may be used; `on_failure` is called for every append that fails."""

    __slots__ = ("_held", "_in_order", "_log_dir", "_outstanding", "written_offset")

    def __init__(self, log_dir: LogDir, written_offset: Offset, on_failure: Callable[[LogDirError | None], None]) -> None:
        self._log_dir = log_dir
        # The kernel has everything before it. Changes when the first append in order is done, and by `restart_at`.
        self.written_offset = written_offset
        # Everything that was sent and is not written, ascending. Invariant: the first one is not done.
        self._in_order: deque[_Append] = deque()
        # Those of them whose segment's file is not open yet, in order, with position and bytes.
        self._held: list[tuple[_Append, int, Sequence[memoryview]]] = []
        self._outstanding = Outstanding(on_failure)

    def send(
        self, segment: Segment, position: int, buffers: Sequence[memoryview], end_offset: Offset
    ) -> "asyncio.Future[None]":
        """Sends bytes that end where the segment now does. The future completes when they and all before are written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        append = _Append(segment, segment.size, end_offset, written)
        self._in_order.append(append)
        if segment.is_held:
            self._held.append((append, position, buffers))
        else:
            self._write(append, position, buffers)
        return written

    def release(self, segment: Segment) -> None:
        """The segment's file can be written: sends what waited for it."""
        segment.is_held = False
        # Several segments may be waiting for their files, which open in any order.
        held, self._held = self._held, []
        for append in held:
            if append[0].segment is segment:
                self._write(*append)
            else:
                self._held.append(append)

    def fail(self, error: LogDirError | None) -> None:
        """Takes back everything that is not written. None: given up unfinished, the process is on its way out."""
        self._held.clear()
        taken_back, self._in_order = self._in_order, deque()
        for append in taken_back:
            if append.written.done():
                continue
            if error is None:
                append.written.cancel()
            else:
                append.written.set_exception(error)
                # The caller may not wait for it. Asking marks the error as seen.
                append.written.exception()

    def restart_at(self, offset: Offset) -> None:
        """The log was cut and now ends at `offset`. Called when nothing is under way."""
        assert not self._in_order
        self.written_offset = offset

    @property
    def is_idle(self) -> bool:
        """Whether the LogDir has nothing of this log to write."""
        return not self._outstanding.count

    async def wait(self) -> None:
        """Returns when the LogDir has nothing more of this log to write, failed or not."""
        await self._outstanding.wait()

    def _write(self, append: _Append, position: int, buffers: Sequence[memoryview]) -> None:
        assert append.segment.file is not None
        done = self._log_dir.append(append.segment.file.handle, position, buffers)
        self._outstanding.start(done, partial(self._note_done, append))

    def _note_done(self, append: _Append, _: None) -> None:
        append.is_done = True
        while self._in_order and self._in_order[0].is_done:
            first = self._in_order.popleft()
            first.segment.written_size = first.end_position
            self.written_offset = first.end_offset
            if not first.written.done():
                first.written.set_result(None)
