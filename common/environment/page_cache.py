"""Reads small ranges of files without waiting for a disk, and checks whether sendfile of a large one would wait (shell).

No call here may start a read of the disk on the event loop. On a disk that hangs, even starting one can wait: for a free
slot in the device's queue, or for a block that says where the file's data is.

1. `preadv2(RWF_NOWAIT)` does not wait for a page that is being read, but starts the read of one that is missing. So
   `cachestat` (Linux 6.5), which counts the pages of a range that are in the page cache, must find all of them first.
2. A page counts as soon as its read has *started*, so a full count alone proves nothing. `preadv2(RWF_NOWAIT)` must also
   succeed in reading the last byte: this call fails while that page is being read or the inode is locked.
3. A read of a cached page starts the read of pages after it if an earlier readahead has left its mark on the page. So the
   pages that this readahead would read must be cached as well, as far as the file has them. The caller checks that with
   `is_cached`, because only it knows where the file ends.

After any error, for example from an old kernel or a seccomp filter, the range counts as not resident, and the reader thread
reads it instead.
"""

import ctypes
import os
from typing import Final

_SYS_CACHESTAT: Final = 451  # The same number on every architecture.
_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")


class PageCache:
    """Checks residency. Each environment has one PageCache. Call it only on the event loop, because all calls share
    buffers."""

    def __init__(self) -> None:
        # PyDLL keeps the GIL. The call takes a microsecond; releasing and reacquiring the GIL would take longer.
        self._syscall = ctypes.PyDLL(None).syscall
        self._range = (ctypes.c_uint64 * 2)()  # offset, length
        self._counts = (ctypes.c_uint64 * 5)()  # cached, dirty, writeback, evicted, recently evicted
        self._byte = bytearray(1)

    def read(self, fd: int, position: int, size: int) -> bytearray | None:
        """Returns the bytes of the range, or None if reading all of them might block or fails."""
        if not self.is_cached(fd, position, size):
            return None
        data = bytearray(size)
        try:
            return data if os.preadv(fd, (data,), position, os.RWF_NOWAIT) == size else None
        except OSError:
            # As in `is_resident`.
            return None

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        """Returns whether every page of the range is in the cache and the last one can be read without blocking."""
        if not self.is_cached(fd, position, size):
            return False
        try:
            return os.preadv(fd, (self._byte,), position + size - 1, os.RWF_NOWAIT) == 1
        except OSError:
            # EAGAIN means that reading would block. Any other error will recur on the reader thread, which reports it.
            return False

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        """Returns whether every page of the range is in the cache or is being read."""
        return size > 0 and self.missing_share(fd, position, size) == 0

    def missing_share(self, fd: int, position: int, size: int) -> float:
        """Returns the share of the range's pages that are neither in the cache nor being read; 1 after an error. `size` is
        above 0."""
        self._range[0] = position
        self._range[1] = size
        if self._syscall(_SYS_CACHESTAT, fd, self._range, self._counts, 0) != 0:
            return 1
        pages = (position + size - 1) // _PAGE_SIZE - position // _PAGE_SIZE + 1
        return max(0, pages - self._counts[0]) / pages
