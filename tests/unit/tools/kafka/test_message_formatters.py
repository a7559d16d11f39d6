"""What kafka-console-consumer writes for a record, with the properties of Kafka's formatters."""

import json

import pytest

from common.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group,
    encode_key,
    encode_offset,
)
from tools.errors import ToolError
from tools.kafka.message_formatters import PACKAGE, ConsumedRecord, new_formatter

RECORD = ConsumedRecord("t", 1, 7, 1, 1234, b"k", b"v", [("a", b"1"), ("b", None)], 5)
BARE = ConsumedRecord("t", 0, 0, 0, -1, None, None)
EVERYTHING = {f"print.{part}": "true" for part in "timestamp partition offset delivery epoch headers key value".split()}


def written(record: ConsumedRecord, name: str = "DefaultMessageFormatter", **properties: str) -> bytes:
    return new_formatter(PACKAGE + name, {key.replace("_", "."): value for key, value in properties.items()})(record)


def test_the_value_is_written_unless_it_is_not_wanted() -> None:
    assert written(RECORD) == b"v\n"
    assert written(RECORD, print_value="false") == b""
    assert written(RECORD, print_key="TRUE", print_value="false") == b"k\n"


def test_everything_about_a_record() -> None:
    """The parts are in Kafka's order, whatever the order of the properties."""
    line = b"CreateTime:1234\tPartition:1\tOffset:7\tDelivery:NOT_PRESENT\tEpoch:5\ta:1,b:null\tk\tv\n"
    assert written(RECORD, **dict(reversed(EVERYTHING.items()))) == line
    bare = b"NO_TIMESTAMP\tPartition:0\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"
    assert written(BARE, **EVERYTHING) == bare


def test_separators_and_nulls() -> None:
    properties = {"key.separator": " | ", "line.separator": "\r\n", "headers.separator": ";", "null.literal": "~"}
    assert written(RECORD, print_headers="true", print_key="true", **properties) == b"a:1;b:~ | k | v\r\n"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("Long", b"\xff" * 8, b"-1"),
        ("Integer", b"\0\0\1\0", b"256"),
        ("Short", b"\0\7", b"7"),
        ("Double", b"\x3f\xf8" + bytes(6), b"1.5"),
        ("Float", b"\x3f\xc0\0\0", b"1.5"),
        ("String", b"\xff", b"\xff"),
        ("ByteArray", b"x", b"x"),
    ],
)
def test_deserializers(name: str, content: bytes, text: bytes) -> None:
    record = ConsumedRecord("t", 0, 0, 0, -1, None, content)
    class_name = f"org.apache.kafka.common.serialization.{name}Deserializer"
    assert written(record, value_deserializer=class_name) == text + b"\n"


def test_a_value_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="1 bytes are no long, which has 8"):
        written(RECORD, value_deserializer="LongDeserializer")


@pytest.mark.parametrize(
    ("name", "properties", "text"),
    [
        ("NoSuchFormatter", {}, "NoSuchFormatter is not supported; it takes org.apache.kafka"),
        ("DefaultMessageFormatter", {"key_deserializer": "JsonDeserializer"}, "key.deserializer=JsonDeserializer is not"),
    ],
)
def test_unknown_classes(name: str, properties: dict[str, str], text: str) -> None:
    with pytest.raises(ToolError, match=text):
        written(RECORD, name, **properties)


OFFSET_KEY = encode_key(OffsetCommitKey(group="g", topic="t", partition=3))
GROUP_KEY = encode_key(GroupMetadataKey(group="g"))


def internal(key: bytes | None, value: bytes | None) -> ConsumedRecord:
    return ConsumedRecord("__consumer_offsets", 0, 9, 1, 1, key, value)


def test_committed_offsets_as_json() -> None:
    """The records of groups are left out. A tombstone has no value."""
    value = encode_offset(OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=8))
    name = "OffsetsMessageFormatter"
    line = written(internal(OFFSET_KEY, value), name)
    assert line == (
        b'{"key":{"type":1,"data":{"group":"g","topic":"t","partition":3}},"value":{"version":4,"data":{"offset":5,'
        b'"leaderEpoch":1,"metadata":"m","commitTimestamp":8}}}\n'
    )
    assert json.loads(written(internal(OFFSET_KEY, None), name))["value"] is None
    assert written(internal(GROUP_KEY, b""), name) == b""
    assert written(internal(None, b"x"), name) == b""
    assert written(internal(b"\x7f\xff", b"x"), name) == b""


def test_groups_as_json() -> None:
    value = encode_group(GroupMetadataValue(protocol_type="consumer", generation=2, protocol="range", leader="m"))
    found = json.loads(written(internal(GROUP_KEY, value), "GroupMetadataMessageFormatter"))
    assert found["key"] == {"type": 2, "data": {"group": "g"}}
    assert (found["value"]["version"], found["value"]["data"]["generation"]) == (3, 2)
    assert written(internal(OFFSET_KEY, b""), "GroupMetadataMessageFormatter") == b""
    old = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    assert new_formatter(old, {})(internal(GROUP_KEY, value)) == b""


def test_rubbish_in_an_internal_topic() -> None:
    with pytest.raises(ValueError, match="the record at offset 9 cannot be read"):
        written(internal(OFFSET_KEY, b"\0"), "OffsetsMessageFormatter")


def test_nothing_is_written_if_so_wanted() -> None:
    assert written(RECORD, "NoOpMessageFormatter") == b""
