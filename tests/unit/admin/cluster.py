"""A cluster of fake brokers with scripted answers, and an AdminClient for it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from admin.client import AdminClient
from admin.config import AdminConfig
from common.net.request_context import RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.unit.common.net.worlds import HOST, Server, World

Answer = Callable[[Any], Any]

# The timeouts are short, so that tests of failures finish quickly even on real sockets.
QUICK = AdminConfig(
    default_api_timeout_ms=2_000, request_timeout_ms=150, retry_backoff_ms=5, retry_backoff_max_ms=20, client_id="test"
)


class FakeBroker:
    """A broker that answers from the table `answers`. `asked` records the requests, except Metadata requests for no
    topics."""

    def __init__(self, cluster: "FakeCluster", broker_id: int) -> None:
        self.broker_id = broker_id
        self.asked: list[Any] = []
        self._cluster = cluster
        self.answers: dict[ApiKey, Answer] = {}
        self.server: Server | None = None

    async def start(self, stack: AsyncExitStack, world: World, port: int = 0, **options: Any) -> None:
        keys = [ApiKey.METADATA, *self.answers]
        self.server = await stack.enter_async_context(Server(world, dict.fromkeys(keys, self._handle), port=port, **options))

    @property
    def address(self) -> str:
        assert self.server is not None
        return f"{HOST}:{self.server.port}"

    def drop_connections(self) -> None:
        assert self.server is not None
        for connection in list(self.server.server._connections):
            connection.close()

    async def _handle(self, context: RequestContext, request: Any) -> Any:
        if isinstance(request, MetadataRequest) and request.topics == []:
            return self._cluster.metadata()
        self.asked.append(request)
        answer = self.answers[context.api_key](request)
        return await answer if asyncio.isfuture(answer) else answer


class FakeCluster:
    """Brokers 1 to n, each with its own answers. Broker 1 is the controller. The metadata omits the brokers in `hidden`."""

    def __init__(self, world: World, answers: Sequence[Mapping[ApiKey, Answer]], **options: Any) -> None:
        self.world = world
        self.brokers = {number: FakeBroker(self, number) for number in range(1, len(answers) + 1)}
        for broker, given in zip(self.brokers.values(), answers, strict=True):
            broker.answers.update(given)
        self.controller_id = 1
        self.hidden: set[int] = set()
        self.metadata_requests = 0
        self._options = options
        self._stack = AsyncExitStack()
        self._silent: list[asyncio.Future[None]] = []

    def __getitem__(self, broker_id: int) -> FakeBroker:
        return self.brokers[broker_id]

    async def __aenter__(self) -> "FakeCluster":
        for broker in self.brokers.values():
            await broker.start(self._stack, self.world, **self._options)
        return self

    async def __aexit__(self, *_error: object) -> None:
        for silent in self._silent:
            if not silent.done():
                silent.set_result(None)
        await self._stack.aclose()

    def no_answer(self, _request: Any) -> "asyncio.Future[None]":
        """Returns a future that never completes, for a request that gets no answer."""
        self._silent.append(asyncio.get_running_loop().create_future())
        return self._silent[-1]

    def metadata(self) -> MetadataResponse:
        self.metadata_requests += 1
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=id_, host=HOST, port=broker.server.port)
                for id_, broker in self.brokers.items()
                if id_ not in self.hidden and broker.server is not None
            ],
            cluster_id="the-cluster",
            controller_id=self.controller_id,
        )

    def admin(self, *bootstrap: str, config: AdminConfig = QUICK) -> AdminClient:
        """Returns a client with these bootstrap addresses, or with broker 1's address if none are given."""
        return AdminClient(list(bootstrap) or [self[1].address], config=config, env=self.world.node("client"))


def unused_address(world: World) -> str:
    """Returns an address where nothing listens."""

    def accept(_connection: Any) -> Any:
        raise AssertionError("the listener is closed")

    listener = world.node("server").listen(HOST, 0, accept)
    listener.close()
    return f"{HOST}:{listener.port}"
