"""Finds failed directories in broker registrations (core; KIP-858).

A directory has failed when the broker's registration drops it within one incarnation, either by a BrokerRegistrationChange
or by another registration of the same incarnation. The failure lasts until the broker registers with a new incarnation or is
removed, because only a new incarnation revives a directory.

The log does not show two kinds of failure: the loss of a broker's last directory (the log only shows that the broker was
fenced, as after an expired session), and a disk that was already dead when the broker started. A snapshot lists lost
directories but not when they were lost. Such a failure is reported with the time of the snapshot, although the directory
failed earlier.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

REGISTER: Final = "REGISTER_BROKER_RECORD"
UNREGISTER: Final = "UNREGISTER_BROKER_RECORD"
REGISTRATION_CHANGE: Final = "BROKER_REGISTRATION_CHANGE_RECORD"
BEGIN: Final = "BEGIN_TRANSACTION_RECORD"
END: Final = "END_TRANSACTION_RECORD"
ABORT: Final = "ABORT_TRANSACTION_RECORD"
SNAPSHOT: Final = "snapshot"
NO_LEADER: Final = -1

# The record types needed to find the failures.
TYPES: Final = (REGISTER, UNREGISTER, REGISTRATION_CHANGE, BEGIN, END, ABORT)


@dataclass(frozen=True, slots=True)
class Step:
    """A record of one of `TYPES`, with the relevant columns of the export. `group` identifies the metadata transaction, or
    else the batch, that contains the record (see `tables`)."""

    type: str
    offset: int
    group: int
    time: datetime
    source: str
    broker_id: int | None = None
    incarnation_id: str | None = None
    log_dirs: Sequence[str] | None = None
    lost_log_dirs: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class DisturbedPartition:
    """How the failure affected one partition. `ms` is the time from the failure to the partition's last change."""

    topic: str
    partition: int
    leader_before: int
    leader_after: int
    isr_before: list[int]
    isr_after: list[int]
    ms: int


@dataclass(slots=True)
class DirectoryFailure:
    """One failed directory. The failure lasts from `group` until `until_group` (exclusive), the group in which the broker
    registers with a new incarnation or is removed. `until_group` is None if the failure still lasts."""

    directory_id: str
    broker_id: int
    time: datetime
    offset: int
    group: int
    source: str
    until_group: int | None = None
    partitions: list[DisturbedPartition] = field(default_factory=list)

    @property
    def leaders_moved(self) -> int:
        return sum(each.leader_before != each.leader_after for each in self.partitions)

    @property
    def leaderless(self) -> int:
        return sum(each.leader_after == NO_LEADER for each in self.partitions)

    @property
    def last_change_ms(self) -> int | None:
        """Milliseconds from the failure to the last change of a partition. None if no partition changed."""
        return max((each.ms for each in self.partitions), default=None)

    def as_json(self) -> dict[str, Any]:
        """Returns the failure as JSON, with the time in UTC."""
        return {
            "directory_id": self.directory_id,
            "broker_id": self.broker_id,
            "time": self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "offset": self.offset,
            "source": self.source,
            "partition_count": len(self.partitions),
            "leaders_moved": self.leaders_moved,
            "leaderless": self.leaderless,
            "last_change_ms": self.last_change_ms,
            "partitions": [
                {name: getattr(each, name) for name in DisturbedPartition.__dataclass_fields__} for each in self.partitions
            ],
        }


@dataclass(slots=True)
class _Broker:
    incarnation_id: str | None
    log_dirs: Sequence[str]
    failures: list[DirectoryFailure] = field(default_factory=list)


def unsettled_groups(steps: Iterable[Step]) -> list[int]:
    """Returns the groups of transactions that were aborted or have not ended. Replay ignores their records."""
    begun = {step.group: False for step in steps if step.type == BEGIN}
    begun.update({step.group: True for step in steps if step.type == END})
    return sorted(group for group, has_ended in begun.items() if not has_ended)


def find_directory_failures(steps: Sequence[Step]) -> list[DirectoryFailure]:
    """Returns the failures in order of time. `steps` must be in log order."""
    unsettled = unsettled_groups(steps)
    begun_at = {step.group: step.time for step in steps if step.type == BEGIN}
    brokers: dict[int, _Broker] = {}
    found: list[DirectoryFailure] = []
    for step in steps:
        if step.broker_id is None or step.group in unsettled:
            continue
        known = brokers.get(step.broker_id)
        failed = _failed(step, known)
        if _is_new_life(step, known):
            for failure in known.failures if known else ():
                failure.until_group = step.group
            known = None
        if known is None:
            known = brokers[step.broker_id] = _Broker(step.incarnation_id, ())
        if step.log_dirs:
            known.log_dirs = step.log_dirs
        time = begun_at.get(step.group, step.time)
        for directory_id in failed:
            failure = DirectoryFailure(directory_id, step.broker_id, time, step.offset, step.group, step.source)
            known.failures.append(failure)
            found.append(failure)
    return found


def _is_new_life(step: Step, known: _Broker | None) -> bool:
    return step.type == UNREGISTER or (
        step.type == REGISTER and (known is None or known.incarnation_id != step.incarnation_id)
    )


def _failed(step: Step, known: _Broker | None) -> list[str]:
    if _is_new_life(step, known):
        # Only the registrations in a snapshot have `lost_log_dirs`: the directories lost earlier in the incarnation.
        return list(step.lost_log_dirs or ())
    # If `log_dirs` is None or empty, the directories are unchanged.
    if known is None or not step.log_dirs:
        return []
    return [each for each in known.log_dirs if each not in step.log_dirs]
