"""Counts how many bytes of a partition became readable, for fetches that wait for min.bytes (core).

Kafka subtracts the positions of two offsets in the log instead. Here no position is known without a search, so the bytes are
counted as they are written, and again when the high watermark and the last stable offset pass them.
"""

from collections import deque
from enum import Enum, auto
from typing import Final

from common.ids import Offset

# While a replica in the ISR has stopped, or a transaction is open, everything that is written is counted write by write.
# With more entries than this, neighbours are counted together. A fetch may then be answered with fewer bytes than min.bytes.
ENTRIES_MAX: Final = 1024


class ReadIsolation(Enum):
    """Up to where a client reads: the log end, the high watermark, or the last stable offset. Kafka's FetchIsolation."""

    LOG_END = auto()
    HIGH_WATERMARK = auto()
    TXN_COMMITTED = auto()


class ReadableBytes:
    """Running counts of bytes. Invariant: no count decreases, and stable <= committed <= written. Only the difference
    between two readings of a count has a meaning."""

    __slots__ = ("_committed", "_stable", "_uncommitted", "_unstable", "_written")

    def __init__(self) -> None:
        self._written = self._committed = self._stable = 0
        # (end offset, count of written bytes at that offset) of each write that ends above the high watermark, ascending.
        self._uncommitted: deque[tuple[Offset, int]] = deque()
        # The same for writes that end at or below the high watermark and above the last stable offset.
        self._unstable: deque[tuple[Offset, int]] = deque()

    def of(self, isolation: ReadIsolation) -> int:
        """Returns the count of bytes that clients with this isolation may read."""
        match isolation:
            case ReadIsolation.LOG_END:
                return self._written
            case ReadIsolation.HIGH_WATERMARK:
                return self._committed
            case ReadIsolation.TXN_COMMITTED:
                return self._stable

    def restart(self, *, log_end_offset: Offset, high_watermark: Offset, last_stable_offset: Offset) -> None:
        """Restarts the counts. All that is written but not committed counts as one byte, and so does all that is committed
        but not stable. That is enough for nearly all consumers, because they wait for min.bytes=1."""
        self._uncommitted.clear()
        self._unstable.clear()
        self._stable = self._committed = self._written
        if last_stable_offset < high_watermark:
            self._committed = self._written = self._written + 1
            self._unstable.append((high_watermark, self._committed))
        if high_watermark < log_end_offset:
            self._written += 1
            self._uncommitted.append((log_end_offset, self._written))

    def written(self, end_offset: Offset, size: int) -> None:
        """Notes that the log is written up to `end_offset`."""
        self._written += size
        self._uncommitted.append((end_offset, self._written))
        if len(self._uncommitted) > ENTRIES_MAX:
            self._uncommitted = _thinned(self._uncommitted)

    def advanced(self, *, high_watermark: Offset, last_stable_offset: Offset) -> None:
        """Notes that one of the two offsets may have advanced."""
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            end_offset, self._committed = self._uncommitted.popleft()
            if end_offset <= last_stable_offset and not self._unstable:
                self._stable = self._committed
            else:
                self._add_unstable(end_offset)
        while self._unstable and self._unstable[0][0] <= last_stable_offset:
            self._stable = self._unstable.popleft()[1]

    def _add_unstable(self, end_offset: Offset) -> None:
        self._unstable.append((end_offset, self._committed))
        if len(self._unstable) > ENTRIES_MAX:
            self._unstable = _thinned(self._unstable)


def _thinned(entries: deque[tuple[Offset, int]]) -> deque[tuple[Offset, int]]:
    """Returns half of the entries. The bytes of two neighbours count once the first of them is passed."""
    every = [*entries]
    pairs = zip(every[::2], [*every[1::2], every[-1]], strict=False)
    return deque((first[0], second[1]) for first, second in pairs)
