"""Messages and bytes that the codec refuses, and the exception that each of them raises."""

import pytest

from common.ids import ZERO_UUID, Uuid
from common.parts import FileRegion
from common.protocol.codec import decode, decode_with_version, encode, encode_parts
from common.protocol.errors import (
    BufferUnderflow,
    EncodeError,
    InvalidValue,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    TrailingBytes,
    UnsupportedVersion,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.protocol.messages.broker_registration import BrokerRegistrationRequest
from common.protocol.messages.default_principal_data import DefaultPrincipalData
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from common.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from common.protocol.messages.fetch import PartitionData as FetchedPartition
from common.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.schema import Int32, Kind, Records, Struct, message

HEARTBEAT = encode(BrokerHeartbeatRequest(offline_log_dirs=[ZERO_UUID]), 1)
HEARTBEAT_FIXED = HEARTBEAT[:22]


@message(kind=Kind.DATA, versions="0", flexible="none")
class Stored(Struct):
    """A message that only the tests use, with records that must not be null."""

    count: Int32 = 0
    records: Records = b""


class Region(FileRegion):
    def __init__(self, size: int) -> None:
        self.size = size


# --- decoding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(len(HEARTBEAT)))
def test_every_truncation_is_an_underflow(length: int) -> None:
    """A truncated message is refused at any length, never completed with zeros."""
    with pytest.raises(BufferUnderflow):
        decode(BrokerHeartbeatRequest, HEARTBEAT[:length], 1)


def test_a_message_ends_where_its_buffer_ends() -> None:
    """Bytes after the end of a message are refused."""
    with pytest.raises(TrailingBytes, match="1 bytes follow BrokerHeartbeatRequest version 1"):
        decode(BrokerHeartbeatRequest, HEARTBEAT + b"\x00", 1)


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ("02 05 00 05 00", "tag 5"),  # tag 5 twice
        ("02 06 00 05 00", "tag 5"),  # tag 6 before tag 5
        ("02 00 01 01 00 01 01", "tag 0"),  # tag 0, which is declared, twice
        ("01 00 02 01 00", "does not have the size"),  # value shorter than its size
        ("01 00 03 02 0000000000000000000000000000000000", "does not have the size"),  # value longer than its size
        ("01 00 01 00", "must not be null"),
        ("01 808080808001 00", "varint"),
        ("01 ffffffff7f 00", "varint"),
    ],
)
def test_malformed_tagged_fields_are_refused(tags: str, reason: str) -> None:
    """Tags must strictly ascend, each field must take exactly its announced size, and a varint has at most 32 bits."""
    with pytest.raises(InvalidValue, match=reason):
        decode(BrokerHeartbeatRequest, HEARTBEAT_FIXED + bytes.fromhex(tags), 1)


def test_a_tagged_field_beyond_the_end() -> None:
    """The announced size of an unknown tagged field is checked before the field's bytes are read."""
    with pytest.raises(BufferUnderflow):
        decode(BrokerHeartbeatRequest, HEARTBEAT_FIXED + bytes.fromhex("01 05 7f 00"), 1)


def test_null_where_none_is_allowed() -> None:
    """A null array in MetadataRequest version 0 and a null string in version 9 are refused. The error names the field."""
    with pytest.raises(InvalidValue, match=r"MetadataRequest\.topics must not be null"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)
    with pytest.raises(InvalidValue, match=r"MetadataRequestTopic\.name must not be null"):
        decode(MetadataRequest, b"\x02\x00\x00\x01\x00\x00\x00", 9)


def test_lengths_below_null_are_refused() -> None:
    """-1 means null. Any other negative length is malformed, even where null is allowed."""
    with pytest.raises(InvalidValue):
        decode(MetadataRequest, b"\xff\xff\xff\xfe", 1)
    with pytest.raises(InvalidValue):
        decode(Stored, bytes(4) + b"\xff\xff\xff\xfe", 0)


def test_text_that_is_not_utf_8() -> None:
    """Overlong encodings, surrogates and stray bytes are refused."""
    for text in (b"\xc0\x80", b"\xed\xa0\x80", b"\xff"):
        data = b"\x00\x00\x00\x01" + len(text).to_bytes(2, "big") + text
        with pytest.raises(InvalidValue, match="not UTF-8"):
            decode(MetadataRequest, data, 1)


def test_a_compact_string_longer_than_kafka_allows() -> None:
    """The compact form could announce more than 32,767 bytes. Kafka refuses that, and so do we."""
    text = b"x" * 0x8000
    # 0x8001 is the varint 81 80 02.
    data = b"\x02" + b"\x81\x80\x02" + text + b"\x00\x01\x00\x00\x00"
    with pytest.raises(InvalidValue, match="32768 bytes"):
        decode(MetadataRequest, data, 9)


def test_more_elements_than_a_request_may_have() -> None:
    """A request within the frame size limit must not become millions of objects in memory."""
    count = 600_000
    # Three topics of 600,000 partitions each; 600,001 is the varint c1 cf 24.
    topic = b"\x02t" + b"\xc1\xcf\x24" + bytes(4 * count) + b"\x00"
    one = decode(DescribeLogDirsRequest, b"\x02" + topic + b"\x00", 2)
    assert one.topics is not None
    assert len(one.topics[0].partitions) == count
    with pytest.raises(InvalidValue, match="take more than"):
        decode(DescribeLogDirsRequest, b"\x04" + topic * 3 + b"\x00", 2)


def test_an_unknown_version_of_a_stored_message() -> None:
    """The message was stored by a newer release. Its bytes are refused like malformed ones."""
    with pytest.raises(RemoteProtocolError):
        decode_with_version(DefaultPrincipalData, b"\x00\x01\x01\x01\x00\x00")
    with pytest.raises(BufferUnderflow):
        decode_with_version(DefaultPrincipalData, b"\x00")


# --- encoding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "version", "reason"),
    [
        (FetchRequest(replica_id=2**31), 4, "format"),
        (FetchRequest(isolation_level=128), 4, "format"),
        (FetchRequest(max_wait_ms=None), 4, "FetchRequest"),  # type: ignore[arg-type]
        (MetadataRequest(allow_auto_topic_creation=None), 4, "MetadataRequest"),  # type: ignore[arg-type]
        (MetadataRequest(topics=None), 0, r"MetadataRequest\.topics must not be null"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, r"MetadataRequestTopic\.name must not be null"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="x" * 0x8000)]), 9, "32768 bytes"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]), 9, "surrogates"),
        (MetadataRequest(topics=[MetadataRequestTopic(topic_id=Uuid(b"short"))]), 10, "not a uuid"),
        (BrokerRegistrationRequest(log_dirs=[Uuid(b"short")]), 2, "not a uuid"),
        (BrokerRegistrationRequest(log_dirs=None), 2, "must not be null"),  # type: ignore[arg-type]
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]), 5, r"topics is set, but version 5"),
        (FetchRequest(replica_id=1), 15, r"replica_id is set, but version 15"),
        (MetadataRequest(unknown_tagged_fields={5: b""}), 8, "unknown_tagged_fields is set"),
        (BrokerHeartbeatRequest(offline_log_dirs=[ZERO_UUID], unknown_tagged_fields={0: b""}), 1, "tag 0"),
        (BrokerHeartbeatRequest(offline_log_dirs=[ZERO_UUID]), 0, "offline_log_dirs is set"),
    ],
)
def test_what_a_version_cannot_carry(refused: Struct, version: int, reason: str) -> None:
    """Encoding refuses numbers out of range, forbidden nulls, texts that are too long, and fields that the version lacks."""
    with pytest.raises(EncodeError, match=reason):
        encode(refused, version)


def test_ignorable_fields_are_left_out() -> None:
    """A field that the version lacks is dropped silently if Kafka declares it ignorable."""
    partitions = [FetchPartition(partition=1, current_leader_epoch=4, log_start_offset=9)]
    request = FetchRequest(session_id=3, rack_id="a", topics=[FetchTopic(topic="t", partitions=partitions)])
    decoded = decode(FetchRequest, encode(request, 4), 4)
    assert decoded == FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=1)])])


def test_a_number_out_of_range_among_many() -> None:
    """The column encoder, which handles long arrays, checks number ranges like the loop for short arrays does."""
    for count in (2, 20):
        partitions = [ListOffsetsPartition(partition_index=index) for index in range(count)]
        partitions[-1].timestamp = 2**63
        with pytest.raises(EncodeError):
            encode(ListOffsetsRequest(topics=[ListOffsetsTopic(partitions=partitions)]), 6)


def test_undeclared_versions_are_refused_both_ways() -> None:
    """Encoding or decoding a version that is not declared raises UnsupportedVersion: it is a bug of the caller."""
    for refused in (-1, 3):
        with pytest.raises(UnsupportedVersion, match="versions 0-2"):
            encode(BrokerHeartbeatRequest(), refused)
        with pytest.raises(UnsupportedVersion):
            decode(BrokerHeartbeatRequest, HEARTBEAT, refused)


def test_the_tree_of_errors() -> None:
    """A connection can catch one class; its two subclasses say which side is at fault."""
    assert issubclass(RemoteProtocolError, ProtocolError)
    assert issubclass(LocalProtocolError, ProtocolError)
    assert not issubclass(RemoteProtocolError, LocalProtocolError)


# --- records -----------------------------------------------------------------------------------------------------------


def test_records_are_not_copied() -> None:
    """Decoded records are a view of the frame, writable if the frame is, and are encoded again without copying."""
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch"), PartitionProduceData()])
    frame = bytearray(encode(ProduceRequest(topic_data=[topic]), 9))
    decoded = decode(ProduceRequest, frame, 9)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    records[:1] = b"B"
    assert b"Batch" in frame
    assert decoded.topic_data[0].partition_data[1].records is None
    parts = encode_parts(decoded, 9)
    assert any(part is records for part in parts)


def test_regions_of_files_pass_through() -> None:
    """`encode_parts` keeps a file region in its place among the parts and adds its size to the length of the records.

    `encode` returns only bytes, so it must refuse a region.
    """
    region = Region(1000)
    partitions = [FetchedPartition(records=[b"ab", region]), FetchedPartition(partition_index=1, records=b"")]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    for version in (11, 17):
        parts = encode_parts(response, version)
        assert region in parts
        whole = b"".join(bytes(1000) if isinstance(part, FileRegion) else bytes(part) for part in parts)
        decoded = decode(FetchResponse, whole, version)
        assert decoded.responses[0].partitions[0].records == b"ab" + bytes(1000)
        assert decoded.responses[0].partitions[1].records == b""
        with pytest.raises(EncodeError, match="region"):
            encode(response, version)
