"""Records in a batch v2: golden bytes, varints, every kind of damage, and the fast way through values."""

import random
import struct

import pytest

from common.records.batch import BATCH_OVERHEAD, CompressedBatch, InvalidRecordBatch, TruncatedBatch
from common.records.record import (
    Record,
    append_varint,
    encode_batch,
    encode_values_batch,
    iterate_records,
    iterate_values,
    read_varint,
    value_record_size_max,
)
from tests.unit.common.records.golden_batch import GOLDEN, GOLDEN_RECORDS, resealed


def test_encoding_gives_the_golden_bytes() -> None:
    """A batch of two records is encoded to the bytes derived by hand."""
    assert bytes(encode_batch(GOLDEN_RECORDS, base_offset=5, leader_epoch=7)) == GOLDEN


def test_keys_and_values_are_views_of_the_batch() -> None:
    """Reading records copies nothing."""
    (first, _) = iterate_records(GOLDEN)
    assert isinstance(first.value, memoryview)
    assert first.value.obj is GOLDEN


def test_values_batch_equals_the_general_encoder() -> None:
    """The fast encoder for the metadata log writes the same bytes as the general one."""
    values = [b"", b"x" * 63, b"y" * 64, b"z" * 9000] * 40
    general = encode_batch([Record(None, value, 77) for value in values], base_offset=3, leader_epoch=2)
    batch = encode_values_batch(values, base_offset=3, leader_epoch=2, timestamp_ms=77)
    assert batch == general
    assert len(batch) <= BATCH_OVERHEAD + sum(value_record_size_max(len(value)) for value in values)


def test_records_that_do_not_fit_their_batch() -> None:
    """Lengths, counts and field sizes that point outside the batch raise InvalidRecordBatch and nothing else."""
    with pytest.raises(InvalidRecordBatch, match="varint"):
        list(iterate_records(resealed(GOLDEN, {57: struct.pack(">i", 3)})))
    with pytest.raises(InvalidRecordBatch, match="follow the last record"):
        list(iterate_records(resealed(GOLDEN, {57: struct.pack(">i", 1)})))
    with pytest.raises(InvalidRecordBatch, match="claims"):
        list(iterate_records(resealed(GOLDEN, {61: b"\x7e"})))
    with pytest.raises(InvalidRecordBatch, match="claims"):
        list(iterate_records(resealed(GOLDEN, {65: b"\x7e"})))
    with pytest.raises(InvalidRecordBatch, match="follow the fields"):
        list(iterate_records(resealed(GOLDEN, {79: b"\x00"})))
    with pytest.raises(InvalidRecordBatch, match="headers"):
        list(iterate_records(resealed(GOLDEN, {79: b"\x7e"})))
    with pytest.raises(InvalidRecordBatch, match="name"):
        list(iterate_records(resealed(GOLDEN, {80: b"\x01"})))
    with pytest.raises(InvalidRecordBatch, match="UTF-8"):
        list(iterate_records(resealed(GOLDEN, {81: b"\xff"})))


def test_damaged_records_raise_only_batch_errors() -> None:
    """Whichever byte of the records changes, iteration yields records or raises InvalidRecordBatch."""
    rng = random.Random(858)
    for _ in range(2000):
        position = rng.randrange(BATCH_OVERHEAD, len(GOLDEN))
        damaged = resealed(GOLDEN, {position: bytes([rng.randrange(256)])})
        try:
            records = list(iterate_records(damaged))
        except InvalidRecordBatch:
            continue
        assert len(records) == 2


def test_compressed_batches_need_a_way_to_decompress() -> None:
    """Without a decompressor the batch raises CompressedBatch. With one, its records are returned."""
    batch = encode_batch(GOLDEN_RECORDS, base_offset=5, attributes=2, compress=lambda payload: bytes(reversed(payload)))
    with pytest.raises(CompressedBatch):
        list(iterate_records(batch))
    records = iterate_records(batch, decompress=lambda code, view: bytes(reversed(view)) if code == 2 else b"")
    assert list(records) == GOLDEN_RECORDS


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "80 01"),
        (300, "d8 04"),
        (2**31 - 1, "fe ff ff ff 0f"),
        (-(2**31), "ff ff ff ff 0f"),
        (2**63 - 1, "fe ff ff ff ff ff ff ff ff 01"),
        (-(2**63), "ff ff ff ff ff ff ff ff ff 01"),
    ],
)
def test_varints_are_zigzag_up_to_the_edges_of_the_type(value: int, encoded: str) -> None:
    """Zigzag varints of both signs, at the limits of a byte and of the type."""
    out = bytearray()
    append_varint(out, value)
    assert out == bytes.fromhex(encoded)
    assert read_varint(out, 0) == (value, len(out))


@pytest.mark.parametrize("encoded", ["", "80", "ff ff ff ff ff ff ff ff ff 02", "80 80 80 80 80 80 80 80 80 80 01"])
def test_cut_or_too_wide_varints_are_invalid(encoded: str) -> None:
    """Truncated, too wide and too long varints raise."""
    with pytest.raises(InvalidRecordBatch):
        read_varint(bytes.fromhex(encoded), 0)


def test_an_empty_batch_is_never_made() -> None:
    """Encoding zero records raises ValueError, because it is a bug of the caller."""
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])
    with pytest.raises(ValueError, match="at least one"):
        encode_values_batch([], base_offset=0, leader_epoch=0, timestamp_ms=0)


def test_the_quick_way_through_values_agrees_with_the_general_one() -> None:
    """The fast reader returns the same offsets and values as `iterate_records`, for all sizes of varints and for records
    with keys and headers."""
    sizes = [0, 1, 63, 64, 8190, 8191, 8192, 20_000]
    plain = encode_values_batch([b"v" * size for size in sizes] * 1100, base_offset=9, leader_epoch=1, timestamp_ms=5)
    mixed = encode_batch(
        [
            Record(None, b"plain", 5),
            Record(b"key", b"with key", 5),
            Record(None, b"with header", 5, (("h", b"v"),)),
            Record(None, b"later", 5_000_000),
            Record(b"", b"", 5),
        ],
        base_offset=3,
    )
    for batch in (plain, mixed):
        expected = [(record.offset, record.value) for record in iterate_records(batch)]
        assert list(iterate_values(batch)) == expected


def test_the_quick_way_finds_the_same_damage() -> None:
    """The fast reader refuses every batch that `iterate_records` refuses, and records without a value."""
    batch = bytes(encode_values_batch([b"one", b"", b"three" * 20], base_offset=0, leader_epoch=0, timestamp_ms=0))
    rng = random.Random(113)
    refused = 0
    for _ in range(3000):
        damaged = resealed(batch, {rng.randrange(BATCH_OVERHEAD, len(batch)): bytes([rng.randrange(256)])})
        try:
            expected = [(record.offset, record.value) for record in iterate_records(damaged)]
        except InvalidRecordBatch:
            refused += 1
            with pytest.raises(InvalidRecordBatch):
                list(iterate_values(damaged))
            continue
        if any(value is None for _, value in expected):
            with pytest.raises(InvalidRecordBatch):
                list(iterate_values(damaged))
        else:
            assert list(iterate_values(damaged)) == expected
    assert refused > 100
    with pytest.raises(TruncatedBatch):
        list(iterate_values(batch[:-1]))
    with pytest.raises(CompressedBatch):
        list(iterate_values(resealed(batch, {21: b"\x00\x02"})))
    with pytest.raises(InvalidRecordBatch, match="follow the last record"):
        list(iterate_values(resealed(batch, {57: struct.pack(">i", 1)})))
