"""Several disks of a broker that hang at once, as with a controller card that stalls, are suspected together."""

from collections.abc import Awaitable, Callable
from itertools import count as count_up

import pytest

from broker.coordinator.core.group_partition import OFFSETS_TOPIC, group_partition
from broker.hosting.partition import Partition
from common.ids import BrokerId
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster, run
from tests.simulation.disk import SimulatedDisk
from tests.simulation.test_hung_moves import BROKER, refusal
from tests.simulation.test_hung_reads import errors

# Each directory is suspected after 0.5 s, and the disks are compared with each other soon after they hang.
PATIENCE_SECONDS = 0.7
DISKS = 5
FOLLOWER = BrokerId(2)
HUNG_COUNTS = pytest.mark.parametrize("count", [2, 4])


@pytest.mark.slow
@HUNG_COUNTS
def test_a_fetch_waits_once_for_all_disks(count: int) -> None:
    """A consumer reads from all disks, and the page cache is cold. It gets the records of the healthy ones soon, although
    the reads of a fetch take turns, and so do the regions of a response."""

    async def read(cluster: SimulatedCluster, client: SimulatedClient) -> int:
        while True:
            try:
                answer = await client.ask(BROKER, fetch(cluster))
            except ChannelError:
                continue
            found = [data.partition_index for each in answer.responses for data in each.partitions if data.records]
            if len(found) == DISKS - count:
                return len(found)

    run(waits_once(count, read), brokers=1, disks=DISKS, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
@HUNG_COUNTS
def test_a_search_by_time_waits_once_for_all_disks(count: int) -> None:
    async def search(_: SimulatedCluster, client: SimulatedClient) -> int:
        found = await errors(client, *range(DISKS))
        assert found.count(ErrorCode.KAFKA_STORAGE_ERROR) == count
        return found.count(ErrorCode.NONE)

    run(waits_once(count, search), brokers=1, disks=DISKS, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
@HUNG_COUNTS
def test_one_search_after_the_other_waits_once_for_all_disks(count: int) -> None:
    """The client sends the next request when it has the answer to the one before."""

    async def search(_: SimulatedCluster, client: SimulatedClient) -> int:
        return [await errors(client, index) for index in range(DISKS)].count([ErrorCode.NONE])

    run(waits_once(count, search), brokers=1, disks=DISKS, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
@HUNG_COUNTS
def test_one_record_after_the_other_waits_once_for_all_disks(count: int) -> None:
    """The client has one request in flight. Nothing is read."""

    async def write(_: SimulatedCluster, client: SimulatedClient) -> int:
        return [await refusal(client, index) for index in range(DISKS)].count("")

    run(waits_once(count, write), brokers=1, disks=DISKS, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
def test_what_needs_no_disk_waits_for_none() -> None:
    """One request each deletes records of all partitions, and looks up where a leader epoch ended in them."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        for disk in await one_partition_on_each_disk(cluster, client):
            disk.hang()
        began_ns = cluster.world.now_ns()
        records = [DeleteRecordsPartition(partition_index=index, offset=0) for index in range(DISKS)]
        deletion = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=records)], timeout_ms=20_000)
        deleted = await client.ask(BROKER, deletion)
        assert [each.error_code for each in deleted.topics[0].partitions] == [ErrorCode.NONE] * DISKS
        epochs = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(DISKS)]
        lookup = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=epochs)])
        ends = await client.ask(BROKER, lookup)
        assert [each.end_offset for each in ends.topics[0].partitions] == [1] * DISKS
        assert cluster.world.now_ns() - began_ns < NS_PER_S // 10
        for disk in every_disk(cluster, BROKER):
            disk.thaw()

    run(scenario, brokers=1, disks=DISKS, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
@HUNG_COUNTS
def test_a_producer_waits_once_for_all_disks_of_a_follower(count: int) -> None:
    """It waits for the replication of one record after the other."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        led = await partitions_of_one_leader(cluster, client)
        hung = {cluster.disk_of_replica(FOLLOWER, "t", index).path: index for index in led}
        for path in [*hung][:count]:
            world.disk(path).hang()
        began_ns = world.now_ns()
        refusals = [await refusal(client, hung[path]) for path in hung]
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        assert "" not in refusals[:count]
        assert not any(refusals[count:])
        for path in [*hung][:count]:
            world.disk(path).thaw()

    run(scenario, brokers=2, disks=DISKS, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
@HUNG_COUNTS
def test_a_follower_waits_once_for_all_disks_of_its_leader(count: int) -> None:
    """It has all replicas on one disk, so it reads from all disks of the leader over one connection."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        led = await partitions_of_one_leader(cluster, client)
        target = cluster.disk(FOLLOWER, 1)
        for index in led:
            if cluster.disk_of_replica(FOLLOWER, "t", index) is not target:
                await client.move(FOLLOWER, "t", index, target)
        replicas = [hosted(cluster, FOLLOWER, index) for index in led]
        await world.until(lambda: len({replica.directory_id for replica in replicas}) == 1)
        cluster.pause(FOLLOWER)
        for _ in range(2):
            for index in led:
                await client.produce_once("t", index, b"missed", acks=1)
            # The answers with the first of these are on their way when the disks hang.
            await world.sleep(0.1)
        hung = [cluster.disk_of_replica(BROKER, "t", index) for index in led[:count]]
        for disk in hung:
            disk.hang()
        cluster.resume(FOLLOWER)
        began_ns = world.now_ns()
        await world.until(lambda: all(replica.log.written_offset == 3 for replica in replicas[count:]))
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        for disk in hung:
            disk.thaw()
        await world.until(lambda: all(hosted(cluster, BROKER, index).high_watermark == 3 for index in led))

    run(scenario, brokers=2, disks=DISKS, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
@HUNG_COUNTS
def test_a_coordinator_loads_beside_hung_disks(count: int) -> None:
    """A broker becomes the coordinator of groups on all its disks. Those on healthy disks can commit at once, although it
    cannot read what it has of the others."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=1, replication_factor=2)
        await client.ask(BROKER, FindCoordinatorRequest(coordinator_keys=["g"]))
        await cluster.until_in_sync(OFFSETS_TOPIC)
        coordinated = cluster.partitions(OFFSETS_TOPIC)
        led = [index for index, partition in coordinated.items() if partition.leader == BROKER]
        for index in led:
            assert await commit(cluster, client, BROKER, index) == ErrorCode.NONE
        hung = [cluster.disk_of_replica(FOLLOWER, OFFSETS_TOPIC, index) for index in led[:count]]
        for disk in hung:
            disk.hang({"read", "append"})
        cluster.crash(BROKER)
        await world.until(lambda: all(coordinated[index].leader == FOLLOWER for index in led))
        began_ns = world.now_ns()
        for index in led[count:]:
            while await commit(cluster, client, FOLLOWER, index) != ErrorCode.NONE:
                await world.sleep(0.01)
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        assert await commit(cluster, client, FOLLOWER, led[0]) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for disk in hung:
            disk.thaw()

    run(
        scenario,
        brokers=2,
        disks=DISKS,
        offsets_topic_num_partitions=str(2 * DISKS),
        offsets_topic_replication_factor="2",
        diskraft_log_dir_operation_timeout_ms="10000",
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_metadata_hung", [False, True])
def test_a_broker_whose_disks_all_hang_gives_its_leaders_away_and_comes_back(is_metadata_hung: bool) -> None:
    """Until the deadline it keeps what it leads, and answers its clients. Then it ends, and reports that first, so its
    leaders move at once. After the hang it starts as usual."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=6, min_insync_replicas="2")
        for index in range(6):
            await client.produce("t", index, b"before")
        before = cluster.partitions("t")
        led = [index for index, partition in before.items() if partition.leader == BROKER]
        hung = [*every_disk(cluster, BROKER), *([world.disk("/b1/metadata")] if is_metadata_hung else [])]
        for disk in hung:
            disk.hang()
        began_ns = world.now_ns()
        refusals = [await refusal(client, index) for index in led]
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        assert "" not in refusals
        await world.event("log_dir_failed")
        assert [cluster.partition("t", index).leader for index in led] == [BROKER] * len(led)
        deadline_ns = world.now_ns()
        assert deadline_ns - began_ns < 2.5 * NS_PER_S
        for index in range(6):
            await client.produce("t", index, b"meanwhile")
        # Its session would have lasted for 3 s.
        assert world.now_ns() - deadline_ns < NS_PER_S // 2
        await world.until(lambda: cluster.env(BROKER).is_dead)
        assert cluster.last_words(BROKER).startswith(("the last log directory", "the metadata directory"))
        for disk in hung:
            disk.thaw()
        cluster.start_node(BROKER)
        await cluster.until_running()
        await cluster.until_in_sync("t")

    run(scenario)


def waits_once(
    count: int, work: Callable[[SimulatedCluster, SimulatedClient], Awaitable[int]]
) -> Callable[[SimulatedCluster, SimulatedClient], Awaitable[None]]:
    """Lets this many disks hang. Checks that the work succeeds on the others as soon as the hung ones are
    suspected."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        hung = (await one_partition_on_each_disk(cluster, client))[:count]
        for disk in hung:
            disk.hang()
        began_ns = world.now_ns()
        assert await work(cluster, client) == DISKS - count
        assert world.now_ns() - began_ns < PATIENCE_SECONDS * NS_PER_S
        suspected = [each.fields["log_dir"] for each in world.events_named("log_dir_suspected")]
        assert sorted(suspected) == sorted(disk.path for disk in hung)
        for disk in hung:
            disk.thaw()

    return scenario


async def one_partition_on_each_disk(cluster: SimulatedCluster, client: SimulatedClient) -> list[SimulatedDisk]:
    """Creates a topic with records. Returns the disks of its partitions."""
    await client.create_topic("t", partitions=DISKS, replication_factor=1)
    for index in range(DISKS):
        await client.produce("t", index, b"before")
    disks = [cluster.disk_of_replica(BROKER, "t", index) for index in range(DISKS)]
    assert len({disk.path for disk in disks}) == DISKS
    return disks


async def partitions_of_one_leader(cluster: SimulatedCluster, client: SimulatedClient) -> list[int]:
    """Creates a topic with records. Returns the partitions that the first broker leads, one on each of its disks and one on
    each of its follower's."""
    await client.create_topic("t", partitions=2 * DISKS, replication_factor=2)
    led = [index for index, partition in cluster.partitions("t").items() if partition.leader == BROKER]
    for broker_id in (BROKER, FOLLOWER):
        assert len({cluster.disk_of_replica(broker_id, "t", index).path for index in led}) == DISKS
    for index in led:
        await client.produce("t", index, b"before")
    return led


def hosted(cluster: SimulatedCluster, broker_id: BrokerId, index: int) -> Partition:
    broker = cluster.nodes[broker_id].broker
    assert broker is not None
    partition = broker.replicas.find_named("t", index)
    assert isinstance(partition, Partition)
    return partition


async def commit(cluster: SimulatedCluster, client: SimulatedClient, broker_id: BrokerId, index: int) -> int:
    """Commits an offset for a group of this partition. Returns the error."""
    group = next(name for name in map("g{}".format, count_up()) if group_partition(name, 2 * DISKS) == index)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", topic_id=cluster.topic_id("t"), partitions=[partition])
    answer = await client.ask(broker_id, OffsetCommitRequest(group_id=group, topics=[topic]))
    return int(answer.topics[0].partitions[0].error_code)


def every_disk(cluster: SimulatedCluster, broker_id: BrokerId) -> list[SimulatedDisk]:
    return [cluster.disk(broker_id, number) for number in cluster.disk_numbers(broker_id)]


def fetch(cluster: SimulatedCluster) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(DISKS)]
    return FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic_id=cluster.topic_id("t"), partitions=wanted)])
