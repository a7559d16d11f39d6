"""Record batch v2: golden bytes, every kind of damage, in-place changes."""

import gzip
import random
import struct
from collections.abc import Callable

import cramjam
import pytest
from crc32c import crc32c

from common.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    BatchError,
    BatchHeader,
    CompressedBatch,
    CorruptBatch,
    InvalidRecordBatch,
    OldFormat,
    Record,
    TruncatedBatch,
    append_varint,
    encode_batch,
    encode_values_batch,
    iterate_records,
    iterate_values,
    read_header,
    read_varint,
    set_base_offset_and_epoch,
    split_batches,
    split_intact_batches,
    validate_batch,
    validate_integrity,
    validate_produced_batch,
    value_record_size_max,
)
from tests.unit.common.records.hexadecimal import from_annotated
from tests.unit.common.records.log_append_time import set_log_append_time

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


def test_encoding_gives_the_golden_bytes() -> None:
    """A batch of two records is encoded to the bytes derived by hand."""
    assert bytes(encode_batch(GOLDEN_RECORDS, base_offset=5, leader_epoch=7)) == GOLDEN


def test_decoding_the_golden_bytes() -> None:
    """Header and records of the golden batch are decoded with absolute offsets and timestamps."""
    header = read_header(GOLDEN)
    assert header == BatchHeader(5, 71, 7, 2, 0x0D263939, 0, 1, 1000, 1100, -1, -1, -1, 2)
    assert (header.size, header.last_offset, header.next_offset) == (83, 6, 7)
    assert not header.is_control
    validate_batch(header, GOLDEN)
    assert list(iterate_records(GOLDEN)) == GOLDEN_RECORDS


def test_keys_and_values_are_views_of_the_batch() -> None:
    """Reading records copies nothing."""
    (first, _) = iterate_records(GOLDEN)
    assert isinstance(first.value, memoryview)
    assert first.value.obj is GOLDEN


def test_stamping_offset_and_epoch_keeps_the_checksum() -> None:
    """The leader stamps both fields in place, even inside a larger receive buffer, and the batch stays valid."""
    buffer = bytearray(b"xx" + GOLDEN + b"yy")
    set_base_offset_and_epoch(memoryview(buffer)[2:-2], 1_000_000_000_000, 42)
    ((header, view),) = split_batches(memoryview(buffer)[2:-2])
    assert (header.base_offset, header.partition_leader_epoch) == (1_000_000_000_000, 42)
    validate_batch(header, view)
    assert buffer[:2] == b"xx"
    assert buffer[-2:] == b"yy"


def test_log_append_time_is_the_time_of_every_record() -> None:
    """In a batch with log append time, the broker's timestamp replaces the timestamp of each record."""
    batch = bytearray(GOLDEN)
    set_log_append_time(batch, 5000)
    header = read_header(batch)
    validate_batch(header, batch)
    assert header.has_log_append_time
    assert header.max_timestamp == 5000
    assert [record.timestamp_ms for record in iterate_records(batch)] == [5000, 5000]


def test_values_batch_equals_the_general_encoder() -> None:
    """The fast encoder for the metadata log writes the same bytes as the general one."""
    values = [b"", b"x" * 63, b"y" * 64, b"z" * 9000] * 40
    general = encode_batch([Record(None, value, 77) for value in values], base_offset=3, leader_epoch=2)
    batch = encode_values_batch(values, base_offset=3, leader_epoch=2, timestamp_ms=77)
    assert batch == general
    assert len(batch) <= BATCH_OVERHEAD + sum(value_record_size_max(len(value)) for value in values)


def test_control_bit_is_carried() -> None:
    """The control bit passed to the encoder ends up in the header's attributes."""
    header = read_header(encode_batch([Record(b"k", b"v", 0)], attributes=CONTROL_BIT))
    assert header.is_control


@pytest.mark.parametrize("position", [21, 26, 34, 60, 61, 82])
def test_a_flipped_bit_is_a_wrong_checksum(position: int) -> None:
    """The CRC covers every byte from the attributes to the end."""
    damaged = bytearray(GOLDEN)
    damaged[position] ^= 0x10
    with pytest.raises(CorruptBatch, match="CRC"):
        validate_batch(read_header(damaged), damaged)


def test_wrong_magic_is_told_apart() -> None:
    """Old formats raise OldFormat even if a whole message of theirs is shorter than the header of a v2 batch. No other magic
    is known."""
    old = bytearray(GOLDEN)
    old[16] = 1
    with pytest.raises(OldFormat):
        read_header(old)
    with pytest.raises(OldFormat):
        split_batches(old[:34])
    with pytest.raises(OldFormat):
        validate_batch(read_header(GOLDEN)._replace(magic=0), GOLDEN)
    for unknown in (3, 0xFF):
        old[16] = unknown
        with pytest.raises(CorruptBatch, match="magic"):
            read_header(old)


@pytest.mark.parametrize("size", [1, 16, 17, 60, 61, 82])
def test_a_cut_batch_is_truncated(size: int) -> None:
    """Every proper prefix of a batch raises the error for truncation. At the end of a fetch response, a truncated batch is
    simply dropped."""
    with pytest.raises(TruncatedBatch):
        split_batches(GOLDEN[:size])
    assert [header.base_offset for header, _ in split_batches(GOLDEN + GOLDEN[:size], allow_partial_tail=True)] == [5]
    with pytest.raises(TruncatedBatch):
        validate_integrity(read_header(GOLDEN), GOLDEN[:size])


def test_bytes_after_a_batch_are_a_size_mismatch() -> None:
    """A view with more bytes than the header's batch length is refused too."""
    with pytest.raises(TruncatedBatch):
        validate_batch(read_header(GOLDEN), GOLDEN + b"\x00")
    with pytest.raises(TruncatedBatch):
        list(iterate_records(GOLDEN + b"\x00"))


def split_and_checked(data: bytearray) -> list[tuple[BatchHeader, memoryview]]:
    """Splits and checks in two steps."""
    batches = split_batches(data, allow_partial_tail=True)
    for header, batch in batches:
        validate_integrity(header, batch)
    return batches


def test_splitting_and_checking_in_one_pass_finds_the_same() -> None:
    """Three batches, with each byte damaged in turn, and cut at each byte. If several things are wrong, any of them may be
    reported."""
    whole = bytearray(3 * GOLDEN)
    damaged = []
    for position in range(len(whole)):
        damaged.append(whole[:position])
        for change in (0x01, 0x80):
            damaged.append(whole[:])
            damaged[-1][position] ^= change
    errors = 0
    for data in [whole, *damaged]:
        try:
            expected = split_and_checked(data)
        except BatchError:
            with pytest.raises(BatchError):
                split_intact_batches(data)
            errors += 1
        else:
            assert split_intact_batches(data) == expected
    assert errors > len(whole)


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    """A batch length shorter than the batch header is refused, because it would make a scan loop forever."""
    damaged = bytearray(GOLDEN)
    damaged[8:12] = struct.pack(">i", length)
    with pytest.raises(CorruptBatch, match="length"):
        split_batches(damaged)


@pytest.mark.parametrize(("count", "delta"), [(0, 0), (0, -1), (-1, -2), (1, 1), (3, 1), (2, 0), (2, 2)])
def test_a_batch_whose_counts_disagree_is_invalid(count: int, delta: int) -> None:
    """lastOffsetDelta must be count - 1 and the count positive. Otherwise the batch is invalid even if its CRC is right."""
    batch = resealed(GOLDEN, {23: struct.pack(">i", delta), 57: struct.pack(">i", count)})
    header = read_header(batch)
    validate_integrity(header, batch)
    with pytest.raises(InvalidRecordBatch):
        validate_batch(header, batch)


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_a_batch_cannot_count_more_records_than_its_bytes_can_hold(compression: int) -> None:
    """A batch of 61 bytes whose header counts 2^31 - 1 records would use up all offsets of a segment. So would a slightly
    longer compressed batch. Both are refused."""
    everything = {21: struct.pack(">h", compression), 23: struct.pack(">i", 2**31 - 2), 57: struct.pack(">i", 2**31 - 1)}
    for batch in (encode_batch([Record(None, None)], compress=lambda _: b""), GOLDEN):
        claiming = resealed(bytes(batch), everything)
        with pytest.raises(InvalidRecordBatch, match=r"counts 2147483647 records in (0|22) bytes"):
            validate_batch(read_header(claiming), claiming)


def test_the_smallest_records_are_all_counted() -> None:
    """Each of the smallest records takes seven bytes, so a header that counts one more record is refused."""
    batch = encode_batch([Record(None, None)] * 64)
    assert len(batch) == BATCH_OVERHEAD + 64 * 7
    validate_batch(read_header(batch), batch)
    claiming = resealed(bytes(batch), {23: struct.pack(">i", 64), 57: struct.pack(">i", 65)})
    with pytest.raises(InvalidRecordBatch, match="counts 65 records"):
        validate_batch(read_header(claiming), claiming)


@pytest.mark.parametrize(
    ("compression", "compress"),
    [(1, gzip.compress), (2, cramjam.snappy.compress_raw), (3, cramjam.lz4.compress), (4, cramjam.zstd.compress)],
)
def test_no_compression_is_too_good_for_the_count(compression: int, compress: Callable[[bytes], bytes]) -> None:
    """The header counts as many of the smallest records as fit into 16 MiB, and the batch has 16 MiB of compressed zeros in
    their place. Zeros compress better than real records. If this count is accepted, no real batch is refused."""
    size = 1 << 24
    batch = encode_batch([Record(None, None)], attributes=compression, compress=lambda _: bytes(compress(bytes(size))))
    count = size // 7
    counted = resealed(bytes(batch), {23: struct.pack(">i", count - 1), 57: struct.pack(">i", count)})
    validate_batch(read_header(counted), counted)


def test_an_unknown_compression_code_is_invalid() -> None:
    """Codes 5 to 7 are not defined."""
    batch = resealed(GOLDEN, {21: b"\x00\x05"})
    with pytest.raises(InvalidRecordBatch, match="compression"):
        validate_batch(read_header(batch), batch)


def test_clients_may_not_send_offsets_or_control_batches_or_lose_their_sequence() -> None:
    """A control batch is valid in the log but is refused from a client, and so are a base offset other than 0 and a producer
    id without a sequence."""
    control = encode_batch(GOLDEN_RECORDS, attributes=CONTROL_BIT)
    validate_batch(read_header(control), control)
    with pytest.raises(InvalidRecordBatch, match="control"):
        validate_produced_batch(read_header(control), control)
    without_sequence = encode_batch(GOLDEN_RECORDS, producer_id=9, producer_epoch=0)
    with pytest.raises(InvalidRecordBatch, match="sequence"):
        validate_produced_batch(read_header(without_sequence), without_sequence)
    with pytest.raises(InvalidRecordBatch, match="base offset of a client's batch is 0, not 5"):
        validate_produced_batch(read_header(GOLDEN), GOLDEN)
    sent = resealed(GOLDEN, {0: bytes(8)})
    validate_produced_batch(read_header(sent), sent)


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


def test_several_batches_are_split_in_order() -> None:
    """Each batch is returned with its own offset. An empty buffer holds no batch."""
    second = encode_batch([Record(None, b"v", 1)], base_offset=7)
    batches = split_batches(GOLDEN + second)
    assert [header.base_offset for header, _ in batches] == [5, 7]
    assert [bytes(view) for _, view in batches] == [GOLDEN, bytes(second)]
    assert split_batches(b"") == []


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
