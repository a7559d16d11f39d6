"""The records of `__consumer_offsets`, compared with bytes that the classes of Apache Kafka 4.1 have written."""

import pytest

from common.ids import Uuid
from common.protocol.codec import decode_with_version, encode_with_version
from common.protocol.errors import ProtocolError
from common.records.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
)

TOPIC_ID = Uuid((1).to_bytes(8, "big") + (2).to_bytes(8, "big"))


def wire(annotated: str) -> bytes:
    """Decodes hex text. Everything after a '#' is a comment."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in annotated.splitlines()))


OFFSET_KEY = wire("0001 0001 67 0002 7474 00000102  # version, group, topic, partition")
GROUP_KEY = wire("0002 0001 67  # version, group")

OFFSET_VALUES = {
    0: "0000 0000000000000007 0001 6d 00000000000003e8  # version, offset, metadata, commit timestamp",
    1: "0001 0000000000000007 0001 6d 00000000000003e8 0000000000001770  # ends with the expire timestamp",
    2: "0002 0000000000000007 0001 6d 00000000000003e8  # as version 0",
    3: "0003 0000000000000007 00000003 0001 6d 00000000000003e8  # the leader epoch follows the offset",
    4: """
       0004 0000000000000007 00000003 02 6d 00000000000003e8  # metadata is compact
       01 00 10 00000000000000010000000000000002              # one tagged field: the topic id
       """,
}

GROUP_VALUES = {
    0: """
       0000 0008 636f6e73756d6572 00000005 0005 72616e6765 0003 692d31  # version, type, generation, protocol, leader
       00000001 0003 692d31 0001 63 0002 2f68  # one member: its id, client id, client host
       00002710 00000002 0102 00000001 03      # session timeout, subscription, assignment
       """,
    1: """
       0001 0008 636f6e73756d6572 00000005 0005 72616e6765 0003 692d31
       00000001 0003 692d31 0001 63 0002 2f68
       0000ea60 00002710 00000002 0102 00000001 03  # the rebalance timeout precedes the session timeout
       """,
    2: """
       0002 0008 636f6e73756d6572 00000005 0005 72616e6765 0003 692d31
       00000000000003e8  # state timestamp
       00000001 0003 692d31 0001 63 0002 2f68
       0000ea60 00002710 00000002 0102 00000001 03
       """,
    3: """
       0003 0008 636f6e73756d6572 00000005 0005 72616e6765 0003 692d31
       00000000000003e8
       00000001 0003 692d31 0001 69 0001 63 0002 2f68  # the instance id follows the member id
       0000ea60 00002710 00000002 0102 00000001 03
       """,
    4: """
       0004 09 636f6e73756d6572 00000005 06 72616e6765 04 692d31  # everything is compact
       00000000000003e8
       02 04 692d31 02 69 02 63 03 2f68
       0000ea60 00002710 03 0102 02 03
       00 00  # no tagged fields
       """,
}


def offset_value(version: int) -> OffsetCommitValue:
    """Returns the value whose bytes are above, with what this version has."""
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=1000)
    if version == 1:
        value.expire_timestamp = 6000
    if version >= 3:
        value.leader_epoch = 3
    if version >= 4:
        value.topic_id = TOPIC_ID
    return value


def group_value(version: int) -> GroupMetadataValue:
    """Returns the value whose bytes are above, with what this version has."""
    member = MemberMetadata(
        member_id="i-1",
        client_id="c",
        client_host="/h",
        session_timeout=10_000,
        subscription=b"\x01\x02",
        assignment=b"\x03",
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=5, protocol="range", leader="i-1", members=[member])
    if version >= 1:
        member.rebalance_timeout = 60_000
    if version >= 2:
        value.current_state_timestamp = 1000
    if version >= 3:
        member.group_instance_id = "i"
    return value


@pytest.mark.parametrize(
    ("key", "expected"),
    [(OffsetCommitKey(group="g", topic="tt", partition=258), OFFSET_KEY), (GroupMetadataKey(group="g"), GROUP_KEY)],
)
def test_keys(key: GroupKey, expected: bytes) -> None:
    assert encode_key(key) == expected
    assert decode_key(expected) == key


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_every_version_of_a_committed_offset(version: int) -> None:
    expected = wire(OFFSET_VALUES[version])
    assert encode_with_version(offset_value(version), version) == expected
    assert decode_offset(expected) == offset_value(version)


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_every_version_of_group_metadata(version: int) -> None:
    expected = wire(GROUP_VALUES[version])
    assert encode_with_version(group_value(version), version) == expected
    assert decode_group(expected) == group_value(version)


def test_the_versions_that_are_written_are_those_of_kafka() -> None:
    """Version 4 of a committed offset, 1 if it has an expire timestamp; version 3 of group metadata."""
    assert encode_offset(offset_value(4)) == wire(OFFSET_VALUES[4])
    assert encode_offset(offset_value(1)) == wire(OFFSET_VALUES[1])
    assert encode_group(group_value(3)) == wire(GROUP_VALUES[3])


def test_an_offset_without_a_topic_id_has_no_tagged_field() -> None:
    value = OffsetCommitValue(offset=7, commit_timestamp=1000)
    assert encode_offset(value) == wire("0004 0000000000000007 ffffffff 01 00000000000003e8 00")


def test_an_empty_group_has_no_protocol_and_no_leader() -> None:
    value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=1000)
    assert encode_group(value) == wire("0003 0000 00000000 ffff ffff 00000000000003e8 00000000")
    assert decode_with_version(GroupMetadataValue, encode_group(value)) == value


def test_the_first_version_of_the_offset_key_is_read() -> None:
    """It has the same fields."""
    assert decode_key(b"\x00\x00" + OFFSET_KEY[2:]) == OffsetCommitKey(group="g", topic="tt", partition=258)


@pytest.mark.parametrize("version", [9, 14, 17, 0x7FFF, -1])
def test_keys_of_other_versions_are_none_of_ours(version: int) -> None:
    """They belong to groups of later protocols."""
    assert decode_key(version.to_bytes(2, "big", signed=True) + b"anything") is None


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x01", OFFSET_KEY[:-1], OFFSET_KEY + b"x", GROUP_KEY[:-1]])
def test_a_malformed_key_is_an_error(key: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_key(key)


@pytest.mark.parametrize("value", [b"", b"\x00\x05", wire(OFFSET_VALUES[3])[:-1], wire(OFFSET_VALUES[3]) + b"x"])
def test_a_malformed_value_is_an_error(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_offset(value)
    with pytest.raises(ProtocolError):
        decode_group(value)
