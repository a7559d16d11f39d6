"""Moves between directories, and new topics, while another disk of the broker hangs. What does not need it goes on."""

import asyncio

import pytest

from broker.hosting.partition import Partition
from broker.hosting.replicas import Replicas
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.disk import SimulatedDisk
from tests.simulation.test_hung_moves import BROKER

# As in production. A hung directory is suspected after at most 1.25 s, because it is looked at every 0.25 s.
PATIENCE_SECONDS = 2.0
SUSPECT_MS, TIMEOUT_MS = "1000", "10000"


@pytest.mark.slow
@pytest.mark.parametrize("hung", ["source", "target"])
def test_a_move_between_healthy_disks_gets_a_turn(hung: str) -> None:
    """The only thread has a move that waits for a hung disk. Once the disk is suspected, others get a turn. The move itself
    goes on when the disk does."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await create(client, partitions=4)
        a, b, c = (cluster.disk_of_replica(BROKER, "t", index) for index in range(3))
        other = next(disk for number in range(1, 5) if (disk := cluster.disk(1, number)) not in (a, b, c))
        await client.move(BROKER, "t", 0, b)
        await world.until(lambda: has_copy(cluster, 0))
        disk, index = (a, 0) if hung == "source" else (b, 1)
        disk.hang()
        began_ns = world.now_ns()
        async with asyncio.TaskGroup() as group:
            # A disk is suspected only while a client waits for it.
            group.create_task(client.produce("t", index, b"another"))
            await client.move(BROKER, "t", 2, other)
            await world.until(lambda: has_moved(cluster, 2, other))
            took_ns = world.now_ns() - began_ns
            has_waited = not has_moved(cluster, 0, b)
            disk.thaw()
        assert has_waited
        assert took_ns < PATIENCE_SECONDS * NS_PER_S
        await world.until(lambda: has_moved(cluster, 0, b))

    run(
        scenario,
        brokers=1,
        disks=4,
        num_replica_alter_log_dirs_threads="1",
        diskraft_log_dir_suspect_ms=SUSPECT_MS,
        diskraft_log_dir_operation_timeout_ms=TIMEOUT_MS,
    )


@pytest.mark.slow
def test_a_new_topic_does_not_wait_for_the_hung_source_of_a_move() -> None:
    """A move begins from a disk that hangs. The logs of new topics are created in its target at once."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await create(client, partitions=2)
        source, target = (cluster.disk_of_replica(BROKER, "t", index) for index in range(2))
        for _ in range(9):
            await client.produce("t", 0, bytes(5_000))
        # Afterwards the broker has to read where the log's first batch begins.
        cluster.ask_to_stop(1)
        await world.until(lambda: cluster.env(1).is_dead)
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        source.hang()
        began_ns = world.now_ns()
        await client.move(BROKER, "t", 0, target)
        topic = CreatableTopic(name="new", num_partitions=4, replication_factor=1)
        await client.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        await world.until(lambda: any(folder.startswith("new-") for folder in folders(cluster, target)))
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        source.thaw()
        await world.until(lambda: has_moved(cluster, 0, target))

    run(
        scenario,
        brokers=1,
        disks=2,
        diskraft_log_dir_suspect_ms=SUSPECT_MS,
        diskraft_log_dir_operation_timeout_ms=TIMEOUT_MS,
    )


async def create(client: SimulatedClient, partitions: int) -> None:
    await client.create_topic("t", partitions=partitions, replication_factor=1)
    for index in range(partitions):
        await client.produce("t", index, b"value")


def replicas_of(cluster: SimulatedCluster) -> Replicas:
    broker = cluster.nodes[BROKER].broker
    assert broker is not None
    return broker.replicas


def has_copy(cluster: SimulatedCluster, index: int) -> bool:
    partition = replicas_of(cluster).find_named("t", index)
    return isinstance(partition, Partition) and partition.future is not None


def has_moved(cluster: SimulatedCluster, index: int, target: SimulatedDisk) -> bool:
    """Whether the broker serves this replica of t from this disk."""
    return f"t-{index}" in folders(cluster, target)


def folders(cluster: SimulatedCluster, disk: SimulatedDisk) -> list[str]:
    """Returns the names of the logs that the broker serves from this disk."""
    hosted = replicas_of(cluster).hosted_directories()
    topics = replicas_of(cluster).state.topics
    return [
        f"{topics[key.topic_id].name}-{key.partition}"
        for key, directory_id in hosted.items()
        if cluster.disk_of(BROKER, directory_id) is disk
    ]
