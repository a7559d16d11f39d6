"""Answers DescribeProducers from the logs of this broker (shell without I/O; KIP-664).

Counterpart of KafkaApis.handleDescribeProducersRequest. Every replica knows the producers of its log, so followers answer,
too: `kafka-transactions describe-producers --broker-id` asks one of them.
"""

from collections.abc import Awaitable, Generator, Iterable, Mapping

from broker.hosting.replicas import Replicas
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from common.slices import ELEMENTS_PER_SLICE, at_once, result_in_slices

# What a producer takes in a response, about.
_PRODUCER_BYTES = 40


class DescribeProducersRequests:
    """Handles DescribeProducers."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(
        self, context: RequestContext, request: DescribeProducersRequest
    ) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
        """Returns the producers of each partition, by id. A partition that is named more than once is described once. Many
        producers are described in slices."""
        wanted: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        count = len(wanted) + sum(map(len, wanted.values()))
        if count <= ELEMENTS_PER_SLICE:
            count += sum(self._count(name, index) for name, indexes in wanted.items() for index in indexes)
        if count > ELEMENTS_PER_SLICE:
            context.memory.expect_response(count * _PRODUCER_BYTES)
            return result_in_slices(self._answer(wanted), items=ELEMENTS_PER_SLICE)
        return at_once(self._answer(wanted))

    def _count(self, topic: str, index: int) -> int:
        partition = self._replicas.find_named(topic, index)
        return 0 if isinstance(partition, ErrorCode) else len(partition.log.producers.state.entries)

    def _answer(self, wanted: Mapping[str, Iterable[int]]) -> Generator[None, None, DescribeProducersResponse]:
        """Yields after each producer, partition and topic."""
        response = DescribeProducersResponse()
        for name, indexes in wanted.items():
            topic = TopicResponse(name=name)
            response.topics.append(topic)
            yield
            for index in indexes:
                topic.partitions.append((yield from self._describe(name, index)))
                yield
        return response

    def _describe(self, topic: str, index: int) -> Generator[None, None, PartitionResponse]:
        partition = self._replicas.find_named(topic, index)
        if isinstance(partition, ErrorCode):
            return PartitionResponse(partition_index=index, error_code=partition)
        response = PartitionResponse(partition_index=index)
        for producer_id, entry in sorted(partition.log.producers.state.entries.items()):
            response.active_producers.append(
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_first_offset,
                )
            )
            yield
        return response
