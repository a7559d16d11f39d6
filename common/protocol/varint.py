"""Unsigned variable-length integers of the flexible versions (core).

Seven bits a byte, least significant first, at most five bytes and 32 bits; more is malformed, never a bigger number.
"""

from common.protocol.errors import InvalidValue


def encode_uvarint(value: int) -> bytes:
    """The bytes of 0 <= value < 2**32."""
    if value < 128:
        return SMALL_UVARINTS[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# The one-byte forms, which are nearly all that occur.
SMALL_UVARINTS = tuple(bytes((value,)) for value in range(128))


def finish_uvarint(data: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """The value, and the position after it, of a varint whose first byte, already read, is `first`.

    Raises IndexError where the bytes end, InvalidValue where the varint does not end in time.
    """
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise InvalidValue("a varint of more than 32 bits")


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The value and the position after it. Raises as `finish_uvarint` does."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return finish_uvarint(data, position + 1, first)
