"""A broker that comes back is unfenced once its replicas are where the metadata says; nothing else keeps it fenced."""

import asyncio

from common.ids import BrokerId
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld


def test_replicas_that_are_created_anew_where_they_are_assigned_do_not_keep_a_broker_fenced() -> None:
    """The broker is outside the ISR and its logs are gone from healthy disks. They are created again in the directories that
    the metadata names. So there is nothing to assign, and the broker must not wait for a record about them."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=2)
        await cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic("t", partitions=4, min_insync_replicas="1")
            cluster.crash(1)
            await world.until(lambda: all(BrokerId(1) not in part.isr for part in cluster.partitions("t").values()))
            for number in (1, 2):
                disk = cluster.disk(1, number)
                for folder in disk.folders():
                    disk.delete(folder)
            cluster.start_node(1)
            await cluster.until_running(within_seconds=20)
            await cluster.until_in_sync("t")
            client.close()

    SimulatedWorld(seed=3).run(scenario)
