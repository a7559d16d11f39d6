"""The bytes of a producer snapshot: worked out by hand, there and back, and damaged in every place."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from common.slices import at_once
from common.storage.producers.snapshot import (
    CorruptProducerSnapshot,
    decode_producer_snapshot,
    decode_producer_snapshot_entries,
    encode_producer_snapshot,
)
from common.storage.producers.state import BATCHES_KEPT, ProducedBatch, ProducerEntry
from tests.property.profiles import examples

ENTRIES = {
    0x0102: ProducerEntry(3, [ProducedBatch(0, 1, 2, 3, 4), ProducedBatch(5, 9, 16, 20, 0x1234)], 0x1234, 6, 17),
    9: ProducerEntry(1, [], 77, 2),
}
BODY = bytes.fromhex(
    "00000003"  # three entries, two of one producer
    "0000000000000102 0003 00000001 0000000000000003 00000001 0000000000000004 00000006 ffffffffffffffff"
    "0000000000000102 0003 00000009 0000000000000014 00000004 0000000000001234 00000006 0000000000000011"
    "0000000000000009 0001 ffffffff ffffffffffffffff 00000000 000000000000004d 00000002 ffffffffffffffff"
)
CONTENT = bytes.fromhex("0001") + crc32c(BODY).to_bytes(4, "big") + BODY

NUMBERS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**62)


@st.composite
def entries(draw: st.DrawFn) -> ProducerEntry:
    timestamp = draw(st.integers(-1, 2**63 - 1))
    batches = []
    last_offset = draw(OFFSETS)
    for _ in range(draw(st.integers(0, BATCHES_KEPT))):
        last_sequence, delta, timestamp = draw(NUMBERS), draw(NUMBERS), draw(st.integers(-1, 2**63 - 1))
        first_sequence, last_offset = (last_sequence - delta) % 2**31, last_offset + delta + 1
        batches.append(ProducedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
    return ProducerEntry(
        draw(st.integers(-1, 2**15 - 1)),
        batches,
        timestamp,
        draw(st.integers(-1, 2**31 - 1)),
        draw(st.integers(-1, 2**63 - 1)),
    )


def test_the_bytes_are_those_of_apache_kafka() -> None:
    assert encode_producer_snapshot(ENTRIES) == CONTENT


def test_each_batch_that_a_retry_may_have_survives() -> None:
    """As many as a client has in flight: the sixth last batch goes."""
    batches = [ProducedBatch(number, number, number, number, number) for number in range(6)]
    written = {7: ProducerEntry(0, batches, 5), **ENTRIES}
    assert at_once(decode_producer_snapshot(encode_producer_snapshot(written))) == written | {
        7: ProducerEntry(0, batches[1:], 5)
    }


def test_what_apache_kafka_uses_is_the_last_batch() -> None:
    """It reads entry after entry, and the last one with a producer id stays. Only that one may name the transaction, which
    otherwise would begin twice."""
    assert dict(decode_producer_snapshot_entries(CONTENT)) == {
        0x0102: ProducerEntry(3, [ProducedBatch(5, 9, 16, 20, 0x1234)], 0x1234, 6, 17),
        9: ProducerEntry(1, [], 77, 2),
    }
    assert [entry.transaction_first_offset for _, entry in decode_producer_snapshot_entries(CONTENT)] == [-1, 17, -1]


@pytest.mark.parametrize(
    "entries",
    [
        [ProducerEntry(3, [ProducedBatch(0, 0, 5, 5, 1)], 1), ProducerEntry(4, [ProducedBatch(1, 1, 6, 6, 1)], 1)],
        [ProducerEntry(3, [ProducedBatch(0, 1, 5, 6, 1)], 1), ProducerEntry(3, [ProducedBatch(1, 1, 6, 6, 1)], 1)],
        [ProducerEntry(3, [], 1), ProducerEntry(3, [ProducedBatch(1, 1, 6, 6, 1)], 1)],
        [ProducerEntry(3, [ProducedBatch(0, 0, 5, 5, 1)], 1), ProducerEntry(3, [], 1)],
    ],
    ids=["another epoch", "the same offset", "a batch after none", "none after a batch"],
)
def test_entries_of_a_producer_that_contradict_are_refused(entries: list[ProducerEntry]) -> None:
    body = b"".join(encode_producer_snapshot({7: entry})[10:] for entry in entries)
    counted = len(entries).to_bytes(4, "big") + body
    with pytest.raises(CorruptProducerSnapshot, match="of producer 7 that contradict"):
        at_once(decode_producer_snapshot(b"\0\1" + crc32c(counted).to_bytes(4, "big") + counted))


def test_a_snapshot_without_producers_has_ten_bytes() -> None:
    content = encode_producer_snapshot({})
    assert len(content) == 10
    assert at_once(decode_producer_snapshot(content)) == {}


@examples(100)
@given(st.dictionaries(st.integers(0, 2**63 - 1), entries(), max_size=5))
def test_what_is_written_is_read(written: dict[int, ProducerEntry]) -> None:
    assert at_once(decode_producer_snapshot(encode_producer_snapshot(written))) == written


def test_no_changed_bit_and_no_missing_byte_goes_unnoticed() -> None:
    damaged = [CONTENT[:end] for end in range(len(CONTENT))] + [CONTENT + b"\0"]
    for position in range(len(CONTENT)):
        for bit in range(8):
            changed = bytearray(CONTENT)
            changed[position] ^= 1 << bit
            damaged.append(bytes(changed))
    for content in damaged:
        with pytest.raises(CorruptProducerSnapshot):
            at_once(decode_producer_snapshot(content))


@pytest.mark.parametrize("count", [-1, 1, 2, 4, 2**31 - 1])
def test_a_count_that_does_not_fit_is_refused(count: int) -> None:
    """The checksum is right, so only the count can show the damage."""
    body = count.to_bytes(4, "big", signed=True) + BODY[4:]
    with pytest.raises(CorruptProducerSnapshot, match="counts"):
        at_once(decode_producer_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body))
