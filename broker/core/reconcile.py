"""Decides what one replica of this broker needs, from what the metadata says and what the directories hold (core).

Counterpart of Kafka's ReplicaManager.createLogInAssignedDirectoryId, by "Replica management" of KIP-858 with the rules that
this project adds. The decision is level-triggered: it depends on the two sides alone, never on which message came before,
so it can be asked again at any time.

The one thing that must not go wrong: an *empty* log for a member of the ISR. It could be elected and would truncate the
others to nothing. It is created only where it certainly never held data; in every other case the broker tells the
controller that the replica is lost, unless the controller holds it for offline and its disk may come back.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from common.ids import DirectoryId
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED


class Action(Enum):
    USE = auto()
    """The log is where the metadata says."""

    ASSIGN = auto()
    """Tell the controller `Decision.directory`: where the log is, or where it was when that directory went offline."""

    CREATE = auto()
    """Create an empty log in `Decision.directory`, or where placement says if that is None."""

    ASSIGN_LOST = auto()
    """Create nothing and tell the controller that the replica is lost."""

    SKIP = auto()
    """Nothing to do now: the controller knows already that the replica is offline."""

    DELETE = auto()
    """The metadata no longer places the replica here."""


@dataclass(frozen=True, slots=True)
class Decision:
    action: Action
    directory: DirectoryId | None = None

    @property
    def wish(self) -> DirectoryId | None:
        """What the controller should be told of the replica's directory; None when there is nothing to say."""
        if self.action is Action.ASSIGN:
            return self.directory
        return LOST if self.action is Action.ASSIGN_LOST else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSituation:
    """All that the decision about one replica of this broker depends on."""

    metadata_directory: DirectoryId | None
    """What the newest applied metadata names for this broker; None when it does not place the replica here."""

    log_directory: DirectoryId | None
    """The directory that holds the current log of this topic id. Offline when it went offline in this incarnation, until the
    metadata calls the replica LOST, so that an unclean election may start it empty; None where no log was ever found."""

    online_directories: Collection[DirectoryId]
    any_offline: bool
    """Whether any configured directory is offline, unreadable since the start included."""

    in_isr: bool
    """Whether the metadata has this broker in the ISR, or as leader."""

    leads_while_recovering: bool
    """Whether this broker is leader with recovery state RECOVERING (after an unclean election)."""

    newer_than_incarnation: bool
    """Whether the partition was created after this incarnation registered, and its log not yet created here."""

    previous_directories_online: bool
    """Whether every directory of the previous registration, its lost ones included, is online now."""


def decide(situation: ReplicaSituation) -> Decision:
    """What to do for one replica."""
    metadata_directory, log_directory = situation.metadata_directory, situation.log_directory
    is_hosted = log_directory in situation.online_directories
    if metadata_directory is None:
        return Decision(Action.DELETE) if is_hosted else Decision(Action.SKIP)
    if is_hosted and log_directory == metadata_directory:
        return Decision(Action.USE)
    if is_hosted:
        return Decision(Action.ASSIGN, log_directory)
    if log_directory is not None:
        return _decide_failed(metadata_directory, log_directory)
    if situation.in_isr:
        return _decide_absent_in_isr(situation, metadata_directory)
    return _decide_absent_outside_isr(situation, metadata_directory)


def _decide_failed(metadata_directory: DirectoryId, failed: DirectoryId) -> Decision:
    if metadata_directory in (failed, LOST):
        return Decision(Action.SKIP)
    # The metadata names another place, mostly UNASSIGNED because the directory failed before the assignment was
    # acknowledged. Without this the controller would never connect the failure with this replica.
    return Decision(Action.ASSIGN, failed)


def _decide_absent_in_isr(situation: ReplicaSituation, metadata_directory: DirectoryId) -> Decision:
    never_held_data = (
        situation.newer_than_incarnation
        or situation.leads_while_recovering
        or (metadata_directory == UNASSIGNED and situation.previous_directories_online)
    )
    if never_held_data:
        return _create(situation, metadata_directory)
    if metadata_directory == LOST or (situation.any_offline and not _counts_as_online(situation, metadata_directory)):
        # The controller knows that the replica is offline. Called LOST while its disk is only away, it could be started
        # empty by an unclean election, and the disk would come back for nothing.
        return Decision(Action.SKIP)
    return Decision(Action.ASSIGN_LOST)


def _decide_absent_outside_isr(situation: ReplicaSituation, metadata_directory: DirectoryId) -> Decision:
    if metadata_directory == UNASSIGNED or not situation.any_offline or situation.newer_than_incarnation:
        return _create(situation, metadata_directory)
    if metadata_directory in situation.online_directories:
        # The log may lie in the directory that is offline, moved there without the metadata knowing. Said to be online,
        # the replica could be elected later without its data.
        return Decision(Action.ASSIGN_LOST)
    # LOST, MIGRATING or an unknown directory, while one is offline that may hold the log.
    return Decision(Action.SKIP)


def _counts_as_online(situation: ReplicaSituation, metadata_directory: DirectoryId) -> bool:
    return metadata_directory in (UNASSIGNED, MIGRATING, *situation.online_directories)


def _create(situation: ReplicaSituation, metadata_directory: DirectoryId) -> Decision:
    is_online = metadata_directory in situation.online_directories and metadata_directory not in (
        UNASSIGNED,
        LOST,
        MIGRATING,
    )
    return Decision(Action.CREATE, metadata_directory if is_online else None)
