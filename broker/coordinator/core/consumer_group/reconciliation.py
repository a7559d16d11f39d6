"""The next step of one member towards its target assignment (core). Counterpart of Kafka's CurrentAssignmentBuilder.

1. What the member has and the target does not give it must be revoked first. The member stays in its epoch until a heartbeat
   lists what it owns, and nothing of that is among it.
2. Then it goes to the epoch of the target and gets what is free. What others still have it gets with a later heartbeat.
3. A member that has revoked is reconciled to the newest target, not to the one for which it revoked.
"""

from collections.abc import Callable
from dataclasses import replace

from broker.coordinator.core.consumer_group.assignment import NOTHING, Assignment, epochs_of, overlap
from broker.coordinator.core.consumer_group.consumer_member import ConsumerMember, MemberState
from broker.coordinator.core.consumer_group.refusal import Refused
from common.ids import TopicId
from common.protocol.errors import ErrorCode

# Whether no member has this partition.
IsFree = Callable[[TopicId, int], bool]


def reconcile(
    member: ConsumerMember, *, target_epoch: int, target: Assignment, is_free: IsFree, owned: Assignment | None
) -> ConsumerMember:
    """Returns the member, which is not reconciled, as it is after this heartbeat. The heartbeat says that it owns `owned`;
    None if it does not say. Raises Refused for a member in a state that only a later release knows."""
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.pending_revocation, owned):
            return member
    elif member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, "The state of the member is unknown. It must rejoin.")
        epoch = target_epoch
    return _next(member, epoch, target_epoch, target, is_free, owned)


def _next(
    member: ConsumerMember, epoch: int, target_epoch: int, target: Assignment, is_free: IsFree, owned: Assignment | None
) -> ConsumerMember:
    kept: dict[TopicId, frozenset[int]] = {}
    revoked: dict[TopicId, frozenset[int]] = {}
    for topic_id, partitions in member.assigned.items():
        _put(kept, topic_id, partitions & target.get(topic_id, frozenset()))
        _put(revoked, topic_id, partitions - target.get(topic_id, frozenset()))
    if revoked and _still_owns(revoked, owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            pending_revocation=revoked,
            assignment_epochs=epochs_of(member.assigned, epoch, member.assignment_epochs),
        )
    # A partition that was revoked and is assigned again counts from the new epoch.
    kept_since = epochs_of(kept, epoch, member.assignment_epochs)
    is_waiting = False
    for topic_id, partitions in target.items():
        wanted = partitions - kept.get(topic_id, frozenset())
        free = frozenset(each for each in wanted if is_free(topic_id, each))
        is_waiting = is_waiting or free != wanted
        _put(kept, topic_id, kept.get(topic_id, frozenset()) | free)
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=kept,
        pending_revocation=NOTHING,
        assignment_epochs=epochs_of(kept, target_epoch, kept_since),
    )


def _still_owns(revoked: Assignment, owned: Assignment | None) -> bool:
    return owned is None or overlap(revoked, owned)


def _put(assignment: dict[TopicId, frozenset[int]], topic_id: TopicId, partitions: frozenset[int]) -> None:
    if partitions:
        assignment[topic_id] = partitions
