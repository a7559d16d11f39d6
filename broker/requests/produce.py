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
7. While a directory is suspected of hanging (`common/log_dirs/directory_suspicion.py`), nothing waits for it: what already
   does is answered with REQUEST_TIMED_OUT, although its records may still be written, and new batches are refused. The
   same is true of what a swap holds back for too long (`Partition.is_swap_overdue`) and, with acks=all, while a follower in
   the ISR has such a directory (`PartitionReplica.is_held_up`).
8. A request counts as memory of the directories that it waits for. A directory with too much of it takes no further batches
   (`common/net/request_memory.py`, rule 6), so requests for a slow disk leave memory for those of the others.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from broker.coordinator.core.transactions.verification import RETRIABLE, Question, produce_error
from broker.coordinator.transaction_verifier import TransactionVerifier
from broker.core.refused_sequences import RefusedSequences
from broker.core.verification_guards import VerificationGuard
from broker.hosting.partition import Partition
from broker.hosting.replicas import Replicas
from broker.requests.current_leader import LEADER_MOVED, name_leaders
from broker.requests.produced_batch import Batch, RecordsLookedAt, Refused, validated, with_valid_records
from common.environment.interface import Environment, LogDirError
from common.ids import ZERO_UUID, DirectoryId, Offset, TopicId, Uuid
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.metadata.topic_names import is_internal_topic
from common.net.request_context import DirectoryWait, RequestContext
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
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchError,
    BatchHeader,
    read_header,
    set_log_append_time,
)
from common.storage.errors import LogClosed
from common.storage.producers.state import InvalidProducerEpoch, InvalidTransactionState, OutOfOrderSequence
from common.time_units import NS_PER_MS

ACKS_ALL = -1
_KNOWN_ACKS = (0, 1, ACKS_ALL)
_ABORTABLE_FIRST_VERSION = 11
_ADDS_PARTITIONS_FIRST_VERSION = 12
_TOPIC_IDS_FIRST_VERSION = 13
# Like in Kafka, a client of this name may write to the brokers' own topics.
_ADMIN_CLIENT_ID = "__admin_client"
# What every answer says first. Never changed: another leader is a new object.
_NO_LEADER = LeaderIdAndEpoch()


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


class _Append:
    """The batch for one partition, until it is written and answered."""

    __slots__ = (
        "_produce",
        "answer",
        "batch",
        "give_up",
        "guard",
        "header",
        "is_answered",
        "must_be_verified",
        "partition",
        "wait",
    )

    def __init__(
        self,
        produce: "_Produce",
        partition: Partition,
        batch: Batch,
        answer: PartitionProduceResponse,
        must_be_verified: bool,
        guard: VerificationGuard | None,
    ) -> None:
        self._produce = produce
        self.partition = partition
        self.answer = answer
        self.must_be_verified = must_be_verified
        # Set while the coordinator is asked about the batch, and afterwards.
        self.guard = guard
        self.header = batch[0]
        # None once the log has the batch or it is refused. Nothing else may keep its memory until the answer.
        self.batch: Batch | None = batch
        # The wait for the directory. None once the kernel has the batch, or when it will not get it. Until then the append
        # needs the request's memory.
        self.wait: DirectoryWait | None = None
        # Cancels the wait for replication. None if there is none.
        self.give_up: Callable[[], None] | None = None
        # Whether the partition's answer is final.
        self.is_answered = False

    def begin(self) -> None:
        """Gives the batch to the log. Raises Refused."""
        assert self.batch is not None
        try:
            first_offset = self.partition.append_as_leader(
                [self.batch],
                on_written=self._written,
                on_failed=self._failed,
                on_duplicate=self._answer_as_before,
                must_be_verified=self.must_be_verified,
                guard=self.guard,
            )
        except (LogDirError, LogClosed):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR) from None
        except OutOfOrderSequence as error:
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from None
        except InvalidProducerEpoch as error:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None
        except InvalidTransactionState as error:
            raise Refused(ErrorCode.INVALID_TXN_STATE, str(error)) from None
        self.batch = None
        self.answer.base_offset = first_offset
        self.answer.log_start_offset = self.partition.log.log_start_offset

    def begin_held(self) -> None:
        """Gives the log what was held back while the partition changed its directory or the coordinator was asked, unless
        this broker no longer leads the partition, or not in the same epoch."""
        try:
            error = self.partition.leader_error()
            if error is not ErrorCode.NONE:
                raise Refused(error)
            if self.guard is not None and self.guard.leader_epoch != self.partition.replica.leader_epoch:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._produce.append(self)
        except Refused as refused:
            self._produce.refuse_held(self, refused.code)

    def _written(self, end_offset: Offset) -> None:
        self._produce.written(self, end_offset)

    def _failed(self) -> None:
        self._produce.failed(self)

    def _answer_as_before(self, timestamp_ms: int) -> None:
        if self.answer.log_append_time_ms != NO_TIMESTAMP:
            self.answer.log_append_time_ms = timestamp_ms


class _Produce:
    """The state of one Produce request, until it is answered. Does not reference the request or its context, because both
    keep the records alive."""

    __slots__ = (
        "_acks",
        "_api_version",
        "_appends",
        "_cancel_deadline",
        "_client_id",
        "_deadline_ns",
        "_is_kept",
        "_is_refused",
        "_listener_name",
        "_looked_at",
        "_memory",
        "_response",
        "_shared",
        "_transactional_id",
        "_unanswered",
        "_unwritten",
        "_waits",
        "future",
    )

    def __init__(self, shared: _Shared, context: RequestContext, request: ProduceRequest) -> None:
        """`shared.writing` holds this request while `_unwritten` is not 0."""
        self._shared = shared
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._api_version = context.api_version
        self._client_id = context.client_id
        self._listener_name = context.listener_name
        self._memory = context.memory
        self._looked_at = RecordsLookedAt()
        self._response = ProduceResponse()
        # The appends of all partitions. Emptied when all of them are written and answered: the two refer to each other, and
        # only a garbage collection frees a cycle.
        self._appends: list[_Append] = []
        # How many of them are not answered, and how many the kernel may not have yet.
        self._unanswered = 0
        self._unwritten = 0
        # The waits of the appends for their directories. Ended ones leave in `_settle_memory`.
        self._waits: dict[DirectoryId, DirectoryWait] = {}
        # Whether a partition's answer may have an error, apart from a timeout.
        self._is_refused = False
        # Whether the request was answered before its appends were written (acks=0, or a short timeout).
        self._is_kept = False
        self.future: asyncio.Future[ProduceResponse] = shared.loop.create_future()
        self._deadline_ns = shared.env.now_ns() + max(request.timeout_ms, 0) * NS_PER_MS
        self._cancel_deadline: Callable[[], None] | None = None

    # --- the request ---------------------------------------------------------------------------------------------

    def append_all(self, request: ProduceRequest) -> None:
        for topic in request.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._response.responses.append(answers)
            name = topic.name if self._api_version < _TOPIC_IDS_FIRST_VERSION else self._name_of(topic.topic_id)
            for data in topic.partition_data:
                answer = PartitionProduceResponse(index=data.index, base_offset=-1, current_leader=_NO_LEADER)
                answers.partition_responses.append(answer)
                if name is None:
                    self._is_refused = True
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    self._shared.replicas.traffic.produce_refused("", ErrorCode.UNKNOWN_TOPIC_ID)
                    continue
                try:
                    self._begin(name, data.records, answer)
                except Refused as refused:
                    self._is_refused = True
                    answer.error_code = self._judge(name, data.index, data.records, refused.code)
                    answer.log_append_time_ms = NO_TIMESTAMP
                    answer.error_message = refused.message
                    answer.record_errors = refused.record_errors
                    self._shared.replicas.traffic.produce_refused(name, refused.code)
        if request.acks == 0:
            # The client gets no answer, whatever the result of the writes.
            for append in self._appends:
                append.is_answered = True
            self._unanswered = 0
        if not self._unanswered:
            self._complete()

    def _name_of(self, topic_id: Uuid) -> str | None:
        """Returns the name by which this broker finds the topic, as it does where clients send names. A topic that has been
        deleted has none, even if there is a new one of its name."""
        topic = self._shared.replicas.state.topics.get(TopicId(topic_id))
        return None if topic is None else topic.name

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
        """Sets the client's timeout, unless it is set. It limits only the wait for replication; disk operations have their
        own deadline. So a partition that needs no replication is answered without an error even if the timeout is 0."""
        if self._cancel_deadline is None:
            self._cancel_deadline = self._shared.env.call_at(self._deadline_ns, self._time_out)

    def first_refusal(self) -> ErrorCode | None:
        """Returns the first error among the partitions, or None."""
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.error_code != ErrorCode.NONE:
                    return ErrorCode(answer.error_code)
        return None

    # --- one partition -------------------------------------------------------------------------------------------

    def _begin(self, topic: str, records: object, answer: PartitionProduceResponse) -> None:
        """Appends the batch for one partition, or holds it back. Raises Refused."""
        partition = self._partition(topic, answer.index)
        batch = validated(records, partition, api_version=self._api_version)
        is_transactional = batch[0].is_transactional
        if is_transactional or self._transactional_id is not None:
            self._validate_transactional(batch[0])
        now_ms = self._shared.env.wall_ms()
        batch = with_valid_records(batch, partition, now_ms, self._looked_at)
        if partition.config.has_log_append_time:
            batch = set_log_append_time(batch[1], now_ms), batch[1]
            answer.log_append_time_ms = now_ms
        header = batch[0]
        must_be_verified = is_transactional and self._must_verify()
        guard = _begin_verification(partition, header, is_add=self._adds_partitions) if must_be_verified else None
        append = _Append(self, partition, batch, answer, must_be_verified, guard)
        if guard is None and not partition.is_swapping:
            self.append(append)
            self._register(append)
            return
        self._register(append)
        # The request keeps its memory while the append is held back.
        self._begin_write(append)
        if guard is None:
            partition.when_appendable(append.begin_held)
        else:
            self._verify(append, guard)

    def _partition(self, topic: str, index: int) -> Partition:
        """Returns the partition if this broker leads it and may take a batch for it now. Raises Refused."""
        if self._acks not in _KNOWN_ACKS:
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
        if is_internal_topic(topic) and self._client_id != _ADMIN_CLIENT_ID:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients may not write to {topic}")
        partition = self._shared.replicas.find_named(topic, index)
        if isinstance(partition, ErrorCode):
            raise Refused(partition)
        error = partition.leader_error()
        if error is not ErrorCode.NONE:
            raise Refused(error)
        directory_id = partition.directory_id
        if partition.waits_for_any(self._shared.replicas.suspected):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "the directory of this replica finishes nothing")
        if directory_id not in self._waits and not self._memory.has_room_for(directory_id):
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "too many records wait for the directory of this replica")
        if self._acks == ACKS_ALL and not partition.has_enough_in_sync():
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        if self._acks == ACKS_ALL and partition.replica.is_held_up:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, "the directory of a follower finishes nothing")
        return partition

    def _register(self, append: _Append) -> None:
        self._appends.append(append)
        self._unanswered += 1

    def append(self, append: _Append) -> None:
        """Gives the batch to the log. Raises Refused."""
        append.begin()
        self._begin_write(append)
        partition, header = append.partition, append.header
        self._shared.refused_sequences.appended(partition.topic, partition.index, header.producer_id)
        self._shared.replicas.traffic.produced(
            partition.topic, messages=header.record_count, size=header.batch_length + LOG_OVERHEAD
        )

    def written(self, append: _Append, end_offset: Offset) -> None:
        """Notes that the kernel has the batch, which ends at this offset."""
        self._end_write(append)
        if not append.is_answered:
            # If the process was stopped meanwhile, this broker may no longer be the leader. Then only replicated records
            # survive, so wait for replication even with acks=1.
            if self._acks == ACKS_ALL or not self._shared.is_certain():
                append.give_up = append.partition.wait_until_replicated(end_offset, partial(self._finish, append))
                if append.give_up is not None:
                    self._watch_deadline()
            else:
                self._finish(append, ErrorCode.NONE)
        self._settle_memory()

    def failed(self, append: _Append) -> None:
        """Notes that the append has failed."""
        self._end_write(append)
        self._finish(append, self._refused_sequence(append, ErrorCode.KAFKA_STORAGE_ERROR))
        self._settle_memory()

    def refuse_held(self, append: _Append, error: ErrorCode) -> None:
        """Refuses what was held back."""
        append.batch = None
        error = self._refused_sequence(append, error)
        self._shared.replicas.traffic.produce_refused(append.partition.topic, error)
        self._end_write(append)
        self._finish(append, error)
        self._settle_memory()

    def _refused_sequence(self, append: _Append, error: ErrorCode) -> ErrorCode:
        partition = append.partition
        return self._shared.refused_sequences.refuse(partition.topic, partition.index, append.header, error)

    # --- transactions --------------------------------------------------------------------------------------------

    @property
    def _adds_partitions(self) -> bool:
        """Whether the coordinator adds the partitions to the transaction (KIP-890)."""
        return self._api_version >= _ADDS_PARTITIONS_FIRST_VERSION

    def _must_verify(self) -> bool:
        # The producer relies on the coordinator to add its partitions, so that is not optional.
        verifier = self._shared.verifier
        assert verifier is not None, "checked in `_validate_transactional`"
        return self._adds_partitions or verifier.is_enabled

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

    def _verify(self, append: _Append, guard: VerificationGuard) -> None:
        """Asks the coordinator about the transaction of a batch that is held back."""
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
        self._shared.verifier.verify(question, guard, lambda error: self._verified(append, guard, error))

    def _verified(self, append: _Append, guard: VerificationGuard, error: ErrorCode) -> None:
        """Appends what was held back while the coordinator was asked, unless its answer forbids that."""
        if error is ErrorCode.NONE:
            append.partition.when_appendable(append.begin_held)
            return
        if error not in RETRIABLE:
            append.partition.verification_guards.drop(guard)
        append.answer.error_message = f"the coordinator has not confirmed the transaction: {error.name}"
        error = produce_error(
            error, knows_abortable=self._api_version >= _ABORTABLE_FIRST_VERSION, is_add=self._adds_partitions
        )
        self.refuse_held(append, error)

    # --- memory --------------------------------------------------------------------------------------------------

    def _begin_write(self, append: _Append) -> None:
        directory_id = append.partition.directory_id
        wait = self._waits.get(directory_id)
        if wait is None:
            wait = self._waits[directory_id] = self._memory.wait_for(directory_id)
        wait.appends += 1
        if append.wait is None:
            self._unwritten += 1
            self._shared.writing[self] = None
        else:
            # The append was held back, perhaps while the partition changed its directory.
            append.wait.appends -= 1
        append.wait = wait

    def _end_write(self, append: _Append) -> None:
        assert append.wait is not None
        append.wait.appends -= 1
        append.wait = None
        self._unwritten -= 1
        if not self._unwritten:
            del self._shared.writing[self]

    def give_up_on(self, directory_id: DirectoryId) -> None:
        """Answers what waits for this directory (rule 7). The memory still counts as the directory's."""
        for append in [*self._appends]:
            if append.wait is not None and append.partition.waits_for_any((directory_id,)):
                self._finish(append, ErrorCode.REQUEST_TIMED_OUT)
        wait = self._waits.get(directory_id)
        if wait is not None:
            wait.give_up()

    def _settle_memory(self) -> None:
        if not self._unwritten and (self._unanswered or self._is_kept):
            # Release the request's memory now. If requests that wait for followers kept their memory, there might be none
            # left to receive the followers' fetches.
            self._memory.release()
        if not self._unwritten and not self._unanswered:
            self._appends.clear()
        # This comes last, because the connection may read on and call the handler from here.
        if not self._unwritten:
            ended, self._waits = self._waits, {}
        else:
            ended = {directory_id: wait for directory_id, wait in self._waits.items() if not wait.appends}
            for directory_id in ended:
                del self._waits[directory_id]
        for wait in ended.values():
            wait.end()

    # --- the answer ----------------------------------------------------------------------------------------------

    def _finish(self, append: _Append, error: ErrorCode) -> None:
        if append.is_answered:
            return
        append.is_answered = True
        append.give_up = None
        if error is not ErrorCode.NONE:
            self._is_refused = True
            _refuse(append.answer, error)
        self._unanswered -= 1
        if not self._unanswered:
            self._complete()

    def _time_out(self) -> None:
        unanswered = [append for append in self._appends if not append.is_answered]
        self._unanswered = 0
        for append in unanswered:
            append.is_answered = True
            _refuse(append.answer, ErrorCode.REQUEST_TIMED_OUT)
            if append.give_up is not None:
                append.give_up()
        self._complete()

    def _complete(self) -> None:
        if self._cancel_deadline is not None:
            self._cancel_deadline()
        if not self._unwritten:
            self._appends.clear()
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
            (answer, _registration(state, topic, answer.index))
            for topic in self._response.responses
            for answer in topic.partition_responses
            if answer.error_code in LEADER_MOVED
        )
        return name_leaders(state, self._listener_name, moved, LeaderIdAndEpoch, NodeEndpoint)


def _registration(state: MetadataState, topic: TopicProduceResponse, index: int) -> PartitionRegistration | None:
    found = state.topic_named(topic.name) if topic.topic_id == ZERO_UUID else state.topics.get(TopicId(topic.topic_id))
    return None if found is None else found.partitions.get(index)


def _refuse(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    answer.error_code = error
    answer.base_offset = -1
    answer.log_append_time_ms = NO_TIMESTAMP
    answer.log_start_offset = -1


def _begin_verification(partition: Partition, header: BatchHeader, *, is_add: bool) -> VerificationGuard | None:
    try:
        return partition.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, begins_with_zero=is_add
        )
    except InvalidProducerEpoch as error:
        raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from None
