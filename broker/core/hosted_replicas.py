"""What this broker knows of its replicas beyond what the metadata and the directories say by themselves (core, KIP-858).

Counterpart of what Kafka spreads over ReplicaManager, BrokerMetadataPublisher and AssignmentsManager. `reconcile` decides
about one replica from a `ReplicaSituation`; this module remembers what goes into that situation, and what is to be said
about the replica to the controller:

1. A partition that the metadata created after this incarnation registered is *newer*: until its log is created here it
   certainly never held a record here.
2. A log that went offline with its directory is remembered by that directory and never looked for elsewhere, until the
   metadata calls the replica LOST or places it on other brokers. The topic id decides: a topic that was deleted and created
   again is another one.
3. A wish is what the controller should be told: the true directory, the failed one, or LOST. It is computed again with each
   decision, so that an assignment that was lost or refused is asked for again.
4. A member of the ISR that no directory has room for says LOST, or it would be waited for.
5. Before a new incarnation unfences, each of its replicas has to be *settled* (`is_settled`).
"""

from collections.abc import Collection, Container
from dataclasses import dataclass

from broker.core.reconcile import Action, Decision, ReplicaSituation, decide
from common.ids import BrokerEpoch, BrokerId, DirectoryId, Offset, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST
from common.metadata.registrations import LeaderRecoveryState, PartitionRegistration
from common.metadata.state import MetadataState


class HostedReplicas:
    """See the module's docstring. Reads the newest applied metadata and the state of the directories; changes neither."""

    def __init__(self, broker_id: BrokerId, state: MetadataState, directories: LogDirectories) -> None:
        self._broker_id = broker_id
        self._state = state
        self._directories = directories
        # The directories of this broker's registration before this incarnation, lost ones included; None: not known.
        self.previous_directories: Collection[DirectoryId] | None = None
        # Rule 2: where the log of a replica was when it went offline.
        self._went_offline_in: dict[TopicIdPartition, DirectoryId] = {}
        # Rule 1. Invariant: none of them is hosted.
        self._newer: dict[TopicIdPartition, None] = {}
        # The offset of this incarnation's registration, or, learnt from a snapshot, of one after it. None: not applied yet.
        self._registered_at: Offset | None = None
        # Rule 4: what no directory had room for at the last decision.
        self._unplaceable: dict[TopicIdPartition, None] = {}
        # Rule 3.
        self._wishes: dict[TopicIdPartition, DirectoryId] = {}

    @property
    def wishes(self) -> dict[TopicIdPartition, DirectoryId]:
        return dict(self._wishes)

    @property
    def offline_count(self) -> int:
        return len(self._went_offline_in)

    @property
    def unplaceable_count(self) -> int:
        return len(self._unplaceable)

    def is_offline(self, key: TopicIdPartition) -> bool:
        """Whether the replica's log went offline with its directory, and nothing has replaced it."""
        return key in self._went_offline_in

    def is_unplaceable(self, key: TopicIdPartition) -> bool:
        """Whether no directory has room for this replica."""
        return key in self._unplaceable

    def placed_here(self, key: TopicIdPartition) -> PartitionRegistration | None:
        """The registration of a partition that has a replica on this broker."""
        registration = self._state.partition(*key)
        return registration if registration is not None and self._broker_id in registration.replicas else None

    def leads_in(self, directory_id: DirectoryId) -> bool:
        """Whether the metadata names this broker leader of a replica that is in that directory, or is in it and not assigned
        to it yet. log.dir.failure.timeout.ms is about these."""
        for key in self._state.partitions_led_by(self._broker_id):
            partition = self._state.partition(*key)
            assert partition is not None, "the index names only partitions that exist"
            if directory_id in (partition.directory(self._broker_id), self._wishes.get(key)):
                return True
        return False

    # --- what happened -------------------------------------------------------------------------------------------

    def metadata_changed(
        self, delta: MetadataDelta, *, broker_epoch: BrokerEpoch | None, hosted: Container[TopicIdPartition]
    ) -> None:
        """Notes what is newer than the incarnation with this epoch, in metadata that was just applied."""
        registration = self._state.brokers.get(self._broker_id)
        if registration is None or registration.epoch != broker_epoch:
            return
        if self._registered_at is None:
            # Kept: after a snapshot the state no longer knows it, and would call everything old that the snapshot brought.
            self._registered_at = self._state.registration_offsets[self._broker_id]
        for key, created_at in delta.created_partitions.items():
            if created_at > self._registered_at and key not in hosted and self.placed_here(key) is not None:
                self._newer[key] = None

    def log_created(self, key: TopicIdPartition) -> None:
        self._newer.pop(key, None)

    def log_went_offline(self, key: TopicIdPartition, directory_id: DirectoryId) -> None:
        self._went_offline_in[key] = directory_id

    def offline_in(self, directory_id: DirectoryId) -> list[TopicIdPartition]:
        """The replicas whose logs went offline with this directory."""
        return [key for key, where in self._went_offline_in.items() if where == directory_id]

    def has_place(self, key: TopicIdPartition) -> None:
        self._unplaceable.pop(key, None)

    def has_no_place(self, key: TopicIdPartition) -> bool:
        """No directory has room for it. True when that is news."""
        is_news = key not in self._unplaceable
        self._unplaceable[key] = None
        return is_news

    def note_wish(self, key: TopicIdPartition, wish: DirectoryId | None) -> bool:
        """What the controller should be told of this replica from now on. True when that is news."""
        if self._wishes.get(key) == wish:
            return False
        if wish is None:
            del self._wishes[key]
        else:
            self._wishes[key] = wish
        return True

    # --- deciding ------------------------------------------------------------------------------------------------

    def decide(self, key: TopicIdPartition, hosted_in: DirectoryId | None) -> Decision:
        """What to do for one replica; `hosted_in` is the directory of its loaded log. Forgets what the metadata settled."""
        registration = self.placed_here(key)
        if registration is None:
            for remembered in (self._went_offline_in, self._newer, self._unplaceable):
                remembered.pop(key, None)
        elif registration.directory(self._broker_id) == LOST:
            # From here on an unclean election may start it empty.
            self._went_offline_in.pop(key, None)
        return decide(self.situation(key, hosted_in))

    def situation(self, key: TopicIdPartition, hosted_in: DirectoryId | None) -> ReplicaSituation:
        """All that the decision about this replica depends on."""
        registration = self.placed_here(key)
        online = tuple(self._directories.online)
        is_leader = registration is not None and registration.leader == self._broker_id
        previous = self.previous_directories
        return ReplicaSituation(
            metadata_directory=None if registration is None else registration.directory(self._broker_id),
            log_directory=self._went_offline_in.get(key) if hosted_in is None else hosted_in,
            online_directories=online,
            any_offline=self._directories.any_offline,
            in_isr=registration is not None and (is_leader or self._broker_id in registration.isr),
            leads_while_recovering=is_leader
            and registration is not None
            and registration.leader_recovery_state == LeaderRecoveryState.RECOVERING,
            newer_than_incarnation=key in self._newer,
            previous_directories_online=bool(previous) and all(each in online for each in previous or ()),
        )

    def decide_unplaceable(self, key: TopicIdPartition) -> Decision:
        """What to do for a replica that was to be created and has no place (rule 4)."""
        situation = self.situation(key, None)
        if situation.in_isr and situation.metadata_directory != LOST:
            return Decision(Action.ASSIGN_LOST)
        return Decision(Action.SKIP)


# --- the gate to unfencing -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """Where the metadata and the directories have one replica of this broker."""

    assigned: DirectoryId | None
    """The directory that the newest applied metadata names; None when it no longer places the replica here."""

    assigned_is_online: bool
    """Whether the controller counts that directory as online; UNASSIGNED and MIGRATING do, LOST does not."""

    hosted: DirectoryId | None
    """The directory of the loaded log."""

    has_wish: bool
    """Whether there is something to tell the controller about it."""

    is_being_created: bool
    """Whether its log is about to be there, and with it perhaps something to tell."""

    is_unplaceable: bool
    """Whether no directory has room for it."""


def is_settled(place: ReplicaPlace) -> bool:
    """Whether a new incarnation need not stay fenced for this replica (rule 5): the metadata agrees, or nothing would ever
    make it agree."""
    if place.assigned in (None, LOST, place.hosted) or place.is_unplaceable:
        return True
    # The controller holds its directory for offline, and there is nothing to say about it. About one that is created
    # elsewhere there will be something to say.
    return not (place.assigned_is_online or place.has_wish or place.is_being_created)
