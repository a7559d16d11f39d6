"""ConsumerGroupHeartbeat from members that join or stay (core). Counterpart of a part of Kafka's GroupMetadataManager.

1. The member joins, or its subscription is brought up to date.
2. If a subscription or a subscribed topic has changed, the group epoch rises.
3. If the group epoch is above that of the target assignment, the target is computed.
4. The member is reconciled with the target.
Everything that can be refused is refused before the first record is written.
"""

from dataclasses import dataclass, replace

from broker.coordinator.core.consumer_group.assignment import Assignment, from_wire, is_subset, to_wire
from broker.coordinator.core.consumer_group.consumer_group import NO_TOPICS_HASH, ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from broker.coordinator.core.consumer_group.departure import (
    CONSUMER_REBALANCE,
    cancel_timers,
    expect_static_member,
    restart_session,
    unknown_member,
)
from broker.coordinator.core.consumer_group.group_log import (
    metadata_record,
    write_assignment,
    write_epoch,
    write_member,
    write_removal,
    write_target,
    write_unsubscribed_regexes,
)
from broker.coordinator.core.consumer_group.reconciliation import reconcile
from broker.coordinator.core.consumer_group.refusal import Refused
from broker.coordinator.core.consumer_group.regex_resolution import maybe_resolve, validate_regex
from broker.coordinator.core.consumer_group.target_assignment import (
    assign,
    is_assignment_due,
    maybe_raise_epoch,
    raise_epoch,
)
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.result import Caller
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_group_heartbeat import Assignment as WireAssignment
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_NOT_CHANGED = -1
# The characters that Java's `trim` takes away. A name of nothing else counts as empty, as in Kafka.
_BLANKS = "".join(map(chr, range(0x21)))


def validate_heartbeat(turn: Turn, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises Refused if the request makes no sense, whatever the group is."""
    epoch = request.member_epoch
    if (caller.brings_member_id or epoch > 0 or epoch == LEAVING_EPOCH) and not request.member_id.strip(_BLANKS):
        raise _invalid("MemberId can't be empty.")
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip(_BLANKS):
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOINING_EPOCH:
        _validate_join(request)
    elif epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignors = turn.settings.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == _NOT_CHANGED:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a heartbeat: the member as it was, and as the request says it is now. `replaces` is the static member of
    the same name whose place it takes."""

    before: ConsumerMember | None
    member: ConsumerMember
    replaces: ConsumerMember | None = None


def identify(
    turn: Turn, group: ConsumerGroup, caller: Caller, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> Sender:
    """Finds out who sends the request. Raises Refused if it may not. Changes nothing."""
    before = group.member(member_id)
    if before is None and group.size >= turn.settings.group_consumer_max_size:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has as many members as it may have: {turn.settings.group_consumer_max_size}.",
        )
    owned = None if request.topic_partitions is None else from_wire(request.topic_partitions)
    replaces = None
    if request.instance_id is None or request.member_epoch == JOINING_EPOCH:
        former = None if request.instance_id is None else group.static_member(request.instance_id)
        # A member that has its place joins again with its id if it was fenced, if the answer to its join was lost, or if
        # that was an error because a disk hung.
        rejoins = former is not None and _is_present(former) and former.member_id == member_id
        if former is not None and not rejoins:
            before = replaces = _expect_away(former, member_id)
        elif before is not None:
            _validate_epoch(before, request.member_epoch, owned)
        elif request.member_epoch != JOINING_EPOCH:
            raise unknown_member(member_id, group)
    else:
        before = expect_static_member(group, request.instance_id, member_id)
        _validate_epoch(before, request.member_epoch, owned)
    member = _updated(before, caller, request, member_id)
    if member.topic_regex is not None and (before is None or before.topic_regex != member.topic_regex):
        validate_regex(member.topic_regex)
    if not turn.fits_one_batch([metadata_record(group, member)]):
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscription is too large for a record of the group.")
    _expect_known_state(member, owned)
    return Sender(before, member, replaces)


def _is_present(member: ConsumerMember) -> bool:
    # A static member goes over to the consumer protocol by a restart, and no classic member says that it will be away.
    return member.classic is None and not member.is_away


def _expect_away(former: ConsumerMember, member_id: str) -> ConsumerMember:
    if _is_present(former):
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Member {member_id} cannot join with instance id {former.instance_id}, which member {former.member_id} has.",
        )
    return former


def _validate_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    if epoch == JOINING_EPOCH:
        # The member was fenced and has given up its partitions, as KIP-848 wants it.
        return
    if epoch > member.epoch:
        raise _fenced(f"The member's epoch {epoch} is above {member.epoch}, the one that the coordinator knows.")
    # The answer with the new epoch may have been lost. Then the member owns nothing that it has not been given.
    has_missed_answer = epoch == member.previous_epoch and owned is not None and is_subset(owned, member.assigned)
    if epoch < member.epoch and not has_missed_answer:
        raise _fenced(f"The member's epoch {epoch} is below {member.epoch}, the one that the coordinator knows.")


def _fenced(message: str) -> Refused:
    return Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"{message} It must give up its partitions and rejoin.")


def _expect_known_state(member: ConsumerMember, owned: Assignment | None) -> None:
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise _fenced("The state of the member was written by a later release.")


def _updated(
    before: ConsumerMember | None, caller: Caller, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> ConsumerMember:
    member = before or ConsumerMember(member_id=member_id)
    if member.member_id != member_id:
        member = replace(member, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
        # An empty text ends the subscription by a regular expression.
        topic_regex=member.topic_regex if regex is None else regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == _NOT_CHANGED else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        classic=None,
    )


def heartbeat(
    turn: Turn,
    group: ConsumerGroup,
    topics: TopicsView,
    topics_version: int,
    sender: Sender,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse:
    """Carries out the heartbeat of a sender that was identified. `topics_version` changes with the set of topics."""
    owned = None if request.topic_partitions is None else from_wire(request.topic_partitions)
    member = advance(turn, group, topics, topics_version, sender, owned)
    restart_session(turn, group, member)
    if member.epoch == JOINING_EPOCH:
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="The assignment is too large for a record of the group."
        )
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=turn.config_of(group.group_id).consumer_heartbeat_interval_ms,
    )
    if _is_full(request) or member.assigned != sender.member.assigned:
        response.assignment = WireAssignment(topic_partitions=to_wire(member.assigned, TopicPartitions))
    return response


def advance(
    turn: Turn,
    group: ConsumerGroup,
    topics: TopicsView,
    topics_version: int,
    sender: Sender,
    owned: Assignment | None,
) -> ConsumerMember:
    """Brings the group up to date with the sender, which owns `owned`; None if it does not say. Returns the member as it is
    after that: with JOINING_EPOCH if the group cannot assign anything to a new member (`assign`)."""
    _update_subscription(turn, group, topics, sender)
    maybe_resolve(turn, group, topics_version)
    if group.needs_refresh:
        maybe_raise_epoch(turn, group, topics)
    if is_assignment_due(turn, group) and not assign(turn, group, topics):
        return sender.member
    return _reconcile(turn, group, topics, sender.member, owned)


def _update_subscription(turn: Turn, group: ConsumerGroup, topics: TopicsView, sender: Sender) -> None:
    before, member = sender.before, sender.member
    if sender.replaces is not None:
        target = group.target(sender.replaces.member_id)
        cancel_timers(turn, group, sender.replaces)
        write_removal(turn, group, sender.replaces.member_id)
        write_member(turn, group, member)
        write_target(turn, group, member.member_id, target)
        write_assignment(turn, group, member)
    elif member != before:
        if before is not None and (before.classic is None) != (member.classic is None):
            _change_protocol(turn, group, before, member)
        write_member(turn, group, member)
    if before is None and not group.topics_of(member):
        # The member has subscribed to nothing, or its regular expression is not resolved yet. In both cases no partition has
        # to move.
        if group.size == 1:
            write_epoch(turn, group, group.epoch, NO_TOPICS_HASH)
        return
    if before is None or (before.topic_names, before.topic_regex) != (member.topic_names, member.topic_regex):
        write_unsubscribed_regexes(turn, group)
        raise_epoch(turn, group, topics)


def _change_protocol(turn: Turn, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember) -> None:
    """Ends what the member was to do in time by its former protocol, and which it can no longer do."""
    cancel_timers(turn, group, before)
    group.rejoining.discard(member.member_id)
    if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.set_timer((CONSUMER_REBALANCE, group.group_id, member.member_id), member.rebalance_timeout_ms)


def _reconcile(
    turn: Turn, group: ConsumerGroup, topics: TopicsView, member: ConsumerMember, owned: Assignment | None
) -> ConsumerMember:
    target = _target(group, topics, member)
    is_current = group.epoch == group.target_epoch or is_subset(member.assigned, target)
    if is_current and member.is_reconciled_to(group.target_epoch):
        return member
    reconciled = reconcile(
        member,
        target_epoch=group.target_epoch,
        target=target,
        is_free=lambda topic_id, index: group.is_free_for(member.member_id, topic_id, index),
        owned=owned,
    )
    if reconciled == member:
        return member
    write_assignment(turn, group, reconciled)
    timer = (CONSUMER_REBALANCE, group.group_id, member.member_id)
    if reconciled.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
        turn.set_timer(timer, reconciled.rebalance_timeout_ms)
    elif member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.cancel_timer(timer)
    return reconciled


def _target(group: ConsumerGroup, topics: TopicsView, member: ConsumerMember) -> Assignment:
    """Returns what the member is to have: of a target assignment from before the last change only what it still wants."""
    target = group.target(member.member_id)
    if group.epoch == group.target_epoch:
        return target
    wanted = {topics.topic_ids.get(name) for name in group.topics_of(member)}
    return {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether this is a full heartbeat: the member joins, or does not know whether its last heartbeat arrived."""
    if request.member_epoch == JOINING_EPOCH:
        return True
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != _NOT_CHANGED and has_subscription and request.topic_partitions is not None
