"""Answers ListOffsets: the offset at a time, or at an end of the log (shell).

Answers to KafkaApis.handleListOffsetRequest and Partition.fetchOffsetForTimestamp. A consumer sees the log up to the high
watermark, a follower up to the written end. Easy to get wrong: a leader that has just been elected may still have an older
high watermark than clients saw from its predecessor. Until its own epoch is committed it answers OFFSET_NOT_AVAILABLE
instead of letting a consumer go back (KIP-207).
"""

from broker.partition import Partition
from broker.replicas import Replicas
from common.environment.interface import LogDirError
from common.ids import LeaderEpoch, Offset
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from common.records.batch import BatchError
from common.storage.errors import LogClosed
from common.storage.timestamp_search import TimestampOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
# The first version that knows each special timestamp.
_FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_OFFSET_NOT_AVAILABLE_FIRST_VERSION = 5
_LEADER_EPOCH_FIRST_VERSION = 4
_NOT_FOUND = TimestampOffset(-1, Offset(-1), LeaderEpoch(-1))


class ListOffsetsHandler:
    """`handle` is what the request server calls."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def handle(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        seen: set[tuple[str, int]] = set()
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            for wanted in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                answers.partitions.append(answer)
                key = (topic.name, wanted.partition_index)
                if key in seen or context.api_version < _FIRST_VERSIONS.get(wanted.timestamp, 1):
                    answer.error_code = ErrorCode.INVALID_REQUEST
                else:
                    answer.error_code = await self._answer(
                        context.api_version, request.replica_id, topic.name, wanted, answer
                    )
                seen.add(key)
        return response

    async def _answer(
        self,
        version: int,
        replica_id: int,
        topic: str,
        wanted: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
    ) -> ErrorCode:
        partition = self._replicas.find_named(topic, wanted.partition_index)
        if isinstance(partition, ErrorCode):
            return partition
        error = partition.leader_error(wanted.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        is_follower = replica_id >= 0
        if not is_follower and wanted.timestamp in (LATEST, MAX_TIMESTAMP) and _may_go_back(partition):
            if version >= _OFFSET_NOT_AVAILABLE_FIRST_VERSION:
                return ErrorCode.OFFSET_NOT_AVAILABLE
            return ErrorCode.LEADER_NOT_AVAILABLE
        upper_offset = partition.log.written_offset if is_follower else partition.high_watermark
        try:
            found = await _find(partition, wanted.timestamp, upper_offset)
        except (LogDirError, LogClosed):
            return ErrorCode.KAFKA_STORAGE_ERROR
        except BatchError:
            return ErrorCode.CORRUPT_MESSAGE
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        if version >= _LEADER_EPOCH_FIRST_VERSION:
            answer.leader_epoch = found.leader_epoch
        return ErrorCode.NONE


def _may_go_back(partition: Partition) -> bool:
    return partition.high_watermark < partition.replica.leader_epoch_start_offset


async def _find(partition: Partition, timestamp: int, upper_offset: Offset) -> TimestampOffset:
    """Offset and timestamp are -1 when there is no such record below `upper_offset`."""
    log = partition.log
    if timestamp == LATEST:
        return TimestampOffset(-1, upper_offset, _epoch_at(partition, upper_offset))
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.log_start_offset, _epoch_at(partition, log.log_start_offset))
    if timestamp == LATEST_TIERED:
        # Nothing is ever moved to remote storage.
        return _NOT_FOUND
    if timestamp == MAX_TIMESTAMP:
        found = await log.offset_of_max_timestamp()
    else:
        found = await log.offset_for_timestamp(timestamp)
    return _NOT_FOUND if found is None or found.offset >= upper_offset else found


def _epoch_at(partition: Partition, offset: Offset) -> LeaderEpoch:
    if offset >= partition.log.written_offset:
        return partition.replica.leader_epoch
    return partition.log.leader_epochs.epoch_at(offset)
