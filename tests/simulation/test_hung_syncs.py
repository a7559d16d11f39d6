"""A disk hangs while appends wait for their syncs (flush.messages), and the page cache still takes appends."""

import pytest

from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.disk import SimulatedDisk
from tests.simulation.log_dir import READS, SWEEPS, SYNCS
from tests.simulation.test_hung_moves import BROKER, refusal

# A directory is suspected when it has been silent for 0.5 s. It is silent from half of that on.
PATIENCE_SECONDS = 1


async def disks_of_two_partitions(cluster: SimulatedCluster, client: SimulatedClient) -> list[SimulatedDisk]:
    """Creates a topic with records that are synced. Returns the disks of its partitions."""
    await client.create_topic("t", partitions=2, replication_factor=1, flush_messages="1")
    for index in range(2):
        await client.produce("t", index, b"before")
    disks = [cluster.disk_of_replica(BROKER, "t", index) for index in range(2)]
    assert disks[0] is not disks[1]
    return disks


@pytest.mark.slow
def test_a_producer_waits_for_a_hung_sync_no_longer_than_for_a_hung_append() -> None:
    """The directory is suspected long before its probe fails. The next record is for another disk and gets through."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        hung, _ = await disks_of_two_partitions(cluster, client)
        hung.hang(SYNCS | SWEEPS | READS)
        began_ns = world.now_ns()
        assert await refusal(client, 0) == "REQUEST_TIMED_OUT"
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        assert await refusal(client, 0) == "KAFKA_STORAGE_ERROR"
        assert await refusal(client, 1) == ""
        assert [each.fields["log_dir"] for each in world.events_named("log_dir_suspected")] == [hung.path]
        hung.thaw()
        await world.until(lambda: bool(world.events_named("log_dir_trusted")))
        await client.produce("t", 0, b"after")

    run(scenario, brokers=1, disks=2, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
def test_a_disk_whose_syncs_take_long_is_not_suspected() -> None:
    """It is healthy and busy with something else, so what is read from it is read."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        busy, _ = await disks_of_two_partitions(cluster, client)
        busy.be_busy(round(1.5 * NS_PER_S))
        began_ns = world.now_ns()
        await client.produce("t", 0, b"slow")
        assert world.now_ns() - began_ns > NS_PER_S
        assert world.events_named("log_dir_suspected") == []

    run(scenario, brokers=1, disks=2, diskraft_log_dir_operation_timeout_ms="10000")
