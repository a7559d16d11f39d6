"""DeleteRecords raises the log start at the leader and waits for the ISR (KIP-107)."""

import asyncio

import pytest

from broker.requests.delete_records import DeleteRecordsHandler
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from common.slices import ELEMENTS_PER_SLICE, ITEMS_PER_SLICE
from common.time_units import NS_PER_MS
from tests.counted import result_and_turns
from tests.unit.broker.cluster import Cluster, directory, path, run
from tests.unit.broker.requests.contexts import context
from tests.unit.broker.test_moves import alter, assign_directories, finished


async def delete(
    cluster: Cluster, broker_id: int, *offsets: tuple[str, int, int], timeout_ms: int = 10_000, version: int | None = None
) -> list[DeleteRecordsPartitionResult]:
    """Sends one request for (topic, partition, offset) and returns the results in the same order."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
            for topic, index, offset in offsets
        ],
        timeout_ms=timeout_ms,
    )
    response = await cluster.request(broker_id, request, version=version)
    return [topic.partitions[0] for topic in response.topics]


async def with_records(cluster: Cluster, replicas: list[int], **configs: str) -> None:
    for broker_id in replicas:
        await cluster.start(broker_id)
    cluster.controller.create_topic(replicas, configs={key.replace("_", "."): each for key, each in configs.items()})
    await cluster.started()
    for value in "abcde":
        assert (await cluster.produce(replicas[0], value)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("offset", "start"), [(3, 3), (-1, 5), (5, 5), (0, 0)])
def test_records_below_the_offset_are_gone(offset: int, start: int, version: int) -> None:
    """Offset -1 is the high watermark."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1])
        [result] = await delete(cluster, 1, ("t", 0, offset), version=version)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, start)
        assert await cluster.read_all(1, start) == list("abcde")[start:]
        if start:
            assert (await cluster.fetch(1, start - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


def test_the_start_never_goes_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1])
        assert (await delete(cluster, 1, ("t", 0, 4)))[0].low_watermark == 4
        assert (await delete(cluster, 1, ("t", 0, 2)))[0].low_watermark == 4

    run(scenario)


def test_every_follower_in_sync_has_deleted_them_when_the_answer_comes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1, 2, 3])
        [result] = await delete(cluster, 1, ("t", 0, 3))
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 3)
        assert [cluster[broker_id].partition().log.log_start_offset for broker_id in (1, 2, 3)] == [3, 3, 3]

    run(scenario)


def test_a_waiting_fetch_of_a_follower_does_not_delay_the_answer() -> None:
    """The leader ends the waits of its followers' fetches, and their next fetches report the new start. So two round trips
    do, where each fetch may wait for 500 ms."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1, 2, 3])
        for offset in (1, 2, 3):
            before_ns = cluster.world.now_ns()
            [result] = await delete(cluster, 1, ("t", 0, offset))
            assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, offset)
            assert cluster.world.now_ns() - before_ns < 100 * NS_PER_MS

    run(scenario)


def test_a_follower_in_sync_that_does_not_answer_is_waited_for() -> None:
    """The records are gone at the leader all the same. Once the follower has left the ISR, it no longer counts."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1, 2])
        cluster.crash(2)
        before_ns = cluster.world.now_ns()
        [result] = await delete(cluster, 1, ("t", 0, 3), timeout_ms=1000)
        assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert cluster.world.now_ns() - before_ns >= 10**9
        assert cluster[1].partition().log.log_start_offset == 3
        cluster.controller.fence(2)
        cluster.controller.change(isr=[1])
        [result] = await delete(cluster, 1, ("t", 0, 3), timeout_ms=1000)
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 3)

    run(scenario)


def test_a_leader_that_is_deposed_meanwhile_says_so() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1, 2])
        cluster.crash(2)
        cluster.world.loop.call_later(1, lambda: cluster.controller.change(leader=2))
        [result] = await delete(cluster, 1, ("t", 0, 3))
        assert (result.error_code, result.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(scenario)


def test_each_partition_has_its_own_error() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1])
        results = await delete(
            cluster, 1, ("t", 0, 6), ("t", 0, -2), ("t", 7, 0), ("none", 0, 0), ("__consumer_offsets", 0, 0), ("t", 0, 2)
        )
        assert [result.error_code for result in results] == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
        ]
        assert [result.low_watermark for result in results] == [-1] * 5 + [2]

    run(scenario)


@pytest.mark.parametrize(
    ("policy", "error"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE), ("", ErrorCode.NONE)]
)
def test_a_topic_that_is_only_compacted_refuses(policy: str, error: ErrorCode) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], configs={"cleanup.policy": policy})
        await cluster.started()
        [result] = await delete(cluster, 1, ("t", 0, 0))
        assert result.error_code == error

    run(scenario)


def test_the_segments_go_with_the_next_check_of_retention() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1], segment_bytes="150")
        log = cluster[1].partition().log
        assert len(log.segment_base_offsets) > 2
        await delete(cluster, 1, ("t", 0, 5))
        await cluster.until(lambda: len(log.segment_base_offsets) == 1)

    run(scenario, log_retention_check_interval_ms="1000")


def test_the_start_moves_along_to_another_directory() -> None:
    async def scenario(cluster: Cluster) -> None:
        assign_directories(cluster)
        await cluster.start(1, "ab")
        cluster.controller.create_topic([1])
        await cluster.started()
        cluster.controller.change(directories=[directory(1, "a")])
        for value in "abcde":
            await cluster.produce(1, value)
        assert alter(cluster, path(1, "b")) is ErrorCode.NONE
        assert (await delete(cluster, 1, ("t", 0, 4)))[0].low_watermark == 4
        await cluster.until(cluster[1].replicas.wished_assignments)
        cluster.controller.change(directories=[directory(1, "b")])
        await finished(cluster)
        assert cluster[1].partition().log.log_start_offset == 4
        assert await cluster.read_all(1, 4) == ["e"]

    run(scenario)


def test_the_records_of_many_partitions_are_deleted_in_slices() -> None:
    """Counts the turns of the event loop. The results are in the order of the request."""

    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1])
        indexes = [*range(3 * ELEMENTS_PER_SLICE), 0]
        asking = DeleteRecordsHandler(cluster[1].env, cluster[1].replicas).handle(
            context(ApiKey.DELETE_RECORDS, 2), _request(indexes, timeout_ms=1000)
        )
        response, turns = await result_and_turns(asking)
        assert turns > len(indexes) // ITEMS_PER_SLICE
        [topic] = response.topics
        assert [each.partition_index for each in topic.partitions] == indexes
        assert {each.low_watermark for each in topic.partitions if each.partition_index == 0} == {3}
        assert {each.error_code for each in topic.partitions if each.partition_index} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }

    run(scenario)


def test_the_answer_waits_for_the_follower_of_a_later_partition() -> None:
    """The partition before has none, so its wait is over before the other one has begun."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1], [1, 2])
        for index in (0, 1):
            await cluster.started(index)
            assert (await cluster.produce(1, "a", index=index)).error_code == ErrorCode.NONE
        cluster.crash(2)
        alone, followed = await delete(cluster, 1, ("t", 0, 1), ("t", 1, 1), timeout_ms=1000)
        assert (alone.error_code, alone.low_watermark) == (ErrorCode.NONE, 1)
        assert followed.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_many_topics_without_partitions_are_answered_in_slices() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1])
        topics = [DeleteRecordsTopic(name=f"topic-{number}") for number in range(3 * ELEMENTS_PER_SLICE)]
        asking = DeleteRecordsHandler(cluster[1].env, cluster[1].replicas).handle(
            context(ApiKey.DELETE_RECORDS, 2), DeleteRecordsRequest(topics=topics, timeout_ms=1000)
        )
        response, turns = await result_and_turns(asking)
        assert turns > len(topics) // ITEMS_PER_SLICE
        assert len(response.topics) == len(topics)

    run(scenario)


def test_many_waits_for_a_follower_end_at_the_deadline_in_slices() -> None:
    async def scenario(cluster: Cluster) -> None:
        await with_records(cluster, [1, 2])
        cluster.crash(2)
        indexes = [0] * (ELEMENTS_PER_SLICE + 1)
        begun_ns = cluster.world.now_ns()
        asking = DeleteRecordsHandler(cluster[1].env, cluster[1].replicas).handle(
            context(ApiKey.DELETE_RECORDS, 2), _request(indexes, timeout_ms=1000)
        )
        answering, turns = asyncio.ensure_future(asking), 0
        await cluster.world.sleep(0.999)
        while not answering.done():
            has_ended = cluster.world.now_ns() - begun_ns >= 1000 * NS_PER_MS
            await (asyncio.sleep(0) if has_ended else cluster.world.sleep(0.001))
            turns += has_ended
        [topic] = (await answering).topics
        assert {each.error_code for each in topic.partitions} == {ErrorCode.REQUEST_TIMED_OUT}
        assert turns >= len(indexes) // ITEMS_PER_SLICE

    run(scenario)


def _request(indexes: list[int], *, timeout_ms: int) -> DeleteRecordsRequest:
    wanted = [DeleteRecordsPartition(partition_index=index, offset=3) for index in indexes]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)], timeout_ms=timeout_ms)
