"""Answers WriteTxnMarkers: ends transactions in the partitions that this broker leads (shell, KIP-98).

Counterpart of KafkaApis.handleWriteTxnMarkersRequest. The transaction coordinators of this and of other brokers send it.

1. All markers of a request are appended in one step, like the batches of a Produce, and each partition has its own result.
   The answer waits until every marker is in the whole ISR: the coordinator forgets the transaction after it.
2. In `__consumer_offsets`, a marker also decides about the offsets that were committed in the transaction. So the group
   coordinator appends it, in the order of its own records.
3. A marker is appended even if the partition has no data of the transaction, as in Kafka. A coordinator that got no answer
   sends its markers again, and that does no harm.
4. Nothing waits for a directory that is suspected of hanging, here or at a follower, as in Produce: the coordinator sends a
   broker one request after the other, and the transactions of all others would wait as well.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker.coordinator.core.group_partition import OFFSETS_TOPIC
from broker.hosting.partition import Partition
from broker.hosting.replicas import Replicas
from common.environment.interface import Environment, LogDirError
from common.ids import DirectoryId, Offset
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from common.records.end_transaction import EndTransactionMarker
from common.storage.errors import LogClosed
from common.time_units import NS_PER_MS

# How long the markers may take to be replicated: Kafka's request.timeout.ms. The coordinator then sends them again.
TIMEOUT_NS: Final = 30_000 * NS_PER_MS

OnDone = Callable[[ErrorCode], None]


class MarksOffsets(Protocol):
    """The group coordinator, as far as this handler needs it."""

    def write_marker(self, partition: Partition, marker: EndTransactionMarker, on_done: OnDone) -> None:
        """Appends the marker to a partition of `__consumer_offsets` that this broker leads. Calls `on_done` once: with NONE
        when the whole ISR has the marker, or with the error of the partition."""
        ...


class WriteTxnMarkersRequests:
    """Handles WriteTxnMarkers."""

    def __init__(self, env: Environment, replicas: Replicas, groups: MarksOffsets) -> None:
        self._env = env
        self._replicas = replicas
        self._groups = groups
        # The requests that are not answered. A dict used as an ordered set.
        self._waiting: dict[_WriteTxnMarkers, None] = {}
        replicas.suspected.subscribe(self._directory_suspected)

    def _directory_suspected(self, directory_id: DirectoryId) -> None:
        for request in [*self._waiting]:
            request.give_up_on(directory_id)

    def handle(self, _context: RequestContext, request: WriteTxnMarkersRequest) -> "asyncio.Future[WriteTxnMarkersResponse]":
        return self.write(request)

    def write(self, request: WriteTxnMarkersRequest) -> "asyncio.Future[WriteTxnMarkersResponse]":
        """Appends the markers and returns a future of the response. The coordinator on this broker calls it directly."""
        writing = _WriteTxnMarkers(self._env, self._replicas, self._groups, request)
        if not writing.future.done():
            self._waiting[writing] = None
            writing.future.add_done_callback(lambda _: self._waiting.pop(writing))
        return writing.future


class _WriteTxnMarkers:
    """The state of one request, until it is answered."""

    def __init__(self, env: Environment, replicas: Replicas, groups: MarksOffsets, request: WriteTxnMarkersRequest) -> None:
        self._replicas = replicas
        self._groups = groups
        self._response = WriteTxnMarkersResponse()
        # The results that are not final yet, by the number of the marker, and functions that cancel the waits for
        # replication, by the same numbers.
        self._unanswered: dict[int, WritableTxnMarkerPartitionResult] = {}
        self._give_up: dict[int, Callable[[], None]] = {}
        # The partitions of the markers that the kernel may not have yet, by the same numbers.
        self._unwritten: dict[int, Partition] = {}
        self._next_number = 0
        # Whether every marker has begun. Until then the response is not complete even if none waits.
        self._has_begun = False
        self._cancel_deadline: Callable[[], None] | None = None
        self.future: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()
        for marker in request.markers:
            self._begin_marker(marker)
        if self._unanswered:
            self._cancel_deadline = env.call_at(env.now_ns() + TIMEOUT_NS, self._time_out)
        self._has_begun = True
        self._maybe_complete()

    def _begin_marker(self, wanted: WritableTxnMarker) -> None:
        marker = EndTransactionMarker(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.coordinator_epoch,
            wanted.transaction_result,
            wanted.transaction_version,
        )
        results = WritableTxnMarkerResult(producer_id=wanted.producer_id)
        self._response.markers.append(results)
        for topic in wanted.topics:
            of_topic = WritableTxnMarkerTopicResult(name=topic.name)
            results.topics.append(of_topic)
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(partition_index=index)
                of_topic.partitions.append(result)
                number = self._next_number
                self._next_number += 1
                self._unanswered[number] = result
                self._begin(number, topic.name, index, marker)

    def _begin(self, number: int, topic: str, index: int, marker: EndTransactionMarker) -> None:
        on_done = partial(self._finish, number)
        partition = self._replicas.find_named(topic, index)
        if isinstance(partition, ErrorCode):
            on_done(partition)
        elif partition.waits_for_any(self._replicas.suspected):
            on_done(ErrorCode.KAFKA_STORAGE_ERROR)
        elif (error := _error_of(partition)) is not ErrorCode.NONE:
            on_done(error)
        elif topic == OFFSETS_TOPIC:
            self._unwritten[number] = partition
            self._groups.write_marker(partition, marker, on_done)
        else:
            self._unwritten[number] = partition
            partition.when_appendable(lambda: self._append(number, partition, marker))

    def _append(self, number: int, partition: Partition, marker: EndTransactionMarker) -> None:
        error = partition.leader_error()
        if error is ErrorCode.NONE:
            error = partition.marker_error(marker)
        if error is not ErrorCode.NONE:
            self._finish(number, error)
            return
        try:
            partition.append_marker(
                marker,
                on_written=lambda end_offset: self._written(number, partition, end_offset),
                on_failed=lambda: self._finish(number, ErrorCode.KAFKA_STORAGE_ERROR),
            )
        except (LogDirError, LogClosed):
            self._finish(number, ErrorCode.KAFKA_STORAGE_ERROR)

    def _written(self, number: int, partition: Partition, end_offset: Offset) -> None:
        self._unwritten.pop(number, None)
        if number in self._unanswered:
            give_up = partition.wait_until_replicated(end_offset, partial(self._finish, number))
            if give_up is not None:
                self._give_up[number] = give_up

    def _finish(self, number: int, error: ErrorCode) -> None:
        result = self._unanswered.pop(number, None)
        self._give_up.pop(number, None)
        self._unwritten.pop(number, None)
        if result is not None:
            result.error_code = error
            self._maybe_complete()

    def give_up_on(self, directory_id: DirectoryId) -> None:
        """Answers what waits for this directory (rule 4)."""
        for number, partition in list(self._unwritten.items()):
            if partition.waits_for_any((directory_id,)):
                self._finish(number, ErrorCode.REQUEST_TIMED_OUT)

    def _time_out(self) -> None:
        unanswered, self._unanswered = self._unanswered, {}
        for result in unanswered.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        waits, self._give_up = self._give_up, {}
        for give_up in waits.values():
            give_up()
        self._maybe_complete()

    def _maybe_complete(self) -> None:
        if not self._has_begun or self._unanswered or self.future.done():
            return
        if self._cancel_deadline is not None:
            self._cancel_deadline()
        self.future.set_result(self._response)


def _error_of(partition: Partition) -> ErrorCode:
    """Returns what is wrong before the append, as for a Produce with acks=all."""
    error = partition.leader_error()
    if error is ErrorCode.NONE and (not partition.has_enough_in_sync() or partition.replica.is_held_up):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
