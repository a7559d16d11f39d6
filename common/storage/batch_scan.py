"""Walks through the batches of a segment on disk, piece by piece (shell).

`HeaderScan` reads only headers, for searches in trusted logs. `BatchScan` returns whole batches, for recovery. The size in a
header is only a claim: both scans compare it with the end of the segment before they allocate or read that much.
"""

from typing import Final

from common.environment.interface import LogDir, LogFile
from common.records.batch import BATCH_OVERHEAD, BatchError, BatchHeader, TruncatedBatch, read_header
from common.storage.index_entries import CorruptIndex

HEADER_PIECE: Final = 16 * 1024
BATCH_PIECE: Final = 1024 * 1024


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
        if found is None or found[0].last_offset != expected:
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


class BatchScan:
    """Reads whole batches from `position`, which must be a batch boundary, to `end`; at least `piece` bytes at once."""

    def __init__(self, log_dir: LogDir, file: LogFile, *, position: int, end: int, piece: int = BATCH_PIECE) -> None:
        self._piece_bytes = min(max(piece, BATCH_OVERHEAD), BATCH_PIECE)
        self._log_dir = log_dir
        self._file = file
        self._position = position
        self._end = end
        self._piece = memoryview(b"")
        self._piece_start = position

    async def next(self) -> tuple[BatchHeader, memoryview, int] | None:
        """Returns the next header, batch and position, None at the end. Raises BatchError if the bytes are not a batch."""
        position = self._position
        left = self._end - position
        if left <= 0:
            return None
        if position + BATCH_OVERHEAD > self._piece_end:
            await self._load(self._piece_bytes)
        header = read_header(self._piece, position - self._piece_start)
        if header.size > left:
            raise TruncatedBatch(f"the batch at {position} claims {header.size} bytes, {left} are left")
        if position + header.size > self._piece_end:
            await self._load(max(self._piece_bytes, header.size))
        start = position - self._piece_start
        view = self._piece[start : start + header.size]
        self._position = position + header.size
        return header, view, position

    @property
    def _piece_end(self) -> int:
        return self._piece_start + len(self._piece)

    async def _load(self, size: int) -> None:
        # Read in pieces, because each read has a deadline. A damaged header can claim so many bytes that a single read
        # would miss the deadline on a slow disk. The whole directory would then go offline, although only this log needs
        # truncating.
        end = min(self._position + size, self._end)
        pieces = [
            await self._log_dir.read(self._file, start, min(BATCH_PIECE, end - start))
            for start in range(self._position, end, BATCH_PIECE)
        ]
        self._piece = memoryview(b"".join(pieces))
        self._piece_start = self._position
