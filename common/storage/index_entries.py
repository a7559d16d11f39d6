"""What both sparse indexes of a segment are: pairs of numbers in ascending order, kept as they are in the file (core).

A full segment has hundreds of thousands of entries, and the event loop would stand still while it parses them. So a lookup
reads the few entries that it needs. A corrupt entry may go unnoticed until a lookup meets it, so a lookup checks the order
of the entries around the one that it returns. Elsewhere a wrong entry only lets a search begin too early.
"""

import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import ClassVar, Self

Entry = tuple[int, int]


class CorruptIndex(Exception):
    """The content cannot be an index of this segment. The index must be rebuilt from the segment."""


class IndexEntries:
    """The entries, numbered from 0. Invariant, except for a corrupt file: every two neighbours are `in_order`."""

    __slots__ = ("_content", "_in_order", "_layout")

    def __init__(self, layout: struct.Struct, in_order: Callable[[Entry, Entry], bool], content: bytes = b"") -> None:
        """Raises CorruptIndex unless the content consists of whole entries, of which the first and the last are in order."""
        if len(content) % layout.size:
            raise CorruptIndex(f"{len(content)} bytes are no multiple of {layout.size}")
        self._layout = layout
        self._in_order = in_order
        self._content = bytearray(content)
        if content:
            self._check_around(0)
            # A crash can leave zeros in a file that was not synced, usually up to its end.
            self._check_around(len(self) - 1)

    def __len__(self) -> int:
        return len(self._content) // self._layout.size

    def __getitem__(self, number: int) -> Entry:
        first, second = self._layout.unpack_from(self._content, number * self._layout.size)
        return first, second

    def __iter__(self) -> Iterator[Entry]:
        yield from self._layout.iter_unpack(self._content)

    @property
    def last(self) -> Entry | None:
        return self[len(self) - 1] if self._content else None

    def append(self, entry: Entry) -> None:
        self._content += self._layout.pack(*entry)

    def remove_last(self) -> None:
        del self._content[-self._layout.size :]

    def last_at_or_below(self, value: int, *, field: int) -> Entry | None:
        """Returns the last entry whose first (0) or second (1) number is at or below `value`; None if there is none. Raises
        CorruptIndex."""
        content, size, unpack_from = self._content, self._layout.size, self._layout.unpack_from
        found = bisect_right(range(len(self)), value, key=lambda number: unpack_from(content, number * size)[field])
        return self._check_around(found - 1) if found else None

    def check_order(self) -> None:
        """Checks all entries, which takes long for a large index. Raises CorruptIndex."""
        if not all(self._in_order(before, after) for before, after in pairwise(self)):
            raise CorruptIndex("its entries do not ascend")

    def _check_around(self, number: int) -> Entry:
        """Returns the entry, if it is in order with its neighbours. Raises CorruptIndex."""
        entry = self[number]
        if (number and not self._in_order(self[number - 1], entry)) or (
            number + 1 < len(self) and not self._in_order(entry, self[number + 1])
        ):
            raise CorruptIndex("its entries do not ascend")
        return entry

    def copy(self) -> "IndexEntries":
        """Returns independent entries with the same content."""
        copy = IndexEntries(self._layout, self._in_order)
        copy._content = self._content[:]
        return copy

    def to_bytes(self) -> bytes:
        return bytes(self._content)


class SegmentIndex(ABC):
    """The index of one segment, whose offsets are relative to the segment's base offset in the file."""

    __slots__ = ("_entries", "base_offset")

    layout: ClassVar[struct.Struct]
    """Of an entry in the file."""

    def __init__(self, base_offset: int, content: bytes = b"") -> None:
        """Raises CorruptIndex as IndexEntries does."""
        self.base_offset = base_offset
        self._entries = IndexEntries(self.layout, self.in_order, content)

    @staticmethod
    @abstractmethod
    def in_order(before: Entry, after: Entry) -> bool:
        """Whether the second entry may follow the first."""

    def __len__(self) -> int:
        return len(self._entries)

    def check_order(self) -> None:
        """Checks all entries, which takes long for a large index. Raises CorruptIndex."""
        self._entries.check_order()

    def copy(self) -> Self:
        """Returns an independent index with the same entries."""
        index = type(self)(self.base_offset)
        index._entries = self._entries.copy()
        return index

    def to_bytes(self) -> bytes:
        """Returns the content of the file."""
        return self._entries.to_bytes()
