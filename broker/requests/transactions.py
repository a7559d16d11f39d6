"""Answers the requests of transactional producers to their coordinator, and the queries about transactions (shell).

Counterpart of the transaction part of Kafka's KafkaApis. Each request goes to the shard of its transactional id. A client of
an older version does not know PRODUCER_FENCED (KIP-588), nor the batched form of AddPartitionsToTxn that brokers use among
themselves (KIP-890).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from broker.coordinator.coordinator_partition import CoordinatorPartition
from broker.coordinator.core.group_partition import OFFSETS_TOPIC
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.core.regex import InvalidRegex, Regex
from broker.coordinator.core.transactions.partitions import partition_results
from broker.coordinator.core.transactions.queries import (
    TransactionFilter,
    matching_pattern,
    requested_pattern,
    unknown_states,
)
from broker.coordinator.core.transactions.shard import TransactionShard
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from broker.coordinator.waiting_request import WaitingRequest
from broker.requests.coordinator_parts import Parts, all_of, list_error
from broker.requests.find_coordinator import InternalTopicCreation
from broker.requests.groups import response_of, waiting_for
from common.metadata.metadata_version import EPOCH_BUMP_TRANSACTION_VERSION
from common.metadata.state import MetadataState
from common.metadata.topic_names import is_internal_topic
from common.net.request_context import Handler, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from common.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from common.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from common.protocol.messages.end_txn import EndTxnRequest
from common.protocol.messages.init_producer_id import InitProducerIdRequest
from common.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from common.slices import result_in_slices

_FENCING_FIRST_VERSION = 2
_INIT_FENCING_FIRST_VERSION = 4
_BATCHED_FIRST_VERSION = 4
_EPOCH_BUMP_FIRST_VERSION = 5


class TransactionRequests:
    """Handles these requests; the request server calls the methods. `take_id` returns an id that no other producer has, or
    raises ApiError."""

    def __init__(
        self,
        state: MetadataState,
        coordinator: TransactionCoordinator,
        key_partitions: KeyPartitions,
        topics: InternalTopicCreation,
        take_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._state = state
        self._topics = topics
        self._coordinator = coordinator
        self._key_partitions = key_partitions
        self._take_id = take_id

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: self.handle_add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.handle_add_offsets,
            ApiKey.END_TXN: self.handle_end,
            ApiKey.DESCRIBE_TRANSACTIONS: self.handle_describe,
            ApiKey.LIST_TRANSACTIONS: self.handle_list,
        }

    # --- producers -----------------------------------------------------------------------------------------------

    async def init_producer(self, context: RequestContext, request: InitProducerIdRequest) -> Any:
        """Answers an InitProducerId with a transactional id. Takes a producer id only if the shard needs one."""
        transactional_id = request.transactional_id or ""
        knows_fencing = context.api_version >= _INIT_FENCING_FIRST_VERSION
        waiting = waiting_for(context, request)
        shard = self._coordinator.shard_of(transactional_id)
        fresh_id = await self._take_id() if shard is not None and shard.needs_producer_id(request) else None
        self._coordinator.perform(
            transactional_id,
            waiting,
            lambda shard, now: [shard.init_producer_id(now, waiting, request, fresh_id, knows_fencing=knows_fencing)],
        )
        return await waiting.future

    # --- transactions --------------------------------------------------------------------------------------------

    def handle_add_partitions(self, context: RequestContext, request: AddPartitionsToTxnRequest) -> Any:
        """Adds partitions to transactions, or verifies that they are in one."""
        if context.api_version >= _BATCHED_FIRST_VERSION:
            return self.add_or_verify(request)
        asked = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        knows_fencing = context.api_version >= _FENCING_FIRST_VERSION
        return _single(self._add_or_verify(asked, knows_fencing=knows_fencing, version=0))

    async def add_or_verify(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Answers for several transactions. A leader on this broker calls it directly. Only leaders add in this way, for
        producers of transaction.version 2."""
        version = EPOCH_BUMP_TRANSACTION_VERSION
        return AddPartitionsToTxnResponse(
            results_by_transaction=await all_of(
                Parts(partial(self._add_or_verify, knows_fencing=True, version=version), request.transactions)
            )
        )

    def _add_or_verify(self, asked: AddPartitionsToTxnTransaction, *, knows_fencing: bool, version: int) -> WaitingRequest:
        waiting = WaitingRequest(
            ApiKey.ADD_PARTITIONS_TO_TXN, lambda error: partition_results(asked, lambda _partition: error)
        )
        if not asked.transactional_id:
            waiting.refuse(ErrorCode.INVALID_REQUEST)
        elif asked.verify_only:
            self._coordinator.perform(
                asked.transactional_id, waiting, lambda shard, now: [shard.verify_partitions(now, waiting, asked)]
            )
        elif refused := self._refused(asked, is_client=version < EPOCH_BUMP_TRANSACTION_VERSION):
            # All or nothing: the other partitions are not added either.
            waiting.answer(partition_results(asked, lambda each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)))
        else:
            self._coordinator.perform(
                asked.transactional_id,
                waiting,
                lambda shard, now: [
                    shard.add_partitions(now, waiting, asked, knows_fencing=knows_fencing, transaction_version=version)
                ],
            )
        return waiting

    def _refused(self, asked: AddPartitionsToTxnTransaction, *, is_client: bool) -> dict[tuple[str, int], ErrorCode]:
        """Returns the errors of the partitions that do not exist, and of those that a client may not write to."""
        refused = {}
        for each in asked.topics:
            topic = self._state.topic_named(each.name)
            exists = () if topic is None else topic.partitions
            is_forbidden = is_client and is_internal_topic(each.name)
            for index in each.partitions:
                if is_forbidden:
                    refused[each.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif index not in exists:
                    refused[each.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    def handle_add_offsets(self, context: RequestContext, request: AddOffsetsToTxnRequest) -> Any:
        """Adds the partition of `__consumer_offsets` that holds the group's offsets."""
        waiting = waiting_for(context, request)
        found = self._key_partitions.find(OFFSETS_TOPIC, request.group_id)
        if not request.transactional_id:
            waiting.refuse(ErrorCode.INVALID_REQUEST)
        elif found is None:
            # aiokafka looks for the group's coordinator only after this request, so it may be the first to need the topic.
            self._topics.create_internal(OFFSETS_TOPIC)
            waiting.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            partition = (OFFSETS_TOPIC, found.partition)
            producer = (request.producer_id, request.producer_epoch)
            knows_fencing = context.api_version >= _FENCING_FIRST_VERSION
            self._coordinator.perform(
                request.transactional_id,
                waiting,
                lambda shard, now: [
                    shard.add_offsets(
                        now, waiting, request.transactional_id, producer, partition, knows_fencing=knows_fencing
                    )
                ],
            )
        return response_of(context, waiting)

    def handle_end(self, context: RequestContext, request: EndTxnRequest) -> Any:
        """Answers once the outcome is decided. The markers follow."""
        waiting = waiting_for(context, request)
        knows_fencing = context.api_version >= _FENCING_FIRST_VERSION
        if request.transactional_id and context.api_version >= _EPOCH_BUMP_FIRST_VERSION:
            return self._end_bumping(waiting, request)
        if request.transactional_id:
            self._coordinator.perform(
                request.transactional_id,
                waiting,
                lambda shard, now: [shard.end_transaction(now, waiting, request, knows_fencing=knows_fencing)],
            )
        else:
            waiting.refuse(ErrorCode.INVALID_REQUEST)
        return response_of(context, waiting)

    async def _end_bumping(self, waiting: WaitingRequest, request: EndTxnRequest) -> Any:
        shard = self._coordinator.shard_of(request.transactional_id)
        fresh_id = await self._take_id() if shard is not None and shard.end_needs_producer_id(request) else None
        self._coordinator.perform(
            request.transactional_id,
            waiting,
            lambda shard, now: [shard.end_bumping(now, waiting, request, fresh_id)],
        )
        return await waiting.future

    # --- queries -------------------------------------------------------------------------------------------------

    def handle_describe(self, _context: RequestContext, request: DescribeTransactionsRequest) -> Any:
        """Describes each transactional id that is named, once."""
        return _described(Parts(self._describe, dict.fromkeys(request.transactional_ids)))

    def _describe(self, transactional_id: str) -> WaitingRequest:
        waiting = WaitingRequest(
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda error: TransactionState(error_code=error, transactional_id=transactional_id),
        )
        self._coordinator.perform(
            transactional_id, waiting, lambda shard, now: [shard.describe_transaction(now, waiting, transactional_id)]
        )
        return waiting

    def handle_list(self, _context: RequestContext, request: ListTransactionsRequest) -> Any:
        """Lists the transactional ids of all partitions that this broker coordinates. If one cannot be listed now, the
        client is to ask again. Raises ApiError if the pattern is no regular expression."""
        try:
            pattern = requested_pattern(request)
        except InvalidRegex as error:
            raise ApiError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"`{request.transactional_id_pattern}` is not a valid regular expression: {error}.",
            ) from error
        partitions = self._coordinator.loaded_and_loading()
        parts = Parts(partial(_list, TransactionFilter(request)), partitions)
        return self._listed(partitions, parts, unknown_states(request), pattern)

    async def _listed(
        self,
        partitions: Sequence[CoordinatorPartition[TransactionShard]],
        parts: Parts[WaitingRequest],
        unknown: list[str],
        pattern: Regex | None,
    ) -> ListTransactionsResponse:
        answers = await all_of(parts)
        if error := list_error(self._coordinator, partitions, answers):
            return ListTransactionsResponse(error_code=_ask_again(error), unknown_state_filters=unknown)
        found = [each for answer in answers for each in answer.transaction_states]
        if pattern is not None:
            found = await result_in_slices(matching_pattern(pattern, found), items=1)
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _list(asked: TransactionFilter, partition: CoordinatorPartition[TransactionShard]) -> WaitingRequest:
    waiting = WaitingRequest(ApiKey.LIST_TRANSACTIONS, lambda error: ListTransactionsResponse(error_code=error))
    partition.perform(waiting, lambda shard, now: [shard.list_transactions(now, waiting, asked)])
    return waiting


async def _single(waiting: WaitingRequest) -> AddPartitionsToTxnResponse:
    result: AddPartitionsToTxnResult = await waiting.future
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


async def _described(parts: Parts[WaitingRequest]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=await all_of(parts))


def _ask_again(error: int) -> int:
    """Java's admin client gives up after COORDINATOR_NOT_AVAILABLE, as if the broker shut down. Here it is the answer of a
    partition whose records cannot be replicated for now."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error == ErrorCode.COORDINATOR_NOT_AVAILABLE else error
