"""Which node a follower sends its requests to, and how long it waits after a failure."""

import random

import pytest

from common.ids import BrokerId
from common.raft.core.leader_endpoints import BACKOFF_MAX_MS, LeaderEndpoints, QuorumEndpoint

ONE = QuorumEndpoint(BrokerId(1), "one", 9093)
TWO = QuorumEndpoint(BrokerId(2), "two", 9093)
JOINED = QuorumEndpoint(BrokerId(7), "seven", 9093)


def endpoints(*voters: QuorumEndpoint) -> LeaderEndpoints:
    return LeaderEndpoints(voters, retry_backoff_ms=20, rng=random.Random(1))


def test_the_known_leader_is_asked() -> None:
    """The follower asks the leader. Without a known leader, or without its address, it asks the voters."""
    some = endpoints(ONE, TWO)
    assert some.target(None) == ONE
    assert some.target(TWO.node_id) == TWO
    assert some.target(JOINED.node_id) == ONE
    some.learn(JOINED)
    assert some.target(JOINED.node_id) == JOINED


def test_after_a_failure_the_voters_take_turns() -> None:
    """After a failed request the follower asks the voters in turn. It returns to the leader once a node has answered."""
    some = endpoints(ONE, TWO)
    some.failed()
    assert some.target(ONE.node_id) == TWO
    some.failed()
    assert some.target(TWO.node_id) == ONE
    some.answered()
    assert some.target(TWO.node_id) == TWO


def test_pauses_grow_up_to_a_limit() -> None:
    """Retry pauses double from the configured backoff, with 20 % jitter, and start over after a response."""
    some = endpoints(ONE)
    pauses = [some.failed() for _ in range(12)]
    assert 16 <= pauses[0] <= 24
    assert 32 <= pauses[1] <= 48
    assert all(pause <= BACKOFF_MAX_MS * 1.2 for pause in pauses)
    assert pauses[-1] >= BACKOFF_MAX_MS * 0.8
    some.answered()
    assert some.failed() <= 24


def test_a_quorum_needs_a_voter() -> None:
    """Without a voter there is no node to ask."""
    with pytest.raises(ValueError, match="at least one voter"):
        endpoints()


def test_requests_go_to_the_configured_address() -> None:
    """A response may name an address that passes a proxy by. The address in controller.quorum.voters wins over it, and only
    that of a node which is not configured comes from responses."""
    some = endpoints(ONE, TWO)
    some.learn(QuorumEndpoint(TWO.node_id, "behind-the-proxy", 9093))
    some.learn(JOINED)
    assert some.for_requests(TWO.node_id) == TWO
    assert some.for_requests(JOINED.node_id) == JOINED
    assert some.for_requests(None) is None
    assert some.for_requests(BrokerId(8)) is None
