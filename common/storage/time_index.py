"""The sparse time index of one segment, which maps a timestamp to a nearby offset (core).

Counterpart of Kafka's TimeIndex. A file entry has 12 bytes: a timestamp, and an offset relative to the segment's base
offset. An entry means that no batch up to its offset has a later timestamp. Its offset is the last offset of the first batch
that reached the timestamp. Timestamps come from clients and go up and down, so an entry is added only if the maximum so far
has risen. The last entry, added when the segment is sealed, has the maximum of the whole segment.
"""

import struct

from common.storage.index_entries import CorruptIndex, Entry, SegmentIndex

_LAYOUT = struct.Struct(">qi")
ENTRY_SIZE = _LAYOUT.size


def time_entries_max(index_bytes: int) -> int:
    """Returns with how many entries the time index of the newest segment is full, given segment.index.bytes. One more has
    room, for the entry that is added when the segment is sealed. A broker of Apache Kafka that recovers a segment with more
    does not start."""
    return index_bytes // ENTRY_SIZE - 1


def last_entry(tail: bytes) -> tuple[int, int] | None:
    """Parses the last ENTRY_SIZE bytes of a .timeindex file: the largest timestamp and its relative offset. Returns None if
    there is no entry, or one that cannot be right, such as the zeros that a crash leaves in a file of Apache Kafka."""
    if len(tail) != ENTRY_SIZE:
        return None
    timestamp, offset = _LAYOUT.unpack(tail)
    return (timestamp, offset) if timestamp > 0 else None


class TimeIndex(SegmentIndex):
    """The entries of one segment. Invariant, except for a corrupt file: timestamps ascend strictly, offsets never
    descend."""

    __slots__ = ()
    layout = _LAYOUT

    @staticmethod
    def in_order(before: Entry, after: Entry) -> bool:
        return before[0] < after[0] and before[1] <= after[1]

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All entries as (timestamp, offset), ascending."""
        return [(time, self.base_offset + offset) for time, offset in self._entries]

    @property
    def last(self) -> tuple[int, int] | None:
        """The largest timestamp and its offset, None without entries."""
        last = self._entries.last
        return None if last is None else (last[0], self.base_offset + last[1])

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the maximum has risen. Never adds one for a batch without a timestamp (-1)."""
        if timestamp < 0:
            return
        last = self.last
        if last is not None and (timestamp <= last[0] or offset < last[1]):
            return
        self._entries.append((timestamp, offset - self.base_offset))

    def offset_for(self, timestamp: int) -> int:
        """Returns the offset where a search for `timestamp` can start: all batches that end below that offset are older.
        Raises CorruptIndex."""
        found = self._entries.last_at_or_below(timestamp, field=0)
        return self.base_offset + (0 if found is None else found[1])

    def truncate_to_offset(self, offset: int) -> None:
        """Drops entries at or after `offset`, the segment's new end."""
        while (last := self.last) is not None and last[1] >= offset:
            self._entries.remove_last()

    @classmethod
    def from_bytes(cls, content: bytes, *, base_offset: int, end_offset: int) -> "TimeIndex":
        """Takes over a .timeindex file, if its first and its last entry are possible in its segment. Raises CorruptIndex."""
        index = cls(base_offset, content)
        last = index.last
        if last is not None and (index._entries[0][1] < 0 or last[1] >= end_offset):
            raise CorruptIndex("its offsets lie outside the segment")
        return index
