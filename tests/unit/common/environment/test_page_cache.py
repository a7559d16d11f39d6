"""PageCache reports whether a range of a real file is in the page cache. Skipped if the kernel has no cachestat."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.environment.page_cache import PageCache

MIB = 1 << 20


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """Yields a synced file slightly larger than 4 MiB that is entirely in the page cache."""
    fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(4 * MIB + 100), 0)
    os.fsync(fd)
    if not PageCache().is_resident(fd, 0, 100):
        pytest.skip("this kernel or file system does not answer cachestat and RWF_NOWAIT")
    yield fd
    os.close(fd)


def test_exactly_the_range_counts(fd: int) -> None:
    """A range is resident if each of its pages is. Neighbouring pages do not matter."""
    cache = PageCache()
    assert cache.is_resident(fd, 0, 4 * MIB + 100)
    # Evict a whole 2 MiB, because the kernel evicts large pages whole or not at all.
    os.posix_fadvise(fd, 2 * MIB, 2 * MIB, os.POSIX_FADV_DONTNEED)
    assert cache.is_resident(fd, 1, 2 * MIB - 1)
    assert cache.is_resident(fd, 4 * MIB, 100)
    assert not cache.is_resident(fd, 2 * MIB, 4096)
    assert not cache.is_resident(fd, 2 * MIB - 1, 2)
    assert not cache.is_resident(fd, 0, 4 * MIB + 100)
    assert not cache.is_resident(fd, 4 * MIB - 1, 2)


def test_nothing_and_beyond_the_end(fd: int) -> None:
    """An empty range, a range past the end of the file and a bad descriptor are never resident."""
    cache = PageCache()
    assert not cache.is_resident(fd, 0, 0)
    assert not cache.is_resident(fd, 4 * MIB, 101)
    assert not cache.is_resident(-1, 0, 1)


def test_a_page_that_cannot_be_read_at_once_is_not_resident(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """cachestat counts a page as cached once its read has started. Only RWF_NOWAIT shows that reading it would block."""

    def would_block(*_arguments: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "being read")

    cache = PageCache()
    monkeypatch.setattr(os, "preadv", would_block)
    assert not cache.is_resident(fd, 0, 100)
    assert cache.read(fd, 0, 100) is None


def test_pages_that_are_missing_are_not_fetched(fd: int) -> None:
    """RWF_NOWAIT starts the read of a missing page, and starting a read can wait for a disk that hangs. So the range is
    counted first: a page that is missing before the call must be missing after it."""
    cache = PageCache()
    # Evict a whole 2 MiB, because the kernel evicts large pages whole or not at all.
    os.posix_fadvise(fd, 2 * MIB, 2 * MIB, os.POSIX_FADV_DONTNEED)
    for position, size in ((2 * MIB, 1), (2 * MIB - 1, 2), (3 * MIB, 4096), (0, 4 * MIB + 100)):
        assert cache.read(fd, position, size) is None
        assert not cache.is_resident(fd, position, size)
    for position in range(2 * MIB, 4 * MIB, 4096):
        assert not cache.is_cached(fd, position, 1)
    assert cache.read(fd, 2 * MIB - 10, 10) == bytearray(10)


def test_a_kernel_without_the_call(fd: int) -> None:
    """Any error of the system call means that the range is not resident."""
    cache = PageCache()
    cache._syscall = lambda *_: -1  # type: ignore[assignment]
    assert not cache.is_resident(fd, 0, 100)
    assert cache.read(fd, 0, 100) is None
