"""How members leave a consumer group: by their own will, by silence, or because they do not revoke (core).

A static member may say that it will come back. It then keeps what it owns until its session ends.
"""

from dataclasses import replace
from typing import Final

from broker.coordinator.core.consumer_group.assignment import NOTHING
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import (
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from broker.coordinator.core.consumer_group.group_log import write_assignment, write_removal, write_unsubscribed_regexes
from broker.coordinator.core.consumer_group.refusal import Refused
from broker.coordinator.core.consumer_group.target_assignment import raise_epoch
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

# The first part of the keys of a member's timers. The group id and the member id follow.
CONSUMER_SESSION: Final = "consumer-session"
CONSUMER_REBALANCE: Final = "consumer-rebalance"


def leave(
    turn: Turn, group: ConsumerGroup, topics: TopicsView, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Takes the sender out of the group, or lets it be away for the time of a session. Raises Refused."""
    member = _leaving_member(group, request)
    if request.member_epoch == LEAVING_STATIC_EPOCH:
        write_assignment(turn, group, replace(member, epoch=LEAVING_STATIC_EPOCH, pending_revocation=NOTHING))
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            turn.cancel_timer((CONSUMER_REBALANCE, group.group_id, member.member_id))
    else:
        remove_member(turn, group, topics, member)
    return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    if request.instance_id is not None:
        return expect_static_member(group, request.instance_id, request.member_id)
    member = group.member(request.member_id)
    if member is None:
        raise unknown_member(request.member_id, group)
    return member


def expect_static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    """Returns the static member of this name. Raises Refused if there is none, or another client has taken the name."""
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no member with instance id {instance_id}.")
    if member.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID, f"Instance id {instance_id} belongs to member {member.member_id} by now."
        )
    return member


def unknown_member(member_id: str, group: ConsumerGroup) -> Refused:
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id} has no member {member_id}.")


def remove_member(turn: Turn, group: ConsumerGroup, topics: TopicsView, member: ConsumerMember) -> None:
    """Takes the member out of the group. The others get what it had with their next heartbeats."""
    write_removal(turn, group, member.member_id)
    write_unsubscribed_regexes(turn, group)
    raise_epoch(turn, group, topics)
    turn.cancel_timer((CONSUMER_SESSION, group.group_id, member.member_id))
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.cancel_timer((CONSUMER_REBALANCE, group.group_id, member.member_id))


def session_timer_fired(turn: Turn, group: ConsumerGroup, topics: TopicsView, member_id: str) -> None:
    member = group.member(member_id)
    if member is not None:
        remove_member(turn, group, topics, member)


def rebalance_timer_fired(turn: Turn, group: ConsumerGroup, topics: TopicsView, member_id: str) -> None:
    """Each revocation restarts the timer. Confirming the revocation cancels it."""
    member = group.member(member_id)
    if member is not None and member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away:
        remove_member(turn, group, topics, member)
