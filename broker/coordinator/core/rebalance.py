"""When a classic group rebalances, and how the join and sync phases end (core).

1. A rebalance begins when a member is added, leaves, fails, or joins again with other metadata. REBALANCE_IN_PROGRESS
   makes the members join again.
2. The join phase ends when every member has joined and none is pending, or at the join timer, after the longest rebalance
   timeout of a member. Dynamic members that have not joined by then are removed. Static members stay until their session
   ends. If no member at all has joined by then, the group waits once more.
3. The first rebalance of an empty group does not end early. It ends when group.initial.rebalance.delay.ms passes without a
   new member, or after the rebalance timeout of the first member.
4. The sync phase ends when the leader hands in the assignment. A member that has not asked for its own when the sync timer
   fires is removed, and the group rebalances.

In PreparingRebalance the join timer is set, and in CompletingRebalance every member has a session timer or a waiting
SyncGroup, so no request waits indefinitely.
"""

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.group_member import GroupMember
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.turn import JOIN, SESSION, SYNC, Turn
from common.protocol.errors import ErrorCode
from common.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from common.protocol.messages.sync_group import SyncGroupResponse


def rebalance_or_complete_join(turn: Turn, group: ClassicGroup) -> None:
    """Called when the members have changed: begins a rebalance, or ends the join phase of the one in progress if it can."""
    if group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(turn, group)
    else:
        prepare_rebalance(turn, group)


def prepare_rebalance(turn: Turn, group: ClassicGroup) -> None:
    """Begins a rebalance."""
    is_initial = group.state is GroupState.EMPTY
    if group.state is GroupState.COMPLETING_REBALANCE:
        _answer_syncs(turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.pending_syncs:
        group.pending_syncs.clear()
        turn.cancel_timer((SYNC, group.group_id))
    group.become(GroupState.PREPARING_REBALANCE, turn.now)
    if is_initial:
        delay_ms = turn.settings.group_initial_rebalance_delay_ms
        group.has_new_member = False
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        turn.set_timer((JOIN, group.group_id), delay_ms)
    elif group.has_everybody_joined:
        _complete_join(turn, group)
    else:
        turn.set_timer((JOIN, group.group_id), group.rebalance_timeout_ms)


def maybe_complete_join(turn: Turn, group: ClassicGroup) -> None:
    """Ends the join phase if all members have joined. The initial rebalance waits for its timer all the same."""
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.has_everybody_joined:
        _complete_join(turn, group)


def join_timer_fired(turn: Turn, group: ClassicGroup) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    left_ms = group.initial_delay_left_ms
    if left_ms and group.has_new_member:
        delay_ms = min(turn.settings.group_initial_rebalance_delay_ms, left_ms)
        group.has_new_member = False
        group.initial_delay_left_ms = left_ms - delay_ms
        turn.set_timer((JOIN, group.group_id), delay_ms)
    else:
        _complete_join(turn, group)


def sync_timer_fired(turn: Turn, group: ClassicGroup) -> None:
    if not group.pending_syncs:
        return
    for member in [member for member in group.members if member.member_id in group.pending_syncs]:
        remove_member(turn, group, member)
    prepare_rebalance(turn, group)


def session_timer_fired(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    if member_id in group.pending_members:
        group.pending_members.remove(member_id)
        maybe_complete_join(turn, group)
        return
    member = group.member(member_id)
    if member is not None and not member.is_alive_by_waiting:
        remove_member(turn, group, member)
        rebalance_or_complete_join(turn, group)


def restart_session(turn: Turn, group: ClassicGroup, member: GroupMember) -> None:
    """The member has shown that it is alive."""
    turn.set_timer((SESSION, group.group_id, member.member_id), member.session_timeout_ms)


def remove_member(turn: Turn, group: ClassicGroup, member: GroupMember) -> None:
    """Takes the member out of the group. A client whose request still waits may join again as a new member."""
    _dismiss(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID, joined_as="")
    group.remove_member(member)


def fence_member(turn: Turn, group: ClassicGroup, member: GroupMember) -> None:
    """Ends the former self of a static member that has come back."""
    _dismiss(turn, group, member, ErrorCode.FENCED_INSTANCE_ID, joined_as=member.member_id)


def dissolve(turn: Turn, group: ClassicGroup) -> None:
    """Ends the group, whose members go on in a consumer group. Requests that wait are answered, so that their senders join
    again. The records are the caller's."""
    for member in group.members:
        _dismiss(turn, group, member, ErrorCode.REBALANCE_IN_PROGRESS, joined_as=member.member_id)
    for member_id in group.pending_members:
        turn.cancel_timer((SESSION, group.group_id, member_id))
    turn.cancel_timer((JOIN, group.group_id))
    group.become(GroupState.DEAD, turn.now)


def expect_no_sync(turn: Turn, group: ClassicGroup, member: GroupMember) -> None:
    """The member has asked for its assignment in this generation, or is gone."""
    if member.member_id in group.pending_syncs:
        group.pending_syncs.remove(member.member_id)
        if not group.pending_syncs:
            turn.cancel_timer((SYNC, group.group_id))


def hand_out_assignment(turn: Turn, group: ClassicGroup, assignment: dict[str, bytes]) -> None:
    """Ends the sync phase: writes the group with the leader's assignment, and answers the members that wait for it."""
    for member in group.members:
        member.assignment = assignment.get(member.member_id, b"")
    group.become(GroupState.STABLE, turn.now)
    record = group.to_record()
    if turn.fits_one_batch([record]):
        turn.write(record)
        _answer_syncs(turn, group, ErrorCode.NONE)
        group.check()
        return
    _answer_syncs(turn, group, ErrorCode.UNKNOWN_SERVER_ERROR)
    prepare_rebalance(turn, group)


def current_generation(group: ClassicGroup, member: GroupMember) -> JoinGroupResponse:
    """Returns the answer to a member that has joined the current generation."""
    members = []
    if group.is_leader(member):
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=group.metadata_of(each),
            )
            for each in group.members
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def current_assignment(group: ClassicGroup, member: GroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def _complete_join(turn: Turn, group: ClassicGroup) -> None:
    turn.cancel_timer((JOIN, group.group_id))
    for member in [member for member in group.members if member.join_waiter is None and not member.is_static]:
        remove_member(turn, group, member)
    if group.size > 0 and not group.elect_joined_leader():
        # Only static members are left, none of which has joined. Their session timers remove them one by one.
        turn.set_timer((JOIN, group.group_id), group.rebalance_timeout_ms)
        return
    group.begin_generation(turn.now)
    if group.state is GroupState.EMPTY:
        turn.write(group.to_record())
        return
    for member in group.members:
        member.is_new = False
        member.assignment = b""
        waiter = group.take_join_waiter(member)
        if waiter is not None:
            turn.answer(waiter, current_generation(group, member))
        restart_session(turn, group, member)
        group.pending_syncs.add(member.member_id)
    turn.set_timer((SYNC, group.group_id), group.rebalance_timeout_ms)
    group.check()


def _answer_syncs(turn: Turn, group: ClassicGroup, error: ErrorCode) -> None:
    for member in group.members:
        if error is not ErrorCode.NONE:
            member.assignment = b""
        waiter, member.sync_waiter = member.sync_waiter, None
        if waiter is not None:
            is_good = error is ErrorCode.NONE
            turn.answer(waiter, current_assignment(group, member) if is_good else SyncGroupResponse(error_code=error))
            # The session timer may have fired unheeded while the request waited.
            restart_session(turn, group, member)


def _dismiss(turn: Turn, group: ClassicGroup, member: GroupMember, error: ErrorCode, *, joined_as: str) -> None:
    join_waiter = group.take_join_waiter(member)
    if join_waiter is not None:
        turn.answer(join_waiter, JoinGroupResponse(error_code=error, member_id=joined_as))
    sync_waiter, member.sync_waiter = member.sync_waiter, None
    if sync_waiter is not None:
        turn.answer(sync_waiter, SyncGroupResponse(error_code=error))
    expect_no_sync(turn, group, member)
    turn.cancel_timer((SESSION, group.group_id, member.member_id))
