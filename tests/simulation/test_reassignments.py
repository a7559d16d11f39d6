"""Reassignments, added partitions and elections on whole clusters of production daemons, while clients write."""

import asyncio
from collections.abc import Sequence

import pytest

from common.ids import BrokerId
from common.metadata.directory_ids import UNASSIGNED
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from common.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from common.protocol.messages.elect_leaders import ElectionType, ElectLeadersRequest, ElectLeadersResponse
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster, run


async def reassign(
    client: SimulatedClient, topic: str, targets: dict[int, list[int] | None], *, broker_id: int = 1
) -> list[ErrorCode]:
    """Sends AlterPartitionReassignments to a broker and returns the error codes in the order of `targets`."""
    partitions = [ReassignablePartition(partition_index=index, replicas=target) for index, target in targets.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=partitions)])
    response: AlterPartitionReassignmentsResponse = await client.ask(broker_id, request)
    return [ErrorCode(result.error_code) for result in response.responses[0].partitions]


def is_completed(cluster: SimulatedCluster, topic: str, index: int, target: Sequence[int]) -> bool:
    partition = cluster.partition(topic, index)
    return not partition.is_reassigning and list(partition.replicas) == list(target)


def hosts(cluster: SimulatedCluster, topic: str, index: int) -> list[int]:
    """Returns the ids of the brokers that host a replica of the partition."""
    found = []
    for broker_id in cluster.broker_ids:
        broker = cluster.nodes[broker_id].broker
        assert broker is not None
        if any(key.topic_id == cluster.topic_id(topic) and key.partition == index for key in broker.replicas._partitions):
            found.append(broker_id)
    return found


def folders(cluster: SimulatedCluster, broker_id: int, folder: str) -> list[str]:
    """Returns the paths of all files in the partition's folder, on all disks of the broker."""
    return [
        path
        for number in cluster.disk_numbers(broker_id)
        for path in cluster.disk(broker_id, number).files()
        if f"{folder}/" in path or f"{folder}." in path
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_partition_moves_to_other_brokers_while_clients_write(seed: int) -> None:
    """Both replicas move, including the leader's. Every acknowledged record can be read from the new leader. Each new
    replica has a directory. The old brokers stop their replicas and delete the logs."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=2, min_insync_replicas="2")
        old = list(cluster.partition("t", 0).replicas)
        new = [broker_id for broker_id in cluster.broker_ids if broker_id not in old]
        for number in range(20):
            await client.produce("t", 0, b"before %d" % number)

        async def write() -> None:
            for number in range(100):
                await client.produce("t", 0, b"meanwhile %d" % number)

        writing = asyncio.get_running_loop().create_task(write())
        assert await reassign(client, "t", {0: new}) == [ErrorCode.NONE]
        listed: ListPartitionReassignmentsResponse = await client.ask(old[0], ListPartitionReassignmentsRequest())
        assert [(topic.name, topic.partitions[0].adding_replicas) for topic in listed.topics] in ([], [("t", sorted(new))])
        await cluster.world.until(lambda: is_completed(cluster, "t", 0, new))
        await writing
        await cluster.until_in_sync("t")
        await client.produce("t", 0, b"after")
        assert cluster.partition("t", 0).leader in new
        assert UNASSIGNED not in cluster.partition("t", 0).directories
        assert len(await client.read_all("t", 0)) >= 121
        await cluster.world.until(lambda: hosts(cluster, "t", 0) == new)
        for broker_id in old:
            await cluster.world.until(lambda id_=broker_id: not folders(cluster, id_, "t-0"), within_seconds=90)  # type: ignore[misc]
        described: MetadataResponse = await client.ask(old[0], MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        assert described.topics[0].partitions[0].replica_nodes == new

    world = run(scenario, seed=seed, brokers=4, disks=2)
    assert len(world.events_named("reassignment_completed")) == 1


def test_all_replicas_are_visible_while_one_is_added() -> None:
    """The new replica's broker is paused, so the reassignment stays in progress until it is cancelled. The cancellation
    restores the original replicas."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=2)
        first, second = cluster.partition("t", 0).replicas
        (third,) = (broker_id for broker_id in cluster.broker_ids if broker_id not in (first, second))
        cluster.pause(third)
        assert await reassign(client, "t", {0: [third, first]}, broker_id=first) == [ErrorCode.NONE]
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        described: MetadataResponse = await client.ask(first, request)
        assert described.topics[0].partitions[0].replica_nodes == [third, first, second]
        leader = cluster.nodes[cluster.partition("t", 0).leader].broker
        assert leader is not None
        gauges = leader.replicas.descriptions.gauges()
        assert (gauges.reassigning_partitions, gauges.under_replicated_partitions) == (1, 0)
        await client.produce("t", 0, b"meanwhile")
        assert await reassign(client, "t", {0: None}, broker_id=first) == [ErrorCode.NONE]
        assert sorted(cluster.partition("t", 0).replicas) == sorted([first, second])
        assert await reassign(client, "t", {0: None}, broker_id=first) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
        cluster.resume(third)
        await cluster.until_running()
        await cluster.world.until(lambda: hosts(cluster, "t", 0) == sorted([first, second]))

    run(scenario, disks=2)


def test_a_replica_is_added_on_a_broker_with_a_dead_disk() -> None:
    """KAFKA-10314: one of the broker's two directories is offline. The new replica is created in the other directory."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=1)
        (old,) = cluster.partition("t", 0).replicas
        new = BrokerId(old % 3 + 1)
        dead = cluster.state.brokers[new].directories[0]
        cluster.fail_disk(new, dead)
        await cluster.world.until(lambda: cluster.state.brokers[new].lost_directories == (dead,))
        await client.produce("t", 0, b"value")
        assert await reassign(client, "t", {0: [new]}) == [ErrorCode.NONE]
        await cluster.world.until(lambda: is_completed(cluster, "t", 0, [new]))
        assert cluster.partition("t", 0).directories == cluster.state.brokers[new].directories
        assert len(await client.read_all("t", 0)) == 1

    run(scenario, disks=2)


def test_a_reassignment_survives_the_brokers_and_the_controller() -> None:
    """The new replica's broker, the old leader and the controller restart in the middle of the reassignment. It still
    completes."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3, replication_factor=2, min_insync_replicas="1")
        for number in range(60):
            await client.produce("t", number % 3, b"%d" % number)
        targets = {}
        for index, partition in cluster.partitions("t").items():
            targets[index] = [broker_id for broker_id in cluster.broker_ids if broker_id not in partition.replicas]
        assert await reassign(client, "t", dict(targets.items())) == [ErrorCode.NONE] * 3
        for node_id in (2, CONTROLLER_ID, 3):
            cluster.crash(node_id)
            await cluster.world.sleep(0.5)
            cluster.start_node(node_id)
        await cluster.until_running()
        for index, target in targets.items():
            await cluster.world.until(lambda i=index, t=target: is_completed(cluster, "t", i, t), within_seconds=60)  # type: ignore[misc]
        await cluster.until_in_sync("t")
        await client.assert_nothing_lost()

    run(scenario, brokers=4, disks=2)


def test_partitions_are_added_and_served() -> None:
    """The client gets its response when the broker that it asked knows the new partitions. They accept records at once."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=2)
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=10_000
        )
        response: CreatePartitionsResponse = await client.ask(1, request)
        assert [result.error_code for result in response.results] == [ErrorCode.NONE]
        described: MetadataResponse = await client.ask(1, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        assert len(described.topics[0].partitions) == 4
        for index in range(4):
            await client.produce("t", index, b"value")
        await cluster.until_in_sync("t")
        await client.assert_nothing_lost()

    run(scenario, disks=2)


def test_a_broker_finds_the_coordinators_of_before_its_topic_grew() -> None:
    """Broker 2 was not asked for a coordinator before the topic grew, and still uses the old number of partitions."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        async def coordinators(broker_id: int) -> list[int]:
            groups = [f"group-{number}" for number in range(6)]
            found = await client.ask(broker_id, FindCoordinatorRequest(coordinator_keys=groups))
            return [each.node_id for each in found.coordinators]

        while -1 in (before := await coordinators(1)):
            await cluster.world.sleep(0.1)
        await cluster.until_in_sync("__consumer_offsets")
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="__consumer_offsets", count=3, assignments=None)], timeout_ms=10_000
        )
        response: CreatePartitionsResponse = await client.ask(2, request)
        assert [result.error_code for result in response.results] == [ErrorCode.NONE]
        assert len(cluster.partitions("__consumer_offsets")) == 3
        assert await coordinators(2) == await coordinators(1) == before

    run(scenario, offsets_topic_num_partitions="2", offsets_topic_replication_factor="1")


def test_the_preferred_leader_is_elected() -> None:
    """The preferred leader restarts. Another replica leads until an administrator requests a preferred election."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1)
        preferred = cluster.partition("t", 0).leader
        cluster.crash(preferred)
        await cluster.world.until(lambda: cluster.partition("t", 0).leader != preferred, within_seconds=30)
        cluster.start_node(preferred)
        await cluster.until_in_sync("t")
        assert cluster.partition("t", 0).leader != preferred
        request = ElectLeadersRequest(topic_partitions=None, election_type=ElectionType.PREFERRED)
        response: ElectLeadersResponse = await client.ask(preferred, request)
        assert [(topic.topic, topic.partition_result[0].error_code) for topic in response.replica_election_results] == [
            ("t", ErrorCode.NONE)
        ]
        assert cluster.partition("t", 0).leader == preferred
        broker = cluster.nodes[preferred].broker
        assert broker is not None
        assert broker.state.topics[cluster.topic_id("t")].partitions[0].leader == preferred
        await client.produce("t", 0, b"value")

    run(scenario, disks=2)
