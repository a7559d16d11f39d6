"""A log directory on a real disk: the loop's side of it (shell).

Every call makes an operation, queues it for one of the directory's two threads and gives a future; Apache Kafka does this on
its request handler threads. What a hung disk must not reach is the loop: nothing here waits for a thread. The easy thing to
get wrong: descriptors are closed by the threads, so whatever uses one on the loop (a region being sent) asks `is_open`
first, which turns false on the loop before the threads are told.
"""

import asyncio
import errno
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from common.environment import disk_operations
from common.environment.disk_errors import FSYNC_STEP
from common.environment.disk_operations import DescribedError, FsyncFailed, HeldDirectory
from common.environment.disk_threads import Append, DiskThreads, OpenFile, Operation, Queued
from common.environment.interface import (
    DirectoryEntry,
    FileStat,
    LogDir,
    LogDirError,
    LogDirLocked,
    LogFile,
    SpaceStat,
)
from common.environment.page_cache import PageCache
from common.environment.process import ProcessResources
from common.environment.real_timers import Timer
from common.parts import FileRegion
from common.time_units import NS_PER_MS, NS_PER_S

T = TypeVar("T")

_PENDING_OPERATIONS_MAX: Final = 100_000
_PENDING_BYTES_MAX: Final = 512 * 1024 * 1024
# A timer that comes this late says that the whole process stood still, not that the disk did.
_STALL_NS: Final = 500_000_000
_GRACE_NS: Final = NS_PER_S
_STUCK_REPORT_NS: Final = NS_PER_S
# With an operation this old the disk may be hanging, and a sendfile could wait for a lock that the operation holds.
_SUSPICIOUS_AGE_NS: Final = 100_000_000


class RealLogFile(LogFile):
    """The handle of an open file. Empty once it is closed."""

    __slots__ = ("name", "open_file")

    def __init__(self, open_file: OpenFile) -> None:
        self.name = open_file.name
        self.open_file: OpenFile | None = open_file


class RealFileRegion(FileRegion):
    """A written range of an open file; it keeps the descriptor open for as long as it lives."""

    __slots__ = ("_truncations_before", "file", "log_dir", "position", "size")

    def __init__(self, log_dir: "RealLogDir", file: OpenFile, position: int, size: int) -> None:
        self.log_dir = log_dir
        self.file = file
        self.position = position
        self.size = size
        self._truncations_before = len(file.truncations)

    @property
    def is_valid(self) -> bool:
        """False when its bytes can no longer be had: the directory is gone, or the file was cut inside the range."""
        if not self.log_dir.is_open:
            return False
        # A truncation counts from the moment it is queued, so that none can overtake a sendfile. One that came before the
        # region was made cut nothing of it: its bytes were written since.
        end = self.position + self.size
        return all(end <= size for size in self.file.truncations[self._truncations_before :])


class RealLogDir(LogDir):
    """See LogDir. Created, used and given up on one loop."""

    def __init__(
        self,
        path: str,
        *,
        operation_timeout_ns: int,
        loop: asyncio.AbstractEventLoop,
        log: FilteringBoundLogger,
        process: ProcessResources,
        page_cache: PageCache,
    ) -> None:
        self.path = path
        self.on_error: Callable[[LogDirError], None] | None = None
        self.is_open = True
        self.released: asyncio.Future[None] = loop.create_future()
        """Done when both threads have left and every descriptor is closed."""
        self._timeout_ns = operation_timeout_ns
        self._loop = loop
        self._log = log
        self._page_cache = page_cache
        self._directory = HeldDirectory(path, process)
        self._threads = DiskThreads(self._directory, loop, self._settle, self._threads_left)
        self._started = False
        # Why no operation is taken any more: given up, or closed.
        self._refusal: LogDirError | None = None
        # In the order they were queued; the front is never finished. A finished operation leaves the writer's lane when it
        # comes to the front. It leaves the reader's at once: while it stood behind others it would keep the bytes it read.
        self._for_writer: deque[Queued] = deque()
        self._for_reader: deque[Queued] = deque()
        self._pending_bytes = 0
        # When each thread last finished something. A disk that is slow and works through its queue is not hung.
        self._writer_progress_ns = 0
        self._reader_progress_ns = 0
        self._deadline_timer: Timer | None = None
        self._deadline_at_ns = 0
        self._grace_until_ns = 0
        self._given_up = False
        self._given_up_ns = 0

    @property
    def oldest_operation_age_ns(self) -> int:
        oldest = min((lane[0].queued_ns for lane in (self._for_writer, self._for_reader) if lane), default=0)
        return time.monotonic_ns() - oldest if oldest else 0

    # --- the directory itself ------------------------------------------------------------------------------------
    def attach(self, *, create: bool = False) -> Awaitable[None]:
        if not self._started and self._refusal is None:
            self._started = True
            self._threads.start()
        return self._write("attach", "", partial(self._directory.attach, create=create))

    def lock(self) -> Awaitable[None]:
        return self._write("lock", "", self._directory.lock)

    def probe(self) -> Awaitable[None]:
        # On the reader, so that its fsync does not hold up appends; the writer's own deadlines watch the writer.
        operation = self._operation("probe", "", self._directory.probe, None)
        self._queue_for_reader(operation, after_writes=self._directory.dir_fd < 0)
        return operation.future

    def statvfs(self) -> Awaitable[SpaceStat]:
        return self._write("statvfs", "", self._directory.statvfs)

    def take_offline(self, error: LogDirError) -> None:
        if self._given_up or self.released.done():
            return
        self._given_up = True
        self.is_open = False
        self._refusal = error
        pending = [*self._for_writer, *self._for_reader]
        self._for_writer.clear()
        self._for_reader.clear()
        self._given_up_ns = time.monotonic_ns()
        if self._started:
            self._threads.abandon()
            Timer(self._loop, self._given_up_ns + _STUCK_REPORT_NS, self._report_stuck)
        else:
            self._threads_left()
        for queued in pending:
            _reject(queued.future, error)

    def close(self) -> Awaitable[None]:
        closed: asyncio.Future[None] = self._loop.create_future()
        if self._refusal is not None or not self._started:
            # Given up: the threads close everything by themselves, or cannot.
            self._refusal = self._refusal or self._closed_error("close", "")
            self.is_open = False
            closed.set_result(None)
            return closed
        self._refusal = self._closed_error("close", "")
        self.is_open = False
        # Settled when both threads have left, and watched like any other operation until then.
        ending = Operation("close", "", _nothing, future=closed, queued_ns=time.monotonic_ns())
        ending.held_back = True
        self._for_writer.append(ending)
        self._watch_deadlines()
        self._threads.finish()
        return closed

    def release_lock_now(self) -> None:
        self._directory.release_lock_now()

    # --- files ---------------------------------------------------------------------------------------------------
    def open(self, name: str, *, create: bool = False) -> Awaitable[LogFile]:
        _check_name(name)

        def open_file() -> RealLogFile:
            fd, size = self._directory.open_file(name, create=create)
            return RealLogFile(OpenFile(fd, name, size, self._threads.close_file))

        return self._write("open", name, open_file)

    def close_file(self, file: LogFile) -> None:
        assert isinstance(file, RealLogFile)
        # What is queued and what is still being sent hold the descriptor; the last of them lets it go.
        file.open_file = None

    def append(self, file: LogFile, position: int, buffers: Sequence[bytes | bytearray | memoryview]) -> Awaitable[None]:
        assert isinstance(file, RealLogFile)
        size = 0
        for buffer in buffers:
            size += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        future: asyncio.Future[None] = self._loop.create_future()
        open_file = file.open_file
        refusal = self._refusal_of("append", size)
        if refusal is not None or open_file is None:
            self._fail(future, refusal or self._closed_error("append", file.name))
            return future
        if open_file.writes_in_flight == 0 or position < open_file.unwritten_from:
            open_file.unwritten_from = position
        open_file.writes_in_flight += 1
        open_file.end = max(open_file.end, position + size)
        self._pending_bytes += size
        append = Append(open_file, position, buffers, size, future=future, queued_ns=time.monotonic_ns())
        self._for_writer.append(append)
        self._threads.write(append)
        if self._deadline_timer is None:
            self._watch_deadlines()
        return future

    def read(self, file: LogFile, position: int, size: int) -> Awaitable[bytes]:
        open_file = _opened(file)
        if open_file is None:
            return self._failed(self._closed_error("read", file.name))
        return self._read("read", open_file, position, size)

    def region(self, file: LogFile, position: int, size: int) -> FileRegion:
        open_file = _opened(file)
        if open_file is None:
            raise self._closed_error("region", file.name)
        return RealFileRegion(self, open_file, position, size)

    def truncate(self, file: LogFile, size: int) -> Awaitable[None]:
        open_file = _opened(file)
        if open_file is None:
            return self._failed(self._closed_error("truncate", file.name))
        operation = self._operation("truncate", open_file.name, partial(open_file.truncate, size), open_file)
        if open_file.reads_in_flight and self._refusal is None:
            self._threads.hold_back_until_read(operation)
        if not self._queue_for_writer(operation):
            return operation.future
        open_file.truncations.append(size)
        open_file.end = size
        open_file.unwritten_from = min(size, open_file.unwritten_from) if open_file.writes_in_flight else size
        open_file.writes_in_flight += 1
        return operation.future

    def fsync(self, file: LogFile) -> Awaitable[None]:
        return self._sync("fsync", file, disk_operations.sync_data)

    def sync_and_forget(self, file: LogFile) -> Awaitable[None]:
        return self._sync("sync_and_forget", file, disk_operations.sync_and_forget)

    def _sync(self, method: str, file: LogFile, sync: Callable[[int], None]) -> "asyncio.Future[None]":
        open_file = _opened(file)
        if open_file is None:
            return self._failed(self._closed_error(method, file.name))
        operation = self._operation(method, open_file.name, partial(sync, open_file.fd), open_file)
        if self._queue_for_writer(operation):
            # It writes nothing that a read could miss, but it keeps the descriptor open and is counted like the others.
            if open_file.writes_in_flight == 0:
                open_file.unwritten_from = 1 << 63
            open_file.writes_in_flight += 1
        return operation.future

    # --- names ---------------------------------------------------------------------------------------------------
    def mkdir(self, name: str) -> Awaitable[None]:
        _check_name(name)
        return self._write("mkdir", name, partial(self._directory.mkdir, name))

    def rename(self, old: str, new: str) -> Awaitable[None]:
        _check_name(old)
        _check_name(new)
        return self._write("rename", old, partial(self._directory.rename, old, new))

    def fsync_dir(self, name: str = "") -> Awaitable[None]:
        if name:
            _check_name(name)
        return self._write("fsync_dir", name, partial(self._directory.fsync_dir, name))

    def list(self, name: str = "") -> Awaitable[list[DirectoryEntry]]:
        if name:
            _check_name(name)
        return self._write("list", name, partial(self._directory.list_folder, name))

    def remove(self, name: str) -> Awaitable[None]:
        _check_name(name)
        return self._write("remove", name, partial(self._directory.remove, name))

    def stat(self, name: str) -> Awaitable[FileStat | None]:
        _check_name(name)
        return self._write("stat", name, partial(self._directory.stat, name))

    def read_file(self, name: str) -> Awaitable[bytes | None]:
        _check_name(name)
        return self._write("read_file", name, partial(self._directory.read_file, name))

    def replace_file(self, name: str, content: bytes) -> Awaitable[None]:
        _check_name(name)
        return self._write("replace_file", name, partial(self._directory.replace_file, name, content))

    # --- for connections that send regions -----------------------------------------------------------------------
    def is_resident(self, region: RealFileRegion, position: int, size: int) -> bool:
        """True if sendfile of the range cannot wait for the disk. On any doubt, no."""
        return (
            region.file.reads_in_flight == 0
            and self.oldest_operation_age_ns < _SUSPICIOUS_AGE_NS
            and self._page_cache.is_resident(region.file.fd, position, size)
        )

    def read_region(self, region: RealFileRegion, position: int, size: int) -> "asyncio.Future[bytes]":
        """Reads part of a region on the reader thread; its errors go the way of every other."""
        return self._read("region", region.file, position, size)

    def region_failed(self, region: RealFileRegion, error: OSError) -> None:
        """Takes note of an error that sendfile met on the file's side."""
        self._report(LogDirError(self.path, "region", error.errno or errno.EIO, region.file.name))

    # --- queueing ------------------------------------------------------------------------------------------------
    def _refusal_of(self, method: str, size: int) -> LogDirError | None:
        if self._refusal is not None:
            return self._refusal
        if not self._started:
            return LogDirError(self.path, method, errno.EBADF, detail="not attached")
        if self._pending_bytes + size > _PENDING_BYTES_MAX or len(self._for_writer) >= _PENDING_OPERATIONS_MAX:
            return LogDirError(self.path, method, errno.ENOMEM, detail="too much is queued for this directory")
        return None

    def _operation(self, method: str, name: str, work: Callable[[], object], file: OpenFile | None) -> Operation:
        return Operation(method, name, work, future=self._loop.create_future(), queued_ns=time.monotonic_ns(), file=file)

    def _write(self, method: str, name: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        operation = self._operation(method, name, work, None)
        self._queue_for_writer(operation)
        return operation.future

    def _read(self, method: str, file: OpenFile, position: int, size: int) -> "asyncio.Future[bytes]":
        size = max(0, min(size, file.end - position))
        work = partial(disk_operations.read_range, file.fd, position, size)
        operation = self._operation(method, file.name, work, file)
        # What was queued before must be seen, what is queued after must wait only if it truncates.
        after_writes = file.writes_in_flight > 0 and position + size > file.unwritten_from
        if self._queue_for_reader(operation, after_writes=after_writes):
            file.reads_in_flight += 1
        return operation.future

    def _queue_for_writer(self, operation: Operation) -> bool:
        refusal = self._refusal_of(operation.method, 0)
        if refusal is not None:
            self._fail(operation.future, refusal)
            return False
        self._for_writer.append(operation)
        self._threads.write(operation)
        self._watch_deadlines()
        return True

    def _queue_for_reader(self, operation: Operation, *, after_writes: bool) -> bool:
        refusal = self._refusal_of(operation.method, 0)
        if refusal is None and len(self._for_reader) >= _PENDING_OPERATIONS_MAX:
            refusal = LogDirError(self.path, operation.method, errno.ENOMEM, detail="too much is queued for this directory")
        if refusal is not None:
            self._fail(operation.future, refusal)
            return False
        operation.by_reader = True
        self._for_reader.append(operation)
        if after_writes:
            self._threads.read_after_writes(operation)
        else:
            self._threads.read(operation)
        self._watch_deadlines()
        return True

    # --- settling ------------------------------------------------------------------------------------------------
    def _settle(self, finished: Sequence[Queued]) -> None:
        # What one thread hands back together it did itself.
        if finished[0].by_reader:
            self._reader_progress_ns = time.monotonic_ns()
        else:
            self._writer_progress_ns = time.monotonic_ns()
        for queued in finished:
            queued.finished = True
            if isinstance(queued, Append):
                self._pending_bytes -= queued.size
                queued.file.writes_in_flight -= 1
            elif queued.file is not None:
                if queued.method in ("truncate", "fsync", "sync_and_forget"):
                    queued.file.writes_in_flight -= 1
                else:
                    queued.file.reads_in_flight -= 1
            if queued.expired or self._given_up:
                # Its failure was told long ago; a late completion changes nothing.
                continue
            future: asyncio.Future[Any] = queued.future
            if queued.error is not None:
                # Told to the owner even if whoever waited was cancelled meanwhile.
                self._fail(future, self._error_of(queued, queued.error))
            elif not future.done():
                future.set_result(queued.result)
        self._forget(finished)

    def _forget(self, finished: Sequence[Queued]) -> None:
        if self._given_up:
            return
        if finished[0].by_reader:
            for queued in finished:
                self._for_reader.remove(queued)
        while self._for_writer and self._for_writer[0].finished:
            self._for_writer.popleft()

    def _error_of(self, queued: Queued, error: OSError | LogDirLocked) -> LogDirError | LogDirLocked:
        if isinstance(error, LogDirLocked):
            return error
        detail = ""
        if isinstance(error, FsyncFailed):
            detail = FSYNC_STEP
        elif isinstance(error, DescribedError):
            detail = error.strerror or ""
        return LogDirError(self.path, queued.method, error.errno or errno.EIO, queued.name, detail)

    def _fail(self, future: "asyncio.Future[Any]", error: LogDirError | LogDirLocked) -> None:
        if isinstance(error, LogDirError) and error is not self._refusal:
            self._report(error)
        _reject(future, error)

    def _failed(self, error: LogDirError) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        self._fail(future, self._refusal or error)
        return future

    def _report(self, error: LogDirError) -> None:
        if self.on_error is not None:
            self.on_error(error)

    def _closed_error(self, method: str, name: str) -> LogDirError:
        return LogDirError(self.path, method, errno.EBADF, name, "closed")

    # --- deadlines -----------------------------------------------------------------------------------------------
    def _watch_deadlines(self) -> None:
        """Arms the one timer, at the first deadline. It is left to fire when that operation has long finished."""
        if self._deadline_timer is not None:
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
            self._deadline_at_ns = max(deadline_ns, self._grace_until_ns)
            self._deadline_timer = Timer(self._loop, self._deadline_at_ns, self._deadline_passed)

    def _deadline_of(self, queued: Queued) -> int:
        """Counts from when its thread was free for it, or last got on with what is before it: a thousand syncs of a slow
        disk may take longer than one may."""
        if not queued.by_reader or queued.held_back:
            progress_ns = self._progress_to_the_writer_ns()
        else:
            progress_ns = max(queued.freed_ns, self._reader_progress_ns)
        return max(queued.queued_ns, progress_ns) + self._timeout_ns

    def _progress_to_the_writer_ns(self) -> int:
        """When something got on last that what is queued for the writer waits for. A writer that waits for the reader
        gets on with it; of one that hangs itself the reader's progress says nothing."""
        front = self._for_writer[0] if self._for_writer else None
        if front is None:
            return self._writer_progress_ns
        return max(self._writer_progress_ns, self._reader_progress_ns if front.held_back else front.freed_ns)

    def _deadline_passed(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._deadline_at_ns > _STALL_NS:
            self._grace_until_ns = now_ns + min(_GRACE_NS, self._timeout_ns)
        # Completions that the threads have posted already come before this.
        self._loop.call_soon(self._expire, now_ns)

    def _expire(self, now_ns: int) -> None:
        self._deadline_timer = None
        late: list[Queued] = []
        if now_ns >= self._grace_until_ns:
            for lane in (self._for_writer, self._for_reader):
                for queued in lane:
                    if queued.queued_ns + self._timeout_ns > now_ns:
                        break
                    if not queued.finished and not queued.expired and self._deadline_of(queued) <= now_ns:
                        queued.expired = True
                        late.append(queued)
        for queued in late:
            if not self._given_up:
                error = LogDirError(
                    self.path, queued.method, errno.ETIMEDOUT, queued.name, "the operation's deadline passed"
                )
                self._fail(queued.future, error)
        self._watch_deadlines()

    # --- the end -------------------------------------------------------------------------------------------------
    def _threads_left(self) -> None:
        if not self.released.done():
            self.released.set_result(None)
        for queued in [*self._for_writer, *self._for_reader]:
            if not queued.future.done():
                queued.future.set_result(None)
        self._for_writer.clear()
        self._for_reader.clear()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    def _report_stuck(self) -> None:
        if not self._threads.inside:
            return
        self._log.warning("log_dir_threads_stuck", log_dir=self.path, threads=list(self._threads.inside))
        self.released.add_done_callback(self._report_released)

    def _report_released(self, _released: "asyncio.Future[None]") -> None:
        stuck_ms = (time.monotonic_ns() - self._given_up_ns) // NS_PER_MS
        self._log.info("log_dir_threads_released", log_dir=self.path, after_ms=stuck_ms)


def _opened(file: LogFile) -> OpenFile | None:
    assert isinstance(file, RealLogFile)
    return file.open_file


def _nothing() -> None:
    pass


def _reject(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Marks it as seen: on_error was told, so a failure that nobody awaits is not lost and must not end the daemon.
        future.exception()


def _check_name(name: str) -> None:
    """The last line of defence: topic names and paths are checked long before."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"'{name}' is not a name inside a log directory")
