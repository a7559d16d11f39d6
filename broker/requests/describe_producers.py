"""Answers DescribeProducers from the logs of this broker (shell without I/O; KIP-664).

Counterpart of KafkaApis.handleDescribeProducersRequest. Every replica knows the producers of its log, so followers answer,
too: `kafka-transactions describe-producers --broker-id` asks one of them.
"""

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


class DescribeProducersRequests:
    """Handles DescribeProducers."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, _context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
        """Returns the producers of each partition, by id. A partition that is named more than once is described once."""
        wanted: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        return DescribeProducersResponse(
            topics=[
                TopicResponse(name=name, partitions=[self._describe(name, index) for index in indexes])
                for name, indexes in wanted.items()
            ]
        )

    def _describe(self, topic: str, index: int) -> PartitionResponse:
        partition = self._replicas.find_named(topic, index)
        if isinstance(partition, ErrorCode):
            return PartitionResponse(partition_index=index, error_code=partition)
        entries = partition.log.producers.state.entries
        return PartitionResponse(
            partition_index=index,
            active_producers=[
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_first_offset,
                )
                for producer_id, entry in sorted(entries.items())
            ],
        )
