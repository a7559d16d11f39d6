"""Answers Metadata and DescribeCluster from the newest image: brokers, topics, leaders, replicas (shell).

Counterpart of Kafka's KRaftMetadataCache and its handlers. docs/DESIGN.md, "Which replica is online", says which replicas
are offline. A client gets the endpoints of the listener that it is connected to. ControllerId names an unfenced *broker*:
admin clients send their requests there, and they may be unable to reach the controllers' network.
"""

import asyncio
from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from common.environment.interface import Environment
from common.ids import NO_LEADER, ZERO_UUID, BrokerId, TopicId, Uuid
from common.metadata.registrations import BrokerRegistration, PartitionRegistration, Topic
from common.metadata.state import MetadataState
from common.metadata.topic_names import InvalidTopicName, is_internal_topic, validate_topic_name
from common.net.endpoint_types import check_endpoint_type
from common.net.request_context import RequestContext
from common.protocol.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    EndpointType,
)
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from common.slices import ELEMENTS_PER_SLICE, at_once, result_in_slices

_NO_TOPICS_FIRST_VERSION = 1
_ALL_REPLICAS_FIRST_VERSION = 1
_LISTENER_NOT_FOUND_FIRST_VERSION = 6
_NULL_NAME_FIRST_VERSION = 12

# What a partition with three replicas takes in a response, about.
_PARTITION_BYTES = 60

Brokers = Mapping[BrokerId, BrokerRegistration]


class TopicCreation(Protocol):
    """Creates topics that clients asked for and that do not exist (`AutoTopics`)."""

    def create(self, names: Sequence[str]) -> None: ...


class MetadataRequests:
    """Handles Metadata and DescribeCluster."""

    def __init__(
        self, env: Environment, state: MetadataState, *, broker_id: BrokerId, cluster_id: str, auto_topics: TopicCreation
    ) -> None:
        self._env = env
        self._state = state
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._auto_topics = auto_topics
        # Held while many partitions are described: the descriptions of thousands take megabytes, and after a restart all
        # clients ask at once.
        self._long_answer = asyncio.Lock()

    def handle_metadata(
        self, context: RequestContext, request: MetadataRequest
    ) -> MetadataResponse | Awaitable[MetadataResponse]:
        """Returns the unfenced brokers and every requested topic. Each topic has its own error. Many partitions are
        described in slices, all as they are when the first one is described."""
        if _asks_for_all(request, context.api_version):
            if self._state.partition_count > ELEMENTS_PER_SLICE:
                context.memory.expect_response(self._state.partition_count * _PARTITION_BYTES)
                return self._answer_in_slices(context, request)
            return at_once(self._answer(context, request, self._all_topics()))
        missing: list[str] = []
        found = self._named_topics(request, context.api_version, missing)
        if missing and request.allow_auto_topic_creation:
            self._auto_topics.create(missing)
        elements = sum(1 + len(each.partitions) for each in found)
        if elements > ELEMENTS_PER_SLICE:
            context.memory.expect_response(elements * _PARTITION_BYTES)
            return self._answer_in_slices(context, request)
        return at_once(self._answer(context, request, found))

    async def _answer_in_slices(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        async with self._long_answer:
            if _asks_for_all(request, context.api_version):
                found = self._all_topics()
            else:
                found = self._named_topics(request, context.api_version, [])
            return await result_in_slices(self._answer(context, request, found), items=ELEMENTS_PER_SLICE)

    def _answer(
        self, context: RequestContext, request: MetadataRequest, found: Sequence["_Found"]
    ) -> Generator[None, None, MetadataResponse]:
        """Takes everything but the partitions from the image before it yields, which it does after each topic and
        partition."""
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=id_, host=host, port=port, rack=rack)
                for id_, host, port, rack in self._unfenced(context.listener_name)
            ],
            cluster_id=self._cluster_id,
            controller_id=self._controller_id(context.listener_name),
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )
        describer = _Describer(
            self._state.brokers,
            context.listener_name,
            context.api_version,
            with_operations=request.include_topic_authorized_operations,
        )
        for each in found:
            topic = describer.topic(each)
            response.topics.append(topic)
            yield
            for index in sorted(each.partitions):
                topic.partitions.append(describer.partition(index, each.partitions[index]))
                yield
        return response

    def handle_describe_cluster(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """Returns the unfenced brokers, and the fenced ones if asked. Raises ApiError if asked for controllers."""
        check_endpoint_type(request, context.api_version, served=EndpointType.BROKER)
        return DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=self._controller_id(context.listener_name),
            brokers=[
                DescribeClusterBroker(broker_id=id_, host=host, port=port, rack=rack, is_fenced=is_fenced)
                for id_, host, port, rack, is_fenced in self._brokers(context.listener_name)
                if request.include_fenced_brokers or not is_fenced
            ],
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )

    # --- brokers --------------------------------------------------------------------------------------------------

    def _brokers(self, listener_name: str) -> Iterable[tuple[BrokerId, str, int, str | None, bool]]:
        """Yields each broker that has the listener: id, host, port, rack, and whether it is fenced."""
        for broker_id in sorted(self._state.brokers):
            registration = self._state.brokers[broker_id]
            endpoint = registration.endpoint(listener_name)
            if endpoint is not None:
                yield broker_id, endpoint.host, endpoint.port, registration.rack, registration.fenced

    def _unfenced(self, listener_name: str) -> Iterable[tuple[BrokerId, str, int, str | None]]:
        for broker_id, host, port, rack, is_fenced in self._brokers(listener_name):
            if not is_fenced:
                yield broker_id, host, port, rack

    def _controller_id(self, listener_name: str) -> int:
        unfenced = [broker_id for broker_id, *_ in self._unfenced(listener_name)]
        if self._broker_id in unfenced:
            return self._broker_id
        return self._env.rng.choice(unfenced) if unfenced else -1

    # --- topics ---------------------------------------------------------------------------------------------------

    def _all_topics(self) -> list["_Found"]:
        topics, ids = self._state.topics, self._state.topic_ids
        return [_found(topics[ids[name]]) for name in sorted(ids)]

    def _named_topics(self, request: MetadataRequest, api_version: int, missing: list[str]) -> list["_Found"]:
        """Looks the requested topics up. Adds the names of those that might be created to `missing`."""
        # Answer each topic once, as Kafka does: a request may name a large topic thousands of times.
        distinct = {_asked_for(asked): asked for asked in request.topics or ()}
        return [self._one(asked, api_version, missing) for asked in distinct.values()]

    def _one(self, asked: MetadataRequestTopic, api_version: int, missing: list[str]) -> "_Found":
        if asked.topic_id != ZERO_UUID:
            topic = self._state.topics.get(TopicId(asked.topic_id))
            if topic is None:
                name = None if api_version >= _NULL_NAME_FIRST_VERSION else ""
                return _Found(name, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            return _found(topic)
        asked_name = asked.name or ""
        topic = self._state.topic_named(asked_name)
        if topic is not None:
            return _found(topic)
        try:
            validate_topic_name(asked_name)
        except InvalidTopicName:
            return _Found(asked_name, ZERO_UUID, ErrorCode.INVALID_TOPIC_EXCEPTION)
        missing.append(asked_name)
        # The client retries after this error. If the topic is created automatically, it exists by then.
        return _Found(asked_name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class _Found(NamedTuple):
    """What the answer will say of one topic. The partitions are a copy: replay may change those of the image before they are
    described."""

    name: str | None
    topic_id: Uuid
    error_code: ErrorCode
    partitions: Mapping[int, PartitionRegistration] = MappingProxyType({})


def _found(topic: Topic) -> _Found:
    return _Found(topic.name, topic.id, ErrorCode.NONE, dict(topic.partitions))


class _Describer:
    """Describes partitions to the clients of one listener, as the brokers are when this is created."""

    def __init__(self, brokers: Brokers, listener: str, api_version: int, *, with_operations: bool) -> None:
        self._known = dict(brokers)
        self._reachable = {id_: broker for id_, broker in brokers.items() if broker.endpoint(listener) is not None}
        self._serving = {id_: broker for id_, broker in self._reachable.items() if not broker.fenced}
        self._api_version = api_version
        self._with_operations = with_operations

    def topic(self, found: _Found) -> MetadataResponseTopic:
        """Describes the topic without its partitions."""
        topic = MetadataResponseTopic(name=found.name, topic_id=found.topic_id, error_code=found.error_code)
        if found.error_code is ErrorCode.NONE:
            topic.is_internal = is_internal_topic(found.name or "")
            topic.topic_authorized_operations = TOPIC_OPERATIONS if self._with_operations else NOT_ASKED
        return topic

    def partition(self, index: int, partition: PartitionRegistration) -> MetadataResponsePartition:
        leader = partition.leader
        error = ErrorCode.NONE
        if leader not in self._reachable:
            is_hidden = leader in self._known and self._api_version >= _LISTENER_NOT_FOUND_FIRST_VERSION
            error = ErrorCode.LISTENER_NOT_FOUND if is_hidden else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        replicas: list[int] = list(partition.replicas)
        isr: list[int] = list(partition.isr)
        if self._api_version < _ALL_REPLICAS_FIRST_VERSION:
            replicas = [id_ for id_ in partition.replicas if id_ in self._serving]
            isr = [id_ for id_ in partition.isr if id_ in self._serving]
            if error is ErrorCode.NONE and (len(replicas), len(isr)) != (len(partition.replicas), len(partition.isr)):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_replicas(partition, self._serving),
        )


def _asks_for_all(request: MetadataRequest, api_version: int) -> bool:
    return request.topics is None or (api_version < _NO_TOPICS_FIRST_VERSION and not request.topics)


def _asked_for(asked: MetadataRequestTopic) -> TopicId | str:
    """Returns what identifies the topic: its id, or its name if the request has no id."""
    return TopicId(asked.topic_id) if asked.topic_id != ZERO_UUID else asked.name or ""


def offline_replicas(partition: PartitionRegistration, serving: Brokers) -> list[int]:
    """Returns the replicas on brokers that are not serving, and those in directories that are offline."""
    offline: list[int] = []
    for broker_id, directory_id in zip(partition.replicas, partition.directories, strict=True):
        registration = serving.get(broker_id)
        if registration is None or not registration.has_online_directory(directory_id):
            offline.append(broker_id)
    return offline
