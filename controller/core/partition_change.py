"""Builds the one PartitionChangeRecord that takes a partition to a wanted state (core).

Answers to Kafka's PartitionChangeBuilder. The caller says what should be (ISR, directories, recovery state); the election
is always held again, so every change also heals a partition that could have a leader. An operation calls this at most once
per partition, with an `Eligibility` that already knows the operation's effect on the broker.
Easy to get wrong: the ISR never becomes empty. A sole member that fell out stays, with leader -1, since only it is known to
hold everything that was acknowledged.
"""

from collections.abc import Sequence

from common.ids import NO_LEADER, BrokerId, DirectoryId, TopicId
from common.metadata import metadata_version
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.registrations import LeaderRecoveryState, PartitionRegistration
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE, PartitionChangeRecord
from controller.core.election import elect_leader
from controller.core.eligibility import Eligibility
from controller.core.settings import ControllerSettings
from controller.core.topic_settings import is_unclean_election_enabled


class PartitionChanges:
    """Makes the partition changes of one operation. Soft: it only remembers which topics allow unclean elections."""

    def __init__(self, state: MetadataState, settings: ControllerSettings, eligibility: Eligibility) -> None:
        self.eligibility = eligibility
        self._state = state
        self._settings = settings
        self._unclean: dict[TopicId, bool] = {}

    def change(
        self,
        topic_id: TopicId,
        index: int,
        *,
        isr: Sequence[BrokerId] | None = None,
        directories: Sequence[DirectoryId] | None = None,
        leader_recovery_state: int | None = None,
        prefers_first: bool = False,
        not_revived: BrokerId | None = None,
    ) -> ApiMessageAndVersion | None:
        """The record that takes the partition there, its leader elected again; None where nothing changes."""
        topic = self._state.topics[topic_id]
        return partition_change(
            topic_id,
            index,
            topic.partitions[index],
            eligibility=self.eligibility,
            metadata_version_level=self._state.metadata_version,
            is_unclean_allowed=self._is_unclean_allowed(topic_id, topic.name),
            isr=isr,
            directories=directories,
            leader_recovery_state=leader_recovery_state,
            prefers_first=prefers_first,
            not_revived=not_revived,
        )

    def without(self, topic_id: TopicId, index: int, broker_id: BrokerId) -> ApiMessageAndVersion | None:
        """The record that takes the broker out of the ISR, and out of the lead, as far as that can be."""
        partition = self._state.topics[topic_id].partitions[index]
        return self.change(topic_id, index, isr=[member for member in partition.isr if member != broker_id])

    def _is_unclean_allowed(self, topic_id: TopicId, name: str) -> bool:
        allowed = self._unclean.get(topic_id)
        if allowed is None:
            allowed = is_unclean_election_enabled(self._state, name, self._settings)
            self._unclean[topic_id] = allowed
        return allowed


def partition_change(
    topic_id: TopicId,
    index: int,
    partition: PartitionRegistration,
    *,
    eligibility: Eligibility,
    metadata_version_level: int,
    is_unclean_allowed: bool,
    isr: Sequence[BrokerId] | None = None,
    directories: Sequence[DirectoryId] | None = None,
    leader_recovery_state: int | None = None,
    prefers_first: bool = False,
    not_revived: BrokerId | None = None,
) -> ApiMessageAndVersion | None:
    """See `PartitionChanges.change`. `isr` empty means "whoever can go, goes"."""
    target_isr = tuple(isr) if isr else partition.isr
    target_directories = partition.directories if directories is None else tuple(directories)
    target_recovery = partition.leader_recovery_state if leader_recovery_state is None else leader_recovery_state
    election = elect_leader(
        replicas=partition.replicas,
        directories=target_directories,
        isr=target_isr,
        current_leader=partition.leader,
        eligibility=eligibility,
        is_unclean_allowed=is_unclean_allowed,
        prefers_first=prefers_first,
        not_revived=not_revived,
    )
    if election.is_unclean:
        target_isr = (election.leader,)
        target_recovery = LeaderRecoveryState.RECOVERING
    if election.revives_lost:
        # One record says it all: there is no moment at which this replica leads and is LOST.
        target_directories = tuple(
            UNASSIGNED if replica == election.leader else directory
            for replica, directory in zip(partition.replicas, target_directories, strict=True)
        )
    changes_isr = target_isr != partition.isr
    changes_directories = target_directories != partition.directories
    changes_recovery = target_recovery != partition.leader_recovery_state
    names_leader = (
        election.leader != partition.leader
        # An unclean leader begins a log of its own, and the leader epoch is how every replica tells it from the old one.
        or election.is_unclean
        or _needs_new_epoch(partition, target_isr, metadata_version_level)
    )
    if not (changes_isr or changes_directories or changes_recovery or names_leader):
        return None
    record = PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        isr=list(target_isr) if changes_isr else None,
        leader=election.leader if names_leader else NO_LEADER_CHANGE,
        directories=list(target_directories) if changes_directories else None,
        leader_recovery_state=int(target_recovery) if changes_recovery else NO_RECOVERY_STATE_CHANGE,
    )
    return ApiMessageAndVersion(record, metadata_version.partition_change_record_version(metadata_version_level))


def _needs_new_epoch(partition: PartitionRegistration, isr: tuple[BrokerId, ...], metadata_version_level: int) -> bool:
    # Naming the leader again raises the leader epoch. Before 3.6-IV0 followers relied on that to learn of a smaller ISR.
    if metadata_version_level >= metadata_version.NO_EPOCH_BUMP_ON_ISR_SHRINK_LEVEL or partition.leader == NO_LEADER:
        return False
    return any(member not in isr for member in partition.isr)


def moves_leader(change: ApiMessageAndVersion) -> bool:
    """Whether the record names a leader, NO_LEADER included."""
    record = change.record
    return isinstance(record, PartitionChangeRecord) and record.leader != NO_LEADER_CHANGE
