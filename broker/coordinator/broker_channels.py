"""Connections to the other brokers, by broker id (shell).

Each user has connections of its own: the responses on a connection come in the order of the requests, so a slow one would
delay the ones after it.
"""

from collections.abc import Callable
from typing import Any, Protocol

from common.ids import BrokerId
from common.metadata.state import MetadataState
from common.net.node_channel import ChannelError

Address = tuple[str, int]


class Channel(Protocol):
    """One connection to a broker (`NodeChannel`). `send` raises ChannelError."""

    async def send(self, request: Any, *, version: int | None = None, deadline_ns: int) -> Any: ...

    def close(self) -> object: ...


Connect = Callable[[str, int], Channel]


class BrokerChannels:
    """See the module docstring. A broker that registers with another address gets another connection."""

    def __init__(self, state: MetadataState, *, listener_name: str, connect: Connect) -> None:
        self._state = state
        self._listener_name = listener_name
        self._connect = connect
        self._channels: dict[BrokerId, tuple[Address, Channel]] = {}

    async def send(self, broker_id: BrokerId, request: Any, *, version: int | None = None, deadline_ns: int) -> Any:
        """Sends a request and returns its response. Raises ChannelError (NotServed if the broker does not serve it)."""
        return await self._channel(broker_id).send(request, version=version, deadline_ns=deadline_ns)

    def close(self) -> None:
        """Ends the connections."""
        for _, channel in self._channels.values():
            channel.close()

    def _channel(self, broker_id: BrokerId) -> Channel:
        registration = self._state.brokers.get(broker_id)
        endpoint = None if registration is None else registration.endpoint(self._listener_name)
        if endpoint is None:
            raise ChannelError(f"broker {broker_id} is not registered")
        address = endpoint.host, endpoint.port
        known = self._channels.get(broker_id)
        if known is not None:
            if known[0] == address:
                return known[1]
            known[1].close()
        channel = self._connect(*address)
        self._channels[broker_id] = address, channel
        return channel
