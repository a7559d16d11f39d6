"""Serves Kafka requests on one listener: accepts connections, counts them, and checks their deadlines (shell).

Counterpart of Kafka's `SocketServer`. The work on a single connection is in served_connection.py. A misbehaving peer costs
one log line and loses its own connection. This module limits the number of connections, in total and per host.
request_memory.py limits the memory of all requests. All other limits apply per connection.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from common.environment.interface import Connection, Environment, Listener, Receiver
from common.net.api_versions import advertised_versions, api_versions_response
from common.net.peer_warnings import PeerWarnings
from common.net.request_context import Authorize, Handler, RequestContext, allow_all
from common.net.request_memory import RequestMemory
from common.net.served_connection import ServedConnection
from common.net.server_limits import ServerLimits
from common.protocol.api_keys import ApiKey
from common.protocol.numbering import NumberingSource, kip858_numbering
from common.protocol.schema import Struct, VersionRange
from common.time_units import NS_PER_S

SWEEP_INTERVAL_NS: Final = NS_PER_S


class RequestServer:
    """One listener and its connections."""

    def __init__(
        self,
        env: Environment,
        *,
        listener_name: str,
        host: str,
        port: int,
        handlers: Mapping[ApiKey, Handler],
        max_request_bytes: int,
        task_group: asyncio.TaskGroup,
        advertised: Mapping[ApiKey, VersionRange] | None = None,
        authorize: Authorize = allow_all,
        limits: ServerLimits | None = None,
        numbering: NumberingSource = kip858_numbering,
    ) -> None:
        self.env = env
        self.listener_name = listener_name
        self.warnings = PeerWarnings(env, listener_name)
        self.max_request_bytes = max_request_bytes
        # May be replaced. Connections that are open keep their limits, and so does the memory of all requests.
        self.limits = limits or ServerLimits()
        self.task_group = task_group
        self.authorize = authorize
        self.numbering = numbering
        self.memory = RequestMemory(self.limits.request_memory_bytes, self._memory_is_full)
        served = {ApiKey.API_VERSIONS: self._handle_api_versions, **handlers}
        self.advertised = advertised if advertised is not None else advertised_versions(served)
        self.handlers: Mapping[ApiKey, Handler] = served
        self._host = host
        self._port = port
        self._listener: Listener | None = None
        # The open connections. A dict used as an ordered set, because the order in which connections are swept and closed
        # must not depend on memory addresses.
        self._connections: dict[ServedConnection, None] = {}
        # Invariant: the number of entries of `_connections` per host, without zeros.
        self._connections_of_host: dict[str, int] = {}
        # Cancels the sweep timer. None until the first connection, and after a sweep that found no open connection.
        self._cancel_sweep: Callable[[], None] | None = None

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def start(self) -> Listener:
        """Starts listening. Raises ListenFailed."""
        self._listener = self.env.listen(self._host, self._port, self._accept)
        return self._listener

    def close(self) -> None:
        """Stops listening and closes every connection after its queued responses have been sent."""
        if self._listener is not None:
            self._listener.close()
        if self._cancel_sweep is not None:
            self._cancel_sweep()
        for connection in list(self._connections):
            connection.close()

    def forget(self, connection: ServedConnection) -> None:
        """Removes a lost connection."""
        if self._connections.pop(connection, self) is self:
            return
        left = self._connections_of_host[connection.host] - 1
        if left:
            self._connections_of_host[connection.host] = left
        else:
            del self._connections_of_host[connection.host]

    def _handle_api_versions(self, context: RequestContext, request: Any) -> Struct:
        return api_versions_response(self.advertised)

    def _memory_is_full(self) -> None:
        for connection in list(self._connections):
            connection.settle_reading()

    def _accept(self, connection: Connection) -> Receiver:
        host = connection.peer.rpartition(":")[0]
        refusal = self._refusal(host)
        if refusal is not None:
            self.warnings.warn("connection_limit_reached", peer=connection.peer, reason=refusal)
            connection.close()
            return _Refused()
        served = ServedConnection(self, connection, host)
        self._connections[served] = None
        self._connections_of_host[host] = self._connections_of_host.get(host, 0) + 1
        if self._cancel_sweep is None:
            self._sweep_later()
        return served

    def _refusal(self, host: str) -> str | None:
        if len(self._connections) >= self.limits.connections_max:
            return f"{self.limits.connections_max} connections are open"
        address = host.removeprefix("[").removesuffix("]")
        host_max = self.limits.connections_of_hosts_max.get(address, self.limits.connections_per_host_max)
        if self._connections_of_host.get(host, 0) >= host_max:
            return f"{host_max} connections of this host are open"
        return None

    def _sweep_later(self) -> None:
        self._cancel_sweep = self.env.call_at(self.env.now_ns() + SWEEP_INTERVAL_NS, self._sweep)

    def _sweep(self) -> None:
        """Checks the deadlines of all connections. One timer serves them all; it stops when none is open."""
        self._cancel_sweep = None
        now_ns = self.env.now_ns()
        for connection in list(self._connections):
            connection.check_deadlines(now_ns)
        if self._connections:
            self._sweep_later()


class _Refused:
    """The receiver of a refused connection."""

    def data_received(self, view: memoryview) -> None:
        """Ignores the data."""

    def connection_lost(self, reason: str | None) -> None:
        """Does nothing, because the connection was never counted."""

    def writable(self) -> None:
        """Does nothing, because nothing is sent on the connection."""
