"""Producer ids while nodes lose power: no two producers get the same id."""

import asyncio
import contextlib
import random

import pytest

from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.init_producer_id import InitProducerIdRequest
from common.time_units import NS_PER_S
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster, run
from tests.simulation.environment import SimulatedWorld
from tests.simulation.history import History

BLOCK_SIZE = 5


async def producer_id(client: SimulatedClient, broker_id: int) -> int | None:
    """Returns the id that the broker gives, or None if it gives none in time."""
    request = InitProducerIdRequest(transactional_id=None)
    with contextlib.suppress(ChannelError):
        response = await client.ask(broker_id, request, seconds=3)
        if response.error_code == ErrorCode.NONE:
            return int(response.producer_id)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return None


def test_the_first_producer_of_each_broker_gets_an_id_at_once() -> None:
    """It waits for the broker's first block. The next producers get the ids after it."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        ids = [await producer_id(client, broker_id) for broker_id in (1, 2, 1, 3, 2, 1)]
        assert ids == [0, 1000, 1, 2000, 1001, 2]
        assert cluster.state.next_producer_id == 3000

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_two_producers_have_the_same_id(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The power of the controller and of brokers is cut again and again, and metadata snapshots are frequent. The blocks are
    small, so brokers ask for new ones all the time. Once everything runs again, every broker has ids."""
    monkeypatch.setattr("controller.core.allocate_producer_ids.BLOCK_SIZE", BLOCK_SIZE)
    given: list[int] = []

    async def scenario(world: SimulatedWorld) -> None:
        rng = random.Random(f"{seed}/producer ids")
        cluster = SimulatedCluster(world, brokers=3, disks=2, overrides={"metadata.log.max.snapshot.interval.ms": "2000"})
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            for _ in range(8):
                victim = rng.choice((CONTROLLER_ID, CONTROLLER_ID, *cluster.broker_ids))
                asked = [
                    group.create_task(producer_id(client, broker_id))
                    for broker_id in cluster.broker_ids
                    for _ in range(rng.randrange(2 * BLOCK_SIZE))
                ]
                await world.sleep(rng.uniform(0, 0.1))
                cluster.power_cut(victim)
                await world.sleep(rng.uniform(0, 2))
                cluster.start_node(victim)
                given.extend([id_ for each in asked if (id_ := await each) is not None])
            await cluster.until_running()
            for broker_id in cluster.broker_ids:
                # The broker may have to find the controller again, and the client the broker.
                async with world.node("client").timeout_at(world.now_ns() + 30 * NS_PER_S):
                    while (id_ := await producer_id(client, broker_id)) is None:
                        await world.sleep(0.5)
                given.append(id_)
            await checkers.at_quiescence()
            client.close()
        checkers.stop()
        assert cluster.state.next_producer_id > max(given)

    world = SimulatedWorld(seed)
    world.run(scenario)
    assert len(set(given)) == len(given) > 50
    assert len(world.events_named("producer_ids_allocated")) > 10
