"""The table that decides what becomes of a replica's future logs when the broker starts. The last test checks all small
situations."""

import itertools
from collections.abc import Sequence

import pytest

from broker.core.future_at_start import (
    FutureFound,
    FuturesDecision,
    FuturesSituation,
    decide_futures,
    is_deletion_due,
    may_be_outdated,
)
from common.ids import DirectoryId, Offset, Uuid

A = DirectoryId(Uuid(b"A" * 16))
B = DirectoryId(Uuid(b"B" * 16))
C = DirectoryId(Uuid(b"C" * 16))


def future(directory_id: DirectoryId, unique: str = "1", end: int = 10) -> FutureFound:
    return FutureFound(directory_id, unique, Offset(end))


def situation(
    *futures: FutureFound,
    current: DirectoryId | None = None,
    deleted: Sequence[str] = (),
    in_isr: bool = True,
    any_offline: bool = False,
) -> FuturesSituation:
    return FuturesSituation(current=current, futures=futures, deleted=deleted, in_isr=in_isr, any_offline=any_offline)


TABLE = [
    # If there is a current log, the copy is resumed, no matter what else is true.
    (situation(future(B), current=A), FuturesDecision(resumed=future(B))),
    (situation(future(B), current=A, deleted=["1"], in_isr=False), FuturesDecision(resumed=future(B))),
    (situation(future(B), current=A, any_offline=True), FuturesDecision(resumed=future(B))),
    # A crash interrupted a finished move between its two renames: the old log is renamed already, the copy is not.
    (situation(future(B), deleted=["1"]), FuturesDecision(promoted=future(B))),
    (situation(future(B), deleted=["1"], any_offline=True), FuturesDecision(promoted=future(B))),
    # A -delete folder of another move does not prove that this copy is complete.
    (situation(future(B), deleted=["2"]), FuturesDecision(left=(future(B),))),
    # A replica outside the ISR may be replaced by an incomplete copy: the leader still has all records. But if a disk is
    # offline, the current log may be on it and come back.
    (situation(future(B), in_isr=False), FuturesDecision(promoted=future(B))),
    (situation(future(B), in_isr=False, any_offline=True), FuturesDecision(left=(future(B),))),
    # If the replica is in the ISR, an incomplete copy must not become its current log.
    (situation(future(B)), FuturesDecision(left=(future(B),))),
    (situation(future(B), any_offline=True), FuturesDecision(left=(future(B),))),
    # There are several copies and a current log. The longest copy outside the current log's directory is resumed.
    (
        situation(future(B, "1", 10), future(C, "2", 20), current=A),
        FuturesDecision(resumed=future(C, "2", 20), put_aside=(future(B, "1", 10),)),
    ),
    (
        situation(future(A, "1", 30), future(B, "2", 5), current=A),
        FuturesDecision(resumed=future(B, "2", 5), put_aside=(future(A, "1", 30),)),
    ),
    (situation(future(A), current=A), FuturesDecision(put_aside=(future(A),))),
    (
        situation(future(B, "1"), future(B, "2"), current=A),
        FuturesDecision(resumed=future(B, "1"), put_aside=(future(B, "2"),)),
    ),
    # There are several copies and no current log. In the ISR the complete copy is promoted, even if it is not the longest.
    # Outside the ISR the longest copy is promoted.
    (
        situation(future(B, "1", 10), future(C, "2", 20), deleted=["1"]),
        FuturesDecision(promoted=future(B, "1", 10), put_aside=(future(C, "2", 20),)),
    ),
    (
        situation(future(B, "1", 10), future(C, "2", 20), in_isr=False),
        FuturesDecision(promoted=future(C, "2", 20), put_aside=(future(B, "1", 10),)),
    ),
    # If no copy can be chosen, all copies are left alone.
    (
        situation(future(B, "1", 10), future(C, "2", 20)),
        FuturesDecision(left=(future(B, "1", 10), future(C, "2", 20))),
    ),
]


@pytest.mark.parametrize(("found", "expected"), TABLE)
def test_what_becomes_of_future_logs(found: FuturesSituation, expected: FuturesDecision) -> None:
    assert decide_futures(found) == expected


@pytest.mark.parametrize(
    ("is_placed_here", "has_log", "expected"),
    [(True, True, True), (True, False, False), (False, True, True), (False, False, True)],
)
def test_a_folder_that_may_be_the_only_copy_is_not_deleted(is_placed_here: bool, has_log: bool, expected: bool) -> None:
    assert is_deletion_due(is_placed_here=is_placed_here, has_log=has_log) is expected


@pytest.mark.parametrize(
    ("named", "is_origin_online", "in_isr", "any_offline", "expected"),
    [
        (A, False, True, True, True),
        # The move had ended, or no better log will return, or the leader has one.
        (B, False, True, True, False),
        (None, False, True, True, False),
        (A, True, True, True, False),
        (A, False, False, True, False),
        (A, False, True, False, False),
    ],
)
def test_a_copy_whose_move_was_undone_may_be_outdated(
    named: DirectoryId | None, is_origin_online: bool, in_isr: bool, any_offline: bool, expected: bool
) -> None:
    """It was moving from A to B."""
    is_outdated = may_be_outdated(
        moved_from=A, named_by_metadata=named, is_origin_online=is_origin_online, in_isr=in_isr, any_offline=any_offline
    )
    assert is_outdated == expected


def test_in_every_situation_at_most_one_future_log_is_used_and_none_is_forgotten() -> None:
    """Checks one or two future logs in any directories, with every combination of the other facts."""
    places = [future(where, unique, end) for where in (A, B, C) for unique in ("1", "2") for end in (10, 20)]
    groups: list[tuple[FutureFound, ...]] = [(each,) for each in places]
    groups += [pair for pair in itertools.permutations(places, 2) if pair[0].unique != pair[1].unique]
    checked = 0
    for futures, current, deleted, in_isr, any_offline in itertools.product(
        groups, (None, A, B), ((), ("1",), ("2",), ("1", "2")), (False, True), (False, True)
    ):
        found = situation(*futures, current=current, deleted=deleted, in_isr=in_isr, any_offline=any_offline)
        decision = decide_futures(found)
        used = [each for each in (decision.resumed, decision.promoted) if each is not None]
        assert {*used, *decision.left, *decision.put_aside} == set(futures)
        assert len(used) + len(decision.left) + len(decision.put_aside) == len(futures)
        assert len(used) <= 1
        assert (decision.promoted is None) or (current is None)
        assert (decision.resumed is None) or (current not in (None, decision.resumed.directory_id))
        if in_isr and not set(deleted) & {each.unique for each in futures}:
            assert decision.promoted is None
        if current is None and not used:
            assert decision.put_aside == ()
        checked += 1
    assert checked == len(groups) * 48
