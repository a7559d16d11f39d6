"""Decompresses the records of a batch (core).

Brokers pass compressed batches on without decompressing them. Only timestamp look-ups and the tools decompress batches. Java
producers wrap snappy in their own framing (a magic, two numbers, then length-prefixed chunks), while librdkafka writes
snappy without framing. A few bytes can expand to gigabytes, so every caller passes a size limit.
"""

import struct
import zlib
from collections.abc import Callable
from functools import partial

import cramjam

from common.parts import Buffer
from common.records.batch import EXPANSION_MAX, InvalidRecordBatch

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

_JAVA_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_JAVA_SNAPPY_HEADER = 16
# The window size that makes zlib expect a gzip header.
_GZIP_WINDOW = 31
_USUAL_EXPANSION = 16
_LARGER = "it becomes larger"
# The error texts of lz4 and zstd for output that exceeds the buffer.
_NO_ROOM = ("failed to write whole buffer", "buffer is too small")


class NotDecompressed(InvalidRecordBatch):
    """The payload is damaged, has an unknown compression, or would become too large; the text says which."""


class BecomesTooLarge(NotDecompressed):
    """The payload is not known to be damaged, but would become larger than the caller allows."""


def compression_name(code: int) -> str:
    """Returns the name that Kafka prints for a compression code."""
    return NAMES[code] if code < len(NAMES) else f"unknown({code})"


def decompress(code: int, payload: memoryview, *, size_max: int) -> Buffer:
    """Decompresses a batch's records to at most `size_max` bytes. Raises NotDecompressed."""
    if code not in _OPENERS:
        raise NotDecompressed(f"the compression code {code} is unknown")
    # Bound the memory by the size of the input too: the format limits how far a payload can expand.
    limit = min(size_max, EXPANSION_MAX[code] * len(payload))
    try:
        return _OPENERS[code](bytes(payload), limit)
    except (zlib.error, cramjam.DecompressionError, ValueError, struct.error) as error:
        is_larger = limit == size_max and any(text in str(error) for text in (_LARGER, *_NO_ROOM))
        kind = BecomesTooLarge if is_larger else NotDecompressed
        raise kind(f"no {NAMES[code]} that becomes at most {size_max} bytes: {error}") from error


def _gunzip(payload: bytes, size_max: int) -> bytearray:
    opened = bytearray()
    # A gzip stream may have several members, one after the other.
    while payload:
        member = zlib.decompressobj(_GZIP_WINDOW)
        opened += member.decompress(payload, size_max - len(opened) + 1)
        if len(opened) > size_max:
            raise ValueError(_LARGER)
        if not member.eof:
            raise ValueError("it is cut off")
        payload = member.unused_data
    return opened


def _unsnap(payload: bytes, size_max: int) -> bytes:
    if not payload.startswith(_JAVA_SNAPPY_MAGIC):
        return _unsnap_chunk(payload, size_max)
    opened = bytearray()
    position = _JAVA_SNAPPY_HEADER
    while position < len(payload):
        (length,) = struct.unpack_from(">I", payload, position)
        position += 4
        if length > len(payload) - position:
            raise ValueError("a chunk is cut off")
        opened += _unsnap_chunk(payload[position : position + length], size_max - len(opened))
        position += length
    return bytes(opened)


def _unsnap_chunk(chunk: bytes, size_max: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(chunk)
    # Check the size before allocating memory, because it is only what the chunk claims.
    if size > len(chunk) * EXPANSION_MAX[SNAPPY]:
        raise ValueError("it claims a size that it cannot have")
    if size > size_max:
        raise ValueError(_LARGER)
    return bytes(cramjam.snappy.decompress_raw(chunk))


def _open(decompress_into: Callable[[bytes, bytearray], int], payload: bytes, size_max: int) -> memoryview:
    """Decompresses into a buffer that grows only while the output does not fit, so that a damaged payload cannot make us
    allocate the full limit."""
    size = min(_USUAL_EXPANSION * len(payload), size_max)
    while True:
        opened = bytearray(size)
        try:
            return memoryview(opened)[: decompress_into(payload, opened)]
        except cramjam.DecompressionError as error:
            if size == size_max or not any(text in str(error) for text in _NO_ROOM):
                raise
        size = min(_USUAL_EXPANSION * size, size_max)


_OPENERS: dict[int, Callable[[bytes, int], Buffer]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnap,
    LZ4: partial(_open, cramjam.lz4.decompress_into),
    ZSTD: partial(_open, cramjam.zstd.decompress_into),
}
