"""Groups and committed offsets as an AdminClient shows them, and the requests about them (core).

The versions of OffsetFetch and OffsetCommit are fixed: from version 10 on, both name topics by id, and a tool that repairs
the offsets of a deleted topic knows no id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from admin.errors import InvalidArgument
from admin.partitions import TopicPartition, partitions_by_topic
from common.configuration.endpoints import HostPort
from common.protocol.codec import decode_prefix
from common.protocol.errors import ProtocolError
from common.protocol.messages.consumer_group_describe import (
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from common.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)

OFFSET_FETCH_VERSION: Final = 8
OFFSET_COMMIT_VERSION: Final = 8

CLASSIC, CONSUMER = "Classic", "Consumer"
"""The types of groups, as Kafka's tools print them. Brokers write them in lower case."""
CONSUMER_PROTOCOL = "consumer"
"""The protocol type of classic consumer groups. A group that only stores offsets has none."""
UNKNOWN = "Unknown"

_VERSION_BYTES: Final = 2
# The values of member_type in ConsumerGroupDescribe.
_UNKNOWN_MEMBER: Final = -1
_CONSUMER_MEMBER: Final = 1


@dataclass(frozen=True, slots=True)
class GroupListing:
    """Counterpart of Kafka's GroupListing."""

    group_id: str
    protocol_type: str
    state: str
    """UNKNOWN if the broker is too old to say, as for the type."""
    type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Counterpart of Kafka's MemberDescription. The last three are None for the members of a classic group. `is_upgraded` is
    False for a member of a consumer group that still uses the classic protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    epoch: int | None = None
    target_assignment: frozenset[TopicPartition] | None = None
    is_upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Counterpart of Kafka's ConsumerGroupDescription. Both epochs are None for a classic group."""

    group_id: str
    type: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    coordinator_id: int
    coordinator: HostPort
    epoch: int | None = None
    target_assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """Counterpart of Kafka's OffsetAndMetadata."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


# --- listing ---------------------------------------------------------------------------------------------------------


def list_request(states: Iterable[str], types: Iterable[str]) -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def group_listing(group: ListedGroup) -> GroupListing:
    type_ = group.group_type.capitalize() or UNKNOWN
    return GroupListing(group.group_id, group.protocol_type, group.group_state or UNKNOWN, type_)


# --- descriptions ----------------------------------------------------------------------------------------------------


def classic_description(group: DescribedGroup, coordinator_id: int, coordinator: HostPort) -> GroupDescription:
    """Raises InvalidArgument if the group is not one of consumers."""
    if group.protocol_type not in ("", CONSUMER_PROTOCOL):
        raise InvalidArgument(f"GroupId {group.group_id} is not a consumer group ({group.protocol_type}).")
    members = tuple(map(_classic_member, group.members))
    return GroupDescription(
        group.group_id, CLASSIC, group.group_state, group.protocol_data, members, coordinator_id, coordinator
    )


def _classic_member(member: DescribedGroupMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        _assigned_partitions(member.member_assignment),
    )


def _assigned_partitions(assignment: bytes) -> frozenset[TopicPartition]:
    """Reads what the leader of the group has given to a member. Between two generations that is nothing."""
    if len(assignment) == 0:
        return frozenset()
    try:
        # Later versions may add fields after those of version 0.
        decoded, _ = decode_prefix(ConsumerProtocolAssignment, assignment[_VERSION_BYTES:], 0)
    except ProtocolError as error:
        raise InvalidArgument(f"the assignment of a member cannot be read: {error}") from error
    return frozenset(TopicPartition(each.topic, index) for each in decoded.assigned_partitions for index in each.partitions)


def consumer_description(group: DescribedConsumerGroup, coordinator_id: int, coordinator: HostPort) -> GroupDescription:
    """Describes a group of the consumer protocol (KIP-848)."""
    return GroupDescription(
        group.group_id,
        CONSUMER,
        group.group_state,
        group.assignor_name,
        tuple(map(_consumer_member, group.members)),
        coordinator_id,
        coordinator,
        group.group_epoch,
        group.assignment_epoch,
    )


def _consumer_member(member: DescribedConsumer) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        member.member_epoch,
        _partitions(member.target_assignment),
        None if member.member_type == _UNKNOWN_MEMBER else member.member_type == _CONSUMER_MEMBER,
    )


def _partitions(assignment: DescribedAssignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(each.topic_name, index) for each in assignment.topic_partitions for index in each.partitions
    )


# --- offsets ---------------------------------------------------------------------------------------------------------


def fetch_request(group_id: str) -> OffsetFetchRequest:
    """Asks for every committed offset of the group."""
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])


def committed_offsets(group: OffsetFetchResponseGroup) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(
            each.committed_offset,
            each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None,
            each.metadata or "",
        )
        for topic in group.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def commit_request(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> OffsetCommitRequest:
    """Commits from outside of the group: the coordinator accepts that while the group has no members."""
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_committed(index, offsets[TopicPartition(topic, index)]) for index in indexes],
            )
            for topic, indexes in partitions_by_topic(offsets).items()
        ],
    )


def _committed(index: int, offset: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def delete_offsets_request(group_id: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in partitions_by_topic(partitions).items()
        ],
    )
