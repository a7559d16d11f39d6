"""Simulated disks and their faults. A disk belongs to the world and outlives the nodes that use it.

Shell of the tests. A DiskStore has the disk's content. A SimulatedLogDir uses the disk, and the disk decides how each
operation ends. A fault lasts until `heal` (or `thaw`, `mount`) unless its docstring says otherwise. A fault belongs to the
disk, so it outlives the node that ran into it. `heal` ends the fault but does not repair the data it has damaged.
"""

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
QUICK_NS_MAX = 150 * MICROSECOND

# A dead disk still answers these from the cache (measured on ext4).
ANSWERED_BY_A_DEAD_DISK = frozenset({"attach", "list", "stat", "statvfs", "close"})

# A read-only file system refuses these even when there is nothing to do. It refuses `open` only when that creates a file.
REFUSED_WHEN_READ_ONLY = frozenset(
    """
    append truncate fsync sync_and_forget write_back mkdir create_folders rename fsync_dir fsync_folders remove replace_file
    probe
    """.split()
)

# The errno of each operation in a process that has run out of descriptors or memory.
ANSWERED_BY_A_SHORT_PROCESS = {
    "attach": errno.EMFILE,
    "lock": errno.EMFILE,
    "probe": errno.EMFILE,
    "open": errno.EMFILE,
    "list": errno.EMFILE,
    "read_file": errno.EMFILE,
    "replace_file": errno.EMFILE,
    "create_folders": errno.EMFILE,
    "fsync_dir": errno.EMFILE,
    "fsync_folders": errno.EMFILE,
    "append": errno.ENOMEM,
}

SLOW_OPERATIONS = frozenset(
    {"fsync", "sync_and_forget", "write_back", "fsync_dir", "fsync_folders", "replace_file", "probe"}
)

DEFAULT_CAPACITY = 1 << 40
SMALL_ROOM = 300
CATCHING_UP_NS = 5_000_000_000
# Of the reads of cached pages, this share finds that the kernel has evicted them.
EVICTED_SHARE = 0.2
# One in so many syncs waits for other data that the disk is writing.
LONG_SYNC = 16


class SimulatedDisk:
    """One disk, mounted at the path of one log directory. Tests use this class to inspect it and to break it."""

    def __init__(self, path: str, loop: SimulatedLoop, seed: object) -> None:
        self.path = path
        self.loop = loop
        self.capacity_bytes = DEFAULT_CAPACITY
        self.store = DiskStore()
        self.lock_holder: SimulatedLogDir | None = None
        self.is_read_only = False
        self.is_hung = False
        self.stalled: list[Operation] = []
        self.users: list[SimulatedLogDir] = []
        """Every LogDir that has attached the disk, also in earlier lives of a node."""
        self._seed = seed
        self._rng = random.Random(f"{seed}/disk/{path}")
        self._sticky: list[tuple[int, frozenset[str] | None]] = []
        self._next_failures: dict[str, deque[int]] = {}
        self._hung: frozenset[str] | None = None
        self._reads_fail = False
        self._failing_writebacks: deque[int] = deque()
        self.failed_fsyncs = 0
        """How many fsyncs have failed because of `fail_fsync_once`."""
        self._slowness = 1.0
        self.append_ns_max = QUICK_NS_MAX
        """How long an append takes at most. It takes longer if the kernel makes writers wait until the disk has caught up.
        This is no fault: no checker excuses anything because of it."""
        self._catches_up_until_ns = 0
        self.busy_until_ns = 0
        """Until when the disk writes something else, so that nothing ends that waits for it."""
        self._shortage = 0.0
        self._mount_point: SimulatedDisk | None = None
        self._is_mounted = True
        self.answers_cached_reads = False
        """Whether most reads of cached pages are answered at once (`read_cached`). Otherwise every read takes time."""
        self.is_rotten = False
        """Whether `corrupt` has changed bytes on this disk and it has not been replaced since."""

    # --- faults that have an errno -------------------------------------------------------------------------------
    def fail_with(self, errno_code: int, operations: Collection[str] | None = None) -> None:
        """Makes `operations` (default: all that a dead ext4 refuses) end with `errno_code`, until `heal`."""
        self._sticky.append((errno_code, None if operations is None else frozenset(operations)))

    def fail_next(self, operation: str, errno_code: int, *, times: int = 1) -> None:
        """Makes the next `times` operations of this name end with `errno_code`, without effect: a transient fault."""
        self._next_failures.setdefault(operation, deque()).extend([errno_code] * times)

    def run_short(self, share: float) -> None:
        """Until `heal`, this share of the operations that need a descriptor or memory fails. This simulates a process that
        has run out of descriptors or memory, while the disk is healthy."""
        self._shortage = share

    def fail_fsync_once(self, errno_code: int = errno.EIO) -> None:
        """Makes the next fsync of a file fail (the fsync of a health probe does not count). The data it should have written
        is lost, but readers still see it until the cache is dropped. Every later fsync succeeds, as measured on ext4."""
        self._failing_writebacks.append(errno_code)

    def fail_reads(self) -> None:
        """Makes reads from the platter fail with EIO. Clean pages leave the cache first, so only data that is dirty now or
        written later can be read."""
        self.drop_clean_pages()
        self._reads_fail = True

    def make_read_only(self) -> None:
        """Makes every change fail with EROFS. Reads still work. Dirty pages stay in the cache until a power cut."""
        self.is_read_only = True

    def fill(self, room_bytes: int = SMALL_ROOM) -> None:
        """Leaves so little room that a write stores its first bytes and then gets ENOSPC, until `free_space`."""
        self.capacity_bytes = self.used_bytes() + room_bytes

    def free_space(self) -> None:
        self.capacity_bytes = DEFAULT_CAPACITY

    def heal(self) -> None:
        """Ends every fault that has an errno or makes the disk slow, except a full disk. Damaged data stays damaged."""
        self._sticky.clear()
        self._shortage = 0.0
        self._next_failures.clear()
        self._failing_writebacks.clear()
        self._reads_fail = False
        self.is_read_only = False
        if self._slowness != 1.0:
            # What was queued while the disk was slow has yet to be done, at the disk's usual speed.
            self._catches_up_until_ns = self.loop.now_ns + CATCHING_UP_NS
            for log_dir in self.users:
                log_dir.speed_up(self._slowness)
        self._slowness = 1.0

    # --- faults without an errno ---------------------------------------------------------------------------------
    def hang(self, operations: Collection[str] | None = None) -> None:
        """Keeps `operations` (default: all) from ending, until `thaw`."""
        self.is_hung = True
        self._hung = None if operations is None else frozenset(operations)

    def thaw(self) -> None:
        """Lets the hung operations finish in order, including those that no caller waits for any more."""
        self.is_hung = False
        stalled, self.stalled = self.stalled, []
        for operation in stalled:
            operation.log_dir.go_on(operation)

    def slow_down(self, factor: float) -> None:
        """Makes every operation take `factor` times as long."""
        self._slowness = factor

    def be_busy(self, duration_ns: int) -> None:
        """Keeps syncs from ending for this time, while the page cache takes appends. The disk is healthy: it writes much
        data of another program, one block after the other."""
        self.busy_until_ns = max(self.busy_until_ns, self.loop.now_ns + duration_ns)

    @property
    def is_busy(self) -> bool:
        return self.loop.now_ns < self.busy_until_ns

    def corrupt(self, name: str, position: int, size: int = 1) -> None:
        """Flips these bytes. Reads return the wrong bytes without an error, until the bytes are written again."""
        self.file_node(name).corrupt(position, size)
        self.is_rotten = True

    def drop_clean_pages(self) -> None:
        """Evicts the clean pages from the page cache, as the kernel does when memory is short."""
        self.store.drop_clean_pages()

    # --- faults of the whole disk --------------------------------------------------------------------------------
    def lose_unsynced(self, rng: random.Random) -> None:
        """Applies a power cut: any part of the data that no fsync covered may survive. The nodes that use the disk must be
        dead."""
        self.stalled.clear()
        self.lock_holder = None
        self.store.lose_unsynced(rng)
        if self._mount_point is not None:
            self._mount_point.lose_unsynced(rng)

    def wipe(self) -> None:
        """Turns this into an empty disk in the same place, as after a replacement."""
        self.store = DiskStore()
        self.is_rotten = False
        self.heal()

    def copy_from(self, other: "SimulatedDisk") -> None:
        """Turns this disk into a copy of the other, directory.id included."""
        self.store = other.store.copy()

    def unmount(self) -> None:
        """`umount -l`: the path shows an empty directory of the parent file system. A process that has this disk open keeps
        using it."""
        self._is_mounted = False

    def mount(self) -> None:
        """Mounts the disk at its path again. Files that were written to the mount point meanwhile are hidden below the
        disk."""
        self._is_mounted = True

    def at_path(self) -> "SimulatedDisk":
        """Returns what is at the path now: this disk, or the empty directory that is its mount point."""
        if self._is_mounted:
            return self
        if self._mount_point is None:
            self._mount_point = SimulatedDisk(self.path, self.loop, f"{self._seed}/below")
        return self._mount_point

    @property
    def is_unusable(self) -> bool:
        """Whether the whole disk has a fault that every probe would notice: dead, read-only, unreadable, hung, or not
        mounted."""
        is_dead = self.sticky_failure_of("append") is not None
        return is_dead or self._reads_fail or self.is_hung or not self._is_mounted

    @property
    def is_catching_up(self) -> bool:
        """Whether it was slow a moment ago, so that the deadline of an operation may still pass."""
        return self.loop.now_ns < self._catches_up_until_ns

    @property
    def is_well(self) -> bool:
        """Whether every operation would succeed, and soon."""
        is_slow = self._slowness != 1.0 or self.is_catching_up
        return not self.is_unusable and not is_slow and not self._shortage and self.room_bytes() is None

    # --- how an operation ends -----------------------------------------------------------------------------------
    def failure_of(self, operation: str) -> int | None:
        """Returns the errno that an operation of this name ends with now. Consumes one `fail_next`."""
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
        """Whether the operation would fail or hang now. Does not consume a `fail_next`."""
        return bool(self._next_failures.get(operation.kind)) or (
            self.sticky_failure_of(operation.kind) is not None or self.stalls(operation)
        )

    def take_failing_writeback(self) -> int | None:
        """Returns the errno if `fail_fsync_once` wants this fsync to fail, and consumes it."""
        if not self._failing_writebacks:
            return None
        self.failed_fsyncs += 1
        return self._failing_writebacks.popleft()

    def require_readable(self, node: FileNode, position: int) -> None:
        """Raises OSError when the byte at `position` must be read from an unreadable platter."""
        if self._reads_fail and position < node.uncached_below:
            fail(errno.EIO)

    def read_cached(self, node: FileNode, position: int, size: int) -> bytes | None:
        """Returns these bytes if the page cache has them and the disk answers. The kernel may have evicted any page."""
        if not self.answers_cached_reads or position < node.uncached_below or self._rng.random() < EVICTED_SHARE:
            return None
        if self.is_hung or self.sticky_failure_of("read") is not None:
            return None
        return bytes(node.content[position : position + size])

    def require_readable_platter(self) -> None:
        if self._reads_fail:
            fail(errno.EIO)

    def room_bytes(self) -> int | None:
        """Returns how many bytes can still be written, or None on a disk without a limit."""
        return None if self.capacity_bytes == DEFAULT_CAPACITY else max(0, self.capacity_bytes - self.used_bytes())

    def stalls(self, operation: "Operation") -> bool:
        if not self.is_hung:
            return False
        if self._hung is None or operation.kind in self._hung:
            return True
        return any(earlier.comes_before(operation) for earlier in self.stalled)

    def steps_before_the_end(self) -> int:
        """Draws how far an operation of several system calls got when its process was killed."""
        return self._rng.randint(0, 5)

    def bytes_before_the_end(self, size: int) -> int:
        """Draws how much of a write was in the page cache when its process was killed."""
        return self._rng.randint(0, size)

    def latency_ns(self, kind: str) -> int:
        if kind in SLOW_OPERATIONS:
            latency_ns = self._rng.randint(200 * MICROSECOND, 2_000 * MICROSECOND)
            if self._rng.randrange(LONG_SYNC) == 0:
                latency_ns *= self._rng.randint(2, 5)
        else:
            longest_ns = self.append_ns_max if kind == "append" else QUICK_NS_MAX
            latency_ns = self._rng.randint(10 * MICROSECOND, longest_ns)
        return latency_ns if self._slowness == 1.0 else round(latency_ns * self._slowness)

    # --- content, for tests --------------------------------------------------------------------------------------
    def files(self) -> dict[str, bytes]:
        """Returns the content of every file by its name relative to the directory, sorted."""
        return {name: bytes(node.content) for name, node in self.store.walk() if isinstance(node, FileNode)}

    def files_in(self, folder: str) -> dict[str, bytes]:
        """Returns the files of one folder in the form of `files`. Returns no files if the folder does not exist."""
        node = self.store.find(folder)
        entries = node.entries if isinstance(node, FolderNode) else {}
        return {f"{folder}/{name}": bytes(each.content) for name, each in entries.items() if isinstance(each, FileNode)}

    def durable_files(self) -> dict[str, bytes]:
        """Returns the files as they are on the platter. This is what remains if a power cut loses every unsynced change."""
        found = self.store.walk(durable=True)
        return {name: bytes(node.durable) for name, node in found if isinstance(node, FileNode)}

    def files_after_a_power_cut(self, rng: random.Random) -> dict[str, bytes]:
        """Returns what a power cut right now might leave, as `rng` draws it. The disk itself does not change."""
        return self.store.after_a_power_cut(rng)

    def folders(self) -> list[str]:
        return [name for name, node in self.store.walk() if isinstance(node, FolderNode)]

    def write(self, name: str, content: bytes) -> None:
        """Puts a file and its parent folders on the platter at once."""
        self.store.put(name, content)

    def delete(self, name: str) -> None:
        """Removes a file or folder from the platter at once."""
        self.store.delete(name)

    def used_bytes(self) -> int:
        return self.store.used_bytes()

    def find(self, name: str) -> Node | None:
        return self.store.find(name)

    def folder(self, name: str) -> FolderNode:
        """Returns the folder of this name. Raises OSError."""
        return self.store.folder(name)

    def file_node(self, name: str) -> FileNode:
        node = self.store.find(name)
        if not isinstance(node, FileNode):
            fail(errno.ENOENT)
        return node
