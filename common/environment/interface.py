"""The interface of the daemons to the outside world: one `Environment`, which is passed in and never global.

Shells reach the clock, the network and the disks only through these classes. Production passes `RealEnvironment`. Tests and
the simulator pass a seeded environment and run the same daemons. Note that a LogDir operation is *queued when it is called*,
not when it is awaited, so calls keep their order.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol, TypeVar

from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from common.environment.pending_write import PendingWrite
from common.ids import Uuid
from common.parts import Buffer, FileRegion, Part
from common.time_units import NS_PER_S

T = TypeVar("T")

SYNC_TIMEOUT_NS: Final = 60 * NS_PER_S
"""The deadline of syncs unless the configuration sets another one."""


class LogDirError(Exception):
    """An operation on a log directory failed. `errno_code` comes from the kernel, or is ETIMEDOUT if the deadline passed.

    `operation` is the name of the LogDir method, or "region" for a region that was being sent. `name` is the file or folder
    in the directory, "" for the directory itself. `detail` is "fsync" if an fsync call failed, in any operation; otherwise
    it is an explanation or "".
    """

    def __init__(self, log_dir: str, operation: str, errno_code: int, name: str = "", detail: str = "") -> None:
        super().__init__(log_dir, operation, errno_code, name, detail)
        self.log_dir = log_dir
        self.operation = operation
        self.errno_code = errno_code
        self.name = name
        self.detail = detail

    def __str__(self) -> str:
        import errno  # deferred: only a message needs the names

        code = errno.errorcode.get(self.errno_code, str(self.errno_code))
        where = f"{self.log_dir}/{self.name}" if self.name else self.log_dir
        return f"{self.operation} on {where} failed with {code}" + (f" ({self.detail})" if self.detail else "")


class LogDirLocked(Exception):
    """Another process, or another node in this process, holds the directory's lock."""


class ConnectFailed(Exception):
    """The connection could not be established. The text names the address and the reason."""


class ListenFailed(Exception):
    """The process cannot listen on the address. The text names the address and the reason."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """The metadata of a file: size in bytes, last modification in wall-clock milliseconds."""

    size: int
    modified_ms: int
    is_directory: bool


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    name: str
    is_directory: bool


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A folder to create, with the files in it: the content of each by its name."""

    name: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SpaceStat:
    """The capacity of the file system that holds the directory. `usable_bytes` is what is left for this user."""

    total_bytes: int
    usable_bytes: int
    free_inodes: int


class LogFile(ABC):
    """An open file of a LogDir. Opaque: pass it only to the LogDir that opened it."""

    name: str


class LogDir(ABC):
    """One log directory. All access to its content, including checkpoint files and meta.properties, goes through it.

    1. Names are relative to the directory ("t-0/00000000000000000000.log").
    2. A method that returns an Awaitable queues its operation when it is called. The operations take effect in the order of
       the calls, with two exceptions, so that no client waits for a slow disk longer than necessary. First, the operations
       that make something durable (`fsync`, `sync_and_forget`, `fsync_folders`, `rename`, `fsync_dir`, `replace_file`), and
       `create_folders`, keep their order among themselves and cover everything called before them, but operations called
       later may overtake them. So await a `rename`, `replace_file` or `create_folders` before using the name again. Second,
       see `remove`, `write_back` and `probe`.
    3. All errors are LogDirErrors; only `lock` can also raise LogDirLocked. After `take_offline`, every pending and later
       operation raises the error passed to it.
    4. Every operation has a deadline, counted from the last progress of the operations ahead of it. The operations that make
       something durable, `remove` and `write_back` have a longer one than the others. An operation that misses its deadline
       fails with ETIMEDOUT, and its late completion is ignored.
    5. `on_error` is set by the owner. It is called from the event loop with every LogDirError, before the task that awaits
       the operation gets the error, and even if no task awaits the operation. It is not called for the error passed to
       `take_offline`, nor for later errors.
    """

    path: str
    on_error: Callable[[LogDirError], None] | None

    @property
    @abstractmethod
    def oldest_operation_age_ns(self) -> int:
        """How long the oldest unfinished operation has been waiting, 0 if idle. This is the slow-disk signal."""

    @property
    @abstractmethod
    def silence_ns(self) -> int:
        """How long nothing has finished although an operation that clients may wait for is not, 0 if none waits. A slow disk
        is not silent: it finishes one operation after the other, or one MiB after the other of a large append. A sync, a
        removal or a probe does not count. A read that finishes does not speak for a disk that an append waits for, nor
        an append for one that a read waits for: the page cache answers both while the disk hangs."""

    @property
    @abstractmethod
    def awaited_sync_age_ns(self) -> int:
        """How long the oldest unfinished sync for which clients wait has been waiting, 0 if there is none. It makes no disk
        silent, because a busy one may need long for it. But it is a reason to try whether the disk still answers."""

    # --- the directory itself ------------------------------------------------------------------------------------
    @abstractmethod
    def attach(self, *, create: bool = False) -> Awaitable[None]:
        """Opens the directory and holds its descriptor. Must be the first operation. With `create`, creates a missing
        directory."""

    @abstractmethod
    def lock(self) -> Awaitable[None]:
        """Locks `.lock` with fcntl.lockf, like Kafka's JVM. Raises LogDirLocked if it is already locked."""

    @abstractmethod
    def probe(self) -> Awaitable[None]:
        """Creates, writes, fsyncs, renames and unlinks a small file, and reads it back without the page cache.

        Fails with ESTALE if the path no longer leads to the directory that `attach` opened, for example because a mount
        vanished or was swapped. Its deadline tells a dead disk from a busy one: it counts from the disk's last progress, but
        is never longer than that of a sync.
        """

    @abstractmethod
    def statvfs(self) -> Awaitable[SpaceStat]: ...

    @abstractmethod
    def take_offline(self, error: LogDirError) -> None:
        """Fails all pending and later operations with `error`. The threads close all descriptors, the directory's last."""

    @abstractmethod
    def close(self) -> Awaitable[None]:
        """Finishes the queued operations, closes all descriptors and releases the lock, for a clean shutdown.

        Not needed after `take_offline`. A connection that is still sending a region of this directory is aborted.
        """

    @abstractmethod
    def release_lock_now(self) -> None:
        """Releases `.lock` on the calling thread, so that the process can exit while a thread of this directory is stuck."""

    # --- files ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def open(self, name: str, *, create: bool = False) -> Awaitable[LogFile]:
        """Opens a file for reading and writing. A missing file is an error unless `create` is set."""

    @abstractmethod
    def close_file(self, file: LogFile) -> None:
        """Closes the file after the operations queued for it. Regions that are still being sent keep it open."""

    @abstractmethod
    def append(self, file: LogFile, position: int, buffers: Sequence[Buffer]) -> Awaitable[None]:
        """Writes all of `buffers` at `position` with pwritev. Completes when the kernel has the data, without an fsync.

        The caller must not change the buffers before the append completes. Consecutive queued appends to one file are joined
        into a group. If a group fails, the file is truncated to the group's start and the whole group fails.
        """

    @abstractmethod
    def start_append(self, file: LogFile, position: int, buffers: Sequence[Buffer], write: PendingWrite) -> None:
        """Like `append`, but calls `write` instead of completing a future."""

    @abstractmethod
    def read(self, file: LogFile, position: int, size: int) -> Awaitable[bytes]:
        """Reads `size` bytes from `position`, fewer only at the end of the file."""

    @abstractmethod
    def examine(self, file: LogFile, position: int, size: int, examination: Callable[[bytes], T]) -> Awaitable[T]:
        """Reads like `read`, and completes with what `examination` returns for the bytes.

        `examination` runs on the thread that reads, so that checksums of many bytes do not keep the event loop busy. It uses
        nothing but its argument, and raises nothing.
        """

    @abstractmethod
    def read_around_cache(self, name: str) -> Awaitable[None]:
        """Reads the beginning of a file without the page cache, to find out whether the disk still answers. A client might
        wait for it as for any other read, so a disk that does not answer is silent. A missing file is no error."""

    @abstractmethod
    def read_cached(self, file: LogFile, position: int, size: int) -> bytes | bytearray | None:
        """Returns these bytes if they can be had without waiting for the disk, otherwise None. The append that wrote them
        must have completed."""

    @abstractmethod
    def region(self, file: LogFile, position: int, size: int) -> FileRegion:
        """Returns a handle to a range of the file, for Connection.send. The append that wrote the range must have
        completed."""

    @abstractmethod
    def give_up_regions(self) -> None:
        """Aborts the connections that wait for a region of this directory to be read, because their peers should not wait
        for a disk that hangs. Neither the directory nor `on_error` is affected."""

    @abstractmethod
    def truncate(self, file: LogFile, size: int) -> Awaitable[None]: ...

    @abstractmethod
    def fsync(self, file: LogFile, *, is_awaited: bool = False) -> Awaitable[None]:
        """Syncs data and file size (fdatasync). Covers exactly what was queued before it; later appends go on meanwhile. A
        failure takes the directory offline for good (docs/DESIGN.md, "Disks"). `is_awaited` says that clients wait for
        it."""

    @abstractmethod
    def sync_and_forget(self, file: LogFile) -> Awaitable[None]:
        """Syncs the file, then drops its pages from the cache, so that the next read returns what the disk really holds.

        If an fsync failed in an earlier run, the kernel may still show bytes that never reached the disk, although later
        fsyncs succeed.
        """

    @abstractmethod
    def write_back(self, file: LogFile, *, forget: bool = False) -> Awaitable[None]:
        """Syncs like `fsync`, but holds up no other syncs. Covers only appends that have completed. `forget` then drops the
        file's pages from the cache.

        Use it for a large file that is written in the background: a later `fsync`, which holds up other syncs, then has
        little left to do.
        """

    # --- names ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def mkdir(self, name: str) -> Awaitable[None]: ...

    @abstractmethod
    def create_folders(self, folders: Sequence[NewFolder]) -> Awaitable[list[str]]:
        """Creates folders with their files, without a sync. If any of the folders exists, creates none and returns the names
        of those that exist.

        Holds up neither appends nor reads. Await it before using the names: operations queued after it may run earlier.
        """

    @abstractmethod
    def fsync_folders(self, names: Sequence[str]) -> Awaitable[None]:
        """Syncs these folders of the directory, the files in them, and the directory itself. Holds up neither appends nor
        reads.

        All that is unsynced goes to the disk before the first sync waits, so the folders share the commits of the file
        system's journal. Like every operation it has one deadline, however many folders it syncs.
        """

    @abstractmethod
    def rename(self, old: str, new: str) -> Awaitable[None]: ...

    @abstractmethod
    def fsync_dir(self, name: str = "") -> Awaitable[None]: ...

    @abstractmethod
    def list(self, name: str = "") -> Awaitable[list[DirectoryEntry]]:
        """Returns the entries of a folder, sorted by name."""

    @abstractmethod
    def remove(self, name: str) -> Awaitable[None]:
        """Removes a file, or a folder with everything in it. A missing name is not an error.

        Runs after all operations queued before it and holds up neither appends nor reads nor syncs, because freeing the
        blocks of a large file takes long. Await it before using the name again: operations queued after it may run earlier.
        """

    @abstractmethod
    def stat(self, name: str) -> Awaitable[FileStat | None]:
        """Returns the metadata of a file or folder, None if it does not exist."""

    @abstractmethod
    def read_file(self, name: str, *, last: int | None = None) -> Awaitable[bytes | None]:
        """Reads a whole small file, or only this number of bytes at its end. Returns None if it does not exist."""

    @abstractmethod
    def replace_file(self, name: str, content: bytes | Callable[[], bytes]) -> Awaitable[None]:
        """Replaces a file durably: writes and fsyncs `name`.tmp, renames it over `name`, and fsyncs the folder.

        If `content` is a function, the thread that writes calls it, so that a large file does not keep the event loop busy
        with its encoding. The functions of a directory are called in the order of the calls, never two at a time. A function
        is not called if the operation fails before it begins, and it raises nothing.
        """


class Connection(ABC):
    """One TCP connection, for client, broker or controller traffic.

    `send` never blocks: it queues what the socket does not take at once. The owner watches `queued_bytes` to know when to
    stop producing. If a send could not empty the queue at once, the receiver's `writable()` is called when the queue is
    empty.
    """

    peer: str
    """"host:port" of the other side."""

    local_host: str
    """The local address of the connection, as text."""

    @property
    @abstractmethod
    def queued_bytes(self) -> int: ...

    @abstractmethod
    def send(self, parts: Sequence[Part]) -> None:
        """Sends the parts at once, as far as the socket takes them now, and queues the rest. Does nothing on a closed
        connection, because `connection_lost` reports the loss.

        If reading a FileRegion fails while it is being sent, its LogDir's `on_error` gets the error and the connection is
        aborted.
        """

    @abstractmethod
    def take_buffer(self) -> None:
        """Keeps the view passed to `data_received` valid; the connection continues with a new buffer.

        Call it only within `data_received`.
        """

    @abstractmethod
    def pause_reading(self) -> None: ...

    @abstractmethod
    def resume_reading(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Closes the connection after sending what is queued."""

    @abstractmethod
    def abort(self) -> None:
        """Closes the connection immediately and drops what is queued."""


class Receiver(Protocol):
    """Callbacks from a Connection to its owner. All of them run on the event loop, and none may raise."""

    def data_received(self, view: memoryview) -> None:
        """Receives bytes. `view` is only valid during the call, unless the receiver calls the connection's take_buffer()."""

    def connection_lost(self, reason: str | None) -> None:
        """The last callback, made once. `reason` is None if the peer ended the stream or we closed the connection."""

    def writable(self) -> None: ...


class Listener(ABC):
    host: str
    port: int
    """The bound port. If port 0 was requested, this is the one that the kernel chose."""

    @abstractmethod
    def close(self) -> None:
        """Stops listening. Accepted connections stay open."""


class Environment(ABC):
    """Everything outside the process. There is one per node, so that many nodes can run in one process."""

    rng: random.Random
    log: FilteringBoundLogger
    """A logger bound to the node. Call it like `log.info("event_name", key=value)`."""

    @abstractmethod
    def now_ns(self) -> int:
        """Returns the time of the monotonic clock, on which all deadlines are based."""

    @abstractmethod
    def wall_ms(self) -> int: ...

    @abstractmethod
    async def sleep_until(self, deadline_ns: int) -> None:
        """Returns once now_ns() >= deadline_ns, never earlier."""

    @abstractmethod
    def timeout_at(self, deadline_ns: int) -> AbstractAsyncContextManager[None]:
        """Returns a context manager that cancels its body at the deadline and then raises TimeoutError."""

    @abstractmethod
    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` from the event loop at the deadline. Returns the function that cancels it."""

    @abstractmethod
    def uuid(self) -> Uuid:
        """Returns a random uuid that is not one of the reserved first 100 and does not start with '-' when printed."""

    @abstractmethod
    def listen(self, host: str, port: int, accept: Callable[[Connection], Receiver]) -> Listener:
        """Starts listening immediately. Host "" means all interfaces, port 0 any free port. Raises ListenFailed."""

    @abstractmethod
    async def connect(
        self, host: str, port: int, accept: Callable[[Connection], Receiver], *, deadline_ns: int
    ) -> Connection:
        """Connects. Calls `accept` to get the receiver before any data arrives. Raises ConnectFailed on a failure or at the
        deadline."""

    @abstractmethod
    def log_dir(self, path: str, *, operation_timeout_ns: int, sync_timeout_ns: int = SYNC_TIMEOUT_NS) -> LogDir:
        """Returns the LogDir for an absolute path, without touching the disk. Its first operation must be `attach`.

        `sync_timeout_ns` is the deadline of syncs, removals, and all other changes of names. A value below
        `operation_timeout_ns` counts as that."""

    @abstractmethod
    def serve_metrics(self, host: str, port: int, collector: Collector) -> Callable[[], None]:
        """Serves Prometheus on a thread of its own. Returns the function that stops it. Raises ListenFailed."""

    @abstractmethod
    def exit(self, code: int) -> NoReturn:
        """Exits the process immediately, even with stuck threads, after closing sockets and releasing directory locks."""
