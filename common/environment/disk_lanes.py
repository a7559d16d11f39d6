"""What a log directory has queued for its two threads, and by when each operation must be done (shell).

There are two lanes, one per thread: the writer's, with everything but reads, and the reader's. The event loop owns them; the
threads have queues of their own (disk_threads.py) and never look here. The life of one operation:

                     RealLogDir                DiskThreads             RealLogDir._settle
    submitted ──────────────────> queued ──────────────> running ──────────────────────> done
        │                           │                       │
        │ refused: not attached,    ├───────────────────────┤ its deadline passes
        │ closed, too much queued   │                       v
        v                           │                    expired ──────────────────────> done, and ignored
    failed at once                  │ take_offline          │ (if the kernel ever returns)
                                    v                       v
                                 abandoned <────────────────┘

1. The future is completed exactly once, on the loop, by the first of these: the refusal, `_settle` with what the thread
   found, the deadline, or `take_offline` with the error that it was given. Whatever comes later is dropped, except that it
   still gives back bytes and counters.
2. Expiring ends only the waiting. The thread may be stuck inside the operation, so the operation keeps its place in the
   lane, its bytes and its descriptor until the thread returns.
3. A deadline measures the disk, not the queue: it counts from the last progress of the thread that the operation waits for.
   A thousand syncs of a slow disk may take longer together than one may alone.
4. A process that stood still (SIGSTOP, a paused machine) finds every deadline passed at once. A timer that fires very late
   therefore grants all operations a grace before any of them expires.
5. `take_offline` empties the lanes; the threads drop what they have not begun. `close` refuses new operations and lets the
   queued ones run to their end. Its own future is an operation in the writer's lane that no thread carries out: it is done
   when both threads have left, and expires like any other if one never does.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from common.environment.disk_threads import Append, Queued
from common.environment.real_timers import Timer
from common.time_units import NS_PER_S

_OPERATIONS_MAX: Final = 100_000
_BYTES_MAX: Final = 512 * 1024 * 1024
# A timer that comes this late says that the whole process stood still, not that the disk did.
_STALL_NS: Final = 500_000_000
_GRACE_NS: Final = NS_PER_S


class DiskLanes:
    """Created and used on one loop. `on_expired` is called for each operation when its deadline has passed."""

    __slots__ = (
        "_bytes",
        "_for_reader",
        "_for_writer",
        "_grace_until_ns",
        "_loop",
        "_on_expired",
        "_reader_progress_ns",
        "_timeout_ns",
        "_timer",
        "_timer_at_ns",
        "_writer_progress_ns",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, operation_timeout_ns: int, on_expired: Callable[[Queued], None]
    ) -> None:
        self._loop = loop
        self._timeout_ns = operation_timeout_ns
        self._on_expired = on_expired
        # In the order in which they were queued. Invariant: the front is not finished. A finished operation leaves the
        # writer's lane when all before it are finished, which costs nothing per operation. It leaves the reader's at once:
        # in the lane it would keep the bytes that it read.
        self._for_writer: deque[Queued] = deque()
        self._for_reader: deque[Queued] = deque()
        # Invariant: the bytes of all appends that the writer has not finished, expired ones included.
        self._bytes = 0
        # When each thread last handed something back; 0 before the first time. Only ever rises.
        self._writer_progress_ns = 0
        self._reader_progress_ns = 0
        # One timer for both lanes, armed at the earliest deadline of the moment and left to fire when that operation has
        # long finished: arming one per append would cost more than the append. None only while nothing is queued that could
        # expire.
        self._timer: Timer | None = None
        self._timer_at_ns = 0
        # Nothing expires before this. Changes when a timer fires very late.
        self._grace_until_ns = 0

    @property
    def oldest_age_ns(self) -> int:
        """How long the oldest unfinished operation has been queued or running; 0 when there is none."""
        oldest = min((lane[0].queued_ns for lane in (self._for_writer, self._for_reader) if lane), default=0)
        return time.monotonic_ns() - oldest if oldest else 0

    def has_room_for_writer(self, size: int) -> bool:
        return self._bytes + size <= _BYTES_MAX and len(self._for_writer) < _OPERATIONS_MAX

    def has_room_for_reader(self) -> bool:
        return len(self._for_reader) < _OPERATIONS_MAX

    # --- in and out ----------------------------------------------------------------------------------------------
    def add_append(self, append: Append) -> None:
        self._bytes += append.size
        self._for_writer.append(append)
        if self._timer is None:
            self._watch()

    def add(self, queued: Queued) -> None:
        """Called once it is known which thread the operation waits for first: its deadline depends on that."""
        (self._for_reader if queued.by_reader else self._for_writer).append(queued)
        if self._timer is None:
            self._watch()

    def note_finished(self, finished: Sequence[Queued]) -> None:
        """A thread has handed these back together. Gives back what they held; they stay in their lane until `remove`."""
        if finished[0].by_reader:
            self._reader_progress_ns = time.monotonic_ns()
        else:
            self._writer_progress_ns = time.monotonic_ns()
        for queued in finished:
            queued.finished = True
            if isinstance(queued, Append):
                self._bytes -= queued.size
                queued.file.writes_in_flight -= 1
            elif queued.file is not None:
                if queued.by_reader:
                    queued.file.reads_in_flight -= 1
                else:
                    queued.file.writes_in_flight -= 1

    def remove(self, finished: Sequence[Queued]) -> None:
        """Their futures are settled. Not called after `take_all`."""
        if finished[0].by_reader:
            for queued in finished:
                self._for_reader.remove(queued)
        while self._for_writer and self._for_writer[0].finished:
            self._for_writer.popleft()

    def take_all(self) -> list[Queued]:
        """Empties both lanes. Nothing that was in them expires any more."""
        taken = [*self._for_writer, *self._for_reader]
        self._for_writer.clear()
        self._for_reader.clear()
        return taken

    def stop(self) -> None:
        """No operation will come any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- deadlines -----------------------------------------------------------------------------------------------
    def _watch(self) -> None:
        """Arms the timer, if it is not, at the first deadline."""
        if self._timer is not None:
            return
        deadline_ns = min(
            (
                self._deadline_of(queued)
                for lane in (self._for_writer, self._for_reader)
                for queued in lane
                if not queued.finished and not queued.expired
            ),
            default=None,
        )
        if deadline_ns is not None:
            self._timer_at_ns = max(deadline_ns, self._grace_until_ns)
            self._timer = Timer(self._loop, self._timer_at_ns, self._timer_fired)

    def _deadline_of(self, queued: Queued) -> int:
        if not queued.by_reader or queued.held_back:
            progress_ns = self._progress_towards_writer_ns()
        else:
            progress_ns = max(queued.freed_ns, self._reader_progress_ns)
        return max(queued.queued_ns, progress_ns) + self._timeout_ns

    def _progress_towards_writer_ns(self) -> int:
        """Time of the last progress that counts for what waits for the writer.

        A writer that is held back by the reader progresses with it. If the writer itself hangs, the reader's progress says
        nothing."""
        front = self._for_writer[0] if self._for_writer else None
        if front is None:
            return self._writer_progress_ns
        return max(self._writer_progress_ns, self._reader_progress_ns if front.held_back else front.freed_ns)

    def _timer_fired(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._timer_at_ns > _STALL_NS:
            self._grace_until_ns = now_ns + min(_GRACE_NS, self._timeout_ns)
        # Completions that the threads have posted already come before this.
        self._loop.call_soon(self._expire, now_ns)

    def _expire(self, now_ns: int) -> None:
        self._timer = None
        late: list[Queued] = []
        if now_ns >= self._grace_until_ns:
            for lane in (self._for_writer, self._for_reader):
                for queued in lane:
                    # Ascending by the time of queueing, and no deadline is earlier than that plus the timeout.
                    if queued.queued_ns + self._timeout_ns > now_ns:
                        break
                    if not queued.finished and not queued.expired and self._deadline_of(queued) <= now_ns:
                        queued.expired = True
                        late.append(queued)
        for queued in late:
            self._on_expired(queued)
        self._watch()
