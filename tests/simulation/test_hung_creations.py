"""Replicas that are placed on a broker while one of its disks hangs."""

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
