"""Builds the one PartitionChangeRecord that takes a partition to a wanted state (core).

Answers to Kafka's PartitionChangeBuilder. The caller says what should be (ISR, directories, recovery state); the election
is always held again, so every change also heals a partition that could have a leader. An operation calls this at most once
per partition, with an `Eligibility` that already knows the operation's effect on the broker.
Easy to get wrong: the ISR never becomes empty. A sole member that fell out stays, with leader -1, since only it is known to
hold everything that was acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.ids import NO_LEADER, BrokerId, DirectoryId, TopicId, TopicIdPartition
from common.metadata import metadata_version
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.registrations import LeaderRecoveryState, PartitionRegistration, Topic
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE, PartitionChangeRecord
from controller.core.election import NO_PREFERENCE, Ballot, ElectionPreference, elect_leader
from controller.core.eligibility import Eligibility
from controller.core.settings import ControllerSettings
from controller.core.topic_settings import is_unclean_election_enabled


class PartitionTarget(NamedTuple):
    """What an operation wants a partition to become. None leaves a thing as it is; the leader is elected in any case."""

    # Empty: whoever can leave the ISR, leaves. The last member cannot.
    isr: Sequence[BrokerId] | None = None
    directories: Sequence[DirectoryId] | None = None
    leader_recovery_state: int | None = None
    preference: ElectionPreference = NO_PREFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionRules:
    """By what the leaders of one topic's partitions are elected, and their records written."""

    eligibility: Eligibility
    is_unclean_allowed: bool
    metadata_version: int


AS_IT_IS = PartitionTarget()


class PartitionChanges:
    """Makes the partition changes of one operation. Soft: it only remembers which topics allow unclean elections."""

    def __init__(self, state: MetadataState, settings: ControllerSettings, eligibility: Eligibility) -> None:
        self.eligibility = eligibility
        self._state = state
        self._settings = settings
        self._rules: dict[TopicId, ElectionRules] = {}

    def change(self, key: TopicIdPartition, target: PartitionTarget = AS_IT_IS) -> ApiMessageAndVersion | None:
        """The record that takes the partition there, its leader elected again; None where nothing changes."""
        topic = self._state.topics[key.topic_id]
        return partition_change(key, topic.partitions[key.partition], target, self._rules_of(topic))

    def without(self, key: TopicIdPartition, broker_id: BrokerId) -> ApiMessageAndVersion | None:
        """The record that takes the broker out of the ISR, and out of the lead, as far as that can be."""
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
    """See `PartitionChanges.change`."""
    isr = tuple(target.isr) if target.isr else before.isr
    directories = before.directories if target.directories is None else tuple(target.directories)
    recovery = before.leader_recovery_state if target.leader_recovery_state is None else target.leader_recovery_state
    ballot = Ballot(before.replicas, directories, isr, before.leader)
    election = elect_leader(ballot, rules.eligibility, target.preference, is_unclean_allowed=rules.is_unclean_allowed)
    if election.is_unclean:
        isr = (election.leader,)
        recovery = LeaderRecoveryState.RECOVERING
    if election.revives_lost:
        # One record says it all: there is no moment at which this replica leads and is LOST.
        directories = tuple(
            UNASSIGNED if replica == election.leader else directory
            for replica, directory in zip(before.replicas, directories, strict=True)
        )
    changes_isr = isr != before.isr
    changes_directories = directories != before.directories
    changes_recovery = recovery != before.leader_recovery_state
    names_leader = (
        election.leader != before.leader
        # An unclean leader begins a log of its own, and the leader epoch is how every replica tells it from the old one.
        or election.is_unclean
        or _needs_new_epoch(before, isr, rules.metadata_version)
    )
    if not (changes_isr or changes_directories or changes_recovery or names_leader):
        return None
    record = PartitionChangeRecord(
        partition_id=key.partition,
        topic_id=key.topic_id,
        isr=list(isr) if changes_isr else None,
        leader=election.leader if names_leader else NO_LEADER_CHANGE,
        directories=list(directories) if changes_directories else None,
        leader_recovery_state=int(recovery) if changes_recovery else NO_RECOVERY_STATE_CHANGE,
    )
    return ApiMessageAndVersion(record, metadata_version.partition_change_record_version(rules.metadata_version))


def _needs_new_epoch(before: PartitionRegistration, isr: tuple[BrokerId, ...], level: int) -> bool:
    # Naming the leader again raises the leader epoch. Before 3.6-IV0 followers relied on that to learn of a smaller ISR.
    if level >= metadata_version.NO_EPOCH_BUMP_ON_ISR_SHRINK_LEVEL or before.leader == NO_LEADER:
        return False
    return any(member not in isr for member in before.isr)


def moves_leader(change: ApiMessageAndVersion) -> bool:
    """Whether the record names a leader, NO_LEADER included."""
    record = change.record
    return isinstance(record, PartitionChangeRecord) and record.leader != NO_LEADER_CHANGE
