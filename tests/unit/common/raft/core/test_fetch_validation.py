"""The leader's verdict on a fetch position and the follower's reaction to the response, case by case."""

import pytest

from common.ids import BrokerId, LeaderEpoch, Offset
from common.protocol.errors import ErrorCode
from common.raft.core.election_state import ElectionState
from common.raft.core.fetch_validation import (
    AppendFetched,
    Diverging,
    FetchAgain,
    FetchedPartition,
    FetchTheSnapshot,
    FetchVerdict,
    LeaderLostRecords,
    LogView,
    NeedsSnapshot,
    ReadFrom,
    TruncateTo,
    TruncationBelowHighWatermark,
    judge_answer,
    judge_fetch,
    truncation_offset,
    validate_leader_only,
)
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.quorum import Quorum
from common.storage.leader_epochs import LeaderEpochs


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch))


def view(
    epochs: list[tuple[int, int]],
    end: int,
    *,
    start: int = 0,
    earliest: OffsetAndEpoch | None = None,
    latest: OffsetAndEpoch | None = None,
) -> LogView:
    """Builds the view of a log with these (epoch, start offset) entries that ends at `end`."""
    cache = LeaderEpochs(epochs)
    last_epoch = LeaderEpoch(max(cache.latest_epoch, 0))

    def end_offset_for_epoch(epoch: LeaderEpoch) -> OffsetAndEpoch:
        found = cache.end_offset_for(epoch, Offset(end))
        if found.end_offset < 0:
            return at(end, last_epoch)
        if earliest is not None and found == (epoch, earliest.offset):
            return earliest
        return at(found.end_offset, found.epoch)

    return LogView(Offset(start), Offset(end), last_epoch, earliest, latest or earliest, end_offset_for_epoch)


WHOLE = view([(1, 0), (3, 10), (4, 20)], 30)
CUT = view([(3, 15), (4, 20)], 30, start=15, earliest=at(15, 3), latest=at(25, 4))


@pytest.mark.parametrize(
    ("log", "offset", "epoch", "verdict"),
    [
        (WHOLE, 0, 0, ReadFrom(Offset(0))),
        (WHOLE, 30, 4, ReadFrom(Offset(30))),
        (WHOLE, 10, 1, ReadFrom(Offset(10))),
        (WHOLE, 12, 1, Diverging(at(10, 1))),
        (WHOLE, 25, 2, Diverging(at(10, 1))),
        (WHOLE, 31, 4, Diverging(at(30, 4))),
        (WHOLE, 30, 7, Diverging(at(30, 4))),
        (CUT, 0, 0, NeedsSnapshot(at(25, 4))),
        (CUT, 14, 3, NeedsSnapshot(at(25, 4))),
        (CUT, 15, 2, NeedsSnapshot(at(25, 4))),
        (CUT, 22, 1, NeedsSnapshot(at(25, 4))),
        (CUT, 15, 3, ReadFrom(Offset(15))),
        (CUT, 22, 3, Diverging(at(20, 3))),
        (view([], 0), 0, 0, ReadFrom(Offset(0))),
        (view([], 0), 5, 0, Diverging(at(0, 0))),
        (view([(1, 0)], 30, latest=at(10, 1)), 0, 0, NeedsSnapshot(at(10, 1))),
        (view([(1, 0)], 30, latest=at(10, 1)), 5, 1, ReadFrom(Offset(5))),
    ],
)
def test_the_leader_judges_a_fetch_by_where_the_logs_agree(
    log: LogView, offset: int, epoch: int, verdict: FetchVerdict
) -> None:
    """The leader reads at a matching position, reports the common end of diverging logs, or refers to a snapshot."""
    assert judge_fetch(log, fetch_offset=Offset(offset), last_fetched_epoch=LeaderEpoch(epoch)) == verdict


@pytest.mark.parametrize(
    ("epoch", "leader", "error"),
    [
        (0, True, ErrorCode.FENCED_LEADER_EPOCH),
        (1, True, ErrorCode.NONE),
        (2, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_the_leader_of_the_requesters_epoch_answers(epoch: int, leader: bool, error: ErrorCode) -> None:
    """A Fetch with another epoch than the leader's gets an error. A new observer learns the current epoch this way."""
    node = BrokerId(1)
    quorum = Quorum(
        node_id=node,
        voters=[node],
        election=ElectionState(LeaderEpoch(0 if leader else 1)),
        last_log_epoch=LeaderEpoch(0),
        high_watermark=Offset(0),
    )
    if leader:
        quorum.campaign()
        while quorum.take_ready().election is not None:
            quorum.election_persisted(Offset(0))
    assert validate_leader_only(quorum, epoch) is error


@pytest.mark.parametrize(
    ("leaders_end", "offset"),
    [
        (at(18, 3), 18),
        (at(28, 3), 20),
        (at(40, 4), 30),
        (at(12, 2), 10),
        (at(0, 0), 0),
        (at(90, 0), 30),
    ],
)
def test_a_follower_keeps_no_more_than_both_logs_have_in_common(leaders_end: OffsetAndEpoch, offset: int) -> None:
    """The follower truncates at the smaller end of an epoch that both logs have, or at the end of its next lower epoch."""
    assert truncation_offset(WHOLE, leaders_end) == offset


def answer(
    error: int = 0, *, diverging: OffsetAndEpoch | None = None, snapshot: OffsetAndEpoch | None = None
) -> FetchedPartition:
    return FetchedPartition(error, Offset(25), diverging, snapshot)


def test_what_a_follower_does_with_an_answer() -> None:
    """A follower appends records, truncates on divergence, fetches a snapshot, or retries after an error."""

    def judge(fetched: FetchedPartition, *, leader_changed: bool = False) -> object:
        return judge_answer(WHOLE, fetched, leader_changed=leader_changed, epoch=LeaderEpoch(9), high_watermark=Offset(15))

    assert judge(answer()) == AppendFetched(Offset(25))
    assert judge(answer(diverging=at(18, 3))) == TruncateTo(Offset(18))
    assert judge(answer(snapshot=at(100, 4))) == FetchTheSnapshot(at(100, 4))
    assert judge(answer(ErrorCode.UNKNOWN_SERVER_ERROR)) == FetchAgain(at_once=False)
    assert judge(answer(ErrorCode.FENCED_LEADER_EPOCH), leader_changed=True) == FetchAgain(at_once=True)


def test_committed_records_are_never_dropped() -> None:
    """A leader that lacks committed records is in another cluster or has lost its disk. The follower's daemon must stop."""
    with pytest.raises(TruncationBelowHighWatermark):
        judge_answer(
            WHOLE, answer(diverging=at(14, 3)), leader_changed=False, epoch=LeaderEpoch(9), high_watermark=Offset(15)
        )


def test_a_leader_that_has_lost_records_of_its_own_epoch_is_not_followed() -> None:
    """A leader only appends in its epoch. The follower has just started, so it knows no high watermark. An equal end is no
    loss: then only the follower's idea of the last epoch was wrong."""

    def judge(end: OffsetAndEpoch) -> object:
        return judge_answer(
            WHOLE, answer(diverging=end), leader_changed=False, epoch=WHOLE.last_epoch, high_watermark=Offset(0)
        )

    with pytest.raises(LeaderLostRecords, match="the controller has lost its metadata log"):
        judge(at(WHOLE.end_offset - 1, WHOLE.last_epoch))
    assert judge(at(WHOLE.end_offset, WHOLE.last_epoch)) == TruncateTo(WHOLE.end_offset)
    assert judge(at(18, 3)) == TruncateTo(Offset(18))
