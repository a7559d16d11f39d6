"""Answers whether the loop may sendfile a range without waiting for a disk (shell).

`cachestat` (Linux 6.5) counts the pages of exactly that range which are in the page cache. A page counts from the moment
its read is *started*, so a full count alone is no proof; `preadv2(RWF_NOWAIT)` of the last byte also fails while that page
is being read or the inode is locked. Any doubt, an old kernel or a seccomp filter included, means no: the reader thread
reads instead.
"""

import ctypes
import os
from typing import Final

_SYS_CACHESTAT: Final = 451  # The same number on every architecture.
_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")


class PageCache:
    """The residency check, with buffers of its own. One per environment, used on its loop only."""

    def __init__(self) -> None:
        # PyDLL keeps the interpreter lock: the call takes a microsecond, handing the lock back and forth takes longer.
        self._syscall = ctypes.PyDLL(None).syscall
        self._range = (ctypes.c_uint64 * 2)()  # offset, length
        self._counts = (ctypes.c_uint64 * 5)()  # cached, dirty, writeback, evicted, recently evicted
        self._byte = bytearray(1)

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        """True only if each page of the range is in the cache and the last can be read at once."""
        if size <= 0:
            return False
        self._range[0] = position
        self._range[1] = size
        if self._syscall(_SYS_CACHESTAT, fd, self._range, self._counts, 0) != 0:
            return False
        pages = (position + size - 1) // _PAGE_SIZE - position // _PAGE_SIZE + 1
        if self._counts[0] < pages:
            return False
        try:
            return os.preadv(fd, (self._byte,), position + size - 1, os.RWF_NOWAIT) == 1
        except OSError:
            # EAGAIN: not readable at once. Anything else is for the reader thread to meet and to report.
            return False
