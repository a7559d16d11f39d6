"""The two threads of a log directory and what they do with their queues (shell).

The writer carries out everything but reads, in the order in which it was queued. Appends of one file that continue each
other are joined into one write, and results go back to the event loop once per group, which makes a thread hop affordable.
A descriptor may be closed only when neither thread can still be using it, because the kernel gives its number out again at
once. So the thread that leaves last closes everything, and a stuck one keeps its descriptors.
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from common.environment import disk_operations
from common.environment.disk_operations import BUFFERS_PER_WRITE_MAX, HeldDirectory
from common.environment.interface import LogDirLocked
from common.time_units import NS_PER_MS

GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
# How long finished appends may wait for others of the same batch before they are handed back to the event loop.
_HAND_BACK_NS: Final = NS_PER_MS
_BATCH_MAX: Final = 4096

Job = Callable[[], object]


class OpenFile:
    """An open descriptor and what is under way on it. Closed, by the writer, when nothing refers to it any more.

    The lifetime of the object is the reference count: handle, queued operations and regions still to be sent all hold it.
    """

    __slots__ = (
        "_close",
        "broken",
        "broken_at",
        "end",
        "fd",
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
        # Owned by the writer thread. After a failed group was cut back to `broken_at`, a later append beyond that would
        # leave a hole: it fails with the same error, until the file is truncated or written from there.
        self.broken: OSError | None = None
        self.broken_at = 0
        # All below is owned by the event loop. Where the file ends once everything queued is done: a read sees nothing that
        # was queued after it.
        self.end = end
        # Appends, truncations and syncs that the writer has not handed back. Invariant: while there are any, they leave
        # everything below `unwritten_from` as it is, so a read of that may overtake them.
        self.writes_in_flight = 0
        self.unwritten_from = 0
        # Reads that the reader has not handed back. A truncation waits for them.
        self.reads_in_flight = 0
        # The sizes that truncations asked for, in order; never shortened.
        self.truncations: list[int] = []

    def __del__(self) -> None:
        self._close(self.fd)

    def truncate(self, size: int) -> None:
        """Run by the writer."""
        disk_operations.truncate(self.fd, size)
        self.broken = None


class Operation:
    """One queued call: made on the loop, carried out by a thread, settled on the loop."""

    __slots__ = (
        "by_reader",
        "error",
        "expired",
        "file",
        "finished",
        "freed_ns",
        "future",
        "held_back",
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
        # Which thread carries it out. Settled before it is queued.
        self.by_reader = False
        # The other thread must first finish something; the time at which it did, 0 when there was nothing. Set on the event
        # loop before it is queued, cleared once by the thread that it waited for.
        self.held_back = False
        self.freed_ns = 0
        # What the thread found; read on the event loop after it was handed back.
        self.result: object = None
        self.error: OSError | LogDirLocked | None = None
        # Owned by the event loop: its thread has handed it back; its deadline passed before that. Both may be true.
        self.finished = False
        self.expired = False

    def free(self) -> None:
        """Run by the thread that it waited for."""
        self.freed_ns = time.monotonic_ns()
        self.held_back = False

    def run(self) -> None:
        try:
            self.result = self.work()
        except (OSError, LogDirLocked) as error:
            self.error = error


class Append:
    """A queued append. The same life as an Operation, without a function: groups of them are carried out together."""

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
    by_reader: Final = False
    held_back: Final = False
    freed_ns: Final = 0

    def __init__(
        self,
        file: OpenFile,
        position: int,
        buffers: Sequence[bytes | bytearray | memoryview],
        size: int,
        *,
        future: "asyncio.Future[None]",
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
    """Appends of one file that continue each other, to be written in one go."""

    __slots__ = ("appends", "buffers", "end", "file", "start")

    def __init__(self, first: Append) -> None:
        self.file = first.file
        self.appends = [first]
        self.buffers = list(first.buffers)
        self.start = first.position
        self.end = first.position + first.size

    def takes(self, append: Append) -> bool:
        return (
            append.position == self.end
            and len(self.buffers) + len(append.buffers) <= BUFFERS_PER_WRITE_MAX
            and self.end - self.start + append.size <= GROUP_BYTES_MAX
        )

    def add(self, append: Append) -> None:
        self.appends.append(append)
        self.buffers.extend(append.buffers)
        self.end += append.size

    def write(self) -> None:
        """Writes all or nothing, as far as the disk lets it; the outcome is the same for every append in it."""
        file = self.file
        if file.broken is not None and self.start > file.broken_at:
            error: OSError | None = file.broken
        else:
            error = None
            file.broken = None
            try:
                disk_operations.write_all(file.fd, self.start, self.buffers)
            except OSError as failure:
                error = failure
                file.broken = failure
                file.broken_at = self.start
        for append in self.appends:
            append.error = error
            append.buffers = ()


class DiskThreads:
    """Writer and reader of one directory. The event loop calls the public methods, and runs the callbacks."""

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
        self._writer_queue: SimpleQueue[Queued | Job | None] = SimpleQueue()
        self._reader_queue: SimpleQueue[Queued | Job | None] = SimpleQueue()
        self._abandoned = False
        # What the writer may be waiting for the reader with; opened when the directory is given up.
        self._gates: list[threading.Event] = []
        self._leaving = threading.Lock()
        self._inside: tuple[str, ...] = ("writer", "reader")

    @property
    def inside(self) -> tuple[str, ...]:
        """The threads that have not left yet."""
        return self._inside

    def start(self) -> None:
        for role, run in (("writer", self._run_writer), ("reader", self._run_reader)):
            # Daemon threads: the interpreter must not wait for one that is stuck in the kernel.
            threading.Thread(target=run, name=f"{role} of {self._directory.path}", daemon=True).start()

    def write(self, queued: Queued) -> None:
        self._writer_queue.put(queued)

    def read(self, queued: Queued) -> None:
        self._reader_queue.put(queued)

    def read_after_writes(self, operation: Operation) -> None:
        """The reader gets it when the writer has done all that is queued for it now."""
        operation.held_back = True
        self._writer_queue.put(partial(self._hand_over, operation))

    def _hand_over(self, operation: Operation) -> None:
        operation.free()
        self._reader_queue.put(operation)

    def hold_back_until_read(self, operation: Operation) -> None:
        """The writer, which gets it next, begins it when the reader has done all that is queued for it now."""
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
        self._writer_queue.put(partial(self._reader_queue.put, free))

    def close_file(self, fd: int) -> None:
        """Called wherever the last reference to an OpenFile is dropped, on any thread."""
        self._writer_queue.put(partial(self._directory.close_file, fd))

    def finish(self) -> None:
        """Both threads leave when they have done what is queued."""
        self._writer_queue.put(None)

    def abandon(self) -> None:
        """Both threads leave as soon as they can; what is queued is not begun any more."""
        self._abandoned = True
        for gate in self._gates:
            gate.set()
        self._writer_queue.put(None)
        self._reader_queue.put(None)

    # --- on the threads ------------------------------------------------------------------------------------------
    def _run_writer(self) -> None:
        queue = self._writer_queue
        staying = True
        while staying:
            batch = [queue.get()]
            # This thread alone takes from the queue, so a queue that is not empty gives at once.
            while not queue.empty() and len(batch) < _BATCH_MAX:
                batch.append(queue.get())
            staying = self._carry_out(batch)
            # Until the next batch comes nothing of this one may be kept alive, descriptors least of all.
            batch.clear()
        self._reader_queue.put(None)
        self._leave("writer")

    def _run_reader(self) -> None:
        while (queued := self._reader_queue.get()) is not None:
            if not isinstance(queued, Operation):
                assert not isinstance(queued, Append)
                queued()
            elif not self._abandoned:
                queued.run()
                self._hand_back([queued])
            del queued
        self._leave("reader")

    def _carry_out(self, batch: Sequence[Queued | Job | None]) -> bool:
        """Does the batch in order; False if it says to leave. Appends of different files may pass each other."""
        groups: dict[int, _Group] = {}
        finished: list[Queued] = []
        for queued in batch:
            if isinstance(queued, Append):
                group = groups.get(queued.file.fd)
                if group is not None and group.takes(queued):
                    group.add(queued)
                    continue
                if group is not None:
                    self._write([group], finished)
                groups[queued.file.fd] = _Group(queued)
                continue
            self._write(groups.values(), finished)
            groups.clear()
            if queued is None:
                self._hand_back(finished)
                return False
            if not isinstance(queued, Operation):
                queued()
            elif not self._abandoned:
                # What is written already must not wait for an fsync of another file.
                self._hand_back(finished)
                queued.run()
                finished = [queued]
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
            group.write()
            finished.extend(group.appends)
            if time.monotonic_ns() - handed_back_ns > _HAND_BACK_NS:
                self._hand_back(finished[:])
                finished.clear()
                handed_back_ns = time.monotonic_ns()

    def _hand_back(self, finished: list[Queued]) -> None:
        if not finished:
            return
        try:
            self._loop.call_soon_threadsafe(self._settle, finished)
        except RuntimeError:
            # The loop is closed, so no caller waits any more.
            return

    def _leave(self, role: str) -> None:
        with self._leaving:
            self._inside = tuple(other for other in self._inside if other != role)
            last = not self._inside
        if last:
            self._directory.close_everything()
        try:
            self._loop.call_soon_threadsafe(self._all_left if last else _nothing)
        except RuntimeError:
            return


def _nothing() -> None:
    pass
