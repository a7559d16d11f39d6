"""The AdminClient against whole clusters of production daemons, with healthy and with failing disks and brokers."""

import errno

import pytest

from admin.client import AdminClient
from admin.configs import ConfigResource, ConfigSource, ResourceType
from admin.errors import AdminError, RequestFailed, TimedOut
from admin.log_dirs import LogDirInfo, ReplicaLogDirInfo
from admin.partitions import TopicPartition, TopicPartitionReplica
from admin.topics import NewTopic
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS
from tests.simulation.cluster import BROKER_PORT, SimulatedClient, SimulatedCluster, run


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    """Returns a client that knows brokers 1 and 2."""
    return AdminClient([f"broker-{id_}:{BROKER_PORT}" for id_ in (1, 2)], env=cluster.world.node("admin"))


def test_a_topic_from_creation_to_deletion() -> None:
    """Each call sees the effect of the previous call. The client reports each replica in the directory that has it on
    disk."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        async with admin_of(cluster) as admin:
            created = await admin.create_topics([NewTopic("t", 4, 2, configs={"min.insync.replicas": "2"})])["t"]
            assert (created.num_partitions, created.replication_factor) == (4, 2)
            with pytest.raises(RequestFailed) as caught:
                await admin.create_topics([NewTopic("t")]).all()
            assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            await cluster.until_in_sync("t")
            assert (await admin.describe_cluster()).broker_ids == [1, 2, 3]
            topic = await admin.describe_topics(["t"])["t"]
            assert (topic.topic_id, len(topic.partitions)) == (created.topic_id, 4)
            resource = ConfigResource(ResourceType.TOPIC, "t")
            entry = (await admin.describe_configs([resource])[resource])["min.insync.replicas"]
            assert (entry.value, entry.source) == ("2", ConfigSource.DYNAMIC_TOPIC_CONFIG)
            asked = [TopicPartitionReplica("t", part.partition, id_) for part in topic.partitions for id_ in part.replicas]
            places = await admin.describe_replica_log_dirs(asked).all()
            for replica, place in places.items():
                path = place.current_log_dir
                assert path is not None
                assert f"t-{replica.partition}/partition.metadata" in cluster.world.disk(path).files()
                assert place == ReplicaLogDirInfo(path, 0)
            await admin.delete_topics([created.topic_id]).all()
            assert await admin.list_topics() == []

    run(scenario)


def test_a_hung_disk_does_not_hold_up_the_answer_about_it() -> None:
    """DescribeLogDirs answers from memory. It shows the last known sizes while the disk hangs, and an error once the broker
    has taken the directory offline. The broker's other disks are described in both cases."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        async with admin_of(cluster) as admin:

            async def described() -> dict[str, LogDirInfo]:
                asked_ns = cluster.world.now_ns()
                found = await admin.describe_log_dirs([1])[1]
                assert cluster.world.now_ns() - asked_ns < 100 * NS_PER_MS
                return found

            before = await described()
            assert all(info.is_online and info.total_bytes and info.usable_bytes for info in before.values())
            assert sum(len(info.replica_infos) for info in before.values()) == 6
            cluster.disk(1, 2).hang()
            assert await described() == before
            await cluster.world.event("log_dir_offline", node="broker-1")
            after = await described()
            assert after["/b1/d2"] == LogDirInfo(ErrorCode.KAFKA_STORAGE_ERROR, {}, None, None)
            for path in ("/b1/d1", "/b1/d3"):
                assert after[path].is_online
                assert after[path].replica_infos == before[path].replica_infos
            lost = next(iter(before["/b1/d2"].replica_infos))
            replica = TopicPartitionReplica(lost.topic, lost.partition, 1)
            assert await admin.describe_replica_log_dirs([replica])[replica] == ReplicaLogDirInfo()

    run(scenario)


def test_a_full_disk_shows_how_little_is_left() -> None:
    """The reported sizes come from the last probe of the disk. The broker probes every second."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        disk = cluster.disk(1, 1)
        disk.capacity_bytes = 1_000_000
        async with admin_of(cluster) as admin:
            await cluster.world.sleep(3)
            info = (await admin.describe_log_dirs([1])[1])[disk.path]
            assert info.total_bytes == 1_000_000
            assert info.usable_bytes is not None
            assert 0 < info.usable_bytes <= 1_000_000

    run(scenario)


def test_a_dead_broker_is_missing_and_comes_back() -> None:
    """The bootstrap server dies. The call for its directories times out, but the other brokers describe theirs, and requests
    that any broker can answer still succeed. After the server's restart, the same client reaches it again."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3)
        async with admin_of(cluster) as admin:
            await admin.describe_cluster()
            cluster.crash(1)
            results = admin.describe_log_dirs([1, 2, 3], timeout_ms=5_000)
            for broker_id in (2, 3):
                partitions = {each for info in (await results[broker_id]).values() for each in info.replica_infos}
                assert partitions == {TopicPartition("t", index) for index in range(3)}
            with pytest.raises(TimedOut, match="Call: describeLogDirs"):
                await results[1]
            assert (await admin.describe_cluster()).broker_ids == [2, 3]
            await admin.create_topics([NewTopic("u", 1, 2)]).all()
            cluster.start_node(1)
            assert len(await admin.describe_log_dirs([1])[1]) == 3

    run(scenario)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_network_that_breaks_delays_a_call(seed: int) -> None:
    """Connections are reset while calls are in flight, and a disk fails. Every call still gets its answer."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        async with admin_of(cluster) as admin:
            for number in range(12):
                results = admin.describe_log_dirs(cluster.broker_ids)
                cluster.world.network.reset("admin", f"broker-{number % 3 + 1}")
                if number == 6:
                    cluster.disk(2, 1).fail_with(errno.EIO)
                described = await results.all()
                assert [len(log_dirs) for log_dirs in described.values()] == [3, 3, 3]
            await cluster.world.event("log_dir_offline", node="broker-2")
            assert not (await admin.describe_log_dirs([2])[2])["/b2/d1"].is_online
            with pytest.raises(AdminError, match="already exists"):
                await admin.create_topics([NewTopic("t")]).all()

    run(scenario, seed=seed)
