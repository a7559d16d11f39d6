"""Decides what one replica of this broker needs, from the metadata and the contents of the directories (core).

Counterpart of Kafka's ReplicaManager.createLogInAssignedDirectoryId. Follows "Replica management" of KIP-858, plus rules of
our own. The decision is level-triggered: it depends only on the metadata and the directories, not on the order of events,
so it can be repeated at any time.

One mistake loses data: creating an *empty* log for a member of the ISR. That replica could be elected and would truncate
the others to nothing. We create the log only if the replica certainly never held data. Otherwise the broker reports the
replica LOST, unless the controller already considers it offline and its disk may still come back.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from common.ids import DirectoryId
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED


class Action(Enum):
    USE = auto()
    """The log is, or is about to be, where the metadata says."""

    ASSIGN = auto()
    """Report `Decision.directory` to the controller: where the log is, where it moves to, or where it was when that
    directory went offline."""

    CREATE = auto()
    """Create an empty log in `Decision.directory`. If that is None, placement chooses the directory."""

    ASSIGN_LOST = auto()
    """Create nothing and report the replica LOST to the controller."""

    SKIP = auto()
    """Do nothing for now: the controller already knows that the replica is offline."""

    DELETE = auto()
    """The metadata no longer places the replica here."""


@dataclass(frozen=True, slots=True)
class Decision:
    action: Action
    directory: DirectoryId | None = None

    @property
    def wish(self) -> DirectoryId | None:
        """The directory to report to the controller for this replica; None if there is nothing to report."""
        if self.action is Action.ASSIGN:
            return self.directory
        return LOST if self.action is Action.ASSIGN_LOST else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSituation:
    """Everything that the decision about one replica of this broker depends on."""

    metadata_directory: DirectoryId | None
    """The directory that the newest applied metadata assigns; None if the metadata does not place the replica here."""

    log_directory: DirectoryId | None
    """The directory that holds the current log of this topic id; None if no log was found. A directory that went offline in
    this incarnation is still named here. That ends when the metadata says LOST, because from then on an unclean election may
    start the replica empty."""

    online_directories: Collection[DirectoryId]
    any_offline: bool
    """Whether any configured directory is offline, including those that could not be read at startup."""

    in_isr: bool
    """Whether the metadata names this broker in the ISR or as leader."""

    leads_while_recovering: bool
    """Whether this broker leads with recovery state RECOVERING, that is, after an unclean election."""

    newer_than_incarnation: bool
    """Whether the metadata placed the replica here after this incarnation registered, and it has no log here yet."""

    previous_directories_online: bool
    """Whether all directories that earlier incarnations may have used without telling are online now. False if unknown."""

    has_left_no_trace: bool = False
    """Whether the metadata assigns the only directory of earlier incarnations, no directory is offline, and nothing on the
    disks shows that the replica ever had a log. For a broker with a single directory, the controller assigns the directory
    of a new replica before there is a log."""

    moving_to: DirectoryId | None = None
    """The directory to report while the replica moves; None unless its copy has caught up (`ReplicaMovement.reported`)."""

    is_final: bool = True
    """Whether none of the broker's earlier reports can make the metadata name another directory than the one to report."""


def decide(situation: ReplicaSituation) -> Decision:
    """Decides what to do for one replica."""
    metadata_directory, log_directory = situation.metadata_directory, situation.log_directory
    is_hosted = log_directory in situation.online_directories
    if metadata_directory is None:
        return Decision(Action.DELETE) if is_hosted else Decision(Action.SKIP)
    if is_hosted:
        reported = log_directory if situation.moving_to is None else situation.moving_to
        is_settled = reported == metadata_directory and situation.is_final
        return Decision(Action.USE) if is_settled else Decision(Action.ASSIGN, reported)
    if log_directory is not None:
        return _decide_failed(metadata_directory, log_directory)
    if situation.in_isr:
        return _decide_absent_in_isr(situation, metadata_directory)
    return _decide_absent_outside_isr(situation, metadata_directory)


def _decide_failed(metadata_directory: DirectoryId, failed: DirectoryId) -> Decision:
    if metadata_directory in (failed, LOST):
        return Decision(Action.SKIP)
    # The metadata names another directory, usually UNASSIGNED because the directory failed before the controller had
    # acknowledged the assignment. Without this report the controller would never relate the failure to this replica.
    return Decision(Action.ASSIGN, failed)


def _decide_absent_in_isr(situation: ReplicaSituation, metadata_directory: DirectoryId) -> Decision:
    never_held_data = (
        situation.newer_than_incarnation
        or situation.leads_while_recovering
        or (metadata_directory == UNASSIGNED and situation.previous_directories_online)
        or situation.has_left_no_trace
    )
    if never_held_data:
        return _create(situation, metadata_directory)
    if metadata_directory == LOST or (situation.any_offline and not _counts_as_online(situation, metadata_directory)):
        # The controller knows that the replica is offline. If we reported it LOST while its disk is only temporarily gone,
        # an unclean election could start it empty, and the data on the returning disk would be useless.
        return Decision(Action.SKIP)
    return Decision(Action.ASSIGN_LOST)


def _decide_absent_outside_isr(situation: ReplicaSituation, metadata_directory: DirectoryId) -> Decision:
    if metadata_directory == UNASSIGNED or not situation.any_offline or situation.newer_than_incarnation:
        return _create(situation, metadata_directory)
    if _counts_as_online(situation, metadata_directory):
        # The log may be in an offline directory, having moved there without the metadata knowing, or having been there
        # before directories were recorded. If we created an empty one here, the replica would count as online and could be
        # elected later without its data.
        return Decision(Action.ASSIGN_LOST)
    # LOST or an unknown directory, while an offline directory may hold the log.
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
