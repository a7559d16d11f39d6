"""Cordoned directories (KIP-1066) in a whole cluster: what an operator asks for, sees, and takes back."""

from common.ids import BrokerId
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from common.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpgradeType
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.test_dynamic_configuration import BROKER, alter

CORDONS = "cordoned.log.dirs"
LEVEL = 30


async def raise_level(client: SimulatedClient) -> None:
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=LEVEL, upgrade_type=UpgradeType.UPGRADE)
    answer = await client.ask(1, UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000))
    assert answer.error_code == ErrorCode.NONE, answer


async def contents(client: SimulatedClient) -> dict[str, tuple[bool, set[str]]]:
    """Returns whether each directory of broker 1 is cordoned, and its topics, as an operator sees it."""
    answer = await client.ask(1, DescribeLogDirsRequest(topics=None))
    return {each.log_dir: (each.is_cordoned, {topic.name for topic in each.topics}) for each in answer.results}


async def create(client: SimulatedClient, name: str, *, replication_factor: int) -> int:
    topic = CreatableTopic(name=name, num_partitions=4, replication_factor=replication_factor)
    answer = await client.ask(2, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    return int(answer.topics[0].error_code)


async def cordon(cluster: SimulatedCluster, client: SimulatedClient, value: str | None) -> None:
    """Changes the cordons of broker 1, and waits until the controller knows them."""
    assert await alter(client, 1, (BROKER, "1", CORDONS, value)) == [("1", ErrorCode.NONE, None)]
    paths = {"/b1/d1", "/b1/d2"} if value == "*" else set((value or "").split(",")) - {""}
    await cluster.world.until(lambda: cordoned(cluster) == len(paths))


def cordoned(cluster: SimulatedCluster) -> int | None:
    known = cluster.state.brokers.get(BrokerId(1))
    return None if known is None or known.cordoned_directories is None else len(known.cordoned_directories)


def test_a_cordoned_directory_keeps_its_replicas_and_gets_no_new_ones() -> None:
    """Neither by placement nor by a move. A broker all of whose directories are cordoned gets no replica at all, also after
    a restart, until the cordon ends."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await raise_level(client)
        await client.create_topic("before", partitions=4, replication_factor=2)
        await cordon(cluster, client, "/b1/d1")
        await client.create_topic("after", partitions=4, replication_factor=2)
        assert await contents(client) == {"/b1/d1": (True, {"before"}), "/b1/d2": (False, {"before", "after"})}
        topics = [AlterReplicaLogDirTopic(name="after", partitions=[0])]
        move = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/b1/d1", topics=topics)])
        [moved] = (await client.ask(1, move)).results[0].partitions
        assert moved.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await cordon(cluster, client, "*")
        assert await create(client, "wide", replication_factor=2) == ErrorCode.INVALID_REPLICATION_FACTOR
        cluster.crash(1)
        cluster.start_node(1)
        await cluster.world.until(lambda: cordoned(cluster) == 2)
        assert await create(client, "narrow", replication_factor=1) == ErrorCode.NONE
        assert {tuple(each.replicas) for each in cluster.partitions("narrow").values()} == {(2,)}
        await cluster.world.until(lambda: not cluster.state.brokers[BrokerId(1)].fenced)
        await cordon(cluster, client, None)
        await client.create_topic("last", partitions=4, replication_factor=2)
        # The directory with fewer replicas.
        assert "last" in (await contents(client))["/b1/d1"][1]

    run(scenario, brokers=2, disks=2)


def test_the_controller_hears_of_a_cordon_at_once() -> None:
    """Not with the next regular heartbeat, up to which it would go on placing replicas."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await raise_level(client)
        for value in ("/b1/d1", "*", None, "*", None):
            await cluster.world.sleep(0.7)
            begun_ns = cluster.world.now_ns()
            await cordon(cluster, client, value)
            assert cluster.world.now_ns() - begun_ns < NS_PER_S, value

    run(scenario, brokers=2, disks=2, broker_heartbeat_interval_ms="10000", broker_session_timeout_ms="30000")


def test_what_cannot_be_cordoned_is_refused() -> None:
    """A level that cannot express it, all brokers at once, and a path that is no directory of the broker."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        [(_, code, message)] = await alter(client, 1, (BROKER, "1", CORDONS, "/b1/d1"))
        assert (code, message) == (ErrorCode.INVALID_CONFIG, "cordoned.log.dirs needs metadata.version 4.3-IV0 or higher.")
        await raise_level(client)
        [(_, code, message)] = await alter(client, 1, (BROKER, "", CORDONS, "/b1/d1"))
        assert (code, message) == (
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level: Set(cordoned.log.dirs)",
        )
        [(_, code, message)] = await alter(client, 1, (BROKER, "1", CORDONS, "/b1/d3"))
        assert (code, message) == (ErrorCode.INVALID_REQUEST, "/b1/d3 is not in log.dirs of broker 1: /b1/d1, /b1/d2")
        assert cluster.state.config(BROKER, "1") == {}

    run(scenario, brokers=1, disks=2)
