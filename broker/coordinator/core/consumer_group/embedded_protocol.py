"""What classic consumers put into the bytes of their protocol: subscriptions and assignments (core).

Counterpart of Kafka's ConsumerProtocol. Both begin with a version. A later version than we know is read as the newest that
we know, because each version only appends fields.
"""

from typing import Final, TypeVar

from broker.coordinator.core.consumer_group.assignment import NOTHING, Assignment
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from common.ids import TopicId
from common.protocol.codec import decode_prefix, encode_with_version
from common.protocol.errors import BufferUnderflow, InvalidValue
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from common.protocol.schema import Struct

_VERSION_BYTES: Final = 2
_VERSION_MAX: Final = 3

_Message = TypeVar("_Message", bound=Struct)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises RemoteProtocolError for bytes that are no consumer's."""
    return _read(ConsumerProtocolSubscription, metadata)


def read_assignment(assignment: bytes, topics: TopicsView) -> Assignment:
    """Returns what the leader of a classic group has assigned, without topics that do not exist. Raises
    RemoteProtocolError."""
    if not assignment:
        return NOTHING
    return partitions_by_id(_read(ConsumerProtocolAssignment, assignment).assigned_partitions, topics)


def has_user_data(assignment: bytes) -> bool:
    """Whether the leader's assignor has given the member more than partitions. Raises RemoteProtocolError."""
    return bool(assignment) and bool(_read(ConsumerProtocolAssignment, assignment).user_data)


def encode_assignment(assignment: Assignment, topics: TopicsView, metadata: bytes) -> bytes:
    """Returns the assignment for the member with this metadata, in its version. Topics that do not exist are left out."""
    named = sorted(
        (topics.topics[topic_id].name, sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in topics.topics
    )
    assigned = [TopicPartition(topic=name, partitions=partitions) for name, partitions in named]
    return encode_with_version(ConsumerProtocolAssignment(assigned_partitions=assigned), _version(metadata))


def partitions_by_id(named: list[TopicPartition], topics: TopicsView) -> Assignment:
    """Returns the partitions by the ids of their topics, without topics that do not exist."""
    found: dict[TopicId, frozenset[int]] = {}
    for each in named:
        topic_id = topics.topic_ids.get(each.topic)
        # A client may send anything. The assignors count on indexes from 0 on.
        partitions = frozenset(index for index in each.partitions if index >= 0)
        if topic_id is not None and partitions:
            found[topic_id] = found.get(topic_id, frozenset()) | partitions
    return found


def _read(message: type[_Message], data: bytes) -> _Message:
    version = _version(data)
    decoded, _ = decode_prefix(message, data[_VERSION_BYTES:], version)
    return decoded


def _version(data: bytes) -> int:
    if len(data) < _VERSION_BYTES:
        raise BufferUnderflow("the protocol of a consumer ends in its version")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise InvalidValue(f"the protocol of a consumer has no version {version}")
    return min(version, _VERSION_MAX)
