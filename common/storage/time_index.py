"""The sparse time index of one segment, which maps a timestamp to a nearby offset (core).

Counterpart of Kafka's TimeIndex. A file entry has 12 bytes: a timestamp, and an offset relative to the segment's base
offset. An entry means that no batch up to its offset has a later timestamp. Its offset is the last offset of the first batch
that reached the timestamp. Timestamps come from clients and go up and down, so an entry is added only if the maximum so far
has risen. The last entry, added when the segment is sealed, has the maximum of the whole segment.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from itertools import islice
from operator import le, lt

from common.storage.offset_index import CorruptIndex

ENTRY_SIZE = 12
_ENTRY = struct.Struct(">qi")


def last_entry(tail: bytes) -> tuple[int, int] | None:
    """Parses the last ENTRY_SIZE bytes of a .timeindex file: the largest timestamp and its relative offset. Returns None if
    there is no entry, or one that cannot be right, such as the zeros that a crash leaves in a file of Apache Kafka."""
    if len(tail) != ENTRY_SIZE:
        return None
    timestamp, offset = _ENTRY.unpack(tail)
    return (timestamp, offset) if timestamp > 0 else None


class TimeIndex:
    """The entries of one segment. Invariant: timestamps ascend strictly, offsets never descend."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All entries as (timestamp, offset), ascending."""
        return [(time, self.base_offset + offset) for time, offset in zip(self._timestamps, self._offsets, strict=True)]

    @property
    def last(self) -> tuple[int, int] | None:
        """The largest timestamp and its offset, None without entries."""
        return (self._timestamps[-1], self.base_offset + self._offsets[-1]) if self._timestamps else None

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the maximum has risen. Never adds one for a batch without a timestamp (-1)."""
        if timestamp < 0:
            return
        relative = offset - self.base_offset
        if self._timestamps and (timestamp <= self._timestamps[-1] or relative < self._offsets[-1]):
            return
        self._timestamps.append(timestamp)
        self._offsets.append(relative)

    def offset_for(self, timestamp: int) -> int:
        """Returns the offset where a search for `timestamp` can start: all batches that end below that offset are older."""
        found = bisect_right(self._timestamps, timestamp)
        return self.base_offset + self._offsets[found - 1] if found else self.base_offset

    def truncate_to_offset(self, offset: int) -> None:
        """Drops entries at or after `offset`, the segment's new end."""
        while self._offsets and self._offsets[-1] >= offset - self.base_offset:
            self._offsets.pop()
            self._timestamps.pop()

    def copy(self) -> "TimeIndex":
        """Returns an independent index with the same entries."""
        index = TimeIndex(self.base_offset)
        index._timestamps = self._timestamps[:]
        index._offsets = self._offsets[:]
        return index

    def to_bytes(self) -> bytes:
        """Returns the content of the .timeindex file."""
        times, offsets = self._timestamps[:], self._offsets[:]
        if sys.byteorder == "little":
            times.byteswap()
            offsets.byteswap()
        halves = array("i", times.tobytes())
        interleaved = array("i", bytes(len(offsets) * ENTRY_SIZE))
        interleaved[0::3] = halves[0::2]
        interleaved[1::3] = halves[1::2]
        interleaved[2::3] = offsets
        return interleaved.tobytes()

    @classmethod
    def from_bytes(cls, content: bytes, *, base_offset: int, end_offset: int) -> "TimeIndex":
        """Parses a .timeindex file and checks it against its segment. Raises CorruptIndex."""
        if len(content) % ENTRY_SIZE:
            raise CorruptIndex(f"{len(content)} bytes are no multiple of {ENTRY_SIZE}")
        index = cls(base_offset)
        if not content:
            return index
        interleaved = array("i", content)
        halves = array("i", bytes(len(content) // ENTRY_SIZE * 8))
        halves[0::2] = interleaved[0::3]
        halves[1::2] = interleaved[1::3]
        index._timestamps = array("q", halves.tobytes())
        index._offsets = interleaved[2::3]
        if sys.byteorder == "little":
            index._timestamps.byteswap()
            index._offsets.byteswap()
        if index._offsets[0] < 0 or index._offsets[-1] >= end_offset - base_offset:
            raise CorruptIndex("its offsets lie outside the segment")
        times_ascend = all(map(lt, index._timestamps, islice(index._timestamps, 1, None)))
        offsets_ascend = all(map(le, index._offsets, islice(index._offsets, 1, None)))
        if not (times_ascend and offsets_ascend):
            raise CorruptIndex("its entries do not ascend")
        return index
