"""Decides what AlterReplicaLogDirs does with one replica, and the answer (core, KIP-113).

Counterpart of ReplicaManager.alterReplicaLogDirs. The conditions are checked in Kafka's order, with two differences: a
replica whose log is online can be moved while another directory is offline, and a move to a directory without room for the
replica is refused before anything is copied.

A *preference* belongs to a replica that the metadata does not place on this broker yet: it is the directory in which the
replica's log will be created. A tool sends it before it reassigns the partition to this broker, or before it creates the
topic or the partition.
"""

from dataclasses import dataclass
from enum import Enum, auto

from common.ids import DirectoryId
from common.protocol.errors import ErrorCode

ANY = "any"
"""The path that cancels a move (KIP-113)."""


class Alteration(Enum):
    NOTHING = auto()
    """The replica is in the directory already, or is moving there; or the request is refused."""

    PREFER = auto()
    """Remember the directory, and create the replica there later."""

    FORGET_PREFERENCE = auto()
    """Forget the directory that an earlier request preferred."""

    CANCEL = auto()
    """Give up the move in progress."""

    MOVE = auto()
    """Start moving the replica to the directory. If it is moving to another one, give up that move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterationWanted:
    """Everything that the decision about one replica depends on."""

    destination: str
    """The path in the request; `any` cancels the move."""

    directory_id: DirectoryId | None
    """The directory at that path; None if log.dirs does not contain the path or the directory was unusable at startup."""

    is_configured: bool
    """Whether the path is in log.dirs."""

    is_online: bool
    """Whether the directory at that path is online."""

    exists: bool
    """Whether the metadata contains the partition."""

    is_placed_here: bool
    """Whether the metadata places a replica of the partition on this broker."""

    is_changing_place: bool
    """Whether the replica's log is being created, or its copy is being swapped in as the current log."""

    current: DirectoryId | None
    """The directory of the replica's current log; None if there is no loaded log."""

    target: DirectoryId | None
    """The directory that the replica is moving to; None if it is not moving."""

    is_name_too_long: bool
    """Whether the name of the future log's folder would exceed the limit of file systems."""

    is_cordoned: bool = False
    """Whether the directory at that path gets no new replicas (KIP-1066)."""

    has_room: bool
    """Whether the directory has room for a copy of the log."""


@dataclass(frozen=True, slots=True)
class AlterationDecision:
    error: ErrorCode
    alteration: Alteration = Alteration.NOTHING


def decide_alteration(wanted: AlterationWanted) -> AlterationDecision:
    """Decides what to do and what to answer for one replica."""
    is_any = wanted.destination == ANY
    refusal = _refuse_destination(wanted)
    if refusal is not ErrorCode.NONE and not is_any:
        return AlterationDecision(refusal)
    if not wanted.is_placed_here:
        error = ErrorCode.REPLICA_NOT_AVAILABLE if wanted.exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return AlterationDecision(error, Alteration.FORGET_PREFERENCE if is_any else Alteration.PREFER)
    if wanted.is_changing_place:
        # Too late for a preference or a cancellation, and too early for a move. The client has to try again.
        return AlterationDecision(ErrorCode.REPLICA_NOT_AVAILABLE)
    if wanted.current is None:
        # The replica is offline, or no directory has room for it.
        return AlterationDecision(ErrorCode.KAFKA_STORAGE_ERROR)
    if is_any or wanted.directory_id == wanted.current:
        return AlterationDecision(ErrorCode.NONE, Alteration.NOTHING if wanted.target is None else Alteration.CANCEL)
    if wanted.directory_id == wanted.target:
        return AlterationDecision(ErrorCode.NONE)
    if not wanted.has_room:
        return AlterationDecision(ErrorCode.KAFKA_STORAGE_ERROR)
    return AlterationDecision(ErrorCode.NONE, Alteration.MOVE)


def _refuse_destination(wanted: AlterationWanted) -> ErrorCode:
    if wanted.is_name_too_long:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not wanted.is_configured:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not wanted.is_online:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if wanted.is_cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return ErrorCode.NONE
