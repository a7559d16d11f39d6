"""How the leader of the metadata log answers a Fetch, and what a follower makes of the answer (core).

Answers to KafkaRaftClient.handleFetchRequest, ReplicatedLog.validateOffsetAndEpoch and handleFetchResponse (KIP-595,
KIP-630). A fetcher says up to which offset *and epoch* its log goes; the leader compares with its own history and says
"read on", "our logs part here" or "take a snapshot". Easy to get wrong: an observer with an empty log is sent a snapshot
whenever there is one, although the log may still begin at 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

from common.ids import LeaderEpoch, Offset
from common.protocol.errors import ErrorCode
from common.raft.core.offsets import ORIGIN, OffsetAndEpoch
from common.raft.core.quorum import Quorum


class TruncationBelowHighWatermark(Exception):
    """The leader asks to drop committed records. Fatal: one of the two logs is not this cluster's."""


@dataclass(frozen=True, slots=True)
class LogView:
    """What the decisions need to know of the local log.

    `end_offset_for_epoch(epoch)` is the largest epoch <= `epoch` that the log (or the snapshot it begins with) has, and the
    offset where that epoch ends. `last_epoch` is the epoch before `end_offset`, 0 for an empty log without a snapshot.
    """

    start_offset: Offset
    end_offset: Offset
    last_epoch: LeaderEpoch
    earliest_snapshot: OffsetAndEpoch | None
    latest_snapshot: OffsetAndEpoch | None
    end_offset_for_epoch: Callable[[LeaderEpoch], OffsetAndEpoch]


# --- the leader ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """The logs agree up to here."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Diverging:
    """The largest epoch and end offset that both may have in common; the fetcher truncates to it."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    snapshot_id: OffsetAndEpoch


FetchVerdict = ReadFrom | Diverging | NeedsSnapshot


def validate_leader_only(quorum: Quorum, request_epoch: int) -> ErrorCode:
    """NONE when this node leads exactly the epoch that the requester believes in."""
    if request_epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request_epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not quorum.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def judge_fetch(log: LogView, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> FetchVerdict:
    """Compares the end of a fetcher's log with ours."""
    if fetch_offset == 0 and log.latest_snapshot is not None:
        return NeedsSnapshot(log.latest_snapshot)
    if log.start_offset == 0 and fetch_offset == 0 and last_fetched_epoch == 0:
        return ReadFrom(fetch_offset)
    if log.latest_snapshot is not None and _lies_before_the_log(log, fetch_offset, last_fetched_epoch):
        return NeedsSnapshot(log.latest_snapshot)
    end = log.end_offset_for_epoch(last_fetched_epoch)
    if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
        return Diverging(end)
    return ReadFrom(fetch_offset)


def _lies_before_the_log(log: LogView, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> bool:
    earliest = log.earliest_snapshot
    if earliest is None:
        return False
    return (
        fetch_offset < log.start_offset
        or (fetch_offset == log.start_offset and last_fetched_epoch != earliest.epoch)
        or last_fetched_epoch < earliest.epoch
    )


# --- the follower ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the records, then move the high watermark."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class TruncateTo:
    offset: Offset


@dataclass(frozen=True, slots=True)
class FetchTheSnapshot:
    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class FetchAgain:
    """Nothing to take from the answer. `at_once` when a newer leader or epoch is known now, else after a pause."""

    at_once: bool


FollowerStep = AppendFetched | TruncateTo | FetchTheSnapshot | FetchAgain


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The facts of one partition answer, ids of -1 turned into None."""

    error_code: int
    high_watermark: Offset
    diverging: OffsetAndEpoch | None
    snapshot_id: OffsetAndEpoch | None


def judge_answer(log: LogView, answer: FetchedPartition, *, leader_changed: bool, high_watermark: Offset) -> FollowerStep:
    """What a follower does with an answer. `leader_changed` says that the answer itself brought a newer leader or epoch.

    Raises TruncationBelowHighWatermark.
    """
    if answer.error_code != ErrorCode.NONE or leader_changed:
        return FetchAgain(at_once=leader_changed)
    if answer.diverging is not None:
        offset = truncation_offset(log, answer.diverging)
        if offset < high_watermark:
            raise TruncationBelowHighWatermark(
                f"the leader asks to truncate to offset {offset}, and all before {high_watermark} is committed"
            )
        return TruncateTo(offset)
    if answer.snapshot_id is not None:
        return FetchTheSnapshot(answer.snapshot_id)
    return AppendFetched(answer.high_watermark)


def truncation_offset(log: LogView, leaders_end: OffsetAndEpoch) -> Offset:
    """Where our log must end so that it holds nothing of `leaders_end.epoch` or earlier that the leader has not."""
    if leaders_end.epoch == ORIGIN.epoch:
        return min(leaders_end.offset, log.end_offset)
    own = log.end_offset_for_epoch(leaders_end.epoch)
    if own.epoch == leaders_end.epoch:
        return min(own.offset, leaders_end.offset)
    return own.offset
