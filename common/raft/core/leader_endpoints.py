"""Decides which node a follower of the metadata log asks next, and how long the follower pauses first (core).

Counterpart of the RequestManager in KafkaRaftClient. The follower asks the leader as long as the leader answers. After a
failure it asks the voters round-robin, because each of them knows, or will learn, who leads. It also falls back to the
voters when a response names a leader whose address is unknown, for example a voter that joined later.
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
    """The addresses of the quorum's nodes, and the state of the backoff after failures."""

    def __init__(self, voters: Sequence[QuorumEndpoint], *, retry_backoff_ms: int, rng: "random.Random") -> None:
        if not voters:
            raise ValueError("a quorum has at least one voter")
        self._voters = tuple(voters)
        # The newest address of each node. Starts with the configured voters; responses add and replace entries.
        self._known = {voter.node_id: voter for voter in voters}
        self._retry_backoff_ms = retry_backoff_ms
        self._rng = rng
        # The number of consecutive failures. Each failure doubles the pause; a useful response resets the number to 0.
        self._failures = 0
        # Round-robin position among the voters. Advances with each failure and is never reset.
        self._turn = 0

    def learn(self, endpoint: QuorumEndpoint) -> None:
        """Records a node's address from a response."""
        self._known[endpoint.node_id] = endpoint

    def of(self, node_id: BrokerId | None) -> QuorumEndpoint | None:
        return None if node_id is None else self._known.get(node_id)

    def target(self, leader_id: BrokerId | None) -> QuorumEndpoint:
        """Returns the node to ask now: the leader, or the next voter if the leader is unknown or the last request failed."""
        leader = self.of(leader_id)
        if leader is not None and self._failures == 0:
            return leader
        return self._voters[self._turn % len(self._voters)]

    def answered(self) -> None:
        """Resets the backoff after a useful response."""
        self._failures = 0

    def failed(self) -> int:
        """Moves on to the next voter after a failed or useless request. Returns the pause before the next one, in ms."""
        self._turn += 1
        pause = min(self._retry_backoff_ms << min(self._failures, _DOUBLINGS_MAX), BACKOFF_MAX_MS)
        self._failures += 1
        # All brokers lose the leader at the same moment. The jitter keeps their reconnects apart.
        return round(pause * self._rng.uniform(0.8, 1.2))
