"""Answers ListOffsets: the offset for a timestamp, or for either end of the log (shell).

Counterpart of KafkaApis.handleListOffsetRequest and Partition.fetchOffsetForTimestamp. A consumer sees the log up to the
high watermark, with isolation.level=read_committed up to the last stable offset, and a follower up to the written end. A
request with the debugging replica id gets what this replica has up to its written end, even if it does not lead.

A newly elected leader may still have a lower high watermark than clients saw at its predecessor. Until its high watermark
reaches the start of its epoch, the new leader answers OFFSET_NOT_AVAILABLE. Otherwise a consumer could jump back (KIP-207),
or could get the answer "not found" for a record that it has already read.
"""

from functools import partial

from broker.hosting.client_reads import DirectorySuspected
from broker.hosting.partition import Partition
from broker.hosting.readable_bytes import ReadIsolation
from broker.hosting.replicas import Replicas
from common.environment.interface import LogDirError
from common.ids import LeaderEpoch, Offset
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import READ_COMMITTED
from common.protocol.messages.list_offsets import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from common.records.batch import BatchError
from common.slices import ELEMENTS_PER_SLICE, pause
from common.storage.errors import LogClosed
from common.storage.timestamp_search import TimestampOffset

# The first version of ListOffsets that has each special timestamp.
_FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
# No record is in remote storage or on its way there, because there is none.
_REMOTE = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
_OFFSET_NOT_AVAILABLE_FIRST_VERSION = 5
_NOT_FOUND = TimestampOffset(-1, Offset(-1), LeaderEpoch(-1))


class ListOffsetsHandler:
    """Handles ListOffsets; the request server calls `handle`."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def handle(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        answered: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
        number = 0
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            if len(response.topics) % ELEMENTS_PER_SLICE == 0:
                await pause()
            for wanted in topic.partitions:
                number += 1
                if number % ELEMENTS_PER_SLICE == 0:
                    await pause()
                answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                first = answered.setdefault((topic.name, wanted.partition_index), answer)
                if first is not answer:
                    # A partition that is named twice has one answer, as in Apache Kafka.
                    first.error_code = ErrorCode.INVALID_REQUEST
                    first.timestamp = first.offset = first.leader_epoch = -1
                    continue
                answers.partitions.append(answer)
                if _is_supported(wanted.timestamp, context.api_version):
                    answer.error_code = await self._answer(context, request, topic.name, wanted, answer)
                else:
                    answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return response

    async def _answer(
        self,
        context: RequestContext,
        request: ListOffsetsRequest,
        topic: str,
        wanted: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
    ) -> ErrorCode:
        partition = self._replicas.find_named(topic, wanted.partition_index)
        if isinstance(partition, ErrorCode):
            return partition
        error = partition.leader_error(wanted.current_leader_epoch)
        # The end of a follower's log is unknown while it is cut. A swap does not change it.
        if (
            error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            and request.replica_id == DEBUGGING_REPLICA_ID
            and (partition.is_swapping or not partition.is_restructuring)
        ):
            error = ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return error
        isolation = _isolation(request)
        upper_offset = partition.readable_end(isolation)
        # Whether clients may have seen records at or above the high watermark. Decided in the same step as `upper_offset`,
        # because the high watermark may advance during the search below.
        is_behind = partition.high_watermark < partition.replica.leader_epoch_start_offset
        may_go_back = isolation is not ReadIsolation.LOG_END and is_behind
        if may_go_back and wanted.timestamp == LATEST:
            return _not_available(context.api_version)
        try:
            found = await self._find(partition, wanted.timestamp, upper_offset)
        except (LogDirError, LogClosed, DirectorySuspected):
            return ErrorCode.KAFKA_STORAGE_ERROR
        except BatchError:
            return ErrorCode.CORRUPT_MESSAGE
        if may_go_back and found.offset < 0 and wanted.timestamp not in _REMOTE:
            return _not_available(context.api_version)
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        answer.leader_epoch = found.leader_epoch
        return ErrorCode.NONE

    async def _find(self, partition: Partition, timestamp: int, upper_offset: Offset) -> TimestampOffset:
        """Searches below `upper_offset`. Offset and timestamp are -1 if no record is found."""
        log = partition.log
        if timestamp == LATEST:
            return TimestampOffset(-1, upper_offset, _epoch_at(partition, upper_offset))
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return TimestampOffset(-1, log.log_start_offset, _epoch_at(partition, log.log_start_offset))
        if timestamp in _REMOTE:
            return _NOT_FOUND
        search = log.offset_of_max_timestamp if timestamp == MAX_TIMESTAMP else partial(log.offset_for_timestamp, timestamp)
        found = await self._replicas.client_reads.read(partition.directory_id, search)
        return _NOT_FOUND if found is None or found.offset >= upper_offset else found


def _isolation(request: ListOffsetsRequest) -> ReadIsolation:
    if request.replica_id != CONSUMER_REPLICA_ID:
        return ReadIsolation.LOG_END
    return ReadIsolation.TXN_COMMITTED if request.isolation_level == READ_COMMITTED else ReadIsolation.HIGH_WATERMARK


def _is_supported(timestamp: int, api_version: int) -> bool:
    """Whether this version has the timestamp. Negative timestamps have special meanings, and later versions add more."""
    return timestamp >= 0 or (timestamp in _FIRST_VERSIONS and api_version >= _FIRST_VERSIONS[timestamp])


def _not_available(api_version: int) -> ErrorCode:
    if api_version >= _OFFSET_NOT_AVAILABLE_FIRST_VERSION:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _epoch_at(partition: Partition, offset: Offset) -> LeaderEpoch:
    if offset >= partition.log.written_offset:
        return partition.replica.leader_epoch
    return partition.log.leader_epochs.epoch_at(offset)
