"""Builds the PartitionChangeRecord that takes a partition to its target state (core).

Counterpart of Kafka's PartitionChangeBuilder. The caller gives the target ISR, replicas and recovery state. Every change
first completes a reassignment for which the target ISR suffices, and then holds an election. So it heals a leaderless
partition that could have a leader, and replaces a leader that the completed reassignment has removed. An operation may
change each partition only once, and its `Eligibility` must already include the operation's effect on the broker.

Easy to get wrong: the ISR never becomes empty. The last member stays in it even when it cannot lead, with leader -1, because
it alone is known to have every acknowledged record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.ids import NO_LEADER, BrokerId, TopicId, TopicIdPartition
from common.metadata import metadata_version
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.registrations import LeaderRecoveryState, PartitionRegistration, Topic
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE, PartitionChangeRecord
from controller.core.election import NO_PREFERENCE, Ballot, Election, ElectionPreference, elect_leader
from controller.core.eligibility import Eligibility
from controller.core.reassignment import Assignment, assignment_of, completed
from controller.core.settings import ControllerSettings
from controller.core.topic_settings import is_unclean_election_enabled


class PartitionTarget(NamedTuple):
    """The state that an operation wants for a partition. None leaves a field unchanged; the leader is always elected."""

    # The target ISR. An empty sequence leaves the ISR unchanged, like None, because the ISR never becomes empty.
    isr: Sequence[BrokerId] | None = None
    assignment: Assignment | None = None
    leader_recovery_state: int | None = None
    preference: ElectionPreference = NO_PREFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionRules:
    """The inputs for electing leaders for one topic's partitions and for choosing the versions of their records."""

    eligibility: Eligibility
    is_unclean_allowed: bool
    metadata_version: int


AS_IT_IS = PartitionTarget()


class PartitionChanges:
    """Builds the partition changes of one operation. Keeps no state except a cache of each topic's election rules."""

    def __init__(self, state: MetadataState, settings: ControllerSettings, eligibility: Eligibility) -> None:
        self.eligibility = eligibility
        self._state = state
        self._settings = settings
        self._rules: dict[TopicId, ElectionRules] = {}

    def change(self, key: TopicIdPartition, target: PartitionTarget = AS_IT_IS) -> ApiMessageAndVersion | None:
        """Runs an election for the partition as `target` describes it. Returns the record of all changes; None if nothing
        changes."""
        topic = self._state.topics[key.topic_id]
        return partition_change(key, topic.partitions[key.partition], target, self._rules_of(topic))

    def without(self, key: TopicIdPartition, broker_id: BrokerId) -> ApiMessageAndVersion | None:
        """Returns the record that removes the broker from the leadership, and from the ISR unless it is the last member;
        None if nothing changes."""
        partition = self._state.topics[key.topic_id].partitions[key.partition]
        return self.change(key, PartitionTarget(isr=[member for member in partition.isr if member != broker_id]))

    def _rules_of(self, topic: Topic) -> ElectionRules:
        rules = self._rules.get(topic.id)
        if rules is None:
            rules = self._rules[topic.id] = ElectionRules(
                eligibility=self.eligibility,
                is_unclean_allowed=is_unclean_election_enabled(self._state, topic.name, self._settings),
                metadata_version=self._state.metadata_version,
            )
        return rules


def partition_change(
    key: TopicIdPartition, before: PartitionRegistration, target: PartitionTarget, rules: ElectionRules
) -> ApiMessageAndVersion | None:
    """Returns the record that takes the partition from `before` to `target`, with a new election; None if nothing
    changes."""
    isr = tuple(target.isr) if target.isr else before.isr
    assignment = assignment_of(before) if target.assignment is None else target.assignment
    recovery = before.leader_recovery_state if target.leader_recovery_state is None else target.leader_recovery_state
    completion = completed(assignment, isr)
    if completion is not None and _can_lead(*completion, rules.eligibility):
        assignment, isr = completion
    election = _elect(Ballot(assignment.replicas, assignment.directories, isr, before.leader), target.preference, rules)
    if election.is_unclean:
        isr = (election.leader,)
        recovery = LeaderRecoveryState.RECOVERING
    if election.revives_lost:
        # Replace LOST in the same record that names the leader, so that the replica never leads while it is LOST.
        assignment = assignment.with_directory(election.leader, UNASSIGNED)
    names_leader = (
        election.leader != before.leader
        # An unclean leader starts a divergent log. Naming it bumps the leader epoch, by which every replica can tell the new
        # log from the old one.
        or election.is_unclean
        or _needs_new_epoch(before, assignment.replicas, isr, rules.metadata_version)
    )
    record = PartitionChangeRecord(
        partition_id=key.partition,
        topic_id=key.topic_id,
        isr=list(isr) if isr != before.isr else None,
        leader=election.leader if names_leader else NO_LEADER_CHANGE,
        leader_recovery_state=int(recovery) if recovery != before.leader_recovery_state else NO_RECOVERY_STATE_CHANGE,
    )
    _set_assignment(record, before, assignment, rules.metadata_version)
    if record == PartitionChangeRecord(partition_id=key.partition, topic_id=key.topic_id):
        return None
    return ApiMessageAndVersion(record, metadata_version.partition_change_record_version(rules.metadata_version))


def _can_lead(assignment: Assignment, isr: Sequence[BrokerId], eligibility: Eligibility) -> bool:
    return any(eligibility.is_eligible(member, assignment.directory(member)) for member in isr)


def _elect(ballot: Ballot, preference: ElectionPreference, rules: ElectionRules) -> Election:
    is_unclean_allowed = rules.is_unclean_allowed
    if preference.is_unclean_allowed is not None:
        is_unclean_allowed = preference.is_unclean_allowed
    return elect_leader(ballot, rules.eligibility, preference, is_unclean_allowed=is_unclean_allowed)


def _set_assignment(
    record: PartitionChangeRecord, before: PartitionRegistration, assignment: Assignment, level: int
) -> None:
    changes_replicas = assignment.replicas != before.replicas
    if changes_replicas:
        record.replicas = list(assignment.replicas)
    # New replicas come with their directories, even if the list looks like the one before: two lists of UNASSIGNED are equal
    # whatever brokers they belong to.
    if metadata_version.is_directory_assignment_supported(level) and (
        changes_replicas or assignment.directories != before.directories
    ):
        record.directories = list(assignment.directories)
    if assignment.adding != before.adding_replicas:
        record.adding_replicas = list(assignment.adding)
    if assignment.removing != before.removing_replicas:
        record.removing_replicas = list(assignment.removing)


def _needs_new_epoch(
    before: PartitionRegistration, replicas: Sequence[BrokerId], isr: Sequence[BrokerId], level: int
) -> bool:
    # Naming the leader again bumps the leader epoch. A removed replica must not go on replicating in the present epoch.
    # Before 3.6-IV0, every ISR shrink had to bump it, too.
    if before.leader == NO_LEADER:
        return False
    if any(replica not in replicas for replica in before.replicas):
        return True
    is_shrink = any(member not in isr for member in before.isr)
    return is_shrink and level < metadata_version.NO_EPOCH_BUMP_ON_ISR_SHRINK_LEVEL


def moves_leader(change: ApiMessageAndVersion) -> bool:
    """Whether the record sets the partition's leader. Setting it to NO_LEADER counts too."""
    record = change.record
    return isinstance(record, PartitionChangeRecord) and record.leader != NO_LEADER_CHANGE
