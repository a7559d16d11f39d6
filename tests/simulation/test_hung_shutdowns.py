"""Brokers that are asked to end while a disk hangs."""

import pytest

from broker.hosting.partition import Partition
from common.protocol.errors import ErrorCode
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.records.record import Record, encode_batch
from common.storage.names import CLEAN_SHUTDOWN_FILE
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.cluster import Scenario, SimulatedClient, SimulatedCluster
from tests.simulation.cluster import run as run_cluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.test_hung_moves import BROKER

# The directories that nothing holds up are closed long before the hung one is given up.
CLOSING_SECONDS = 0.5
DEADLINE_SECONDS = 10


def run(scenario: Scenario) -> None:
    """Runs a scenario on one broker with three disks and a deadline as long as by default."""
    run_cluster(
        scenario,
        brokers=1,
        diskraft_log_dir_operation_timeout_ms=str(DEADLINE_SECONDS * 1000),
        log_cleaner_backoff_ms="300",
    )


async def assert_closed_at_once(cluster: SimulatedCluster, healthy: SimulatedDisk) -> None:
    """Asks the broker to end. The healthy directory must be closed cleanly at once, although the process goes on until it
    gives the hung one up."""
    world = cluster.world
    cluster.ask_to_stop(1)
    await world.until(lambda: CLEAN_SHUTDOWN_FILE in healthy.files(), within_seconds=CLOSING_SECONDS)
    assert not cluster.env(1).is_dead
    began_ns = world.now_ns()
    await world.until(lambda: cluster.env(1).is_dead)
    assert world.now_ns() - began_ns < (DEADLINE_SECONDS + 2) * NS_PER_S


async def create(client: SimulatedClient) -> None:
    """Creates a topic with one partition on each disk."""
    await client.create_topic("t", partitions=3, replication_factor=1)
    for index in range(3):
        await client.produce("t", index, b"before")


@pytest.mark.parametrize("hung", [0, 1], ids=["source", "target"])
def test_a_move_that_waits_for_a_hung_disk_does_not_hold_up_the_other_directories(hung: int) -> None:
    """A process that is killed soon after SIGTERM has closed all directories but those of the move: the next start recovers
    no other log."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await create(client)
        disks = [cluster.disk_of_replica(BROKER, "t", index) for index in range(3)]
        disks[hung].hang({"read", "append"})
        await client.move(BROKER, "t", 0, disks[1])
        await cluster.world.sleep(0.3)
        await assert_closed_at_once(cluster, healthy=disks[2])
        assert CLEAN_SHUTDOWN_FILE not in disks[hung].files()
        disks[hung].thaw()
        cluster.start_node(1)
        await cluster.until_running()

    run(scenario)


def test_a_compaction_that_waits_for_a_hung_disk_does_not_hold_up_the_other_directories() -> None:
    """As for a move."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await create(client)
        configs = {"cleanup_policy": "compact", "segment_bytes": "300", "min_cleanable_dirty_ratio": "0.01"}
        await client.create_topic("compacted", partitions=1, replication_factor=1, **configs)
        hung = cluster.disk_of_replica(BROKER, "compacted")
        healthy = cluster.other_disk(BROKER, "compacted")
        hung.hang({"read"})
        for _ in range(10):
            await produce_with_key(cluster, client)
        await cluster.world.until(lambda: bool(hung.stalled))
        await assert_closed_at_once(cluster, healthy)
        hung.thaw()
        cluster.start_node(1)
        await cluster.until_running()

    run(scenario)


async def produce_with_key(cluster: SimulatedCluster, client: SimulatedClient) -> None:
    batch = encode_batch([Record(key=b"k", value=bytes(100), timestamp_ms=cluster.world.now_ns() // NS_PER_MS)])
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    topic = TopicProduceData(name="compacted", topic_id=cluster.topic_id("compacted"), partition_data=data)
    response = await client.ask(1, ProduceRequest(acks=-1, timeout_ms=2_000, topic_data=[topic]))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.slow
@pytest.mark.parametrize("thaws", [True, False])
def test_a_broker_that_ends_while_the_target_of_a_swap_hangs(thaws: bool) -> None:
    """The old log already has another name. If the disk thaws in time, the swap goes on to its end. Otherwise it is undone,
    although the disk may carry out the second rename later. The third directory waits for neither, and the next start finds
    every record."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await create(client)
        source, target, other = (cluster.disk_of_replica(BROKER, "t", index) for index in range(3))
        broker = cluster.nodes[1].broker
        assert broker is not None
        partition = broker.replicas.find_named("t", 0)
        assert isinstance(partition, Partition)
        target.hang({"rename"})
        await client.move(BROKER, "t", 0, target)
        await world.until(lambda: partition.is_swapping and bool(target.stalled))
        cluster.ask_to_stop(1)
        await world.until(lambda: CLEAN_SHUTDOWN_FILE in other.files(), within_seconds=CLOSING_SECONDS)
        assert CLEAN_SHUTDOWN_FILE not in source.files()
        if thaws:
            target.thaw()
        await world.until(lambda: cluster.env(1).is_dead)
        assert CLEAN_SHUTDOWN_FILE in source.files()
        assert (CLEAN_SHUTDOWN_FILE in target.files()) == thaws
        target.thaw()
        await world.sleep(0.1)
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        assert cluster.disk_of_replica(BROKER, "t", 0) is target or not thaws

    run(scenario)


def test_a_broker_that_ends_while_it_loads_waits_for_its_hung_disks_at_the_same_time() -> None:
    """Two disks hang while their logs are loaded. Nothing has to be written to any disk."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await create(client)
        cluster.ask_to_stop(1)
        await world.until(lambda: cluster.env(1).is_dead)
        hung = [cluster.disk(1, number) for number in (2, 3)]
        for disk in hung:
            disk.hang({"list"})
        cluster.start_node(1)
        await world.until(lambda: all(disk.stalled for disk in hung))
        for disk in hung:
            disk.hang()
        began_ns = world.now_ns()
        cluster.ask_to_stop(1)
        await world.until(lambda: cluster.env(1).is_dead)
        assert world.now_ns() - began_ns < (DEADLINE_SECONDS + 2) * NS_PER_S
        for disk in hung:
            disk.thaw()
        await world.sleep(0.1)
        cluster.start_node(1)
        await cluster.until_running()

    run(scenario)
