"""Request contexts for handlers that are called directly."""

import asyncio

from common.ids import DirectoryId
from common.net.request_context import ANONYMOUS, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode, encode
from common.protocol.registry import APIS
from common.protocol.schema import Struct, message_schema
from tests.simulation.loop import SimulatedLoop


class NoMemory:
    """The memory of a request that no server counts, and its wait for a directory."""

    def __init__(self) -> None:
        self.appends = 0
        # The size that the handler expects its response to have; 0 if it has not told.
        self.expected_bytes = 0

    def keep(self) -> None:
        """Does nothing."""

    def release(self) -> None:
        """Does nothing."""

    def expect_response(self, size: int) -> None:
        self.expected_bytes = size

    def wait_for(self, directory_id: DirectoryId) -> "NoMemory":
        return NoMemory()

    def has_room_for(self, directory_id: DirectoryId) -> bool:
        return True

    def give_up(self) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""


def context(
    api_key: ApiKey, version: int, *, listener_name: str = "PLAINTEXT", memory: NoMemory | None = None
) -> RequestContext:
    """Returns a request of this API and version that arrived at this listener."""
    return RequestContext(
        api_key=api_key,
        api_version=version,
        correlation_id=1,
        client_id="client",
        listener_name=listener_name,
        peer="10.0.0.9:50000",
        local_host="10.0.0.1",
        principal=ANONYMOUS,
        received_ns=0,
        request_bytes=memoryview(b""),
        memory=memory or NoMemory(),
        client_gone=asyncio.Future(loop=SimulatedLoop()),
    )


def versions(api_key: ApiKey) -> list[int]:
    """Returns the served versions, in ascending order."""
    served = APIS[api_key].versions
    return list(range(served.first, served.last + 1))


def over_the_wire(message: Struct, version: int) -> Struct:
    """Encodes and decodes the message, as if it had been sent. Raises if the message cannot be encoded. In a daemon, such an
    error would end the process."""
    assert message_schema(type(message)).api_key is not None
    return decode(type(message), encode(message, version), version)
