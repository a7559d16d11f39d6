"""The operations that a log directory has queued for its four threads, and their deadlines (shell).

There is one lane per thread (disk_threads.py says which thread runs what). The event loop owns the lanes. The threads have
queues of their own and never look here. The life of one operation:

                     RealLogDir                DiskThreads             RealLogDir._settle
    submitted ──────────────────> queued ──────────────> running ──────────────────────> done
        │                           │                       │
        │ refused: not attached,    ├───────────────────────┤ its deadline passes
        │ closed, too much queued   │                       v
        v                           │                    expired ──────────────────────> done, and ignored
    failed at once                  │ take_offline          │ (if the kernel ever returns)
                                    v                       v
                                 abandoned <────────────────┘

1. Each operation has a future, an append perhaps a `PendingWrite` in its place, which completes exactly once, on the event
   loop. The first of these completes it: the refusal, `_settle` with the thread's result, the deadline, or `take_offline`
   with its error. A later result is dropped, but its bytes and counters are released.
2. When an operation expires, only the caller stops waiting for it. The thread may be stuck in it, so the operation keeps its
   place in the lane, its bytes and its descriptor until the thread returns.
3. A deadline measures the disk, not the queue: it counts from the last progress of the thread that the operation waits for.
   So a thousand queued syncs on a slow disk may together take longer than the timeout.
4. What the syncer and the sweeper run has the long sync timeout, because a healthy hard disk may need most of a minute for
   a full segment. What the writer and the reader run has the operation timeout, and so have a probe and the creation of
   folders, which write little, and `close`, which writes nothing.
5. A busy disk is not dead. So the operation timeout counts from the last progress of the disk, too, but not beyond the sync
   timeout: even an append may wait for seconds, for a block of the journal that is queued at the device. Progress is what
   the kernel counts: a write that the device has finished, of any file and any process. A finished append of ours proves
   nothing, because the page cache takes appends while the disk hangs. Only where the kernel does not count (btrfs, ZFS, NFS,
   FUSE), any finished operation of the directory speaks for the disk while one of these two waits. The silence of a disk is
   judged in the same way (`silence_ns`).
6. A process that was stalled (SIGSTOP, a paused machine) finds every deadline passed at once. So if the timer fires very
   late, all operations get a grace period before any of them expires.
7. `take_offline` empties the lanes, and the threads drop what they have not started. `close` refuses new operations and lets
   the queued ones finish. The future that `close` returns belongs to an operation in the sweeper's lane that no thread runs.
   That operation is done when all threads have left. If a thread never leaves, it expires like any other operation.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from common.environment.disk_threads import Append, Lane, Queued
from common.environment.real_timers import Timer
from common.time_units import NS_PER_MS, NS_PER_S

# Clients reach the limit of the memory for requests before these limits.
_OPERATIONS_MAX: Final = 1_000_000
_BYTES_MAX: Final = 512 * 1024 * 1024
# If a timer fires this late, it was the whole process that stalled, not just the disk.
_STALL_NS: Final = 500 * NS_PER_MS
_GRACE_NS: Final = NS_PER_S
# While an operation waits that has the operation timeout, the device's counter is read this often in that time. The disk's
# last progress is known that exactly.
_LOOKS_PER_TIMEOUT: Final = 8
# What the syncer or the sweeper runs with the operation timeout.
_SHORT: Final = frozenset({"probe", "create_folders", "close"})


class DiskLanes:
    """Created and used on one event loop. Calls `on_expired` for each operation that misses its deadline."""

    __slots__ = (
        "_bytes",
        "_count_device_writes",
        "_device_progress_ns",
        "_device_writes",
        "_for_writer",
        "_grace_until_ns",
        "_lanes",
        "_look_ns",
        "_looked_ns",
        "_loop",
        "_on_expired",
        "_operation_timeout_ns",
        "_progress_ns",
        "_short_count",
        "_sync_timeout_ns",
        "_timer",
        "_timer_at_ns",
        "_write_progress_ns",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        operation_timeout_ns: int,
        sync_timeout_ns: int,
        on_expired: Callable[[Queued], None],
        count_device_writes: Callable[[], int | None],
        write_progress_ns: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._operation_timeout_ns = operation_timeout_ns
        # An operation timeout above it applies to syncs as well.
        self._sync_timeout_ns = max(sync_timeout_ns, operation_timeout_ns)
        self._on_expired = on_expired
        # Returns how many writes the device has finished, None if the kernel does not count them.
        self._count_device_writes = count_device_writes
        # Returns when the writer last got on in the midst of a large write.
        self._write_progress_ns = write_progress_ns
        # The lanes, each in queue order. Invariant: the first operation of a lane is not finished. A finished operation
        # leaves the writer's lane once all operations before it are finished, so no search is needed. It leaves the other
        # lanes immediately; otherwise the bytes of a finished read would stay in memory.
        self._lanes: tuple[deque[Queued], ...] = tuple(deque() for _ in Lane)
        self._for_writer = self._lanes[Lane.WRITER]
        # The total size of all appends that the writer has not finished, including expired ones.
        self._bytes = 0
        # When each thread last handed back finished operations, 0 before the first time. Never decreases.
        self._progress_ns = [0 for _ in Lane]
        # The number of unfinished operations of the kinds in `_SHORT`.
        self._short_count = 0
        # How often the device's counter is read while an operation waits that has the operation timeout.
        self._look_ns = operation_timeout_ns // _LOOKS_PER_TIMEOUT
        # When the counter was read last, what it was, and when a look last found it changed.
        self._looked_ns = 0
        self._device_writes: int | None = None
        self._device_progress_ns = 0
        # One timer for all lanes. It is armed for the deadline that is the earliest at that moment, or for the next look at
        # the device's counter. If the operation with that deadline finishes in time, the timer still fires and is then armed
        # again, because arming a timer for each append would cost more than the append. Invariant: None only while no queued
        # operation can expire, and never armed for later than a deadline or the next look.
        self._timer: Timer | None = None
        self._timer_at_ns = 0
        # No operation expires before this time. Set when the timer fires very late.
        self._grace_until_ns = 0

    @property
    def oldest_age_ns(self) -> int:
        """How long the oldest unfinished operation has been queued or running, 0 if there is none."""
        oldest = min((lane[0].queued_ns for lane in self._lanes if lane), default=0)
        return time.monotonic_ns() - oldest if oldest else 0

    @property
    def longest_wait_ns(self) -> int:
        """The age of the oldest unfinished operation that clients may wait for: those of the writer and the reader."""
        if not self._for_writer and not self._lanes[Lane.READER]:
            # Before a read of cached pages this is nearly always so.
            return 0
        oldest = min((lane[0].queued_ns for lane in self._client_lanes() if lane), default=0)
        return time.monotonic_ns() - oldest if oldest else 0

    @property
    def silence_ns(self) -> int:
        """How long the disk has given no sign of life although an operation waits for the writer or the reader."""
        signs_ns = [self._sign_of_life_ns(lane[0]) for lane in self._client_lanes() if lane]
        # The time is taken last, or progress that the writer makes meanwhile would give a negative result.
        return time.monotonic_ns() - min(signs_ns) if signs_ns else 0

    @property
    def awaited_sync_age_ns(self) -> int:
        """The age of the oldest unfinished sync for which clients wait, 0 if there is none."""
        queued_ns = next((queued.queued_ns for queued in self._lanes[Lane.SYNCER] if queued.is_awaited), 0)
        return time.monotonic_ns() - queued_ns if queued_ns else 0

    def _sign_of_life_ns(self, front: Queued) -> int:
        """Returns when the disk last did something while the first operation of the writer's or the reader's lane waited: a
        thread finished an operation, or the writer a part of a large write. Where the kernel counts, what other threads
        finish proves nothing while the device stands still: the page cache takes appends and answers reads (rule 5)."""
        own_ns = max(front.queued_ns, front.freed_ns, self._progress_ns[front.lane])
        if front.lane is Lane.WRITER:
            own_ns = max(own_ns, self._write_progress_ns())
        any_ns = max(own_ns, *self._progress_ns, self._write_progress_ns())
        if front.held_back:
            return any_ns
        self._count_writes_of_device()
        return any_ns if self._device_writes is None else min(any_ns, max(own_ns, self._device_progress_ns))

    def _client_lanes(self) -> tuple[deque[Queued], deque[Queued]]:
        return self._for_writer, self._lanes[Lane.READER]

    def has_room_for_writer(self, size: int) -> bool:
        return self._bytes + size <= _BYTES_MAX and len(self._for_writer) < _OPERATIONS_MAX

    def has_room_in(self, lane: Lane) -> bool:
        return len(self._lanes[lane]) < _OPERATIONS_MAX

    # --- in and out ----------------------------------------------------------------------------------------------
    def add_append(self, append: Append) -> None:
        self._bytes += append.size
        self._for_writer.append(append)
        if self._timer is None or append.queued_ns + self._look_ns < self._timer_at_ns:
            self._watch()

    def add(self, queued: Queued) -> None:
        """Adds an operation. The caller sets `lane` and `held_back` first, because the deadline depends on them."""
        self._lanes[queued.lane].append(queued)
        if queued.method in _SHORT:
            self._short_count += 1
        if self._timer is None or queued.queued_ns + self._look_ns < self._timer_at_ns:
            self._watch()

    def note_finished(self, finished: Sequence[Queued]) -> None:
        """Marks the operations that one thread has handed back as finished, and releases their bytes and counters.

        The operations stay in their lane until `remove` is called.
        """
        self._progress_ns[finished[0].lane] = time.monotonic_ns()
        for queued in finished:
            queued.finished = True
            if isinstance(queued, Append):
                self._bytes -= queued.size
                queued.file.writes_in_flight -= 1
                continue
            if queued.method in _SHORT:
                self._short_count -= 1
            if queued.file is not None:
                if queued.lane is Lane.READER:
                    queued.file.reads_in_flight -= 1
                elif queued.lane is Lane.WRITER:
                    queued.file.writes_in_flight -= 1

    def remove(self, finished: Sequence[Queued]) -> None:
        """Removes operations whose futures are settled. Must not be called after `take_all`."""
        lane = finished[0].lane
        if lane is not Lane.WRITER:
            for queued in finished:
                self._lanes[lane].remove(queued)
        while self._for_writer and self._for_writer[0].finished:
            self._for_writer.popleft()

    def take_all(self) -> list[Queued]:
        """Empties all lanes and returns their operations, which can no longer expire."""
        taken = [queued for lane in self._lanes for queued in lane]
        for lane in self._lanes:
            lane.clear()
        return taken

    def stop(self) -> None:
        """Cancels the timer. Called when no more operations will come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- deadlines -----------------------------------------------------------------------------------------------
    def _watch(self) -> None:
        """Arms the timer for the earliest deadline, or for the next look at the device's counter."""
        deadline_ns = self._earliest_deadline_ns()
        if deadline_ns is None:
            return
        at_ns = max(deadline_ns, self._grace_until_ns)
        if self._needs_looks():
            self._look_at_device()
            at_ns = min(at_ns, self._looked_ns + self._look_ns)
        if self._timer is not None:
            if self._timer_at_ns <= at_ns:
                return
            self._timer.cancel()
        self._timer_at_ns = at_ns
        self._timer = Timer(self._loop, at_ns, self._timer_fired)

    def _earliest_deadline_ns(self) -> int | None:
        earliest_ns: int | None = None
        for lane in self._lanes:
            for queued in lane:
                # No deadline is earlier than the queueing time plus the operation timeout, and each lane is in queue order.
                # So the operations from here on have no earlier deadline.
                if earliest_ns is not None and queued.queued_ns + self._operation_timeout_ns >= earliest_ns:
                    break
                if not queued.finished and not queued.expired:
                    deadline_ns = self._deadline_of(queued)
                    earliest_ns = deadline_ns if earliest_ns is None else min(earliest_ns, deadline_ns)
        return earliest_ns

    def _needs_looks(self) -> bool:
        return self._short_count > 0 or any(self._client_lanes())

    def _deadline_of(self, queued: Queued) -> int:
        waits_since_ns = max(queued.queued_ns, self._progress_towards(queued))
        deadline_ns = waits_since_ns + self._sync_timeout_ns
        if queued.lane in (Lane.SYNCER, Lane.SWEEPER) and queued.method not in _SHORT:
            return deadline_ns
        disk_progress_ns = self._device_progress_ns
        if self._device_writes is None and queued.method in _SHORT:
            disk_progress_ns = max(self._progress_ns)
        return min(deadline_ns, max(waits_since_ns, disk_progress_ns) + self._operation_timeout_ns)

    def _progress_towards(self, queued: Queued) -> int:
        """Returns the time of the last progress of the threads that the operation waits for."""
        if queued.lane in (Lane.SYNCER, Lane.SWEEPER) and queued.held_back:
            # What holds it back has deadlines of its own.
            return max(self._progress_ns)
        if queued.lane is Lane.WRITER or queued.held_back:
            return self._progress_towards_writer_ns()
        return max(queued.freed_ns, self._progress_ns[queued.lane])

    def _progress_towards_writer_ns(self) -> int:
        """Returns the time of the last progress that counts towards the writer's deadlines.

        While the writer waits for the reader, the reader's progress counts too. If the writer itself hangs, the reader's
        progress does not count.
        """
        front = self._for_writer[0] if self._for_writer else None
        writer_ns = self._progress_ns[Lane.WRITER]
        if front is None:
            return writer_ns
        return max(writer_ns, self._progress_ns[Lane.READER] if front.held_back else front.freed_ns)

    def _look_at_device(self) -> None:
        if time.monotonic_ns() - self._looked_ns >= self._look_ns:
            self._count_writes_of_device()

    def _count_writes_of_device(self) -> None:
        now_ns = self._looked_ns = time.monotonic_ns()
        before, self._device_writes = self._device_writes, self._count_device_writes()
        if before is not None and before != self._device_writes:
            self._device_progress_ns = now_ns

    def _timer_fired(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._timer_at_ns > _STALL_NS:
            self._grace_until_ns = now_ns + min(_GRACE_NS, self._operation_timeout_ns)
        # Let the completions that the threads have already posted run first.
        self._loop.call_soon(self._expire, now_ns)

    def _expire(self, now_ns: int) -> None:
        self._timer = None
        if self._needs_looks():
            self._look_at_device()
        late: list[Queued] = []
        if now_ns >= self._grace_until_ns:
            for lane in self._lanes:
                for queued in lane:
                    # No deadline is earlier than the queueing time plus the operation timeout, and each lane is in queue
                    # order. So all operations from here on still have time.
                    if queued.queued_ns + self._operation_timeout_ns > now_ns:
                        break
                    if not queued.finished and not queued.expired and self._deadline_of(queued) <= now_ns:
                        queued.expired = True
                        late.append(queued)
        for queued in late:
            self._on_expired(queued)
        self._watch()
