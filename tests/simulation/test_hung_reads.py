"""Disks that hang while their page cache still takes appends, as it does for a while, or still has what is read."""

import asyncio
import contextlib

import pytest

from common.protocol.errors import ErrorCode
from common.protocol.messages.list_offsets import (
    CONSUMER_REPLICA_ID,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from common.time_units import NS_PER_S
from tests.simulation.cluster import NotAcknowledged, SimulatedClient, SimulatedCluster, run
from tests.simulation.test_hung_moves import BROKER, refusal

# The directory is suspected after 0.5 s and offline after 10 s.
PATIENCE_SECONDS = 1.0


@pytest.mark.slow
def test_a_search_by_time_does_not_wait_for_a_disk_that_still_takes_appends() -> None:
    """The answer for a partition on a healthy disk comes once the directory is suspected, although a producer writes to
    another log there all the time."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        hung, written, healthy = await partitions(cluster, client)
        disk = cluster.disk_of_replica(BROKER, "t", hung)
        disk.hang({"read"})
        async with asyncio.TaskGroup() as group:
            producer = SimulatedClient(cluster, group)
            writing = group.create_task(write_all_the_time(cluster, producer, written))
            began_ns = world.now_ns()
            assert await errors(client, hung, healthy) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
            assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
            assert not writing.done()
            assert len(producer.acknowledged["t", written]) > 10
            disk.thaw()
            await world.until(lambda: bool(world.events_named("log_dir_trusted")))
            assert await errors(client, hung, healthy) == [ErrorCode.NONE, ErrorCode.NONE]
            writing.cancel()
            producer.close()

    run(scenario, brokers=1, disks=2, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
def test_a_producer_does_not_wait_for_a_disk_whose_cached_records_are_read() -> None:
    """A consumer reads all the time what is in memory. Records for other disks are acknowledged on the same connection."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        hung, read, healthy = await partitions(cluster, client)
        disk = cluster.disk_of_replica(BROKER, "t", hung)
        disk.hang({"append"})
        async with asyncio.TaskGroup() as group:
            consumer = SimulatedClient(cluster, group)
            reading = group.create_task(search_all_the_time(cluster, consumer, read))
            began_ns = world.now_ns()
            held = group.create_task(refusal(client, hung))
            await world.sleep(0.01)
            await client.produce("t", healthy, b"meanwhile")
            assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
            assert await held == "REQUEST_TIMED_OUT"
            disk.thaw()
            await client.produce("t", hung, b"after")
            reading.cancel()
            consumer.close()

    run(scenario, brokers=1, disks=2, diskraft_log_dir_operation_timeout_ms="10000")


async def partitions(cluster: SimulatedCluster, client: SimulatedClient) -> tuple[int, int, int]:
    """Creates a topic with records. Returns two of its partitions on the same disk, and one on another disk."""
    await client.create_topic("t", partitions=4, replication_factor=1)
    for index in range(4):
        await client.produce("t", index, b"before")
    on = [cluster.disk_of_replica(BROKER, "t", index) for index in range(4)]
    other = next(index for index in range(1, 4) if on[index] is on[0])
    return 0, other, next(index for index in range(4) if on[index] is not on[0])


async def search_all_the_time(cluster: SimulatedCluster, consumer: SimulatedClient, index: int) -> None:
    while True:
        await errors(consumer, index)
        await cluster.world.sleep(0.01)


async def write_all_the_time(cluster: SimulatedCluster, producer: SimulatedClient, index: int) -> None:
    while True:
        # It is refused while the directory is suspected.
        with contextlib.suppress(NotAcknowledged):
            await producer.produce_once("t", index, b"meanwhile")
        await cluster.world.sleep(0.01)


async def errors(client: SimulatedClient, *indexes: int) -> list[int]:
    """Searches each of these partitions by time. Returns the errors."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=0) for index in indexes]
    topic = ListOffsetsTopic(name="t", partitions=partitions)
    answer = await client.ask(BROKER, ListOffsetsRequest(replica_id=CONSUMER_REPLICA_ID, topics=[topic]))
    return [each.error_code for each in answer.topics[0].partitions]
