"""ListOffsets and OffsetForLeaderEpoch requests."""

from collections.abc import Sequence
from typing import Any

import pytest

from broker.requests.list_offsets import ListOffsetsHandler
from broker.requests.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from common.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from common.slices import ELEMENTS_PER_SLICE
from tests.counted import result_and_turns
from tests.unit.broker.cluster import Cluster, batch, run
from tests.unit.broker.requests.contexts import context

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


async def offset_at(
    cluster: Cluster, timestamp: int, *, version: int | None = None, replica_id: int = -1, broker: int = 1, **fields: Any
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)])
        ],
    )
    response = await cluster.request(broker, request, version=version)
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


async def epoch_end(cluster: Cluster, epoch: int, **fields: Any) -> EpochEndOffset:
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **fields)])
        ]
    )
    response = await cluster.request(1, request)
    answer: EpochEndOffset = response.topics[0].partitions[0]
    return answer


async def some_records(cluster: Cluster, replicas: tuple[int, ...] = (1,)) -> None:
    """Starts brokers and writes offsets 0 to 4 with the times 100, 200, 300, 250 and 400."""
    for broker_id in replicas:
        await cluster.start(broker_id)
    cluster.controller.create_topic(list(replicas))
    await cluster.started()
    for number, time_ms in enumerate((100, 200, 300, 250, 400)):
        await cluster.produce(1, records=batch(f"v{number}", timestamp_ms=time_ms))


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (LATEST, (-1, 5)),
        (EARLIEST, (-1, 0)),
        (EARLIEST_LOCAL, (-1, 0)),
        (LATEST_TIERED, (-1, -1)),
        (EARLIEST_PENDING_UPLOAD, (-1, -1)),
        (MAX_TIMESTAMP, (400, 4)),
        (0, (100, 0)),
        (100, (100, 0)),
        (101, (200, 1)),
        (201, (300, 2)),
        (301, (400, 4)),
        (401, (-1, -1)),
    ],
)
def test_ends_and_times_are_answered_with_their_offsets(timestamp: int, expected: tuple[int, int]) -> None:
    """Asks for either end of the log, and for the first record, in offset order, with at least a given timestamp."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster)
        answer = await offset_at(cluster, timestamp)
        assert (answer.error_code, answer.timestamp, answer.offset) == (ErrorCode.NONE, *expected)

    run(scenario)


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (LATEST, 1, ErrorCode.NONE),
        (LATEST, 4, ErrorCode.NONE),
        (LATEST, 10, ErrorCode.NONE),
        (MAX_TIMESTAMP, 6, ErrorCode.UNSUPPORTED_VERSION),
        (MAX_TIMESTAMP, 7, ErrorCode.NONE),
        (EARLIEST_LOCAL, 7, ErrorCode.UNSUPPORTED_VERSION),
        (EARLIEST_LOCAL, 8, ErrorCode.NONE),
        (LATEST_TIERED, 8, ErrorCode.UNSUPPORTED_VERSION),
        (LATEST_TIERED, 9, ErrorCode.NONE),
        (EARLIEST_PENDING_UPLOAD, 10, ErrorCode.UNSUPPORTED_VERSION),
        (EARLIEST_PENDING_UPLOAD, 11, ErrorCode.NONE),
        (-99, 1, ErrorCode.UNSUPPORTED_VERSION),
        (-(2**63), 10, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_special_timestamps_have_a_first_version(timestamp: int, version: int, expected: ErrorCode) -> None:
    """If the broker or the request's version does not know a special timestamp, the request is refused. The value is not
    searched for as a time."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster)
        assert (await offset_at(cluster, timestamp, version=version)).error_code == expected

    run(scenario)


def test_a_consumer_sees_the_high_watermark_and_a_follower_the_written_end() -> None:
    """A consumer does not see uncommitted records, not even in a search by time. A follower does."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster, (1, 2))
        cluster.crash(2)
        await cluster.produce(1, records=batch("x", timestamp_ms=900), acks=1)
        assert (await offset_at(cluster, LATEST)).offset == 5
        assert (await offset_at(cluster, LATEST, replica_id=2)).offset == 6
        assert (await offset_at(cluster, 500)).offset == -1
        assert (await offset_at(cluster, 500, replica_id=2)).offset == 5

    run(scenario)


@pytest.mark.parametrize(("version", "expected"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)])
def test_a_fresh_leader_does_not_let_consumers_go_back(version: int, expected: ErrorCode) -> None:
    """Until the new leader's high watermark has reached the start of its epoch, it may be lower than one that consumers have
    seen (KIP-207)."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster, (1, 2))
        cluster.crash(2)
        await cluster.produce(1, "x", acks=1)
        cluster.controller.change(leader=1)
        assert (await offset_at(cluster, LATEST, version=version)).error_code == expected
        assert (await offset_at(cluster, EARLIEST, version=version)).error_code == ErrorCode.NONE
        cluster.controller.change(isr=[1])
        cluster.controller.fence(2)
        assert (await offset_at(cluster, LATEST, version=version)).offset == 6

    run(scenario)


@pytest.mark.parametrize(("version", "expected"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (7, ErrorCode.OFFSET_NOT_AVAILABLE)])
def test_a_fresh_leader_does_not_deny_a_record_that_may_be_committed(version: int, expected: ErrorCode) -> None:
    """The previous leader may have served the record at time 900, so the new leader must not report that there is none.
    Records below the high watermark are still found."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster, (1, 2))
        cluster.crash(2)
        await cluster.produce(1, records=batch("x", timestamp_ms=900), acks=1)
        cluster.controller.change(leader=1)
        for timestamp in (500, 1000):
            assert (await offset_at(cluster, timestamp, version=version)).error_code == expected
        assert (await offset_at(cluster, 101, version=version)).offset == 1
        assert (await offset_at(cluster, 500, version=version, replica_id=2)).offset == 5
        assert (await offset_at(cluster, LATEST_TIERED)).error_code == ErrorCode.NONE
        cluster.controller.change(isr=[1])
        cluster.controller.fence(2)
        assert (await offset_at(cluster, 500, version=version)).offset == 5
        assert (await offset_at(cluster, 1000, version=version)).offset == -1

    run(scenario)


def test_the_debugging_replica_id_asks_a_replica_for_its_own_end() -> None:
    """A follower answers it too, and the leader answers with its written end."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster, (1, 2))
        for broker in (1, 2):
            for timestamp, expected in ((EARLIEST, 0), (LATEST, 5), (201, 2)):
                answer = await offset_at(cluster, timestamp, replica_id=-2, broker=broker)
                assert (answer.error_code, answer.offset) == (ErrorCode.NONE, expected)
        assert (await offset_at(cluster, LATEST, broker=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (
            await offset_at(cluster, LATEST, replica_id=-2, broker=2, current_leader_epoch=99)
        ).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        # While the follower's log is cut, nothing is read there.
        cluster[2].partition().begin_restructuring()
        assert (await offset_at(cluster, LATEST, replica_id=-2, broker=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster[2].partition().end_restructuring()
        cluster.crash(2)
        await cluster.produce(1, records=batch("x"), acks=1)
        assert (await offset_at(cluster, LATEST, replica_id=-2)).offset == 6

    run(scenario)


@pytest.mark.parametrize(("time_ms", "expected"), [(900, (ErrorCode.OFFSET_NOT_AVAILABLE, -1)), (150, (ErrorCode.NONE, 4))])
def test_a_fresh_leader_tells_the_newest_record_if_it_is_committed(time_ms: int, expected: tuple[ErrorCode, int]) -> None:
    """MAX_TIMESTAMP gets an error only if the record with the greatest timestamp is not below the high watermark."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster, (1, 2))
        cluster.crash(2)
        await cluster.produce(1, records=batch("x", timestamp_ms=time_ms), acks=1)
        cluster.controller.change(leader=1)
        answer = await offset_at(cluster, MAX_TIMESTAMP)
        assert (answer.error_code, answer.offset) == expected

    run(scenario)


def test_list_offsets_refuses_duplicates_and_strangers() -> None:
    """A partition that is in the request twice gets one answer, an error, as in Apache Kafka. So do one that is unknown and
    one with a wrong leader epoch."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster)
        twice = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 0, 3)]
        response = await cluster.request(
            1, ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
        )
        assert [(answer.error_code, answer.offset) for answer in response.topics[0].partitions] == [
            (ErrorCode.INVALID_REQUEST, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]
        answer = await offset_at(cluster, LATEST, current_leader_epoch=3)
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(scenario)


@pytest.mark.parametrize("indexes", [range(3 * ELEMENTS_PER_SLICE), (0,) * 3 * ELEMENTS_PER_SLICE])
def test_many_partitions_are_answered_in_slices(indexes: Sequence[int]) -> None:
    """Counts the turns of the event loop. It turns also if the same partition is named again and again."""

    async def scenario(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=wanted)])
        asking = ListOffsetsHandler(broker.replicas).handle(context(ApiKey.LIST_OFFSETS, 9), request)
        response, turns = await result_and_turns(asking)
        assert turns > 2
        [topic] = response.topics
        assert [each.partition_index for each in topic.partitions] == list(dict.fromkeys(indexes))

    run(scenario)


@pytest.mark.parametrize("api_key", [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_many_topics_without_partitions_are_answered_in_slices(api_key: ApiKey) -> None:
    async def scenario(cluster: Cluster) -> None:
        replicas = (await cluster.start(1)).replicas
        names = [f"topic-{number}" for number in range(3 * ELEMENTS_PER_SLICE)]
        asking: Any
        if api_key is ApiKey.LIST_OFFSETS:
            offsets = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name) for name in names])
            asking = ListOffsetsHandler(replicas).handle(context(api_key, 9), offsets)
        else:
            epochs = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name) for name in names])
            asking = OffsetForLeaderEpochHandler(replicas).handle(context(api_key, 4), epochs)
            assert not isinstance(asking, OffsetForLeaderEpochResponse)
        response, turns = await result_and_turns(asking)
        assert turns > 2
        assert len(response.topics) == len(names)

    run(scenario)


def test_offset_for_leader_epoch() -> None:
    """Asks for the end of an epoch with records, of one without records, and of epochs that never existed."""

    async def scenario(cluster: Cluster) -> None:
        await some_records(cluster)
        for _ in range(3):
            cluster.controller.change(leader=1)
        await cluster.produce(1, "x")
        found = [await epoch_end(cluster, epoch) for epoch in (0, 1, 2, 3, 4, -1)]
        assert [(answer.leader_epoch, answer.end_offset) for answer in found] == [
            (0, 5),
            (0, 5),
            (0, 5),
            (3, 6),
            (-1, -1),
            (-1, -1),
        ]
        assert (await epoch_end(cluster, 0, current_leader_epoch=1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await epoch_end(cluster, 0, current_leader_epoch=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(scenario)


def test_many_epochs_are_looked_up_in_slices() -> None:
    """Counts the turns of the event loop. The answers are in the order of the request."""

    async def scenario(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        wanted = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(3 * ELEMENTS_PER_SLICE)]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=wanted)])
        asking = OffsetForLeaderEpochHandler(broker.replicas).handle(context(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4), request)
        assert not isinstance(asking, OffsetForLeaderEpochResponse)
        response, turns = await result_and_turns(asking)
        assert turns > 2
        [topic] = response.topics
        assert [each.partition for each in topic.partitions] == [each.partition for each in wanted]

    run(scenario)
