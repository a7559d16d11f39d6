"""Opens compressed record batches for the tools; the daemons pass them on as they are (shell).

gzip is in the standard library; snappy, lz4 and zstd need the package cramjam. Easy to get wrong: Java producers wrap snappy
in a framing of their own (a magic, two numbers, then chunks with their lengths), librdkafka writes it bare.
"""

import gzip
import importlib
import struct
import zlib
from typing import Any

from common.records.batch import InvalidRecordBatch

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

_JAVA_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_JAVA_SNAPPY_HEADER = 16


def compression_name(code: int) -> str:
    """As Kafka prints it."""
    return NAMES[code] if code < len(NAMES) else f"unknown({code})"


def decompress(code: int, payload: memoryview) -> bytes:
    """The records of a batch with this compression code. Raises InvalidRecordBatch, with the reason."""
    if code == GZIP:
        try:
            return gzip.decompress(payload)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidRecordBatch(f"the records are not gzip: {error}") from error
    cramjam = _cramjam()
    try:
        if code == SNAPPY:
            return _snappy(cramjam, bytes(payload))
        if code == LZ4:
            return bytes(cramjam.lz4.decompress(bytes(payload)))
        if code == ZSTD:
            return bytes(cramjam.zstd.decompress(bytes(payload)))
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise InvalidRecordBatch(f"the records are not {compression_name(code)}: {error}") from error
    raise InvalidRecordBatch(f"the compression code {code} is unknown")


def _snappy(cramjam: Any, payload: bytes) -> bytes:
    if not payload.startswith(_JAVA_SNAPPY_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(payload))
    chunks = []
    position = _JAVA_SNAPPY_HEADER
    while position < len(payload):
        (size,) = struct.unpack_from(">I", payload, position)
        position += 4
        if size > len(payload) - position:
            raise ValueError("a chunk is cut off")
        chunks.append(bytes(cramjam.snappy.decompress_raw(payload[position : position + size])))
        position += size
    return b"".join(chunks)


def _cramjam() -> Any:
    try:
        return importlib.import_module("cramjam")
    except ImportError as error:
        raise InvalidRecordBatch("the package cramjam is needed to open it: pip install cramjam") from error
