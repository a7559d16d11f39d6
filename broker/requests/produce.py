"""Answers Produce: appends clients' batches to the partitions that this broker leads (shell).

Counterpart of KafkaApis.handleProduceRequest and ReplicaManager.appendRecords.

1. Records are not decoded. Each batch has its header and checksum verified, gets its offset and leader epoch stamped, and
   goes to the directory's writer.
2. One future represents the whole request. It completes when every partition has its answer: with acks=1 once the kernel
   has the bytes, with acks=all once the high watermark has reached their end and the recorded ISR is still large enough.
3. All partitions of a request are appended in one step, before anything is awaited. So two requests on the same connection
   cannot overtake each other. A partition that is changing its directory holds its appends back and keeps their order.
"""

import asyncio
from collections.abc import Callable

from broker.hosting.partition import Partition
from broker.hosting.replicas import Replicas
from broker.requests.current_leader import LEADER_MOVED, name_leaders
from common.environment.interface import Environment, LogDirError
from common.ids import Offset
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from common.records.batch import (
    NO_PRODUCER_ID,
    BatchError,
    BatchHeader,
    CorruptBatch,
    InvalidRecordBatch,
    WrongMagic,
    split_batches,
    validate_produced_batch,
)
from common.storage.errors import LogClosed
from common.time_units import NS_PER_MS

ACKS_ALL = -1
_KNOWN_ACKS = (0, 1, ACKS_ALL)
_ZSTD = 4
_ZSTD_FIRST_VERSION = 7

Batches = list[tuple[BatchHeader, memoryview]]


class Refused(Exception):
    """The records of one partition cannot be appended. `message` is for humans."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class ProduceHandler:
    """Handles Produce; the request server calls `handle`."""

    def __init__(self, env: Environment, replicas: Replicas, *, is_certain: Callable[[], bool]) -> None:
        """`is_certain` returns whether this broker still knows what it leads (`Serving`)."""
        self._env = env
        self._replicas = replicas
        self._is_certain = is_certain

    def handle(self, context: RequestContext, request: ProduceRequest) -> "asyncio.Future[ProduceResponse] | None":
        """Appends and returns a future of the response, or None if the client wants no answer (acks=0).

        With acks=0, raises ApiError if a partition refused its records: only closing the connection can tell the client."""
        produce = _Produce(self._env, self._replicas, context, request, self._is_certain)
        produce.append_all(request)
        if request.acks != 0:
            return produce.future
        refusal = produce.first_refusal()
        if refusal is not None:
            # There is no response to carry the error. Closing the connection makes the client refresh its metadata.
            raise ApiError(refusal)
        return None


class _Produce:
    """The state of one Produce request, until it is answered. Does not reference the request or its context, because both
    keep the records alive."""

    def __init__(
        self,
        env: Environment,
        replicas: Replicas,
        context: RequestContext,
        request: ProduceRequest,
        is_certain: Callable[[], bool],
    ) -> None:
        self._replicas = replicas
        self._is_certain = is_certain
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._may_use_zstd = context.api_version >= _ZSTD_FIRST_VERSION
        self._listener_name = context.listener_name
        self._release_request = context.release
        self._response = ProduceResponse()
        # The partitions' answers that are not final yet, by the number of the append.
        self._unanswered: dict[int, PartitionProduceResponse] = {}
        # Functions that cancel the waits for replication, by the same numbers.
        self._give_up: dict[int, Callable[[], None]] = {}
        # The number of appends that the kernel may not have yet. They still need the request's memory.
        self._unwritten = 0
        self._next_number = 0
        self.future: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        self._env = env
        self._deadline_ns = env.now_ns() + max(request.timeout_ms, 0) * NS_PER_MS
        self._cancel_deadline: Callable[[], None] | None = None

    def append_all(self, request: ProduceRequest) -> None:
        for topic in request.topic_data:
            answers = TopicProduceResponse(name=topic.name)
            self._response.responses.append(answers)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, base_offset=-1)
                answers.partition_responses.append(answer)
                try:
                    self._append(topic.name, data.records, answer)
                except Refused as refused:
                    answer.error_code = refused.code
                    answer.error_message = refused.message
                    self._replicas.traffic.produce_refused(topic.name, refused.code)
        if request.acks == 0:
            # The client gets no answer, whatever the result of the writes.
            self._unanswered.clear()
        if not self._unanswered:
            self._complete()
            return
        if request.acks == ACKS_ALL:
            self._watch_deadline()

    def _watch_deadline(self) -> None:
        """Sets the client's timeout. It limits only the wait for replication; disk operations have their own deadline."""
        if self._cancel_deadline is None:
            self._cancel_deadline = self._env.call_at(self._deadline_ns, self._time_out)

    def first_refusal(self) -> ErrorCode | None:
        """Returns the first error among the partitions, or None."""
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.error_code != ErrorCode.NONE:
                    return ErrorCode(answer.error_code)
        return None

    def _append(self, topic: str, records: object, answer: PartitionProduceResponse) -> None:
        if self._acks not in _KNOWN_ACKS:
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        partition = self._replicas.find_named(topic, answer.index)
        if isinstance(partition, ErrorCode):
            raise Refused(partition)
        error = partition.leader_error()
        if error is not ErrorCode.NONE:
            raise Refused(error)
        if self._acks == ACKS_ALL and not partition.has_enough_in_sync():
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        batches = _validated(records, partition, self._transactional_id, may_use_zstd=self._may_use_zstd)
        number = self._next_number
        self._next_number += 1
        self._unanswered[number] = answer
        if not partition.is_swapping:
            try:
                self._append_batches(number, partition, batches, answer)
            except Refused:
                del self._unanswered[number]
                raise
            return
        # The request keeps its memory while the append is held back.
        self._unwritten += 1
        partition.when_appendable(lambda: self._append_held(number, partition, batches, answer))

    def _append_held(self, number: int, partition: Partition, batches: Batches, answer: PartitionProduceResponse) -> None:
        """Appends what was held back while the partition changed its directory, unless this broker no longer leads it."""
        try:
            error = partition.leader_error()
            if error is not ErrorCode.NONE:
                raise Refused(error)
            self._append_batches(number, partition, batches, answer)
        except Refused as refused:
            self._replicas.traffic.produce_refused(partition.topic, refused.code)
            self._finish(number, refused.code)
        self._note_end_of_write()

    def _append_batches(self, number: int, partition: Partition, batches: Batches, answer: PartitionProduceResponse) -> None:
        try:
            first_offset = partition.append_as_leader(
                batches,
                on_written=lambda end_offset: self._written(number, partition, end_offset),
                on_failed=lambda: self._failed(number),
            )
        except (LogDirError, LogClosed):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR) from None
        self._unwritten += 1
        header, view = batches[0]
        self._replicas.traffic.produced(partition.topic, messages=header.record_count, size=len(view))
        answer.base_offset = first_offset
        answer.log_start_offset = partition.log.log_start_offset

    def _written(self, number: int, partition: Partition, end_offset: Offset) -> None:
        if number in self._unanswered:
            # If the process was stopped meanwhile, this broker may no longer be the leader. Then only replicated records
            # survive, so wait for replication even with acks=1.
            if self._acks == ACKS_ALL or not self._is_certain():
                give_up = partition.wait_until_replicated(end_offset, lambda error: self._finish(number, error))
                if give_up is not None:
                    self._give_up[number] = give_up
                    self._watch_deadline()
            else:
                self._finish(number, ErrorCode.NONE)
        self._note_end_of_write()

    def _failed(self, number: int) -> None:
        self._finish(number, ErrorCode.KAFKA_STORAGE_ERROR)
        self._note_end_of_write()

    def _note_end_of_write(self) -> None:
        self._unwritten -= 1
        if not self._unwritten and self._unanswered:
            # Release the request's memory now. If requests that wait for followers kept their memory, there might be none
            # left to receive the followers' fetches.
            self._release_request()

    def _finish(self, number: int, error: ErrorCode) -> None:
        answer = self._unanswered.pop(number, None)
        if answer is None:
            return
        self._give_up.pop(number, None)
        if error is not ErrorCode.NONE:
            _refuse(answer, error)
        if not self._unanswered:
            self._complete()

    def _time_out(self) -> None:
        unanswered, self._unanswered = self._unanswered, {}
        for answer in unanswered.values():
            _refuse(answer, ErrorCode.REQUEST_TIMED_OUT)
        waits, self._give_up = self._give_up, {}
        for give_up in waits.values():
            give_up()
        self._complete()

    def _complete(self) -> None:
        if self._cancel_deadline is not None:
            self._cancel_deadline()
        if self.future.done():
            return
        self._response.node_endpoints = self._name_leaders()
        self.future.set_result(self._response)

    def _name_leaders(self) -> list[NodeEndpoint]:
        state = self._replicas.state
        moved = (
            (answer, _registration(state, topic.name, answer.index))
            for topic in self._response.responses
            for answer in topic.partition_responses
            if answer.error_code in LEADER_MOVED
        )
        return name_leaders(state, self._listener_name, moved, LeaderIdAndEpoch, NodeEndpoint)


def _registration(state: MetadataState, topic: str, index: int) -> PartitionRegistration | None:
    found = state.topic_named(topic)
    return None if found is None else found.partitions.get(index)


def _refuse(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    answer.error_code = error
    answer.base_offset = -1
    answer.log_start_offset = -1


def _validated(records: object, partition: Partition, transactional_id: str | None, *, may_use_zstd: bool) -> Batches:
    """Validates the single batch of a partition without decoding its records. Raises Refused."""
    if not isinstance(records, memoryview) or not len(records):
        raise Refused(ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch, there is none")
    if records.readonly:
        # Copy the batch, because its offset and epoch are stamped in place.
        records = memoryview(bytearray(records))
    try:
        batches = split_batches(records)
        header, view = batches[0]
        if len(batches) != 1:
            raise Refused(ErrorCode.INVALID_RECORD, f"a partition takes exactly one record batch, not {len(batches)}")
        validate_produced_batch(header, view)
    except (WrongMagic, InvalidRecordBatch) as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    except (CorruptBatch, BatchError) as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    _validate_served(header, partition, transactional_id, may_use_zstd=may_use_zstd)
    return batches


def _validate_served(header: BatchHeader, partition: Partition, transactional_id: str | None, *, may_use_zstd: bool) -> None:
    config = partition.config
    if header.size > config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if header.size > config.segment_bytes:
        raise Refused(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the record batch has {header.size} bytes, segment.bytes is {config.segment_bytes}",
        )
    if header.producer_id != NO_PRODUCER_ID or header.is_transactional or transactional_id is not None:
        raise Refused(ErrorCode.INVALID_RECORD, "idempotent and transactional producers are not served")
    if header.has_log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not send batches with LogAppendTime")
    if header.compression == _ZSTD and not may_use_zstd:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {_ZSTD_FIRST_VERSION} or newer")
