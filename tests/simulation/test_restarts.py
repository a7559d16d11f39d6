"""Brokers restart with another configuration, or with a disk that cannot be read."""

import asyncio
import errno
from typing import Any

import pytest

from broker.controller_link.lifecycle_loop import LifecycleLoop
from common.ids import BrokerId
from common.protocol.messages.broker_registration import BrokerRegistrationRequest
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from common.time_units import NS_PER_MS
from tests.simulation.cluster import CONTROLLER_ID, Scenario, SimulatedClient, SimulatedCluster
from tests.simulation.cluster import run as run_cluster

PARTITIONS = 6


def run(scenario: Scenario, seed: int = 1) -> None:
    """Runs a scenario on three brokers with three disks each and one topic. Checks at the end that all replicas are in sync
    and no record is lost."""

    async def whole(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=PARTITIONS, min_insync_replicas="2")
        for index in range(PARTITIONS):
            await client.produce("t", index, b"before")
        await scenario(cluster, client)
        for index in range(PARTITIONS):
            await client.produce("t", index, b"after")

    run_cluster(whole, seed=seed)


async def stop(cluster: SimulatedCluster, broker_id: int) -> None:
    cluster.ask_to_stop(broker_id)
    await cluster.world.until(lambda: cluster.env(broker_id).is_dead)


def test_directories_in_another_order_are_the_same_directories() -> None:
    """A directory is identified by its directory.id, not by its position in log.dirs. So no replica moves and no assignment
    is sent."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        before = {index: part.directories for index, part in cluster.partitions("t").items()}
        await stop(cluster, 1)
        sent = len(cluster.world.events_named("assignments_acknowledged", "broker-1"))
        cluster.start_node(1, {"log.dirs": "/b1/d3,/b1/d1,/b1/d2"})
        await cluster.until_running()
        await cluster.until_in_sync("t")
        assert before == {index: part.directories for index, part in cluster.partitions("t").items()}
        assert len(cluster.world.events_named("assignments_acknowledged", "broker-1")) == sent

    run(scenario)


def test_without_controlled_shutdown_a_broker_ends_at_once() -> None:
    """The controller notices only when the session times out, as in Apache Kafka."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await stop(cluster, 1)
        cluster.start_node(1, {"controlled.shutdown.enable": "false"})
        await cluster.until_running()
        await cluster.until_in_sync("t")
        before = len(cluster.world.events_named("broker_controlled_shutdown"))
        await stop(cluster, 1)
        assert len(cluster.world.events_named("broker_stopped", "broker-1")) == 2
        assert len(cluster.world.events_named("broker_controlled_shutdown")) == before
        assert not cluster.state.brokers[BrokerId(1)].fenced
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_a_directory_that_is_configured_no_more() -> None:
    """A directory is removed from log.dirs. When the broker is back, its replicas in that directory are outside the ISR.
    They are created in other directories and filled from their leaders. When the directory is configured again, its logs are
    put aside."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await stop(cluster, 1)
        cluster.start_node(1, {"log.dirs": "/b1/d1,/b1/d3"})
        await cluster.until_running()
        assert len(cluster.state.brokers[BrokerId(1)].directories) == 2
        await cluster.until_in_sync("t")
        for index in range(PARTITIONS):
            await client.produce("t", index, b"without it")
        await stop(cluster, 1)
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        assert len(cluster.state.brokers[BrokerId(1)].directories) == 3

    run(scenario)


def test_a_disk_that_cannot_be_read_at_the_start() -> None:
    """The broker starts with the other disks, and no write waits for replicas on the broken one. When the disk can be read
    again, the next start takes its replicas back."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await stop(cluster, 1)
        cluster.disk(1, 2).fail_with(errno.EIO)
        cluster.start_node(1)
        await cluster.until_running()
        assert len(cluster.state.brokers[BrokerId(1)].directories) == 2
        for index in range(PARTITIONS):
            await client.produce("t", index, b"without it")
        cluster.disk(1, 2).heal()
        await stop(cluster, 1)
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")
        assert len(cluster.state.brokers[BrokerId(1)].directories) == 3

    run(scenario)


def test_disks_that_hang_at_the_start_delay_it_no_more_than_one() -> None:
    """Two of three disks hang. The broker serves the replicas on the third one after the deadline of an operation."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await stop(cluster, 1)
        hung = [cluster.disk(1, number) for number in (1, 2)]
        for disk in hung:
            disk.hang()
        began_ns = world.now_ns()
        cluster.start_node(1)
        await world.until(lambda: any(each.at_ns > began_ns for each in world.events_named("broker_running", "broker-1")))
        deadline_ms = cluster.config(1).diskraft_log_dir_operation_timeout_ms
        assert world.now_ns() - began_ns < (deadline_ms + 500) * NS_PER_MS
        registration = cluster.registration(1)
        assert registration is not None
        assert [cluster.disk_of(BrokerId(1), each) for each in registration.directories] == [cluster.disk(1, 3)]
        await stop(cluster, 1)
        for disk in hung:
            disk.thaw()
        cluster.start_node(1)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_other_settings_for_one_life() -> None:
    """One of three brokers runs with log.segment.bytes=100, then restarts with its original settings."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await stop(cluster, 2)
        cluster.start_node(2, {"log.segment.bytes": "100"})
        await cluster.until_running()
        await cluster.until_in_sync("t")
        for number in range(20):
            await client.produce("t", number % PARTITIONS, b"%d" % number)
        await cluster.world.sleep(1)
        segments = [
            name
            for number in (1, 2, 3)
            for name in cluster.disk(2, number).files()
            if name.endswith(".log") and "t-0" in name
        ]
        assert len(segments) > 2
        cluster.crash(2)
        cluster.start_node(2)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_a_leader_that_could_never_create_its_log_leads_after_its_restart() -> None:
    """The leader has run out of descriptors and cannot create the log of a new partition. It is the only member of the ISR
    and has a single directory, so the metadata already names that directory when the broker restarts (seed 31)."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=1)
        await client.produce("t", 0, b"of the deleted topic")
        client.acknowledged.clear()
        await client.delete_topic("t")
        await cluster.world.event("log_deleted")
        cluster.disk(1, 1).run_short(1.0)
        async with asyncio.TaskGroup() as group:
            group.create_task(client.create_topic("t", partitions=1, replication_factor=1))
            await cluster.world.sleep(5)
            assert len(cluster.world.events_named("log_created")) == 1, "only that of the deleted topic"
            cluster.crash(1)
            cluster.disk(1, 1).heal()
            cluster.start_node(1)
        await client.produce("t", 0, b"of the new topic")

    run_cluster(scenario, brokers=1, disks=1, log_segment_delete_delay_ms="1000")


def test_a_node_that_is_asked_to_end_while_it_starts() -> None:
    """SIGTERM arrives before the node has started anything. A controller and a broker both shut down cleanly and can be
    started again."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        for node_id in (CONTROLLER_ID, 1):
            await stop(cluster, node_id)
            cluster.start_node(node_id)
            await stop(cluster, node_id)
            assert cluster.env(node_id).exit_code is None
            cluster.start_node(node_id)
        await cluster.world.until(cluster.is_controller_active)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def test_a_replica_that_comes_before_the_response_to_the_registration_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker starts with one of its two disks. The metadata has its registration, and a new topic with a replica on it,
    before the response arrives. The replica certainly had no log on the other disk, so it is created and not reported
    LOST."""
    held, ask = asyncio.Event(), LifecycleLoop._ask

    async def ask_and_wait(self: LifecycleLoop, request: Any) -> Any:
        response = await ask(self, request)
        if self._broker_id == 3 and isinstance(request, BrokerRegistrationRequest):
            await held.wait()
        return response

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await cluster.world.sleep(1)
        await stop(cluster, 3)
        cluster.world.disk("/b3/d2").fail_with(errno.EIO)
        monkeypatch.setattr(LifecycleLoop, "_ask", ask_and_wait)
        cluster.start_node(3)
        await cluster.world.until(lambda: len(cluster.state.brokers[BrokerId(3)].directories) == 1)
        topic = CreatableTopic(name="new", num_partitions=2, replication_factor=3)
        await client.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        await cluster.world.sleep(1)
        held.set()
        await cluster.until_in_sync("new")

    run_cluster(scenario, disks=2)
