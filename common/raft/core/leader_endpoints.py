"""Where a follower of the metadata log turns to next, and how long it pauses before (core).

Answers to KafkaRaftClient's request manager. The leader is asked as long as it answers; after a failure the voters are asked
in turn, because any of them knows, or will know, the newest leader. Easy to get wrong: a leader may be named whose address
is not known (a voter that joined later), and then the voters are the only way on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.ids import BrokerId

if TYPE_CHECKING:
    import random

BACKOFF_MAX_MS = 1_000
_DOUBLINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class QuorumEndpoint:
    """The controller listener of a voter."""

    node_id: BrokerId
    host: str
    port: int


class LeaderEndpoints:
    """Addresses, and the failures since the last answer."""

    def __init__(self, voters: Sequence[QuorumEndpoint], *, retry_backoff_ms: int, rng: "random.Random") -> None:
        if not voters:
            raise ValueError("a quorum has at least one voter")
        self._voters = tuple(voters)
        self._known = {voter.node_id: voter for voter in voters}
        self._retry_backoff_ms = retry_backoff_ms
        self._rng = rng
        self._failures = 0
        self._turn = 0

    def learn(self, endpoint: QuorumEndpoint) -> None:
        """An answer named the address of a node."""
        self._known[endpoint.node_id] = endpoint

    def of(self, node_id: BrokerId | None) -> QuorumEndpoint | None:
        return None if node_id is None else self._known.get(node_id)

    def target(self, leader_id: BrokerId | None) -> QuorumEndpoint:
        """Whom to ask now."""
        leader = self.of(leader_id)
        if leader is not None and self._failures == 0:
            return leader
        return self._voters[self._turn % len(self._voters)]

    def answered(self) -> None:
        """The last one asked gave an answer that carried on the work."""
        self._failures = 0

    def failed(self) -> int:
        """The last one asked did not answer, or did not know the leader. Returns the pause before the next, in ms."""
        self._turn += 1
        pause = min(self._retry_backoff_ms << min(self._failures, _DOUBLINGS_MAX), BACKOFF_MAX_MS)
        self._failures += 1
        # Many brokers lose the leader at the same time; they should not all come back at the same time.
        return round(pause * self._rng.uniform(0.8, 1.2))
