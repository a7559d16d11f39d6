"""DeleteRecords while a disk that it waits for hangs."""

import asyncio

import pytest

from broker.hosting.partition import Partition
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.test_hung_moves import BROKER

# The directory is suspected after 0.5 s and offline after 2 s.
PATIENCE_SECONDS = 1.0


@pytest.mark.slow
def test_a_deletion_does_not_wait_for_a_follower_whose_disk_hangs() -> None:
    """The follower does not report the new log start. What waits for that is answered once the directory is suspected, and
    what comes later is answered at once. Once the disk goes on, records are deleted as ever."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=2)
        for _ in range(3):
            await client.produce("t", 0, b"before")
        follower = cluster.partition("t", 0).replicas[1]
        disk = cluster.disk_of_replica(follower, "t")
        disk.hang()
        # The follower does not fetch while it waits for this append.
        await client.produce("t", 0, b"held", acks=1)
        assert await deletion(cluster, client) == ErrorCode.REQUEST_TIMED_OUT
        assert await deletion(cluster, client, within_seconds=0.1) == ErrorCode.REQUEST_TIMED_OUT
        disk.thaw()
        async with cluster.world.node("client").timeout_at(cluster.world.now_ns() + 5 * NS_PER_S):
            while await deletion(cluster, client) != ErrorCode.NONE:
                await cluster.world.sleep(0.02)
        # What is deleted is not lost.
        client.acknowledged.clear()

    run(scenario, brokers=2, disks=2)


@pytest.mark.slow
def test_a_deletion_does_not_wait_for_the_hung_target_of_a_move() -> None:
    """The target hangs when the copy is about to get the partition's name, and the deletion is held back meanwhile."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=2, replication_factor=1)
        for _ in range(3):
            await client.produce("t", 0, b"before")
        target = cluster.disk_of_replica(BROKER, "t", 1)
        broker = cluster.nodes[1].broker
        assert broker is not None
        partition = broker.replicas.find_named("t", 0)
        assert isinstance(partition, Partition)
        target.hang({"rename"})
        await client.move(BROKER, "t", 0, target)
        await cluster.world.until(lambda: partition.is_swapping)
        target.hang()
        async with asyncio.TaskGroup() as group:
            # Its append makes the target suspected.
            group.create_task(client.produce("t", 1, b"on the target"))
            assert await deletion(cluster, client) == ErrorCode.REQUEST_TIMED_OUT
            assert await deletion(cluster, client, within_seconds=0.1) == ErrorCode.REQUEST_TIMED_OUT
            target.thaw()
        await cluster.world.until(lambda: not partition.is_swapping)
        assert await deletion(cluster, client) == ErrorCode.NONE
        client.acknowledged.clear()

    run(scenario, brokers=1, disks=2)


async def deletion(
    cluster: SimulatedCluster, client: SimulatedClient, *, within_seconds: float = PATIENCE_SECONDS
) -> ErrorCode:
    """Deletes the first two records. Returns the answer, which must come within this time."""
    partitions = [DeleteRecordsPartition(partition_index=0, offset=2)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=20_000)
    began_ns = cluster.world.now_ns()
    answer = await client.ask(cluster.partition("t", 0).leader, request)
    assert cluster.world.now_ns() - began_ns < within_seconds * NS_PER_S
    return ErrorCode(answer.topics[0].partitions[0].error_code)
