"""Decides at startup what becomes of the future logs and the -delete folders that a move left behind (core).

Counterpart of Kafka's LogManager.recoverAbandonedFutureLogs, but stricter than Kafka and KIP-113 (docs/DESIGN.md, "Decisions
between the KIPs and Apache Kafka"). At its end a move renames two folders on two file systems: the old log to -delete, then
the future log to the partition's name. A crash can happen between the two renames, so the decision depends on what the
directories contain:

1. If there is a current log, no future log is promoted, even if the metadata names its directory: the future log may lack
   the newest records. The current log is served, and the copying goes on.
2. Without a current log, the future log is promoted if the -delete folder of the same move exists, which shows that the
   copy was complete.
3. Without a current log, the future log is also promoted if the replica is outside the ISR and no directory is offline: the
   replica then fetches any missing records from the leader. While a directory is offline, the current log may be in it.
4. In all other cases without a current log, every future log stays as it is, and the rules for a replica without a log apply
   (`reconcile`).
5. Otherwise at most one future log is promoted or resumed: the longest one that qualifies. A resumed one must not be in the
   directory of the current log. All others become strays.
6. A -delete folder is kept while its replica has no log: it may be the only copy until the other disk returns.
7. A copy that has got the partition's name is not served if the metadata names the directory that it was moving from, that
   directory is offline, and the replica is in the ISR. Then the target failed before the move had ended, and the old log
   may have taken records since. The disk with that log may return, so the copy stays as it is (`may_be_outdated`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from common.ids import DirectoryId, Offset


@dataclass(frozen=True, slots=True)
class FutureFound:
    """A future log of one replica. `unique` is the part of the folder's name that identifies the move."""

    directory_id: DirectoryId
    unique: str
    log_end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FuturesSituation:
    """Everything that the decision about one replica's future logs depends on. The metadata places the replica here."""

    current: DirectoryId | None
    """The directory of the current log; None if no online directory holds one."""

    futures: Sequence[FutureFound]
    """The future logs in the online directories. There is at least one."""

    deleted: Collection[str]
    """For each -delete folder of this replica in the online directories, the part of its name that identifies the move."""

    in_isr: bool
    """Whether the metadata names this broker in the ISR or as leader."""

    any_offline: bool
    """Whether any configured directory is offline."""


@dataclass(frozen=True, slots=True)
class FuturesDecision:
    """Each future log is in exactly one of the fields."""

    resumed: FutureFound | None = None
    promoted: FutureFound | None = None
    left: tuple[FutureFound, ...] = ()
    put_aside: tuple[FutureFound, ...] = ()


def decide_futures(situation: FuturesSituation) -> FuturesDecision:
    """Decides what becomes of the future logs of one replica."""
    futures = situation.futures
    if situation.current is not None:
        resumed = _longest([each for each in futures if each.directory_id != situation.current])
        return FuturesDecision(resumed=resumed, put_aside=_without(futures, resumed))
    promoted = _longest([each for each in futures if each.unique in situation.deleted])
    if promoted is None and not situation.in_isr and not situation.any_offline:
        promoted = _longest(futures)
    if promoted is None:
        # If there are several future logs, the offline disk will show, once it is back, which of them is complete.
        return FuturesDecision(left=tuple(futures))
    return FuturesDecision(promoted=promoted, put_aside=_without(futures, promoted))


def may_be_outdated(
    *,
    moved_from: DirectoryId,
    named_by_metadata: DirectoryId | None,
    is_origin_online: bool,
    in_isr: bool,
    any_offline: bool,
) -> bool:
    """Whether a current log that was moving from this directory may lack records that are there (rule 7). Without an offline
    directory, that one was taken out of the configuration, and no better log will return."""
    return named_by_metadata == moved_from and not is_origin_online and in_isr and any_offline


def is_deletion_due(*, is_placed_here: bool, has_log: bool) -> bool:
    """Whether a -delete folder may be removed. `has_log` tells whether the replica has a current log now."""
    return has_log or not is_placed_here


def _longest(futures: Sequence[FutureFound]) -> FutureFound | None:
    return max(futures, key=lambda each: each.log_end_offset, default=None)


def _without(futures: Sequence[FutureFound], kept: FutureFound | None) -> tuple[FutureFound, ...]:
    return tuple(each for each in futures if each is not kept)
