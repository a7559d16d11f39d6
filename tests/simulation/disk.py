"""Simulated disks, and all that can go wrong with one. A disk belongs to the world and outlives the nodes that use it.

Shell of the tests. What it holds is a DiskStore; who uses it is a SimulatedLogDir, which asks here how each operation ends.
Every fault goes on until `heal` (or `thaw`, `mount`) unless it says otherwise. Easy to get wrong: a fault is of the disk, so
it outlives the node that met it, and what a fault broke stays broken after `heal`.
"""

import copy
import errno
import random
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING

from tests.simulation.disk_store import DiskStore, FileNode, FolderNode, Node, fail
from tests.simulation.loop import SimulatedLoop

if TYPE_CHECKING:
    from tests.simulation.log_dir import Operation, SimulatedLogDir

MICROSECOND = 1_000

# Measured on ext4 by the page of faults: a dead disk still answers these from the cache.
ANSWERED_BY_A_DEAD_DISK = frozenset({"attach", "list", "stat", "statvfs", "close"})

# What a read-only file system refuses, also when there is nothing to do. Opening refuses only to make a file.
REFUSED_WHEN_READ_ONLY = frozenset(
    {"append", "truncate", "fsync", "sync_and_forget", "mkdir", "rename", "fsync_dir", "remove", "replace_file", "probe"}
)

# What a process gets that is short of descriptors, or of memory.
ANSWERED_BY_A_SHORT_PROCESS = {
    "attach": errno.EMFILE,
    "lock": errno.EMFILE,
    "probe": errno.EMFILE,
    "open": errno.EMFILE,
    "list": errno.EMFILE,
    "read_file": errno.EMFILE,
    "replace_file": errno.EMFILE,
    "fsync_dir": errno.EMFILE,
    "append": errno.ENOMEM,
}

SLOW_OPERATIONS = frozenset({"fsync", "sync_and_forget", "fsync_dir", "replace_file", "probe"})

DEFAULT_CAPACITY = 1 << 40
SMALL_ROOM = 300
CATCHING_UP_NS = 5_000_000_000


class SimulatedDisk:
    """One disk, mounted at the path of one log directory. Tests look into it and break it through this class."""

    def __init__(self, path: str, loop: SimulatedLoop, seed: object) -> None:
        self.path = path
        self.loop = loop
        self.capacity_bytes = DEFAULT_CAPACITY
        self.store = DiskStore()
        self.lock_holder: SimulatedLogDir | None = None
        self.is_read_only = False
        self.is_hung = False
        self.stalled: list[Operation] = []
        self._seed = seed
        self._rng = random.Random(f"{seed}/disk/{path}")
        self._sticky: list[tuple[int, frozenset[str] | None]] = []
        self._next_failures: dict[str, deque[int]] = {}
        self._hung: frozenset[str] | None = None
        self._reads_fail = False
        self._failing_writebacks: deque[int] = deque()
        self.failed_fsyncs = 0
        """How many fsyncs `fail_fsync_once` has made fail."""
        self._slowness = 1.0
        self._catches_up_until_ns = 0
        self._shortage = 0.0
        self._mount_point: SimulatedDisk | None = None
        self._is_mounted = True
        self.is_rotten = False
        """Whether bytes have changed that nobody wrote, and the disk was not replaced since."""

    # --- faults that have an errno -------------------------------------------------------------------------------
    def fail_with(self, errno_code: int, operations: Collection[str] | None = None) -> None:
        """From now on `operations` (default: all that a dead ext4 refuses) end with `errno_code`, until `heal`."""
        self._sticky.append((errno_code, None if operations is None else frozenset(operations)))

    def fail_next(self, operation: str, errno_code: int, *, times: int = 1) -> None:
        """The next `times` operations of this name end with `errno_code` and have no effect, as a fault that passes."""
        self._next_failures.setdefault(operation, deque()).extend([errno_code] * times)

    def run_short(self, share: float) -> None:
        """Until `heal` this share of the operations that need a descriptor or memory of the process gets none: the process
        is short of them, and the disk is well."""
        self._shortage = share

    def fail_fsync_once(self, errno_code: int = errno.EIO) -> None:
        """The next fsync of a file fails (the probe's does not count), and what it should have written is lost although
        readers see it until the cache is dropped. Every fsync after it succeeds. Measured, see the page of faults."""
        self._failing_writebacks.append(errno_code)

    def fail_reads(self) -> None:
        """EIO for reads from the platter. What is there now has left the cache; what is written from now on is in it."""
        self.drop_clean_pages()
        self._reads_fail = True

    def make_read_only(self) -> None:
        """EROFS for every change; reads go on. What was dirty stays in the cache until the power goes."""
        self.is_read_only = True

    def fill(self, room_bytes: int = SMALL_ROOM) -> None:
        """Leaves so little room that a write takes its first bytes and then gets ENOSPC. Until `free_space`."""
        self.capacity_bytes = self.used_bytes() + room_bytes

    def free_space(self) -> None:
        self.capacity_bytes = DEFAULT_CAPACITY

    def heal(self) -> None:
        """Ends every fault that has an errno or makes the disk slow, except a full disk's; what they broke stays broken."""
        self._sticky.clear()
        self._shortage = 0.0
        self._next_failures.clear()
        self._failing_writebacks.clear()
        self._reads_fail = False
        self.is_read_only = False
        if self._slowness != 1.0:
            # What was queued while it was slow takes the time that it was given.
            self._catches_up_until_ns = self.loop.now_ns + CATCHING_UP_NS
        self._slowness = 1.0

    # --- faults that have none -----------------------------------------------------------------------------------
    def hang(self, operations: Collection[str] | None = None) -> None:
        """From now on `operations` (default: all) do not end, until `thaw`."""
        self.is_hung = True
        self._hung = None if operations is None else frozenset(operations)

    def thaw(self) -> None:
        """What hung goes on, in order, the operations included that nobody waits for any more."""
        self.is_hung = False
        stalled, self.stalled = self.stalled, []
        for operation in stalled:
            operation.log_dir.go_on(operation)

    def slow_down(self, factor: float) -> None:
        """Every operation takes `factor` times as long."""
        self._slowness = factor

    def corrupt(self, name: str, position: int, size: int = 1) -> None:
        """Reads of these bytes give other bytes and no errno, until they are written again."""
        self.file_node(name).corrupt(position, size)
        self.is_rotten = True

    def drop_clean_pages(self) -> None:
        """What is not dirty leaves the page cache, as when memory is short."""
        self.store.drop_clean_pages()

    # --- faults of the whole disk --------------------------------------------------------------------------------
    def lose_unsynced(self, rng: random.Random) -> None:
        """A power cut: of what no fsync covers any part may be left. The nodes that use the disk must be dead."""
        self.stalled.clear()
        self.lock_holder = None
        self.store.lose_unsynced(rng)
        if self._mount_point is not None:
            self._mount_point.lose_unsynced(rng)

    def wipe(self) -> None:
        """An empty disk in the same place, as after a replacement."""
        self.store = DiskStore()
        self.is_rotten = False
        self.heal()

    def copy_from(self, other: "SimulatedDisk") -> None:
        """This disk becomes a copy of the other, directory.id included."""
        self.store = other.store.copy()

    def unmount(self) -> None:
        """`umount -l`: the path shows an empty directory of the file system above it. Who has this disk open keeps it."""
        self._is_mounted = False

    def mount(self) -> None:
        """The disk is at its path again. What was written past it stays below."""
        self._is_mounted = True

    def at_path(self) -> "SimulatedDisk":
        """What one finds who goes by the path: this disk, or the directory that it was mounted on."""
        if self._is_mounted:
            return self
        if self._mount_point is None:
            self._mount_point = SimulatedDisk(self.path, self.loop, f"{self._seed}/below")
        return self._mount_point

    @property
    def is_unusable(self) -> bool:
        """Whether something is wrong with the whole disk that anybody would find who looks: dead, read-only, unreadable,
        hung, or not at its path."""
        is_dead = self.sticky_failure_of("append") is not None
        return is_dead or self._reads_fail or self.is_hung or not self._is_mounted

    @property
    def is_well(self) -> bool:
        """Whether nothing keeps an operation from ending soon and well."""
        is_slow = self._slowness != 1.0 or self.loop.now_ns < self._catches_up_until_ns
        return not self.is_unusable and not is_slow and not self._shortage and self.room_bytes() is None

    # --- how an operation ends -----------------------------------------------------------------------------------
    def failure_of(self, operation: str) -> int | None:
        """The errno that an operation of this name ends with now; uses up one `fail_next`."""
        pending = self._next_failures.get(operation)
        if pending:
            return pending.popleft()
        if operation in ANSWERED_BY_A_SHORT_PROCESS and self._shortage and self._rng.random() < self._shortage:
            return ANSWERED_BY_A_SHORT_PROCESS[operation]
        return self.sticky_failure_of(operation)

    def sticky_failure_of(self, operation: str) -> int | None:
        for errno_code, operations in self._sticky:
            if operation in operations if operations is not None else operation not in ANSWERED_BY_A_DEAD_DISK:
                return errno_code
        if self.is_read_only and operation in REFUSED_WHEN_READ_ONLY:
            return errno.EROFS
        return None

    def is_broken(self, operation: "Operation") -> bool:
        """Whether the operation would fail or hang now. Uses nothing up."""
        return bool(self._next_failures.get(operation.kind)) or (
            self.sticky_failure_of(operation.kind) is not None or self.stalls(operation)
        )

    def take_failing_writeback(self) -> int | None:
        """The errno of an fsync that `fail_fsync_once` asked for, once."""
        if not self._failing_writebacks:
            return None
        self.failed_fsyncs += 1
        return self._failing_writebacks.popleft()

    def require_readable(self, node: FileNode, position: int) -> None:
        """Raises OSError when the bytes from `position` on must come from the platter and cannot."""
        if self._reads_fail and position < node.uncached_below:
            fail(errno.EIO)

    def require_readable_platter(self) -> None:
        if self._reads_fail:
            fail(errno.EIO)

    def room_bytes(self) -> int | None:
        """The bytes that can still be written; None on a disk without a limit."""
        return None if self.capacity_bytes == DEFAULT_CAPACITY else max(0, self.capacity_bytes - self.used_bytes())

    def stalls(self, operation: "Operation") -> bool:
        if not self.is_hung:
            return False
        if self._hung is None or operation.kind in self._hung:
            return True
        return any(earlier.comes_before(operation) for earlier in self.stalled)

    def steps_before_the_end(self) -> int:
        """How far an operation of several system calls got when its process was killed."""
        return self._rng.randint(0, 5)

    def bytes_before_the_end(self, size: int) -> int:
        """How much of a write was in the page cache when its process was killed."""
        return self._rng.randint(0, size)

    def latency_ns(self, kind: str) -> int:
        if kind in SLOW_OPERATIONS:
            latency_ns = self._rng.randint(200 * MICROSECOND, 2_000 * MICROSECOND)
        else:
            latency_ns = self._rng.randint(10 * MICROSECOND, 150 * MICROSECOND)
        return latency_ns if self._slowness == 1.0 else round(latency_ns * self._slowness)

    # --- content, for tests --------------------------------------------------------------------------------------
    def files(self) -> dict[str, bytes]:
        """Every file with its content, by its name relative to the directory, sorted."""
        return {name: bytes(node.content) for name, node in self.store.walk() if isinstance(node, FileNode)}

    def files_in(self, folder: str) -> dict[str, bytes]:
        """The same of one folder; empty when it is not there."""
        node = self.store.find(folder)
        entries = node.entries if isinstance(node, FolderNode) else {}
        return {f"{folder}/{name}": bytes(each.content) for name, each in entries.items() if isinstance(each, FileNode)}

    def durable_files(self) -> dict[str, bytes]:
        """The same of the platter alone: what a power cut leaves that takes every unsynced change."""
        found = self.store.walk(durable=True)
        return {name: bytes(node.durable) for name, node in found if isinstance(node, FileNode)}

    def files_after_a_power_cut(self, rng: random.Random) -> dict[str, bytes]:
        """What a power cut at this moment might leave, as `rng` draws it. The disk itself goes on."""
        store = copy.deepcopy(self.store)
        store.lose_unsynced(rng)
        return {name: bytes(node.durable) for name, node in store.walk() if isinstance(node, FileNode)}

    def folders(self) -> list[str]:
        return [name for name, node in self.store.walk() if isinstance(node, FolderNode)]

    def write(self, name: str, content: bytes) -> None:
        """Puts a file on the platter at once, with the folders above it."""
        self.store.put(name, content)

    def delete(self, name: str) -> None:
        """Takes a file or folder away from the platter at once."""
        self.store.delete(name)

    def used_bytes(self) -> int:
        return self.store.used_bytes()

    def find(self, name: str) -> Node | None:
        return self.store.find(name)

    def folder(self, name: str) -> FolderNode:
        """Raises OSError."""
        return self.store.folder(name)

    def file_node(self, name: str) -> FileNode:
        node = self.store.find(name)
        if not isinstance(node, FileNode):
            fail(errno.ENOENT)
        return node
