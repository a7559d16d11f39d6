"""Transaction markers: the bytes that Kafka writes, there and back, and what is refused."""

import pytest

from common.parts import Buffer
from common.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    InvalidRecordBatch,
    assemble_batch,
    read_header,
    validate_batch,
)
from common.records.control import LeaderChangeMessage, encode_control_batch
from common.records.end_transaction import EndTransactionMarker, decode_end_transaction, encode_marker_batch
from common.records.record import Record, encode_batch
from tests.unit.common.records.hexadecimal import from_annotated

COMMIT = EndTransactionMarker(producer_id=0x0102, producer_epoch=3, coordinator_epoch=0x0405, is_commit=True)
# The same as from `MemoryRecords.withEndTransactionMarker` of Apache Kafka 3.9.1.
GOLDEN = from_annotated("""
    00 00 00 00 00 00 00 00   # base offset 0
    00 00 00 42               # batch length: 78 bytes in all minus 12
    ff ff ff ff               # partition leader epoch: none yet
    02                        # magic
    9c b5 c0 bd               # CRC-32C of all that follows, by a bit-at-a-time calculation
    00 30                     # attributes: a control batch, transactional
    00 00 00 00               # last offset delta
    00 00 00 00 00 00 03 e8   # base timestamp 1000
    00 00 00 00 00 00 03 e8   # max timestamp 1000
    00 00 00 00 00 00 01 02   # producer id
    00 03                     # producer epoch
    ff ff ff ff               # base sequence: none
    00 00 00 01               # one record
    20                        # of 16 bytes
    00 00 00                  # attributes, timestamp delta, offset delta
    08 00 00 00 01            # key of 4 bytes: version 0, type 1 (commit)
    0c 00 00 00 00 04 05      # value of 6 bytes: version 0, coordinator epoch
    00                        # no headers
""")


def control_batch(key: Buffer | None, value: Buffer | None) -> bytearray:
    return encode_batch([Record(key, value, 5)], attributes=CONTROL_BIT | TRANSACTIONAL_BIT, producer_id=1, producer_epoch=2)


def test_a_commit_is_written_as_its_golden_bytes() -> None:
    assert encode_marker_batch(COMMIT, timestamp_ms=1000).hex(" ") == GOLDEN.hex(" ")
    validate_batch(read_header(GOLDEN), GOLDEN)
    assert decode_end_transaction(GOLDEN) == COMMIT


def test_an_abort_comes_back_as_it_was_written() -> None:
    marker = EndTransactionMarker(2**62, 32767, -1, is_commit=False)
    assert decode_end_transaction(encode_marker_batch(marker, timestamp_ms=-1)) == marker


def test_a_later_version_of_the_value_may_have_more_fields() -> None:
    batch = control_batch(bytes.fromhex("0001 0000"), bytes.fromhex("0001 00000009 0000000000000007"))
    assert decode_end_transaction(batch) == EndTransactionMarker(1, 2, 9, is_commit=False)


def test_other_control_records_and_emptied_batches_are_no_markers() -> None:
    assert decode_end_transaction(encode_control_batch([LeaderChangeMessage()], timestamp_ms=5)) is None
    assert decode_end_transaction(control_batch(bytes.fromhex("0000 0007"), None)) is None
    assert decode_end_transaction(assemble_batch(read_header(GOLDEN)._replace(record_count=0), b"")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, "0000 00000001"),
        ("0000", "0000 00000001"),
        ("ffff 0001", "0000 00000001"),
        ("0000 0001", None),
        ("0000 0001", "0000 000000"),
        ("0000 0001", "ffff 00000001"),
    ],
)
def test_a_malformed_marker_is_refused(key: str | None, value: str | None) -> None:
    batch = control_batch(None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    with pytest.raises(InvalidRecordBatch):
        decode_end_transaction(batch)
