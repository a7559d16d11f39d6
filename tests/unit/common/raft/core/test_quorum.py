"""The quorum state machine: elections with one and three voters, followers, and the Ready with the driver's next steps."""

import pytest

from common.ids import BrokerId, LeaderEpoch, Offset
from common.raft.core.election_state import ElectionState
from common.raft.core.quorum import LeaderAndEpoch, LeaderChange, Quorum, QuorumViolation, Ready, Role
from common.raft.core.replica_progress import ReplicaKey

ONE, TWO, THREE, OBSERVER = BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(9)


def quorum(
    *voters: BrokerId,
    node_id: BrokerId = ONE,
    election: ElectionState | None = None,
    last_log_epoch: int = 0,
    high_watermark: int = 0,
) -> Quorum:
    return Quorum(
        node_id=node_id,
        voters=voters or (ONE,),
        election=election or ElectionState(),
        last_log_epoch=LeaderEpoch(last_log_epoch),
        high_watermark=Offset(high_watermark),
    )


def elect(state: Quorum, log_end: int = 0) -> Ready:
    """Campaigns, and reports each election state as persisted, until the node leads. Returns the new leader's Ready."""
    state.campaign()
    while (ready := state.take_ready()).election is not None:
        state.election_persisted(Offset(log_end))
    return ready


def test_a_sole_voter_persists_its_vote_then_its_leadership() -> None:
    """The vote and then the leadership are persisted. The new epoch is invisible until the vote is on disk."""
    state = quorum(election=ElectionState(LeaderEpoch(4), ONE))
    assert state.can_elect_itself
    state.campaign()
    assert (state.epoch, state.role) == (4, Role.UNATTACHED)

    assert state.take_ready() == Ready(election=ElectionState(LeaderEpoch(5), None, ONE))
    state.election_persisted(Offset(20))
    assert (state.epoch, state.role) == (5, Role.CANDIDATE)

    assert state.take_ready() == Ready(election=ElectionState(LeaderEpoch(5), ONE))
    state.election_persisted(Offset(20))
    assert state.take_ready() == Ready(
        leader_change=LeaderChange(LeaderEpoch(5), ONE, (ONE,), (ONE,)),
        leader_and_epoch=LeaderAndEpoch(ONE, LeaderEpoch(5)),
    )
    assert state.take_ready() == Ready()


def test_a_candidate_of_three_needs_a_second_vote() -> None:
    """A candidate needs two votes of three. Its own vote counts once, and the vote of an observer does not count."""
    state = quorum(ONE, TWO, THREE)
    assert not state.can_elect_itself
    state.campaign()
    state.take_ready()
    state.election_persisted(Offset(0))
    assert state.take_ready().election is None

    state.vote_granted(ONE)
    state.vote_granted(OBSERVER)
    assert state.take_ready().election is None
    state.vote_granted(THREE)
    assert state.take_ready().election == ElectionState(LeaderEpoch(1), ONE)
    state.election_persisted(Offset(0))
    assert state.take_ready().leader_change == LeaderChange(LeaderEpoch(1), ONE, (ONE, TWO, THREE), (ONE, THREE))


def test_an_observer_cannot_campaign() -> None:
    """A node that is not a voter must not start an election."""
    with pytest.raises(QuorumViolation):
        quorum(node_id=OBSERVER).campaign()


def test_a_restarted_leader_does_not_resume_its_epoch() -> None:
    """quorum-state names this node as leader of epoch 4. After a restart it is not leader and must win a new epoch."""
    state = quorum(election=ElectionState(LeaderEpoch(4), ONE))
    assert state.leader_and_epoch == LeaderAndEpoch(None, LeaderEpoch(4))
    assert elect(state).leader_and_epoch == LeaderAndEpoch(ONE, LeaderEpoch(5))


def test_a_voter_does_not_wait_for_a_leader_who_is_no_voter() -> None:
    """quorum-state names a leader that is no longer a voter, so the sole voter starts a newer epoch. An observer's own
    configuration may be outdated, so it keeps following and never elects itself."""
    stored = ElectionState(LeaderEpoch(4), TWO)
    state = quorum(election=stored)
    assert state.can_elect_itself
    assert state.leader_and_epoch == LeaderAndEpoch(None, LeaderEpoch(4))
    assert elect(state).leader_and_epoch == LeaderAndEpoch(ONE, LeaderEpoch(5))

    observer = quorum(node_id=OBSERVER, election=stored)
    assert (observer.role, observer.leader_id) == (Role.FOLLOWER, TWO)
    assert not observer.can_elect_itself


def test_a_log_ahead_of_the_file_wins() -> None:
    """If quorum-state was lost, the next epoch must be higher than the epoch of the newest batch."""
    state = quorum(last_log_epoch=8)
    assert state.epoch == 8
    elect(state)
    assert state.epoch == 9


def test_one_voter_commits_what_it_flushed_once_its_epoch_began_durably() -> None:
    """Records of earlier epochs are committed only when the new epoch's LeaderChange at offset 20 is flushed."""
    state = quorum(high_watermark=10)
    elect(state, log_end=20)
    state.log_flushed(Offset(20))
    assert state.take_ready().high_watermark is None
    state.log_flushed(Offset(21))
    assert state.take_ready().high_watermark == 21
    state.log_flushed(Offset(21))
    assert state.take_ready() == Ready()


def test_a_new_leader_reports_no_high_watermark_before_its_first_commit() -> None:
    """After a restart it remembers only the end of its snapshot. A broker of Apache Kafka that knows a later one ends if it
    is told this one."""
    state = quorum(high_watermark=10)
    elect(state, log_end=20)
    assert (state.high_watermark, state.reportable_high_watermark) == (10, -1)
    state.log_flushed(Offset(21))
    assert (state.high_watermark, state.reportable_high_watermark) == (21, 21)


def test_three_voters_commit_with_the_second() -> None:
    """The high watermark is the median of the three voters' log ends. Observers do not count."""
    state = quorum(ONE, TWO, THREE)
    state.campaign()
    state.take_ready()
    state.election_persisted(Offset(0))
    state.vote_granted(TWO)
    state.take_ready()
    state.election_persisted(Offset(0))

    state.log_flushed(Offset(10))
    assert state.high_watermark == 0
    progress = state.leader_progress()
    assert not progress.fetched(ReplicaKey(OBSERVER), end_offset=Offset(10), leader_end=Offset(10), wall_ms=1)
    assert progress.fetched(ReplicaKey(TWO), end_offset=Offset(6), leader_end=Offset(10), wall_ms=1)
    state.replica_progressed()
    assert state.high_watermark == 6
    assert not progress.fetched(ReplicaKey(THREE), end_offset=Offset(4), leader_end=Offset(10), wall_ms=1)
    assert progress.fetched(ReplicaKey(THREE), end_offset=Offset(9), leader_end=Offset(10), wall_ms=1)
    state.replica_progressed()
    assert state.take_ready().high_watermark == 9


def test_an_observer_follows_and_takes_the_watermark_up_to_its_own_end() -> None:
    """The leader's watermark may be beyond the observer's log end. The observer's watermark never goes back."""
    state = quorum(node_id=OBSERVER)
    state.leader_discovered(ONE, LeaderEpoch(3))
    assert state.take_ready().election == ElectionState(LeaderEpoch(3), ONE)
    state.election_persisted(Offset(0))
    assert state.take_ready().leader_and_epoch == LeaderAndEpoch(ONE, LeaderEpoch(3))

    state.leader_reported(Offset(50), log_end_offset=Offset(30))
    assert state.take_ready().high_watermark == 30
    state.leader_reported(Offset(20), log_end_offset=Offset(30))
    assert state.high_watermark == 30
    state.snapshot_installed(Offset(70))
    assert state.take_ready().high_watermark == 70


def test_old_news_of_leaders_changes_nothing() -> None:
    """The observer ignores reports of a lower epoch, of the leader it already knows, of no leader in the known epoch, and of
    itself as leader."""
    state = quorum(node_id=OBSERVER, election=ElectionState(LeaderEpoch(3), ONE))
    state.take_ready()
    state.leader_discovered(TWO, LeaderEpoch(2))
    state.leader_discovered(ONE, LeaderEpoch(3))
    state.leader_discovered(None, LeaderEpoch(3))
    state.leader_discovered(OBSERVER, LeaderEpoch(9))
    assert state.take_ready() == Ready()


def test_an_epoch_without_a_leader_is_followed_by_its_leader() -> None:
    """The observer first learns only the epoch, and later which node leads it."""
    state = quorum(node_id=OBSERVER)
    state.leader_discovered(None, LeaderEpoch(3))
    state.take_ready()
    state.election_persisted(Offset(0))
    assert state.take_ready().leader_and_epoch == LeaderAndEpoch(None, LeaderEpoch(3))
    state.leader_discovered(TWO, LeaderEpoch(3))
    state.take_ready()
    state.election_persisted(Offset(0))
    assert state.take_ready().leader_and_epoch == LeaderAndEpoch(TWO, LeaderEpoch(3))


def test_two_leaders_of_one_epoch_are_a_violation() -> None:
    """A second leader in the same epoch raises, because following both would mix two histories."""
    state = quorum(node_id=OBSERVER, election=ElectionState(LeaderEpoch(3), ONE))
    with pytest.raises(QuorumViolation):
        state.leader_discovered(TWO, LeaderEpoch(3))


def test_resigning_leaves_the_epoch_without_a_leader() -> None:
    """The leader resigns before it appends its LeaderChange, which is dropped. The next election takes a higher epoch."""
    state = quorum()
    state.campaign()
    state.take_ready()
    state.election_persisted(Offset(0))
    state.take_ready()
    state.election_persisted(Offset(0))
    state.resign()
    assert state.take_ready() == Ready(leader_and_epoch=LeaderAndEpoch(None, LeaderEpoch(1)))
    assert elect(state, log_end=5).leader_change == LeaderChange(LeaderEpoch(2), ONE, (ONE,), (ONE,))


def test_a_leader_steps_down_for_a_newer_epoch() -> None:
    """A node that learns of another leader in a higher epoch follows it and no longer tracks the progress of replicas."""
    state = quorum(ONE, TWO, THREE)
    state.leader_discovered(TWO, LeaderEpoch(6))
    state.take_ready()
    state.election_persisted(Offset(0))
    assert (state.role, state.leader_id) == (Role.FOLLOWER, TWO)
    with pytest.raises(QuorumViolation):
        state.leader_progress()
