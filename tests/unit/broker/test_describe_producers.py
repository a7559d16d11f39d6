"""DescribeProducers on a simulated cluster: every replica answers for its own log."""

import pytest

from broker.requests.describe_producers import DescribeProducersRequests
from common.ids import NO_LEADER
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from common.slices import ELEMENTS_PER_SLICE
from common.storage.producers.state import ProducerEntry
from common.storage.producers.state import ProducerState as ProducerEntries
from tests.counted import result_and_turns
from tests.unit.broker.cluster import Cluster, run
from tests.unit.broker.requests.contexts import NoMemory, context
from tests.unit.broker.test_idempotent_produce import elect, produce, sent, two_brokers

TIMESTAMP_MS = 1_700_000_000_000


async def describe(cluster: Cluster, broker_id: int, *indexes: int, topic: str = "t") -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))])
    response = await cluster.request(broker_id, request)
    assert [each.name for each in response.topics] == [topic]
    found: list[PartitionResponse] = response.topics[0].partitions
    return found


def state(producer_id: int, epoch: int, last_sequence: int, last_timestamp: int = TIMESTAMP_MS) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=last_sequence,
        last_timestamp=last_timestamp,
        coordinator_epoch=-1,
    )


def test_leaders_and_followers_know_the_producers_of_their_logs() -> None:
    """Producers come in the order of their ids, each with its last batch. A retry and a producer without an id change
    nothing. A new leader knows what the old one knew."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        assert await describe(cluster, 1, 0) == [PartitionResponse()]
        for records in (
            sent(0, "a", "b"),
            sent(2, "c", timestamp_ms=TIMESTAMP_MS + 5),
            sent(0, "d", producer_id=7, epoch=3),
            sent(0, "a", "b"),
        ):
            assert (await produce(cluster, 1, records))[0] is ErrorCode.NONE
        await cluster.produce(1, "without an id")
        expected = [PartitionResponse(active_producers=[state(7, 3, 0), state(40, 0, 2, TIMESTAMP_MS + 5)])]
        assert await describe(cluster, 1, 0, 0) == expected
        assert await describe(cluster, 2, 0) == expected
        await elect(cluster, 2, isr=[1, 2])
        assert await describe(cluster, 2, 0) == expected

    run(scenario)


def test_a_partition_that_is_not_here_has_an_error() -> None:
    """It does not exist, or other brokers have its replicas. A partition without a leader is described."""

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        await cluster.start(3)
        await produce(cluster, 1, sent(0, "a"))
        assert [each.error_code for each in await describe(cluster, 1, 0, 9)] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        (unknown,) = await describe(cluster, 1, 0, topic="unknown")
        assert (unknown.error_code, unknown.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        (elsewhere,) = await describe(cluster, 3, 0)
        assert (elsewhere.error_code, elsewhere.active_producers) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        cluster.controller.change(leader=NO_LEADER)
        await cluster.until(lambda: not cluster[1].leads())
        assert await describe(cluster, 1, 0) == [PartitionResponse(active_producers=[state(40, 0, 0)])]

    run(scenario)


@pytest.mark.parametrize("is_many_partitions", [False, True])
def test_many_producers_are_described_in_slices(*, is_many_partitions: bool) -> None:
    """Counts the turns of the event loop, for many producers of a partition and for many partitions."""
    count = 3 * ELEMENTS_PER_SLICE

    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        entries = {
            producer_id: ProducerEntry(epoch=3) for producer_id in reversed(range(5 if is_many_partitions else count))
        }
        cluster[1].partition().log.producers.state = ProducerEntries(entries)
        indexes = list(range(count if is_many_partitions else 1))
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=indexes)])
        memory = NoMemory()
        asked = context(ApiKey.DESCRIBE_PRODUCERS, 0, memory=memory)
        answer = DescribeProducersRequests(cluster[1].replicas).handle(asked, request)
        assert not isinstance(answer, DescribeProducersResponse)
        assert memory.expected_bytes > 0
        response, turns = await result_and_turns(answer)
        assert turns > 2
        [topic] = response.topics
        assert [each.partition_index for each in topic.partitions] == indexes
        assert [each.producer_id for each in topic.partitions[0].active_producers] == sorted(entries)

    run(scenario)


def test_many_topics_without_partitions_are_answered_in_slices() -> None:
    async def scenario(cluster: Cluster) -> None:
        await two_brokers(cluster)
        topics = [TopicRequest(name=f"topic-{number}") for number in range(3 * ELEMENTS_PER_SLICE)]
        answer = DescribeProducersRequests(cluster[1].replicas).handle(
            context(ApiKey.DESCRIBE_PRODUCERS, 0), DescribeProducersRequest(topics=topics)
        )
        assert not isinstance(answer, DescribeProducersResponse)
        response, turns = await result_and_turns(answer)
        assert turns > 2
        assert [each.name for each in response.topics] == [each.name for each in topics]

    run(scenario)
