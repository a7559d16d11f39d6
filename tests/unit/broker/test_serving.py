"""Requests are held back at startup, and after the broker's process was stopped until its session had ended."""

import asyncio
from dataclasses import replace

from broker.serving import Serving
from common.net.request_context import RequestContext
from common.protocol.api_keys import ApiKey
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.unit.broker.requests.contexts import context


class Broker:
    """A Serving on a node, and a handler that records each request. `catch_up` returns when the test completes its future in
    `catching_up`."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.catching_up: list[asyncio.Future[None]] = []
        self.answered: list[object] = []

    async def main(self, env: SimulatedEnvironment) -> None:
        async with asyncio.TaskGroup() as group:
            self.serving = Serving(env, session_timeout_ns=3 * NS_PER_S, catch_up=self._catch_up, task_group=group)
            self._handle = self.serving.when_serving(self._note)
            self.group = group
            await asyncio.get_running_loop().create_future()

    def ask(self, request: object) -> "asyncio.Future[None]":
        """Hands in a request. Returns the future that ends its connection."""
        client_gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer = self._handle(replace(context(ApiKey.FETCH, 17), client_gone=client_gone), request)
        if asyncio.iscoroutine(answer):
            self.group.create_task(answer).add_done_callback(lambda _: self.answered.append(request))
        return client_gone

    def _note(self, context: RequestContext, request: object) -> None:
        self.seen.append(request)

    async def _catch_up(self) -> None:
        self.catching_up.append(asyncio.get_running_loop().create_future())
        await self.catching_up[-1]


def test_requests_wait_for_the_start_and_keep_their_order() -> None:
    """A request that arrives just as the waiting requests are released does not overtake them."""

    async def scenario(world: SimulatedWorld) -> None:
        broker = Broker()
        env = world.start("b", broker.main)
        await world.sleep(1)
        env.enter(broker.ask, 1)
        env.enter(broker.ask, 2)
        await world.sleep(1)
        assert broker.seen == []
        env.enter(broker.serving.begin)
        env.enter(broker.ask, 3)
        await world.sleep(1)
        env.enter(broker.ask, 4)
        assert broker.seen == [1, 2, 3, 4]

    SimulatedWorld(1).run(scenario)


def test_a_request_whose_client_has_gone_waits_no_longer() -> None:
    """A broker that finds no controller for hours must not collect the retries of all its clients."""

    async def scenario(world: SimulatedWorld) -> None:
        broker = Broker()
        env = world.start("b", broker.main)
        await world.sleep(1)
        gone = env.enter(broker.ask, 1)
        env.enter(broker.ask, 2)
        gone.set_result(None)
        await world.sleep(1)
        assert broker.answered == [1]
        env.enter(broker.serving.begin)
        await world.sleep(1)
        assert (broker.seen, broker.answered) == ([2], [1, 2])

    SimulatedWorld(1).run(scenario)


def test_requests_wait_after_a_stop_until_the_broker_has_caught_up() -> None:
    """After the process was stopped, the next request may be handled before or after the next timer fires, depending on the
    seed. The request waits in both cases. A second stop makes it wait until the broker has caught up again."""

    async def scenario(world: SimulatedWorld) -> None:
        broker = Broker()
        env = world.start("b", broker.main)
        await world.sleep(1)
        env.enter(broker.serving.begin)
        broker.serving.renew(world.now_ns())
        env.enter(broker.ask, 1)
        world.pause("b")
        await world.sleep(10)
        world.resume("b")
        env.enter(broker.ask, 2)
        await world.sleep(1)
        assert broker.seen == [1]
        world.pause("b")
        await world.sleep(10)
        broker.catching_up[0].set_result(None)
        world.resume("b")
        await world.sleep(1)
        assert (broker.seen, len(broker.catching_up)) == ([1], 2)
        broker.catching_up[1].set_result(None)
        await world.sleep(1)
        assert broker.seen == [1, 2]
        assert len(world.events_named("broker_was_stopped")) == 1

    for seed in range(4):
        SimulatedWorld(seed).run(scenario)
