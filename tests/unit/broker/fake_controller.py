"""A scripted controller on a simulated node, and a broker's channel to it.

`FakeController` is a RequestServer whose handlers record every request and call the test's function for the answer.
`ControllerSide` starts one or more of them and opens the real ControllerChannel from a broker's node to them. Its TaskGroup
may be used by the tests, too.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from broker.controller_link.controller_channel import ControllerChannel
from common.configuration.endpoints import HostPort
from common.net.node_channel import NodeChannel
from common.net.request_context import Handler, RequestContext
from common.net.request_server import RequestServer
from common.protocol.api_keys import ApiKey
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld

PORT = 9093
ATTEMPT_NS = 2 * NS_PER_S
BACKOFF_NS = 20 * NS_PER_MS

# Returns the response or an awaitable of it, or raises ApiError.
Answer = Callable[[Any], Any]


class FakeController:
    """One controller node. `answers` may change at any time. `requests` and `contexts` record what arrived."""

    def __init__(self, world: SimulatedWorld, name: str, answers: Mapping[ApiKey, Answer]) -> None:
        self.name = name
        self.answers = dict(answers)
        self.requests: list[Any] = []
        self.contexts: list[RequestContext] = []
        self._world = world
        self._server: RequestServer | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        self._server = RequestServer(
            self._world.node(self.name),
            listener_name="CONTROLLER",
            host="",
            port=PORT,
            handlers={key: self._handler(key) for key in self.answers},
            max_request_bytes=1 << 20,
            task_group=group,
        )
        self._server.start()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def connection_count(self) -> int:
        return 0 if self._server is None else self._server.connection_count

    def sizes(self, api_key: ApiKey) -> list[int]:
        """Returns the size of each request of this API, in bytes on the wire."""
        return [len(context.request_bytes) for context in self.contexts if context.api_key is api_key]

    def _handler(self, api_key: ApiKey) -> Handler:
        def handle(context: RequestContext, request: Any) -> Any:
            self.requests.append(request)
            self.contexts.append(context)
            return self.answers[api_key](request)

        return handle


class ControllerSide:
    """Controllers named `controller-<id>` and a broker with a channel to them. Leaving the `async with` block closes
    everything."""

    def __init__(
        self, world: SimulatedWorld, answers: Mapping[ApiKey, Answer], *, voters: int = 1, start: bool = True
    ) -> None:
        self.world = world
        self.controllers = {id_: FakeController(world, f"controller-{id_}", answers) for id_ in range(100, 100 + voters)}
        self.leader_id: int | None = 100
        self.group = asyncio.TaskGroup()
        self._start = start

    @property
    def controller(self) -> FakeController:
        return self.controllers[100]

    @property
    def env(self) -> SimulatedEnvironment:
        return self.world.node("broker-1")

    async def __aenter__(self) -> "ControllerSide":
        await self.group.__aenter__()
        for controller in self.controllers.values() if self._start else ():
            controller.start(self.group)
        self.channel = ControllerChannel(
            self.env,
            servers=[HostPort(controller.name, PORT) for controller in self.controllers.values()],
            leader=self._leader,
            open_channel=lambda host, port: NodeChannel(
                self.env, host=host, port=port, client_id="broker-1", task_group=self.group
            ),
            retry_backoff_ns=BACKOFF_NS,
            attempt_timeout_ns=ATTEMPT_NS,
        )
        return self

    def _leader(self) -> HostPort | None:
        leader = None if self.leader_id is None else self.controllers.get(self.leader_id)
        return None if leader is None else HostPort(leader.name, PORT)

    async def __aexit__(self, *error: Any) -> None:
        self.channel.close()
        for controller in self.controllers.values():
            controller.close()
        await self.group.__aexit__(*error)

    def deadline_ns(self, seconds: float) -> int:
        return self.env.now_ns() + round(seconds * NS_PER_S)
