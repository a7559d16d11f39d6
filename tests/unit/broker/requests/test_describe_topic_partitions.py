"""DescribeTopicPartitions: the partitions of topics, in order and in parts."""

import asyncio
from collections.abc import Sequence

import pytest

from broker.requests.describe_topic_partitions import DescribeTopicPartitionsRequests
from common.ids import NO_LEADER
from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import TOPIC_OPERATIONS
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from common.records.metadata_records import KnownRecord
from common.slices import ELEMENTS_PER_SLICE
from tests.counted import result_and_turns
from tests.unit.broker.requests.contexts import context, over_the_wire
from tests.unit.common.metadata.builders import directory, partition, register, replay, topic, topic_id

BROKERS = (register(1, directories=[directory(1)]), register(2, directories=[directory(2)], fenced=True))
# Topics a with three partitions, b with two and c with one. They were created in another order.
TOPICS: tuple[KnownRecord, ...] = (
    topic(3, "c"),
    partition(3, 0, [1]),
    topic(1, "a"),
    *(partition(1, index, [1]) for index in (2, 0, 1)),
    topic(2, "b"),
    *(partition(2, index, [1]) for index in (0, 1)),
)


def ask(
    *names: str,
    records: Sequence[KnownRecord] = (*BROKERS, *TOPICS),
    limit: int = 2000,
    partitions_max: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> DescribeTopicPartitionsResponse:
    requests = DescribeTopicPartitionsRequests(replay(*records), partitions_max=partitions_max)
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    assert over_the_wire(request, 0) == request
    response = requests.handle(context(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0), request)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    assert over_the_wire(response, 0) == response
    return response


def parts(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(each.name, [described.partition_index for described in each.partitions]) for each in response.topics]


def next_part(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_everything_in_one_part() -> None:
    """Topics and partitions are sorted. No topics in the request means all; a topic that is named twice is described
    once."""
    everything = [("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]
    response = ask()
    assert (parts(response), next_part(response)) == (everything, None)
    assert parts(ask("c", "a", "b", "a")) == everything
    assert [(each.topic_id, each.is_internal, each.topic_authorized_operations) for each in response.topics] == [
        (topic_id(number), False, TOPIC_OPERATIONS) for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("cursor", "limit", "expected", "following"),
    [
        (None, 1, [("a", [0])], ("a", 1)),
        (None, 2, [("a", [0, 1])], ("a", 2)),
        (None, 3, [("a", [0, 1, 2])], ("b", 0)),
        (None, 4, [("a", [0, 1, 2]), ("b", [0])], ("b", 1)),
        (None, 6, [("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])], None),
        (("a", 1), 2, [("a", [1, 2])], ("b", 0)),
        (("b", 1), 2, [("b", [1]), ("c", [0])], None),
        (("b", 0), 0, [("b", [0])], ("b", 1)),
        (("b", 0), -5, [("b", [0])], ("b", 1)),
        # A topic or partition of an earlier part was deleted, or the cursor is beyond the end.
        (("aa", 7), 2, [("b", [0, 1])], ("c", 0)),
        (("b", 9), 2, [("b", []), ("c", [0])], None),
        (("d", 0), 2, [], None),
    ],
)
def test_parts_of_limited_size(
    cursor: tuple[str, int] | None,
    limit: int,
    expected: list[tuple[str, list[int]]],
    following: tuple[str, int] | None,
) -> None:
    """A part begins at the cursor, has as many partitions as the request allows but at least one, and names the next."""
    response = ask(cursor=cursor, limit=limit)
    assert (parts(response), next_part(response)) == (expected, following)


def test_the_broker_limits_the_parts_as_well() -> None:
    """max.request.partition.size.limit bounds the response, whatever the client asks for."""
    assert parts(ask(partitions_max=2)) == [("a", [0, 1])]
    assert parts(ask(partitions_max=2, limit=1)) == [("a", [0])]


def test_topics_that_are_none() -> None:
    """An unknown or invalid name gets an error. It counts as no partition."""
    response = ask("a", "b/", "bb", "c", limit=4)
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a", ErrorCode.NONE),
        ("b/", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("bb", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("c", ErrorCode.NONE),
    ]


@pytest.mark.parametrize(("names", "cursor"), [(["a", "b"], ("c", 0)), (["a"], ("a", -1)), ([], ("a", -1))])
def test_a_cursor_that_no_response_had_is_refused(names: list[str], cursor: tuple[str, int]) -> None:
    """Its topic is not among the requested ones, or its partition is negative."""
    with pytest.raises(ApiError) as refused:
        ask(*names, cursor=cursor)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_partition_is_described_as_it_is() -> None:
    """A partition without a leader has no error, unlike in Metadata. The lists of eligible leader replicas are empty, not
    null. A replica on a fenced broker is offline."""
    records = (
        *BROKERS,
        topic(1, "a"),
        partition(1, 0, [1, 2], isr=[1], leader_epoch=5),
        partition(1, 1, [2], leader=-1, leader_epoch=6),
    )
    led, leaderless = ask(records=records).topics[0].partitions
    assert (led.leader_id, led.leader_epoch, led.replica_nodes, led.isr_nodes) == (1, 5, [1, 2], [1])
    assert (led.eligible_leader_replicas, led.last_known_elr, led.offline_replicas) == ([], [], [2])
    assert (leaderless.leader_id, leaderless.leader_epoch, leaderless.error_code) == (NO_LEADER, 6, ErrorCode.NONE)
    assert leaderless.offline_replicas == [2]


def test_thousands_of_names_are_looked_up_in_slices() -> None:
    """None of these topics exists, so all of them are in one response."""
    names = [f"new-{number:04}" for number in range(2 * ELEMENTS_PER_SLICE + 1)]

    async def scenario() -> tuple[DescribeTopicPartitionsResponse, int]:
        requests = DescribeTopicPartitionsRequests(replay(*BROKERS), partitions_max=1)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
        answer = requests.handle(context(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0), request)
        assert not isinstance(answer, DescribeTopicPartitionsResponse)
        return await result_and_turns(answer)

    response, turns = asyncio.run(scenario())
    assert turns > 2
    assert parts(response) == [(name, []) for name in names]
