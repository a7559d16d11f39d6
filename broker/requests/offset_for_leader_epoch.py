"""Answers OffsetForLeaderEpoch: where an epoch of the leader's log ended (shell).

Counterpart of KafkaApis.handleOffsetForLeaderEpochRequest (KIP-101, KIP-279, KIP-320). Consumers use it to find out whether
records they have read were truncated. Older followers use it before they truncate; since Fetch 12 the fetch response has
this information. For an epoch without records, the answer names the largest epoch below it.
"""

from collections.abc import Awaitable, Generator

from broker.hosting.replicas import Replicas
from common.ids import LeaderEpoch
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from common.slices import ELEMENTS_PER_SLICE, at_once, result_in_slices


class OffsetForLeaderEpochHandler:
    """Handles OffsetForLeaderEpoch; the request server calls `handle`."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(
        self, _context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
        """Many partitions are looked at in slices."""
        if sum(1 + len(topic.partitions) for topic in request.topics) > ELEMENTS_PER_SLICE:
            return result_in_slices(self._answers(request), items=ELEMENTS_PER_SLICE)
        return at_once(self._answers(request))

    def _answers(self, request: OffsetForLeaderEpochRequest) -> Generator[None, None, OffsetForLeaderEpochResponse]:
        """Yields after each topic and partition."""
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            result = OffsetForLeaderTopicResult(topic=topic.topic)
            response.topics.append(result)
            yield
            for wanted in topic.partitions:
                result.partitions.append(self._answer(topic.topic, wanted))
                yield
        return response

    def _answer(self, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = self._replicas.find_named(topic, wanted.partition)
        if isinstance(partition, ErrorCode):
            return EpochEndOffset(partition=wanted.partition, error_code=partition)
        error = partition.leader_error(wanted.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return EpochEndOffset(partition=wanted.partition, error_code=error)
        log = partition.log
        found = log.leader_epochs.end_offset_for(LeaderEpoch(wanted.leader_epoch), log.written_offset)
        return EpochEndOffset(partition=wanted.partition, leader_epoch=found.epoch, end_offset=found.end_offset)
