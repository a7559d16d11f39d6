"""The sparse offset index of one segment, which maps an offset to a nearby position (core).

Counterpart of Kafka's OffsetIndex. A file entry has 8 bytes: the offset relative to the segment's base offset, and the
position in the segment. An entry pairs the *last* offset of a batch with the position where that batch *starts*. The batch
found for an offset may therefore end before that offset; the search continues forward from that batch. There is about one
entry per index.interval.bytes, never one for the first batch. Without entries, the search starts at position 0.

Only the first and the last entry are checked against the segment. A search that begins at an entry compares the batch there
with the entry.
"""

import struct
from typing import NamedTuple

from common.storage.index_entries import CorruptIndex, Entry, SegmentIndex

_LAYOUT = struct.Struct(">ii")
ENTRY_SIZE = _LAYOUT.size


class IndexedBatch(NamedTuple):
    """The last offset of a batch, and the position where it starts."""

    last_offset: int
    position: int


class OffsetIndex(SegmentIndex):
    """The entries of one segment. Invariant, except for a corrupt file: offsets and positions both ascend strictly."""

    __slots__ = ()
    layout = _LAYOUT

    @staticmethod
    def in_order(before: Entry, after: Entry) -> bool:
        return before[0] < after[0] and before[1] < after[1]

    @property
    def entries(self) -> list[IndexedBatch]:
        """All entries, ascending."""
        return [IndexedBatch(self.base_offset + offset, position) for offset, position in self._entries]

    @property
    def last_position(self) -> int:
        """The position of the last indexed batch; 0 without entries."""
        last = self._entries.last
        return 0 if last is None else last[1]

    @property
    def last_offset(self) -> int:
        """The last offset of the last indexed batch; the base offset without entries."""
        last = self._entries.last
        return self.base_offset + (0 if last is None else last[0])

    def append(self, last_offset: int, position: int) -> None:
        """Adds an entry. `last_offset` and `position` must be higher than in all entries so far."""
        self._entries.append((last_offset - self.base_offset, position))

    def batch_for(self, offset: int) -> IndexedBatch | None:
        """Returns where to start searching for `offset`: a batch at or before the one that holds it. Returns None to start
        at position 0. Raises CorruptIndex."""
        return self._batch(self._entries.last_at_or_below(offset - self.base_offset, field=0))

    def batch_at_or_before(self, position: int) -> IndexedBatch | None:
        """Returns the last indexed batch that starts at or before `position`, None if there is none. Raises CorruptIndex."""
        return self._batch(self._entries.last_at_or_below(position, field=1))

    def _batch(self, entry: Entry | None) -> IndexedBatch | None:
        return None if entry is None else IndexedBatch(self.base_offset + entry[0], entry[1])

    def truncate_to_position(self, size: int) -> None:
        """Drops the entries of batches that start at or beyond `size`, the segment's new length."""
        while self._entries and self.last_position >= size:
            self._entries.remove_last()

    @classmethod
    def from_bytes(cls, content: bytes, *, base_offset: int, end_offset: int, segment_size: int) -> "OffsetIndex":
        """Takes over an .index file, if its first and its last entry are possible in its segment. Raises CorruptIndex."""
        index = cls(base_offset, content)
        if not content:
            return index
        first = index._entries[0]
        if first[0] < 0 or index.last_offset >= end_offset:
            raise CorruptIndex("its offsets lie outside the segment")
        if first[1] < 0 or index.last_position >= segment_size:
            raise CorruptIndex("its positions lie outside the segment")
        return index
