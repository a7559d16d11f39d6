"""The broker's channel to the active controller, whichever node that is (shell).

Counterpart of Kafka's NodeToControllerChannelManager.

1. The active controller is the leader of the metadata quorum. If a node does not answer, or answers NOT_CONTROLLER, we
   retry with the same or another node of the quorum until the deadline.
2. As in Kafka, lease requests (registrations and heartbeats), forwarded requests and all others use separate connections. On
   a shared connection, responses come in request order, so a slow request would delay those behind it. An attempt that times
   out closes its connection, and all other requests in flight on that connection fail.
3. A request without an answer may still have been carried out. So a request that is not idempotent gets one long attempt
   instead of many short ones.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from common.configuration.endpoints import HostPort
from common.environment.interface import Environment
from common.net.node_channel import ChannelError, NodeChannel
from common.protocol.errors import ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.protocol.messages.broker_registration import BrokerRegistrationRequest
from common.protocol.messages.create_topics import CreateTopicsResponse
from common.protocol.messages.envelope import EnvelopeRequest
from common.protocol.schema import VersionRange
from common.time_units import NS_PER_MS


class _Lane(Enum):
    """A group of requests that share a connection (rule 2)."""

    LEASE = auto()
    FORWARDED = auto()
    WORK = auto()


class ControllerUnavailable(Exception):
    """No active controller answered before the deadline. The text describes the last attempt."""


class ControllerChannel:
    """See the module docstring. `servers` are the controllers of the configuration. `leader` returns the address of the
    quorum's leader as far as this node knows it; `open_channel` makes a NodeChannel for a host and port."""

    def __init__(
        self,
        env: Environment,
        *,
        servers: Sequence[HostPort],
        leader: Callable[[], HostPort | None],
        open_channel: Callable[[str, int], NodeChannel],
        retry_backoff_ns: int,
        attempt_timeout_ns: int,
    ) -> None:
        self._env = env
        self._servers = tuple(servers)
        # Where the rotation through the servers starts: the index of the one that last answered as the active controller.
        self._first = 0
        self._leader = leader
        self._open_channel = open_channel
        self._channels: dict[tuple[HostPort, _Lane], NodeChannel] = {}
        self._retry_backoff_ns = max(retry_backoff_ns, 10 * NS_PER_MS)
        self._attempt_timeout_ns = attempt_timeout_ns
        self._is_closed = False
        # What the active controller serves: the versions by API key, as of the last answer. Empty before the first answer.
        self.served_versions: Mapping[int, VersionRange] = {}

    async def send(
        self, request: Any, *, deadline_ns: int, version: int | None = None, attempt_timeout_ns: int | None = None
    ) -> Any:
        """Returns the active controller's answer, which may have any error code except NOT_CONTROLLER. Raises
        ControllerUnavailable."""
        attempt = 0
        while True:
            if self._is_closed:
                raise ControllerUnavailable("this broker is ending")
            server = self._choose(attempt)
            timeout_ns = self._attempt_timeout_ns if attempt_timeout_ns is None else attempt_timeout_ns
            attempt_ns = min(deadline_ns, self._env.now_ns() + timeout_ns)
            channel = self._channel(server, _lane_of(request))
            try:
                response = await channel.send(request, version=version, deadline_ns=attempt_ns)
            except ChannelError as error:
                seen = str(error)
            else:
                if not _says_not_controller(response):
                    if server in self._servers:
                        self._first = self._servers.index(server)
                    self.served_versions = channel.served_versions
                    return response
                seen = f"{server} is not the active controller"
            # The node did not answer or is no longer the leader. The next attempt may go to another one.
            attempt += 1
            retry_ns = self._env.now_ns() + self._retry_backoff_ns
            if retry_ns >= deadline_ns:
                raise ControllerUnavailable(seen)
            await self._env.sleep_until(retry_ns)

    def close(self) -> None:
        """Closes every connection. Requests in flight fail, and so do all later ones."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _choose(self, attempt: int) -> HostPort:
        # Every other attempt goes to the leader named by the quorum. The attempts in between rotate through the servers, in
        # case that leader is gone.
        leader = self._leader()
        if leader is None:
            step = attempt
        elif attempt % 2 == 0:
            return leader
        else:
            step = (attempt + 1) // 2
        return self._servers[(self._first + step) % len(self._servers)]

    def _channel(self, server: HostPort, lane: _Lane) -> NodeChannel:
        channel = self._channels.get((server, lane))
        if channel is None:
            channel = self._channels[server, lane] = self._open_channel(server.host, server.port)
        return channel


def _lane_of(request: Any) -> _Lane:
    if isinstance(request, BrokerRegistrationRequest | BrokerHeartbeatRequest):
        return _Lane.LEASE
    return _Lane.FORWARDED if isinstance(request, EnvelopeRequest) else _Lane.WORK


def _says_not_controller(response: Any) -> bool:
    if isinstance(response, CreateTopicsResponse):
        # CreateTopics has no error code for the whole response. A node that is not the controller sends NOT_CONTROLLER for
        # every topic.
        return any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in response.topics)
    return bool(getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER)
