"""The AdminClient for tests and benchmarks that block: the integration tests watch daemons of other processes and poll them.

The client lives in a task of its own loop, and the loop runs only during a call. Connections that the brokers close between
two calls are therefore noticed by the next call, which reconnects.
"""

import asyncio
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


class BlockingAdmin:
    """Use it in a with statement. All errors are AdminErrors."""

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
        # One task opens and closes the client, because a task group belongs to one task.
        async with self._admin:
            opened.set_result(None)
            await self._closing

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine of the client, or one that uses the client, and returns its result."""
        return self._loop.run_until_complete(call)

    def send(self, request: Struct, destination: Destination = Role.ANY_BROKER) -> Any:
        """Returns the response of any broker, of the controller, or of the broker with this id."""
        return self.run(self._admin.send(request, destination))

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Returns the metadata of all topics, or of those named. Never creates a topic."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response: MetadataResponse = self.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        return response

    def brokers(self) -> dict[int, HostPort]:
        """Returns the unfenced brokers by id."""
        return {broker.node_id: HostPort(broker.host, broker.port) for broker in self.metadata([]).brokers}

    def log_dirs(self, broker_id: int) -> list[DescribeLogDirsResult]:
        """Returns the directories of a broker."""
        response: DescribeLogDirsResponse = self.send(DescribeLogDirsRequest(topics=None), broker_id)
        return response.results
