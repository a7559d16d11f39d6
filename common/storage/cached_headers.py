"""Walks through the headers of a few batches that are in the page cache (shell).

A search for an old record begins at the batch that the sparse index names, a few kilobytes before the record. On the reader
thread that takes two turns of the event loop for each read; here it takes none. Everything unusual is left to `HeaderScan`,
which reports it: pages that are not in the cache, damaged batches, an index of other batches, and searches that take more
than a few reads, for the event loop must not stand still.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from common.environment.interface import LogDir, LogFile
from common.records.batch import BATCH_OVERHEAD, CURRENT_MAGIC, LOG_OVERHEAD

# Twice Kafka's default of index.interval.bytes, so that one read usually finds a batch that follows an indexed one.
PIECE: Final = 8 * 1024
PIECES_MAX: Final = 4

# The parts of a header that a search needs: base offset, batch length, magic, last offset delta.
_LAYOUT: Final = struct.Struct(">qi4xb6xi")


class NotCached(Exception):
    """The headers cannot be read here. The caller searches on the reader thread."""


class CachedBatch(NamedTuple):
    """What a header says about its batch, and where it is."""

    base_offset: int
    last_offset: int
    position: int
    size: int


def cached_headers(
    log_dir: LogDir, file: LogFile, position: int, end: int, *, offset: int, first_ends_at: int | None
) -> Iterator[CachedBatch]:
    """Yields the batches from `position`, a batch boundary, to `end`, except those that end before `offset`. If an index
    gave the position, `first_ends_at` is the last offset of the batch there, according to the index. Raises NotCached."""
    expected = first_ends_at
    unpack_from = _LAYOUT.unpack_from
    for _ in range(PIECES_MAX):
        start = position
        piece = log_dir.read_cached(file, start, min(PIECE, end - start))
        if piece is None:
            raise NotCached
        # The last place where a header is whole.
        last_start = start + len(piece) - BATCH_OVERHEAD
        while position <= last_start:
            base_offset, length, magic, delta = unpack_from(piece, position - start)
            size = length + LOG_OVERHEAD
            if magic != CURRENT_MAGIC or delta < 0 or not BATCH_OVERHEAD <= size <= end - position:
                raise NotCached
            last_offset = base_offset + delta
            if expected is not None:
                if last_offset > expected:
                    raise NotCached
                expected = None
            if last_offset >= offset:
                yield CachedBatch(base_offset, last_offset, position, size)
            position += size
        if position >= end:
            return
    raise NotCached
