"""If a disk is dead, hung or half dead, its own replicas go offline, and no others are affected."""

import asyncio
import errno
import weakref

import pytest

from common.environment.interface import LogDirError
from common.ids import NO_LEADER, Offset, TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.storage.read_limits import ReadLimits
from common.time_units import NS_PER_S
from tests.simulation.log_dir import SimulatedRegion
from tests.unit.broker.cluster import TOPIC, Cluster, TestBroker, at_once, batch, directory, path, run

OTHER = TopicId(Uuid(b"O" * 16))


async def two_disks(cluster: Cluster, partitions: int = 4, brokers: int = 1) -> None:
    """Starts brokers with disks a and b, and creates a topic that broker 1 leads. The partitions are on both disks, and the
    metadata names their directories."""
    for broker_id in range(1, brokers + 1):
        await cluster.start(broker_id, "ab")
    cluster.controller.create_topic(*([list(range(1, brokers + 1))] * partitions))
    for index in range(partitions):
        await cluster.started(index)
    assign_all(cluster)


def assign_all(cluster: Cluster) -> None:
    """Commits what AssignReplicasToDirs would lead to: records that name each replica's directory."""
    for broker in list(cluster.brokers.values()):
        for (topic_id, index), directory_id in broker.replicas.wished_assignments().items():
            known = cluster.controller.partition(index, topic_id)
            directories = list(known.directories)
            directories[known.replicas.index(broker.broker_id)] = directory_id
            cluster.controller.change(index, topic_id=topic_id, directories=directories)


def on_disk(cluster: Cluster, letter: str, broker_id: int = 1) -> list[int]:
    """Returns the topic's partitions on one disk."""
    hosted = cluster[broker_id].replicas.hosted_directories()
    return [index for (_, index), where in hosted.items() if where == directory(broker_id, letter)]


def produced(value: str, *indexes: int, acks: int) -> ProduceRequest:
    """Returns a request that writes the value to each of these partitions."""
    partitions = [PartitionProduceData(index=index, records=batch(value)) for index in indexes]
    topic = TopicProduceData(name="t", topic_id=TOPIC, partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def test_a_dead_disk_under_a_leader_answers_storage_errors_and_the_others_go_on() -> None:
    """All requests to partitions on the dead disk get KAFKA_STORAGE_ERROR. Partitions on the other disk keep working and
    keep their records."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster)
        dead, alive = on_disk(cluster, "a"), on_disk(cluster, "b")
        assert len(dead) == len(alive) == 2
        for index in (*dead, *alive):
            assert (await cluster.produce(1, "before", index=index)).error_code == ErrorCode.NONE
        cluster.world.disk(path(1, "a")).fail_with(errno.EIO)
        for index in dead:
            assert (await cluster.produce(1, "x", index=index)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await cluster.fetch(1, index=index)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for index in alive:
            assert (await cluster.produce(1, "after", index=index)).error_code == ErrorCode.NONE
            assert await cluster.read_all(1, index=index) == ["before", "after"]
        assert cluster[1].replicas.descriptions.gauges().offline_replica_count == 2
        assert sorted(cluster[1].replicas.hosted_directories()) == [
            TopicIdPartition(TOPIC, index) for index in sorted(alive)
        ]
        # The metadata names the failed directory for its replicas, so no assignment has to be reported.
        assert cluster[1].replicas.wished_assignments() == {}

    run(scenario)


def test_clients_of_a_dead_disk_are_sent_to_the_new_leader() -> None:
    """Once the metadata names another leader, the broker answers as one that does not lead. Not all clients refresh their
    metadata after KAFKA_STORAGE_ERROR. Without any leader the storage error remains."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2, brokers=2)
        [index] = on_disk(cluster, "a")
        cluster.world.disk(path(1, "a")).fail_with(errno.EIO)

        async def errors() -> set[int]:
            produced, fetched = await cluster.produce(1, "x", index=index), await cluster.fetch(1, index=index)
            return {produced.error_code, fetched.error_code}

        assert await errors() == {ErrorCode.KAFKA_STORAGE_ERROR}
        cluster.controller.change(index, leader=NO_LEADER)
        assert await errors() == {ErrorCode.KAFKA_STORAGE_ERROR}
        cluster.controller.change(index, leader=2, isr=[2])
        assert await errors() == {ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run(scenario)


def test_old_clients_are_not_told_of_a_dead_disk() -> None:
    """Before version 6 of Fetch, clients need not know KAFKA_STORAGE_ERROR."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [index] = on_disk(cluster, "a")
        cluster.world.disk(path(1, "a")).fail_with(errno.EIO)
        await cluster.produce(1, "x", index=index)
        wanted = FetchTopic(topic="t", partitions=[FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)])
        for version, error in ((5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)):
            response = await cluster.request(1, FetchRequest(topics=[wanted]), version=version)
            assert response.responses[0].partitions[0].error_code == error

    run(scenario)


def test_what_waits_on_a_dead_disk_is_answered_at_once() -> None:
    """When the disk dies, a fetch that waits for data and a produce request that waits for replication are answered at once,
    long before their timeouts."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2, brokers=2)
        [index] = on_disk(cluster, "a")
        cluster.world.network.cut("broker-2", "broker-1")
        producing = asyncio.ensure_future(cluster.produce(1, "x", index=index))
        fetching = asyncio.ensure_future(cluster.fetch(1, index=index, max_wait_ms=30_000))
        await cluster.until(lambda: cluster[1].partition(index).log.written_offset == 1)
        begun_ns = cluster.world.now_ns()
        cluster[1].failures.report(LogDirError(path(1, "a"), "probe", errno.EIO))
        assert (await producing).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await fetching).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.world.now_ns() - begun_ns < 10_000_000

    run(scenario)


def test_group_write_that_fails_half_way_acknowledges_nothing() -> None:
    """The disk writes only a part of a write that joins several requests. No request is acknowledged, and no record of the
    write can be read. After a restart with a healed disk, all records acknowledged before are still there."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [index] = on_disk(cluster, "a")
        folder = f"t-{index}"
        assert (await cluster.produce(1, "kept", index=index)).error_code == ErrorCode.NONE
        whole = cluster.log_bytes(1, "a", folder)
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_next("append", errno.EIO)
        answers = await asyncio.gather(*(cluster.produce(1, f"v{number}", index=index) for number in range(20)))
        assert {answer.error_code for answer in answers} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert {answer.base_offset for answer in answers} == {-1}
        assert (await cluster.fetch(1, index=index)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        cluster.crash(1)
        # On a real disk, a torn write leaves a part of its bytes: here the beginning of one more batch.
        disk.heal()
        disk.write(f"{folder}/00000000000000000000.log", whole + whole[:40])
        await cluster.start(1, "ab")
        cluster.controller.change(index, leader=1)
        await cluster.started(index)
        assert await cluster.read_all(1, index=index) == ["kept"]
        assert (await cluster.produce(1, "next", index=index)).base_offset == 1

    run(scenario)


def test_pipelined_appends_behind_a_failed_one_are_not_acknowledged() -> None:
    """The first append of a pipeline fails, although the disk would accept the next ones. Their offsets depend on the first,
    so they fail, too."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [index] = on_disk(cluster, "b")
        cluster.world.disk(path(1, "b")).fail_next("append", errno.ENOSPC)
        partition = cluster[1].partition(index)
        answers = await asyncio.gather(*(cluster.produce(1, f"v{number}", index=index, acks=1) for number in range(8)))
        assert {answer.error_code for answer in answers} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert partition.log.written_offset == 0
        assert partition.gone is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_a_hung_disk_does_not_slow_down_the_others() -> None:
    """A produce request hangs on one disk until the disk is suspected. Meanwhile produce, fetch and topic creation on the
    other disk take milliseconds. Once the operation's deadline has passed, the disk goes offline."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [hung], [alive] = on_disk(cluster, "a"), on_disk(cluster, "b")
        cluster.world.disk(path(1, "a")).hang()
        begun_ns = cluster.world.now_ns()
        hanging = asyncio.ensure_future(cluster.produce(1, "x", index=hung))
        for number in range(20):
            before_ns = cluster.world.now_ns()
            assert (await cluster.produce(1, f"v{number}", index=alive)).error_code == ErrorCode.NONE
            assert cluster.world.now_ns() - before_ns < 20_000_000
        other = TopicId(Uuid(b"U" * 16))
        cluster.controller.create_topic([1], [1], name="u", topic_id=other)
        await cluster.until(lambda: cluster[1].leads(0, other) or cluster[1].leads(1, other), within_seconds=0.1)
        assert not hanging.done()
        assert (await hanging).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert 1_000_000_000 < cluster.world.now_ns() - begun_ns < 1_300_000_000
        await cluster.until(lambda: not on_disk(cluster, "a"))
        assert 1_900_000_000 < cluster.world.now_ns() - begun_ns < 2_500_000_000
        # The replica whose creation hung never held any data, so it is created on the remaining disk.
        await cluster.until(lambda: cluster[1].leads(0, other) and cluster[1].leads(1, other), within_seconds=1)

    run(scenario)


def test_nobody_waits_for_a_suspected_disk() -> None:
    """A disk hangs for 1.8 seconds, which is not long enough to give it up. Meanwhile one request for partitions on both
    disks, with acks=1, is answered: the hung one's part with REQUEST_TIMED_OUT, although its record is stored in the end.
    New records for the disk are refused at once, and a fetch from both disks brings the records of the healthy one. Then the
    disk serves again, with the same leader epoch and ISR."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2, brokers=2)
        [hung], [alive] = on_disk(cluster, "a"), on_disk(cluster, "b")
        for index in (hung, alive):
            assert (await cluster.produce(1, "before", index=index)).error_code == ErrorCode.NONE
        before = cluster.controller.partition(hung)
        world, disk = cluster.world, cluster.world.disk(path(1, "a"))
        disk.hang()
        begun_ns = world.now_ns()
        response = await cluster.request(1, produced("mixed", hung, alive, acks=1))
        codes = {each.index: each.error_code for each in response.responses[0].partition_responses}
        assert codes == {hung: ErrorCode.REQUEST_TIMED_OUT, alive: ErrorCode.NONE}
        assert world.now_ns() - begun_ns < 1_300_000_000
        before_ns = world.now_ns()
        assert (await cluster.produce(1, "refused", index=hung)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        both = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            topics=[
                FetchTopic(topic_id=TOPIC, partitions=[FetchPartition(partition=index) for index in (hung, alive)]),
            ],
        )
        fetched = {each.partition_index: each for each in (await cluster.request(1, both)).responses[0].partitions}
        assert [fetched[index].error_code for index in (hung, alive)] == [ErrorCode.NONE, ErrorCode.NONE]
        assert (len(fetched[hung].records), len(fetched[alive].records) > 0) == (0, True)
        assert world.now_ns() - before_ns < 100_000_000
        await world.sleep(1.8 - (world.now_ns() - begun_ns) / NS_PER_S)
        disk.thaw()
        await cluster.until(lambda: bool(world.events_named("log_dir_trusted")))
        assert (await cluster.produce(1, "after", index=hung)).error_code == ErrorCode.NONE
        assert await cluster.read_all(1, index=hung) == ["before", "mixed", "after"]
        after = cluster.controller.partition(hung)
        assert (after.leader_epoch, after.isr) == (before.leader_epoch, before.isr)
        assert len(world.events_named("log_dir_suspected")) == 1

    run(scenario)


def test_reads_that_a_disk_does_not_finish_are_given_up() -> None:
    """A fetch and a search by time have begun to read from a disk when it hangs. They end when the disk is suspected: the
    fetch without its records, the search with an error that clients retry. What is asked later is answered at once."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [hung], [alive] = on_disk(cluster, "a"), on_disk(cluster, "b")
        cluster.controller.configure("segment.bytes", "250")
        for index in (hung, alive):
            for number in range(8):
                assert (await cluster.produce(1, f"v{number}", index=index)).error_code == ErrorCode.NONE
        world, disk = cluster.world, cluster.world.disk(path(1, "a"))
        # After a restart, where the second batch of an older segment begins has to be read.
        await cluster.stop(1)
        await cluster.start(1, "ab")
        for index in (hung, alive):
            await cluster.started(index)
        wanted = [FetchPartition(partition=index, fetch_offset=3, partition_max_bytes=100) for index in (hung, alive)]
        fetch = FetchRequest(
            max_wait_ms=1000, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic_id=TOPIC, partitions=wanted)]
        )
        times = [ListOffsetsPartition(partition_index=index, timestamp=1) for index in (hung, alive)]
        search = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=times)])

        async def ask() -> tuple[dict[int, tuple[int, bool]], dict[int, tuple[int, int]]]:
            fetched, found = await asyncio.gather(cluster.request(1, fetch), cluster.request(1, search))
            return (
                {each.partition_index: (each.error_code, len(each.records) > 0) for each in fetched.responses[0].partitions},
                {each.partition_index: (each.error_code, each.offset) for each in found.topics[0].partitions},
            )

        disk.hang()
        begun_ns = world.now_ns()
        expected = (
            {hung: (ErrorCode.NONE, False), alive: (ErrorCode.NONE, True)},
            {hung: (ErrorCode.KAFKA_STORAGE_ERROR, -1), alive: (ErrorCode.NONE, 0)},
        )
        assert await ask() == expected
        assert 1_000_000_000 < world.now_ns() - begun_ns < 1_300_000_000
        begun_ns = world.now_ns()
        assert await ask() == expected
        assert world.now_ns() - begun_ns < 100_000_000
        disk.thaw()
        await cluster.until(lambda: bool(world.events_named("log_dir_trusted")))
        assert await ask() == (
            {hung: (ErrorCode.NONE, True), alive: (ErrorCode.NONE, True)},
            {hung: (ErrorCode.NONE, 0), alive: (ErrorCode.NONE, 0)},
        )

    run(scenario, diskraft_log_dir_operation_timeout_ms="10000")


def test_a_connection_goes_on_that_sends_what_a_disk_reads_again() -> None:
    """The disk has hung and reads slowly, but it reads. Its directory is still suspected."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [hung] = on_disk(cluster, "a")
        assert (await cluster.produce(1, "v", index=hung)).error_code == ErrorCode.NONE
        world, disk = cluster.world, cluster.world.disk(path(1, "a"))
        disk.hang()
        assert (await cluster.produce(1, "w", index=hung)).error_code == ErrorCode.REQUEST_TIMED_OUT
        disk.thaw()
        # Reads take up to 0.75 s from now on.
        disk.slow_down(5_000)
        log = cluster[1].partition(hung).log
        [region] = (await log.read(Offset(0), ReadLimits(max_bytes=1000, upper_offset=Offset(1), min_one_batch=True))).parts
        assert isinstance(region, SimulatedRegion)
        for loaded in await asyncio.gather(*(region.load() for _ in range(10))):
            assert len(loaded) == len(region)
        assert world.events_named("log_dir_trusted") == []

    run(scenario)


def test_a_connection_ends_that_sends_what_a_disk_does_not_read() -> None:
    """The disk hangs while a response is being sent, and all later responses on this connection would have to wait. On a new
    connection, the client gets the records of the other disk."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [hung], [alive] = on_disk(cluster, "a"), on_disk(cluster, "b")
        for index in (hung, alive):
            assert (await cluster.produce(1, "v", index=index)).error_code == ErrorCode.NONE
        wanted = [FetchPartition(partition=index) for index in (hung, alive)]
        both = FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(topic_id=TOPIC, partitions=wanted)])
        cluster.world.disk(path(1, "a")).hang()
        begun_ns = cluster.world.now_ns()
        with pytest.raises(ExceptionGroup) as ended:
            await cluster.request(1, both)
        assert ended.group_contains(ChannelError)
        assert 1_000_000_000 < cluster.world.now_ns() - begun_ns < 1_300_000_000
        fetched = (await cluster.request(1, both)).responses[0].partitions
        assert {each.partition_index: len(each.records) > 0 for each in fetched} == {hung: False, alive: True}
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.until(lambda: bool(cluster.world.events_named("log_dir_trusted")))
        assert await cluster.read_all(1, index=hung) == ["v"]
        assert cluster.world.events_named("log_dir_offline") == []

    run(scenario, diskraft_log_dir_operation_timeout_ms="10000")


def test_nobody_waits_for_a_follower_whose_disk_hangs() -> None:
    """The follower's disk hangs for a while. With acks=all, what waits for it is answered once the follower suspects the
    disk, and new records are refused at once; the records of the healthy disk, and those with acks=1, are acknowledged. The
    ISR stays as it is, and afterwards everything is replicated."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2, brokers=2)
        [hung], [alive] = on_disk(cluster, "a", broker_id=2), on_disk(cluster, "b", broker_id=2)
        for index in (hung, alive):
            assert (await cluster.produce(1, "before", index=index)).error_code == ErrorCode.NONE
        before = cluster.controller.partition(hung)
        world, disk = cluster.world, cluster.world.disk(path(2, "a"))
        disk.hang()
        begun_ns = world.now_ns()
        response = await cluster.request(1, produced("during", hung, alive, acks=-1))
        codes = {each.index: each.error_code for each in response.responses[0].partition_responses}
        assert codes == {hung: ErrorCode.REQUEST_TIMED_OUT, alive: ErrorCode.NONE}
        assert 1_000_000_000 < world.now_ns() - begun_ns < 1_300_000_000
        begun_ns = world.now_ns()
        assert (await cluster.produce(1, "refused", index=hung)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await cluster.produce(1, "one", index=hung, acks=1)).error_code == ErrorCode.NONE
        assert (await cluster.produce(1, "more", index=alive)).error_code == ErrorCode.NONE
        assert world.now_ns() - begun_ns < 100_000_000
        disk.thaw()
        await cluster.until(lambda: bool(world.events_named("log_dir_trusted")))
        await cluster.until(lambda: not cluster[1].partition(hung).replica.is_held_up, within_seconds=1)
        assert (await cluster.produce(1, "after", index=hung)).error_code == ErrorCode.NONE
        assert await cluster.read_all(1, index=hung) == ["before", "during", "one", "after"]
        assert cluster[2].partition(hung).log.written_offset == 4
        after = cluster.controller.partition(hung)
        assert (after.leader_epoch, after.isr) == (before.leader_epoch, before.isr)

    run(scenario, diskraft_log_dir_operation_timeout_ms="10000")


def test_a_new_leader_is_told_of_a_disk_that_hangs() -> None:
    """The leader changes while the follower's disk hangs. The new one has not heard of it, and is out of reach at first."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id, "a")
        cluster.controller.create_topic([1, 2, 3])
        await cluster.started()
        cluster.world.disk(path(3, "a")).hang()
        assert (await cluster.produce(1, "v", acks=1)).error_code == ErrorCode.NONE
        await cluster.until(lambda: cluster[1].partition().replica.is_held_up, within_seconds=1.5)
        cluster.world.network.cut("broker-2", "broker-3")
        cluster.controller.change(leader=2)
        await cluster.until(lambda: cluster[2].leads(0))
        await cluster.world.sleep(0.5)
        assert not cluster[2].partition().replica.is_held_up
        cluster.world.network.mend()
        await cluster.until(lambda: cluster[2].partition().replica.is_held_up, within_seconds=2)
        begun_ns = cluster.world.now_ns()
        assert (await cluster.produce(2, "w")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.world.now_ns() - begun_ns < 100_000_000
        # Without the hung replica, nothing is held up.
        cluster.controller.change(isr=[1, 2])
        await cluster.until(lambda: not cluster[2].partition().replica.is_held_up, within_seconds=1)
        assert (await cluster.produce(2, "w")).error_code == ErrorCode.NONE

    run(scenario, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.parametrize("acks", [0, -1])
def test_a_request_counts_as_memory_until_its_records_are_written(acks: int) -> None:
    """Without acknowledgements, or once the disk is suspected, a request is answered while its records still wait for the
    disk. They count as request memory until the disk has them, so a client cannot fill the disk's queue."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [slow], _ = on_disk(cluster, "a"), on_disk(cluster, "b")
        cluster.world.disk(path(1, "a")).hang()
        producing = asyncio.ensure_future(cluster.produce(1, "x" * 50_000, index=slow, acks=acks))
        memory = cluster[1].server.memory
        await cluster.until(lambda: memory.used_bytes > 50_000)
        await cluster.world.sleep(1.4)
        assert memory.used_bytes > 50_000
        assert producing.done() == (acks != 0)
        cluster.world.disk(path(1, "a")).thaw()
        await cluster.until(lambda: memory.used_bytes == 0)
        producing.cancel()

    run(scenario)


def test_a_hung_disk_of_a_follower_does_not_stop_replication_to_its_other_disk() -> None:
    """Each disk has its own fetchers. Until the hung disk's operation reaches its deadline, acks=all still works for
    partitions that the follower has on its other disk."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=4, brokers=2)
        hung, alive = on_disk(cluster, "a", 2), on_disk(cluster, "b", 2)
        cluster.world.disk(path(2, "a")).hang()
        hanging = [asyncio.ensure_future(cluster.produce(1, "x", index=index)) for index in hung]
        for number in range(10):
            for index in alive:
                before_ns = cluster.world.now_ns()
                assert (await cluster.produce(1, f"v{number}", index=index)).error_code == ErrorCode.NONE
                assert cluster.world.now_ns() - before_ns < 20_000_000
        assert not any(each.done() for each in hanging)
        for each in hanging:
            each.cancel()

    run(scenario)


def test_a_dead_disk_of_a_follower_releases_the_leader_with_the_metadata() -> None:
    """The follower's disk dies. The controller removes the follower from the ISR and the directory from the broker's
    registration. Then the leader acknowledges at once, although the follower's broker is healthy and the follower was caught
    up a moment ago."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2, brokers=2)
        [index] = on_disk(cluster, "a", 2)
        cluster.world.disk(path(2, "a")).fail_with(errno.EIO)
        waiting = asyncio.ensure_future(cluster.produce(1, "x", index=index))
        await cluster.until(lambda: cluster[2].directories.any_offline)
        assert not waiting.done()
        begun_ns = cluster.world.now_ns()
        cluster.controller.change(index, isr=[1])
        cluster.controller.fence(2, still="b")
        assert (await waiting).error_code == ErrorCode.NONE
        assert cluster.world.now_ns() - begun_ns < 5_000_000

    run(scenario)


def test_a_replica_is_not_created_again_while_its_directory_is_offline() -> None:
    """KAFKA-16234: changes of the partition's metadata must not create the replica again, empty, on the other disk. If the
    topic is deleted and created again, it has a new id, and its replica is created."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2, brokers=2)
        [index] = on_disk(cluster, "a")
        cluster.world.disk(path(1, "a")).fail_with(errno.EIO)
        await cluster.produce(1, "x", index=index)
        cluster.controller.change(index, isr=[2], leader=2)
        cluster.controller.fence(1, still="b")
        cluster.controller.change(index, isr=[2], leader=2)
        await cluster.world.sleep(3)
        assert on_disk(cluster, "a") == []
        assert f"t-{index}/partition.metadata" not in cluster.world.disk(path(1, "b")).files()
        assert cluster[1].replicas.descriptions.gauges().offline_replica_count == 1
        cluster.controller.remove_topic()
        again = TopicId(Uuid(b"V" * 16))
        cluster.controller.create_topic([1, 2], [1, 2], topic_id=again)
        await cluster.started(0, again)
        await cluster.started(1, again)
        hosted = cluster[1].replicas.hosted_directories()
        assert hosted == {(again, 0): directory(1, "b"), (again, 1): directory(1, "b")}

    run(scenario)


def test_a_directory_that_fails_before_its_assignment_was_acknowledged_is_reported() -> None:
    """The metadata still says UNASSIGNED, so the controller does not know that the failure affects the replica. The broker
    therefore reports the failed directory as the replica's directory. Once the metadata has that or LOST, the broker reports
    nothing more."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1], [1])
        for index in (0, 1):
            await cluster.started(index)
        assert sorted(cluster[1].replicas.wished_assignments().values()) == [directory(1, "a"), directory(1, "b")]
        [index] = on_disk(cluster, "a")
        cluster.world.disk(path(1, "a")).fail_with(errno.EIO)
        await cluster.produce(1, "x", index=index)
        assert cluster.controller.partition(index).directories == (UNASSIGNED,)
        assert cluster[1].replicas.wished_assignments()[TopicIdPartition(TOPIC, index)] == directory(1, "a")
        cluster.controller.change(index, directories=[directory(1, "a")])
        assert TopicIdPartition(TOPIC, index) not in cluster[1].replicas.wished_assignments()
        cluster.controller.change(index, directories=[LOST])
        assert TopicIdPartition(TOPIC, index) not in cluster[1].replicas.wished_assignments()
        assert cluster[1].replicas.find(TopicIdPartition(TOPIC, index)) is ErrorCode.KAFKA_STORAGE_ERROR
        # An unclean election now allows the replica to start empty.
        cluster.controller.change(index, directories=[UNASSIGNED], isr=[1], leader=1, leader_recovery_state=1)
        await cluster.until(lambda: cluster[1].leads(index))
        assert on_disk(cluster, "b") == [1 - index, index]

    run(scenario)


def test_a_disk_that_fails_while_a_log_is_created_hands_the_replica_to_the_next() -> None:
    """KAFKA-8526: if the disk's failure shows during the creation of a log, the replica is placed on the other disk."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.world.disk(path(1, "a")).fail_with(errno.EROFS)
        cluster.controller.create_topic([1], [1])
        for index in (0, 1):
            await cluster.started(index)
        assert sorted(on_disk(cluster, "b")) == [0, 1]

    run(scenario)


def test_creations_that_wait_for_a_hung_one_are_handed_on_with_it() -> None:
    """The first creation hangs until its deadline, and then the directory goes offline. The replicas queued behind it have
    no log anywhere yet. They must move to the next disk as well, without a metadata change from the controller."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.world.disk(path(1, "a")).hang()
        cluster.controller.create_topic(*[[1]] * 6)
        for index in range(6):
            await cluster.started(index)
        assert sorted(on_disk(cluster, "b")) == [0, 1, 2, 3, 4, 5]

    run(scenario)


@pytest.mark.parametrize("delay_ns", [0, NS_PER_S // 2])
def test_a_replica_whose_disk_dies_in_its_creation_is_made_once_more_not_twice(delay_ns: int) -> None:
    """Both the directory and the failed creation notify the broker of the failure. If it moved the replica each time, the
    replica would be created in two other directories, and the next start would refuse that. However late the directory's
    failure is handled, the creation finds the directory offline and does not move the replica itself."""

    async def scenario(cluster: Cluster) -> None:
        broker = await cluster.start(1, "abc")
        broker.offline_delay_ns = delay_ns
        found_online: list[bool] = []
        log_dir = broker.log_dirs[directory(1, "a")]
        report = log_dir.on_error
        assert report is not None

        def reporting(error: LogDirError) -> None:
            report(error)
            found_online.append(broker.directories.is_online(directory(1, "a")))

        log_dir.on_error = reporting
        cluster.world.disk(path(1, "a")).fail_fsync_once()
        cluster.controller.create_topic([1], [1], [1])
        await cluster.until(lambda: bool(found_online))
        assert found_online == [False]
        # The replica must not be created twice whatever the metadata does meanwhile.
        for index in range(3):
            cluster.controller.change(index, leader=1)
        await cluster.world.sleep(0.2)
        dying = [index for index in range(3) if broker.replicas.is_being_created(TopicIdPartition(TOPIC, index))]
        assert len(dying) == (1 if delay_ns else 0)
        for index in range(3):
            await cluster.started(index)
        await cluster.world.sleep(1)
        found = [folder for letter in "bc" for folder in cluster.world.disk(path(1, letter)).folders()]
        assert sorted(found) == ["t-0", "t-1", "t-2"]
        assert set(broker.replicas.hosted_directories().values()) == {directory(1, "b"), directory(1, "c")}

    run(scenario)


def test_a_failed_directory_is_refused_before_its_replicas_are_closed() -> None:
    """With thousands of replicas in the directory, closing them takes a while. From the failure on, requests get what they
    get afterwards, the gate counts none of the replicas, and none of them begins to move."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        broker = cluster[1]
        [dead], [alive] = on_disk(cluster, "a"), on_disk(cluster, "b")
        broker.offline_delay_ns = NS_PER_S
        broker.failures.report(LogDirError(path(1, "a"), "probe", errno.EIO))
        await cluster.world.sleep(0.1)
        assert broker.replicas.descriptions.gauges().offline_replica_count == 0
        assert (await cluster.produce(1, "x", index=dead)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await cluster.fetch(1, index=dead)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await cluster.produce(1, "x", index=alive)).error_code == ErrorCode.NONE
        assert list(broker.replicas.hosted_directories()) == [TopicIdPartition(TOPIC, alive)]
        assert broker.replicas.log_dir_alteration.alter("t", dead, path(1, "b")) == alter_error_once_closed(broker, dead)
        cluster.controller.change(dead, leader=NO_LEADER)
        assert (await cluster.produce(1, "x", index=dead)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def alter_error_once_closed(broker: TestBroker, index: int) -> ErrorCode:
        at_once(broker.replicas.handle_directory_offline(directory(1, "a")))
        assert broker.replicas.descriptions.gauges().offline_replica_count == 1
        return broker.replicas.log_dir_alteration.alter("t", index, path(1, "b"))

    run(scenario)


def test_replicas_stay_offline_for_the_metrics_when_the_broker_starts_without_their_disk() -> None:
    """The disk dies, and the broker starts again without it: its replicas are still missing, also once the metadata says
    LOST. Nothing counts any more when the metadata takes them away."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=4)

        def offline_count() -> int:
            return cluster[1].replicas.descriptions.gauges().offline_replica_count

        assert offline_count() == 0
        lost, _ = on_disk(cluster, "a")
        cluster.world.disk(path(1, "a")).fail_with(errno.EIO)
        await cluster.until(lambda: offline_count() == 2)
        cluster.crash(1)
        await cluster.start(1, "ab")
        await cluster.until(lambda: len(on_disk(cluster, "b")) == 2)
        await cluster.world.sleep(1)
        assert offline_count() == 2
        cluster.controller.change(lost, directories=[LOST], leader=NO_LEADER)
        await cluster.world.sleep(1)
        assert offline_count() == 2
        cluster.controller.remove_topic()
        await cluster.world.sleep(1)
        assert offline_count() == 0

    run(scenario)


def test_metadata_closes_a_replica_of_a_failed_directory_before_its_turn() -> None:
    """The new leader's record may come while the replicas of the directory are being closed. The replica must not take a
    role on the dead disk, and it is closed once only."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=4)
        broker = cluster[1]
        first, second = on_disk(cluster, "a")
        held = [cluster[1].partition(index) for index in (first, second)]
        broker.offline_delay_ns = NS_PER_S
        broker.failures.report(LogDirError(path(1, "a"), "probe", errno.EIO))
        await cluster.world.sleep(0.1)
        closing = broker.replicas.handle_directory_offline(directory(1, "a"))
        next(closing)
        assert [each.gone for each in held] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        cluster.controller.change(second, leader=1)
        assert [each.gone for each in held] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        at_once(closing)
        assert broker.replicas.descriptions.gauges().offline_replica_count == 2
        assert [len(on_disk(cluster, letter)) for letter in "ab"] == [0, 2]
        await cluster.world.sleep(2)
        assert broker.replicas.descriptions.gauges().offline_replica_count == 2

    run(scenario)


def test_a_topic_that_is_deleted_while_its_directory_is_closed_leaves_nothing_behind() -> None:
    """The deletion is applied between two replicas of the directory."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=4)
        broker = cluster[1]
        broker.offline_delay_ns = NS_PER_S
        broker.failures.report(LogDirError(path(1, "a"), "probe", errno.EIO))
        await cluster.world.sleep(0.1)
        closing = broker.replicas.handle_directory_offline(directory(1, "a"))
        next(closing)
        cluster.controller.remove_topic()
        at_once(closing)
        gauges = broker.replicas.descriptions.gauges()
        assert (gauges.partition_count, gauges.leader_count, gauges.offline_replica_count) == (0, 0, 0)

    run(scenario)


def test_each_replica_is_freed_in_its_turn_while_its_directory_is_closed() -> None:
    """To free the files of thousands in one step would stop the event loop."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=8)
        broker = cluster[1]
        held = [weakref.ref(broker.partition(index)) for index in on_disk(cluster, "a")]
        broker.offline_delay_ns = NS_PER_S
        broker.failures.report(LogDirError(path(1, "a"), "probe", errno.EIO))
        await cluster.world.sleep(0.1)
        closing = broker.replicas.handle_directory_offline(directory(1, "a"))
        alive = [sum(each() is not None for each in held) for _ in closing]
        assert alive[:4] == [4, 3, 2, 1]

    run(scenario)


def test_a_checkpoint_finds_a_dead_disk_too() -> None:
    """No record is written, but the periodic checkpoint of high watermarks hits the disk error, and the directory goes
    offline."""

    async def scenario(cluster: Cluster) -> None:
        await two_disks(cluster, partitions=2)
        [index] = on_disk(cluster, "a")
        cluster.world.disk(path(1, "a")).fail_with(errno.EIO)
        await cluster.until(lambda: cluster[1].directories.any_offline, within_seconds=6)
        assert cluster[1].replicas.find(TopicIdPartition(TOPIC, index)) is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario)


def test_a_process_short_of_files_breaks_a_log_for_a_moment_only() -> None:
    """Rolling a segment fails with EMFILE. The disk is healthy and stays online. The log does not know what was written, so
    it is loaded again. Then it has exactly the acknowledged records and accepts new ones."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"segment.bytes": "200"})
        await cluster.started()
        disk = cluster.world.disk(path(1, "a"))
        acknowledged = []
        for number in range(12):
            if number == 5:
                disk.fail_with(errno.EMFILE, {"open"})
            value = f"value-{number:02}"
            answer = await cluster.produce(1, value)
            if answer.error_code == ErrorCode.NONE:
                acknowledged.append(value)
        assert 5 <= len(acknowledged) < 12
        await cluster.world.sleep(3)
        assert (await cluster.fetch(1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not cluster[1].directories.any_offline
        disk.heal()
        await cluster.world.event("log_reloaded")
        assert (await cluster.produce(1, "next")).error_code == ErrorCode.NONE
        found: list[str] = []
        while len(found) < cluster[1].partition().log.log_end_offset:
            found += await cluster.read_all(1, offset=len(found))
        assert found == [*acknowledged, "next"]

    run(scenario)


def test_a_topic_deleted_while_its_log_is_to_be_loaded_again() -> None:
    """The deleted topic's log is removed, and its folder name belongs to the next topic of that name. The reload must
    neither load nor delete the new topic's folder."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"segment.bytes": "200"})
        await cluster.started()
        disk = cluster.world.disk(path(1, "a"))
        disk.fail_with(errno.EMFILE, {"open"})
        while (await cluster.produce(1, "old")).error_code == ErrorCode.NONE:
            pass
        # Wait until the reload begins.
        await cluster.until(lambda: cluster[1].partition().log.is_closed)
        cluster.controller.remove_topic()
        cluster.controller.create_topic([1], topic_id=OTHER)
        disk.heal()
        await cluster.started(0, OTHER)
        await cluster.produce(1, "new")
        await cluster.world.sleep(3)
        assert sorted(name.rpartition("-")[2] for name in disk.folders()) == ["0", "delete"]
        cluster.crash(1)
        await cluster.start(1)
        await cluster.started(0, OTHER)
        assert await cluster.read_all(1, topic_id=OTHER) == ["new"]

    run(scenario)
