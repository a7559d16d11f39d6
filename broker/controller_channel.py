"""The broker's way to the active controller, whoever that is at the moment (shell).

Answers to Kafka's NodeToControllerChannelManager. Who leads is known from the metadata quorum; a node that answers
NOT_CONTROLLER, or does not answer, is asked again or another one is, until the deadline. Easy to get wrong: a request that
got no answer may have been carried out, so everything sent here must be harmless when it arrives twice.
"""

from collections.abc import Callable, Sequence
from typing import Any

from common.configuration.endpoints import Voter
from common.environment.interface import Environment
from common.net.node_channel import ChannelError, NodeChannel
from common.protocol.errors import ErrorCode

MS = 1_000_000


class ControllerUnavailable(Exception):
    """No active controller answered before the deadline; the text says what was seen last."""


class ControllerChannel:
    """`leader_id` reads who leads the metadata quorum as far as this node knows; `open_channel` makes a NodeChannel."""

    def __init__(
        self,
        env: Environment,
        *,
        voters: Sequence[Voter],
        leader_id: Callable[[], int | None],
        open_channel: Callable[[str, int], NodeChannel],
        retry_backoff_ns: int,
        attempt_timeout_ns: int,
    ) -> None:
        self._env = env
        self._voters = {voter.node_id: voter for voter in voters}
        self._order = tuple(self._voters)
        self._next = 0
        self._leader_id = leader_id
        self._open_channel = open_channel
        self._channels: dict[int, NodeChannel] = {}
        self._retry_backoff_ns = max(retry_backoff_ns, 10 * MS)
        self._attempt_timeout_ns = attempt_timeout_ns

    async def send(self, request: Any, *, deadline_ns: int, version: int | None = None) -> Any:
        """The active controller's answer, whatever its error code but NOT_CONTROLLER. Raises ControllerUnavailable."""
        while True:
            node_id = self._choose()
            attempt_ns = min(deadline_ns, self._env.now_ns() + self._attempt_timeout_ns)
            try:
                response = await self._channel(node_id).send(request, version=version, deadline_ns=attempt_ns)
            except ChannelError as error:
                seen = f"controller {node_id}: {error}"
            else:
                if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    self._next = 0
                    return response
                seen = f"node {node_id} is not the active controller"
            # A silent or deposed leader: the next attempt may go to another voter.
            self._next += 1
            retry_ns = self._env.now_ns() + self._retry_backoff_ns
            if retry_ns >= deadline_ns:
                raise ControllerUnavailable(seen)
            await self._env.sleep_until(retry_ns)

    def close(self) -> None:
        """Closes every connection; requests in flight fail."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _choose(self) -> int:
        # Every other attempt goes to whom the quorum names; those between walk round the voters, in case it names nobody
        # or somebody who is gone.
        leader_id = self._leader_id()
        if leader_id is not None and leader_id in self._voters and self._next % 2 == 0:
            return leader_id
        return self._order[self._next // 2 % len(self._order)]

    def _channel(self, node_id: int) -> NodeChannel:
        channel = self._channels.get(node_id)
        if channel is None:
            voter = self._voters[node_id]
            channel = self._channels[node_id] = self._open_channel(voter.host, voter.port)
        return channel
