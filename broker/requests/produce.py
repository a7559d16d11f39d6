"""Answers Produce: appends clients' batches to the partitions that this broker leads (shell).

Counterpart of KafkaApis.handleProduceRequest and ReplicaManager.appendRecords.

1. Records are not decoded, except in compacted topics. Each batch has its header and checksum verified, gets its offset and
   leader epoch stamped, and goes to the directory's writer.
2. One future represents the whole request. It completes when every partition has its answer: with acks=1 once the kernel
   has the bytes, with acks=all once the high watermark has reached their end and the recorded ISR is still large enough.
3. All partitions of a request are appended in one step, before anything is awaited. So two requests on the same connection
   cannot overtake each other. A partition that is changing its directory holds its appends back and keeps their order.
4. A duplicate from an idempotent producer is answered like the batch that was appended before, with the same offset and
   after the same wait. The first answer may have been lost because the leader died before its followers had the batch.
5. A transactional batch needs a transactional id in the request and a producer id. Only brokers write control batches. A
   batch that would begin a transaction is held back until the coordinator has confirmed the transaction, or, from version
   12 on, has added the partition to it (KIP-890).
6. A batch of an idempotent producer that comes after a refused one is refused with the same error (`RefusedSequences`).
7. While a directory is suspected of hanging (`broker/core/directory_suspicion.py`), nothing waits for it: what already does
   is answered with REQUEST_TIMED_OUT, although its records may still be written, and new batches are refused.
8. A request counts as memory of the directories that it waits for. A directory with too much of it takes no further batches
   (`common/net/request_memory.py`, rule 6), so requests for a slow disk leave memory for those of the others.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.coordinator.core.transactions.verification import RETRIABLE, Question, produce_error
from broker.coordinator.transaction_verifier import TransactionVerifier
from broker.core.refused_sequences import RefusedSequences
from broker.core.verification_guards import VerificationGuard
from broker.hosting.partition import Partition
from broker.hosting.replicas import Replicas
from broker.requests.current_leader import LEADER_MOVED, name_leaders
from broker.requests.produced_records import (
    keyless_records,
    recompressed,
    record_errors,
    summary,
    timestamp_errors,
    untimely_records,
)
from common.environment.interface import Environment, LogDirError
from common.ids import DirectoryId, Offset
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.metadata.topic_names import is_internal_topic
from common.net.request_context import DirectoryWait, RequestContext
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
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
    read_header,
    set_log_append_time,
    split_batches,
    validate_produced_batch,
)
from common.storage.errors import LogClosed
from common.storage.producers.state import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from common.time_units import NS_PER_MS

ACKS_ALL = -1
_KNOWN_ACKS = (0, 1, ACKS_ALL)
_ZSTD = 4
_ZSTD_FIRST_VERSION = 7
_ABORTABLE_FIRST_VERSION = 11
_ADDS_PARTITIONS_FIRST_VERSION = 12
# Like in Kafka, a client of this name may write to the brokers' own topics.
_ADMIN_CLIENT_ID = "__admin_client"

Batches = list[tuple[BatchHeader, memoryview]]


class Refused(Exception):
    """The records of one partition cannot be appended. `message` is for humans, `record_errors` names the records."""

    def __init__(
        self, code: ErrorCode, message: str | None = None, record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.record_errors = [*record_errors]


class _Append(NamedTuple):
    """What is to be appended to one partition. The guard is set once the batches are being verified."""

    number: int
    partition: Partition
    batches: Batches
    answer: PartitionProduceResponse
    must_be_verified: bool
    guard: VerificationGuard | None


@dataclass(slots=True)
class _Shared:
    """What all requests of a handler use."""

    env: Environment
    loop: asyncio.AbstractEventLoop
    replicas: Replicas
    is_certain: Callable[[], bool]
    verifier: TransactionVerifier | None
    refused_sequences: RefusedSequences = field(default_factory=RefusedSequences)
    # The requests with batches that the kernel may not have yet.
    writing: "dict[_Produce, None]" = field(default_factory=dict)


class ProduceHandler:
    """Handles Produce; the request server calls `handle`."""

    def __init__(
        self,
        env: Environment,
        replicas: Replicas,
        *,
        is_certain: Callable[[], bool],
        verifier: TransactionVerifier | None = None,
    ) -> None:
        """`is_certain` returns whether this broker still knows what it leads (`Serving`). Without `verifier`, transactional
        batches are refused, because no coordinator would ever end their transaction."""
        self._shared = _Shared(
            env=env,
            # Kept, because to ask for the running loop takes a system call.
            loop=asyncio.get_running_loop(),
            replicas=replicas,
            is_certain=is_certain,
            verifier=verifier,
        )
        replicas.suspected.subscribe(self._directory_suspected)

    def _directory_suspected(self, directory_id: DirectoryId) -> None:
        for produce in [*self._shared.writing]:
            produce.give_up_on(directory_id)

    def handle(self, context: RequestContext, request: ProduceRequest) -> "asyncio.Future[ProduceResponse] | None":
        """Appends and returns a future of the response, or None if the client wants no answer (acks=0).

        With acks=0, raises ApiError if a partition refused its records: only closing the connection can tell the client."""
        produce = _Produce(self._shared, context, request)
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

    __slots__ = (
        "_acks",
        "_adds_partitions",
        "_cancel_deadline",
        "_client_id",
        "_deadline_ns",
        "_give_up",
        "_is_kept",
        "_is_refused",
        "_knows_abortable",
        "_listener_name",
        "_may_use_zstd",
        "_memory",
        "_next_number",
        "_response",
        "_shared",
        "_transactional_id",
        "_unanswered",
        "_unwritten",
        "_waits",
        "future",
    )

    def __init__(self, shared: _Shared, context: RequestContext, request: ProduceRequest) -> None:
        """`shared.writing` holds this request while `_unwritten` is not empty."""
        self._shared = shared
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._may_use_zstd = context.api_version >= _ZSTD_FIRST_VERSION
        self._knows_abortable = context.api_version >= _ABORTABLE_FIRST_VERSION
        self._adds_partitions = context.api_version >= _ADDS_PARTITIONS_FIRST_VERSION
        self._client_id = context.client_id
        self._listener_name = context.listener_name
        self._memory = context.memory
        self._response = ProduceResponse()
        # The partitions' answers that are not final yet, by the number of the append.
        self._unanswered: dict[int, PartitionProduceResponse] = {}
        # Functions that cancel the waits for replication, by the same numbers.
        self._give_up: dict[int, Callable[[], None]] = {}
        # The appends that the kernel may not have yet, by number, and the waits for their directories. They still need the
        # request's memory.
        self._unwritten: dict[int, DirectoryWait] = {}
        # These waits by directory. Ended ones leave in `_settle_memory`.
        self._waits: dict[DirectoryId, DirectoryWait] = {}
        # Whether a partition's answer may have an error, apart from a timeout.
        self._is_refused = False
        # Whether the request was answered before its appends were written (acks=0, or a short timeout).
        self._is_kept = False
        self._next_number = 0
        self.future: asyncio.Future[ProduceResponse] = shared.loop.create_future()
        self._deadline_ns = shared.env.now_ns() + max(request.timeout_ms, 0) * NS_PER_MS
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
                    self._is_refused = True
                    answer.error_code = self._judge(topic.name, data.index, data.records, refused.code)
                    answer.error_message = refused.message
                    answer.record_errors = refused.record_errors
                    self._shared.replicas.traffic.produce_refused(topic.name, refused.code)
        if request.acks == 0:
            # The client gets no answer, whatever the result of the writes.
            self._unanswered.clear()
        if not self._unanswered:
            self._complete()
            return
        if request.acks == ACKS_ALL:
            self._watch_deadline()

    def _judge(self, topic: str, index: int, records: object, error: ErrorCode) -> ErrorCode:
        """Returns the error with which to refuse these records (rule 6)."""
        if not isinstance(records, memoryview):
            return error
        try:
            header = read_header(records)
        except BatchError:
            return error
        return self._shared.refused_sequences.refuse(topic, index, header, error)

    def _watch_deadline(self) -> None:
        """Sets the client's timeout. It limits only the wait for replication; disk operations have their own deadline."""
        if self._cancel_deadline is None:
            self._cancel_deadline = self._shared.env.call_at(self._deadline_ns, self._time_out)

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
        if is_internal_topic(topic) and self._client_id != _ADMIN_CLIENT_ID:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {topic}")
        partition = self._shared.replicas.find_named(topic, answer.index)
        if isinstance(partition, ErrorCode):
            raise Refused(partition)
        error = partition.leader_error()
        if error is not ErrorCode.NONE:
            raise Refused(error)
        if partition.directory_id in self._shared.replicas.suspected:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "the directory of this replica finishes nothing")
        if partition.directory_id not in self._waits and not self._memory.has_room_for(partition.directory_id):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "too many records wait for the directory of this replica")
        if self._acks == ACKS_ALL and not partition.has_enough_in_sync():
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        batches = _validated(records, partition, may_use_zstd=self._may_use_zstd)
        self._validate_transactional(batches[0][0])
        now_ms = self._shared.env.wall_ms()
        if partition.config.stored_compression is not None:
            batches = _recompressed(batches, partition, partition.config.stored_compression)
        if partition.config.has_log_append_time:
            batches = [(set_log_append_time(view, now_ms), view) for _, view in batches]
            answer.log_append_time_ms = now_ms
        else:
            _validate_timestamps(*batches[0], partition, now_ms)
        header = batches[0][0]
        must_be_verified = header.is_transactional and self._must_verify()
        guard = _begin_verification(partition, header, is_add=self._adds_partitions) if must_be_verified else None
        append = _Append(self._next_number, partition, batches, answer, must_be_verified, guard)
        self._next_number += 1
        self._unanswered[append.number] = answer
        if guard is not None:
            self._verify(append, guard)
            return
        if not partition.is_swapping:
            try:
                self._append_batches(append)
            except Refused:
                del self._unanswered[append.number]
                raise
            return
        # The request keeps its memory while the append is held back.
        self._begin_write(append.number, partition)
        partition.when_appendable(lambda: self._append_held(append))

    def _must_verify(self) -> bool:
        # The producer relies on it that the coordinator adds its partitions, so that is not optional.
        verifier = self._shared.verifier
        assert verifier is not None, "checked in `_validate_transactional`"
        return self._adds_partitions or verifier.is_enabled

    def _verify(self, append: _Append, guard: VerificationGuard) -> None:
        """Holds an append back until the coordinator has confirmed its transaction."""
        assert self._shared.verifier is not None
        assert self._transactional_id is not None, "checked in `_validate_transactional`"
        partition = append.partition
        question = Question(
            self._transactional_id,
            guard.producer_id,
            guard.producer_epoch,
            partition.topic,
            partition.index,
            self._adds_partitions,
        )
        self._begin_write(append.number, partition)
        self._shared.verifier.verify(question, guard, lambda error: self._verified(append, guard, error))

    def _validate_transactional(self, header: BatchHeader) -> None:
        """Checks rule 5. Raises Refused."""
        if self._shared.verifier is None and (header.is_transactional or self._transactional_id is not None):
            raise Refused(ErrorCode.INVALID_RECORD, "transactional producers are not served")
        if header.is_transactional and self._transactional_id is None:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the request has a transactional batch and no transactional id",
            )
        if header.is_transactional and header.producer_id == NO_PRODUCER_ID:
            raise Refused(ErrorCode.INVALID_RECORD, "the transactional batch has no producer id")

    def _verified(self, append: _Append, guard: VerificationGuard, error: ErrorCode) -> None:
        """Appends what was held back while the coordinator was asked, unless its answer forbids that."""
        if error is ErrorCode.NONE:
            append.partition.when_appendable(lambda: self._append_held(append))
            return
        if error not in RETRIABLE:
            append.partition.verification_guards.drop(guard)
        append.answer.error_message = f"the coordinator has not confirmed the transaction: {error.name}"
        error = produce_error(error, knows_abortable=self._knows_abortable, is_add=self._adds_partitions)
        self._refuse_held(append, error)

    def _append_held(self, append: _Append) -> None:
        """Appends what was held back while the partition changed its directory or the coordinator was asked, unless this
        broker no longer leads the partition, or not in the same epoch."""
        try:
            error = append.partition.leader_error()
            if error is not ErrorCode.NONE:
                raise Refused(error)
            if append.guard is not None and append.guard.leader_epoch != append.partition.replica.leader_epoch:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._append_batches(append)
        except Refused as refused:
            self._refuse_held(append, refused.code)

    def _refuse_held(self, append: _Append, error: ErrorCode) -> None:
        partition = append.partition
        error = self._shared.refused_sequences.refuse(partition.topic, partition.index, append.batches[0][0], error)
        self._shared.replicas.traffic.produce_refused(partition.topic, error)
        self._end_write(append.number)
        self._finish(append.number, error)
        self._settle_memory()

    def _append_batches(self, append: _Append) -> None:
        number, partition = append.number, append.partition
        header, view = append.batches[0]
        try:
            first_offset = partition.append_as_leader(
                append.batches,
                on_written=lambda end_offset: self._written(number, partition, end_offset),
                on_failed=lambda: self._failed(number, partition, header),
                must_be_verified=append.must_be_verified,
                guard=append.guard,
            )
        except (LogDirError, LogClosed):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR) from None
        except OutOfOrderSequence as error:
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        except InvalidProducerEpoch as error:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None
        except InvalidTransactionState as error:
            raise Refused(ErrorCode.INVALID_TXN_STATE, str(error)) from None
        self._begin_write(number, partition)
        self._shared.refused_sequences.appended(partition.topic, partition.index, header.producer_id)
        self._shared.replicas.traffic.produced(partition.topic, messages=header.record_count, size=len(view))
        append.answer.base_offset = first_offset
        append.answer.log_start_offset = partition.log.log_start_offset

    def _written(self, number: int, partition: Partition, end_offset: Offset) -> None:
        self._end_write(number)
        if number in self._unanswered:
            # If the process was stopped meanwhile, this broker may no longer be the leader. Then only replicated records
            # survive, so wait for replication even with acks=1.
            if self._acks == ACKS_ALL or not self._shared.is_certain():
                give_up = partition.wait_until_replicated(end_offset, lambda error: self._finish(number, error))
                if give_up is not None:
                    self._give_up[number] = give_up
                    self._watch_deadline()
            else:
                self._finish(number, ErrorCode.NONE)
        self._settle_memory()

    def _failed(self, number: int, partition: Partition, header: BatchHeader) -> None:
        self._end_write(number)
        error = ErrorCode.KAFKA_STORAGE_ERROR
        self._finish(number, self._shared.refused_sequences.refuse(partition.topic, partition.index, header, error))
        self._settle_memory()

    def _begin_write(self, number: int, partition: Partition) -> None:
        directory_id = partition.directory_id
        wait = self._waits.get(directory_id)
        if wait is None:
            wait = self._waits[directory_id] = self._memory.wait_for(directory_id)
        wait.appends += 1
        held_for = self._unwritten.get(number)
        if held_for is not None:
            # The append was held back, perhaps while the partition changed its directory.
            held_for.appends -= 1
        self._unwritten[number] = wait
        self._shared.writing[self] = None

    def _end_write(self, number: int) -> None:
        self._unwritten.pop(number).appends -= 1
        if not self._unwritten:
            del self._shared.writing[self]

    def give_up_on(self, directory_id: DirectoryId) -> None:
        """Answers what waits for this directory (rule 7). The memory still counts as the directory's."""
        wait = self._waits.get(directory_id)
        if wait is None:
            return
        for number in [number for number, waits_for in self._unwritten.items() if waits_for is wait]:
            self._finish(number, ErrorCode.REQUEST_TIMED_OUT)
        wait.give_up()

    def _settle_memory(self) -> None:
        if not self._unwritten and (self._unanswered or self._is_kept):
            # Release the request's memory now. If requests that wait for followers kept their memory, there might be none
            # left to receive the followers' fetches.
            self._memory.release()
        # This comes last, because the connection may read on and call the handler from here.
        for directory_id in [directory_id for directory_id, wait in self._waits.items() if not wait.appends]:
            self._waits.pop(directory_id).end()

    def _finish(self, number: int, error: ErrorCode) -> None:
        answer = self._unanswered.pop(number, None)
        if answer is None:
            return
        self._give_up.pop(number, None)
        if error is not ErrorCode.NONE:
            self._is_refused = True
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
        if self._unwritten:
            self._is_kept = True
            self._memory.keep()
        if self._is_refused:
            self._response.node_endpoints = self._name_leaders()
        self.future.set_result(self._response)

    def _name_leaders(self) -> list[NodeEndpoint]:
        state = self._shared.replicas.state
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
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def _begin_verification(partition: Partition, header: BatchHeader, *, is_add: bool) -> VerificationGuard | None:
    try:
        return partition.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, begins_with_zero=is_add
        )
    except InvalidProducerEpoch as error:
        raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None


def _validated(records: object, partition: Partition, *, may_use_zstd: bool) -> Batches:
    """Validates the single batch of a partition, and only in a compacted topic its records. Raises Refused."""
    if not isinstance(records, memoryview) or not len(records):
        raise Refused(ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch, there is none")
    if records.readonly:
        # Copy the batch, because its offset and epoch are stamped in place.
        records = memoryview(bytearray(records))
    try:
        header, view = read_header(records), records
        if header.size != len(records):
            batches = split_batches(records)
            raise Refused(ErrorCode.INVALID_RECORD, f"a partition takes exactly one record batch, not {len(batches)}")
        validate_produced_batch(header, view)
    except (WrongMagic, InvalidRecordBatch) as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    except (CorruptBatch, BatchError) as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    _validate_served(header, partition, may_use_zstd=may_use_zstd)
    if partition.config.is_compacted:
        _validate_keys(header, view, partition)
    return [(header, view)]


def _recompressed(batches: Batches, partition: Partition, wanted: tuple[int, int | None]) -> Batches:
    """Compresses the batch with the codec that the topic wants. A batch of that codec stays as it is, whatever its level.
    This happens on the event loop, so it delays other requests by the time that the codec takes."""
    header, view = batches[0]
    code, level = wanted
    if header.compression == code:
        return batches
    try:
        changed = recompressed(header, view, code, level)
    except InvalidRecordBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    # The batch may have become larger.
    _validate_size(changed[0], partition)
    return [changed]


def _validate_keys(header: BatchHeader, view: memoryview, partition: Partition) -> None:
    try:
        keyless = keyless_records(header, view)
    except InvalidRecordBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    if keyless:
        errors = record_errors(partition.name, keyless)
        raise Refused(ErrorCode.INVALID_RECORD, summary(errors), errors)


def _validate_timestamps(header: BatchHeader, view: memoryview, partition: Partition, now_ms: int) -> None:
    config = partition.config
    earliest_ms, latest_ms = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp <= latest_ms and earliest_ms < 0:
        return
    try:
        untimely = untimely_records(header, view, earliest_ms=earliest_ms, latest_ms=latest_ms)
    except InvalidRecordBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    if untimely:
        message = "One or more records have been rejected due to invalid timestamp"
        errors = timestamp_errors(untimely, earliest_ms=earliest_ms, latest_ms=latest_ms)
        raise Refused(ErrorCode.INVALID_TIMESTAMP, message, errors)


def _validate_served(header: BatchHeader, partition: Partition, *, may_use_zstd: bool) -> None:
    _validate_size(header, partition)
    if header.has_log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not send batches with LogAppendTime")
    if header.compression == _ZSTD and not may_use_zstd:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {_ZSTD_FIRST_VERSION} or newer")


def _validate_size(header: BatchHeader, partition: Partition) -> None:
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
