"""The aborted transactions of one segment, in the format of Kafka's .txnindex file (core, KIP-98).

Counterpart of Kafka's TransactionIndex and AbortedTxn. A segment with the marker of an aborted transaction has an entry for
it, in the order of the markers. All numbers are big-endian:

    int16 version (0), int64 producer id, int64 first offset, int64 offset of the marker, int64 last stable offset

The last stable offset of an entry never decreases. No transaction that ends after the entry began below that offset, so a
search can stop there. A segment without entries needs no file.
"""

import struct
from typing import Final, NamedTuple

from common.records.batch import BatchError
from common.storage.producers.transactions import CompletedTransaction

VERSION: Final = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size


class CorruptTransactionIndex(BatchError):
    """The bytes are not the transaction index of this segment. The text says why."""


class AbortedTransaction(NamedTuple):
    """One entry. Both offsets are inclusive; the last one is that of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedRange(NamedTuple):
    """What is known of a non-empty index without reading it: the smallest first offset of its entries, and the largest last
    stable offset."""

    first_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, as the bytes of the file: 34 bytes each, and most are never looked at."""

    __slots__ = ("_content", "_first_offset")

    def __init__(self) -> None:
        self._content = bytearray()
        # The smallest first offset of the entries. Valid only if there are entries.
        self._first_offset = 0

    @classmethod
    def from_bytes(cls, content: bytes, *, base_offset: int) -> "TransactionIndex":
        """Reads a file. Checks every entry. Raises CorruptTransactionIndex."""
        if len(content) % ENTRY_SIZE:
            raise CorruptTransactionIndex(f"{len(content)} bytes are no whole number of entries")
        index = cls()
        previous = base_offset - 1
        for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(content):
            if version < 0:
                raise CorruptTransactionIndex(f"an entry has version {version}")
            if producer_id < 0 or not 0 <= first_offset <= last_offset or last_stable_offset < 0:
                raise CorruptTransactionIndex(f"a transaction has producer {producer_id}, {first_offset} to {last_offset}")
            if last_offset <= previous:
                raise CorruptTransactionIndex(f"the marker at {last_offset} follows {previous}")
            previous = last_offset
            index._note_first_offset(first_offset)
            index._content += _ENTRY.pack(VERSION, producer_id, first_offset, last_offset, last_stable_offset)
        return index

    def to_bytes(self) -> bytes:
        """Returns the content of the file."""
        return bytes(self._content)

    def __len__(self) -> int:
        return len(self._content) // ENTRY_SIZE

    def __getitem__(self, number: int) -> AbortedTransaction:
        _, *fields = _ENTRY.unpack_from(self._content, number * ENTRY_SIZE)
        return AbortedTransaction(*fields)

    @property
    def range(self) -> AbortedRange | None:
        """The range of the entries, None if there are none."""
        return AbortedRange(self._first_offset, self[len(self) - 1].last_stable_offset) if self._content else None

    def append(self, aborted: AbortedTransaction | CompletedTransaction) -> None:
        """Adds the entry of a marker at the end of the segment."""
        assert not self._content or self[len(self) - 1].last_offset < aborted.last_offset
        self._note_first_offset(aborted.first_offset)
        self._content += _ENTRY.pack(
            VERSION, aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
        )

    def _note_first_offset(self, first_offset: int) -> None:
        self._first_offset = min(self._first_offset, first_offset) if self._content else first_offset

    def truncated_to(self, end_offset: int) -> "TransactionIndex":
        """Returns a copy without the markers at or beyond `end_offset`."""
        kept = TransactionIndex()
        for number in range(self._number_from(end_offset)):
            kept.append(self[number])
        return kept

    def overlapping(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Returns the transactions that end at or after `start_offset` and begin below `upper_offset`."""
        found = []
        for number in range(self._number_from(start_offset), len(self)):
            each = self[number]
            if each.first_offset < upper_offset:
                found.append(each)
            if each.last_stable_offset >= upper_offset:
                break
        return found

    def _number_from(self, offset: int) -> int:
        """Returns the number of the first entry whose marker is at or after `offset`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low
