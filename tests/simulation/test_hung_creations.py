"""Replicas that are placed on a broker while one of its disks hangs."""

import asyncio

import pytest

from broker.hosting.partition import Partition
from common.ids import BrokerId
from common.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.test_hung_moves import BROKER, refusal

# The directory is suspected after 0.5 s and offline after 10 s.
PATIENCE_SECONDS = 1.0
# Four times the time after which it is suspected.
UNSTEADY_SECONDS = 2.0


def test_a_new_topic_is_not_placed_on_a_disk_that_is_suspected_of_hanging() -> None:
    """A client waits for a hung disk, so the broker suspects it. A topic created then gets its logs on the other disks, and
    can be written to at once. A disk that has thawed gets new replicas again, but not at once: it may hang again."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=3, replication_factor=1)
        for index in range(3):
            await client.produce("t", index, b"before")
        hung = cluster.disk_of_replica(BROKER, "t", 0)
        hung.hang()
        assert await refusal(client, 0) == "REQUEST_TIMED_OUT"
        began_ns = world.now_ns()
        await client.create_topic("new", partitions=6, replication_factor=1)
        for index in range(6):
            await client.produce("new", index, b"at once")
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        hung.thaw()
        await world.until(lambda: bool(world.events_named("log_dir_trusted")))
        await client.create_topic("newer", partitions=2, replication_factor=1)
        await world.sleep(UNSTEADY_SECONDS)
        await client.create_topic("newest", partitions=2, replication_factor=1)
        for topic in ("newer", "newest"):
            for index in range(2):
                await client.produce(topic, index, b"after")
                is_hung = cluster.disk_of_replica(BROKER, topic, index) is hung
                assert is_hung == (topic == "newest")

    run(scenario, brokers=1, disks=3, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
def test_a_producer_does_not_wait_for_a_follower_whose_log_is_being_created_on_a_hung_disk() -> None:
    """A topic is created before the follower suspects its disk. Once it does, the leader keeps no producer waiting, and
    neither does the next leader. When the disk goes on, the follower gets its log and replicates."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("busy", partitions=1)
        first, second, follower = cluster.partition("busy", 0).replicas
        hung = cluster.disk(follower, 1)
        hung.hang()
        async with asyncio.TaskGroup() as group:
            # Its append makes the disk suspected.
            group.create_task(client.produce("busy", 0, b"held"))
            replicas = CreatableReplicaAssignment(partition_index=0, broker_ids=[first, second, follower])
            topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[replicas])
            group.create_task(client.ask(first, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)))
            await world.until(lambda: is_led_by(cluster, first))
            await check_refused(cluster, client)
            cluster.crash(first)
            await world.until(lambda: is_led_by(cluster, second))
            await check_refused(cluster, client)
            cluster.start_node(first)
            hung.thaw()
        await client.produce("t", 0, b"after", within_seconds=5)
        await cluster.until_in_sync("t")

    run(scenario, disks=1, diskraft_log_dir_operation_timeout_ms="20000", diskraft_log_dir_sync_timeout_ms="20000")


def is_led_by(cluster: SimulatedCluster, broker_id: BrokerId) -> bool:
    """Whether the broker has learnt that it leads t-0."""
    broker = cluster.nodes[broker_id].broker
    found = None if broker is None else broker.replicas.find_named("t", 0)
    return isinstance(found, Partition) and found.is_leader


async def check_refused(cluster: SimulatedCluster, client: SimulatedClient) -> None:
    """Checks that producers to t-0 get an error at once, or once the disk is suspected."""
    began_ns = cluster.world.now_ns()
    assert await refusal(client, 0) in {"REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"}
    assert cluster.world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
    assert await refusal(client, 0) == "NOT_ENOUGH_REPLICAS"
