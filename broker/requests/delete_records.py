"""Answers DeleteRecords: raises the log start of partitions that this broker leads (shell, KIP-107).

Counterpart of KafkaApis.handleDeleteRecordsRequest and DelayedDeleteRecords.

1. The records cannot be read at the leader from the moment the request is handled. The followers raise their log starts when
   they see the leader's in a fetch response, and report that with their next fetch. The answer waits until every replica in
   the ISR has done so, or until the timeout.
2. No record at or beyond the high watermark can be deleted: a replica that never had it could become leader.
3. A topic that is only compacted refuses, as in Kafka: its records go when later ones have their keys.
4. The segments below the new start are removed by the next check of retention.
5. Nothing waits for a directory that is suspected of hanging, as in Produce: a follower in the ISR that has such a directory
   does not report its log start, and a move that takes over holds the deletion back. The answer is REQUEST_TIMED_OUT.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator

from broker.hosting.partition import Partition
from broker.hosting.replicas import Replicas
from common.environment.interface import Environment
from common.ids import DirectoryId, Offset
from common.metadata.topic_names import is_internal_topic
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_records import (
    TO_HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from common.slices import ELEMENTS_PER_SLICE, at_once, result_in_slices
from common.time_units import NS_PER_MS

_NO_LOW_WATERMARK = -1


class DeleteRecordsHandler:
    """Handles DeleteRecords; the request server calls `handle`."""

    def __init__(self, env: Environment, replicas: Replicas) -> None:
        self._env = env
        self._replicas = replicas
        # The requests that wait for a partition. A dict used as an ordered set.
        self._waiting: dict[_DeleteRecords, None] = {}
        replicas.suspected.subscribe(self._directory_suspected)

    def _directory_suspected(self, _directory_id: DirectoryId) -> None:
        for deletion in [*self._waiting]:
            deletion.look_again()

    def handle(self, _context: RequestContext, request: DeleteRecordsRequest) -> Awaitable[DeleteRecordsResponse]:
        """Raises the log starts and returns a future of the response. For many partitions, returns a coroutine that does so
        in slices."""
        deletion = _DeleteRecords(self._env, self._replicas, request, self._waiting)
        if sum(1 + len(topic.partitions) for topic in request.topics) > ELEMENTS_PER_SLICE:
            return deletion.carry_out_in_slices()
        return deletion.carry_out_at_once()


class _DeleteRecords:
    """The state of one request, until it is answered."""

    def __init__(
        self,
        env: Environment,
        replicas: Replicas,
        request: DeleteRecordsRequest,
        all_waiting: dict["_DeleteRecords", None],
    ) -> None:
        self._env = env
        self._replicas = replicas
        self._request = request
        self._response = DeleteRecordsResponse()
        self._all_waiting = all_waiting
        # The partitions that wait for their followers: the result, and the functions that look at it and that end the wait.
        # Invariant: unless it is empty, the request is in `_all_waiting`.
        self._waiting: dict[int, tuple[DeleteRecordsPartitionResult, Callable[[], None], Callable[[], None]]] = {}
        self._next_number = 0
        # Whether every partition has begun. Until then the response is not complete even if none waits.
        self._has_begun = False
        self._cancel_deadline: Callable[[], None] | None = None
        self._deadline_ns = env.now_ns() + max(request.timeout_ms, 0) * NS_PER_MS
        self._future: asyncio.Future[DeleteRecordsResponse] = asyncio.get_running_loop().create_future()

    def carry_out_at_once(self) -> "asyncio.Future[DeleteRecordsResponse]":
        at_once(self._begin_all())
        self._has_begun = True
        if self._waiting:
            self._cancel_deadline = self._env.call_at(self._deadline_ns, lambda: at_once(self._time_out()))
        self._maybe_complete()
        return self._future

    async def carry_out_in_slices(self) -> DeleteRecordsResponse:
        await result_in_slices(self._begin_all())
        self._has_begun = True
        self._maybe_complete()
        try:
            async with self._env.timeout_at(self._deadline_ns):
                return await asyncio.shield(self._future)
        except TimeoutError:
            await result_in_slices(self._time_out())
            return self._response

    def _begin_all(self) -> Generator[None, None, None]:
        """Yields after each topic and partition."""
        for topic in self._request.topics:
            results = DeleteRecordsTopicResult(name=topic.name)
            self._response.topics.append(results)
            yield
            for wanted in topic.partitions:
                result = DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK
                )
                results.partitions.append(result)
                error = self._begin(topic.name, wanted, result)
                # If it waits, or has waited, the result has its own error.
                if error is not ErrorCode.NONE:
                    result.error_code = error
                yield

    def _begin(self, topic: str, wanted: DeleteRecordsPartition, result: DeleteRecordsPartitionResult) -> ErrorCode:
        if is_internal_topic(topic):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        partition = self._replicas.find_named(topic, wanted.partition_index)
        if isinstance(partition, ErrorCode):
            return partition
        error = partition.leader_error()
        if error is not ErrorCode.NONE:
            return error
        if partition.config.is_compacted and not partition.config.is_deleted_from:
            return ErrorCode.POLICY_VIOLATION
        offset = partition.high_watermark if wanted.offset == TO_HIGH_WATERMARK else Offset(wanted.offset)
        if not 0 <= offset <= partition.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self._wait(partition, offset, result)
        return ErrorCode.NONE

    def _wait(self, partition: Partition, offset: Offset, result: DeleteRecordsPartitionResult) -> None:
        number = self._next_number
        self._next_number += 1

        def look() -> None:
            if number not in self._waiting:
                return
            result.error_code = partition.leader_error()
            if result.error_code == ErrorCode.NONE:
                low_watermark = partition.replica.low_watermark
                if low_watermark >= offset:
                    result.low_watermark = low_watermark
                elif self._waits_for_a_hung_disk(partition):
                    result.error_code = ErrorCode.REQUEST_TIMED_OUT
                else:
                    return
            self._end_wait(number)
            self._maybe_complete()

        def begin() -> None:
            # A partition that was changing its directory may have lost its leadership meanwhile.
            if number in self._waiting and partition.leader_error() is ErrorCode.NONE:
                partition.raise_log_start(offset)
            look()

        self._waiting[number] = result, look, partition.watch_low_watermark(look)
        self._all_waiting[self] = None
        # A swap copies the log start as well, so it must not change in the middle.
        partition.when_appendable(begin)
        if partition.is_swapping:
            look()

    def _waits_for_a_hung_disk(self, partition: Partition) -> bool:
        """Whether the partition waits for a directory that is suspected of hanging (rule 5)."""
        is_held_back = partition.is_swapping and partition.waits_for_any(self._replicas.suspected)
        return is_held_back or partition.replica.is_held_up

    def look_again(self) -> None:
        """Looks at every partition that waits, because a directory is suspected."""
        for _, look, _ in [*self._waiting.values()]:
            look()

    def _end_wait(self, number: int) -> None:
        _, _, end = self._waiting.pop(number)
        if not self._waiting:
            self._all_waiting.pop(self, None)
        end()

    def _time_out(self) -> Generator[None, None, None]:
        """Yields after each partition."""
        for number, (result, _, _) in list(self._waiting.items()):
            # Its wait may have ended meanwhile.
            if number in self._waiting:
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
                self._end_wait(number)
            yield
        self._maybe_complete()

    def _maybe_complete(self) -> None:
        if not self._has_begun or self._waiting or self._future.done():
            return
        if self._cancel_deadline is not None:
            self._cancel_deadline()
        self._future.set_result(self._response)
