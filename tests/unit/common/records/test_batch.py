"""Headers of record batches v2: golden bytes, every kind of damage, in-place changes."""

import gzip
import struct
from collections.abc import Callable

import cramjam
import pytest

from common.records.batch import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    BatchError,
    BatchHeader,
    CorruptBatch,
    InvalidRecordBatch,
    OldFormat,
    TruncatedBatch,
    read_header,
    set_base_offset_and_epoch,
    split_batches,
    split_intact_batches,
    validate_batch,
    validate_integrity,
    validate_produced_batch,
)
from common.records.record import Record, encode_batch, iterate_records
from tests.unit.common.records.golden_batch import GOLDEN, GOLDEN_RECORDS, resealed
from tests.unit.common.records.log_append_time import set_log_append_time


def test_decoding_the_golden_bytes() -> None:
    """Header and records of the golden batch are decoded with absolute offsets and timestamps."""
    header = read_header(GOLDEN)
    assert header == BatchHeader(5, 71, 7, 2, 0x0D263939, 0, 1, 1000, 1100, -1, -1, -1, 2)
    assert (header.size, header.last_offset, header.next_offset) == (83, 6, 7)
    assert not header.is_control
    validate_batch(header, GOLDEN)
    assert list(iterate_records(GOLDEN)) == GOLDEN_RECORDS


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


def test_several_batches_are_split_in_order() -> None:
    """Each batch is returned with its own offset. An empty buffer holds no batch."""
    second = encode_batch([Record(None, b"v", 1)], base_offset=7)
    batches = split_batches(GOLDEN + second)
    assert [header.base_offset for header, _ in batches] == [5, 7]
    assert [bytes(view) for _, view in batches] == [GOLDEN, bytes(second)]
    assert split_batches(b"") == []
