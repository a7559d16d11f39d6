"""Members of a consumer group that speak the classic protocol (core; KIP-848, online migration).

Counterpart of classicGroupJoinToConsumerGroup and its neighbours in Kafka's GroupMetadataManager. JoinGroup does what a
ConsumerGroupHeartbeat does for other members, and says in its subscription what the member owns. The member's epoch is its
generation. No request waits: the coordinator assigns.

1. Heartbeat answers REBALANCE_IN_PROGRESS when the member must join again: there is a newer target assignment or it is time
   for one, it must revoke something or has just done so, or what it waits for is free. It then has its rebalance timeout for
   the JoinGroup. In Kafka, only members of the other protocol notice that a subscribed topic has changed.
2. After JoinGroup it has its rebalance timeout for the SyncGroup, which answers with what it owns.
3. A member that lets one of these times pass is removed, as one whose session ends.
"""

from dataclasses import replace
from typing import Final

from broker.coordinator.core.classic_group import CONSUMER_PROTOCOL_TYPE
from broker.coordinator.core.consumer_group.assignment import Assignment
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import (
    JOINING_EPOCH,
    ClassicMembership,
    ConsumerMember,
    MemberState,
)
from broker.coordinator.core.consumer_group.departure import (
    CONSUMER_JOIN,
    CONSUMER_SYNC,
    expect_static_member,
    restart_session,
    unknown_member,
)
from broker.coordinator.core.consumer_group.embedded_protocol import (
    encode_assignment,
    partitions_by_id,
    read_subscription,
)
from broker.coordinator.core.consumer_group.group_log import metadata_record
from broker.coordinator.core.consumer_group.heartbeat import Sender
from broker.coordinator.core.consumer_group.refusal import Refused
from broker.coordinator.core.consumer_group.target_assignment import is_assignment_due, maybe_raise_epoch
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.join_group import Joining
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode, ProtocolError
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupResponse
from common.protocol.messages.leave_group import MemberIdentity
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_LATER_RELEASE: Final = "The state of the member was written by a later release."


def expect_room_for_newcomer(turn: Turn, group: ConsumerGroup, joining: Joining) -> None:
    """Raises Refused if a member without an id cannot join. Its metadata is read when it comes back with one."""
    _expect_room(turn, group)
    _expect_common_protocol(turn, group, joining)


def identify_joining(turn: Turn, group: ConsumerGroup, topics: TopicsView, joining: Joining) -> tuple[Sender, Assignment]:
    """Finds out who joins, and what it owns. Raises Refused if it may not. Changes nothing."""
    before, replaces = _before(group, joining)
    if before is None:
        _expect_room(turn, group)
    _expect_common_protocol(turn, group, joining)
    subscription = _subscription(joining)
    member = _updated(before, joining, subscription)
    owned = partitions_by_id(subscription.owned_partitions, topics)
    if member.state is MemberState.UNKNOWN and owned:
        # The member is let in again when it has given up what it owns, as it does with this error.
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, _LATER_RELEASE)
    if not turn.fits_one_batch([metadata_record(group, member)]):
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscription is too large for a record of the group.")
    return Sender(before, member, replaces), owned


def _before(group: ConsumerGroup, joining: Joining) -> tuple[ConsumerMember | None, ConsumerMember | None]:
    """Returns the member as it was, and the static member that it replaces. A dynamic member is let in with any id: it may
    have been given the id while the group was a classic one."""
    instance_id = joining.request.group_instance_id
    if instance_id is None:
        return group.member(joining.member_id), None
    if joining.request.member_id:
        return expect_static_member(group, instance_id, joining.member_id), None
    former = group.static_member(instance_id)
    return former, former


def _expect_room(turn: Turn, group: ConsumerGroup) -> None:
    if group.size >= turn.settings.group_consumer_max_size:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group has as many members as it may have.")


def _expect_common_protocol(turn: Turn, group: ConsumerGroup, joining: Joining) -> None:
    if turn.settings.keeps_protocols_apart:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The broker does not let a group change its protocol.")
    is_consumer = joining.request.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(joining.protocols)
    if not is_consumer or not group.supports_classic(joining.protocols):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The group has no protocol in common with the member.")


def _subscription(joining: Joining) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(next(iter(joining.protocols.values())))
    except ProtocolError as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The metadata is not a consumer's: {error}.") from error


def _updated(before: ConsumerMember | None, joining: Joining, subscription: ConsumerProtocolSubscription) -> ConsumerMember:
    member = before or ConsumerMember(member_id=joining.member_id)
    if member.member_id != joining.member_id:
        member = replace(member, member_id=joining.member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    return replace(
        member,
        instance_id=joining.request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=joining.caller.client_id,
        client_host=joining.caller.client_host,
        topic_names=frozenset(subscription.topics),
        topic_regex=None,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicMembership(
            session_timeout_ms=joining.request.session_timeout_ms, protocols=tuple(joining.protocols.items())
        ),
    )


def joined(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> JoinGroupResponse:
    """Returns the answer to a member that has joined, and waits for its SyncGroup."""
    assert member.classic is not None
    names = (group.group_id, member.member_id)
    if member.member_id in group.rejoining:
        group.rejoining.remove(member.member_id)
        turn.cancel_timer((CONSUMER_JOIN, *names))
    restart_session(turn, group, member)
    turn.set_timer((CONSUMER_SYNC, *names), member.rebalance_timeout_ms)
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocol_name,
        member_id=member.member_id,
    )


def synced(turn: Turn, group: ConsumerGroup, topics: TopicsView, request: SyncGroupRequest) -> SyncGroupResponse:
    """Returns the answer with what the member owns. Raises Refused."""
    member, classic = _expect_current(group, request.member_id, request.group_instance_id, request.generation_id)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        classic.protocol_name,
    ):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The protocol is not the one that JoinGroup has answered.")
    # A member that must revoke has to learn of it first; it joins again when it has revoked.
    if _is_behind(turn, group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_rejoin(turn, group, member)
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "The member must join again.")
    turn.cancel_timer((CONSUMER_SYNC, group.group_id, member.member_id))
    restart_session(turn, group, member)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assignment(member.assigned, topics, classic.metadata),
    )


def classic_heartbeat(turn: Turn, group: ConsumerGroup, topics: TopicsView, request: HeartbeatRequest) -> ErrorCode:
    """Keeps the member alive and returns what it must know. Raises Refused."""
    member, _ = _expect_current(group, request.member_id, request.group_instance_id, request.generation_id)
    restart_session(turn, group, member)
    if group.needs_refresh:
        # The group may have no member that sends ConsumerGroupHeartbeat, and no leader watches its topics.
        maybe_raise_epoch(turn, group, topics)
    if not _must_rejoin(turn, group, member):
        return ErrorCode.NONE
    _expect_rejoin(turn, group, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def named_member(group: ConsumerGroup, leaving: MemberIdentity) -> ConsumerMember:
    """Returns the member that LeaveGroup names, whatever protocol it speaks: as in Kafka, an administrator may remove any
    member. A static member may be named without its id. Raises Refused."""
    if leaving.group_instance_id is None:
        member = group.member(leaving.member_id)
    elif leaving.member_id:
        return expect_static_member(group, leaving.group_instance_id, leaving.member_id)
    else:
        member = group.static_member(leaving.group_instance_id)
    if member is None:
        raise unknown_member(leaving.member_id or str(leaving.group_instance_id), group)
    return member


def _is_behind(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a newer target assignment for the member, or there will be one as soon as it joins again."""
    return member.epoch < group.target_epoch or is_assignment_due(turn, group)


def _must_rejoin(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> bool:
    if _is_behind(turn, group, member) or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not group.has_unreleased_target(member)


def _expect_rejoin(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    # Only the first of several heartbeats starts the time.
    if member.member_id not in group.rejoining:
        group.rejoining.add(member.member_id)
        turn.set_timer((CONSUMER_JOIN, group.group_id, member.member_id), member.rebalance_timeout_ms)


def _expect_current(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMembership]:
    member, classic = _expect_classic(group, member_id, instance_id)
    if generation != member.epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"The generation of member {member_id} is {member.epoch}.")
    if member.state is MemberState.UNKNOWN:
        # The member then gives up what it owns, and joins again with its id.
        raise Refused(ErrorCode.ILLEGAL_GENERATION, _LATER_RELEASE)
    return member, classic


def _expect_classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMembership]:
    member = group.member(member_id) if instance_id is None else expect_static_member(group, instance_id, member_id)
    if member is None or member.classic is None:
        raise unknown_member(member_id, group)
    return member, member.classic
