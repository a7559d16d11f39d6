"""A partition's log is replaced while produce requests wait: the same log is loaded again, or a log in another directory
takes over."""

import asyncio
import errno
from typing import Any

import pytest

from broker.core.partition_replica import Effect, PartitionReplica
from broker.hosting.partition import Partition, PlacedLog
from broker.hosting.purgatory import FOLLOWERS_DELAY_NS, FetchWait, PartitionWatcher, WatchedPartitions
from broker.hosting.readable_bytes import ReadIsolation
from common.ids import Offset, TopicIdPartition
from common.protocol.errors import ErrorCode
from common.storage.log import Log
from common.time_units import NS_PER_S
from tests.simulation.log_dir import SimulatedLogDir
from tests.unit.broker.cluster import TOPIC, Cluster, directory, path, run
from tests.unit.common.storage.batches import batch


async def leader_with_waiting_produces(cluster: Cluster, *values: str) -> list[asyncio.Task[ErrorCode]]:
    """Starts a partition that broker 1 leads on disk a, and produces these values. The produce requests wait, because the
    follower is cut off."""
    for broker_id in (1, 2):
        await cluster.start(broker_id, "ab")
    cluster.controller.create_topic([1, 2])
    await cluster.started()
    assert (await cluster.produce(1, "committed")).error_code == ErrorCode.NONE
    cluster.world.network.cut("broker-2", "broker-1")
    waiting = []
    for number, value in enumerate(values):
        waiting.append(asyncio.ensure_future(error_of(cluster, value)))
        await cluster.until(lambda end=number + 2: cluster[1].partition().log.written_offset == end)
    return waiting


async def error_of(cluster: Cluster, value: str) -> ErrorCode:
    return ErrorCode((await cluster.produce(1, value)).error_code)


async def copy_to_disk_b(cluster: Cluster) -> PlacedLog:
    """Copies the log to disk b, as a move between directories does. The copy has caught up with the original."""
    partition = cluster[1].partition()
    for name, content in cluster.world.disk(path(1, "a")).files_in("t-0").items():
        cluster.world.disk(path(1, "b")).write(name, content)
    log = await Log.load(cluster[1].log_dirs[directory(1, "b")], "t-0", partition.config)
    return PlacedLog(directory(1, "b"), log)


def test_produces_wait_on_while_the_log_is_loaded_again() -> None:
    """A later append fails for lack of memory, and its request is refused. The log is loaded again, still with the records
    written before. They are acknowledged when the follower has them."""

    async def scenario(cluster: Cluster) -> None:
        [waiting] = await leader_with_waiting_produces(cluster, "waiting")
        cluster.world.disk(path(1, "a")).fail_next("append", errno.ENOMEM)
        assert await error_of(cluster, "refused") is ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.world.event("log_reloaded")
        assert not waiting.done()
        cluster.world.network.mend("broker-2", "broker-1")
        assert await waiting is ErrorCode.NONE
        assert await cluster.read_all(1) == ["committed", "waiting"]

    run(scenario)


def test_produces_wait_on_when_a_log_in_another_directory_takes_over() -> None:
    """A step of a move between directories (KIP-113): the future log has caught up and replaces the current one. The
    partition is then in the future log's directory."""

    async def scenario(cluster: Cluster) -> None:
        waiting = await leader_with_waiting_produces(cluster, "one", "two")
        partition = cluster[1].partition()
        assert partition.future is None
        placed = partition.future = await copy_to_disk_b(cluster)
        assert partition.directory_id == directory(1, "a")
        partition.begin_restructuring()
        assert await error_of(cluster, "blocked") is ErrorCode.KAFKA_STORAGE_ERROR
        partition.replace_log(placed)
        partition.end_restructuring()
        assert (partition.log, partition.directory_id) == (placed.log, directory(1, "b"))
        assert partition.future is None
        assert cluster[1].replicas.hosted_directories() == {TopicIdPartition(TOPIC, 0): directory(1, "b")}
        assert not any(each.done() for each in waiting)
        cluster.world.network.mend("broker-2", "broker-1")
        assert [await each for each in waiting] == [ErrorCode.NONE, ErrorCode.NONE]
        assert await error_of(cluster, "three") is ErrorCode.NONE
        assert await cluster.read_all(1) == ["committed", "one", "two", "three"]

    run(scenario)


def test_produces_fail_that_the_new_log_does_not_hold() -> None:
    """The new log has the first record but not the second. The second request must fail, because no log has its record any
    more. The first request waits on and is acknowledged."""

    async def scenario(cluster: Cluster) -> None:
        [first] = await leader_with_waiting_produces(cluster, "first")
        placed = await copy_to_disk_b(cluster)
        assert placed.log.written_offset == Offset(2)
        second = asyncio.ensure_future(error_of(cluster, "second"))
        partition = cluster[1].partition()
        await cluster.until(lambda: partition.log.written_offset == 3)
        partition.begin_restructuring()
        partition.replace_log(placed)
        partition.end_restructuring()
        assert await second is ErrorCode.KAFKA_STORAGE_ERROR
        assert not first.done()
        cluster.world.network.mend("broker-2", "broker-1")
        assert await first is ErrorCode.NONE

    run(scenario)


def test_a_future_replica_is_described_in_its_own_directory_with_its_distance_to_the_current_log() -> None:
    """DescribeLogDirs shows both replicas during a move. The future replica lags by the records that were written after it
    was copied. Once the future replica has taken over, only the current replica is shown."""

    async def scenario(cluster: Cluster) -> None:
        await leader_with_waiting_produces(cluster, "one")
        replicas, partition = cluster[1].replicas, cluster[1].partition()
        placed = partition.future = await copy_to_disk_b(cluster)
        asyncio.ensure_future(error_of(cluster, "two")).add_done_callback(lambda _: None)
        await cluster.until(lambda: partition.log.written_offset == 3)
        current, future = replicas.descriptions.every()
        assert (current.directory_id, current.is_future) == (directory(1, "a"), False)
        assert current.size_bytes == partition.log.size_bytes
        assert (future.topic, future.index, future.directory_id) == (current.topic, current.index, directory(1, "b"))
        assert (future.is_future, future.size_bytes, future.offset_lag) == (True, placed.log.size_bytes, 1)
        partition.begin_restructuring()
        partition.replace_log(placed)
        partition.end_restructuring()
        [current] = replicas.descriptions.every()
        assert (current.directory_id, current.is_future) == (directory(1, "b"), False)

    run(scenario)


@pytest.mark.parametrize("acks", ["1", "all"])
def test_appends_that_are_written_together_are_taken_over_together(monkeypatch: pytest.MonkeyPatch, acks: str) -> None:
    """The high watermark and the waiting fetches are looked at once for all of them. All are acknowledged in order, and all
    their bytes count as readable."""
    held: list[tuple[Any, ...]] = []

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        partition = cluster[1].partition()
        looks: list[Offset] = []
        written = PartitionReplica.written

        def counted(replica: PartitionReplica, end_offset: Offset, now_ns: int) -> list[Effect]:
            looks.append(end_offset)
            return written(replica, end_offset, now_ns)

        monkeypatch.setattr(PartitionReplica, "written", counted)
        monkeypatch.setattr(SimulatedLogDir, "start_append", lambda *arguments: held.append(arguments))
        ended: list[object] = []

        def acknowledge(end_offset: Offset) -> None:
            if acks == "1":
                ended.append(end_offset)
            else:
                partition.wait_until_replicated(end_offset, lambda error: ended.append((end_offset, error)))

        size = 0
        for _ in range(3):
            header, view = batch(size=50)
            size += header.size
            partition.append_as_leader([(header, view)], on_written=acknowledge, on_failed=lambda: ended.append("failed"))
        for log_dir, file, position, buffers, _ in held:
            await log_dir.append(file, position, buffers)
        assert ended == []
        before = partition.readable_bytes(ReadIsolation.HIGH_WATERMARK)
        for arguments in held:
            arguments[-1].set_result(None)
        await asyncio.sleep(0)
        assert ended == ([1, 2, 3] if acks == "1" else [(end, ErrorCode.NONE) for end in (1, 2, 3)])
        assert looks == [3]
        assert partition.high_watermark == 3
        for isolation in ReadIsolation:
            assert partition.readable_bytes(isolation) - before == size

    run(scenario)


def test_consumers_are_woken_before_producers_are_answered() -> None:
    """The order of Kafka's DelayedOperations.checkAndCompleteAll."""

    async def scenario(cluster: Cluster) -> None:
        [waiting] = await leader_with_waiting_produces(cluster, "one")
        partition, env = cluster[1].partition(), cluster[1].env
        watched: WatchedPartitions[PartitionWatcher] = WatchedPartitions()
        watcher = PartitionWatcher(watched, ReadIsolation.HIGH_WATERMARK)
        watcher.seen_bytes = partition.readable_bytes(ReadIsolation.HIGH_WATERMARK)
        watched.wait = FetchWait(env, min_bytes=1, deadline_ns=env.now_ns() + 60 * NS_PER_S)
        partition.fetch_watchers.add(watcher)
        consumer_was_woken: list[bool] = []
        wait = watched.wait
        partition.wait_until_replicated(Offset(2), lambda _: consumer_was_woken.append(wait.is_over))
        assert not wait.is_over
        cluster.world.network.mend("broker-2", "broker-1")
        assert await waiting is ErrorCode.NONE
        assert consumer_was_woken == [True]

    run(scenario)


class WaitingFetch:
    """The fetch of a follower, or of a consumer, that waits at the partition that broker 1 leads."""

    def __init__(self, cluster: Cluster, isolation: ReadIsolation = ReadIsolation.LOG_END) -> None:
        env, partition = cluster[1].env, cluster[1].partition()
        watched: WatchedPartitions[PartitionWatcher] = WatchedPartitions()
        self.watcher = PartitionWatcher(watched, isolation)
        self.watcher.seen_bytes = partition.readable_bytes(isolation)
        self.wait = watched.wait = FetchWait(env, min_bytes=1, deadline_ns=env.now_ns() + 60 * NS_PER_S)
        partition.fetch_watchers.add(self.watcher)


async def append_one(partition: Partition, *, acks: str = "1") -> None:
    """Appends a record. The producer has its answer, or waits for the high watermark, when this returns."""
    is_written = asyncio.Event()

    def written(end_offset: Offset) -> None:
        if acks == "all":
            partition.wait_until_replicated(end_offset, lambda _: None)
        is_written.set()

    partition.append_as_leader([batch()], on_written=written, on_failed=lambda: None)
    await is_written.wait()


async def leader_of_two(cluster: Cluster) -> Partition:
    """Starts a partition that broker 1 leads. Its follower is in the ISR, and sends nothing."""
    for broker_id in (1, 2):
        await cluster.start(broker_id)
    cluster.controller.create_topic([1, 2])
    await cluster.started()
    assert (await cluster.produce(1, "committed")).error_code == ErrorCode.NONE
    cluster.world.network.cut("broker-2", "broker-1")
    await cluster.world.sleep(1)
    return cluster[1].partition()


def test_followers_wait_a_moment_for_a_stream_that_nobody_waits_for() -> None:
    """Records with acks=1. The first ends a wait at once, the second one FOLLOWERS_DELAY_NS later, and the third changes
    nothing. So does the next stream after a pause."""

    async def scenario(cluster: Cluster) -> None:
        partition = await leader_of_two(cluster)
        for _ in range(2):
            first = WaitingFetch(cluster)
            await append_one(partition)
            assert first.wait.is_over
            second = WaitingFetch(cluster)
            await append_one(partition)
            written_ns = cluster.world.now_ns()
            await append_one(partition)
            assert not second.wait.is_over
            await second.wait.until_over()
            assert cluster.world.now_ns() == written_ns + FOLLOWERS_DELAY_NS
            await cluster.world.sleep(FOLLOWERS_DELAY_NS / NS_PER_S)

    run(scenario)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    "who", ["a producer", "a consumer", "a consumer of committed transactions", "a follower's consumer"]
)
def test_followers_get_at_once_what_somebody_waits_for(who: str, is_first: bool) -> None:
    """In a stream, whoever waits for the high watermark waits for the followers. If it is not the first record, they are
    already to be woken in a moment, because of one with acks=1."""

    async def scenario(cluster: Cluster) -> None:
        partition = await leader_of_two(cluster)
        await append_one(partition)
        follower = WaitingFetch(cluster)
        if not is_first:
            await append_one(partition)
            assert not follower.wait.is_over
        if who == "a consumer":
            WaitingFetch(cluster, ReadIsolation.HIGH_WATERMARK)
        elif who == "a consumer of committed transactions":
            WaitingFetch(cluster, ReadIsolation.TXN_COMMITTED)
        elif who == "a follower's consumer":
            follower.watcher.ends_with_high_watermark = True
        await append_one(partition, acks="all" if who == "a producer" else "1")
        assert follower.wait.is_over

    run(scenario)


def test_followers_get_what_a_new_leader_has_fetched_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the new leader is slow: a record of the former leader is written when this broker leads already, and a
    follower waits for it."""
    held: list[tuple[Any, ...]] = []

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([2, 1])
        await cluster.started()
        partition = cluster[1].partition()
        with monkeypatch.context() as slow:
            slow.setattr(SimulatedLogDir, "start_append", lambda *arguments: held.append(arguments))
            header, view = batch(epoch=0)
            partition.append_as_follower([(header, view)], view, on_done=lambda _: None)
        cluster.world.network.cut("broker-2", "broker-1")
        cluster.controller.change(leader=1)
        await cluster.until(lambda: partition.is_leader)
        follower = WaitingFetch(cluster)
        [(log_dir, file, position, buffers, append)] = held
        await log_dir.append(file, position, buffers)
        append.set_result(None)
        await asyncio.sleep(0)
        assert partition.log.written_offset == 1
        await cluster.world.sleep(FOLLOWERS_DELAY_NS / NS_PER_S)
        assert follower.wait.is_over

    run(scenario)


@pytest.mark.parametrize("who", ["a producer", "a consumer"])
def test_followers_get_the_records_as_soon_as_somebody_begins_to_wait(who: str) -> None:
    """The record was written before, with acks=1. The fetch of a follower changes nothing; that of a consumer does."""

    async def scenario(cluster: Cluster) -> None:
        partition = await leader_of_two(cluster)
        await append_one(partition)
        follower = WaitingFetch(cluster)
        await append_one(partition)
        assert not follower.wait.is_over
        written_ns = cluster.world.now_ns()
        if who == "a producer":
            partition.wait_until_replicated(partition.log.log_end_offset, lambda _: None)
        else:
            fetching = asyncio.ensure_future(cluster.fetch(1, offset=1, max_wait_ms=30_000))
            await cluster.until(lambda: follower.wait.is_over)
            fetching.cancel()
        assert follower.wait.is_over
        assert cluster.world.now_ns() < written_ns + FOLLOWERS_DELAY_NS

    run(scenario)


def test_a_partition_is_never_notified_of_no_write_at_all() -> None:
    async def scenario(cluster: Cluster) -> None:
        await leader_with_waiting_produces(cluster, "one")
        with pytest.raises(AssertionError, match="at least one batch"):
            cluster[1].partition().note_written([])

    run(scenario)
