"""What the daemons know of the world: one `Environment`, passed in, never global.

Shells talk to the clock, the network and the disks through these classes and through nothing else. Production passes
`RealEnvironment`, tests and the simulator pass a seeded one and run the same daemons. The easy thing to get wrong:
a LogDir operation is *queued when it is called*, not when it is awaited, so two calls in one step keep their order.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NoReturn, Protocol

from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from common.ids import Uuid
from common.parts import FileRegion, Part


class LogDirError(Exception):
    """An operation on a log directory failed. `errno_code` is the kernel's, or ETIMEDOUT when the deadline passed.

    `operation` is the name of the LogDir method ("region" for one that was being sent); `name` the file or folder in the
    directory, "" for the directory itself. `detail` is "fsync" when the kernel's fsync failed, whatever the operation.
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
    """Another process, or another node in this one, holds the directory's lock."""


class ConnectFailed(Exception):
    """No connection could be made; the text says to whom and why."""


class ListenFailed(Exception):
    """The address cannot be listened on; the text names it and the reason."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """Size in bytes, last modification in wall-clock milliseconds."""

    size: int
    modified_ms: int
    is_directory: bool


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    name: str
    is_directory: bool


@dataclass(frozen=True, slots=True)
class SpaceStat:
    """Bytes and inodes of the file system that holds the directory."""

    total_bytes: int
    usable_bytes: int
    free_inodes: int


class LogFile(ABC):
    """An open file of a LogDir. Opaque: it is handed back to the LogDir that opened it."""

    name: str


class LogDir(ABC):
    """The only way to anything under one log directory, its checkpoint files and meta.properties included.

    Names are relative to the directory ("t-0/00000000000000000000.log"). Every method that returns an Awaitable queues
    its operation at the call and returns at once; operations of one file are carried out first in, first out. All errors
    are LogDirError; after `take_offline` every pending and later operation raises the error given to it. Every operation
    has a deadline, counted from when what was queued before it made progress last; one that passes it fails with ETIMEDOUT
    and its late completion is ignored.
    `on_error`, set by the owner, sees every LogDirError on the loop before the awaiting task does, and also those that
    nobody awaits; only not the one that the owner gave to `take_offline`, nor anything after it.
    """

    path: str
    on_error: Callable[[LogDirError], None] | None

    @property
    @abstractmethod
    def oldest_operation_age_ns(self) -> int:
        """How long the oldest unfinished operation has waited; 0 when idle. The slow-disk signal."""

    # --- the directory itself ------------------------------------------------------------------------------------
    @abstractmethod
    def attach(self, *, create: bool = False) -> Awaitable[None]:
        """Opens and holds the directory (dir_fd). First operation of all. `create` makes a missing directory."""

    @abstractmethod
    def lock(self) -> Awaitable[None]:
        """Takes `.lock` (fcntl.lockf, as Apache Kafka's JVM sees it). Raises LogDirLocked when it is held elsewhere."""

    @abstractmethod
    def probe(self) -> Awaitable[None]:
        """Creates, writes, fsyncs, renames and unlinks a small file, reads around the cache, and compares the (device,
        inode) held with the path's (ESTALE when they differ, so that a vanished or swapped mount is noticed)."""

    @abstractmethod
    def statvfs(self) -> Awaitable[SpaceStat]: ...

    @abstractmethod
    def take_offline(self, error: LogDirError) -> None:
        """Fails everything pending and to come with `error`; the threads close all descriptors, `.lock` and dir_fd last."""

    @abstractmethod
    def close(self) -> Awaitable[None]:
        """Finishes what is queued, closes all descriptors and releases the lock. For an orderly end; nothing to do after
        `take_offline`. Regions that are still being sent end their connections."""

    @abstractmethod
    def release_lock_now(self) -> None:
        """Releases `.lock` from the calling thread, for an exit while a thread of this directory is stuck."""

    # --- files ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def open(self, name: str, *, create: bool = False) -> Awaitable[LogFile]:
        """Opens for reading and writing. ENOENT without `create` is an error."""

    @abstractmethod
    def close_file(self, file: LogFile) -> None:
        """Closes after what is queued for the file. Regions still being sent keep their own hold on it."""

    @abstractmethod
    def append(self, file: LogFile, position: int, buffers: Sequence[bytes | bytearray | memoryview]) -> Awaitable[None]:
        """Writes all of `buffers` at `position` (pwritev). Completes when the kernel has them; not an fsync.

        The buffers must stay unchanged until then. Queued appends of one file that continue each other are joined into one
        group; a group that fails part-way is cut back to its start and fails as a whole.
        """

    @abstractmethod
    def read(self, file: LogFile, position: int, size: int) -> Awaitable[bytes]:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    @abstractmethod
    def region(self, file: LogFile, position: int, size: int) -> FileRegion:
        """A handle for Connection.send. The range must have been written (its append completed)."""

    @abstractmethod
    def truncate(self, file: LogFile, size: int) -> Awaitable[None]: ...

    @abstractmethod
    def fsync(self, file: LogFile) -> Awaitable[None]:
        """fdatasync plus size. Any error of it takes the directory offline for good (docs/DESIGN.md, "Disks")."""

    @abstractmethod
    def sync_and_forget(self, file: LogFile) -> Awaitable[None]:
        """fsync, then drops the file's pages from the cache, so that what is read next is what the disk really has.

        After an fsync that failed in an earlier life the kernel may go on showing bytes that never reached the disk, and
        later fsyncs succeed over them.
        """

    # --- names ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def mkdir(self, name: str) -> Awaitable[None]: ...

    @abstractmethod
    def rename(self, old: str, new: str) -> Awaitable[None]: ...

    @abstractmethod
    def fsync_dir(self, name: str = "") -> Awaitable[None]: ...

    @abstractmethod
    def list(self, name: str = "") -> Awaitable[list[DirectoryEntry]]:
        """Entries of a folder, sorted by name."""

    @abstractmethod
    def remove(self, name: str) -> Awaitable[None]:
        """Removes a file or a folder with all in it. Missing already is no error."""

    @abstractmethod
    def stat(self, name: str) -> Awaitable[FileStat | None]:
        """None when there is no such name."""

    @abstractmethod
    def read_file(self, name: str) -> Awaitable[bytes | None]:
        """A whole small file; None when there is none."""

    @abstractmethod
    def replace_file(self, name: str, content: bytes) -> Awaitable[None]:
        """Writes `name`.tmp, fsyncs it, renames it over `name`, fsyncs the folder."""


class Connection(ABC):
    """One TCP connection, the same kind for client, broker and controller traffic.

    `send` never blocks: parts queue up and leave in order. `queued_bytes` lets the owner stop producing; the receiver's
    `writable()` is called when the queue has drained to empty after it had bytes left over.
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
        """Queues parts. On a closed connection it does nothing: `connection_lost` tells. An error while a FileRegion is
        being sent reaches its LogDir's on_error and aborts the connection."""

    @abstractmethod
    def take_buffer(self) -> None:
        """Called inside `data_received`: the view stays valid afterwards, the connection goes on with a new buffer."""

    @abstractmethod
    def pause_reading(self) -> None: ...

    @abstractmethod
    def resume_reading(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Sends what is queued, then closes."""

    @abstractmethod
    def abort(self) -> None:
        """Closes now; what is queued is dropped."""


class Receiver(Protocol):
    """What the owner of a Connection gives; all calls come on the loop. None of them may raise."""

    def data_received(self, view: memoryview) -> None:
        """`view` is valid during the call, unless the connection's take_buffer() is called in it."""

    def connection_lost(self, reason: str | None) -> None:
        """Exactly once, last. `reason` is None for an orderly end of stream or our own close."""

    def writable(self) -> None: ...


class Listener(ABC):
    host: str
    port: int
    """The bound port, the real one when 0 was asked for."""

    @abstractmethod
    def close(self) -> None:
        """Stops listening. Accepted connections stay."""


class Environment(ABC):
    """Everything outside the process. One per node, so that many nodes can live in one process."""

    rng: random.Random
    log: FilteringBoundLogger
    """A logger bound to the node; `log.info("event_name", key=value)`."""

    @abstractmethod
    def now_ns(self) -> int:
        """Monotonic."""

    @abstractmethod
    def wall_ms(self) -> int: ...

    @abstractmethod
    async def sleep_until(self, deadline_ns: int) -> None:
        """Returns when now_ns() >= deadline_ns, never earlier."""

    @abstractmethod
    def timeout_at(self, deadline_ns: int) -> AbstractAsyncContextManager[None]:
        """Cancels its body at the deadline and raises TimeoutError then. One of the only two timers there are."""

    @abstractmethod
    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back on the loop at the deadline; returns the function that cancels it. Same clock as sleep_until."""

    @abstractmethod
    def uuid(self) -> Uuid:
        """A new random uuid: not one of the first 100 and not printed with a leading '-'."""

    @abstractmethod
    def listen(self, host: str, port: int, accept: Callable[[Connection], Receiver]) -> Listener:
        """Starts listening at once; "" means all interfaces, port 0 any. Raises ListenFailed."""

    @abstractmethod
    async def connect(
        self, host: str, port: int, accept: Callable[[Connection], Receiver], *, deadline_ns: int
    ) -> Connection:
        """Connects; `accept` gives the receiver before the first data. Raises ConnectFailed, at the deadline too."""

    @abstractmethod
    def log_dir(self, path: str, *, operation_timeout_ns: int) -> LogDir:
        """The directory at an absolute path. Does nothing yet: `attach` is the first operation."""

    @abstractmethod
    def serve_metrics(self, host: str, port: int, collector: Collector) -> Callable[[], None]:
        """Answers Prometheus on its own thread; returns the function that stops it. Raises ListenFailed."""

    @abstractmethod
    def exit(self, code: int) -> NoReturn:
        """Ends the process at once: sockets shut down, directory locks released, then out, stuck threads or not."""
