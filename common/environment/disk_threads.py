"""The four threads of a log directory and their queues (shell).

The writer runs what clients wait for, above all appends, in queue order. It joins consecutive appends to one file into a
single write, and hands results back to the event loop in groups, because a thread switch for each append would be too
expensive. The reader runs reads. The syncer makes things durable: it creates logs, syncs files and folders, renames, and
replaces checkpoint files. It starts an operation once the writer has finished everything queued before it; appends queued
later go on meanwhile. The sweeper runs what takes the disk long and no task is in a hurry for: syncs of copies that are
still growing, removals, probes, and closing descriptors, which frees the blocks of a removed file.

A descriptor may be closed only when no thread can still be using it, because the kernel reuses its number immediately. So
when the threads leave, the last one closes everything. If a thread is stuck in the kernel, all descriptors stay open.
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from common.environment import disk_operations
from common.environment.disk_operations import BUFFERS_PER_WRITE_MAX, WRITE_BYTES_MAX, HeldDirectory
from common.environment.interface import LogDirLocked
from common.environment.pending_write import Settled
from common.parts import Buffer
from common.time_units import NS_PER_MS

GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
# How long finished appends may wait for the rest of their batch before they are handed back to the event loop.
_HAND_BACK_NS: Final = NS_PER_MS
_BATCH_MAX: Final = 4096
# An append that comes so soon after another one is probably of the same turn of the event loop. If it is not, it leaves one
# turn later than it could.
_TOGETHER_NS: Final = NS_PER_MS // 10

Job = Callable[[], object]


class Lane(IntEnum):
    """The threads of a directory, each with the operations that it runs."""

    WRITER = 0
    READER = 1
    SYNCER = 2
    SWEEPER = 3


class OpenFile:
    """An open descriptor and the state of the operations on it.

    The caller's LogFile, queued operations and regions that are still to be sent all hold a reference to this object. When
    the last reference is dropped, the sweeper closes the descriptor.
    """

    __slots__ = (
        "_close",
        "broken",
        "broken_at",
        "cached_from",
        "cached_to",
        "cached_until_ns",
        "end",
        "fd",
        "gap",
        "name",
        "reads_in_flight",
        "truncations",
        "unwritten_from",
        "writes_in_flight",
    )

    def __init__(self, fd: int, name: str, end: int, close: Callable[[int], None]) -> None:
        self.fd = fd
        self.name = name
        self._close = close
        # The error of the last failed group of appends, or None. After the failure, the file was truncated to `broken_at`. A
        # later append past `broken_at` would leave a hole, so it fails with the same error. A truncation, or an append at or
        # before `broken_at`, resets this field to None. Owned by the writer thread.
        self.broken: OSError | None = None
        self.broken_at = 0
        # The event loop owns all fields from here on.
        # Where the file will end once all queued operations are done. A read is clipped to this end when it is queued.
        self.end = end
        # The number of appends and truncations that are queued or running. Counted down when the writer has handed the
        # operation back.
        self.writes_in_flight = 0
        # A read that ends at or below this position may overtake the queued writes. Only meaningful while
        # `writes_in_flight` is above 0.
        self.unwritten_from = 0
        # The number of reads that are queued or running. While it is above 0, a truncation waits for the reader.
        self.reads_in_flight = 0
        # The sizes of all truncations since the file was opened, in queue order. Only grows, because each region remembers
        # how long the list was when the region was created.
        self.truncations: list[int] = []
        # The range that was last found to be in the page cache, and the time until which it counts as cached.
        self.cached_from = 0
        self.cached_to = 0
        self.cached_until_ns = 0
        # Position and size of a range of which few pages are missing in the page cache. The next read brings them in.
        self.gap: tuple[int, int] | None = None

    def __del__(self) -> None:
        self._close(self.fd)

    def truncate(self, size: int) -> None:
        """Truncates the file and resets `broken`. Called on the writer thread."""
        disk_operations.truncate(self.fd, size)
        self.broken = None


class Operation:
    """One queued call. The event loop creates it, a thread runs it, and the event loop settles it."""

    __slots__ = (
        "error",
        "expired",
        "file",
        "finished",
        "freed_ns",
        "future",
        "held_back",
        "is_awaited",
        "lane",
        "method",
        "name",
        "queued_ns",
        "result",
        "work",
    )

    def __init__(
        self,
        method: str,
        name: str,
        work: Job,
        *,
        future: "asyncio.Future[Any]",
        queued_ns: int,
        file: OpenFile | None = None,
    ) -> None:
        self.method = method
        self.name = name
        self.work = work
        self.future = future
        self.queued_ns = queued_ns
        self.file = file
        # The thread that runs this operation. Set before the operation is queued.
        self.lane = Lane.WRITER
        # True while this operation waits for another thread to finish earlier operations. That thread then calls `free`.
        self.held_back = False
        # Whether this is a sync for which clients wait. Set before the operation is queued.
        self.is_awaited = False
        # When `free` was called; 0 if it was not.
        self.freed_ns = 0
        # What `work` returned or raised. Set by the thread that runs the operation, and read on the event loop after that
        # thread has handed the operation back.
        self.result: object = None
        self.error: OSError | LogDirLocked | None = None
        # Whether the thread has handed this operation back. Owned by the event loop.
        self.finished = False
        # Whether the deadline passed before the operation was handed back. The caller then already has the error, so a later
        # result is ignored. Owned by the event loop.
        self.expired = False

    def free(self) -> None:
        """Ends this operation's wait for another thread. Called on that other thread."""
        self.freed_ns = time.monotonic_ns()
        self.held_back = False

    def run(self) -> None:
        try:
            self.result = self.work()
        except (OSError, LogDirLocked) as error:
            self.error = error


class Append:
    """A queued append. It has the same life cycle as an Operation but no function to run, because the writer writes appends
    in groups."""

    __slots__ = (
        "buffers",
        "error",
        "expired",
        "file",
        "finished",
        "future",
        "position",
        "queued_ns",
        "size",
    )
    method: Final = "append"
    result: Final = None
    lane: Final = Lane.WRITER
    held_back: Final = False
    is_awaited: Final = False
    freed_ns: Final = 0

    def __init__(
        self,
        file: OpenFile,
        position: int,
        buffers: Sequence[Buffer],
        size: int,
        future: Settled,
        queued_ns: int,
    ) -> None:
        self.file = file
        self.position = position
        self.buffers = buffers
        self.size = size
        self.future = future
        self.queued_ns = queued_ns
        self.error: OSError | None = None
        self.finished = False
        self.expired = False

    @property
    def name(self) -> str:
        return self.file.name


Queued = Operation | Append


class _Group:
    """Consecutive appends to one file, to be written together."""

    __slots__ = ("appends", "buffers", "end", "file", "start")

    def __init__(self, first: Append) -> None:
        self.file = first.file
        self.appends = [first]
        self.buffers = list(first.buffers)
        self.start = first.position
        self.end = first.position + first.size

    def add(self, append: Append) -> bool:
        """Returns False if the append does not continue the group, or makes it too large. Then it is not added."""
        end = append.position + append.size
        if (
            append.position != self.end
            or len(self.buffers) + len(append.buffers) > BUFFERS_PER_WRITE_MAX
            or end - self.start > GROUP_BYTES_MAX
        ):
            return False
        self.appends.append(append)
        self.buffers += append.buffers
        self.end = end
        return True

    def write(self, on_progress: Callable[[], None]) -> None:
        """Writes the whole group. If that fails, tries to leave none of it in the file. All its appends get the same
        result. Calls `on_progress` now and then during a large group."""
        file = self.file
        if file.broken is not None and self.start > file.broken_at:
            error: OSError | None = file.broken
        else:
            error = None
            file.broken = None
            try:
                size = self.end - self.start
                is_large = size > WRITE_BYTES_MAX
                disk_operations.write_all(file.fd, self.start, self.buffers, size, on_progress if is_large else None)
            except OSError as failure:
                error = failure
                file.broken = failure
                file.broken_at = self.start
        for append in self.appends:
            append.error = error
            append.buffers = ()


class DiskThreads:
    """The threads of one directory.

    The event loop calls the public methods, except that any thread may call `close_file`. The callbacks `settle` and
    `all_left` run on the event loop.
    """

    def __init__(
        self,
        directory: HeldDirectory,
        loop: asyncio.AbstractEventLoop,
        settle: Callable[[Sequence[Queued]], None],
        all_left: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._loop = loop
        self._settle = settle
        self._all_left = all_left
        # What each thread is to run, by lane. None asks the thread to leave.
        self._queues: tuple[SimpleQueue[Queued | list[Append] | Job | None], ...] = tuple(SimpleQueue() for _ in Lane)
        # Appends that leave for the writer at the end of this turn of the event loop.
        self._later: list[Append] = []
        # When the last append was queued.
        self._append_ns = 0
        # Whether `abandon` was called; never reset. If True, the threads start no operation that is still queued.
        self._abandoned = False
        # Events on which the writer may be waiting for the reader. `abandon` sets them all, so that the writer can leave.
        self._gates: list[threading.Event] = []
        # Guards `_inside`, which all threads change.
        self._leaving = threading.Lock()
        # When the writer last finished a part of a large group, 0 before the first time. Set by the writer only and read by
        # the event loop, which needs no lock. Never decreases.
        self.write_progress_ns = 0
        # The threads that have not left. Only shrinks; the thread that leaves last closes all descriptors.
        self._inside: tuple[Lane, ...] = tuple(Lane)

    @property
    def inside(self) -> tuple[str, ...]:
        """The threads that have not left yet."""
        return tuple(lane.name.lower() for lane in self._inside)

    def start(self) -> None:
        """Raises RuntimeError if the process may not start another thread. Those that have started wait to be abandoned."""
        for lane in Lane:
            run = self._run_writer if lane is Lane.WRITER else partial(self._run_beside_writer, lane)
            # Daemon threads, because the interpreter must not wait for a thread that is stuck in the kernel.
            thread = threading.Thread(target=run, name=f"{lane.name.lower()} of {self._directory.path}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._inside = tuple(started for started in Lane if started < lane)
                raise

    def queue(self, queued: Queued) -> None:
        """Queues the operation for the thread of its lane."""
        self._put(queued.lane, queued)

    def queue_append(self, append: Append) -> None:
        """Queues the append for the writer. An append that soon follows another one leaves at the end of the event loop's
        turn, together with all others of the turn: waking a thread takes longer than the rest of a small append."""
        before_ns, self._append_ns = self._append_ns, append.queued_ns
        if self._later:
            self._later.append(append)
        elif append.queued_ns - before_ns < _TOGETHER_NS:
            self._later.append(append)
            self._loop.call_soon(self._put_later)
        else:
            self._queues[Lane.WRITER].put(append)

    def _put_later(self) -> None:
        if self._later:
            later, self._later = self._later, []
            self._queues[Lane.WRITER].put(later)

    def _put(self, lane: Lane, queued: Queued | Job | None) -> None:
        """Queues for the thread what must not overtake the appends before it. Called on the event loop."""
        if self._later:
            self._put_later()
        self._queues[lane].put(queued)

    def queue_after_writes(self, operation: Operation) -> None:
        """Queues the operation for the thread of its lane once the writer has finished all operations queued before it."""
        operation.held_back = True
        self._put(Lane.WRITER, partial(self._hand_over, operation))

    def queue_after_syncs(self, operation: Operation) -> None:
        """Queues the operation for the sweeper once the writer and the syncer have finished all operations queued before
        it."""
        operation.held_back = True
        hand_over = partial(self._hand_over, operation)
        self._put(Lane.WRITER, partial(self._queues[Lane.SYNCER].put, hand_over))

    def _hand_over(self, operation: Operation) -> None:
        operation.free()
        self._queues[operation.lane].put(operation)

    def hold_back_until_read(self, operation: Operation) -> None:
        """Makes the operation wait until the reader has finished all reads queued so far.

        The caller queues the operation for the writer right afterwards.
        """
        operation.held_back = True
        reads_done = threading.Event()
        self._gates = [gate for gate in self._gates if not gate.is_set()] + [reads_done]
        work = operation.work

        def free() -> None:
            operation.free()
            reads_done.set()

        def wait_and_work() -> object:
            reads_done.wait()
            if self._abandoned:
                raise OSError(errno.ECANCELED, "the directory was given up")
            return work()

        operation.work = wait_and_work
        self._put(Lane.WRITER, partial(self._queues[Lane.READER].put, free))

    def close_file(self, fd: int) -> None:
        """Makes the sweeper close the descriptor. Called on the thread that drops the last reference to the OpenFile."""
        self._queues[Lane.SWEEPER].put(partial(self._directory.close_file, fd))

    def finish(self) -> None:
        """Lets the threads leave when they have finished what is queued."""
        self._put(Lane.WRITER, None)

    def abandon(self) -> None:
        """Lets the threads leave as soon as they can, without starting anything that is still queued."""
        self._abandoned = True
        # The writer may leave before the end of this turn. Nothing would take them from its queue any more.
        self._later.clear()
        for gate in self._gates:
            gate.set()
        for queue in self._queues:
            queue.put(None)

    # --- on the threads ------------------------------------------------------------------------------------------
    def _run_writer(self) -> None:
        queue = self._queues[Lane.WRITER]
        staying = True
        batch: list[Queued | Job | None] = []
        while staying:
            _take(queue.get(), batch)
            # Only this thread takes from the queue, so get() on a non-empty queue returns immediately.
            while not queue.empty() and len(batch) < _BATCH_MAX:
                _take(queue.get(), batch)
            staying = self._carry_out(batch)
            # Without this, the operations, and with them their descriptors, would stay alive until the next batch comes.
            batch.clear()
        # The reader and the syncer get operations from the writer only, so none after this.
        self._queues[Lane.READER].put(None)
        self._queues[Lane.SYNCER].put(None)
        self._leave(Lane.WRITER)

    def _run_beside_writer(self, lane: Lane) -> None:
        queue = self._queues[lane]
        while (queued := queue.get()) is not None:
            if not isinstance(queued, Operation):
                assert not isinstance(queued, Append | list)
                queued()
            elif not self._abandoned:
                queued.run()
                self._hand_back([queued])
            del queued
        if lane is Lane.SYNCER:
            # The sweeper gets operations from the writer and the syncer, and the writer left first.
            self._queues[Lane.SWEEPER].put(None)
        self._leave(lane)

    def _carry_out(self, batch: Sequence[Queued | Job | None]) -> bool:
        """Runs the batch in order, except that appends to different files may overtake each other.

        Returns False if the thread must leave.
        """
        groups: dict[int, _Group] = {}
        finished: list[Queued] = []
        for queued in batch:
            if isinstance(queued, Append):
                group = groups.get(queued.file.fd)
                if group is not None:
                    if group.add(queued):
                        continue
                    self._write([group], finished)
                groups[queued.file.fd] = _Group(queued)
                continue
            self._write(groups.values(), finished)
            groups.clear()
            if queued is None:
                self._hand_back(finished)
                return False
            # Hand back the written appends first. This operation may be slow. Or it hands over a sync, whose result must not
            # reach the event loop before those of the appends that it covers.
            self._hand_back(finished)
            finished = []
            if not isinstance(queued, Operation):
                queued()
            elif not self._abandoned:
                queued.run()
                finished.append(queued)
        self._write(groups.values(), finished)
        self._hand_back(finished)
        return True

    def _write(self, groups: Collection[_Group], finished: list[Queued]) -> None:
        if not groups:
            return
        handed_back_ns = time.monotonic_ns()
        for group in groups:
            if self._abandoned:
                return
            group.write(self._note_progress)
            finished.extend(group.appends)
            if time.monotonic_ns() - handed_back_ns > _HAND_BACK_NS:
                self._hand_back(finished[:])
                finished.clear()
                handed_back_ns = time.monotonic_ns()

    def _note_progress(self) -> None:
        self.write_progress_ns = time.monotonic_ns()

    def _hand_back(self, finished: list[Queued]) -> None:
        if not finished:
            return
        try:
            self._loop.call_soon_threadsafe(self._settle, finished)
        except RuntimeError:
            # The event loop is closed, so no task is waiting for the results.
            return

    def _leave(self, lane: Lane) -> None:
        with self._leaving:
            self._inside = tuple(other for other in self._inside if other != lane)
            last = not self._inside
        if last:
            self._directory.close_everything()
        try:
            self._loop.call_soon_threadsafe(self._all_left if last else _nothing)
        except RuntimeError:
            return


def _take(queued: Queued | list[Append] | Job | None, batch: list[Queued | Job | None]) -> None:
    if isinstance(queued, list):
        batch += queued
    else:
        batch.append(queued)


def _nothing() -> None:
    pass
