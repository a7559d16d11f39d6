"""The unsigned varints of flexible versions (core).

Seven bits per byte, least significant first, at most five bytes and 32 bits. Anything longer is malformed.
"""

from common.protocol.errors import InvalidValue


def encode_uvarint(value: int) -> bytes:
    """Encodes 0 <= value < 2**32."""
    if value < 128:
        return SMALL_UVARINTS[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# The encodings of 0 to 127, each one byte long. Nearly every varint is one of these.
SMALL_UVARINTS = tuple(bytes((value,)) for value in range(128))


def finish_uvarint(data: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """Finishes a varint whose `first` byte has already been read. Returns its value and the position after it.

    Raises IndexError at the end of the data and InvalidValue if the varint is too long.
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
    """Returns the value of the varint at `position` and the position after it. Raises the same errors as
    `finish_uvarint`."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return finish_uvarint(data, position + 1, first)
