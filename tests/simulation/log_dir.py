"""The LogDir over a simulated disk, for one life of one node.

Shell of the tests. An operation is queued when it is called, takes a time drawn from the seed, and takes effect at the end
of that time. The operations run in lanes, as on the threads of the real LogDir:

1. Appends, truncations, reads and queries. Those on one name take effect in order; those on folders (mkdir, list, ...) are
   barriers, which keep their order with all others of this lane.
2. Syncs and changes of names, one at a time. Each starts when everything before it in the first two lanes has taken effect.
   What a sync covers is fixed when it starts, so it does not cover what goes on meanwhile.
3. Sweeps (removals, write-backs and probes), one at a time. A removal starts like a sync.

When a node dies, operations that are still queued are lost, and operations that took effect stay, because the kernel has
them. The operations that the disk was working on may be half done.
"""

import asyncio
import contextlib
import contextvars
import errno
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeVar

from common.environment.disk_errors import FSYNC_STEP
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
from common.environment.pending_write import PendingWrite
from common.parts import Buffer, FileRegion
from tests.simulation.disk import SimulatedDisk
from tests.simulation.disk_store import DiskStore, FileNode, FolderNode, fail
from tests.simulation.loop import SimulatedLoop

T = TypeVar("T")

OPERATIONS_THAT_ARE_AN_FSYNC = frozenset({"fsync", "fsync_dir", "fsync_folders", "sync_and_forget", "write_back"})
OPERATIONS_WITH_AN_FSYNC_INSIDE = frozenset({"sync_and_forget", "replace_file", "probe"})
SYNCS = frozenset({"fsync", "sync_and_forget", "rename", "fsync_dir", "replace_file", "create_folders", "fsync_folders"})
READS = frozenset({"read", "region"})
SWEEPS = frozenset({"remove", "write_back", "probe"})
BARRIERS = frozenset({"attach", "lock", "mkdir", "list"})
# These may take as long as a sync. The real probe and the real creation of folders have the deadline of other operations.
LONG_OPERATIONS = (SYNCS | SWEEPS) - {"probe", "create_folders"}

# The name of the real probe's file.
PROBE_FILE = ".diskraft-probe"
PROBE_BYTES = bytes(4096)


class Owner(Protocol):
    """The part of a node that a LogDir uses."""

    @property
    def is_dead(self) -> bool: ...

    @property
    def loop(self) -> SimulatedLoop: ...

    @property
    def context(self) -> Context: ...

    def wall_ms(self) -> int: ...

    def trace(self, *facts: object) -> None: ...

    def note_operation(self, path: str, kind: str, name: str) -> None: ...


class _Broken(Exception):
    """The error with which the disk ends an operation."""

    def __init__(self, errno_code: int, detail: str = "") -> None:
        super().__init__(errno_code, detail)
        self.errno_code = errno_code
        self.detail = detail


def _fsync_failure(errno_code: int) -> _Broken:
    """Returns the error of a failed fsync. Its detail is FSYNC_STEP, except for EMFILE and ENFILE: these come from opening
    the folder, before any fsync."""
    return _Broken(errno_code, "" if errno_code in (errno.EMFILE, errno.ENFILE) else FSYNC_STEP)


class SimulatedLogFile(LogFile):
    """A file handle. Like a descriptor, it keeps its file when the name is renamed or removed."""

    def __init__(self, log_dir: "SimulatedLogDir", name: str, node: FileNode) -> None:
        self.log_dir = log_dir
        self.name = name
        self.node = node
        self.is_closed = False
        # The errno and the position of an append that failed. An append beyond that position would leave a hole, so it fails
        # too. Cleared by the next append at or before the position, and by a truncate.
        self.broken: int | None = None
        self.broken_at = 0


class SimulatedRegion(FileRegion):
    """A range of a simulated file. Like sendfile, it reads the bytes when they are sent."""

    def __init__(self, file: SimulatedLogFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def content(self) -> bytes:
        """Returns the present bytes, for tests and for the disk itself."""
        return bytes(self.file.node.content[self.position : self.position + self.size])

    def load(self) -> asyncio.Future[bytes]:
        """Reads the bytes as an operation of the directory, which may fail or hang like any other."""
        return self.file.log_dir.load_region(self)


class Lane(Enum):
    WRITE = "write"
    SYNC = "sync"
    SWEEP = "sweep"


LANES = {**dict.fromkeys(SYNCS, Lane.SYNC), **dict.fromkeys(SWEEPS, Lane.SWEEP)}


@dataclass(slots=True, eq=False)
class Operation:
    """One call of a LogDir, from the call to its end."""

    log_dir: "SimulatedLogDir"
    kind: str
    name: str
    effect: Callable[[], Any]
    future: asyncio.Future[Any]
    queued_ns: int
    timeout_ns: int
    # Called when the operation starts. Returns the effect of an operation that covers what was there at its start. None for
    # other operations, and once it was called.
    begin: Callable[[], Callable[[], Any]] | None = None
    # Applies a part of the operation if its process is killed in the middle of it. None if a partial operation leaves no
    # trace.
    cut_short: Callable[[], None] | None = None
    # Called with the errno when the operation fails, to mark its file.
    failed: Callable[[int], None] | None = None
    # Whether it is a sync for which clients wait.
    is_awaited: bool = False
    # Of a sync or a sweep: when nothing holds it up any more but its predecessors in its own lane, and when it is planned to
    # start and to end. A write starts at once.
    ready_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    # Of the process that has queued the operation.
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def plan(self, start_ns: int, end_ns: int) -> None:
        """Sets when a sync or a sweep starts and ends, instead of what was planned before."""
        for timer in self.timers:
            timer.cancel()
        self.start_ns, self.end_ns = start_ns, end_ns
        log_dir, loop = self.log_dir, self.log_dir._loop
        self.timers.clear()
        if start_ns > loop.now_ns:
            timer = loop.call_at_ns(start_ns, lambda: log_dir._start(self), context=self.context.copy())
            self.timers.append(timer)
        self.timers.append(loop.call_at_ns(end_ns, lambda: log_dir._reach(self), context=self.context.copy()))

    @property
    def lane(self) -> Lane:
        return LANES.get(self.kind, Lane.WRITE)

    def comes_before(self, later: "Operation") -> bool:
        """True when the two must take effect in the order in which they were queued."""
        if self.log_dir is not later.log_dir:
            return False
        if self.kind == "attach" or later.kind == "close":
            return True
        if self.lane is Lane.SWEEP:
            return later.lane is Lane.SWEEP
        if later.lane is Lane.SYNC or later.kind == "remove":
            return True
        if self.lane is Lane.SYNC or later.lane is Lane.SWEEP:
            return False
        return self.kind in BARRIERS or later.kind in BARRIERS or self.name == later.name

    def start(self) -> None:
        """Fixes what the operation covers."""
        begin, self.begin = self.begin, None
        if begin is None:
            return
        try:
            self.effect = begin()
        except OSError as error:
            self.effect = partial(_raise, error)


def _raise(error: OSError) -> None:
    raise error


class SimulatedLogDir(LogDir):
    """LogDir over one SimulatedDisk, for one life of one node."""

    def __init__(
        self,
        owner: Owner,
        path: str,
        disk_at: Callable[[str, bool], SimulatedDisk | None],
        *,
        operation_timeout_ns: int,
        sync_timeout_ns: int,
    ) -> None:
        self.path = path
        self.on_error: Callable[[LogDirError], None] | None = None
        self._owner = owner
        self._disk_at = disk_at
        self._operation_timeout_ns = operation_timeout_ns
        self._sync_timeout_ns = max(sync_timeout_ns, operation_timeout_ns)
        self._attached: SimulatedDisk | None = None
        # The store that was at the path on attach. Open descriptors stay on it when another disk is mounted there or the
        # disk is replaced.
        self._held: DiskStore | None = None
        self._attach_was_called = False
        self._closed: LogDirError | None = None
        # The calls that hang in the kernel, at most one in each lane. Empty unless the directory is offline or the node is
        # dead.
        self._stuck: list[Operation] = []
        self._offline: LogDirError | None = None
        # The operations that have neither ended nor expired, in queue order.
        self._pending: dict[Operation, None] = {}
        # What connections wait for while regions are read.
        self._region_reads: dict[asyncio.Future[bytes], None] = {}
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._deadline_timer_at_ns = 0
        # When a read was finished last, an append, and another operation. Only the last shows that the device works: the
        # page cache takes appends and answers reads while the disk hangs.
        self._read_progress_ns = 0
        self._append_progress_ns = 0
        self._device_progress_ns = 0
        # When the last write of each name ends, and the last of all.
        self._lane_ends: dict[str, int] = {}
        self._writes_end = 0
        self._barrier_end = 0
        self._syncs_end = 0
        self._sweeps_end = 0
        self._loop = owner.loop
        # Draws the latencies of a directory that does not exist, because there is no disk to draw them.
        self._absent_rng = random.Random(path)

    @property
    def oldest_operation_age_ns(self) -> int:
        oldest = next((each.queued_ns for each in self._unfinished()), None)
        return 0 if oldest is None else self._loop.now_ns - oldest

    @property
    def silence_ns(self) -> int:
        silence_ns = 0
        for is_read in (False, True):
            waiting = (each for each in self._unfinished() if each.lane is Lane.WRITE and (each.kind in READS) is is_read)
            first = next(waiting, None)
            if first is not None:
                progress_ns = max(self._device_progress_ns, self._read_progress_ns if is_read else self._append_progress_ns)
                silence_ns = max(silence_ns, self._loop.now_ns - max(first.queued_ns, progress_ns))
        return silence_ns

    @property
    def awaited_sync_age_ns(self) -> int:
        awaited = (each for each in self._unfinished() if each.is_awaited)
        first = next(awaited, None)
        return 0 if first is None else self._loop.now_ns - first.queued_ns

    def _unfinished(self) -> Iterator[Operation]:
        return (operation for operation in self._pending if not operation.future.done())

    # --- the queue -----------------------------------------------------------------------------------------------
    def _queue(
        self,
        kind: str,
        name: str,
        effect: Callable[[], Any],
        *,
        begin: Callable[[], Callable[[], Any]] | None = None,
        cut_short: Callable[[], None] | None = None,
        failed: Callable[[int], None] | None = None,
        is_awaited: bool = False,
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._owner.is_dead:
            future.cancel("the node is gone")
            return future
        refusal = self._offline or self._closed
        if refusal is not None:
            self._fail(future, refusal)
            return future
        if not self._attach_was_called:
            error = LogDirError(self.path, kind, errno.EBADF, detail="not attached")
            self._tell_owner(error)
            self._fail(future, error)
            return future
        timeout_ns = self._sync_timeout_ns if kind in LONG_OPERATIONS else self._operation_timeout_ns
        operation = Operation(
            self, kind, name, effect, future, self._loop.now_ns, timeout_ns, begin=begin, cut_short=cut_short, failed=failed
        )
        operation.is_awaited = is_awaited
        self._pending[operation] = None
        self._arm_deadline(self._deadline_of(operation))
        self._schedule_after_its_predecessors(operation)
        return future

    def _schedule_after_its_predecessors(self, operation: Operation) -> None:
        disk = self._attached
        latency_ns = disk.latency_ns(operation.kind) if disk else self._absent_rng.randint(10_000, 100_000)
        now_ns = self._loop.now_ns
        writes_end = self._writes_end
        if operation.lane is Lane.SYNC:
            # A sync takes its time from its start on, unlike the others, whose system calls only wait in the queue.
            operation.ready_ns = max(now_ns, writes_end)
            start_ns = max(operation.ready_ns, self._syncs_end) + 1
            self._syncs_end = start_ns + latency_ns
            operation.plan(start_ns, self._syncs_end)
            return
        if operation.lane is Lane.SWEEP:
            operation.ready_ns = max(now_ns, self._barrier_end, writes_end if operation.kind == "remove" else 0)
            start_ns = max(operation.ready_ns, self._sweeps_end, self._syncs_end if operation.kind == "remove" else 0) + 1
            self._sweeps_end = start_ns + latency_ns
            operation.plan(start_ns, self._sweeps_end)
            return
        self._loop.call_at_ns(self._end_of_write(operation, now_ns + latency_ns), lambda: self._reach(operation))

    def _end_of_write(self, operation: Operation, earliest_ns: int) -> int:
        if operation.kind == "close":
            return max(earliest_ns, self._writes_end + 1, self._syncs_end + 1, self._sweeps_end + 1)
        if operation.kind in BARRIERS:
            self._lane_ends.clear()
            self._barrier_end = self._writes_end = max(earliest_ns, self._writes_end + 1)
            return self._barrier_end
        finish_ns = max(earliest_ns, self._lane_ends.get(operation.name, 0) + 1, self._barrier_end + 1)
        self._lane_ends[operation.name] = finish_ns
        self._writes_end = max(self._writes_end, finish_ns)
        return finish_ns

    def speed_up(self, factor: float) -> None:
        """Plans the syncs and sweeps anew, because the disk is this many times as fast from now on. What is left of the one
        that the disk is doing takes less time, and so do all that wait in the thread's queue: the disk does not know them
        yet."""
        if self._owner.is_dead or self._offline is not None:
            return
        now_ns = self._loop.now_ns
        self._syncs_end = self._sweeps_end = now_ns
        for operation in [each for each in self._pending if each.end_ns > now_ns]:
            duration_ns = round((operation.end_ns - max(operation.start_ns, now_ns)) / factor)
            is_sync = operation.lane is Lane.SYNC
            before_ns = self._syncs_end if is_sync else self._sweeps_end
            if operation.kind == "remove":
                before_ns = max(before_ns, self._syncs_end)
            start_ns = operation.start_ns
            if start_ns > now_ns:
                start_ns = max(operation.ready_ns, before_ns) + 1
            operation.plan(start_ns, max(start_ns, now_ns) + duration_ns)
            if is_sync:
                self._syncs_end = operation.end_ns
            else:
                self._sweeps_end = operation.end_ns

    def _start(self, operation: Operation) -> None:
        earlier = itertools.takewhile(_is_not(operation), self._pending)
        is_blocked = any(other.comes_before(operation) for other in earlier)
        # If it waits for one that hangs or takes longer than planned, it starts when that one has ended.
        if not is_blocked and (self._attached is None or not self._attached.stalls(operation)):
            operation.start()

    def _reach(self, operation: Operation) -> None:
        disk = self._attached
        if disk is not None and disk.stalls(operation):
            disk.stalled.append(operation)
        elif disk is not None and disk.is_busy and (operation.lane is not Lane.WRITE or operation.kind == "close"):
            self._loop.call_at_ns(disk.busy_until_ns, lambda: self._reach(operation))
        else:
            self.carry_out(operation)

    def go_on(self, operation: Operation) -> None:
        """Continues an operation after its disk has thawed. It completes in the context of its process, so a paused process
        notices the completion only after it is resumed. An operation that a dead process left in the kernel still takes
        effect."""
        if self._owner.is_dead:
            self.carry_out(operation)
        else:
            self._loop.call_soon(self.carry_out, operation, context=self._owner.context.copy())

    def carry_out(self, operation: Operation) -> None:
        """Ends an operation: applies its effect and completes its future, unless the directory is offline or the node
        dead."""
        if operation in self._stuck:
            self._stuck.remove(operation)
            self._finish(operation)
            # The threads that hung return from the kernel and find their directory offline. The last one releases the
            # descriptors and the lock.
            if not self._stuck:
                self.release_lock_now()
        elif self._offline is None and not self._owner.is_dead:
            self._finish(operation)

    def _finish(self, operation: Operation) -> None:
        if operation.kind in READS:
            self._read_progress_ns = self._loop.now_ns
        elif operation.kind == "append":
            self._append_progress_ns = self._loop.now_ns
        else:
            self._device_progress_ns = self._loop.now_ns
        self._pending.pop(operation, None)
        operation.start()
        try:
            self._fail_if_broken(operation)
            result = operation.effect()
        except _Broken as broken:
            self._report(operation, broken.errno_code, broken.detail)
        except OSError as error:
            self._report(operation, error.errno or errno.EIO)
        except LogDirLocked as error:
            if not operation.future.done():
                operation.future.set_exception(error)
        else:
            self._owner.trace("disk", self.path, operation.kind, operation.name)
            if not operation.future.done():
                operation.future.set_result(result)
            self._owner.note_operation(self.path, operation.kind, operation.name)

    def _fail_if_broken(self, operation: Operation) -> None:
        disk = self._attached
        if disk is None:
            return
        errno_code = disk.failure_of(operation.kind)
        if errno_code is not None:
            raise _fsync_failure(errno_code) if operation.kind in OPERATIONS_THAT_ARE_AN_FSYNC else _Broken(errno_code)
        if operation.kind in OPERATIONS_WITH_AN_FSYNC_INSIDE:
            errno_code = disk.sticky_failure_of("fsync")
            if errno_code is not None:
                raise _fsync_failure(errno_code)

    def _report(self, operation: Operation, errno_code: int, detail: str = "") -> None:
        self._owner.trace("disk", self.path, operation.kind, operation.name, errno_code)
        if operation.failed is not None:
            operation.failed(errno_code)
        if operation.future.done() or self._owner.is_dead:
            return
        error = LogDirError(self.path, operation.kind, errno_code, operation.name, detail)
        self._tell_owner(error)
        # If the owner has taken the directory offline in that call, this future has failed already.
        if not operation.future.done():
            self._fail(operation.future, error)

    def _tell_owner(self, error: LogDirError) -> None:
        if self.on_error is not None:
            self.on_error(error)

    @staticmethod
    def _fail(future: asyncio.Future[Any], error: LogDirError) -> None:
        future.set_exception(error)
        # Mark the error as retrieved: on_error has notified the owner, so no task needs to await the operation.
        future.exception()

    def _deadline_of(self, operation: Operation) -> int:
        deadline_ns = operation.queued_ns + operation.timeout_ns
        if operation.kind in ("probe", "create_folders") and self._attached is not None:
            # While the disk is busy, the kernel sees it finish writes.
            deadline_ns = max(deadline_ns, self._attached.busy_until_ns + operation.timeout_ns)
            deadline_ns = min(deadline_ns, operation.queued_ns + self._sync_timeout_ns)
        return deadline_ns

    def _arm_deadline(self, deadline_ns: int) -> None:
        if self._deadline_timer is not None:
            if self._deadline_timer_at_ns <= deadline_ns:
                return
            self._deadline_timer.cancel()
        self._deadline_timer_at_ns = deadline_ns
        self._deadline_timer = self._loop.call_at_ns(deadline_ns, self._expire)

    def _expire(self) -> None:
        self._deadline_timer = None
        now_ns = self._loop.now_ns
        for operation in [each for each in self._unfinished() if self._deadline_of(each) <= now_ns]:
            self._pending.pop(operation, None)
            self._report(operation, errno.ETIMEDOUT, "the operation's deadline passed")
        deadlines = [self._deadline_of(each) for each in self._unfinished()]
        if deadlines:
            self._arm_deadline(min(deadlines))

    # --- the directory itself ------------------------------------------------------------------------------------
    def attach(self, *, create: bool = False) -> Awaitable[None]:
        self._attach_was_called = True

        def effect() -> None:
            self._attached = self._disk_at(self.path, create)
            if self._attached is None:
                fail(errno.ENOENT)
            self._held = self._attached.store
            self._attached.users.append(self)

        # Look the disk up before `effect` runs: if the disk is hung or dead, attach must hang or fail like any other
        # operation.
        self._attached = self._disk_at(self.path, False)
        return self._queue("attach", "", effect)

    def lock(self) -> Awaitable[None]:
        def effect() -> None:
            disk = self.disk
            if disk.lock_holder is not None and disk.lock_holder is not self:
                raise LogDirLocked(f"{self.path} is in use by another process")
            if disk.is_read_only and self.store.find(".lock") is None:
                fail(errno.EROFS)
            disk.lock_holder = self
            self.store.create_file(".lock", self._owner.wall_ms())

        return self._queue("lock", ".lock", effect)

    def probe(self) -> Awaitable[None]:
        def effect() -> None:
            found = self._disk_at(self.path, False)
            if found is None or found.store is not self.store:
                fail(errno.ESTALE)
            self._require_room(len(PROBE_BYTES))
            self.disk.require_readable_platter()

        def steps() -> Iterator[None]:
            yield from self._write_new_file(PROBE_FILE + ".tmp", PROBE_BYTES)
            self.store.rename(PROBE_FILE + ".tmp", PROBE_FILE)
            yield

        return self._queue("probe", ".probe", effect, cut_short=lambda: self._some_of(steps()))

    def _require_room(self, size: int) -> None:
        room = self.disk.room_bytes()
        if room is not None and size > room:
            fail(errno.ENOSPC)

    def statvfs(self) -> Awaitable[SpaceStat]:
        def effect() -> SpaceStat:
            disk = self.disk
            usable = max(0, disk.capacity_bytes - self.store.used_bytes())
            return SpaceStat(total_bytes=disk.capacity_bytes, usable_bytes=usable, free_inodes=1_000_000)

        return self._queue("statvfs", "", effect)

    def take_offline(self, error: LogDirError) -> None:
        if self._offline is not None:
            return
        self._offline = error
        self._find_stuck()
        pending, self._pending = [*self._pending], {}
        for operation in pending:
            if not operation.future.done():
                self._fail(operation.future, error)
        if not self._stuck:
            # No thread hangs in the kernel. A hanging thread would keep its descriptors, and the lock with them.
            self.release_lock_now()

    def _find_stuck(self) -> None:
        """Remembers the calls that hang inside the kernel. Unlike the queued operations, they will still take effect."""
        stalled = [each for each in self._attached.stalled if each.log_dir is self] if self._attached else []
        self._stuck = [first for lane in Lane if (first := _first_of(lane, stalled)) is not None]

    def close(self) -> Awaitable[None]:
        if self._offline is not None or self._closed is not None or not self._attach_was_called:
            done = self._loop.create_future()
            done.set_result(None)
            return done
        closing = self._queue("close", "", self.release_lock_now)
        self._closed = LogDirError(self.path, "close", errno.EBADF, detail="closed")
        return closing

    def release_lock_now(self) -> None:
        if self._attached is not None and self._attached.lock_holder is self:
            self._attached.lock_holder = None

    def die(self) -> None:
        """Drops all queued operations of a dead node, except one that hangs in the kernel. The operation that was running is
        cut short."""
        if self._offline is None:
            self._find_stuck()
            self._cut_short()
        pending, self._pending = [*self._pending], {}
        for operation in pending:
            operation.future.cancel("the node is gone")
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        self.release_lock_now()

    def _cut_short(self) -> None:
        """Applies a part of the operations that the disk was working on, unless they hang. A kill can come between two
        system calls or in the middle of a write."""
        unfinished = [*self._unfinished()]
        for operation in [_first_of(lane, unfinished) for lane in Lane]:
            if operation is None or operation in self._stuck or operation.cut_short is None or self._held is None:
                continue
            is_blocked = any(other.comes_before(operation) for other in itertools.takewhile(_is_not(operation), unfinished))
            if operation.queued_ns < self._loop.now_ns and not is_blocked and not self.disk.is_broken(operation):
                self._owner.trace("disk", self.path, "cut short", operation.kind, operation.name)
                with contextlib.suppress(OSError, _Broken):
                    operation.cut_short()

    def _some_of(self, steps: Iterator[None]) -> None:
        for _ in itertools.islice(steps, self.disk.steps_before_the_end()):
            pass

    @property
    def disk(self) -> SimulatedDisk:
        if self._attached is None:
            fail(errno.ENOENT)
        return self._attached

    @property
    def store(self) -> DiskStore:
        """The file system that this LogDir has open, even if it is mounted elsewhere by now."""
        if self._held is None:
            fail(errno.ENOENT)
        return self._held

    def _create(self, name: str) -> FileNode:
        if self.disk.is_read_only and self.store.find(name) is None:
            fail(errno.EROFS)
        return self.store.create_file(name, self._owner.wall_ms())

    # --- files ---------------------------------------------------------------------------------------------------
    def open(self, name: str, *, create: bool = False) -> Awaitable[LogFile]:
        def effect() -> LogFile:
            node = self._create(name) if create else self.store.find(name)
            if node is None:
                fail(errno.ENOENT)
            if not isinstance(node, FileNode):
                fail(errno.EISDIR)
            return SimulatedLogFile(self, name, node)

        return self._queue("open", name, effect)

    def _queue_on_file(
        self,
        kind: str,
        file: LogFile,
        effect: Callable[[FileNode], Any],
        *,
        cut_short: Callable[[], None] | None = None,
        failed: Callable[[int], None] | None = None,
    ) -> asyncio.Future[Any]:
        assert isinstance(file, SimulatedLogFile)
        assert file.log_dir is self
        was_closed = file.is_closed

        def effect_on_file() -> Any:
            if was_closed:
                fail(errno.EBADF)
            return effect(file.node)

        return self._queue(kind, file.name, effect_on_file, cut_short=None if was_closed else cut_short, failed=failed)

    def close_file(self, file: LogFile) -> None:
        assert isinstance(file, SimulatedLogFile)
        file.is_closed = True

    def append(self, file: LogFile, position: int, buffers: Sequence[Buffer]) -> Awaitable[None]:
        promised = b"".join(buffers)

        assert isinstance(file, SimulatedLogFile)
        node = file.node

        def effect(_: FileNode) -> None:
            if b"".join(buffers) != promised:
                raise AssertionError(f"the buffers of an append to {file.name} changed before it was done")
            if file.broken is not None and position > file.broken_at:
                fail(file.broken)
            file.broken = None
            room = self.disk.room_bytes()
            if room is not None and position + len(promised) - len(node.content) > room:
                self._write_what_fits(node, position, promised, room)
                fail(errno.ENOSPC)
            node.write(position, promised)
            node.modified_ms = self._owner.wall_ms()

        def cut_short() -> None:
            node.write(position, promised[: self.disk.bytes_before_the_end(len(promised))])

        def failed(errno_code: int) -> None:
            if file.broken is None:
                file.broken, file.broken_at = errno_code, position

        return self._queue_on_file("append", file, effect, cut_short=cut_short, failed=failed)

    def start_append(self, file: LogFile, position: int, buffers: Sequence[Buffer], write: PendingWrite) -> None:
        def done(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                write.cancel()
            elif (error := future.exception()) is None:
                write.set_result(None)
            else:
                assert isinstance(error, Exception)
                write.set_exception(error)

        future = self.append(file, position, buffers)
        assert isinstance(future, asyncio.Future)
        future.add_done_callback(done)

    @staticmethod
    def _write_what_fits(node: FileNode, position: int, data: bytes, room: int) -> None:
        """Writes what fits and truncates it again. A nearly full disk accepts the beginning of a write and fails the rest;
        the LogDir then truncates the file. A power cut may still leave those bytes on the platter."""
        fitting = len(node.content) + room - position
        if fitting > 0:
            node.write(position, data[:fitting])
            node.truncate(position)

    def read(self, file: LogFile, position: int, size: int) -> Awaitable[bytes]:
        def effect(node: FileNode) -> bytes:
            self.disk.require_readable(node, position)
            return bytes(node.content[position : position + size])

        return self._queue_on_file("read", file, effect)

    def examine(self, file: LogFile, position: int, size: int, examination: Callable[[bytes], T]) -> Awaitable[T]:
        def effect(node: FileNode) -> T:
            self.disk.require_readable(node, position)
            return examination(bytes(node.content[position : position + size]))

        return self._queue_on_file("read", file, effect)

    def read_around_cache(self, name: str) -> Awaitable[None]:
        def effect() -> None:
            self.disk.require_readable_platter()

        return self._queue("read", name, effect)

    def read_cached(self, file: LogFile, position: int, size: int) -> bytes | None:
        assert isinstance(file, SimulatedLogFile)
        is_open = not (file.is_closed or self._owner.is_dead) and self._offline is None and self._closed is None
        return self._attached.read_cached(file.node, position, size) if is_open and self._attached is not None else None

    def region(self, file: LogFile, position: int, size: int) -> FileRegion:
        assert isinstance(file, SimulatedLogFile)
        if position + size > len(file.node.content):
            raise AssertionError(f"a region of {file.name} ends at {position + size}, written is {len(file.node.content)}")
        return SimulatedRegion(file, position, size)

    def load_region(self, region: SimulatedRegion) -> asyncio.Future[bytes]:
        """Reads a region for the simulated network (not part of LogDir). The result is shorter if the file was
        truncated."""

        def effect() -> bytes:
            self.disk.require_readable(region.file.node, region.position)
            return region.content()

        read = self._queue("region", region.file.name, effect)
        # Another future than that of the operation, which goes on if the connection gives up.
        loaded: asyncio.Future[bytes] = self._loop.create_future()
        self._region_reads[loaded] = None
        read.add_done_callback(lambda _: self._region_was_read(read, loaded), context=self._owner.context.copy())
        return loaded

    def _region_was_read(self, read: asyncio.Future[bytes], loaded: asyncio.Future[bytes]) -> None:
        self._region_reads.pop(loaded, None)
        if loaded.done():
            return
        if read.cancelled():
            loaded.cancel()
        elif (error := read.exception()) is not None:
            assert isinstance(error, LogDirError)
            self._fail(loaded, error)
        else:
            loaded.set_result(read.result())

    def give_up_regions(self) -> None:
        given_up, self._region_reads = self._region_reads, {}
        for loaded in given_up:
            self._fail(loaded, LogDirError(self.path, "region", errno.ETIMEDOUT, detail="the directory is suspected"))

    def truncate(self, file: LogFile, size: int) -> Awaitable[None]:
        def effect(node: FileNode) -> None:
            assert isinstance(file, SimulatedLogFile)
            node.truncate(size)
            node.modified_ms = self._owner.wall_ms()
            file.broken = None

        return self._queue_on_file("truncate", file, effect)

    def fsync(self, file: LogFile, *, is_awaited: bool = False) -> Awaitable[None]:
        return self._queue_sync("fsync", file, forget=False, is_awaited=is_awaited)

    def sync_and_forget(self, file: LogFile) -> Awaitable[None]:
        return self._queue_sync("sync_and_forget", file, forget=True)

    def write_back(self, file: LogFile, *, forget: bool = False) -> Awaitable[None]:
        return self._queue_sync("write_back", file, forget=forget)

    def _queue_sync(self, kind: str, file: LogFile, *, forget: bool, is_awaited: bool = False) -> asyncio.Future[None]:
        assert isinstance(file, SimulatedLogFile)
        assert file.log_dir is self
        was_closed = file.is_closed
        node = file.node

        def begin() -> Callable[[], None]:
            if was_closed:
                fail(errno.EBADF)
            changes = node.changes

            def effect() -> None:
                self._sync(node, changes)
                if forget:
                    node.drop_clean_pages()

            return effect

        return self._queue(kind, file.name, _not_begun, begin=begin, is_awaited=is_awaited)

    def _sync(self, node: FileNode, changes: int) -> None:
        """Makes the first `changes` of all changes of the file durable."""
        errno_code = self.disk.take_failing_writeback()
        if errno_code is not None:
            node.fail_writeback()
            raise _fsync_failure(errno_code)
        node.sync(changes)

    # --- names ---------------------------------------------------------------------------------------------------
    def mkdir(self, name: str) -> Awaitable[None]:
        def effect() -> None:
            self._require_room(1)
            self.store.mkdir(name, self._owner.wall_ms())

        return self._queue("mkdir", name, effect)

    def create_folders(self, folders: Sequence[NewFolder]) -> Awaitable[list[str]]:
        def steps() -> Iterator[None]:
            for folder in folders:
                self._require_room(1)
                self.store.mkdir(folder.name, self._owner.wall_ms())
                yield
                for name, content in folder.files.items():
                    yield from self._write_file(f"{folder.name}/{name}", content)

        def effect() -> list[str]:
            existing = [folder.name for folder in folders if self.store.find(folder.name) is not None]
            if not existing:
                for _ in steps():
                    pass
            return existing

        first = folders[0].name if folders else ""
        return self._queue("create_folders", first, effect, cut_short=lambda: self._some_of(steps()))

    def fsync_folders(self, names: Sequence[str]) -> Awaitable[None]:
        def begin() -> Callable[[], None]:
            syncs: list[Callable[[], None]] = []
            for name in names:
                folder = self.store.folder(name)
                for node in folder.entries.values():
                    assert isinstance(node, FileNode)
                    syncs.append(partial(self._sync, node, node.changes))
                syncs.append(self.store.begin_sync_of_folder(folder))
            syncs.append(self.store.begin_sync_of_folder(self.store.folder("")))

            def effect() -> None:
                for sync in syncs:
                    sync()

            return effect

        return self._queue("fsync_folders", names[0] if names else "", _not_begun, begin=begin)

    def rename(self, old: str, new: str) -> Awaitable[None]:
        return self._queue("rename", old, lambda: self.store.rename(old, new))

    def fsync_dir(self, name: str = "") -> Awaitable[None]:
        def begin() -> Callable[[], None]:
            return self.store.begin_sync_of_folder(self.store.folder(name))

        return self._queue("fsync_dir", name, _not_begun, begin=begin)

    def list(self, name: str = "") -> Awaitable[list[DirectoryEntry]]:
        def effect() -> list[DirectoryEntry]:
            entries = sorted(self.store.folder(name).entries.items(), key=lambda entry: entry[0])
            return [DirectoryEntry(name=entry, is_directory=isinstance(node, FolderNode)) for entry, node in entries]

        return self._queue("list", name, effect)

    def remove(self, name: str) -> Awaitable[None]:
        def effect() -> None:
            for _ in self.store.remove(name):
                pass

        def cut_short() -> None:
            self._some_of(self.store.remove(name))

        return self._queue("remove", name, effect, cut_short=cut_short)

    def stat(self, name: str) -> Awaitable[FileStat | None]:
        def effect() -> FileStat | None:
            node = self.store.find(name)
            if node is None:
                return None
            size = len(node.content) if isinstance(node, FileNode) else 4096
            return FileStat(size=size, modified_ms=node.modified_ms, is_directory=isinstance(node, FolderNode))

        return self._queue("stat", name, effect)

    def read_file(self, name: str, *, last: int | None = None) -> Awaitable[bytes | None]:
        def effect() -> bytes | None:
            node = self.store.find(name)
            if node is None:
                return None
            if isinstance(node, FolderNode):
                fail(errno.EISDIR)
            position = 0 if last is None else max(len(node.content) - last, 0)
            self.disk.require_readable(node, position)
            return bytes(node.content[position:])

        return self._queue("read_file", name, effect)

    def replace_file(self, name: str, content: bytes | Callable[[], bytes]) -> Awaitable[None]:
        def steps() -> Iterator[None]:
            folder, _ = self.store.parent(name)
            yield from self._write_new_file(name + ".tmp", content if isinstance(content, bytes) else content())
            self.store.rename(name + ".tmp", name)
            yield
            self.store.begin_sync_of_folder(folder)()

        def effect() -> None:
            for _ in steps():
                pass

        return self._queue("replace_file", name, effect, cut_short=lambda: self._some_of(steps()))

    def _write_new_file(self, name: str, content: bytes) -> Iterator[None]:
        """Opens with O_CREAT and O_TRUNC, writes and fsyncs. Yields wherever the process can be killed."""
        yield from self._write_file(name, content)
        node = self.store.find(name)
        assert isinstance(node, FileNode)
        self._sync(node, node.changes)
        yield

    def _write_file(self, name: str, content: bytes) -> Iterator[None]:
        node = self._create(name)
        node.truncate(0)
        node.modified_ms = self._owner.wall_ms()
        yield
        room = self.disk.room_bytes()
        if room is not None and len(content) > room:
            fail(errno.ENOSPC)
        for start, end in ((0, len(content) // 2), (len(content) // 2, len(content))):
            node.write(start, content[start:end])
            yield


def _first_of(lane: Lane, operations: Sequence[Operation]) -> Operation | None:
    return next((operation for operation in operations if operation.lane is lane), None)


def _is_not(operation: Operation) -> Callable[[Operation], bool]:
    return lambda other: other is not operation


def _not_begun() -> None:
    raise AssertionError("an operation takes effect before it has started")
