"""The records of `__consumer_offsets` that Kafka's classic groups write: committed offsets and group metadata (core).

Key and value begin with their version in two bytes; the version of the key says which record it is. A record without a value
is a tombstone. Only the versions that current Kafka writes are written here; older ones can be read. The records of the
groups of KIP-848 are in `consumer_group_records`; keys of yet other versions belong to groups of later KIPs.
"""

from typing import Final

from common.parts import Buffer
from common.protocol.codec import decode_with_version, encode_with_version
from common.protocol.errors import BufferUnderflow
from common.protocol.schema import ZERO_UUID, Int32, Int64, Kind, Struct, Uuid, field, message, struct
from common.records.consumer_group_records import ConsumerGroupKey, decode_consumer_key

OFFSET_COMMIT_KEY_VERSION: Final = 1
OFFSET_COMMIT_VALUE_VERSION: Final = 4
# The only version with an expire timestamp, which commits with a retention time of their own need (OffsetCommit up to 4).
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_METADATA_KEY_VERSION: Final = 2
GROUP_METADATA_VALUE_VERSION: Final = 3

NO_TIMESTAMP: Final = -1


@message(kind=Kind.DATA, versions="0-1", flexible="none")
class OffsetCommitKey(Struct):
    group: str = ""
    topic: str = ""
    partition: Int32 = 0


@message(kind=Kind.DATA, versions="0-4", flexible="4+")
class OffsetCommitValue(Struct):
    offset: Int64 = 0
    leader_epoch: Int32 = field(default=-1, versions="3+", ignorable=True)
    metadata: str = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Int64 = field(default=NO_TIMESTAMP, versions="1", ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, versions="4+", tag=0, ignorable=True)


@message(kind=Kind.DATA, versions="2", flexible="none")
class GroupMetadataKey(Struct):
    group: str = ""


@struct
class MemberMetadata(Struct):
    member_id: str = ""
    group_instance_id: str | None = field(default=None, versions="3+", ignorable=True)
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: Int32 = field(default=-1, versions="1+", ignorable=True)
    session_timeout: Int32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


@message(kind=Kind.DATA, versions="0-4", flexible="4+")
class GroupMetadataValue(Struct):
    protocol_type: str = ""
    generation: Int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: Int64 = field(default=NO_TIMESTAMP, versions="2+", ignorable=True)
    members: list[MemberMetadata] = field(default_factory=list)


GroupKey = OffsetCommitKey | GroupMetadataKey


def encode_key(key: GroupKey) -> bytes:
    is_offset = isinstance(key, OffsetCommitKey)
    return encode_with_version(key, OFFSET_COMMIT_KEY_VERSION if is_offset else GROUP_METADATA_KEY_VERSION)


def encode_offset(value: OffsetCommitValue) -> bytes:
    has_expiry = value.expire_timestamp != NO_TIMESTAMP
    return encode_with_version(value, OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VALUE_VERSION)


def encode_group(value: GroupMetadataValue) -> bytes:
    return encode_with_version(value, GROUP_METADATA_VALUE_VERSION)


def decode_key(key: Buffer) -> GroupKey | ConsumerGroupKey | None:
    """Decodes the key, or returns None if its version belongs to none of these records. Raises RemoteProtocolError."""
    if len(key) < 2:
        raise BufferUnderflow("the key of a record in __consumer_offsets ends in its version")
    version = int.from_bytes(key[:2], "big", signed=True)
    if version in (0, OFFSET_COMMIT_KEY_VERSION):
        return decode_with_version(OffsetCommitKey, key)
    if version == GROUP_METADATA_KEY_VERSION:
        return decode_with_version(GroupMetadataKey, key)
    return decode_consumer_key(version, key)


def decode_offset(value: Buffer) -> OffsetCommitValue:
    """Raises RemoteProtocolError."""
    return decode_with_version(OffsetCommitValue, value)


def decode_group(value: Buffer) -> GroupMetadataValue:
    """Raises RemoteProtocolError."""
    return decode_with_version(GroupMetadataValue, value)
