"""The records of `__consumer_offsets` that describe the groups of KIP-848 (core).

Formats are those of Apache Kafka 4.4. A group consists of its epoch, its members (what they subscribe to and what they own),
its target assignment (an epoch, and one record for each member), and the topics that its regular expressions match.
ConsumerGroupPartitionMetadata is what Kafka 4.0 wrote in place of `metadata_hash`: it is read, so that its tombstone can be
written, and never written otherwise.

As in `group_records`, a key begins with the version that says which record it is.
"""

from typing import Final

from common.parts import Buffer
from common.protocol.codec import decode_with_version, encode_with_version
from common.protocol.schema import ZERO_UUID, Int8, Int32, Int64, Kind, Struct, Uuid, field, message, struct

_VALUE_VERSION: Final = 0


@message(kind=Kind.DATA, versions="3", flexible="none")
class ConsumerGroupMetadataKey(Struct):
    group_id: str = ""


@message(kind=Kind.DATA, versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Struct):
    """`metadata_hash` covers the subscribed topics as they were at this epoch; 0 if there were none."""

    epoch: Int32 = 0
    metadata_hash: Int64 = field(default=0, tag=0)


@message(kind=Kind.DATA, versions="4", flexible="none")
class ConsumerGroupPartitionMetadataKey(Struct):
    group_id: str = ""


@struct
class PartitionRacks(Struct):
    partition: Int32 = 0
    racks: list[str] = field(default_factory=list)


@struct
class TopicMetadata(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionRacks] = field(default_factory=list)


@message(kind=Kind.DATA, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Struct):
    topics: list[TopicMetadata] = field(default_factory=list)


@message(kind=Kind.DATA, versions="5", flexible="none")
class ConsumerGroupMemberMetadataKey(Struct):
    group_id: str = ""
    member_id: str = ""


@struct
class ClassicProtocol(Struct):
    """A protocol as in JoinGroup: the name of an assignor, and what the consumer hands in for it."""

    name: str = ""
    metadata: bytes = b""


@struct
class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)


@message(kind=Kind.DATA, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Struct):
    """`classic_member_metadata` is that of a member that speaks the classic protocol, None of any other. None is not the
    default: to Kafka, a record without the field is that of a classic member without protocols."""

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = field(default_factory=ClassicMemberMetadata, tag=0)


@message(kind=Kind.DATA, versions="6", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = ""


@message(kind=Kind.DATA, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Struct):
    """`assignment_timestamp` is when the target assignment was computed (KIP-1263), in milliseconds since 1970; 0 if that is
    not known."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(default=0, tag=0)


@struct
class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field(default_factory=list)


@struct
class OwnedTopicPartitions(Struct):
    """`assignment_epochs` are those in which the member was given each of the partitions (KIP-1251), None in a record of
    an older release."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field(default_factory=list)
    assignment_epochs: list[Int32] | None = field(default=None, tag=0)


@message(kind=Kind.DATA, versions="7", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey(Struct):
    group_id: str = ""
    member_id: str = ""


@message(kind=Kind.DATA, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Struct):
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message(kind=Kind.DATA, versions="8", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = ""
    member_id: str = ""


@message(kind=Kind.DATA, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Struct):
    """`state` is the number of a MemberState."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[OwnedTopicPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[OwnedTopicPartitions] = field(default_factory=list)


@message(kind=Kind.DATA, versions="16", flexible="none")
class ConsumerGroupRegularExpressionKey(Struct):
    group_id: str = ""
    regular_expression: str = ""


@message(kind=Kind.DATA, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue(Struct):
    """The topics that matched, the version of the metadata in which they did, and when that was, in milliseconds."""

    topics: list[str] = field(default_factory=list)
    version: Int64 = 0
    timestamp: Int64 = 0


ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

# Each kind of record: the version of its key, the key and the value.
_KINDS: Final[dict[int, tuple[type[Struct], type[Struct]]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
_KEY_VERSIONS: Final = {key: version for version, (key, _) in _KINDS.items()}
_VALUES: Final = dict(_KINDS.values())


def encode_consumer_key(key: ConsumerGroupKey) -> bytes:
    return encode_with_version(key, _KEY_VERSIONS[type(key)])


def encode_consumer_value(value: Struct) -> bytes:
    return encode_with_version(value, _VALUE_VERSION)


def decode_consumer_key(version: int, key: Buffer) -> ConsumerGroupKey | None:
    """Decodes the key, which begins with this version. Returns None if no record has it. Raises RemoteProtocolError."""
    kind = _KINDS.get(version)
    if kind is None:
        return None
    decoded = decode_with_version(kind[0], key)
    assert isinstance(decoded, ConsumerGroupKey)
    return decoded


def decode_consumer_value(key: ConsumerGroupKey, value: Buffer) -> Struct:
    """Decodes the value that belongs to this key. Raises RemoteProtocolError."""
    return decode_with_version(_VALUES[type(key)], value)
