"""Control records: golden bytes of a control batch, all types, damage."""

import pytest

from common.records.batch import InvalidRecordBatch, read_header, validate_batch
from common.records.control import (
    ControlMessage,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    UnknownControlRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    decode_control_message,
    encode_control_batch,
    iterate_control_records,
)
from common.records.record import Record, encode_batch
from tests.unit.common.metadata.builders import uuid
from tests.unit.common.records.hexadecimal import from_annotated

GOLDEN = from_annotated("""
    00 00 00 00 00 00 00 07   # base offset 7
    00 00 00 4f               # batch length: 91 bytes in all minus 12
    00 00 00 03               # partition leader epoch 3
    02                        # magic
    dd 26 11 1c               # CRC-32C of all that follows, by a bit-at-a-time calculation
    00 20                     # attributes: a control batch
    00 00 00 00               # last offset delta
    00 00 00 00 00 00 03 e8   # base timestamp 1000
    00 00 00 00 00 00 03 e8   # max timestamp 1000
    ff ff ff ff ff ff ff ff   # producer id: none
    ff ff                     # producer epoch: none
    ff ff ff ff               # base sequence: none
    00 00 00 01               # one record
    3a                        # of 29 bytes
    00 00 00                  # attributes, timestamp delta, offset delta
    08 00 00 00 02            # key of 4 bytes: version 0, type 2 (leader change)
    26                        # value of 19 bytes
      00 00                   #   version 0
      00 00 0b b8             #   leader 3000
      02 00 00 0b b8 00       #   one voter: 3000, no tagged fields
      02 00 00 0b b8 00       #   granted by 3000, no tagged fields
      00                      #   no tagged fields
    00                        # no headers
""")

LEADER_CHANGE = LeaderChangeMessage(
    leader_id=3000, voters=[LeaderChangeVoter(voter_id=3000)], granting_voters=[LeaderChangeVoter(voter_id=3000)]
)


def test_a_leader_change_is_written_as_its_golden_bytes() -> None:
    """The first batch of an epoch holds a leader change. It is encoded to, and decoded from, bytes derived by hand."""
    assert encode_control_batch([LEADER_CHANGE], timestamp_ms=1000, base_offset=7, leader_epoch=3).hex(" ") == GOLDEN.hex(
        " "
    )
    validate_batch(read_header(GOLDEN), GOLDEN)
    (record,) = iterate_control_records(GOLDEN)
    assert (record.offset, record.message) == (7, LEADER_CHANGE)


@pytest.mark.parametrize(
    ("message", "listing"),
    [
        (SnapshotHeaderRecord(last_contained_log_timestamp=5), "00 00   00 00 00 00 00 00 00 05   00"),
        (SnapshotFooterRecord(), "00 00   00"),
        (KRaftVersionRecord(k_raft_version=1), "00 00   00 01   00"),
        (
            LeaderChangeMessage(version=1, leader_id=1, voters=[LeaderChangeVoter(voter_id=1, voter_directory_id=uuid(2))]),
            """
            00 01                                                    # version 1
            00 00 00 01                                              # leader 1
            02 00 00 00 01                                           # one voter: 1
               40 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 00    # in this directory
            01                                                       # granted by nobody
            00
            """,
        ),
        (
            VotersRecord(
                voters=[
                    Voter(
                        voter_id=1,
                        voter_directory_id=uuid(2),
                        endpoints=[VoterEndpoint(name="C", host="h", port=9093)],
                        k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
                    )
                ]
            ),
            """
            00 00                                                    # version 0
            02 00 00 00 01                                           # one voter: 1
               40 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02       # its directory
               02 02 43 02 68 23 85 00                               # one endpoint: "C", "h", 9093
               00 00 00 01 00                                        # kraft.version 0 to 1
               00
            00
            """,
        ),
    ],
)
def test_values_of_the_other_messages(message: ControlMessage, listing: str) -> None:
    """Each message's value has the bytes derived by hand, and is decoded from its batch again."""
    batch = encode_control_batch([message], timestamp_ms=1)
    value = from_annotated(listing)
    assert bytes(batch[-len(value) - 1 : -1]) == value
    assert [record.message for record in iterate_control_records(batch)] == [message]


def test_several_records_in_one_batch() -> None:
    """The first batch of a snapshot may hold more than the snapshot header."""
    messages: list[ControlMessage] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=9),
        KRaftVersionRecord(k_raft_version=1),
    ]
    records = list(iterate_control_records(encode_control_batch(messages, timestamp_ms=1, base_offset=4)))
    assert [(record.offset, record.message) for record in records] == [(4, messages[0]), (5, messages[1])]


def test_unknown_types_are_kept() -> None:
    """A tool that prints a partition's log also meets transaction markers. They are decoded without an error."""
    record = Record(b"\x00\x00\x00\x01", b"abc")
    assert decode_control_message(record) == UnknownControlRecord(1, b"abc")


@pytest.mark.parametrize(
    "record",
    [
        Record(None, b"\x00\x00\x00"),
        Record(b"\x00\x00\x00", b"\x00\x00\x00"),
        Record(b"\x00\x00\x00\x04", None),
        Record(b"\x00\x00\x00\x04", b"\x00"),
        Record(b"\x00\x00\x00\x04", b"\x00\x07\x00"),
        Record(b"\x00\x00\x00\x04", b"\x00\x00"),
        Record(b"\x00\x00\x00\x04", b"\x00\x00\x00\x00"),
        Record(b"\xff\xff\x00\x04", b"\x00\x00\x00"),
    ],
)
def test_damaged_control_records_are_invalid(record: Record) -> None:
    """Missing or short keys, unknown versions and malformed values raise."""
    with pytest.raises(InvalidRecordBatch):
        decode_control_message(record)


def test_data_is_no_control_batch() -> None:
    """A batch without the control bit is refused by the decoder of control records."""
    with pytest.raises(InvalidRecordBatch):
        list(iterate_control_records(encode_batch([Record(b"\x00\x00\x00\x04", b"\x00\x00\x00")])))
