"""A daemon is paused and resumed (SIGSTOP, SIGCONT). If a broker's session ended meanwhile, it must refuse the requests that
waited for it. A pause must do no other harm."""

import asyncio

import pytest

from common.configuration.server_loading import load_server_config
from common.ids import BrokerId, TopicId
from common.protocol.errors import ErrorCode
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.records.record import Record, encode_batch
from tests.simulation.cluster import CONTROLLER_ID, Scenario, SimulatedClient, SimulatedCluster
from tests.simulation.cluster import run as run_cluster
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.simulation.test_rules import COMBINED
from tools.kafka.storage import format_directories
from tools.node.node import Node

pytestmark = pytest.mark.slow

PARTITIONS = 6
# The seeds differ in what a resumed process handles first: its timers or its sockets.
SEEDS = (1, 7)


def run(scenario: Scenario, seed: int) -> SimulatedWorld:
    """Runs a scenario on a cluster with one topic. Afterwards the topic must be in sync, and no acknowledged record may be
    lost."""

    async def whole(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=PARTITIONS, min_insync_replicas="2")
        await scenario(cluster, client)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    return run_cluster(whole, seed=seed, disks=2)


def one_record(topic_id: TopicId, index: int, value: bytes, *, acks: int) -> ProduceRequest:
    batch = bytes(encode_batch([Record(key=None, value=value, timestamp_ms=0)]))
    data = PartitionProduceData(index=index, records=batch)
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[topic])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resumed_leader_refuses_what_waited_for_it(seed: int) -> None:
    """While the leader was paused its session ended, and other brokers lead now. It refuses the records that waited in its
    sockets, with acks=1 and acks=all, because it would truncate them when it becomes a follower."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        for index in range(PARTITIONS):
            await client.produce("t", index, b"before")
        led = [index for index, part in cluster.partitions("t").items() if part.leader == 1]
        assert led
        cluster.pause(1)
        topic_id = cluster.state.topic_ids["t"]
        asked = [
            asyncio.ensure_future(client.ask(1, one_record(topic_id, index, b"late", acks=acks)))
            for index in led
            for acks in (1, -1)
        ]
        await cluster.world.until(lambda: all(cluster.partition("t", index).leader not in (1, -1) for index in led))
        for index in range(PARTITIONS):
            await client.produce("t", index, b"meanwhile")
        cluster.resume(1)
        for answer in await asyncio.gather(*asked):
            refusal = answer.responses[0].partition_responses[0].error_code
            assert refusal == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster.world.events_named("broker_was_stopped", "broker-1")

    run(scenario, seed)


def test_a_resumed_leader_acknowledges_nothing_that_it_had_begun() -> None:
    """A record with acks=1 is appended before the leader is paused, and written to disk after the leader is resumed. No
    other broker has the record, so the produce request is refused."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        led = next(index for index, part in cluster.partitions("t").items() if part.leader == 1)
        disk = cluster.disk_of(BrokerId(1), cluster.partition("t", led).directory(BrokerId(1)))
        disk.hang()
        asked = asyncio.ensure_future(client.ask(1, one_record(cluster.state.topic_ids["t"], led, b"begun", acks=1)))
        await cluster.world.sleep(0.1)
        for other in (2, 3):
            cluster.world.network.cut("broker-1", f"broker-{other}")
        cluster.pause(1)
        disk.thaw()
        await cluster.world.until(lambda: cluster.partition("t", led).leader not in (1, -1))
        await client.produce("t", led, b"meanwhile")
        cluster.world.network.mend()
        cluster.resume(1)
        answer = (await asked).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_short_pause_costs_nothing(seed: int) -> None:
    """The pause is shorter than the session: the broker still leads, and accepts the requests that waited."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        led = [index for index, part in cluster.partitions("t").items() if part.leader == 1]
        epochs = {index: cluster.partition("t", index).leader_epoch for index in led}
        cluster.pause(1)
        topic_id = cluster.state.topic_ids["t"]
        asked = [asyncio.ensure_future(client.ask(1, one_record(topic_id, index, b"late", acks=1))) for index in led]
        await cluster.world.sleep(1.5)
        cluster.resume(1)
        for answer in await asyncio.gather(*asked):
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        await cluster.world.sleep(5)
        assert not cluster.world.events_named("broker_was_stopped")
        assert epochs == {index: cluster.partition("t", index).leader_epoch for index in led}

    run(scenario, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resumed_controller_fences_nobody(seed: int) -> None:
    """Heartbeats that waited while the controller was paused count as if they had come in time."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.produce("t", 0, b"before")
        cluster.pause(CONTROLLER_ID)
        await cluster.world.sleep(20)
        await client.produce("t", 0, b"without a controller")
        cluster.resume(CONTROLLER_ID)
        await cluster.world.sleep(10)
        assert not cluster.world.events_named("broker_fenced")
        assert all(len(part.isr) == 3 for part in cluster.partitions("t").values())

    run(scenario, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resumed_broker_is_whole(seed: int) -> None:
    """A long pause takes no directory offline and ends no process: the disks were healthy all the time."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        asked = [asyncio.ensure_future(client.produce("t", index, b"x")) for index in range(PARTITIONS)]
        cluster.pause(1)
        await cluster.world.sleep(60)
        cluster.resume(1)
        await asyncio.gather(*asked)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        assert not cluster.env(1).is_dead
        assert not cluster.world.events_named("log_dir_offline")
        assert len(cluster.state.brokers[BrokerId(1)].directories) == 2

    run(scenario, seed)


def test_a_resumed_node_with_both_roles_serves_again() -> None:
    """After the pause the broker must ask whether its metadata is current. The controller in the same process confirms it
    without another node, and fences no broker."""

    async def scenario(world: SimulatedWorld) -> None:
        config = load_server_config(COMBINED)
        for path in config.log_dirs:
            world.disk(path)
        await format_directories(world.node("format"), config, cluster_id="combined", level=21, ignore_formatted=False)

        async def main(env: SimulatedEnvironment) -> None:
            await Node(env, config, COMBINED).run(asyncio.get_running_loop().create_future)

        node = world.start("node", main)
        await world.event("broker_running")
        await world.sleep(5)
        world.pause("node")
        await world.sleep(60)
        world.resume("node")
        await world.event("broker_metadata_current", within_seconds=1)
        await world.sleep(60)
        assert not world.events_named("broker_fenced")
        assert not node.is_dead

    for seed in SEEDS:
        SimulatedWorld(seed).run(scenario)
