"""Moves between directories that wait for a turn while their broker ends."""

import asyncio

import pytest

from common.ids import BrokerId
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld

BROKER = BrokerId(1)
PARTITIONS = 3
# One move has the only thread, and its rate lets it copy nothing. The others wait.
ONE_AT_A_TIME = {
    "num.replica.alter.log.dirs.threads": "1",
    "replica.alter.log.dirs.io.max.bytes.per.second": "0",
}


@pytest.mark.slow
def test_a_turn_that_ends_with_its_broker_starts_no_other() -> None:
    """It used to: the task group refused the next turn, and its coroutine was never awaited, which is a warning."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2, overrides=ONE_AT_A_TIME)
        await cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic("t", partitions=PARTITIONS, replication_factor=1)
            for index in range(PARTITIONS):
                await client.produce("t", index, b"value")
                await client.move(BROKER, "t", index, cluster.other_disk(BROKER, "t", index))
            broker = cluster.nodes[BROKER].broker
            assert broker is not None
            moves = broker.replicas.moves
            await world.until(lambda: (len(moves._turns), len(moves._queue)) == (1, PARTITIONS - 1))
            cluster.crash(BROKER)
            client.close()

    SimulatedWorld(seed=1).run(scenario)
