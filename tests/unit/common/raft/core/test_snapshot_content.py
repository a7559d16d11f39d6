"""Snapshots as bytes: round trips, truncation, damage."""

import pytest

from common.ids import LeaderEpoch, Uuid
from common.metadata.metadata_version import METADATA_VERSION_FEATURE
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.numbering import Numbering
from common.raft.core.quorum_records import QuorumRecords
from common.raft.core.record_batches import UnreadableBatch
from common.raft.core.snapshot_content import InvalidSnapshot, SnapshotEncoder, parse_snapshot
from common.records.batch import split_batches
from common.records.control import KRaftVersionRecord, Voter, VotersRecord
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import FeatureLevelRecord, TopicRecord

RECORDS = [
    ApiMessageAndVersion(FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=21), 0),
    ApiMessageAndVersion(TopicRecord(name="orders", topic_id=Uuid(bytes(15) + b"\x99")), 0),
    ApiMessageAndVersion(TopicRecord(name="returns", topic_id=Uuid(bytes(15) + b"\x9a")), 0),
]


def parts() -> list[bytearray]:
    """Encodes a snapshot of a header, a batch of one record, a batch of two, and a footer."""
    encoder = SnapshotEncoder(epoch=LeaderEpoch(4), numbering=Numbering.KIP858, written_ms=2_000)
    return [encoder.header(1_234), *encoder.records(RECORDS[:1]), *encoder.records(RECORDS[1:]), encoder.footer()]


def test_a_snapshot_is_read_back() -> None:
    """Offsets count from 0 across control and data batches, and each batch has the snapshot's epoch."""
    written = b"".join(parts())
    headers = [header for header, _ in split_batches(written)]
    assert [header.base_offset for header in headers] == [0, 1, 2, 4]
    assert {header.partition_leader_epoch for header in headers} == {4}
    assert [header.is_control for header in headers] == [True, False, False, True]

    content = parse_snapshot(written)
    assert content.last_contained_timestamp == 1_234
    assert content.quorum_records == QuorumRecords()
    assert list(content.records(MetadataRecordReader())) == [entry.record for entry in RECORDS]


def test_the_quorum_records_are_read_back() -> None:
    """They share the first batch with the header, as in Apache Kafka's snapshots, and none of them counts as metadata."""
    voters = QuorumRecords(KRaftVersionRecord(k_raft_version=1), VotersRecord(voters=[Voter(voter_id=7)]))
    encoder = SnapshotEncoder(epoch=LeaderEpoch(4), numbering=Numbering.KIP858, written_ms=2_000)
    written = b"".join([encoder.header(1_234, voters.messages), *encoder.records(RECORDS), encoder.footer()])
    assert [header.base_offset for header, _ in split_batches(written)] == [0, 3, 6]
    content = parse_snapshot(written)
    assert content.quorum_records == voters
    assert list(content.records(MetadataRecordReader())) == [entry.record for entry in RECORDS]


def test_every_cut_is_noticed() -> None:
    """A snapshot cut at a batch boundary or inside a batch is invalid."""
    written = b"".join(parts())
    for size in range(len(written)):
        with pytest.raises(InvalidSnapshot):
            parse_snapshot(written[:size])


def test_a_missing_header_is_noticed() -> None:
    """A file that does not start with a snapshot header is invalid."""
    with pytest.raises(InvalidSnapshot, match="header"):
        parse_snapshot(b"".join(parts()[1:]))


def test_a_flipped_byte_is_noticed() -> None:
    """A changed byte in a record fails the batch's checksum."""
    written = bytearray(b"".join(parts()))
    position = len(parts()[0]) + 70
    written[position] ^= 1
    with pytest.raises(UnreadableBatch):
        parse_snapshot(written)
