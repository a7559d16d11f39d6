"""Answers DescribeTopicPartitions from the newest image, in parts of limited size (shell without I/O; KIP-966).

Counterpart of Kafka's DescribeTopicPartitionsRequestHandler. Topics come sorted by name, so a cursor of topic and partition
says where the next part begins, even if topics came or went meanwhile. Leaders and offline replicas are those of Metadata.
Eligible leader replicas exist under Apache Kafka's controllers only; under ours, their lists are empty.
"""

from collections.abc import Awaitable, Generator, Iterator

from broker.requests.metadata import Brokers, offline_replicas
from common.ids import NO_LEADER
from common.metadata.registrations import PartitionRegistration, Topic
from common.metadata.state import MetadataState
from common.metadata.topic_names import InvalidTopicName, is_internal_topic, validate_topic_name
from common.net.request_context import RequestContext
from common.protocol.authorized_operations import TOPIC_OPERATIONS
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from common.slices import ELEMENTS_PER_SLICE, at_once, result_in_slices


class DescribeTopicPartitionsRequests:
    """Handles DescribeTopicPartitions. A response has at most `partitions_max` partitions."""

    def __init__(self, state: MetadataState, *, partitions_max: int) -> None:
        self._state = state
        self._partitions_max = partitions_max

    def handle(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]:
        """Returns the partitions from the cursor on, and the next cursor if there are more. Raises ApiError for a cursor
        that cannot have come from a response to the same topics. Topics that do not exist do not count for the size of the
        response, so thousands of names are looked up in slices."""
        describing = self._answer(context, request)
        if len(request.topics) <= ELEMENTS_PER_SLICE:
            return at_once(describing)
        return result_in_slices(describing, items=ELEMENTS_PER_SLICE)

    def _answer(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> Generator[None, None, DescribeTopicPartitionsResponse]:
        """Yields after each topic."""
        remaining = max(min(self._partitions_max, request.response_partition_limit), 1)
        brokers = self._state.brokers
        reachable = {id_: each for id_, each in brokers.items() if each.endpoint(context.listener_name) is not None}
        serving = {id_: each for id_, each in reachable.items() if not each.fenced}
        response = DescribeTopicPartitionsResponse()
        for name in self._names(request):
            yield
            if remaining == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = self._state.topic_named(name)
            if topic is None:
                response.topics.append(_missing(name))
                continue
            first = request.cursor.partition_index if request.cursor and request.cursor.topic_name == name else 0
            indexes = sorted(index for index in topic.partitions if index >= first)
            described = [_partition(index, topic.partitions[index], reachable, serving) for index in indexes[:remaining]]
            response.topics.append(_topic(topic, described))
            if len(indexes) > remaining:
                response.next_cursor = Cursor(topic_name=name, partition_index=indexes[remaining])
                break
            remaining -= len(indexes)
        return response

    def _names(self, request: DescribeTopicPartitionsRequest) -> Iterator[str]:
        cursor = request.cursor
        names = sorted({topic.name for topic in request.topics} if request.topics else self._state.topic_ids)
        if cursor is not None:
            if request.topics and cursor.topic_name not in names:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the cursor's topic is not among the requested topics")
            if cursor.partition_index < 0:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"the cursor's partition is {cursor.partition_index}")
        return (name for name in names if cursor is None or name >= cursor.topic_name)


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_topic_name(name)
    except InvalidTopicName:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=is_internal_topic(name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(topic: Topic, partitions: list[DescribeTopicPartitionsResponsePartition]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal_topic(topic.name),
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    index: int, partition: PartitionRegistration, reachable: Brokers, serving: Brokers
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        # Unlike in Metadata, a partition without a leader is no error: the request asks how the partition is.
        leader_id=partition.leader if partition.leader in reachable else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(partition, serving),
    )
