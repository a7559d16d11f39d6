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


class LeaderLostRecords(Exception):
    """The leader has less of its own epoch than we fetched from it. Fatal: a leader only appends in its epoch, so this one
    has another log than before, and ours may be the only copy left."""


@dataclass(frozen=True, slots=True)
class LogView:
    """The facts about the local log that this module's functions need.

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
    """The logs diverge. `end` is the largest epoch that both may share and its end offset. The fetcher truncates there."""

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
    """Compares the end of the fetcher's log with the leader's history in `log`."""
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
    """The follower appends the records in the response, then advances its high watermark."""

    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class TruncateTo:
    offset: Offset


@dataclass(frozen=True, slots=True)
class FetchTheSnapshot:
    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class FetchAgain:
    """The follower ignores the rest of the response and fetches again, after a pause unless `at_once` is set."""

    at_once: bool


FollowerStep = AppendFetched | TruncateTo | FetchTheSnapshot | FetchAgain


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The fields of a partition in a Fetch response that `judge_answer` needs. None means that the field is absent."""

    error_code: int
    high_watermark: Offset
    diverging: OffsetAndEpoch | None
    snapshot_id: OffsetAndEpoch | None


def judge_answer(
    log: LogView, answer: FetchedPartition, *, leader_changed: bool, epoch: LeaderEpoch, high_watermark: Offset
) -> FollowerStep:
    """Decides what a follower does with a Fetch response.

    `log` and `high_watermark` are the follower's own. `epoch` is the leader's. `leader_changed` means that this response
    names a leader or epoch that is new to the follower. Raises TruncationBelowHighWatermark and LeaderLostRecords. After a
    start the high watermark is not known yet, and only the latter keeps a node from following a leader with an empty disk.
    """
    if answer.error_code != ErrorCode.NONE or leader_changed:
        return FetchAgain(at_once=leader_changed)
    if answer.diverging is not None:
        offset = truncation_offset(log, answer.diverging)
        if offset < high_watermark:
            raise TruncationBelowHighWatermark(
                f"the leader asks to truncate to offset {offset}, and all before {high_watermark} is committed"
            )
        if answer.diverging.epoch == epoch and offset < log.end_offset:
            raise LeaderLostRecords(
                f"the controller has lost its metadata log: its log ends at offset {offset}, this node's copy of the same "
                f"epoch at {log.end_offset}; stop it, and start it with the copy of a broker (docs/operations.md says how)"
            )
        return TruncateTo(offset)
    if answer.snapshot_id is not None:
        return FetchTheSnapshot(answer.snapshot_id)
    return AppendFetched(answer.high_watermark)


def truncation_offset(log: LogView, leaders_end: OffsetAndEpoch) -> Offset:
    """Returns the offset to which the follower truncates its log after a divergence.

    `leaders_end` is the largest epoch that both logs may share, with its end offset in the leader's log.
    """
    if leaders_end.epoch == ORIGIN.epoch:
        return min(leaders_end.offset, log.end_offset)
    own = log.end_offset_for_epoch(leaders_end.epoch)
    if own.epoch == leaders_end.epoch:
        return min(own.offset, leaders_end.offset)
    return own.offset
