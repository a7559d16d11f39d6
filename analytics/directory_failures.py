"""Finds failed directories in the registrations of brokers (core; KIP-858).

A directory has failed when a broker's registration drops it while the incarnation stays: by a BrokerRegistrationChange, or
by a registration of the same incarnation. The failure lasts until the broker registers anew or is removed, because only a
new incarnation revives a directory. Not seen, because the log does not say it: the loss of a broker's last directory (the
broker is fenced, as for a lost session), and a disk that was dead when its broker started. Easy to get wrong: a snapshot
names what was lost and not when; such a failure carries the time of the snapshot, by which it had happened.
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

# What has to be read of the log to find the failures.
TYPES: Final = (REGISTER, UNREGISTER, REGISTRATION_CHANGE, BEGIN, END, ABORT)


@dataclass(frozen=True, slots=True)
class Step:
    """A record of one of `TYPES`, with the columns of the export that count here."""

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
    """What the failure did to one partition. `ms` is the time of the last change since the failure."""

    topic: str
    partition: int
    leader_before: int
    leader_after: int
    isr_before: list[int]
    isr_after: list[int]
    ms: int


@dataclass(slots=True)
class DirectoryFailure:
    """One failed directory. It lasts from `group` to before `until_group`, the broker's next registration."""

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
        """None where no partition changed."""
        return max((each.ms for each in self.partitions), default=None)

    def as_json(self) -> dict[str, Any]:
        """For programs; the time is UTC."""
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
    """The transactions that were aborted, or have not ended: for whoever replays the log they never happened."""
    begun = {step.group: False for step in steps if step.type == BEGIN}
    begun.update({step.group: True for step in steps if step.type == END})
    return sorted(group for group, has_ended in begun.items() if not has_ended)


def find_directory_failures(steps: Sequence[Step]) -> list[DirectoryFailure]:
    """The failures in their order; `steps` are in the order of the log."""
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
        # Only in a snapshot does a registration name what this incarnation has lost before.
        return list(step.lost_log_dirs or ())
    # None and an empty list both say that nothing changed.
    if known is None or not step.log_dirs:
        return []
    return [each for each in known.log_dirs if each not in step.log_dirs]
