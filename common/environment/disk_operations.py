"""The blocking system calls on one log directory, made by its own threads (shell).

1. Nothing here may run on the event loop, except `count_device_writes` and `release_lock_now`.
2. Every file is opened relative to the directory's descriptor, which `attach` opens once. If a mount vanishes or is swapped,
   no write goes to the other directory that is then at the path.
3. A failed fsync is final whatever its errno is. It is raised as `FsyncFailed`, so that the caller of a multi-step operation
   knows that the fsync step failed.
4. Never use mmap: on a dead XFS it raises SIGBUS.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from typing import Final

from common.environment.interface import DirectoryEntry, FileStat, LogDirLocked, NewFolder, SpaceStat
from common.environment.process import ProcessResources
from common.parts import Buffer
from common.time_units import NS_PER_MS

LOCK_FILE: Final = ".lock"
PROBE_FILE: Final = ".diskraft-probe"
BUFFERS_PER_WRITE_MAX: Final = 1024  # Linux's IOV_MAX.
# The most that one call writes where the progress of a large write matters.
WRITE_BYTES_MAX: Final = 1024 * 1024
_PROBE_SIZE: Final = 4096
_FINISHED_WRITES: Final = (4, 11, 15)
# What counts for a file system whose settings are not in /sys: the most that any is known to take.
_READAHEAD_KB: Final = 4096
_LARGEST_READ_KB: Final = 1024
# The kernel shortens a longer hint to the readahead of the device, which is this much by default.
_BYTES_PER_HINT: Final = 128 * 1024

# Tests replace these functions to make a healthy disk fail.
_pwritev = os.pwritev
_pread = os.pread
_fdatasync = os.fdatasync
_fsync = os.fsync
_ftruncate = os.ftruncate
_open = os.open


class FsyncFailed(OSError):
    """An fsync failed. Whatever its errno, the directory can no longer be trusted."""


class DescribedError(OSError):
    """An error detected by this module, not by the kernel. Its text says more than the errno."""


class HeldDirectory:
    """One log directory, held open by its descriptor. Only the threads of a LogDir use it, except where a
    method says otherwise."""

    def __init__(self, path: str, process: ProcessResources) -> None:
        self.path = path
        # The descriptor of the directory. Open from `attach` to `close_everything`, -1 otherwise.
        self.dir_fd = -1
        self._process = process
        # (device, inode) of the directory that `attach` opened.
        self._identity = (-1, -1)
        # How far beyond the end of a read the kernel may read ahead. Set by `attach`.
        self.readahead_bytes = 0
        # The descriptor of `.lock`. Open from `lock` to `close_everything`, -1 otherwise. `release_lock_now` leaves it open.
        self._lock_fd = -1
        # Whether this object holds the lock or is taking it. Invariant: while True, `held_locks` of the process maps
        # `_identity` to this object's `release_lock_now`.
        self._locked = False
        # The descriptors of all open data files. Only the code that removes a descriptor from here closes it, so none is
        # closed twice.
        self._open_files: dict[int, None] = {}

    # --- the directory itself ------------------------------------------------------------------------------------
    def attach(self, *, create: bool) -> None:
        if create:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
        self.dir_fd = _open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held = os.fstat(self.dir_fd)
        self._identity = (held.st_dev, held.st_ino)
        self.readahead_bytes = _readahead_bytes(held.st_dev)

    def count_device_writes(self) -> int | None:
        """Returns how many writes, discards and flushes the block device of the directory has finished, None if the kernel
        does not count them for this file system. Never waits for the disk, so the event loop may call it."""
        device, _ = self._identity
        if device < 0:
            return None
        try:
            with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat", "rb") as counters:
                counts = counters.read().split()
        except OSError:
            return None
        # The fields of Linux's Documentation/block/stat.rst: write I/Os, and since 4.18 and 5.5 discard and flush I/Os.
        return sum(int(counts[field]) for field in _FINISHED_WRITES if field < len(counts))

    def lock(self) -> None:
        dir_fd = self._held_fd()
        if self._locked:
            return
        # Look for another node of this process before opening `.lock`: closing our descriptor of the file would drop that
        # node's lock.
        if self._process.held_locks.setdefault(self._identity, self.release_lock_now) != self.release_lock_now:
            raise LogDirLocked(f"{self.path} is in use by another node of this process")
        self._locked = True
        try:
            self._lock_fd = _open(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=dir_fd)
            self._take_lock()
        except (OSError, LogDirLocked):
            self._close_lock()
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.lockf(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LogDirLocked(f"{self.path} is in use by another process") from error
            raise

    def release_lock_now(self) -> None:
        """Releases the lock without a call that reaches the disk, so `.lock` stays open. May be called from any thread."""
        if self._locked:
            self._locked = False
            if self._lock_fd >= 0:
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._lock_fd, fcntl.LOCK_UN)
            self._process.held_locks.pop(self._identity, None)

    def _close_lock(self) -> None:
        self.release_lock_now()
        if self._lock_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._lock_fd)
            self._lock_fd = -1

    def close_everything(self) -> None:
        """Closes all descriptors, `.lock` and the directory last. Ignores errors, because they no longer matter."""
        while self._open_files:
            fd, _ = self._open_files.popitem()
            with contextlib.suppress(OSError):
                os.close(fd)
        self._close_lock()
        if self.dir_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self.dir_fd)
            self.dir_fd = -1

    def _held_fd(self) -> int:
        if self.dir_fd < 0:
            raise DescribedError(errno.EBADF, "not attached")
        return self.dir_fd

    def _check_identity(self) -> None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError as error:
            raise DescribedError(errno.ESTALE, "the path is gone") from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise DescribedError(errno.ESTALE, "another directory is at this path")

    def probe(self) -> None:
        """Writes a small file, and reads it back without the page cache. Finds persistent write faults and read faults.

        Listing the directory or calling statvfs would find neither kind of fault.
        """
        dir_fd = self._held_fd()
        self._check_identity()
        temporary = PROBE_FILE + ".tmp"
        content = os.urandom(_PROBE_SIZE)
        fd = _open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644, dir_fd=dir_fd)
        try:
            write_all(fd, 0, (content,), len(content))
            sync_all(fd)
            os.rename(temporary, PROBE_FILE, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            if self._read_around_cache(PROBE_FILE) != content:
                raise DescribedError(errno.EIO, "the probe read back other bytes than it wrote")
        finally:
            os.close(fd)
        os.unlink(PROBE_FILE, dir_fd=dir_fd)

    def read_around_cache(self, name: str) -> None:
        """Reads the beginning of a file without the page cache, if there is such a file."""
        with contextlib.suppress(FileNotFoundError):
            self._read_around_cache(name)

    def _read_around_cache(self, name: str) -> bytes:
        try:
            return self._read_directly(name)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        # The file system has no direct I/O (tmpfs), or none of so few bytes. Drop the clean pages from the cache and read
        # normally.
        fd = _open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._held_fd())
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return _pread(fd, _PROBE_SIZE, 0)
        finally:
            os.close(fd)

    def _read_directly(self, name: str) -> bytes:
        fd = _open(name, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC, dir_fd=self._held_fd())
        try:
            aligned = _aligned_buffer(_PROBE_SIZE)
            size = os.preadv(fd, (aligned,), 0)
            return bytes(aligned[:size])
        finally:
            os.close(fd)

    def statvfs(self) -> SpaceStat:
        found = os.fstatvfs(self._held_fd())
        return SpaceStat(
            total_bytes=found.f_frsize * found.f_blocks,
            usable_bytes=found.f_frsize * found.f_bavail,
            free_inodes=found.f_favail,
        )

    # --- files ---------------------------------------------------------------------------------------------------
    def open_file(self, name: str, *, create: bool) -> tuple[int, int]:
        """Opens a file and returns its descriptor and its size."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            # Without O_NOATIME even a cached read may start a journal transaction for the access time. On a hung disk, that
            # would block the event loop.
            fd = _open(name, flags | os.O_NOATIME, 0o644, dir_fd=self._held_fd())
        except PermissionError:
            fd = _open(name, flags, 0o644, dir_fd=self._held_fd())
        self._open_files[fd] = None
        # Disable read-ahead: a page that is still being read counts as cached, and sendfile would block the event loop.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd, os.fstat(fd).st_size

    def close_file(self, fd: int) -> None:
        if fd in self._open_files:
            del self._open_files[fd]
            with contextlib.suppress(OSError):
                os.close(fd)

    def read_file(self, name: str, last: int | None) -> bytes | None:
        try:
            fd = _open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._held_fd())
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            size = os.fstat(fd).st_size
            position = 0 if last is None else max(size - last, 0)
            return read_range(fd, position, size - position)
        finally:
            os.close(fd)

    def replace_file(self, name: str, content: bytes | Callable[[], bytes]) -> None:
        if not isinstance(content, bytes):
            content = content()
        dir_fd = self._held_fd()
        temporary = name + ".tmp"
        fd = _open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644, dir_fd=dir_fd)
        try:
            write_all(fd, 0, (content,), len(content))
            sync_all(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        self.fsync_dir(name.rpartition("/")[0])

    # --- names ---------------------------------------------------------------------------------------------------
    def mkdir(self, name: str) -> None:
        os.mkdir(name, 0o755, dir_fd=self._held_fd())

    def rename(self, old: str, new: str) -> None:
        fd = self._held_fd()
        os.rename(old, new, src_dir_fd=fd, dst_dir_fd=fd)

    def fsync_dir(self, name: str) -> None:
        fd = self._open_folder(name)
        try:
            sync_all(fd)
        finally:
            os.close(fd)

    def create_folders(self, folders: Sequence[NewFolder]) -> list[str]:
        """Creates the folders with their files, or returns the names of those that exist."""
        dir_fd = self._held_fd()
        existing = [folder.name for folder in folders if self.stat(folder.name) is not None]
        if existing:
            return existing
        for folder in folders:
            os.mkdir(folder.name, 0o755, dir_fd=dir_fd)
            for name, content in folder.files.items():
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                fd = _open(f"{folder.name}/{name}", flags, 0o644, dir_fd=dir_fd)
                try:
                    write_all(fd, 0, (content,), len(content))
                finally:
                    os.close(fd)
        return []

    def fsync_folders(self, names: Sequence[str]) -> None:
        """Syncs the folders with their files, then the directory."""
        with contextlib.ExitStack() as stack:
            opened = []
            for name in names:
                folder_fd = self._open_folder(name)
                stack.callback(os.close, folder_fd)
                for entry in os.listdir(folder_fd):
                    fd = _open(entry, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder_fd)
                    stack.callback(os.close, fd)
                    # An empty file has nothing to sync but its name, which is in the folder.
                    if os.fstat(fd).st_size:
                        # Begins to write the dirty pages, and does not wait. So the file system gives all files their blocks
                        # now, and the first sync commits that for all of them. Otherwise each sync would commit once more.
                        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                        opened.append(fd)
                opened.append(folder_fd)
            for fd in opened:
                sync_all(fd)
        self.fsync_dir("")

    def list_folder(self, name: str) -> list[DirectoryEntry]:
        fd = self._open_folder(name)
        try:
            with os.scandir(fd) as entries:
                found = [DirectoryEntry(entry.name, entry.is_dir()) for entry in entries]
        finally:
            os.close(fd)
        return sorted(found, key=lambda entry: entry.name)

    def stat(self, name: str) -> FileStat | None:
        try:
            found = os.stat(name, dir_fd=self._held_fd())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(found.st_size, found.st_mtime_ns // NS_PER_MS, stat.S_ISDIR(found.st_mode))

    def remove(self, name: str) -> None:
        _remove(name, self._held_fd())

    def _open_folder(self, name: str) -> int:
        # Open the directory itself again, as ".". Listing it through the held descriptor would move that descriptor's read
        # position.
        return _open(name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._held_fd())


# --- calls on one descriptor -------------------------------------------------------------------------------------
def write_all(
    fd: int,
    position: int,
    buffers: Sequence[Buffer],
    size: int,
    on_progress: Callable[[], None] | None = None,
) -> None:
    """Writes all buffers, `size` bytes in total, at `position`. If a call fails after others wrote something, truncates the
    file to `position`.

    With `on_progress`, writes at most WRITE_BYTES_MAX at a time, and calls it each time when that much has been written."""
    start, end = position, position + size
    try:
        while position < end:
            group = buffers if len(buffers) <= BUFFERS_PER_WRITE_MAX else buffers[:BUFFERS_PER_WRITE_MAX]
            written = _pwritev(fd, group if on_progress is None else _first_part(group), position)
            position += written
            if not written:
                raise DescribedError(errno.EIO, "the write took nothing and gave no error")
            if on_progress is not None:
                on_progress()
            if position < end:
                # One call may write less than requested: a nearly full disk takes part of a write without an error, and only
                # the next write gets ENOSPC.
                buffers = _after(buffers, written)
    except OSError:
        if position > start:
            with contextlib.suppress(OSError):
                _ftruncate(fd, start)
        raise


def _after(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """Returns the buffers without the first `size` bytes."""
    for number, buffer in enumerate(buffers):
        view = memoryview(buffer).cast("B")
        if size < view.nbytes:
            return [view[size:], *buffers[number + 1 :]]
        size -= view.nbytes
    return []


def _first_part(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Returns the first WRITE_BYTES_MAX of the buffers, or all if they are not as large."""
    part: list[Buffer] = []
    room = WRITE_BYTES_MAX
    for buffer in buffers:
        view = memoryview(buffer)
        if view.nbytes > room:
            part.append(view.cast("B")[:room])
            break
        part.append(buffer)
        room -= view.nbytes
    return part


def read_range(fd: int, position: int, size: int) -> bytes:
    """Reads `size` bytes, fewer only at the end of the file."""
    data = _pread(fd, size, position)
    if len(data) == size or not data:
        return data
    pieces = [data]
    missing = size - len(data)
    while missing and (data := _pread(fd, missing, position + size - missing)):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


def examine_range(fd: int, position: int, size: int, examination: Callable[[bytes], object]) -> object:
    """Reads as `read_range` does, and returns what `examination` makes of the bytes."""
    return examination(read_range(fd, position, size))


def read_and_bring_in(read: Callable[[], object], fd: int, position: int, size: int) -> object:
    """Does the read and returns its result. Starts the reads of those pages of the range that are not in the page cache."""
    result = read()
    # Only a hint. If the disk fails, a read will say so.
    with contextlib.suppress(OSError):
        for start in range(position, position + size, _BYTES_PER_HINT):
            os.posix_fadvise(fd, start, min(_BYTES_PER_HINT, position + size - start), os.POSIX_FADV_WILLNEED)
    return result


def truncate(fd: int, size: int) -> None:
    """Sets the size of the file."""
    _ftruncate(fd, size)


def sync_data(fd: int) -> None:
    """Calls fdatasync, which also syncs a changed file size."""
    try:
        _fdatasync(fd)
    except OSError as error:
        raise FsyncFailed(error.errno, error.strerror) from error


def sync_and_forget(fd: int) -> None:
    """Calls sync_data, then drops the file from the page cache. The kernel only drops clean pages, so the order matters."""
    sync_data(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_all(fd: int) -> None:
    """Calls fsync. Used for new files and for folders."""
    try:
        _fsync(fd)
    except OSError as error:
        raise FsyncFailed(error.errno, error.strerror) from error


def _remove(name: str, dir_fd: int) -> None:
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=dir_fd).st_mode):
            os.unlink(name, dir_fd=dir_fd)
            return
        fd = _open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            for entry in os.listdir(fd):
                _remove(entry, fd)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        # The file or folder is already gone, which is what the caller wanted.
        return


def _readahead_bytes(device: int) -> int:
    """Returns how far beyond a page the kernel may read ahead when that page is read: what is left of the current window,
    which is as large as the largest read where a program asked for that much, and the next window."""
    number = f"{os.major(device)}:{os.minor(device)}"
    # A disk, a partition of one, and a file system without a block device.
    folders = f"/sys/dev/block/{number}/queue", f"/sys/dev/block/{number}/../queue", f"/sys/class/bdi/{number}"
    readahead_kb = _setting(folders, "read_ahead_kb", _READAHEAD_KB)
    largest_read_kb = _setting(folders, "max_sectors_kb", _LARGEST_READ_KB)
    return (max(readahead_kb, largest_read_kb) + readahead_kb) * 1024


def _setting(folders: Sequence[str], name: str, default: int) -> int:
    for folder in folders:
        with contextlib.suppress(OSError, ValueError), open(f"{folder}/{name}", "rb") as file:
            return int(file.read())
    return default


def _aligned_buffer(size: int) -> memoryview:
    # Direct I/O needs memory aligned to the block size. An anonymous mmap would be aligned too, but this module never uses
    # mmap.
    raw = bytearray(2 * size)
    skip = -ctypes.addressof(ctypes.c_char.from_buffer(raw)) % size
    return memoryview(raw)[skip : skip + size]
