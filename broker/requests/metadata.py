"""Answers Metadata and DescribeCluster from the newest image: brokers, topics, leaders, replicas (shell).

Counterpart of Kafka's KRaftMetadataCache and its handlers. docs/DESIGN.md, "Which replica is online", says which replicas
are offline. A client gets the endpoints of the listener that it is connected to. ControllerId names an unfenced *broker*:
admin clients send their requests there, and they may be unable to reach the controllers' network.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from common.environment.interface import Environment
from common.ids import NO_LEADER, ZERO_UUID, BrokerId, TopicId
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

_NO_TOPICS_FIRST_VERSION = 1
_ALL_REPLICAS_FIRST_VERSION = 1
_LISTENER_NOT_FOUND_FIRST_VERSION = 6
_NULL_NAME_FIRST_VERSION = 12

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

    def handle_metadata(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        """Returns the unfenced brokers and every requested topic. Each topic has its own error."""
        with_operations = request.include_topic_authorized_operations
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=id_, host=host, port=port, rack=rack)
                for id_, host, port, rack in self._unfenced(context.listener_name)
            ],
            cluster_id=self._cluster_id,
            controller_id=self._controller_id(context.listener_name),
            topics=[
                self._with_operations(topic, with_operations)
                for topic in self._topics(context.listener_name, request, context.api_version)
            ],
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )

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

    def _topics(self, listener: str, request: MetadataRequest, api_version: int) -> list[MetadataResponseTopic]:
        if request.topics is None or (api_version < _NO_TOPICS_FIRST_VERSION and not request.topics):
            return [
                self._describe(self._state.topics[self._state.topic_ids[name]], listener, api_version)
                for name in sorted(self._state.topic_ids)
            ]
        missing: list[str] = []
        # Answer each topic once, as Kafka does: a request may name a large topic thousands of times.
        distinct = {_asked_for(asked): asked for asked in request.topics}
        answers = [self._one(asked, listener, api_version, missing) for asked in distinct.values()]
        if missing and request.allow_auto_topic_creation:
            self._auto_topics.create(missing)
        return answers

    def _one(
        self, asked: MetadataRequestTopic, listener: str, api_version: int, missing: list[str]
    ) -> MetadataResponseTopic:
        if asked.topic_id != ZERO_UUID:
            topic = self._state.topics.get(TopicId(asked.topic_id))
            if topic is None:
                name = None if api_version >= _NULL_NAME_FIRST_VERSION else ""
                return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=asked.topic_id)
            return self._describe(topic, listener, api_version)
        asked_name = asked.name or ""
        topic = self._state.topic_named(asked_name)
        if topic is not None:
            return self._describe(topic, listener, api_version)
        try:
            validate_topic_name(asked_name)
        except InvalidTopicName:
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=asked_name)
        missing.append(asked_name)
        # The client retries after this error. If the topic is created automatically, it exists by then.
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=asked_name)

    def _describe(self, topic: Topic, listener: str, api_version: int) -> MetadataResponseTopic:
        # Compute these maps once: a topic may have thousands of partitions, and clients ask often after a leader has moved.
        brokers = self._state.brokers
        reachable = {id_: broker for id_, broker in brokers.items() if broker.endpoint(listener) is not None}
        serving = {id_: broker for id_, broker in reachable.items() if not broker.fenced}
        partitions = [
            self._describe_partition(index, topic.partitions[index], reachable, serving, api_version)
            for index in sorted(topic.partitions)
        ]
        return MetadataResponseTopic(
            name=topic.name, topic_id=topic.id, is_internal=is_internal_topic(topic.name), partitions=partitions
        )

    def _describe_partition(
        self, index: int, partition: PartitionRegistration, reachable: Brokers, serving: Brokers, api_version: int
    ) -> MetadataResponsePartition:
        leader = partition.leader
        error = ErrorCode.NONE
        if leader not in reachable:
            is_hidden = leader in self._state.brokers and api_version >= _LISTENER_NOT_FOUND_FIRST_VERSION
            error = ErrorCode.LISTENER_NOT_FOUND if is_hidden else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        replicas: list[int] = list(partition.replicas)
        isr: list[int] = list(partition.isr)
        if api_version < _ALL_REPLICAS_FIRST_VERSION:
            replicas = [id_ for id_ in partition.replicas if id_ in serving]
            isr = [id_ for id_ in partition.isr if id_ in serving]
            if error is ErrorCode.NONE and (len(replicas), len(isr)) != (len(partition.replicas), len(partition.isr)):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_replicas(partition, serving),
        )

    def _with_operations(self, topic: MetadataResponseTopic, asked: bool) -> MetadataResponseTopic:
        if asked and topic.error_code == ErrorCode.NONE:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
        return topic


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
