"""JoinGroup for classic groups (core).

1. A dynamic member without an id is given one and asked to join again with it (KIP-394); until then it is pending. Clients
   that cannot do that become members at once.
2. A static member (KIP-345) without an id that the group knows has been restarted: it gets a new id and its former self is
   fenced. In a stable group this causes no rebalance unless the chosen protocol changes; the new id is written, and
   skip_assignment keeps a leader from assigning again (KIP-814).
3. A member with an id joins the rebalance under way, or begins one if it is the leader or its metadata has changed.
   Otherwise it has only missed the answer and gets the current generation.
"""

from dataclasses import dataclass
from typing import Final

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.group_member import GroupMember, Protocols
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.membership import membership_error
from broker.coordinator.core.rebalance import (
    current_generation,
    fence_member,
    maybe_complete_join,
    rebalance_or_complete_join,
    remove_member,
    restart_session,
)
from broker.coordinator.core.result import Caller, Waiter
from broker.coordinator.core.turn import SESSION, Turn
from common.protocol.errors import ErrorCode
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

# The longest time that the JoinGroup of a new member waits. The coordinator cannot see whether the client has given up, and
# each attempt of a client without an id adds a member.
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
_NAME_BYTES_MAX: Final = 32_000


def invalid_join(turn: Turn, request: JoinGroupRequest) -> ErrorCode | None:
    """Returns the error of a request that is wrong for any group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    settings = turn.settings
    if not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return None


@dataclass(frozen=True, slots=True)
class Joining:
    """A JoinGroup request and what goes with it."""

    waiter: Waiter
    caller: Caller
    request: JoinGroupRequest
    fresh_id: str
    protocols: Protocols

    @property
    def member_id(self) -> str:
        """The id of the request, or the one that a member without an id is given."""
        instance_id = self.request.group_instance_id
        name = self.caller.client_id if instance_id is None else instance_id
        # A string of the protocol has at most 32,767 bytes, and so may the client's own name.
        name = name.encode()[:_NAME_BYTES_MAX].decode(errors="ignore")
        return self.request.member_id or f"{name}-{self.fresh_id}"

    @property
    def needs_member_id(self) -> bool:
        """Whether the sender is a dynamic member that is given an id and asked to join again with it (KIP-394)."""
        is_dynamic = self.request.group_instance_id is None
        return is_dynamic and not self.request.member_id and self.caller.can_join_with_new_id

    @property
    def rebalance_timeout_ms(self) -> int:
        asked_ms = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if asked_ms < 0 else asked_ms

    def new_member(self, member_id: str) -> GroupMember:
        return GroupMember(
            member_id=member_id,
            group_instance_id=self.request.group_instance_id,
            client_id=self.caller.client_id,
            client_host=self.caller.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocols=self.protocols,
        )


def join_group(turn: Turn, group: ClassicGroup, joining: Joining) -> None:
    """Lets the caller join the group, or refuses it."""
    member_id = joining.request.member_id
    if not _has_room(turn, group, member_id):
        _turn_away(turn, group, member_id)
        refuse(turn, joining.waiter, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not group.supports(joining.request.protocol_type, joining.protocols):
        refuse(turn, joining.waiter, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id:
        _join_with_id(turn, group, joining)
    else:
        _join_without_id(turn, group, joining)


def refuse(turn: Turn, waiter: Waiter, error: ErrorCode, member_id: str = "") -> None:
    turn.answer(waiter, JoinGroupResponse(error_code=error, member_id=member_id))


def _has_room(turn: Turn, group: ClassicGroup, member_id: str) -> bool:
    size_max = turn.settings.group_max_size
    member = group.member(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # Those who join first stay: a group that has become too large (because the setting changed) loses the last ones.
        return (member is not None and member.join_waiter is not None) or group.awaiting_join < size_max
    return group.state is GroupState.EMPTY or member is not None or group.size < size_max


def _turn_away(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    member = group.member(member_id)
    if member is not None:
        remove_member(turn, group, member)
    elif member_id in group.pending_members:
        group.pending_members.remove(member_id)
        turn.cancel_timer((SESSION, group.group_id, member_id))
    maybe_complete_join(turn, group)


def _join_without_id(turn: Turn, group: ClassicGroup, joining: Joining) -> None:
    member_id = joining.member_id
    former = group.static_member(joining.request.group_instance_id)
    if former is not None:
        _replace_static_member(turn, group, joining, former, member_id)
    elif joining.needs_member_id:
        group.pending_members.add(member_id)
        turn.set_timer((SESSION, group.group_id, member_id), joining.request.session_timeout_ms)
        refuse(turn, joining.waiter, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    else:
        _add_member(turn, group, joining, member_id)


def _join_with_id(turn: Turn, group: ClassicGroup, joining: Joining) -> None:
    request = joining.request
    if request.member_id in group.pending_members and request.group_instance_id is None:
        _add_member(turn, group, joining, request.member_id)
        return
    error = membership_error(group, request.member_id, request.group_instance_id)
    member = group.member(request.member_id)
    if error is not None or member is None:
        refuse(turn, joining.waiter, error or ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    elif _has_missed_answer(group, joining, member):
        turn.answer(joining.waiter, current_generation(group, member))
    else:
        group.update_member(
            member,
            joining.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
        )
        superseded = group.take_join_waiter(member)
        if superseded is not None:
            # The client has lost patience with that request and sent this one instead.
            refuse(turn, superseded, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        group.set_join_waiter(member, joining.waiter)
        rebalance_or_complete_join(turn, group)


def _has_missed_answer(group: ClassicGroup, joining: Joining, member: GroupMember) -> bool:
    """Whether the member has nothing new to say."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return False
    if group.state is GroupState.STABLE and group.is_leader(member):
        # It may have seen new partitions, which are not in its metadata.
        return False
    return member.has_same_protocols(joining.protocols)


def _add_member(turn: Turn, group: ClassicGroup, joining: Joining, member_id: str) -> None:
    member = joining.new_member(member_id)
    member.is_new = True
    member.join_waiter = joining.waiter
    group.has_new_member = True
    group.add_member(member, joining.request.protocol_type)
    turn.set_timer((SESSION, group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete_join(turn, group)


def _replace_static_member(turn: Turn, group: ClassicGroup, joining: Joining, former: GroupMember, member_id: str) -> None:
    former_leader = group.leader_id
    fence_member(turn, group, former)
    member = joining.new_member(member_id)
    group.replace_static_member(former, member)
    restart_session(turn, group, member)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        group.update_subscription()
        record = group.to_record()
        if turn.fits_one_batch([record]):
            turn.write(record)
            turn.answer(joining.waiter, _generation_of_returned(group, joining, member, former_leader))
            return
    # In CompletingRebalance too the group starts over: the leader may be assigning to the former id.
    group.set_join_waiter(member, joining.waiter)
    rebalance_or_complete_join(turn, group)


def _generation_of_returned(
    group: ClassicGroup, joining: Joining, member: GroupMember, former_leader: str | None
) -> JoinGroupResponse:
    response = current_generation(group, member)
    if joining.caller.can_skip_assignment:
        response.skip_assignment = group.is_leader(member)
    else:
        # An old client that sees itself as the leader would assign again, so the response names its former id as the leader.
        response.leader = former_leader or ""
        response.members = []
    return response
