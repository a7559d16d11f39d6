"""How the leader of the metadata log validates a Fetch, and what a follower does with the response (core).

Counterpart of KafkaRaftClient.handleFetchRequest, ReplicatedLog.validateOffsetAndEpoch and handleFetchResponse (KIP-595,
KIP-630). A Fetch carries the end offset *and the last epoch* of the fetcher's log. The leader compares both with its own
history and answers "read on", "our logs diverge here" or "take a snapshot". A fetcher with an empty log gets a snapshot
whenever the leader has one, even if the leader's log still starts at 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

from common.ids import LeaderEpoch, Offset
from common.protocol.errors import ErrorCode
from common.raft.core.offsets import ORIGIN, OffsetAndEpoch
from common.raft.core.quorum import Quorum


class TruncationBelowHighWatermark(Exception):
    """The leader asks us to truncate committed records. Fatal: one of the two logs belongs to another cluster."""


@dataclass(frozen=True, slots=True)
class LogView:
    """What the functions here need to know about the local log.

    `end_offset_for_epoch(epoch)` returns the largest epoch <= `epoch` in the log (or in the snapshot that it starts from)
    and that epoch's end offset. `last_epoch` is the epoch of the record before `end_offset`, or 0 for an empty log without a
    snapshot.
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
    """The logs agree up to `offset`; the leader reads from there."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Diverging:
    """The logs diverge. `end` is the largest epoch that both may share and its end offset; the fetcher truncates to it."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    snapshot_id: OffsetAndEpoch


FetchVerdict = ReadFrom | Diverging | NeedsSnapshot


def validate_leader_only(quorum: Quorum, request_epoch: int) -> ErrorCode:
    """Returns NONE if this node leads exactly the epoch named in the request, otherwise the error to answer with."""
    if request_epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request_epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not quorum.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def judge_fetch(log: LogView, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> FetchVerdict:
    """Compares the end of the fetcher's log with our history."""
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
    """Append the records, then advance the high watermark."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class TruncateTo:
    offset: Offset


@dataclass(frozen=True, slots=True)
class FetchTheSnapshot:
    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class FetchAgain:
    """Ignore the response and fetch again: `at_once` if it revealed a newer leader or epoch, otherwise after a pause."""

    at_once: bool


FollowerStep = AppendFetched | TruncateTo | FetchTheSnapshot | FetchAgain


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The relevant fields of a partition in a Fetch response, with None in place of -1."""

    error_code: int
    high_watermark: Offset
    diverging: OffsetAndEpoch | None
    snapshot_id: OffsetAndEpoch | None


def judge_answer(log: LogView, answer: FetchedPartition, *, leader_changed: bool, high_watermark: Offset) -> FollowerStep:
    """Decides what a follower does with a Fetch response.

    `leader_changed` means that this very response named a newer leader or epoch. Raises TruncationBelowHighWatermark.
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
    """Returns the offset to truncate to, so that our log holds nothing up to `leaders_end.epoch` that the leader lacks."""
    if leaders_end.epoch == ORIGIN.epoch:
        return min(leaders_end.offset, log.end_offset)
    own = log.end_offset_for_epoch(leaders_end.epoch)
    if own.epoch == leaders_end.epoch:
        return min(own.offset, leaders_end.offset)
    return own.offset
