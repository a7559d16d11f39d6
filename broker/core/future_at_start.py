"""Decides at startup what becomes of the future logs and the -delete folders that a move left behind (core).

Counterpart of Kafka's LogManager.recoverAbandonedFutureLogs, but stricter than Kafka and KIP-113 (docs/DESIGN.md, "Decisions
between the KIPs and Apache Kafka"). At its end a move renames two folders on two file systems: the old log to -delete, then
the future log to the partition's name. A crash can happen between the two, so the decision is based on what the
directories hold:

1. Beside a current log a future log is never promoted, even if the metadata names its directory: it may lack the newest
   records. The current log is served, and the copy goes on.
2. Without a current log, the future log is promoted if the -delete folder of the same move is there, which shows that the
   copy was complete.
3. It is also promoted if the replica is outside the ISR and no directory is offline: whatever it lacks, it fetches from the
   leader. While a directory is offline, the current log may be in it, and the future log stays as it is.
4. Everything else stays as it is, too. The rules for a replica without a log apply (`reconcile`).
5. At most one future log is kept, in a directory other than the current log's. Superfluous ones become strays.
6. A -delete folder is kept while its replica has no log: it may be the only copy until the other disk is back.
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
    """The unique part of the name of each -delete folder of this replica in the online directories."""

    in_isr: bool
    """Whether the metadata names this broker in the ISR or as leader."""

    any_offline: bool
    """Whether any configured directory is offline."""


@dataclass(frozen=True, slots=True)
class FuturesDecision:
    """Each future log is in one of the fields."""

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
        # If there are several, the disk that returns shows which of them is complete.
        return FuturesDecision(left=tuple(futures))
    return FuturesDecision(promoted=promoted, put_aside=_without(futures, promoted))


def is_deletion_due(*, is_placed_here: bool, has_log: bool) -> bool:
    """Whether a -delete folder may be removed. `has_log` tells whether the replica has a current log now."""
    return has_log or not is_placed_here


def _longest(futures: Sequence[FutureFound]) -> FutureFound | None:
    return max(futures, key=lambda each: each.log_end_offset, default=None)


def _without(futures: Sequence[FutureFound], kept: FutureFound | None) -> tuple[FutureFound, ...]:
    return tuple(each for each in futures if each is not kept)
