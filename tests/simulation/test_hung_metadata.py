"""The disk of a broker's metadata log hangs for less than the deadline of its operations. Its other disks are healthy."""

import pytest

from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.small_slices import slices_of

PARTITIONS = 6


@pytest.mark.parametrize("slice_size", [None, 1])
def test_a_broker_whose_metadata_disk_hangs_takes_leaderships_over(slice_size: int | None) -> None:
    """Another broker shuts down, and some of its partitions get their leader on the broker whose metadata log is stuck. They
    go on at once, also if they are too many for one step. The shutdown does not wait for the disk either."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=PARTITIONS, min_insync_replicas="2")
        for index in range(PARTITIONS):
            await client.produce("t", index, b"before")
        hung = world.disk("/b2/metadata")
        hung.hang()
        # The log is stuck before the leaders change.
        await world.until(lambda: bool(hung.stalled))
        began_ns = world.now_ns()
        cluster.ask_to_stop(1)
        await world.until(lambda: all(part.leader != 1 for part in cluster.partitions("t").values()))
        moved = [index for index, part in cluster.partitions("t").items() if part.leader == 2]
        for index in range(PARTITIONS):
            await client.produce("t", index, b"after")
        await client.create_topic("new", partitions=3, replication_factor=2)
        for index in range(3):
            await client.produce("new", index, b"at once")
        await world.until(lambda: cluster.env(1).is_dead)
        assert world.now_ns() - began_ns < 2 * NS_PER_S
        assert moved
        hung.thaw()
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        await cluster.until_in_sync("new")
        assert not cluster.env(2).is_dead
        assert not world.events_named("log_dir_offline")

    with slices_of(slice_size):
        run(scenario, diskraft_log_dir_operation_timeout_ms="10000")
