"""The part of a log directory that runs on the event loop (shell).

Every call creates an operation, queues it for one of the directory's threads (disk_threads.py) and returns a future. The
life of an operation is drawn in disk_lanes.py. Kafka makes the same system calls on its request handler threads. A hung disk
must never block the event loop, so nothing here waits for a thread.

The life of the directory:

    new ───attach──> open ──close────────> closing ──all threads have left──> released
                       └────take_offline──> offline ─all threads have left──> released

1. The first call of `attach` starts the threads. All operations before it are refused.
2. `close` lets the queued operations finish, and the future that it returns completes when all threads have left.
   `take_offline` fails all pending operations with the error passed to it, and waits for nothing.
3. A thread that is stuck in the kernel may never leave, so an offline directory may never be released. If a thread has not
   left after a second, a warning is logged, and another line when the directory is released after all.
4. Every error is reported to `on_error` and set on the future, because the caller may no longer be waiting. A closed or
   offline directory refuses new operations. Such a refusal is not an error of the disk, so only the future gets it.
5. The threads close the descriptors. Code that uses a descriptor on the event loop, to send a region, checks `is_open`
   first. `is_open` becomes False before the threads are asked to leave.
"""

import asyncio
import errno
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from common.environment import disk_operations
from common.environment.disk_errors import FSYNC_STEP
from common.environment.disk_lanes import DiskLanes
from common.environment.disk_operations import DescribedError, FsyncFailed, HeldDirectory
from common.environment.disk_threads import Append, DiskThreads, Lane, OpenFile, Operation, Queued
from common.environment.interface import (
    DirectoryEntry,
    FileStat,
    LogDir,
    LogDirError,
    LogDirLocked,
    LogFile,
    NewFolder,
    SpaceStat,
)
from common.environment.page_cache import PageCache
from common.environment.pending_write import Settled
from common.environment.process import ProcessResources
from common.environment.real_timers import Timer
from common.parts import Buffer, FileRegion
from common.time_units import NS_PER_MS, NS_PER_S

T = TypeVar("T")

_STUCK_REPORT_NS: Final = NS_PER_S
# If an operation of the writer or the reader is this old, the disk may be hanging, and sendfile could block on a lock that
# the operation holds.
_SUSPICIOUS_AGE_NS: Final = 100 * NS_PER_MS
# For how long pages that were found in the page cache count as cached. Counting those of a long readahead takes as long as a
# whole small fetch.
_CACHED_NS: Final = 10 * NS_PER_MS
# Under memory pressure the kernel drops single pages of a file. As long as one is missing in the readahead of a range, only
# the reader thread can read that range. A few missing pages are worth reading in; a file that lacks many is hardly read.
_GAP_SHARE_MAX: Final = 1 / 16


class RealLogFile(LogFile):
    """The handle of an open file. `open_file` is None once the handle is closed."""

    __slots__ = ("name", "open_file")

    def __init__(self, open_file: OpenFile) -> None:
        self.name = open_file.name
        self.open_file: OpenFile | None = open_file


class RealFileRegion(FileRegion):
    """A written range of an open file. As long as this object exists, `close_file` does not close the descriptor."""

    __slots__ = ("_truncations_before", "file", "log_dir", "position", "size")

    def __init__(self, log_dir: "RealLogDir", file: OpenFile, position: int, size: int) -> None:
        self.log_dir = log_dir
        self.file = file
        self.position = position
        self.size = size
        # How many truncations of the file were queued before this region was created. Only later ones can invalidate it.
        self._truncations_before = len(file.truncations)

    @property
    def is_valid(self) -> bool:
        """Whether the bytes may still be read: the directory is neither closed nor offline, and the range is not
        truncated."""
        if not self.log_dir.is_open:
            return False
        # A truncation counts as soon as it is queued, so no truncation can run while a sendfile still uses the range.
        # Truncations from before the region was created do not count, because its bytes were written after them.
        truncations = self.file.truncations
        if len(truncations) == self._truncations_before:
            return True
        end = self.position + self.size
        return all(end <= size for size in truncations[self._truncations_before :])


class RealLogDir(LogDir):
    """See LogDir. Created and used on one event loop, which owns all fields."""

    def __init__(
        self,
        path: str,
        *,
        operation_timeout_ns: int,
        sync_timeout_ns: int,
        loop: asyncio.AbstractEventLoop,
        log: FilteringBoundLogger,
        process: ProcessResources,
        page_cache: PageCache,
    ) -> None:
        self.path = path
        # Set by the owner before the first operation. Called on the event loop as soon as an error is known, directly by the
        # code that found it. The callback may call `take_offline`.
        self.on_error: Callable[[LogDirError], None] | None = None
        # Whether descriptors may be used on the event loop. `close` and `take_offline` set it to False; it never becomes
        # True again. Invariant: False before the threads are asked to close everything.
        self.is_open = True
        self.released: asyncio.Future[None] = loop.create_future()
        """Completes when all threads have left and every descriptor is closed. Never completes if a thread stays stuck."""
        self._loop = loop
        self._log = log
        self._page_cache = page_cache
        # The region that was read last from the page cache, and its bytes: an append goes to all replicas and consumers at
        # the end of the log. The reference is weak, because a region keeps its file open.
        self._last_resident: tuple[weakref.ref[RealFileRegion], bytearray] | None = None
        # The reads of regions that connections wait for. A dict used as an ordered set.
        self._region_reads: dict[asyncio.Future[Any], None] = {}
        self._directory = HeldDirectory(path, process)
        self._threads = DiskThreads(self._directory, loop, self._settle, self._threads_left)
        # The operations that are queued or running. Invariant: every operation in a lane was passed to a thread, except the
        # operation of `close`. Empty after `take_offline`.
        self._lanes = DiskLanes(
            loop,
            operation_timeout_ns=operation_timeout_ns,
            sync_timeout_ns=sync_timeout_ns,
            on_expired=self._expired,
            count_device_writes=self._directory.count_device_writes,
            write_progress_ns=lambda: self._threads.write_progress_ns,
        )
        # Whether the threads were started. The first `attach` sets it to True; never reset.
        self._started = False
        # The error with which every new operation fails once the directory is closed or offline; None before. `take_offline`
        # replaces the error that `close` has set. `on_error` is never called with this error.
        self._refusal: LogDirError | None = None
        # Set to True by `take_offline`, never reset. If True, the lanes are empty and results from the threads are dropped.
        self._given_up = False
        # When `take_offline` was called, 0 before. Only for the log line about stuck threads.
        self._given_up_ns = 0

    @property
    def oldest_operation_age_ns(self) -> int:
        return self._lanes.oldest_age_ns

    @property
    def silence_ns(self) -> int:
        return self._lanes.silence_ns

    @property
    def awaited_sync_age_ns(self) -> int:
        return self._lanes.awaited_sync_age_ns

    # --- the directory itself ------------------------------------------------------------------------------------
    def attach(self, *, create: bool = False) -> Awaitable[None]:
        if not self._started and self._refusal is None:
            self._started = True
            try:
                self._threads.start()
            except RuntimeError as error:
                # The process has reached its limit of threads, which is no fault of the disk.
                self.take_offline(LogDirError(self.path, "attach", errno.ENOMEM, detail=str(error)))
        return self._write("attach", "", partial(self._directory.attach, create=create))

    def lock(self) -> Awaitable[None]:
        return self._write("lock", "", self._directory.lock)

    def probe(self) -> Awaitable[None]:
        # The probe runs on the sweeper. On a busy disk its fsync takes long, but delays nothing that clients or the metadata
        # log wait for. The other threads need no probe, because a stuck thread misses the deadlines of its operations.
        # Before the directory is attached, the probe waits for the writer, which attaches it.
        operation = self._operation("probe", "", self._directory.probe, None)
        self._queue_beside_writer(operation, Lane.SWEEPER, after_writes=self._directory.dir_fd < 0)
        return operation.future

    def statvfs(self) -> Awaitable[SpaceStat]:
        return self._write("statvfs", "", self._directory.statvfs)

    def take_offline(self, error: LogDirError) -> None:
        if self._given_up or self.released.done():
            return
        self._given_up = True
        self.is_open = False
        self._refusal = error
        pending = self._lanes.take_all()
        self._given_up_ns = time.monotonic_ns()
        if self._started:
            # A system call in progress cannot be interrupted. If the disk hangs, the call may never return.
            self._threads.abandon()
            Timer(self._loop, self._given_up_ns + _STUCK_REPORT_NS, self._report_stuck)
        else:
            self._threads_left()
        for queued in pending:
            _reject(queued.future, error)

    def close(self) -> Awaitable[None]:
        closed: asyncio.Future[None] = self._loop.create_future()
        if self._refusal is not None or not self._started:
            # The threads need no request to leave: they were never started, or were already asked to leave.
            self._refusal = self._refusal or self._closed_error("close", "")
            self.is_open = False
            closed.set_result(None)
            return closed
        self._refusal = self._closed_error("close", "")
        self.is_open = False
        # No thread runs this operation; `_threads_left` settles it. It is always held back, so that the progress of every
        # thread postpones its deadline.
        ending = Operation("close", "", _nothing, future=closed, queued_ns=time.monotonic_ns())
        ending.lane = Lane.SWEEPER
        ending.held_back = True
        self._lanes.add(ending)
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
        # Queued operations and regions hold references to the OpenFile. When the last one is dropped, the sweeper closes the
        # descriptor.
        file.open_file = None

    def append(self, file: LogFile, position: int, buffers: Sequence[Buffer]) -> Awaitable[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self.start_append(file, position, buffers, future)
        return future

    def start_append(self, file: LogFile, position: int, buffers: Sequence[Buffer], write: Settled) -> None:
        assert isinstance(file, RealLogFile)
        size = 0
        for buffer in buffers:
            size += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        open_file = file.open_file
        refusal = self._refusal_of("append", size)
        if refusal is not None or open_file is None:
            self._fail(write, refusal or self._closed_error("append", file.name))
            return
        # While writes are under way, `unwritten_from` only decreases, to the lowest position that one of them may change.
        # Too low a value only makes a read wait needlessly, but too high a value would let a read overtake a write.
        if open_file.writes_in_flight == 0 or position < open_file.unwritten_from:
            open_file.unwritten_from = position
        open_file.writes_in_flight += 1
        end = position + size
        open_file.end = max(open_file.end, end)
        append = Append(open_file, position, buffers, size, write, time.monotonic_ns())
        self._threads.queue_append(append)
        self._lanes.add_append(append)

    def read(self, file: LogFile, position: int, size: int) -> Awaitable[bytes]:
        open_file = _opened(file)
        if open_file is None:
            return self._failed(self._closed_error("read", file.name))
        return self._read("read", open_file, position, size)

    def examine(self, file: LogFile, position: int, size: int, examination: Callable[[bytes], T]) -> Awaitable[T]:
        open_file = _opened(file)
        if open_file is None:
            return self._failed(self._closed_error("read", file.name))
        return self._read("read", open_file, position, size, examination)

    def read_around_cache(self, name: str) -> Awaitable[None]:
        _check_name(name)
        operation = self._operation("read", name, partial(self._directory.read_around_cache, name), None)
        self._queue_beside_writer(operation, Lane.READER, after_writes=False)
        return operation.future

    def read_cached(self, file: LogFile, position: int, size: int) -> bytearray | None:
        open_file = _opened(file)
        return None if open_file is None or not self.is_open else self._read_cached(open_file, position, size)

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
        # Reads that are already queued must still find the bytes that this truncation removes, so the truncation waits for
        # them.
        if open_file.reads_in_flight and self._refusal is None:
            self._threads.hold_back_until_read(operation)
        if not self._queue_for_writer(operation):
            return operation.future
        open_file.truncations.append(size)
        open_file.end = size
        open_file.unwritten_from = min(size, open_file.unwritten_from) if open_file.writes_in_flight else size
        open_file.writes_in_flight += 1
        return operation.future

    def fsync(self, file: LogFile, *, is_awaited: bool = False) -> Awaitable[None]:
        return self._sync("fsync", file, disk_operations.sync_data, is_awaited=is_awaited)

    def sync_and_forget(self, file: LogFile) -> Awaitable[None]:
        return self._sync("sync_and_forget", file, disk_operations.sync_and_forget)

    def write_back(self, file: LogFile, *, forget: bool = False) -> Awaitable[None]:
        open_file = _opened(file)
        if open_file is None:
            return self._failed(self._closed_error("write_back", file.name))
        work = partial(disk_operations.sync_and_forget if forget else disk_operations.sync_data, open_file.fd)
        operation = self._operation("write_back", open_file.name, work, open_file)
        self._queue_beside_writer(operation, Lane.SWEEPER, after_writes=False)
        return operation.future

    def _sync(
        self, method: str, file: LogFile, sync: Callable[[int], None], *, is_awaited: bool = False
    ) -> "asyncio.Future[None]":
        open_file = _opened(file)
        if open_file is None:
            return self._failed(self._closed_error(method, file.name))
        operation = self._operation(method, open_file.name, partial(sync, open_file.fd), open_file)
        operation.is_awaited = is_awaited
        self._queue_beside_writer(operation, Lane.SYNCER, after_writes=True)
        return operation.future

    # --- names ---------------------------------------------------------------------------------------------------
    def mkdir(self, name: str) -> Awaitable[None]:
        _check_name(name)
        return self._write("mkdir", name, partial(self._directory.mkdir, name))

    def create_folders(self, folders: Sequence[NewFolder]) -> Awaitable[list[str]]:
        names = [folder.name for folder in folders]
        for name in names:
            _check_name(name)
        return self._make_durable("create_folders", _first(names), partial(self._directory.create_folders, folders))

    def fsync_folders(self, names: Sequence[str]) -> Awaitable[None]:
        for name in names:
            _check_name(name)
        return self._make_durable("fsync_folders", _first(names), partial(self._directory.fsync_folders, names))

    def rename(self, old: str, new: str) -> Awaitable[None]:
        _check_name(old)
        _check_name(new)
        return self._make_durable("rename", old, partial(self._directory.rename, old, new))

    def fsync_dir(self, name: str = "") -> Awaitable[None]:
        if name:
            _check_name(name)
        return self._make_durable("fsync_dir", name, partial(self._directory.fsync_dir, name))

    def list(self, name: str = "") -> Awaitable[list[DirectoryEntry]]:
        if name:
            _check_name(name)
        return self._write("list", name, partial(self._directory.list_folder, name))

    def remove(self, name: str) -> Awaitable[None]:
        _check_name(name)
        operation = self._operation("remove", name, partial(self._directory.remove, name), None)
        self._queue_beside_writer(operation, Lane.SWEEPER, after_writes=True)
        return operation.future

    def stat(self, name: str) -> Awaitable[FileStat | None]:
        _check_name(name)
        return self._write("stat", name, partial(self._directory.stat, name))

    def read_file(self, name: str, *, last: int | None = None) -> Awaitable[bytes | None]:
        _check_name(name)
        return self._write("read_file", name, partial(self._directory.read_file, name, last))

    def replace_file(self, name: str, content: bytes | Callable[[], bytes]) -> Awaitable[None]:
        _check_name(name)
        return self._make_durable("replace_file", name, partial(self._directory.replace_file, name, content))

    # --- for connections that send regions -----------------------------------------------------------------------
    def is_resident(self, region: RealFileRegion, position: int, size: int) -> bool:
        """Returns True only if sendfile of the range is certain not to block on the disk."""
        return (
            self._is_responsive(region.file)
            and self._reads_nothing_ahead(region.file, position, size)
            and self._page_cache.is_resident(region.file.fd, position, size)
        )

    def read_resident(self, region: RealFileRegion) -> bytearray | None:
        """Returns the bytes of a region if reading them is certain not to block on the disk, else None. The caller must not
        change them."""
        if not region.is_valid:
            return None
        if self._last_resident is not None and self._last_resident[0]() is region:
            return self._last_resident[1]
        data = self._read_cached(region.file, region.position, region.size)
        if data is not None:
            self._last_resident = weakref.ref(region), data
        return data

    def _read_cached(self, file: OpenFile, position: int, size: int) -> bytearray | None:
        if self._is_responsive(file) and self._reads_nothing_ahead(file, position, size):
            return self._page_cache.read(file.fd, position, size)
        return None

    def _reads_nothing_ahead(self, file: OpenFile, position: int, size: int) -> bool:
        """Whether a read of this range does not make the kernel read ahead from the disk, because all that it would read is
        in the page cache (`common/environment/page_cache.py`, rule 3)."""
        end = position + size
        # What is still being written need not be in the file yet. What of it is there is in the page cache.
        file_end = file.unwritten_from if file.writes_in_flight else file.end
        ahead_end = min(end + self._directory.readahead_bytes, file_end)
        if ahead_end <= end:
            return True
        now_ns = time.monotonic_ns()
        if file.cached_from <= position and ahead_end <= file.cached_to and now_ns < file.cached_until_ns:
            return True
        missing = self._page_cache.missing_share(file.fd, position, ahead_end - position)
        if missing:
            if missing <= _GAP_SHARE_MAX:
                file.gap = position, ahead_end - position
            return False
        # From the start of the range: the search that comes before a fetch reads the same range and more.
        file.cached_from, file.cached_to, file.cached_until_ns = position, ahead_end, now_ns + _CACHED_NS
        return True

    def _is_responsive(self, file: OpenFile) -> bool:
        # Syncs and sweeps hold no lock that a read of cached pages needs, and rolling a segment takes a disk long.
        return file.reads_in_flight == 0 and self._lanes.longest_wait_ns < _SUSPICIOUS_AGE_NS

    def read_region(self, region: RealFileRegion, position: int, size: int) -> "asyncio.Future[bytes]":
        """Reads part of a region on the reader thread. Errors are reported like those of any other operation."""
        read = self._read("region", region.file, position, size)
        self._region_reads[read] = None
        read.add_done_callback(self._region_reads.pop)
        return read

    def give_up_regions(self) -> None:
        # The operations keep their places in the lane (disk_lanes.py), so the directory stays as silent as it is.
        for read in self._region_reads:
            _reject(read, LogDirError(self.path, "region", errno.ETIMEDOUT, detail="the directory is suspected of hanging"))

    def region_failed(self, region: RealFileRegion, error: OSError) -> None:
        """Reports an error from sendfile that came from the file and not from the socket."""
        self._report(LogDirError(self.path, "region", error.errno or errno.EIO, region.file.name))

    # --- queueing ------------------------------------------------------------------------------------------------
    def _refusal_of(self, method: str, size: int) -> LogDirError | None:
        if self._refusal is not None:
            return self._refusal
        if not self._started:
            return LogDirError(self.path, method, errno.EBADF, detail="not attached")
        if not self._lanes.has_room_for_writer(size):
            return self._too_much_queued(method)
        return None

    def _too_much_queued(self, method: str) -> LogDirError:
        return LogDirError(self.path, method, errno.ENOMEM, detail="too much is queued for this directory")

    def _operation(self, method: str, name: str, work: Callable[[], object], file: OpenFile | None) -> Operation:
        return Operation(method, name, work, future=self._loop.create_future(), queued_ns=time.monotonic_ns(), file=file)

    def _write(self, method: str, name: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        operation = self._operation(method, name, work, None)
        self._queue_for_writer(operation)
        return operation.future

    def _make_durable(self, method: str, name: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        operation = self._operation(method, name, work, None)
        self._queue_beside_writer(operation, Lane.SYNCER, after_writes=True)
        return operation.future

    def _read(
        self,
        method: str,
        file: OpenFile,
        position: int,
        size: int,
        examination: Callable[[bytes], object] | None = None,
    ) -> "asyncio.Future[Any]":
        # Clip the range to the file's end as of now. Otherwise the read could also see an append that is queued later but
        # runs earlier.
        size = max(0, min(size, file.end - position))
        work: Callable[[], object] = partial(disk_operations.read_range, file.fd, position, size)
        if examination is not None:
            work = partial(disk_operations.examine_range, file.fd, position, size, examination)
        if file.gap is not None:
            work, file.gap = partial(disk_operations.read_and_bring_in, work, file.fd, *file.gap), None
        operation = self._operation(method, file.name, work, file)
        # The read must see the writes queued before it, so it waits for these writes if they may touch its range. Of the
        # operations queued after the read, only a truncation waits for it.
        after_writes = file.writes_in_flight > 0 and position + size > file.unwritten_from
        if self._queue_beside_writer(operation, Lane.READER, after_writes=after_writes):
            file.reads_in_flight += 1
        return operation.future

    def _queue_for_writer(self, operation: Operation) -> bool:
        refusal = self._refusal_of(operation.method, 0)
        if refusal is not None:
            self._fail(operation.future, refusal)
            return False
        self._threads.queue(operation)
        self._lanes.add(operation)
        return True

    def _queue_beside_writer(self, operation: Operation, lane: Lane, *, after_writes: bool) -> bool:
        refusal = self._refusal_of(operation.method, 0)
        if refusal is None and not self._lanes.has_room_in(lane):
            refusal = self._too_much_queued(operation.method)
        if refusal is not None:
            self._fail(operation.future, refusal)
            return False
        operation.lane = lane
        if after_writes and lane is Lane.SWEEPER:
            self._threads.queue_after_syncs(operation)
        elif after_writes:
            self._threads.queue_after_writes(operation)
        else:
            self._threads.queue(operation)
        self._lanes.add(operation)
        return True

    # --- settling ------------------------------------------------------------------------------------------------
    def _settle(self, finished: Sequence[Queued]) -> None:
        """Settles the futures of operations that one thread hands back. Called on the event loop."""
        self._lanes.note_finished(finished)
        for queued in finished:
            if queued.expired or self._given_up:
                # The caller already has an error: ETIMEDOUT, or the one passed to `take_offline`. A late result changes
                # nothing.
                continue
            future: Any = queued.future
            if queued.error is not None:
                # `_fail` reports the error to the owner even if the caller was cancelled meanwhile.
                self._fail(future, self._error_of(queued, queued.error))
            elif not future.done():
                future.set_result(queued.result)
        # This must come last: an error above may make the owner call `take_offline`, which fails the unsettled operations in
        # the lanes and empties the lanes itself.
        if not self._given_up:
            self._lanes.remove(finished)

    def _expired(self, queued: Queued) -> None:
        # Several operations can expire together. If the first one made the owner take the directory offline, `take_offline`
        # has already failed this one.
        if not self._given_up:
            error = LogDirError(self.path, queued.method, errno.ETIMEDOUT, queued.name, "the operation's deadline passed")
            self._fail(queued.future, error)

    def _error_of(self, queued: Queued, error: OSError | LogDirLocked) -> LogDirError | LogDirLocked:
        if isinstance(error, LogDirLocked):
            return error
        detail = ""
        if isinstance(error, FsyncFailed):
            detail = FSYNC_STEP
        elif isinstance(error, DescribedError):
            detail = error.strerror or ""
        return LogDirError(self.path, queued.method, error.errno or errno.EIO, queued.name, detail)

    def _fail(self, future: Settled, error: LogDirError | LogDirLocked) -> None:
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

    # --- the end -------------------------------------------------------------------------------------------------
    def _threads_left(self) -> None:
        if not self.released.done():
            self.released.set_result(None)
        for queued in self._lanes.take_all():
            if not queued.future.done():
                queued.future.set_result(None)
        self._lanes.stop()

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


def _first(names: Sequence[str]) -> str:
    """Returns the name that an error of an operation on several folders gives."""
    return names[0] if names else ""


def _nothing() -> None:
    pass


def _reject(future: Settled, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Mark the exception as retrieved. Otherwise asyncio would report a failure that no task awaits, which ends the
        # daemon, although the owner already knows the error.
        future.exception()


def _check_name(name: str) -> None:
    """Rejects names that leave the directory. This is the last line of defence: callers have already checked topic names."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"'{name}' is not a name inside a log directory")
