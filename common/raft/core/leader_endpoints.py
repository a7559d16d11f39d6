"""Decides which node a follower of the metadata log asks next, and how long the follower pauses first (core).

Counterpart of the RequestManager in KafkaRaftClient. The follower asks the leader as long as the leader answers. After a
failure it asks the servers of its configuration round-robin, because each of them knows, or will learn, who leads. It also
falls back to these when a response names a leader whose address is unknown.
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
    """The controller listener of a voter. The id of a server whose id is unknown is below -1."""

    node_id: BrokerId
    host: str
    port: int


class LeaderEndpoints:
    """The addresses of the quorum's nodes, and the state of the backoff after failures."""

    def __init__(self, servers: Sequence[QuorumEndpoint], *, retry_backoff_ms: int, rng: "random.Random") -> None:
        if not servers:
            raise ValueError("a quorum has at least one voter")
        self._servers = tuple(servers)
        self._configured = {server.node_id: server for server in servers}
        # The newest address of each node. Starts with the configured servers; responses add and replace entries.
        self._known = dict(self._configured)
        self._retry_backoff_ms = retry_backoff_ms
        self._rng = rng
        # The number of consecutive failures. Each failure doubles the pause; a useful response resets the number to 0.
        self._failures = 0
        # Round-robin position among the servers. Advances with each failure and is never reset.
        self._turn = 0

    def learn(self, endpoint: QuorumEndpoint) -> None:
        """Records a node's address from a response."""
        self._known[endpoint.node_id] = endpoint

    def of(self, node_id: BrokerId | None) -> QuorumEndpoint | None:
        return None if node_id is None else self._known.get(node_id)

    def for_requests(self, node_id: BrokerId | None) -> QuorumEndpoint | None:
        """Returns where the broker's requests to the active controller go. As in Apache Kafka, the address in
        controller.quorum.voters wins over that of a response: only the configuration knows of a proxy in between."""
        return None if node_id is None else self._configured.get(node_id) or self._known.get(node_id)

    def target(self, leader_id: BrokerId | None) -> QuorumEndpoint:
        """Returns the node to ask now: the leader, or the next server if the leader is unknown or the last request
        failed."""
        leader = self.of(leader_id)
        if leader is not None and self._failures == 0:
            return leader
        return self._servers[self._turn % len(self._servers)]

    def answered(self) -> None:
        """Resets the backoff after a useful response."""
        self._failures = 0

    def failed(self) -> int:
        """Moves on to the next server after a failed or useless request. Returns the pause before the next one, in ms."""
        self._turn += 1
        pause = min(self._retry_backoff_ms << min(self._failures, _DOUBLINGS_MAX), BACKOFF_MAX_MS)
        self._failures += 1
        # All brokers lose the leader at the same moment. The jitter keeps their reconnects apart.
        return round(pause * self._rng.uniform(0.8, 1.2))
