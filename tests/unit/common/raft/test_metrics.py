"""The role in a node's Prometheus metrics is the one that Kafka would report."""

import pytest

from common.raft.metrics import quorum_state


@pytest.mark.parametrize(
    ("is_leader", "is_voter", "is_leader_known", "state"),
    [
        (True, True, True, "leader"),
        (False, True, True, "follower"),
        (False, True, False, "unattached"),
        (False, False, True, "observer"),
        (False, False, False, "observer"),
    ],
)
def test_the_state_of_a_node_without_a_vote_is_observer(
    is_leader: bool, is_voter: bool, is_leader_known: bool, state: str
) -> None:
    """A broker has no vote, so it is an observer whether or not it has found the leader."""
    assert quorum_state(is_leader=is_leader, is_voter=is_voter, is_leader_known=is_leader_known) == state
