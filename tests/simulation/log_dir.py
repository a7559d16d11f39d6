"""The LogDir over a simulated disk, for one life of one node.

Shell of the tests. An operation is queued when it is called, takes a short time drawn from the seed, and takes effect at the
end of that time. Operations on one name take effect in order. Operations on folders and names (mkdir, rename, list, ...) are
barriers: they keep their order with all other operations. When a node dies, operations that are still queued are lost, and
operations that took effect stay, because the kernel has them. The operation that the disk was working on may be half done.
"""

import asyncio
import contextlib
import errno
import itertools
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol

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
from common.parts import FileRegion
from tests.simulation.disk import SimulatedDisk
from tests.simulation.disk_store import DiskStore, FileNode, FolderNode, fail
from tests.simulation.loop import SimulatedLoop

OPERATIONS_THAT_ARE_AN_FSYNC = frozenset({"fsync", "fsync_dir", "fsync_folders", "sync_and_forget", "write_back"})
OPERATIONS_WITH_AN_FSYNC_INSIDE = frozenset({"sync_and_forget", "replace_file", "probe"})

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


@dataclass(slots=True, eq=False)
class Operation:
    """One call of a LogDir, from the call to its end."""

    log_dir: "SimulatedLogDir"
    kind: str
    name: str
    is_barrier: bool
    effect: Callable[[], Any]
    future: asyncio.Future[Any]
    queued_ns: int
    deadline_ns: int
    # Applies a part of the operation if its process is killed in the middle of it. None if a partial operation leaves no
    # trace.
    cut_short: Callable[[], None] | None = None
    # Called with the errno when the operation fails, to mark its file.
    failed: Callable[[int], None] | None = None
    # Whether it waits for all operations before it, but everything except other removals and `close` may overtake it.
    is_removal: bool = False

    def comes_before(self, later: "Operation") -> bool:
        """True when the two must take effect in the order in which they were queued."""
        if self.log_dir is not later.log_dir:
            return False
        if self.is_removal:
            return later.is_removal or later.kind == "close"
        return self.is_barrier or later.is_barrier or later.is_removal or self.name == later.name


class SimulatedLogDir(LogDir):
    """LogDir over one SimulatedDisk, for one life of one node."""

    def __init__(
        self, owner: Owner, path: str, disk_at: Callable[[str, bool], SimulatedDisk | None], operation_timeout_ns: int
    ) -> None:
        self.path = path
        self.on_error: Callable[[LogDirError], None] | None = None
        self._owner = owner
        self._disk_at = disk_at
        self._operation_timeout_ns = operation_timeout_ns
        self._attached: SimulatedDisk | None = None
        # The store that was at the path on attach. Open descriptors stay on it when another disk is mounted there or the
        # disk is replaced.
        self._held: DiskStore | None = None
        self._attach_was_called = False
        self._closed: LogDirError | None = None
        self._stuck: Operation | None = None
        self._offline: LogDirError | None = None
        self._pending: deque[Operation] = deque()
        self._deadline_timer: asyncio.TimerHandle | None = None
        # When an operation was finished last.
        self._progress_ns = 0
        self._lane_ends: dict[str, int] = {}
        self._barrier_end = 0
        self._removals_end = 0
        self._loop = owner.loop
        # Draws the latencies of a directory that does not exist, because there is no disk to draw them.
        self._absent_rng = random.Random(path)

    @property
    def oldest_operation_age_ns(self) -> int:
        self._forget_finished()
        return self._loop.now_ns - self._pending[0].queued_ns if self._pending else 0

    @property
    def silence_ns(self) -> int:
        self._forget_finished()
        waiting = next((each.queued_ns for each in self._pending if not each.is_removal and not each.future.done()), None)
        return 0 if waiting is None else self._loop.now_ns - max(waiting, self._progress_ns)

    # --- the queue -----------------------------------------------------------------------------------------------
    def _queue(
        self,
        kind: str,
        name: str,
        effect: Callable[[], Any],
        *,
        is_barrier: bool = False,
        cut_short: Callable[[], None] | None = None,
        failed: Callable[[int], None] | None = None,
        is_removal: bool = False,
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
        now_ns = self._loop.now_ns
        deadline_ns = now_ns + self._operation_timeout_ns
        operation = Operation(
            self, kind, name, is_barrier, effect, future, now_ns, deadline_ns, cut_short, failed, is_removal
        )
        self._pending.append(operation)
        self._arm_deadline()
        finish_ns = self._schedule_after_its_predecessors(operation)
        self._loop.call_at_ns(finish_ns, lambda: self._reach(operation))
        return future

    def _schedule_after_its_predecessors(self, operation: Operation) -> int:
        disk = self._attached
        latency_ns = disk.latency_ns(operation.kind) if disk else self._absent_rng.randint(10_000, 100_000)
        earliest_ns = self._loop.now_ns + latency_ns
        if operation.is_removal or operation.is_barrier:
            before_ns = max(self._lane_ends.values(), default=0)
            if operation.is_removal or operation.kind == "close":
                before_ns = max(before_ns, self._removals_end)
            finish_ns = max(earliest_ns, before_ns + 1, self._barrier_end + 1)
            if operation.is_removal:
                self._removals_end = finish_ns
                return finish_ns
            self._lane_ends.clear()
            self._barrier_end = finish_ns
            return finish_ns
        before_ns = self._lane_ends.get(operation.name, 0)
        finish_ns = max(earliest_ns, before_ns + 1, self._barrier_end + 1)
        self._lane_ends[operation.name] = finish_ns
        return finish_ns

    def _reach(self, operation: Operation) -> None:
        disk = self._attached
        if disk is not None and disk.stalls(operation):
            disk.stalled.append(operation)
            return
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
        if operation is self._stuck:
            self._stuck = None
            self._finish(operation)
            # The thread that hung returns from the kernel, finds its directory offline, and releases its descriptors and the
            # lock.
            self.release_lock_now()
        elif self._offline is None and not self._owner.is_dead:
            self._finish(operation)

    def _finish(self, operation: Operation) -> None:
        self._progress_ns = self._loop.now_ns
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

    def _forget_finished(self) -> None:
        while self._pending and self._pending[0].future.done():
            self._pending.popleft()

    def _arm_deadline(self) -> None:
        if self._deadline_timer is None:
            deadline_ns = self._pending[0].deadline_ns
            self._deadline_timer = self._loop.call_at_ns(deadline_ns, self._expire)

    def _expire(self) -> None:
        self._deadline_timer = None
        self._forget_finished()
        while self._pending and self._pending[0].deadline_ns <= self._loop.now_ns:
            operation = self._pending.popleft()
            self._report(operation, errno.ETIMEDOUT, "the operation's deadline passed")
            self._forget_finished()
        if self._pending:
            self._arm_deadline()

    # --- the directory itself ------------------------------------------------------------------------------------
    def attach(self, *, create: bool = False) -> Awaitable[None]:
        self._attach_was_called = True

        def effect() -> None:
            self._attached = self._disk_at(self.path, create)
            if self._attached is None:
                fail(errno.ENOENT)
            self._held = self._attached.store

        # Look the disk up before `effect` runs: if the disk is hung or dead, attach must hang or fail like any other
        # operation.
        self._attached = self._disk_at(self.path, False)
        return self._queue("attach", "", effect, is_barrier=True)

    def lock(self) -> Awaitable[None]:
        def effect() -> None:
            disk = self.disk
            if disk.lock_holder is not None and disk.lock_holder is not self:
                raise LogDirLocked(f"{self.path} is in use by another process")
            if disk.is_read_only and self.store.find(".lock") is None:
                fail(errno.EROFS)
            disk.lock_holder = self
            self.store.create_file(".lock", self._owner.wall_ms())

        return self._queue("lock", ".lock", effect, is_barrier=True)

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
        while self._pending:
            future = self._pending.popleft().future
            if not future.done():
                self._fail(future, error)
        if self._stuck is None:
            # No thread hangs in the kernel. A hanging thread would keep its descriptors, and the lock with them.
            self.release_lock_now()

    def _find_stuck(self) -> None:
        """Remembers the call that hangs inside the kernel. Unlike the queued operations, it will still take effect."""
        stalled = self._attached.stalled if self._attached else []
        self._stuck = next((operation for operation in stalled if operation.log_dir is self), None)

    def close(self) -> Awaitable[None]:
        if self._offline is not None or self._closed is not None or not self._attach_was_called:
            done = self._loop.create_future()
            done.set_result(None)
            return done
        closing = self._queue("close", "", self.release_lock_now, is_barrier=True)
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
        while self._pending:
            self._pending.popleft().future.cancel("the node is gone")
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        self.release_lock_now()

    def _cut_short(self) -> None:
        """Applies a part of the operation that the disk was working on, unless that operation hangs. A kill can come between
        two system calls or in the middle of a write."""
        self._forget_finished()
        operation = self._pending[0] if self._pending else None
        if operation is None or operation is self._stuck or operation.cut_short is None or self._held is None:
            return
        if operation.queued_ns < self._loop.now_ns and not self.disk.is_broken(operation):
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

    def append(self, file: LogFile, position: int, buffers: Sequence[bytes | bytearray | memoryview]) -> Awaitable[None]:
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

        return self._queue_on_file("append", file, effect, cut_short, failed)

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

        return self._queue("region", region.file.name, effect)

    def truncate(self, file: LogFile, size: int) -> Awaitable[None]:
        def effect(node: FileNode) -> None:
            assert isinstance(file, SimulatedLogFile)
            node.truncate(size)
            node.modified_ms = self._owner.wall_ms()
            file.broken = None

        return self._queue_on_file("truncate", file, effect)

    def fsync(self, file: LogFile) -> Awaitable[None]:
        return self._queue_on_file("fsync", file, self._sync)

    def sync_and_forget(self, file: LogFile) -> Awaitable[None]:
        return self._queue_on_file("sync_and_forget", file, self._sync_and_forget)

    def write_back(self, file: LogFile, *, forget: bool = False) -> Awaitable[None]:
        return self._queue_on_file("write_back", file, self._sync_and_forget if forget else self._sync)

    def _sync(self, node: FileNode) -> None:
        errno_code = self.disk.take_failing_writeback()
        if errno_code is not None:
            node.fail_writeback()
            raise _fsync_failure(errno_code)
        node.sync()

    def _sync_and_forget(self, node: FileNode) -> None:
        self._sync(node)
        node.drop_clean_pages()

    # --- names ---------------------------------------------------------------------------------------------------
    def mkdir(self, name: str) -> Awaitable[None]:
        def effect() -> None:
            self._require_room(1)
            self.store.mkdir(name, self._owner.wall_ms())

        return self._queue("mkdir", name, effect, is_barrier=True)

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
        return self._queue("create_folders", first, effect, is_barrier=True, cut_short=lambda: self._some_of(steps()))

    def fsync_folders(self, names: Sequence[str]) -> Awaitable[None]:
        def steps() -> Iterator[None]:
            for name in names:
                folder = self.store.folder(name)
                for node in folder.entries.values():
                    assert isinstance(node, FileNode)
                    self._sync(node)
                    yield
                self.store.sync_folder(folder)
                yield
            self.store.sync_folder(self.store.folder(""))

        def effect() -> None:
            for _ in steps():
                pass

        first = names[0] if names else ""
        return self._queue("fsync_folders", first, effect, is_barrier=True, cut_short=lambda: self._some_of(steps()))

    def rename(self, old: str, new: str) -> Awaitable[None]:
        return self._queue("rename", old, lambda: self.store.rename(old, new), is_barrier=True)

    def fsync_dir(self, name: str = "") -> Awaitable[None]:
        return self._queue("fsync_dir", name, lambda: self.store.sync_folder(self.store.folder(name)), is_barrier=True)

    def list(self, name: str = "") -> Awaitable[list[DirectoryEntry]]:
        def effect() -> list[DirectoryEntry]:
            entries = sorted(self.store.folder(name).entries.items(), key=lambda entry: entry[0])
            return [DirectoryEntry(name=entry, is_directory=isinstance(node, FolderNode)) for entry, node in entries]

        return self._queue("list", name, effect, is_barrier=True)

    def remove(self, name: str) -> Awaitable[None]:
        def effect() -> None:
            for _ in self.store.remove(name):
                pass

        def cut_short() -> None:
            self._some_of(self.store.remove(name))

        return self._queue("remove", name, effect, is_removal=True, cut_short=cut_short)

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

    def replace_file(self, name: str, content: bytes) -> Awaitable[None]:
        def steps() -> Iterator[None]:
            folder, _ = self.store.parent(name)
            yield from self._write_new_file(name + ".tmp", content)
            self.store.rename(name + ".tmp", name)
            yield
            self.store.sync_folder(folder)

        def effect() -> None:
            for _ in steps():
                pass

        return self._queue("replace_file", name, effect, cut_short=lambda: self._some_of(steps()))

    def _write_new_file(self, name: str, content: bytes) -> Iterator[None]:
        """Opens with O_CREAT and O_TRUNC, writes and fsyncs. Yields wherever the process can be killed."""
        yield from self._write_file(name, content)
        node = self.store.find(name)
        assert isinstance(node, FileNode)
        self._sync(node)
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
