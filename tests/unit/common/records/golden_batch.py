"""A batch whose bytes were derived by hand, and a function that damages it and gives it a valid checksum again."""

import struct

from crc32c import crc32c

from common.records.record import Record
from tests.unit.common.records.hexadecimal import from_annotated

GOLDEN = from_annotated("""
    00 00 00 00 00 00 00 05   # base offset 5
    00 00 00 47               # batch length: 83 bytes in all minus 12
    00 00 00 07               # partition leader epoch 7
    02                        # magic
    0d 26 39 39               # CRC-32C of all that follows, by a bit-at-a-time calculation
    00 00                     # attributes: no compression, create time, no transaction, data
    00 00 00 01               # last offset delta
    00 00 00 00 00 00 03 e8   # base timestamp 1000
    00 00 00 00 00 00 04 4c   # max timestamp 1100
    ff ff ff ff ff ff ff ff   # producer id: none
    ff ff                     # producer epoch: none
    ff ff ff ff               # base sequence: none
    00 00 00 02               # two records
    14                        # a record of 10 bytes
    00 00 00                  # attributes, timestamp delta 0, offset delta 0
    02 61                     # key: 1 byte, "a"
    06 6f 6e 65               # value: 3 bytes, "one"
    00                        # no headers
    14                        # a record of 10 bytes
    00 c8 01 02               # attributes, timestamp delta 100 (zigzag 200), offset delta 1
    01                        # no key
    01                        # no value
    02 02 68 01               # one header, name "h", no value
""")

GOLDEN_RECORDS = [
    Record(b"a", b"one", 1000, (), 5),
    Record(None, None, 1100, (("h", None),), 6),
]


def resealed(batch: bytes, changes: dict[int, bytes]) -> bytearray:
    """Returns the batch with the bytes of `changes` written at their positions, and the checksum corrected."""
    changed = bytearray(batch)
    for position, replacement in changes.items():
        changed[position : position + len(replacement)] = replacement
    changed[17:21] = struct.pack(">I", crc32c(changed[21:]))
    return changed
