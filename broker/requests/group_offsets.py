"""Answers OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: the positions of groups (shell).

Counterpart of the offset part of Kafka's KafkaApis. The core knows topics by name and does not know which of them exist. So
the requests are brought into one form here: topics and partitions that do not exist are answered without the core, ids (from
version 10 on) become names, and the single group of an older OffsetFetch becomes a list of one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from broker.coordinator.core.result import Caller
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.transaction_verifier import TransactionVerifier
from broker.coordinator.waiting_request import WaitingRequest
from broker.requests.coordinator_parts import Parts, all_of
from broker.requests.groups import response_of, waiting_for
from common.ids import ZERO_UUID, TopicId
from common.metadata.registrations import Topic
from common.metadata.state import MetadataState
from common.net.request_context import Handler, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from common.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from common.slices import pause_before

_TOPIC_ID_FIRST_VERSION = 10
_TRANSACTIONAL_TOPIC_ID_FIRST_VERSION = 6
_GROUP_ERROR_FIRST_VERSION = 2
_SEVERAL_GROUPS_FIRST_VERSION = 8
_MISSING_GROUPS_FIRST_VERSION = 9
_ABORTABLE_FIRST_VERSION = 4
_ADDS_PARTITION_FIRST_VERSION = 5
_NO_OFFSET = -1


class AskedPartition(Protocol):
    """What all these requests say about a partition."""

    partition_index: int


Asked = TypeVar("Asked", bound=AskedPartition)
CommittedTopic = TypeVar("CommittedTopic", OffsetCommitRequestTopic, TxnOffsetCommitRequestTopic)


class AskedTopic(Protocol[Asked]):
    """What all these requests say about a topic."""

    partitions: list[Asked]


class GroupOffsetsRequests:
    """Handles these requests; the request server calls the methods."""

    def __init__(self, state: MetadataState, coordinator: GroupCoordinator, verifier: TransactionVerifier) -> None:
        self._state = state
        self._coordinator = coordinator
        self._verifier = verifier

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.OFFSET_COMMIT: self.handle_commit,
            ApiKey.TXN_OFFSET_COMMIT: self.handle_transactional_commit,
            ApiKey.OFFSET_FETCH: self.handle_fetch,
            ApiKey.OFFSET_DELETE: self.handle_delete,
        }

    # --- commit --------------------------------------------------------------------------------------------------

    def handle_commit(self, context: RequestContext, request: OffsetCommitRequest) -> Any:
        """Answers once the offsets are committed in every in-sync replica of the group's partition."""
        by_id = context.api_version >= _TOPIC_ID_FIRST_VERSION
        refused = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetCommitResponsePartition(partition_index=each, error_code=error) for each in missing],
            )
            for topic, missing, error in self._sort_out(request.topics, by_id=by_id)
        ]
        request.topics = [topic for topic in request.topics if topic.partitions]
        if not request.topics:
            return OffsetCommitResponse(topics=refused)
        waiting = waiting_for(context, request)
        caller = Caller("", "", knows_missing_groups=context.api_version >= _MISSING_GROUPS_FIRST_VERSION)
        self._coordinator.perform(
            request.group_id, waiting, lambda shard, now: [shard.commit_offsets(now, waiting, caller, request)]
        )
        return _with_refused(waiting, refused) if refused else response_of(context, waiting)

    def handle_transactional_commit(self, context: RequestContext, request: TxnOffsetCommitRequest) -> Any:
        """Answers once the offsets are in the producer's transaction, in every in-sync replica of the group's partition."""
        by_id = context.api_version >= _TRANSACTIONAL_TOPIC_ID_FIRST_VERSION
        refused = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[TxnOffsetCommitResponsePartition(partition_index=each, error_code=error) for each in missing],
            )
            for topic, missing, error in self._sort_out(request.topics, by_id=by_id)
        ]
        request.topics = [topic for topic in request.topics if topic.partitions]
        waiting = waiting_for(context, request)
        if not request.group_id:
            waiting.refuse(ErrorCode.INVALID_GROUP_ID)
        elif not request.topics:
            waiting.answer(TxnOffsetCommitResponse())
        else:
            self._coordinator.commit_transactional(
                request,
                waiting,
                self._verifier,
                caller=Caller("", "", knows_missing_groups=by_id),
                knows_abortable=context.api_version >= _ABORTABLE_FIRST_VERSION,
                is_add=context.api_version >= _ADDS_PARTITION_FIRST_VERSION,
            )
        return _with_refused(waiting, refused) if refused else response_of(context, waiting)

    def _sort_out(
        self, topics: Iterable[CommittedTopic], *, by_id: bool
    ) -> Iterator[tuple[CommittedTopic, list[int], ErrorCode]]:
        """Completes the name and the id of each topic that exists, and removes the partitions that do not exist from the
        request. Yields each topic that had such partitions, with their indexes and their error."""
        for asked in topics:
            topic = self._state.topics.get(TopicId(asked.topic_id)) if by_id else self._state.topic_named(asked.name)
            if topic is not None:
                asked.name, asked.topic_id = topic.name, topic.id
            missing = _take_out_missing(asked, topic)
            if missing:
                is_id_unknown = topic is None and by_id
                yield asked, missing, ErrorCode.UNKNOWN_TOPIC_ID if is_id_unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- fetch ---------------------------------------------------------------------------------------------------

    def handle_fetch(self, context: RequestContext, request: OffsetFetchRequest) -> Any:
        """Answers for each group with the offsets that are committed."""
        if context.api_version < _SEVERAL_GROUPS_FIRST_VERSION:
            topics = request.topics
            group = OffsetFetchRequestGroup(
                group_id=request.group_id,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in topics],
            )
            has_group_error = context.api_version >= _GROUP_ERROR_FIRST_VERSION
            return _single_response(self._fetch_group(request, group), group, has_group_error=has_group_error)
        if context.api_version >= _TOPIC_ID_FIRST_VERSION:
            return self._fetched_by_id(Parts(partial(self._fetch_by_id, request), request.groups))
        return _fetched(Parts(partial(self._fetch_group, request), request.groups))

    def _fetch_group(self, request: OffsetFetchRequest, group: OffsetFetchRequestGroup) -> WaitingRequest:
        group_id = group.group_id
        require_stable = request.require_stable
        waiting = WaitingRequest(
            ApiKey.OFFSET_FETCH, lambda error: OffsetFetchResponseGroup(group_id=group_id, error_code=error)
        )
        self._coordinator.perform(
            group_id,
            waiting,
            lambda shard, now: [shard.fetch_offsets(now, waiting, group, require_stable=require_stable)],
        )
        return waiting

    def _fetch_by_id(
        self, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
    ) -> tuple[WaitingRequest, list[OffsetFetchResponseTopics]]:
        """Returns the pending answer for the topics whose ids are known, and the errors for the others."""
        unknown: list[OffsetFetchResponseTopics] = []
        if group.topics is not None:
            named = []
            for asked in group.topics:
                topic = self._state.topics.get(TopicId(asked.topic_id))
                if topic is None:
                    unknown.append(_unknown_topic(asked))
                else:
                    named.append(OffsetFetchRequestTopics(name=topic.name, partition_indexes=asked.partition_indexes))
            group.topics = named
        return self._fetch_group(request, group), unknown

    async def _fetched_by_id(
        self, parts: Parts[tuple[WaitingRequest, list[OffsetFetchResponseTopics]]]
    ) -> OffsetFetchResponse:
        response = OffsetFetchResponse()
        for number, (waiting, unknown) in enumerate(await parts.begun()):
            await pause_before(number)
            answer: OffsetFetchResponseGroup = await waiting.future
            if answer.error_code == ErrorCode.NONE:
                for topic in answer.topics:
                    topic.topic_id = self._state.topic_ids.get(topic.name, TopicId(ZERO_UUID))
                # A topic that is gone has no id to be named by.
                answer.topics = [topic for topic in answer.topics if topic.topic_id != ZERO_UUID] + unknown
            response.groups.append(answer)
        return response

    # --- delete --------------------------------------------------------------------------------------------------

    def handle_delete(self, context: RequestContext, request: OffsetDeleteRequest) -> Any:
        """Deletes committed offsets of topics to which the group is not subscribed."""
        waiting = waiting_for(context, request)
        if not request.group_id:
            waiting.refuse(ErrorCode.INVALID_GROUP_ID)
            return response_of(context, waiting)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[OffsetDeleteResponsePartition(partition_index=each, error_code=error) for each in missing],
            )
            for topic in request.topics
            if (missing := _take_out_missing(topic, self._state.topic_named(topic.name)))
        ]
        self._coordinator.perform(request.group_id, waiting, lambda shard, now: shard.delete_offsets(now, waiting, request))
        return _with_undeleted(waiting, refused) if refused else response_of(context, waiting)


def _take_out_missing(asked: AskedTopic[Asked], topic: Topic | None) -> list[int]:
    """Takes the partitions that do not exist out of a request, and returns their indexes."""
    exists = () if topic is None else topic.partitions
    missing = [each.partition_index for each in asked.partitions if each.partition_index not in exists]
    if missing:
        asked.partitions = [each for each in asked.partitions if each.partition_index in exists]
    return missing


async def _with_refused(
    waiting: WaitingRequest, refused: Sequence[OffsetCommitResponseTopic] | Sequence[TxnOffsetCommitResponseTopic]
) -> Any:
    """Adds the refused partitions to the response of the coordinator, which has only the others."""
    response = await waiting.future
    by_topic = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in refused:
        answered = by_topic.get((topic.name, topic.topic_id))
        if answered is None:
            response.topics.append(topic)
        else:
            answered.partitions += topic.partitions
    return response


async def _with_undeleted(waiting: WaitingRequest, refused: list[OffsetDeleteResponseTopic]) -> OffsetDeleteResponse:
    response: OffsetDeleteResponse = await waiting.future
    if response.error_code == ErrorCode.NONE:
        by_name = {topic.name: topic for topic in response.topics}
        for topic in refused:
            if topic.name in by_name:
                by_name[topic.name].partitions += topic.partitions
            else:
                response.topics.append(topic)
    return response


def _unknown_topic(asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=_NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for index in asked.partition_indexes
        ],
    )


async def _fetched(parts: Parts[WaitingRequest]) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=await all_of(parts))


async def _single_response(
    waiting: WaitingRequest, asked: OffsetFetchRequestGroup, *, has_group_error: bool
) -> OffsetFetchResponse:
    """Brings the answer for one group into the form of the versions below 8. Version 1 has no code for the whole response,
    so every partition carries the error."""
    group: OffsetFetchResponseGroup = await waiting.future
    if group.error_code != ErrorCode.NONE and not has_group_error:
        group.topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=_NO_OFFSET, error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
