"""Where the latest batches of the active segment lie, each of them (core).

Consumers and followers that keep up read near the end of a log. For them every batch position is in memory, so that a read
needs no search on disk. Kafka has no counterpart: its sparse index always ends in a short scan. Memory stays bounded: when
the tail has grown to twice its limit, the older half goes and the sparse index serves what lies before `covered_from`.
Easy to get wrong: a batch is found by its *last* offset, because after a gap in the offsets the batch to return is the first
one that ends at or behind the offset asked for.
"""

from array import array
from bisect import bisect_left, bisect_right

TAIL_BATCHES_MAX = 4096


class BatchPositions:
    """The last batches of one segment. Invariant: the three columns have equal length and ascend."""

    __slots__ = ("_first", "_last", "_limit", "_positions", "covered_from")

    covered_from: int
    """Every batch that ends at or behind this offset is listed."""

    def __init__(self, covered_from: int, limit: int = TAIL_BATCHES_MAX) -> None:
        self.covered_from = covered_from
        self._limit = limit
        self._first = array("q")
        self._last = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._last)

    def append(self, first_offset: int, last_offset: int, position: int) -> None:
        """Adds a batch behind all others."""
        self._first.append(first_offset)
        self._last.append(last_offset)
        self._positions.append(position)
        if len(self._last) >= 2 * self._limit:
            self.covered_from = self._last[self._limit - 1] + 1
            for column in (self._first, self._last, self._positions):
                del column[: self._limit]

    def covers(self, offset: int) -> bool:
        """Whether the batch of `offset` would be found here."""
        return offset >= self.covered_from

    def batch_for(self, offset: int) -> tuple[int, int] | None:
        """(first offset, position) of the first batch that ends at or behind `offset`; None behind the last one."""
        found = bisect_left(self._last, offset)
        if found == len(self._last):
            return None
        return self._first[found], self._positions[found]

    def end_of_whole_batches(self, *, size_limit: int, upper_offset: int, segment_size: int) -> int:
        """The greatest batch boundary that is not above `size_limit` and not behind a batch that reaches `upper_offset`.

        May lie before the batch that the caller starts from: then nothing fits.
        """
        readable = bisect_left(self._last, upper_offset)
        end = self._positions[readable] if readable < len(self._positions) else segment_size
        if end <= size_limit:
            return end
        fitting = bisect_right(self._positions, size_limit)
        return self._positions[fitting - 1] if fitting else 0

    def first_end(self, position: int, segment_size: int) -> int:
        """Where the batch that begins at `position` ends."""
        found = bisect_right(self._positions, position)
        return self._positions[found] if found < len(self._positions) else segment_size

    def next_offset_at(self, position: int) -> int | None:
        """The first offset of the batch that begins at `position`; None when none does."""
        found = bisect_left(self._positions, position)
        if found == len(self._positions) or self._positions[found] != position:
            return None
        return self._first[found]

    def truncate_to_position(self, size: int) -> None:
        """Forgets the batches that begin at or behind `size`, the segment's new length."""
        while self._positions and self._positions[-1] >= size:
            for column in (self._first, self._last, self._positions):
                column.pop()
