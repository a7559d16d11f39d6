"""What this broker remembers about its replicas beyond the metadata and the directories' contents (core, KIP-858).

Kafka spreads this over ReplicaManager, BrokerMetadataPublisher and AssignmentsManager. `reconcile` decides about one
replica from a `ReplicaSituation`. This module keeps the state that goes into that situation, and what to report to the
controller about the replica:

1. A replica that the metadata placed here after this incarnation registered is *newer*: its partition was created, or a
   reassignment added the replica. Until its log is created here, this broker certainly holds no record that counts.
2. If a log went offline with its directory, we remember the directory and look for the log nowhere else, until the metadata
   says LOST or moves the replica to other brokers. Replicas are identified by topic id: a topic that was deleted and
   created again is a different topic.
3. A *wish* is the directory to report to the controller for a replica: the true one, the failed one, or LOST. Each decision
   computes the wish again, so an assignment that was lost or refused is requested again.
4. A replica for which no directory has room is reported LOST if it is in the ISR, because the partition would wait for it,
   or if its directory is not known, because the controller would keep this broker fenced for it.
5. Before a new incarnation unfences, each of its replicas must be *settled* (`is_settled`).
6. A client may *prefer* a directory for a replica that the metadata does not place here yet (KIP-113). The preference is
   used when the log is created (`PreferredDirectories`).
"""

from collections.abc import Collection, Container
from dataclasses import dataclass

from broker.core.directory_reports import DirectoryReports
from broker.core.preferred_directories import PreferredDirectories
from broker.core.reconcile import Action, Decision, ReplicaSituation, decide
from broker.core.replica_movement import ReplicaMovement
from common.ids import NO_LEADER, BrokerEpoch, BrokerId, DirectoryId, Offset, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.metadata_version import is_directory_assignment_supported
from common.metadata.registrations import LeaderRecoveryState, PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode


class HostedReplicas:
    """Remembers and decides by the rules above. Reads the applied metadata and the directories, and changes neither."""

    def __init__(
        self, broker_id: BrokerId, state: MetadataState, directories: LogDirectories, reports: DirectoryReports
    ) -> None:
        self._broker_id = broker_id
        self._state = state
        self._directories = directories
        self._reports = reports
        # The directories of earlier incarnations that still count (see `PreviousDirectories`); None if unknown. Set once,
        # before the logs are loaded.
        self.previous_directories: Collection[DirectoryId] | None = None
        # The replicas that the checkpoint files, future logs and -delete folders named when the logs were loaded. Set once.
        self.traces: Collection[TopicIdPartition] = ()
        # Rule 2: for each replica whose log went offline, the directory of that log. Invariant: no such replica is hosted.
        # Changes when: a directory goes offline; a decision finds the replica LOST or no longer placed here.
        self._went_offline_in: dict[TopicIdPartition, DirectoryId] = {}
        # The replicas that the metadata places here and that neither have a log in an online directory nor get one. Changes
        # when: a directory goes offline; after each decision.
        self._absent: dict[TopicIdPartition, None] = {}
        # Rule 1: the newer replicas, until their logs are created. Invariant: no such replica is hosted.
        # Changes when: metadata is applied; the log is created; a decision finds the replica no longer placed here.
        self._newer: dict[TopicIdPartition, None] = {}
        # The offset of this incarnation's registration record, or a later offset if the record came in a snapshot. None
        # until the registration is applied; never changes after that.
        self._registered_at: Offset | None = None
        # Rule 4: the replicas for which the last choice of a directory found none with room.
        self._unplaceable: dict[TopicIdPartition, None] = {}
        # Rule 6: the preferred directories of replicas that are not here yet.
        self.preferred = PreferredDirectories(state)
        # The replicas that are moving to another directory of this broker.
        self.movement = ReplicaMovement()
        # Rule 3: the wish of each replica that has one. Changes when: `note_wish` is called, after each decision.
        self._wishes: dict[TopicIdPartition, DirectoryId] = {}

    @property
    def wishes(self) -> dict[TopicIdPartition, DirectoryId]:
        return dict(self._wishes)

    @property
    def offline_count(self) -> int:
        """The number of replicas that should be here and are not: their directory went offline, now or before this broker
        started, or is unknown."""
        return len(self._absent)

    @property
    def unplaceable_count(self) -> int:
        return len(self._unplaceable)

    def is_offline(self, key: TopicIdPartition) -> bool:
        """Whether the replica's log went offline with its directory and nothing has replaced it."""
        return key in self._went_offline_in

    def is_unplaceable(self, key: TopicIdPartition) -> bool:
        """Whether no directory has room for this replica."""
        return key in self._unplaceable

    def reported_copy(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory of the replica's copy if that is reported instead of the directory of its log; else None."""
        return self.movement.reported(key)

    def is_missing(self, key: TopicIdPartition) -> bool:
        """Whether the replica is in the ISR, had a log when the broker last shut down cleanly, and has none in any of the
        directories: its directory has been taken out of log.dirs. After a crash the log may never have been created. The
        only replica of a partition does not count: nothing else can be elected, and there may have been no room for it."""
        is_lost = self._wishes.get(key) == LOST and not self.is_unplaceable(key)
        if not is_lost or self._directories.previous_broker_epoch is None:
            return False
        registration = self.placed_here(key)
        return registration is not None and len(registration.replicas) > 1

    def placed_here(self, key: TopicIdPartition) -> PartitionRegistration | None:
        """Returns the partition's registration if the metadata places a replica on this broker, else None."""
        registration = self._state.partition(*key)
        return registration if registration is not None and self._broker_id in registration.replicas else None

    def assigned(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory that the applied metadata assigns; None if it does not place the replica here."""
        registration = self.placed_here(key)
        return None if registration is None else registration.directory(self._broker_id)

    def copy_caught_up(self, key: TopicIdPartition) -> bool:
        """Notes that the copy of a moving replica has caught up. Returns whether there is a new directory to report."""
        return self.movement.caught_up(key, self.assigned(key))

    def may_swap(self, key: TopicIdPartition) -> bool:
        """Whether the copy of a moving replica may become its current log once it has caught up again."""
        target = self.movement.target(key)
        assert target is not None
        if not is_directory_assignment_supported(self._state.metadata_version):
            # The controller keeps no directories, so there is no acknowledgement to wait for.
            return self.movement.may_swap(key, target)
        return self.movement.may_swap(key, self.assigned(key)) and self._reports.is_final(key, target)

    def leads_in(self, directory_id: DirectoryId) -> bool:
        """Whether the metadata names this broker leader of a replica that is assigned to the directory, or whose wish names
        the directory. log.dir.failure.timeout.ms covers these replicas."""
        for key in self._state.partitions_led_by(self._broker_id):
            partition = self._state.partition(*key)
            assert partition is not None, "the index names only partitions that exist"
            if directory_id in (partition.directory(self._broker_id), self._wishes.get(key)):
                return True
        return False

    def absent_error(self, key: TopicIdPartition, *, is_closing: bool, is_being_created: bool) -> ErrorCode:
        """Returns the error to answer for a replica that is not served here. `is_closing` means that its directory has
        failed and the replica is still to be closed."""
        registration = self._state.partition(*key)
        if registration is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if registration.leader not in (self._broker_id, NO_LEADER):
            # Even where the replica here is offline. Kafka keeps answering KAFKA_STORAGE_ERROR then, and clients that do not
            # refresh their metadata after that error, such as aiokafka, never find the new leader.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        has_failed = self.is_offline(key) or is_closing
        if has_failed or (registration.leader == self._broker_id and not is_being_created):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- what happened -------------------------------------------------------------------------------------------

    def metadata_changed(
        self, delta: MetadataDelta, *, broker_epoch: BrokerEpoch | None, hosted: Container[TopicIdPartition]
    ) -> None:
        """Notes the replicas in the metadata just applied that are newer than the incarnation with this epoch (rule 1)."""
        registration = self._state.brokers.get(self._broker_id)
        if registration is None or registration.epoch != broker_epoch:
            return
        if self._registered_at is not None:
            # A delta does not say at which offset a partition changed. The first one may reach back beyond the registration.
            self._note_added_replicas(delta, hosted)
        else:
            # Keep our own copy: after a snapshot the state gives a later offset, and no partition in the snapshot would look
            # newer.
            self._registered_at = self._state.registration_offsets[self._broker_id]
        for key, created_at in delta.created_partitions.items():
            if created_at > self._registered_at and key not in hosted and self.placed_here(key) is not None:
                self._newer[key] = None

    def _note_added_replicas(self, delta: MetadataDelta, hosted: Container[TopicIdPartition]) -> None:
        for key, before in delta.changed_partitions.items():
            is_added = before is not None and self._broker_id not in before.replicas
            if is_added and key not in hosted and self.placed_here(key) is not None:
                self._newer[key] = None

    def log_created(self, key: TopicIdPartition) -> None:
        self._newer.pop(key, None)
        self.preferred.forget(key)

    def log_went_offline(self, key: TopicIdPartition, directory_id: DirectoryId) -> None:
        self._went_offline_in[key] = directory_id
        self._absent[key] = None

    def offline_in(self, directory_id: DirectoryId) -> list[TopicIdPartition]:
        """Returns the replicas whose logs went offline with this directory."""
        return [key for key, where in self._went_offline_in.items() if where == directory_id]

    def has_place(self, key: TopicIdPartition) -> None:
        self._unplaceable.pop(key, None)

    def has_no_place(self, key: TopicIdPartition) -> bool:
        """Notes that no directory has room for the replica. Returns whether this was not known before."""
        is_news = key not in self._unplaceable
        self._unplaceable[key] = None
        return is_news

    def note_wish(self, key: TopicIdPartition, wish: DirectoryId | None) -> bool:
        """Sets what to report to the controller for this replica from now on. Returns whether the wish changed."""
        if self._wishes.get(key) == wish:
            return False
        if wish is None:
            del self._wishes[key]
        else:
            self._wishes[key] = wish
        return True

    # --- deciding ------------------------------------------------------------------------------------------------

    def decide(self, key: TopicIdPartition, hosted_in: DirectoryId | None) -> Decision:
        """Decides what to do for one replica, and drops state that the metadata has made obsolete. `hosted_in` is the
        directory of the replica's loaded log; None if there is no log."""
        registration = self.placed_here(key)
        if self._state.partition(*key) is None:
            self.preferred.partition_is_gone(key)
        if registration is None:
            for remembered in (self._went_offline_in, self._newer, self._unplaceable):
                remembered.pop(key, None)
            self._reports.left(key)
        elif registration.directory(self._broker_id) == LOST:
            # LOST allows an unclean election to start the replica empty, so stop looking for its old log in the failed
            # directory.
            self._went_offline_in.pop(key, None)
        decision = decide(self.situation(key, hosted_in))
        if registration is None or hosted_in in self._directories.online or decision.action is Action.CREATE:
            self._absent.pop(key, None)
        else:
            self._absent[key] = None
        return decision

    def situation(self, key: TopicIdPartition, hosted_in: DirectoryId | None) -> ReplicaSituation:
        """Collects everything that the decision about this replica depends on."""
        registration = self.placed_here(key)
        online = tuple(self._directories.online)
        is_leader = registration is not None and registration.leader == self._broker_id
        previous, assigned = self.previous_directories, self.assigned(key)
        moving_to = self.movement.reported(key)
        reported = hosted_in if moving_to is None else moving_to
        return ReplicaSituation(
            metadata_directory=assigned,
            log_directory=self._went_offline_in.get(key) if hosted_in is None else hosted_in,
            online_directories=online,
            any_offline=self._directories.any_offline,
            in_isr=registration is not None and (is_leader or self._broker_id in registration.isr),
            leads_while_recovering=is_leader
            and registration is not None
            and registration.leader_recovery_state == LeaderRecoveryState.RECOVERING,
            newer_than_incarnation=key in self._newer,
            previous_directories_online=bool(previous) and all(each in online for each in previous or ()),
            has_left_no_trace=tuple(previous or ()) == (assigned,)
            and assigned in online
            and not self._directories.any_offline
            and key not in self.traces,
            moving_to=moving_to,
            is_final=reported is None or self._reports.is_final(key, reported),
        )

    def decide_unplaceable(self, key: TopicIdPartition) -> Decision:
        """Decides what to do for a replica that should be created but fits in no directory (rule 4)."""
        situation = self.situation(key, None)
        directory = situation.metadata_directory
        if directory in (UNASSIGNED, MIGRATING) or (situation.in_isr and directory != LOST):
            return Decision(Action.ASSIGN_LOST)
        return Decision(Action.SKIP)


# --- the gate to unfencing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """Where one replica of this broker is, according to the metadata and to the directories."""

    assigned: DirectoryId | None
    """The directory that the newest applied metadata assigns; None if it no longer places the replica here."""

    assigned_is_online: bool
    """Whether the controller counts the assigned directory as online. UNASSIGNED and MIGRATING count, LOST does not."""

    hosted: DirectoryId | None
    """The directory of the loaded log, or of its copy if the broker reports that one; None if there is no log."""

    has_wish: bool
    """Whether there is something to report to the controller about the replica."""

    is_being_created: bool
    """Whether the replica's log is being created. Once the log exists, there may be something to report."""

    is_unplaceable: bool
    """Whether no directory has room for the replica."""

    is_reportable: bool = True
    """Whether metadata.version has directories, so that the controller can learn of this place."""

    is_missing: bool = False
    """Whether the log of this ISR member is in a directory that has been taken out of log.dirs (`is_missing`)."""


def is_settled(place: ReplicaPlace) -> bool:
    """Whether a new incarnation may unfence as far as this replica is concerned (rule 5): the metadata agrees with the
    directories, or waiting would not make them agree."""
    if not place.is_reportable:
        # The controller takes every replica for online, and may make one without a log the leader: no other replica could be
        # elected then, not even uncleanly.
        return not place.is_missing
    if place.assigned in (None, place.hosted) or place.is_unplaceable:
        return True
    if place.assigned == LOST:
        # If the log is here again, the metadata must say so first: a controller of Apache Kafka elects the replica when it
        # unfences the broker, and not when it gets the assignment.
        return place.hosted is None
    # Waiting is also useless if the controller considers the assigned directory offline and no report of ours can change
    # that. A log that is being created elsewhere will bring such a report.
    return not (place.assigned_is_online or place.has_wish or place.is_being_created)
