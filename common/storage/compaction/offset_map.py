"""The offset of the latest record of each key in the dirty part of a log (core).

Counterpart of Kafka's SkimpyOffsetMap. Keys of 16 bytes or more are kept as digests, so the memory does not grow with their
size. Two keys with the same digest would lose records, but 128 bits make that as unlikely as in Kafka.
"""

from hashlib import blake2b

from common.parts import Buffer

_DIGEST_BYTES = 16
# What one entry takes: the key or its digest, the offset, and the entry's share of the dictionary. Kafka takes 24.
ENTRY_BYTES = 200
_NOT_THERE = -1


def entries_max(*, buffer_bytes: int, load_factor: float, cleaners: int) -> int:
    """Returns how many keys each of `cleaners` maps may have if together they take `buffer_bytes` at `load_factor`."""
    return max(int(buffer_bytes / max(cleaners, 1) * load_factor / ENTRY_BYTES), 1)


class OffsetMap:
    """See the module docstring. `end_offset` is where the map ends: it knows every record from the first dirty offset up to
    there, and nothing about the records from there on."""

    __slots__ = ("_entries_max", "_offsets", "end_offset")

    def __init__(self, first_dirty_offset: int, entries_max: int) -> None:
        self.end_offset = first_dirty_offset
        self._entries_max = entries_max
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: Buffer, offset: int) -> bool:
        """Notes the record of a key, which must be later than all others. Returns False if the map is full; it then ends at
        this record."""
        short = _short(key)
        if len(self._offsets) >= self._entries_max and short not in self._offsets:
            return False
        self._offsets[short] = offset
        self.end_offset = offset + 1
        return True

    def has_later(self, key: Buffer, offset: int) -> bool:
        """Whether the map has a record of this key beyond `offset`."""
        return self._offsets.get(_short(key), _NOT_THERE) > offset


def _short(key: Buffer) -> bytes:
    # A short key is never as long as a digest, so the two cannot be mixed up.
    return bytes(key) if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
