"""Counts how many bytes of a partition became readable, for fetches that wait for min.bytes (core).

Kafka subtracts the positions of two offsets in the log instead. Here no position is known without a search, so the bytes are
counted as they are written, and again when the high watermark and the last stable offset pass them.

An offset may advance inside of what is counted as one write: several batches of one request, or all that a log held when it
was loaded. How many bytes it has passed is then unknown, so all bytes of that write count, each time. A fetch may then be
answered with fewer bytes than min.bytes. Otherwise it would wait until its deadline although its records are there.
"""

from collections import deque
from enum import Enum, auto
from typing import Final

from common.ids import Offset

# While a replica in the ISR has stopped, or a transaction is open, everything that is written is counted write by write.
# With more entries than this, neighbours are counted as one write.
ENTRIES_MAX: Final = 1024
# Stands for the bytes of which only the offsets are known: no min.bytes is larger.
UNKNOWN_SIZE: Final = 1 << 31

_ZERO = Offset(0)


class ReadIsolation(Enum):
    """Up to where a client reads: the log end, the high watermark, or the last stable offset. Kafka's FetchIsolation."""

    LOG_END = auto()
    HIGH_WATERMARK = auto()
    TXN_COMMITTED = auto()


class ReadableBytes:
    """Running counts of bytes. Only the difference between two readings of one count has a meaning: it is at least the
    number of bytes that became readable in between. Invariant: no count decreases."""

    __slots__ = ("_committed", "_stable", "_written")

    def __init__(self) -> None:
        self._written = 0
        self._committed = _PassedBytes()
        self._stable = _PassedBytes()

    def of(self, isolation: ReadIsolation) -> int:
        """Returns the count of bytes that clients with this isolation may read."""
        match isolation:
            case ReadIsolation.LOG_END:
                return self._written
            case ReadIsolation.HIGH_WATERMARK:
                return self._committed.count
            case ReadIsolation.TXN_COMMITTED:
                return self._stable.count

    def restart(self, *, log_end_offset: Offset, high_watermark: Offset, last_stable_offset: Offset) -> None:
        """Starts again with a log of which only these offsets are known."""
        self._committed.restart(high_watermark, log_end_offset)
        self._stable.restart(last_stable_offset, log_end_offset)

    def written(self, end_offset: Offset, size: int) -> None:
        """Notes that the log is written up to `end_offset`."""
        self._written += size
        entry = end_offset, size
        self._committed.written(entry)
        self._stable.written(entry)

    def advanced(self, *, high_watermark: Offset, last_stable_offset: Offset) -> None:
        """Notes that one of the two offsets may have advanced."""
        self._committed.advanced(high_watermark)
        self._stable.advanced(last_stable_offset)


class _PassedBytes:
    """Counts the bytes that one offset has passed."""

    __slots__ = ("_ahead", "_end_offset", "_passed", "count")

    def __init__(self) -> None:
        self.count = 0
        # How far the bytes are counted. Invariant: at most `_end_offset`, up to which the log is written.
        self._passed = self._end_offset = _ZERO
        # (end offset, size) of each write that ends beyond `_passed`, ascending. The first one may begin below it.
        self._ahead: deque[tuple[Offset, int]] = deque()

    def restart(self, passed: Offset, log_end_offset: Offset) -> None:
        self._passed, self._end_offset = passed, log_end_offset
        self._ahead.clear()
        if passed < log_end_offset:
            self._ahead.append((log_end_offset, UNKNOWN_SIZE))

    def written(self, entry: tuple[Offset, int]) -> None:
        self._end_offset = entry[0]
        self._ahead.append(entry)
        if len(self._ahead) > ENTRIES_MAX:
            self._ahead = _thinned(self._ahead)

    def advanced(self, offset: Offset) -> None:
        """Counts the writes between the last offset and this one, also those that are only partly there."""
        passed = self._passed
        # The offset may be ahead of the writes that were noted. And it may be below what it has passed: while a log is
        # truncated below its high watermark, a transaction may be open again, until `restart`.
        offset = min(offset, self._end_offset)
        if offset <= passed:
            return
        self._passed = offset
        while self._ahead and self._ahead[0][0] <= offset:
            passed, size = self._ahead.popleft()
            self.count += size
        if offset > passed:
            self.count += self._ahead[0][1]


def _thinned(entries: deque[tuple[Offset, int]]) -> deque[tuple[Offset, int]]:
    """Returns half of the entries, each of which stands for two neighbours."""
    every = [*entries]
    pairs = zip(every[::2], [*every[1::2], (every[-1][0], 0)], strict=False)
    return deque((second[0], first[1] + second[1]) for first, second in pairs)
