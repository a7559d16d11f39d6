"""The sparse offset index of one segment, which maps an offset to a nearby position (core).

Counterpart of Kafka's OffsetIndex. A file entry has 8 bytes: the offset relative to the segment's base offset, and the
position in the segment. An entry pairs the *last* offset of a batch with the position where that batch *starts*. The batch
found for an offset may therefore end before that offset; the search continues forward from that batch. There is about one
entry per index.interval.bytes, never one for the first batch. Without entries, the search starts at position 0.
"""

import sys
from array import array
from bisect import bisect_right
from itertools import islice
from operator import lt

ENTRY_SIZE = 8


class CorruptIndex(Exception):
    """The content cannot be an index of this segment. The index must be rebuilt from the segment."""


class OffsetIndex:
    """The entries of one segment. Invariant: relative offsets and positions both ascend strictly."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All entries as (last offset of the batch, position of the batch), ascending."""
        return [
            (self.base_offset + offset, position) for offset, position in zip(self._offsets, self._positions, strict=True)
        ]

    @property
    def last_position(self) -> int:
        """The position of the last indexed batch; 0 without entries."""
        return self._positions[-1] if self._positions else 0

    @property
    def last_offset(self) -> int:
        """The last offset of the last indexed batch; the base offset without entries."""
        return self.base_offset + (self._offsets[-1] if self._offsets else 0)

    def append(self, last_offset: int, position: int) -> None:
        """Adds an entry. `last_offset` and `position` must be higher than in all entries so far."""
        self._offsets.append(last_offset - self.base_offset)
        self._positions.append(position)

    def position_for(self, offset: int) -> int:
        """Returns the position at which to start searching for `offset`: that of a batch at or before the one that holds
        it."""
        found = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[found - 1] if found else 0

    def position_at_or_before(self, position: int) -> int:
        """Returns the largest indexed batch position at or before `position`, 0 if there is none."""
        found = bisect_right(self._positions, position)
        return self._positions[found - 1] if found else 0

    def truncate_to_position(self, size: int) -> None:
        """Drops the entries of batches that start at or beyond `size`, the segment's new length."""
        while self._positions and self._positions[-1] >= size:
            self._positions.pop()
            self._offsets.pop()

    def copy(self) -> "OffsetIndex":
        """Returns an independent index with the same entries."""
        index = OffsetIndex(self.base_offset)
        index._offsets = self._offsets[:]
        index._positions = self._positions[:]
        return index

    def to_bytes(self) -> bytes:
        """Returns the content of the .index file."""
        interleaved = array("i", bytes(len(self._offsets) * ENTRY_SIZE))
        interleaved[0::2] = self._offsets
        interleaved[1::2] = self._positions
        _swap_to_file_order(interleaved)
        return interleaved.tobytes()

    @classmethod
    def from_bytes(cls, content: bytes, *, base_offset: int, end_offset: int, segment_size: int) -> "OffsetIndex":
        """Parses an .index file and checks it against its segment. Raises CorruptIndex."""
        if len(content) % ENTRY_SIZE:
            raise CorruptIndex(f"{len(content)} bytes are no multiple of {ENTRY_SIZE}")
        interleaved = array("i", content)
        _swap_to_file_order(interleaved)
        index = cls(base_offset)
        index._offsets = interleaved[0::2]
        index._positions = interleaved[1::2]
        if not index._offsets:
            return index
        if index._offsets[0] < 0 or index._offsets[-1] >= end_offset - base_offset:
            raise CorruptIndex("its offsets lie outside the segment")
        if index._positions[0] < 0 or index._positions[-1] >= segment_size:
            raise CorruptIndex("its positions lie outside the segment")
        # A crash can leave zeros in a file that was not synced. Zeros do not ascend, so this check finds them.
        if not (_ascends(index._offsets) and _ascends(index._positions)):
            raise CorruptIndex("its entries do not ascend")
        return index


def _ascends(numbers: "array[int]") -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))


def _swap_to_file_order(numbers: "array[int]") -> None:
    """Converts between native and file byte order, in either direction. Files are big-endian."""
    if sys.byteorder == "little":
        numbers.byteswap()
