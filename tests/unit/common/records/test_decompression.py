"""Decompression of records within a size limit."""

import gzip
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import pytest

from common.records.decompression import BecomesTooLarge, NotDecompressed, decompress

PLAIN = b"a record, " * 1000


def java_snappy(plain: bytes) -> bytes:
    """Encodes two chunks in the framing of Java's producers."""
    chunks = [bytes(cramjam.snappy.compress_raw(half)) for half in (plain[:5], plain[5:])]
    return b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"".join(
        len(chunk).to_bytes(4, "big") + chunk for chunk in chunks
    )


CODECS = [
    pytest.param(1, gzip.compress, id="gzip"),
    pytest.param(2, cramjam.snappy.compress_raw, id="snappy"),
    pytest.param(2, java_snappy, id="Java's snappy"),
    pytest.param(3, cramjam.lz4.compress, id="lz4"),
    pytest.param(4, cramjam.zstd.compress, id="zstd"),
]


@pytest.mark.parametrize(("code", "compress"), CODECS)
def test_what_was_compressed_is_opened_up_to_the_bound(code: int, compress: Callable[[bytes], Any]) -> None:
    payload = memoryview(bytes(compress(PLAIN)))
    assert decompress(code, payload, size_max=1 << 20) == PLAIN
    assert decompress(code, payload, size_max=len(PLAIN)) == PLAIN
    with pytest.raises(BecomesTooLarge, match=f"becomes at most {len(PLAIN) - 1} bytes"):
        decompress(code, payload, size_max=len(PLAIN) - 1)


@pytest.mark.parametrize(("code", "compress"), CODECS)
def test_damage_is_one_error(code: int, compress: Callable[[bytes], Any]) -> None:
    """If the data is truncated anywhere or any byte is changed, decompression either raises NotDecompressed or yields at
    most `size_max` bytes."""
    payload = bytes(compress(PLAIN))
    for position in range(len(payload)):
        for damaged in (
            payload[:position],
            payload[:position] + bytes([payload[position] ^ 0x55]) + payload[position + 1 :],
        ):
            with suppress(NotDecompressed):
                assert len(decompress(code, memoryview(damaged), size_max=20_000)) <= 20_000


def test_members_of_gzip_follow_each_other() -> None:
    payload = gzip.compress(PLAIN) + gzip.compress(b"more")
    assert decompress(1, memoryview(payload), size_max=1 << 20) == PLAIN + b"more"
    with pytest.raises(NotDecompressed):
        decompress(1, memoryview(payload), size_max=len(PLAIN) + 3)


@pytest.mark.parametrize("code", [0, 5, 7])
def test_an_unknown_code_is_told(code: int) -> None:
    with pytest.raises(NotDecompressed, match=f"the compression code {code} is unknown"):
        decompress(code, memoryview(b"x"), size_max=100)


@pytest.mark.parametrize(("code", "compress"), CODECS)
def test_memory_goes_by_what_is_there(code: int, compress: Callable[[bytes], Any]) -> None:
    """Decompression takes little memory if the data exceeds the size limit, and also if it is damaged and the limit is
    high."""
    large, damaged = bytes(compress(bytes(20_000_000))), bytearray(compress(PLAIN))
    damaged[len(damaged) // 2 :] = b"something else"
    for payload, size_max in ((large, 1_000_000), (bytes(damaged), 100_000_000)):
        tracemalloc.start()
        try:
            with pytest.raises(NotDecompressed):
                decompress(code, memoryview(payload), size_max=size_max)
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
        finally:
            tracemalloc.stop()
