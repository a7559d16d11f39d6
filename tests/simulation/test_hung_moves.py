"""Moves between directories whose target hangs while it takes over."""

import asyncio

import pytest

from broker.hosting.partition import Partition
from common.ids import BrokerId
from common.time_units import NS_PER_S
from tests.simulation.cluster import NotAcknowledged, SimulatedClient, SimulatedCluster, run
from tests.simulation.disk import SimulatedDisk

BROKER = BrokerId(1)
# The directory is suspected after 0.5 s and offline after 2 s.
PATIENCE_SECONDS = 1.0


@pytest.mark.slow
def test_a_producer_does_not_wait_for_the_hung_target_of_a_move() -> None:
    """The target hangs when the copy is about to get the partition's name, and appends are held back meanwhile. What waits
    for that is answered once the target is suspected, and new records are refused, so that the client goes on with other
    partitions of the broker."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        partition, target = await swapping(cluster, client)
        other = cluster.disk_of_replica(BROKER, "t", 2)
        target.hang()
        began_ns = world.now_ns()
        async with asyncio.TaskGroup() as group:
            held = [group.create_task(refusal(client, index)) for index in (0, 1)]
            await world.sleep(0.01)
            # On the same connection, so its answer leaves after that of the request before.
            await client.produce("t", 2, b"meanwhile")
            assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
            assert [await each for each in held] == ["REQUEST_TIMED_OUT"] * 2
        assert partition.is_swapping
        assert await refusal(client, 0) == "KAFKA_STORAGE_ERROR"
        assert cluster.disk_of_replica(BROKER, "t", 2) is other
        target.thaw()
        await world.until(lambda: not partition.is_swapping)
        await client.produce("t", 0, b"after")

    run(scenario, brokers=1, disks=3)


@pytest.mark.slow
def test_a_producer_does_not_wait_for_the_target_of_a_move_that_hangs_unnoticed() -> None:
    """Nothing is written to the target but the name of the copy, so it is not suspected."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        partition, target = await swapping(cluster, client)
        began_ns = world.now_ns()
        assert await refusal(client, 0) == "REQUEST_TIMED_OUT"
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        assert partition.is_swapping
        assert not world.events_named("log_dir_suspected")
        assert await refusal(client, 0) == "KAFKA_STORAGE_ERROR"
        target.thaw()
        await world.until(lambda: not partition.is_swapping)
        await client.produce("t", 0, b"after")

    run(scenario, brokers=1, disks=3)


async def swapping(cluster: SimulatedCluster, client: SimulatedClient) -> tuple[Partition, SimulatedDisk]:
    """Returns a partition whose move is about to rename the copy, on a disk that hangs in renames. The disk has another
    partition, and a third one is elsewhere."""
    await client.create_topic("t", partitions=3, replication_factor=1)
    for index in range(3):
        await client.produce("t", index, b"before")
    target = cluster.disk_of_replica(BROKER, "t", 1)
    broker = cluster.nodes[BROKER].broker
    assert broker is not None
    partition = broker.replicas.find_named("t", 0)
    assert isinstance(partition, Partition)
    target.hang({"rename"})
    await client.move(BROKER, "t", 0, target)
    await cluster.world.until(lambda: partition.is_swapping)
    return partition, target


async def refusal(client: SimulatedClient, index: int) -> str:
    """Writes a record. Returns why it is not acknowledged, or an empty string if it is."""
    try:
        await client.produce_once("t", index, b"held")
    except NotAcknowledged as refused:
        return str(refused)
    return ""
