"""Compression of records: what a broker writes must be readable by every client."""

import random

import cramjam
import pytest

from common.records.compression import compress
from common.records.decompression import GZIP, LZ4, SNAPPY, ZSTD, decompress

_AS_IT_IS = 0x8000_0000


def plain(size: int) -> bytes:
    """Returns bytes of which some can be compressed and some not."""
    return b"".join(random.Random(number).randbytes(50_000) + b"a record, " * 5_000 for number in range(4))[:size]


@pytest.mark.parametrize("level", [None, 1, 9, 17])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 400_000])
def test_what_is_compressed_is_opened_again(size: int, level: int | None) -> None:
    for code in (GZIP, SNAPPY, LZ4, ZSTD):
        of_codec = min(level, 9) if level is not None and code == GZIP else level
        assert decompress(code, memoryview(compress(code, plain(size), of_codec)), size_max=1 << 20) == plain(size)


@pytest.mark.parametrize("level", [None, 9])
def test_the_blocks_of_lz4_are_independent(level: int | None) -> None:
    """Java clients answer "Dependent block stream is unsupported" for any other frame, and get no record of the batch."""
    frame = compress(LZ4, plain(400_000), level)
    # The magic, the flags of Java's producers (version 1, independent blocks, none above 64 KiB), and their checksum.
    assert frame[:7] == bytes.fromhex("04224d18604082")
    position, blocks = 7, []
    while size := int.from_bytes(frame[position : position + 4], "little"):
        position += 4
        block = frame[position : position + (size & ~_AS_IT_IS)]
        position += len(block)
        blocks.append(block if size & _AS_IT_IS else bytes(cramjam.lz4.decompress_block(block, output_len=65_536)))
    assert position + 4 == len(frame)
    # The last one is opened to more than it holds.
    assert b"".join(blocks)[:400_000] == plain(400_000)
