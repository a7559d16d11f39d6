"""How a broker gets blocks of producer ids: one request at a time, ahead of need, again after an error."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from broker.controller_link.producer_ids import RETRY_BACKOFF_NS, WAIT_NS, ProducerIds
from common.ids import BrokerEpoch, BrokerId
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.fake_controller import ControllerSide

SIZE = 10


class Ids:
    """A broker's ids, and a controller that allocates blocks of ten. While `error` is set, it answers with this error."""

    def __init__(self, side: ControllerSide) -> None:
        self.side = side
        self.world = side.world
        self.epoch: int | None = 7
        self.error = ErrorCode.NONE
        self.next_id = 0
        self.ids = ProducerIds(
            side.env,
            broker_id=BrokerId(1),
            broker_epoch=lambda: None if self.epoch is None else BrokerEpoch(self.epoch),
            channel=side.channel,
            task_group=side.group,
        )
        side.controller.answers[ApiKey.ALLOCATE_PRODUCER_IDS] = self.answer

    @property
    def requests(self) -> list[AllocateProducerIdsRequest]:
        return self.side.controller.requests

    def answer(self, _request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        if self.error is not ErrorCode.NONE:
            return AllocateProducerIdsResponse(error_code=self.error)
        first, self.next_id = self.next_id, self.next_id + SIZE
        return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=SIZE)

    async def take(self) -> int | None:
        """Returns an id, or None if the client is told to retry."""
        try:
            return await self.ids.take()
        except ApiError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return None

    async def take_many(self, count: int) -> list[int | None]:
        """Takes ids one after the other."""
        return [await self.take() for _ in range(count)]


def run(scenario: Callable[[Ids], Coroutine[Any, Any, None]], *, start: bool = True) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        async with ControllerSide(world, {ApiKey.ALLOCATE_PRODUCER_IDS: lambda _: None}, start=start) as side:
            await scenario(Ids(side))

    SimulatedWorld(seed=1).run(in_world)


def test_the_first_producers_wait_for_the_block() -> None:
    """However many producers come meanwhile, the controller gets one request, with the broker's epoch. Each producer gets an
    id of its own, and those beyond the block are told to retry."""

    async def scenario(ids: Ids) -> None:
        taken = await asyncio.gather(*(ids.take() for _ in range(SIZE + 2)))
        assert taken == [*range(SIZE), None, None]
        assert ids.requests[:1] == [AllocateProducerIdsRequest(broker_id=1, broker_epoch=7)]
        assert await ids.take() == SIZE
        assert len(ids.requests) == 2

    run(scenario)


def test_a_block_is_fetched_before_the_one_in_use_is_used_up() -> None:
    """The request goes out with the ninth of ten ids. No producer has to wait if the controller answers in time."""

    async def scenario(ids: Ids) -> None:
        assert await ids.take_many(8) == list(range(8))
        await ids.world.sleep(1)
        assert len(ids.requests) == 1
        assert await ids.take() == 8
        await ids.world.sleep(1)
        assert len(ids.requests) == 2
        before_ns = ids.side.env.now_ns()
        assert await ids.take_many(6) == list(range(9, 15))
        assert ids.side.env.now_ns() == before_ns
        assert len(ids.requests) == 2

    run(scenario)


def test_a_refused_request_is_repeated_after_a_while() -> None:
    """The broker was registered again, and the next request has the new epoch. The refusal is logged. Until the backoff has
    passed, producers are told to retry at once and cause no request."""

    async def scenario(ids: Ids) -> None:
        ids.error = ErrorCode.STALE_BROKER_EPOCH
        assert await ids.take() is None
        (event,) = ids.world.events_named("producer_ids_not_allocated")
        assert event.fields["reason"] == "STALE_BROKER_EPOCH"
        ids.error, ids.epoch = ErrorCode.NONE, 8
        assert await ids.take() is None
        await ids.world.sleep(RETRY_BACKOFF_NS / NS_PER_S)
        assert len(ids.requests) == 1
        assert await ids.take() == 0
        assert [request.broker_epoch for request in ids.requests] == [7, 8]

    run(scenario)


def test_a_senseless_block_is_not_used() -> None:
    """The controller sends a block a second time. The broker logs that, and asks again."""

    async def scenario(ids: Ids) -> None:
        assert await ids.take_many(8) == list(range(8))
        ids.next_id = 0
        assert await ids.take() == 8
        event = await ids.world.event("producer_ids_not_allocated")
        assert event.fields["reason"] == "the block from 0 begins below the end 10 of the block in use"
        await ids.world.sleep(1)
        assert await ids.take_many(2) == [9, 10]

    run(scenario)


def test_a_broker_without_an_epoch_asks_nobody() -> None:
    """The controller could only refuse the request."""

    async def scenario(ids: Ids) -> None:
        ids.epoch = None
        assert await ids.take() is None
        assert len(ids.world.events_named("producer_ids_not_allocated")) == 1
        ids.epoch = 7
        await ids.world.sleep(1)
        assert await ids.take() == 0
        assert len(ids.requests) == 1

    run(scenario)


def test_without_a_controller_producers_are_told_to_retry() -> None:
    """Each waits for a second and is told to retry then. The first that comes once the controller is there gets an id."""

    async def scenario(ids: Ids) -> None:
        for _ in range(3):
            before_ns = ids.side.env.now_ns()
            assert await ids.take() is None
            assert ids.side.env.now_ns() - before_ns == WAIT_NS
            await ids.world.sleep(30)
        ids.side.controller.start(ids.side.group)
        await ids.world.sleep(5)
        assert await ids.take() == 0

    run(scenario, start=False)
