"""Compresses the records of a batch (core).

Two places compress. Compaction, when it removes records from a compressed batch, compresses the others again with the codec
that the producer chose. A leader compresses what producers send if the topic's compression.type asks for another codec.
Snappy is written in the framing of Java producers, which all clients read. The blocks of lz4 are independent of each other,
because Java clients read no others.
"""

import struct
import zlib
from collections.abc import Callable, Generator, Iterator

import cramjam

from common.parts import Buffer
from common.records.decompression import GZIP, LZ4, SNAPPY, ZSTD

# A magic, the version of the framing, and the oldest version whose readers can read it.
_JAVA_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_JAVA_SNAPPY_CHUNK = 32 * 1024
# The magic of an lz4 frame, its flags (independent blocks of at most 64 KiB without checksums), and the flags' checksum.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK = 64 * 1024
# In the size of a block that could not be compressed.
_LZ4_AS_IT_IS = 0x8000_0000
_LZ4_END = bytes(4)
# The window size that makes zlib write a gzip header. The header has no time, so equal records give equal bytes.
_GZIP_WINDOW = 31
_GZIP_PIECE = 64 * 1024


def compress(code: int, payload: Buffer, level: int | None = None) -> bytes:
    """Compresses a batch's records with the codec of this code; code 0 returns them as they are. Without a level the codec
    chooses; snappy has none."""
    return b"".join(_PIECES[code](bytes(payload), level))


def compress_in_slices(code: int, payload: Buffer) -> Generator[None, None, bytes]:
    """Like `compress`, and yields between the pieces, because some codecs take a second for a few MiB. Only zstd, which is
    quick, compresses all at once."""
    pieces: list[bytes] = []
    for piece in _PIECES[code](bytes(payload), None):
        if pieces:
            yield
        pieces.append(piece)
    return b"".join(pieces)


def _as_it_is(payload: bytes, _level: int | None) -> Iterator[bytes]:
    yield payload


def _gzip(payload: bytes, level: int | None) -> Iterator[bytes]:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_WINDOW)
    for start in range(0, len(payload), _GZIP_PIECE):
        yield compressor.compress(payload[start : start + _GZIP_PIECE])
    yield compressor.flush()


def _snappy(payload: bytes, _level: int | None) -> Iterator[bytes]:
    yield _JAVA_SNAPPY_HEADER
    for start in range(0, len(payload), _JAVA_SNAPPY_CHUNK):
        chunk = bytes(cramjam.snappy.compress_raw(payload[start : start + _JAVA_SNAPPY_CHUNK]))
        yield struct.pack(">I", len(chunk)) + chunk


def _lz4(payload: bytes, level: int | None) -> Iterator[bytes]:
    yield _LZ4_HEADER
    for start in range(0, len(payload), _LZ4_BLOCK):
        # The blocks of one frame of cramjam's depend on those before. So each block is the only one of a frame.
        frame = bytes(cramjam.lz4.compress(payload[start : start + _LZ4_BLOCK], level))
        begin = len(_LZ4_HEADER)
        (size,) = struct.unpack_from("<I", frame, begin)
        yield frame[begin : begin + 4 + (size & ~_LZ4_AS_IT_IS)]
    yield _LZ4_END


def _zstd(payload: bytes, level: int | None) -> Iterator[bytes]:
    yield bytes(cramjam.zstd.compress(payload, level))


_PIECES: dict[int, Callable[[bytes, int | None], Iterator[bytes]]] = {
    0: _as_it_is,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
