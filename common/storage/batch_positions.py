"""The position of every recent batch of the active segment (core).

Consumers and followers that keep up read near the end of a log. All batch positions there are in memory, so such a read
needs no search on disk. Kafka has no counterpart: its sparse index always ends in a short scan. Memory is bounded: when the
tail has grown to twice its limit, the older half is dropped and the sparse index serves the offsets below `covered_from`.
Batches are found by their *last* offset: if the requested offset falls into a gap, the read returns the first batch that
ends after the gap.
"""

from array import array
from bisect import bisect_left, bisect_right

TAIL_BATCHES_MAX = 4096


class BatchPositions:
    """The last batches of one segment. Invariant: the three columns have equal length and ascend."""

    __slots__ = ("_first", "_last", "_limit", "_positions", "covered_from")

    covered_from: int
    """Every batch that ends at or after this offset is listed. Rises when the older half is dropped."""

    def __init__(self, covered_from: int, limit: int = TAIL_BATCHES_MAX) -> None:
        self.covered_from = covered_from
        self._limit = limit
        self._first = array("q")
        self._last = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._last)

    def append(self, first_offset: int, last_offset: int, position: int) -> None:
        """Adds a batch after all others."""
        self._first.append(first_offset)
        self._last.append(last_offset)
        self._positions.append(position)
        if len(self._last) >= 2 * self._limit:
            self.covered_from = self._last[self._limit - 1] + 1
            for column in (self._first, self._last, self._positions):
                del column[: self._limit]

    def covers(self, offset: int) -> bool:
        """Whether every batch that could hold `offset` is listed here."""
        return offset >= self.covered_from

    def batch_for(self, offset: int) -> tuple[int, int] | None:
        """Returns (first offset, position) of the first batch that ends at or after `offset`; None past the last batch."""
        found = bisect_left(self._last, offset)
        if found == len(self._last):
            return None
        return self._first[found], self._positions[found]

    def end_of_whole_batches(self, *, size_limit: int, upper_offset: int, segment_size: int) -> int:
        """Returns the last batch boundary where a read may end: at or below `size_limit`, and before every batch that
        reaches `upper_offset`.

        Both `size_limit` and the result are positions. If the result is not beyond the start of the read, no batch fits.
        """
        readable = bisect_left(self._last, upper_offset)
        end = self._positions[readable] if readable < len(self._positions) else segment_size
        if end <= size_limit:
            return end
        fitting = bisect_right(self._positions, size_limit)
        return self._positions[fitting - 1] if fitting else 0

    def first_end(self, position: int, segment_size: int) -> int:
        """Returns the end position of the batch that starts at `position`."""
        found = bisect_right(self._positions, position)
        return self._positions[found] if found < len(self._positions) else segment_size

    def next_offset_at(self, position: int) -> int | None:
        """Returns the first offset of the batch that starts at `position`, None if no batch starts there."""
        found = bisect_left(self._positions, position)
        if found == len(self._positions) or self._positions[found] != position:
            return None
        return self._first[found]
