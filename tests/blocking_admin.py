"""An AdminClient with blocking calls, for tests and benchmarks that are not asynchronous.

The integration tests, for example, poll daemons that run in other processes. The client lives in a task of its own event
loop, and the loop runs only during a call. If a broker closes a connection between two calls, the next call notices it and
reconnects.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

from admin.client import AdminClient
from admin.known_nodes import Destination, Role
from common.configuration.endpoints import HostPort
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from common.protocol.schema import Struct

Result = TypeVar("Result")

KNOWN_SECONDS_MAX = 60.0
POLL_SECONDS = 0.02


class BlockingAdmin:
    """An AdminClient whose calls block. Use it in a with statement. Every error that it raises is an AdminError."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = AdminClient(bootstrap_servers)

    def __enter__(self) -> "BlockingAdmin":
        self._loop = asyncio.new_event_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._closing: asyncio.Future[None] = self._loop.create_future()
        self._holder = self._loop.create_task(self._hold(opened))
        self._loop.run_until_complete(opened)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._closing.set_result(None)
        self._loop.run_until_complete(self._holder)
        self._loop.close()

    async def _hold(self, opened: "asyncio.Future[None]") -> None:
        # The same task must open and close the client, because the client has a task group.
        async with self._admin:
            opened.set_result(None)
            await self._closing

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine that uses the client, and returns its result."""
        return self._loop.run_until_complete(call)

    def send(self, request: Struct, destination: Destination = Role.ANY_BROKER) -> Any:
        """Sends the request and returns the response. The destination is any broker, the controller, or the id of a
        broker."""
        return self.run(self._admin.send(request, destination))

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Returns the metadata of all topics, or of the named topics. Never creates a topic."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response: MetadataResponse = self.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        return response

    def wait_until_known(self, broker_ids: Sequence[int]) -> None:
        """Waits until each of these brokers lists all of them. A broker reports that it runs as soon as it lists itself."""
        deadline = time.monotonic() + KNOWN_SECONDS_MAX
        for broker_id in broker_ids:
            while True:
                response: MetadataResponse = self.send(MetadataRequest(topics=[]), broker_id)
                known = {broker.node_id for broker in response.brokers}
                if known.issuperset(broker_ids):
                    break
                assert time.monotonic() < deadline, f"broker {broker_id} lists only {sorted(known)}"
                time.sleep(POLL_SECONDS)

    def brokers(self) -> dict[int, HostPort]:
        """Returns the unfenced brokers by id."""
        return {broker.node_id: HostPort(broker.host, broker.port) for broker in self.metadata([]).brokers}

    def log_dirs(self, broker_id: int) -> list[DescribeLogDirsResult]:
        """Returns the directories of a broker."""
        response: DescribeLogDirsResponse = self.send(DescribeLogDirsRequest(topics=None), broker_id)
        return response.results
