"""Walks through the batches of a segment on disk, piece by piece (shell).

`HeaderScan` reads only headers, for searches in trusted logs. `BatchScan` returns whole batches, checked, for recovery and
compaction. The size in a header is only a claim: both scans compare it with the end of the segment before they allocate or
read that much.
"""

from typing import Final

from common.environment.interface import LogDir, LogFile
from common.records.batch import (
    BATCH_OVERHEAD,
    BatchError,
    BatchHeader,
    TruncatedBatch,
    find_intact_batches,
    read_header,
    validate_integrity,
)
from common.storage.index_entries import CorruptIndex

HEADER_PIECE: Final = 16 * 1024
# The event loop handles the batches of a piece in one step, and small ones cost it several microseconds each.
BATCH_PIECE: Final = 256 * 1024


class HeaderScan:
    """Reads the batch headers from `position`, which must be a batch boundary, to `end`, in reads of `piece_size`.

    If an index gave the position, `first_ends_at` is the last offset of the batch there, according to the index."""

    def __init__(
        self,
        log_dir: LogDir,
        file: LogFile,
        *,
        position: int,
        end: int,
        piece_size: int = HEADER_PIECE,
        first_ends_at: int | None = None,
    ) -> None:
        self._piece_size = piece_size
        # None once the first header was compared.
        self._first_ends_at = first_ends_at
        self._log_dir = log_dir
        self._file = file
        self._position = position
        self._end = end
        self._piece = b""
        self._piece_start = position

    async def next(self) -> tuple[BatchHeader, int] | None:
        """Returns the next header and its position, None at the end. Raises BatchError if the bytes are not a batch, and
        CorruptIndex if the first batch is not the one that the index names."""
        if self._first_ends_at is None:
            return await self._next()
        expected, self._first_ends_at = self._first_ends_at, None
        try:
            found = await self._next()
        except BatchError as error:
            raise CorruptIndex(f"there is no batch at {self._position}") from error
        if found is None or found[0].last_offset > expected:
            raise CorruptIndex(f"the batch at {self._position} does not end at {expected}")
        return found

    async def _next(self) -> tuple[BatchHeader, int] | None:
        position = self._position
        if position >= self._end:
            return None
        if position + BATCH_OVERHEAD > self._piece_start + len(self._piece):
            self._piece = await self._log_dir.read(self._file, position, min(self._piece_size, self._end - position))
            self._piece_start = position
        header = read_header(self._piece, position - self._piece_start)
        if header.size > self._end - position:
            raise TruncatedBatch(f"the batch at {position} claims {header.size} bytes, {self._end - position} are left")
        self._position = position + header.size
        return header, position

    async def batch(self, header: BatchHeader, position: int) -> bytes | memoryview:
        """Returns the whole batch that `next` returned last. It is read only if it does not end in the same piece."""
        start = position - self._piece_start
        if start + header.size <= len(self._piece):
            return memoryview(self._piece)[start : start + header.size]
        return await self._log_dir.read(self._file, position, header.size)


class BatchScan:
    """Reads the whole batches of a segment with a right checksum, up to `end`.

    It reads `piece` bytes at once, and more where a single batch is larger. Headers are parsed and checksums computed where
    the bytes are read, on the directory's thread.
    """

    def __init__(self, log_dir: LogDir, file: LogFile, *, end: int, piece: int = BATCH_PIECE) -> None:
        self._piece_bytes = min(max(piece, BATCH_OVERHEAD), BATCH_PIECE)
        self._log_dir = log_dir
        self._file = file
        self._position = 0
        self._end = end
        # The batches at `position` that are read and checked, the last one first.
        self._found: list[tuple[BatchHeader, memoryview]] = []

    async def next(self) -> tuple[BatchHeader, memoryview, int] | None:
        """Returns the next header, batch and position, None at the end. Raises BatchError if the bytes are not an intact
        batch."""
        position = self._position
        if position >= self._end:
            return None
        if not self._found:
            size = min(self._piece_bytes, self._end - position)
            self._found = (await self._log_dir.examine(self._file, position, size, find_intact_batches))[::-1]
        # Without any, the batch is damaged, or larger than the piece.
        header, view = self._found.pop() if self._found else await self._read_one(position)
        self._position = position + header.size
        return header, view, position

    async def _read_one(self, position: int) -> tuple[BatchHeader, memoryview]:
        left = self._end - position
        header = read_header(await self._log_dir.read(self._file, position, min(BATCH_OVERHEAD, left)), 0)
        if header.size > left:
            raise TruncatedBatch(f"the batch at {position} claims {header.size} bytes, {left} are left")
        # Read in pieces, because each read has a deadline. A damaged header can claim so many bytes that a single read
        # would miss the deadline on a slow disk. The whole directory would then go offline, although only this log needs
        # truncating.
        end = position + header.size
        pieces = [
            await self._log_dir.read(self._file, start, min(BATCH_PIECE, end - start))
            for start in range(position, end, BATCH_PIECE)
        ]
        view = memoryview(b"".join(pieces))
        validate_integrity(header, view)
        return header, view
