"""In-memory disks and the LogDir over them. A disk belongs to the world and outlives the nodes that use it.

Shell of the tests. An operation is queued when it is called, takes a small seeded time and takes effect at its end:
operations on one name in order, operations on names and folders (mkdir, rename, list, ...) in order with everything.
`fail_with`, `hang` and `thaw` on the disk are the seam for faults. The easy thing to get wrong: what an operation that is
still queued wanted is lost when its node dies, what took effect stays (the kernel has it).
"""

import asyncio
import errno
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from common.environment.disk_errors import FSYNC_STEP
from common.environment.interface import (
    DirectoryEntry,
    FileStat,
    LogDir,
    LogDirError,
    LogDirLocked,
    LogFile,
    SpaceStat,
)
from common.parts import FileRegion
from tests.simulation.loop import SimulatedLoop

MICROSECOND = 1_000

# Measured on ext4 by the page of faults: a dead disk still answers these from the cache.
ANSWERED_BY_A_DEAD_DISK = frozenset({"attach", "list", "stat", "statvfs", "close"})

SLOW_OPERATIONS = frozenset({"fsync", "fsync_dir", "replace_file", "probe"})

OPERATIONS_WITH_AN_FSYNC_INSIDE = frozenset({"replace_file", "probe"})

DEFAULT_CAPACITY = 1 << 40


@dataclass(slots=True, eq=False)
class FileNode:
    content: bytearray
    modified_ms: int


@dataclass(slots=True, eq=False)
class FolderNode:
    modified_ms: int
    entries: "dict[str, FileNode | FolderNode]" = field(default_factory=dict)


Node = FileNode | FolderNode


class Owner(Protocol):
    """What a LogDir needs of the node that opened it."""

    @property
    def is_dead(self) -> bool: ...

    @property
    def loop(self) -> SimulatedLoop: ...

    def wall_ms(self) -> int: ...

    def trace(self, *facts: object) -> None: ...


class _Broken(Exception):
    """The disk's own answer to an operation."""

    def __init__(self, errno_code: int, detail: str = "") -> None:
        super().__init__(errno_code, detail)
        self.errno_code = errno_code
        self.detail = detail


def _fails(errno_code: int) -> NoReturn:
    raise OSError(errno_code, errno.errorcode.get(errno_code, "error"))


class SimulatedDisk:
    """One disk, mounted at the path of one log directory. Tests look into it and break it through this class."""

    def __init__(self, path: str, loop: SimulatedLoop, seed: object) -> None:
        self.path = path
        self.loop = loop
        self.capacity_bytes = DEFAULT_CAPACITY
        self.root = FolderNode(0)
        self.lock_holder: SimulatedLogDir | None = None
        self._rng = random.Random(f"{seed}/disk/{path}")
        self._sticky: list[tuple[int, frozenset[str] | None]] = []
        self._next_failures: dict[str, deque[int]] = {}
        self._hung: frozenset[str] | None = None
        self.is_hung = False
        self.stalled: list[_Operation] = []

    # --- faults --------------------------------------------------------------------------------------------------
    def fail_with(self, errno_code: int, operations: Collection[str] | None = None) -> None:
        """From now on `operations` (default: all that a dead ext4 refuses) end with `errno_code`, until `heal`."""
        self._sticky.append((errno_code, None if operations is None else frozenset(operations)))

    def fail_next(self, operation: str, errno_code: int, *, times: int = 1) -> None:
        """The next `times` operations of this name end with `errno_code`, as a fault that passes."""
        self._next_failures.setdefault(operation, deque()).extend([errno_code] * times)

    def heal(self) -> None:
        """Ends `fail_with` and `fail_next`; what they broke stays broken."""
        self._sticky.clear()
        self._next_failures.clear()

    def hang(self, operations: Collection[str] | None = None) -> None:
        """From now on `operations` (default: all) do not end, until `thaw`."""
        self.is_hung = True
        self._hung = None if operations is None else frozenset(operations)

    def thaw(self) -> None:
        """What hung goes on, in order, the operations included that nobody waits for any more."""
        self.is_hung = False
        stalled, self.stalled = self.stalled, []
        for operation in stalled:
            operation.log_dir.carry_out(operation)

    def failure_of(self, operation: str) -> int | None:
        """The errno that an operation of this name ends with now; uses up one `fail_next`."""
        pending = self._next_failures.get(operation)
        if pending:
            return pending.popleft()
        return self.sticky_failure_of(operation)

    def sticky_failure_of(self, operation: str) -> int | None:
        for errno_code, operations in self._sticky:
            if operation in operations if operations is not None else operation not in ANSWERED_BY_A_DEAD_DISK:
                return errno_code
        return None

    def stalls(self, operation: "_Operation") -> bool:
        if not self.is_hung:
            return False
        if self._hung is None or operation.kind in self._hung:
            return True
        return any(earlier.comes_before(operation) for earlier in self.stalled)

    def joins_appends(self) -> bool:
        """Whether the appends that are queued now happened to be joined: both must be survived."""
        return self._rng.random() < 0.5

    def latency_ns(self, kind: str) -> int:
        if kind in SLOW_OPERATIONS:
            return self._rng.randint(200 * MICROSECOND, 2_000 * MICROSECOND)
        return self._rng.randint(10 * MICROSECOND, 150 * MICROSECOND)

    # --- content, for tests --------------------------------------------------------------------------------------
    def files(self) -> dict[str, bytes]:
        """Every file with its content, by its name relative to the directory, sorted."""
        return {name: bytes(node.content) for name, node in self._walk("", self.root) if isinstance(node, FileNode)}

    def folders(self) -> list[str]:
        return [name for name, node in self._walk("", self.root) if isinstance(node, FolderNode)]

    def write(self, name: str, content: bytes) -> None:
        """Puts a file there at once, with the folders above it."""
        *folders, last = name.split("/")
        folder = self.root
        for part in folders:
            entry = folder.entries.setdefault(part, FolderNode(0))
            if not isinstance(entry, FolderNode):
                _fails(errno.ENOTDIR)
            folder = entry
        folder.entries[last] = FileNode(bytearray(content), 0)

    def delete(self, name: str) -> None:
        """Takes a file or folder away at once."""
        folder, last = self.parent(name)
        del folder.entries[last]

    def wipe(self) -> None:
        """An empty disk in the same place, as after a replacement."""
        self.root = FolderNode(0)
        self.heal()

    def used_bytes(self) -> int:
        return sum(len(node.content) for _, node in self._walk("", self.root) if isinstance(node, FileNode))

    def _walk(self, prefix: str, folder: FolderNode) -> Iterator[tuple[str, Node]]:
        for name, node in sorted(folder.entries.items()):
            yield prefix + name, node
            if isinstance(node, FolderNode):
                yield from self._walk(f"{prefix}{name}/", node)

    # --- names ---------------------------------------------------------------------------------------------------
    def find(self, name: str) -> Node | None:
        node: Node = self.root
        for part in name.split("/") if name else ():
            if not isinstance(node, FolderNode):
                return None
            found = node.entries.get(part)
            if found is None:
                return None
            node = found
        return node

    def parent(self, name: str) -> tuple[FolderNode, str]:
        """The folder that holds `name`, and the last part of it. Raises OSError."""
        above, _, last = name.rpartition("/")
        folder = self.find(above)
        if folder is None:
            _fails(errno.ENOENT)
        if not isinstance(folder, FolderNode):
            _fails(errno.ENOTDIR)
        return folder, last

    def folder(self, name: str) -> FolderNode:
        folder = self.find(name)
        if folder is None:
            _fails(errno.ENOENT)
        if not isinstance(folder, FolderNode):
            _fails(errno.ENOTDIR)
        return folder


class SimulatedLogFile(LogFile):
    """A handle. It keeps its file when the name is renamed or removed, as a descriptor does."""

    def __init__(self, log_dir: "SimulatedLogDir", name: str, node: FileNode) -> None:
        self.log_dir = log_dir
        self.name = name
        self.node = node
        self.is_closed = False


class SimulatedRegion(FileRegion):
    """A range of a simulated file. Its bytes are read when they leave, as sendfile does."""

    def __init__(self, file: SimulatedLogFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def content(self) -> bytes:
        """The bytes as they are now; for tests, and for the disk itself."""
        return bytes(self.file.node.content[self.position : self.position + self.size])

    def load(self) -> asyncio.Future[bytes]:
        """Reads the bytes as an operation of the directory, with all that can go wrong there."""
        return self.file.log_dir.load_region(self)


@dataclass(slots=True, eq=False)
class _Operation:
    log_dir: "SimulatedLogDir"
    kind: str
    name: str
    is_barrier: bool
    effect: Callable[[], Any]
    future: asyncio.Future[Any]
    queued_ns: int
    deadline_ns: int
    # The append was joined into one write with an earlier one, which failed with this errno.
    failed_with: int | None = None

    def comes_before(self, later: "_Operation") -> bool:
        """True when the two must take effect in the order in which they were queued."""
        if self.log_dir is not later.log_dir:
            return False
        return self.is_barrier or later.is_barrier or self.name == later.name


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
        self._attach_was_called = False
        self._closed: LogDirError | None = None
        self._stuck: _Operation | None = None
        self._offline: LogDirError | None = None
        self._pending: deque[_Operation] = deque()
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._lane_ends: dict[str, int] = {}
        self._barrier_end = 0
        self._loop = owner.loop
        # The latencies of a directory that is not there come from nowhere else.
        self._absent_rng = random.Random(path)

    @property
    def oldest_operation_age_ns(self) -> int:
        self._forget_finished()
        return self._loop.now_ns - self._pending[0].queued_ns if self._pending else 0

    # --- the queue -----------------------------------------------------------------------------------------------
    def _queue(self, kind: str, name: str, effect: Callable[[], Any], *, is_barrier: bool = False) -> asyncio.Future[Any]:
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
        operation = _Operation(self, kind, name, is_barrier, effect, future, now_ns, now_ns + self._operation_timeout_ns)
        self._pending.append(operation)
        self._arm_deadline()
        finish_ns = self._schedule_after_its_predecessors(operation)
        self._loop.call_at_ns(finish_ns, lambda: self._reach(operation))
        return future

    def _schedule_after_its_predecessors(self, operation: _Operation) -> int:
        disk = self._attached
        latency_ns = disk.latency_ns(operation.kind) if disk else self._absent_rng.randint(10_000, 100_000)
        earliest_ns = self._loop.now_ns + latency_ns
        if operation.is_barrier:
            before_ns = max(self._lane_ends.values(), default=0)
            finish_ns = max(earliest_ns, before_ns + 1, self._barrier_end + 1)
            self._lane_ends.clear()
            self._barrier_end = finish_ns
            return finish_ns
        before_ns = self._lane_ends.get(operation.name, 0)
        finish_ns = max(earliest_ns, before_ns + 1, self._barrier_end + 1)
        self._lane_ends[operation.name] = finish_ns
        return finish_ns

    def _reach(self, operation: _Operation) -> None:
        disk = self._attached
        if disk is not None and disk.stalls(operation):
            disk.stalled.append(operation)
            return
        self.carry_out(operation)

    def carry_out(self, operation: _Operation) -> None:
        """The end of an operation: its effect, unless the directory was given up, and the news to whoever still waits."""
        if operation is self._stuck:
            # The thread comes back from the kernel, finds that it is not wanted any more, and lets go of everything.
            self._stuck = None
            self.release_lock_now()
        elif self._offline is not None or self._owner.is_dead:
            return
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

    def _fail_if_broken(self, operation: _Operation) -> None:
        disk = self._attached
        if disk is None:
            return
        errno_code = operation.failed_with or disk.failure_of(operation.kind)
        if errno_code is not None:
            if operation.kind == "append" and disk.joins_appends():
                self._fail_joined(operation, errno_code)
            raise _Broken(errno_code)
        if operation.kind in OPERATIONS_WITH_AN_FSYNC_INSIDE:
            errno_code = disk.sticky_failure_of("fsync")
            if errno_code is not None:
                raise _Broken(errno_code, FSYNC_STEP)

    def _fail_joined(self, failed: _Operation, errno_code: int) -> None:
        """Appends of one file that wait behind each other may be one write, which fails as a whole."""
        behind = [operation for operation in self._pending if operation.name == failed.name]
        for operation in behind[behind.index(failed) + 1 :] if failed in behind else ():
            if operation.kind != "append":
                break
            operation.failed_with = errno_code

    def _report(self, operation: _Operation, errno_code: int, detail: str = "") -> None:
        self._owner.trace("disk", self.path, operation.kind, operation.name, errno_code)
        if operation.future.done() or self._owner.is_dead:
            return
        error = LogDirError(self.path, operation.kind, errno_code, operation.name, detail)
        self._tell_owner(error)
        # The owner may have taken the directory offline just now, which has told the waiting task already.
        if not operation.future.done():
            self._fail(operation.future, error)

    def _tell_owner(self, error: LogDirError) -> None:
        if self.on_error is not None:
            self.on_error(error)

    @staticmethod
    def _fail(future: asyncio.Future[Any], error: LogDirError) -> None:
        future.set_exception(error)
        # Nobody has to wait for an operation: on_error has told the owner. Asking marks the error as seen.
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
                _fails(errno.ENOENT)

        # A disk that is there may be hung or failed already, which attach must meet as any other operation.
        self._attached = self._disk_at(self.path, False)
        return self._queue("attach", "", effect, is_barrier=True)

    def lock(self) -> Awaitable[None]:
        def effect() -> None:
            disk = self.disk
            if disk.lock_holder is not None and disk.lock_holder is not self:
                raise LogDirLocked(f"{self.path} is in use by another process")
            disk.lock_holder = self
            disk.root.entries.setdefault(".lock", FileNode(bytearray(), self._owner.wall_ms()))

        return self._queue("lock", ".lock", effect, is_barrier=True)

    def probe(self) -> Awaitable[None]:
        return self._queue("probe", ".probe", self._require_space)

    def _require_space(self, size: int = 1) -> None:
        disk = self.disk
        if disk.capacity_bytes != DEFAULT_CAPACITY and disk.used_bytes() + size > disk.capacity_bytes:
            _fails(errno.ENOSPC)

    def statvfs(self) -> Awaitable[SpaceStat]:
        def effect() -> SpaceStat:
            disk = self.disk
            usable = max(0, disk.capacity_bytes - disk.used_bytes())
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
            # A thread that hangs in the kernel keeps its descriptors, the lock's included.
            self.release_lock_now()

    def _find_stuck(self) -> None:
        """What is queued has no effect any more, but a call that hangs inside the kernel will."""
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
        """The node is gone: nothing queued has an effect, except what hangs inside the kernel."""
        if self._offline is None:
            self._find_stuck()
        while self._pending:
            self._pending.popleft().future.cancel("the node is gone")
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        self.release_lock_now()

    @property
    def disk(self) -> SimulatedDisk:
        if self._attached is None:
            _fails(errno.ENOENT)
        return self._attached

    # --- files ---------------------------------------------------------------------------------------------------
    def open(self, name: str, *, create: bool = False) -> Awaitable[LogFile]:
        def effect() -> LogFile:
            folder, last = self.disk.parent(name)
            node = folder.entries.get(last)
            if node is None:
                if not create:
                    _fails(errno.ENOENT)
                node = folder.entries[last] = FileNode(bytearray(), self._owner.wall_ms())
            if not isinstance(node, FileNode):
                _fails(errno.EISDIR)
            return SimulatedLogFile(self, name, node)

        return self._queue("open", name, effect)

    def _queue_on_file(self, kind: str, file: LogFile, effect: Callable[[FileNode], Any]) -> asyncio.Future[Any]:
        assert isinstance(file, SimulatedLogFile)
        assert file.log_dir is self
        was_closed = file.is_closed

        def effect_on_file() -> Any:
            if was_closed:
                _fails(errno.EBADF)
            return effect(file.node)

        return self._queue(kind, file.name, effect_on_file)

    def close_file(self, file: LogFile) -> None:
        assert isinstance(file, SimulatedLogFile)
        file.is_closed = True

    def append(self, file: LogFile, position: int, buffers: Sequence[bytes | bytearray | memoryview]) -> Awaitable[None]:
        promised = b"".join(buffers)

        def effect(node: FileNode) -> None:
            if b"".join(buffers) != promised:
                raise AssertionError(f"the buffers of an append to {file.name} changed before it was done")
            self._require_space(len(promised))
            if len(node.content) < position:
                node.content.extend(bytes(position - len(node.content)))
            node.content[position : position + len(promised)] = promised
            node.modified_ms = self._owner.wall_ms()

        return self._queue_on_file("append", file, effect)

    def read(self, file: LogFile, position: int, size: int) -> Awaitable[bytes]:
        return self._queue_on_file("read", file, lambda node: bytes(node.content[position : position + size]))

    def region(self, file: LogFile, position: int, size: int) -> FileRegion:
        assert isinstance(file, SimulatedLogFile)
        if position + size > len(file.node.content):
            raise AssertionError(f"a region of {file.name} ends at {position + size}, written is {len(file.node.content)}")
        return SimulatedRegion(file, position, size)

    def load_region(self, region: SimulatedRegion) -> asyncio.Future[bytes]:
        """Not of LogDir: how the simulated network gets the bytes of a region. A shorter answer means a cut file."""
        return self._queue("region", region.file.name, region.content)

    def truncate(self, file: LogFile, size: int) -> Awaitable[None]:
        def effect(node: FileNode) -> None:
            if size > len(node.content):
                node.content.extend(bytes(size - len(node.content)))
            del node.content[size:]
            node.modified_ms = self._owner.wall_ms()

        return self._queue_on_file("truncate", file, effect)

    def fsync(self, file: LogFile) -> Awaitable[None]:
        return self._queue_on_file("fsync", file, lambda _: None)

    # --- names ---------------------------------------------------------------------------------------------------
    def mkdir(self, name: str) -> Awaitable[None]:
        def effect() -> None:
            folder, last = self.disk.parent(name)
            if last in folder.entries:
                _fails(errno.EEXIST)
            folder.entries[last] = FolderNode(self._owner.wall_ms())

        return self._queue("mkdir", name, effect, is_barrier=True)

    def rename(self, old: str, new: str) -> Awaitable[None]:
        def effect() -> None:
            source, old_last = self.disk.parent(old)
            target, new_last = self.disk.parent(new)
            node = source.entries.get(old_last)
            if node is None:
                _fails(errno.ENOENT)
            replaced = target.entries.get(new_last)
            if isinstance(replaced, FolderNode) and (isinstance(node, FileNode) or replaced.entries):
                _fails(errno.EISDIR if isinstance(node, FileNode) else errno.ENOTEMPTY)
            if isinstance(replaced, FileNode) and isinstance(node, FolderNode):
                _fails(errno.ENOTDIR)
            del source.entries[old_last]
            target.entries[new_last] = node

        return self._queue("rename", old, effect, is_barrier=True)

    def fsync_dir(self, name: str = "") -> Awaitable[None]:
        def effect() -> None:
            self.disk.folder(name)

        return self._queue("fsync_dir", name, effect, is_barrier=True)

    def list(self, name: str = "") -> Awaitable[list[DirectoryEntry]]:
        def effect() -> list[DirectoryEntry]:
            entries = sorted(self.disk.folder(name).entries.items())
            return [DirectoryEntry(name=entry, is_directory=isinstance(node, FolderNode)) for entry, node in entries]

        return self._queue("list", name, effect, is_barrier=True)

    def remove(self, name: str) -> Awaitable[None]:
        def effect() -> None:
            if self.disk.find(name) is not None:
                self.disk.delete(name)

        return self._queue("remove", name, effect, is_barrier=True)

    def stat(self, name: str) -> Awaitable[FileStat | None]:
        def effect() -> FileStat | None:
            node = self.disk.find(name)
            if node is None:
                return None
            size = len(node.content) if isinstance(node, FileNode) else 4096
            return FileStat(size=size, modified_ms=node.modified_ms, is_directory=isinstance(node, FolderNode))

        return self._queue("stat", name, effect)

    def read_file(self, name: str) -> Awaitable[bytes | None]:
        def effect() -> bytes | None:
            node = self.disk.find(name)
            if isinstance(node, FolderNode):
                _fails(errno.EISDIR)
            return None if node is None else bytes(node.content)

        return self._queue("read_file", name, effect)

    def replace_file(self, name: str, content: bytes) -> Awaitable[None]:
        def effect() -> None:
            folder, last = self.disk.parent(name)
            if isinstance(folder.entries.get(last), FolderNode):
                _fails(errno.EISDIR)
            self._require_space(len(content))
            folder.entries[last] = FileNode(bytearray(content), self._owner.wall_ms())

        return self._queue("replace_file", name, effect)
