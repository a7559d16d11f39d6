"""How members leave a consumer group: by their own will, by silence, or because they do not revoke (core).

A static member may say that it will come back. It then keeps what it owns until its session ends.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from broker.coordinator.core.consumer_group.assignment import NOTHING, epochs_of
from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import (
    JOINING_EPOCH,
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
from common.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

# The first part of the keys of a member's timers. The group id and the member id follow.
CONSUMER_SESSION: Final = "consumer-session"
CONSUMER_REBALANCE: Final = "consumer-rebalance"
# Of classic members: the time to join again, and the time to sync.
CONSUMER_JOIN: Final = "consumer-join"
CONSUMER_SYNC: Final = "consumer-sync"


def leave_for_a_while(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Lets a static member be away for the time of a session."""
    # The member that takes its place starts at epoch 0, and may commit for these partitions at once.
    epochs = epochs_of(member.assigned, JOINING_EPOCH)
    away = replace(member, epoch=LEAVING_STATIC_EPOCH, pending_revocation=NOTHING, assignment_epochs=epochs)
    write_assignment(turn, group, away)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.cancel_timer((CONSUMER_REBALANCE, group.group_id, member.member_id))


def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """Returns the sender of a heartbeat that leaves. Raises Refused."""
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


def restart_session(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The member has shown that it is alive."""
    if member.classic is None:
        timeout_ms = turn.config_of(group.group_id).consumer_session_timeout_ms
    else:
        timeout_ms = member.classic.session_timeout_ms
    turn.set_timer((CONSUMER_SESSION, group.group_id, member.member_id), timeout_ms)


def remove_members(turn: Turn, group: ConsumerGroup, topics: TopicsView, members: Iterable[ConsumerMember]) -> None:
    """Takes the members out of the group. The others get what they had with their next heartbeats."""
    for member in members:
        cancel_timers(turn, group, member)
        write_removal(turn, group, member.member_id)
    write_unsubscribed_regexes(turn, group)
    raise_epoch(turn, group, topics)


def cancel_timers(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Cancels the timers of a member that is leaving the group."""
    names = (group.group_id, member.member_id)
    turn.cancel_timer((CONSUMER_SESSION, *names))
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.cancel_timer((CONSUMER_REBALANCE, *names))
    if member.classic is not None:
        turn.cancel_timer((CONSUMER_JOIN, *names))
        turn.cancel_timer((CONSUMER_SYNC, *names))


def overdue_member(group: ConsumerGroup, kind: str, member_id: str) -> ConsumerMember | None:
    """Returns the member whose time is up, now that a timer of this kind has fired; None if it has done what it was to do,
    or is gone."""
    member = group.member(member_id)
    if member is None:
        return None
    if kind == CONSUMER_REBALANCE:
        # Each revocation restarts the timer. Confirming the revocation cancels it.
        is_overdue = member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away
    elif kind == CONSUMER_JOIN:
        is_overdue = member_id in group.rejoining
    elif kind == CONSUMER_SYNC:
        is_overdue = member.classic is not None
    else:
        assert kind == CONSUMER_SESSION
        is_overdue = True
    return member if is_overdue else None
