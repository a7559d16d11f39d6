"""Encoding metadata records into batches, decoding, splitting, and damage."""

import pytest

from common.ids import LeaderEpoch, Offset, TopicId, Uuid
from common.metadata.directory_ids import MIGRATING
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, DIRECTORY_NUMBERING_KIP858
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.numbering import Numbering
from common.raft.core.record_batches import (
    EncodedBatch,
    RecordsTooLarge,
    UnreadableBatch,
    check_batch,
    decode_batch,
    encode_batches,
)
from common.records.batch import split_batches
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import FeatureLevelRecord, NoOpRecord, PartitionRecord, TopicRecord


def topic(number: int) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(TopicRecord(name=f"topic-{number}", topic_id=TopicId(Uuid(number.to_bytes(16, "big")))), 0)


def encode(
    records: list[ApiMessageAndVersion],
    *,
    is_atomic: bool = False,
    bytes_max: int = 10_000,
    records_max: int = 4,
    numbering: Numbering = Numbering.KIP858,
) -> list[EncodedBatch]:
    return encode_batches(
        records,
        base_offset=Offset(100),
        epoch=LeaderEpoch(3),
        append_time_ms=1234,
        numbering=numbering,
        is_atomic=is_atomic,
        bytes_max=bytes_max,
        records_max=records_max,
    )


def test_what_was_encoded_is_decoded() -> None:
    """Offsets continue across batches, and the decoded batches equal those that the encoder returned."""
    records = [topic(number) for number in range(10)]
    encoded = encode(records)
    assert [(entry.batch.base_offset, entry.batch.last_offset) for entry in encoded] == [(100, 103), (104, 107), (108, 109)]
    reader = MetadataRecordReader(Numbering.KIP858)
    written = b"".join(entry.buffer for entry in encoded)
    decoded = [decode_batch(header, view, reader) for header, view in split_batches(written)]
    assert decoded == [entry.batch for entry in encoded]
    assert [record for batch in decoded for record in batch.records] == [entry.record for entry in records]


def test_no_batch_grows_above_the_limit_or_is_split_without_need() -> None:
    """No batch exceeds the limit, and none is split unnecessarily."""
    encoded = encode([topic(number) for number in range(4)], bytes_max=200)
    assert len(encoded) == 2
    assert all(len(entry.buffer) <= 200 for entry in encoded)


def test_atomic_records_are_not_split() -> None:
    """Atomic records go into one batch. If they are too many or too large for one, all of them are refused."""
    assert len(encode([topic(number) for number in range(4)], is_atomic=True)) == 1
    with pytest.raises(RecordsTooLarge):
        encode([topic(number) for number in range(5)], is_atomic=True)
    with pytest.raises(RecordsTooLarge):
        encode([topic(number) for number in range(4)], is_atomic=True, bytes_max=200)


def test_a_record_larger_than_a_batch_is_refused() -> None:
    """A single record that exceeds the batch limit raises, because splitting cannot make it fit."""
    with pytest.raises(RecordsTooLarge):
        encode([ApiMessageAndVersion(TopicRecord(name="x" * 300), 0)], bytes_max=300)


def test_the_numbering_is_taken_from_the_log() -> None:
    """A new reader learns the numbering from the feature record before the first partition."""
    feature = FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=DIRECTORY_NUMBERING_KIP858)
    partition = PartitionRecord(partition_id=0, replicas=[1], isr=[1], leader=1, directories=[MIGRATING])
    encoded = encode([ApiMessageAndVersion(feature, 0), ApiMessageAndVersion(partition, 1)])
    (batch,) = split_batches(encoded[0].buffer)
    assert decode_batch(*batch, MetadataRecordReader()).records == (feature, partition)


def test_a_damaged_batch_is_unreadable_at_its_offset() -> None:
    """A flipped byte fails the checksum and makes the record undecodable. Both errors name the batch's offset."""
    buffer = encode([ApiMessageAndVersion(NoOpRecord(), 0)])[0].buffer
    (intact,) = split_batches(bytes(buffer))
    check_batch(*intact)
    buffer[-3] ^= 0x40
    (broken,) = split_batches(buffer)
    with pytest.raises(UnreadableBatch, match="offset 100"):
        check_batch(*broken)
    with pytest.raises(UnreadableBatch, match="offset 100"):
        decode_batch(*broken, MetadataRecordReader())
