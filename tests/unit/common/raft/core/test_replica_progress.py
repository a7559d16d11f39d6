"""What the leader tracks about its replicas: the majority offset, caught-up times, and observers that stop fetching."""

import pytest

from common.ids import BrokerId, LeaderEpoch, Offset, Uuid
from common.raft.core.replica_progress import (
    OBSERVER_SESSION_MS,
    OBSERVERS_MAX,
    LeaderProgress,
    Progress,
    ReplicaKey,
    majority_offset,
)


def offsets(*ends: int | None) -> list[Offset | None]:
    return [None if end is None else Offset(end) for end in ends]


@pytest.mark.parametrize(
    ("ends", "majority"),
    [
        ((None,), None),
        ((7,), 7),
        ((7, None), None),
        ((7, 5), 5),
        ((7, 5, None), 5),
        ((7, None, None), None),
        ((1, 9, 4), 4),
        ((1, 9, 4, 8), 4),
        ((1, 9, 4, 8, 6), 6),
    ],
)
def test_the_majority_offset_is_what_more_than_half_of_the_voters_have(
    ends: tuple[int | None, ...], majority: int | None
) -> None:
    """Returns the highest offset that more than half of the voters have reached, or None while that is unknown."""
    assert majority_offset(offsets(*ends)) == majority


def progress() -> LeaderProgress:
    return LeaderProgress(BrokerId(1), LeaderEpoch(1), Offset(0), {BrokerId(1): Progress()}, Offset(0))


def test_caught_up_is_judged_by_where_the_leader_was() -> None:
    """A replica that reaches the log end which the leader had at the previous fetch was caught up at that time."""
    leader = progress()
    replica = ReplicaKey(BrokerId(5))
    leader.fetched(replica, end_offset=Offset(0), leader_end=Offset(10), wall_ms=100)
    assert leader.observers[replica].last_caught_up_ms == -1
    leader.fetched(replica, end_offset=Offset(10), leader_end=Offset(15), wall_ms=200)
    assert leader.observers[replica].last_caught_up_ms == 100
    leader.fetched(replica, end_offset=Offset(15), leader_end=Offset(15), wall_ms=300)
    assert leader.observers[replica].last_caught_up_ms == 300


def test_an_observer_may_start_over() -> None:
    """After its disk was replaced, an observer fetches from a lower offset, with the same or a new directory id."""
    leader = progress()
    leader.fetched(ReplicaKey(BrokerId(5)), end_offset=Offset(9), leader_end=Offset(9), wall_ms=1)
    leader.fetched(ReplicaKey(BrokerId(5)), end_offset=Offset(0), leader_end=Offset(9), wall_ms=2)
    leader.fetched(ReplicaKey(BrokerId(5), Uuid(b"d" * 16)), end_offset=Offset(3), leader_end=Offset(9), wall_ms=3)
    assert [seen.end_offset for seen in leader.observers.values()] == [0, 3]


def test_silent_observers_are_forgotten() -> None:
    """An observer that has not fetched for five minutes is removed; others stay."""
    leader = progress()
    leader.fetched(ReplicaKey(BrokerId(5)), end_offset=Offset(0), leader_end=Offset(0), wall_ms=1_000)
    leader.fetched(ReplicaKey(BrokerId(6)), end_offset=Offset(0), leader_end=Offset(0), wall_ms=2_000)
    leader.forget_silent_observers(1_001 + OBSERVER_SESSION_MS)
    assert [key.node_id for key in leader.observers] == [6]


def test_made_up_observers_do_not_pile_up() -> None:
    """A client may fetch under any number of made-up ids, so the leader keeps only a limited number, the newest ones."""
    leader = progress()
    for number in range(OBSERVERS_MAX + 10):
        replica = ReplicaKey(BrokerId(100 + number))
        leader.fetched(replica, end_offset=Offset(0), leader_end=Offset(1), wall_ms=1_000 + number)
    assert len(leader.observers) == OBSERVERS_MAX
    assert min(key.node_id for key in leader.observers) == 110
