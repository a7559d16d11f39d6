"""AdminClient: administers a cluster from asyncio (shell).

Counterpart of Kafka's AdminClient, with the calls of KIP-113. Use it with `async with`; leaving the block closes the client.

1. A method with a single result is a coroutine. A method with a separate result for each topic, resource, broker or replica
   is a plain function. It immediately returns a Results, which holds a future for each of them, and the client's own task
   group does the work.
2. Each call has a timeout: `timeout_ms` if given, else default.api.timeout.ms. Until then, the client connects to the right
   broker and retries after disconnects and retriable errors (`admin/request_sender.py`).
3. All errors are AdminErrors. A retry after a disconnect may fail because the first attempt was carried out. For example,
   `create_topics` may create a topic and still report TOPIC_ALREADY_EXISTS, as Kafka's client does.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from admin import brokers, configs, elections, features, log_dirs, offsets, quorum, reassignments, records, topics
from admin.config import AdminConfig, parse_bootstrap_servers
from admin.errors import (
    LEADER_CHANGED,
    AdminError,
    InvalidArgument,
    RequestFailed,
    UnsupportedRequest,
    check,
    failure,
)
from admin.group_calls import GroupCalls
from admin.known_nodes import Destination, Role
from admin.partition_leaders import PartitionLeaders, SendToLeader
from admin.partitions import TopicPartition, TopicPartitionReplica
from admin.request_sender import RequestSender, closed
from admin.response_errors import ErrorOf, code_only, no_error, not_controller, top_level
from admin.results import Results, grouped
from common.environment.interface import Environment
from common.environment.real import RealEnvironment
from common.ids import Uuid
from common.net.node_channel import SOFTWARE_NAME, SOFTWARE_VERSION
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from common.protocol.messages.create_partitions import CreatePartitionsResponse
from common.protocol.messages.create_topics import CreateTopicsResponse
from common.protocol.messages.delete_records import DeleteRecordsResponse
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from common.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse, EndpointType
from common.protocol.messages.describe_configs import DescribeConfigsResponse
from common.protocol.messages.describe_quorum import DescribeQuorumResponse
from common.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from common.protocol.messages.elect_leaders import ElectionType, ElectLeadersResponse
from common.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from common.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from common.protocol.messages.list_offsets import ListOffsetsResponse
from common.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest
from common.protocol.messages.update_features import UpdateFeaturesResponse
from common.protocol.schema import Struct
from common.time_units import NS_PER_MS

Work = Callable[[], Coroutine[Any, Any, None]]
Key = TypeVar("Key")
Value = TypeVar("Value")

# The first version that can delete topics by id.
DELETE_TOPICS_VERSION = 6


class AdminClient:
    """See the module docstring. `env` is the real environment unless a test passes another one."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        config: AdminConfig | None = None,
        env: Environment | None = None,
        endpoint_type: EndpointType = EndpointType.BROKER,
    ) -> None:
        """With `endpoint_type` CONTROLLER the addresses are those of controllers, and the client talks to controllers only
        (KIP-919). They take the calls in `request_sender.CALLS_OF_CONTROLLERS`; others raise AdminError.

        Raises InvalidSetting. Does not connect; the first call inside `async with` does."""
        self._bootstrap = parse_bootstrap_servers(bootstrap_servers)
        self._config = config or AdminConfig()
        self._given_env = env
        self.endpoint_type = endpoint_type
        self._task_group = asyncio.TaskGroup()
        # Both are None before and after the `async with` block.
        self._env: Environment | None = None
        self._sender: RequestSender | None = None
        # The tasks of the calls that return a Results.
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "AdminClient":
        self._env = self._given_env or RealEnvironment(self._config.client_id)
        await self._task_group.__aenter__()
        self._sender = RequestSender(
            self._env, self._bootstrap, self._config, self._task_group, endpoint_type=self.endpoint_type
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sender, self._sender = self._sender, None
        assert sender is not None
        sender.close()
        for task in self._tasks:
            task.cancel()
        # Do not pass on an exception of the block: the task group would wrap it in an ExceptionGroup.
        await self._task_group.__aexit__(None, None, None)

    # --- the cluster ---------------------------------------------------------------------------------------------
    async def describe_cluster(
        self, *, include_fenced_brokers: bool = False, timeout_ms: int | None = None
    ) -> brokers.ClusterDescription:
        """Returns the cluster's id and its brokers; a client of the controllers gets these instead. Brokers before Kafka 4.1
        cannot include fenced ones, and controllers never do."""
        if include_fenced_brokers and self.endpoint_type is EndpointType.CONTROLLER:
            raise InvalidArgument("controllers do not describe fenced brokers; ask brokers")
        response: DescribeClusterResponse = await self._send(
            "describeCluster",
            DescribeClusterRequest(endpoint_type=self.endpoint_type, include_fenced_brokers=include_fenced_brokers),
            Role.ANY_BROKER,
            timeout_ms=timeout_ms,
            error_of=top_level,
        )
        check(response.error_code, response.error_message)
        return brokers.cluster_description(response)

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Removes the registration of a broker that will not come back."""
        request = UnregisterBrokerRequest(broker_id=broker_id)
        response = await self._send("unregisterBroker", request, Role.CONTROLLER, timeout_ms=timeout_ms, error_of=top_level)
        check(response.error_code, response.error_message)

    async def describe_metadata_quorum(self, *, timeout_ms: int | None = None) -> quorum.QuorumDescription:
        """Returns the controllers that vote, and the nodes that follow the metadata log."""
        response: DescribeQuorumResponse = await self._send(
            "describeMetadataQuorum",
            quorum.describe_request(),
            Role.ANY_BROKER,
            timeout_ms=timeout_ms,
            error_of=quorum.quorum_error,
        )
        check(response.error_code, response.error_message)
        partition = quorum.partition_of(response)
        if partition is None:
            raise failure(ErrorCode.UNKNOWN_SERVER_ERROR, "the response has no result for the metadata partition")
        check(partition.error_code, partition.error_message)
        return quorum.quorum_description(response, partition)

    async def api_versions(self, broker_id: int, *, timeout_ms: int | None = None) -> ApiVersionsResponse:
        """Returns the APIs that a broker serves, with their versions."""
        response: ApiVersionsResponse = await self._send(
            "apiVersions",
            ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION),
            broker_id,
            timeout_ms=timeout_ms,
            error_of=code_only,
        )
        check(response.error_code)
        return response

    async def describe_features(
        self, *, broker_id: int | None = None, timeout_ms: int | None = None
    ) -> features.FeatureMetadata:
        """Returns the levels that a broker supports, and the finalized ones. Asks any broker if `broker_id` is None."""
        response: ApiVersionsResponse = await self._send(
            "describeFeatures",
            ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION),
            _destination(broker_id),
            timeout_ms=timeout_ms,
            error_of=code_only,
        )
        check(response.error_code)
        return features.feature_metadata(response)

    def update_features(
        self,
        updates: Mapping[str, features.FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Changes the finalized levels of features, all of them or none. With `validate_only`, only checks the updates."""
        results: Results[str, None] = Results(updates)

        async def update() -> None:
            server_timeout_ms = self._server_timeout_ms(timeout_ms)
            request = features.update_request(updates, validate_only=validate_only, timeout_ms=server_timeout_ms)
            response: UpdateFeaturesResponse = await self._send(
                "updateFeatures", request, Role.CONTROLLER, timeout_ms=timeout_ms, error_of=top_level
            )
            check(response.error_code, response.error_message)
            # Until version 1, a response may name the error of each feature.
            errors = {each.feature: (each.error_code, each.error_message) for each in response.results}
            for name in updates:
                results.settle(name, *errors.get(name, (ErrorCode.NONE, None)), None)

        self._start("updateFeatures", results, updates, update)
        return results

    # --- topics --------------------------------------------------------------------------------------------------
    async def list_topics(self, *, timeout_ms: int | None = None) -> list[topics.TopicListing]:
        """Returns all topics, sorted by name, internal ones included."""
        response: MetadataResponse = await self._send(
            "listTopics", _metadata_request(None), Role.ANY_BROKER, timeout_ms=timeout_ms
        )
        return sorted(map(topics.topic_listing, response.topics), key=lambda topic: topic.name)

    def describe_topics(
        self, names: Iterable[str], *, timeout_ms: int | None = None
    ) -> Results[str, topics.TopicDescription]:
        """Returns each topic with its partitions."""
        results: Results[str, topics.TopicDescription] = Results(names)

        async def describe() -> None:
            found: Iterable[DescribeTopicPartitionsResponseTopic | MetadataResponseTopic]
            try:
                found = await self._topics_in_parts(sorted(results), timeout_ms)
            except UnsupportedRequest:
                response: MetadataResponse = await self._send(
                    "describeTopics", _metadata_request(list(results)), Role.ANY_BROKER, timeout_ms=timeout_ms
                )
                found = response.topics
            for topic in found:
                results.settle(topic.name or "", topic.error_code, None, topics.topic_description(topic))

        self._start("describeTopics", results, results, describe)
        return results

    async def _topics_in_parts(
        self, names: list[str], timeout_ms: int | None
    ) -> Iterable[DescribeTopicPartitionsResponseTopic]:
        """Returns the topics as brokers describe them that serve DescribeTopicPartitions. `names` must be sorted. Raises
        UnsupportedRequest if the broker does not."""
        found: dict[str, DescribeTopicPartitionsResponseTopic] = {}
        cursor: Cursor | None = None
        while names:
            response: DescribeTopicPartitionsResponse = await self._send(
                "describeTopics", topics.parts_request(names, cursor), Role.ANY_BROKER, timeout_ms=timeout_ms
            )
            for part in response.topics:
                topics.add_part(found, part)
            if response.next_cursor is None or response.next_cursor == cursor:
                break
            cursor = response.next_cursor
        return found.values()

    def create_topics(
        self, new_topics: Iterable[topics.NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Results[str, topics.TopicMetadata]:
        """Creates topics. The results are keyed by name. With `validate_only`, the controller only checks the request."""
        wanted = list(new_topics)
        results: Results[str, topics.TopicMetadata] = Results(topic.name for topic in wanted)
        request = topics.create_request(wanted, timeout_ms=self._server_timeout_ms(timeout_ms), validate_only=validate_only)

        async def create() -> None:
            response: CreateTopicsResponse = await self._send(
                "createTopics",
                request,
                Role.CONTROLLER,
                timeout_ms=timeout_ms,
                error_of=not_controller(lambda response: response.topics),
            )
            for result in response.topics:
                results.settle(
                    result.name,
                    result.error_code,
                    result.error_message,
                    topics.topic_metadata(result),
                )

        self._start("createTopics", results, results, create)
        return results

    def delete_topics(self, topic_ids: Iterable[Uuid], *, timeout_ms: int | None = None) -> Results[Uuid, None]:
        """Deletes topics by id. A topic that was deleted and created again meanwhile has another id and is not deleted."""
        results: Results[Uuid, None] = Results(topic_ids)
        states = [DeleteTopicState(topic_id=topic_id) for topic_id in results]
        request = DeleteTopicsRequest(topics=states, timeout_ms=self._server_timeout_ms(timeout_ms))

        async def delete() -> None:
            response: DeleteTopicsResponse = await self._send(
                "deleteTopics",
                request,
                Role.CONTROLLER,
                timeout_ms=timeout_ms,
                error_of=not_controller(lambda response: response.responses),
                version=DELETE_TOPICS_VERSION,
            )
            for result in response.responses:
                results.settle(result.topic_id, result.error_code, result.error_message, None)

        self._start("deleteTopics", results, results, delete)
        return results

    def create_partitions(
        self, wanted: Mapping[str, topics.NewPartitions], *, timeout_ms: int | None = None
    ) -> Results[str, None]:
        """Adds partitions to topics. The results are keyed by name."""
        results: Results[str, None] = Results(wanted)
        request = topics.partitions_request(wanted, timeout_ms=self._server_timeout_ms(timeout_ms))

        async def create() -> None:
            response: CreatePartitionsResponse = await self._send(
                "createPartitions",
                request,
                Role.CONTROLLER,
                timeout_ms=timeout_ms,
                error_of=not_controller(lambda response: response.results),
            )
            for result in response.results:
                results.settle(result.name, result.error_code, result.error_message, None)

        self._start("createPartitions", results, results, create)
        return results

    def list_offsets(
        self, leaders: Mapping[TopicPartition, int], timestamp: int, *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, offsets.ListedOffset]:
        """Returns the first offset of each partition at or after this time. The negative times of ListOffsets stand for
        special points of the log. `leaders` has the broker to ask first for each partition."""
        results: Results[TopicPartition, offsets.ListedOffset] = Results(leaders)

        async def list_(asked: list[TopicPartition], send: SendToLeader) -> None:
            request = offsets.list_request(asked, timestamp, timeout_ms=self._server_timeout_ms(timeout_ms))
            response: ListOffsetsResponse = await send("listOffsets", request)
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    found = offsets.listed_offset(each.offset, each.timestamp)
                    _settle_unless_moved(results, partition, each.error_code, found)

        at_leaders = self._partition_leaders()
        for leader, asked in grouped(results, lambda each: leaders[each]).items():
            known = dict.fromkeys(asked, leader)
            self._start(
                "listOffsets", results, asked, partial(at_leaders.ask, results, known, list_, self._timeout_ms(timeout_ms))
            )
        return results

    # --- reassignments and elections -----------------------------------------------------------------------------
    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Starts to move partitions to these brokers, preferred leader first; None cancels a reassignment in progress.

        Success means that the controller has accepted it: `list_partition_reassignments` shows what is not completed yet.
        Without `allow_replication_factor_change` a partition whose number of replicas would change is refused (KIP-860).
        """
        results: Results[TopicPartition, None] = Results(targets)
        request = reassignments.alter_request(
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout_ms=self._server_timeout_ms(timeout_ms),
        )

        async def alter() -> None:
            response: AlterPartitionReassignmentsResponse = await self._send(
                "alterPartitionReassignments", request, Role.CONTROLLER, timeout_ms=timeout_ms, error_of=top_level
            )
            check(response.error_code, response.error_message)
            for topic in response.responses:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    results.settle(partition, each.error_code, each.error_message, None)

        self._start("alterPartitionReassignments", results, results, alter)
        return results

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, reassignments.PartitionReassignment]:
        """Returns the reassignments in progress: those of these partitions, or all."""
        request = reassignments.list_request(partitions, timeout_ms=self._server_timeout_ms(timeout_ms))
        response: ListPartitionReassignmentsResponse = await self._send(
            "listPartitionReassignments", request, Role.CONTROLLER, timeout_ms=timeout_ms, error_of=top_level
        )
        check(response.error_code, response.error_message)
        return reassignments.reassignments(response)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, AdminError | None]:
        """Elects leaders for these partitions or, without `partitions`, for every partition that needs an election. Returns
        the error of each partition; None means that a leader was elected."""
        request = elections.elect_request(election_type, partitions, timeout_ms=self._server_timeout_ms(timeout_ms))
        response: ElectLeadersResponse = await self._send(
            "electLeaders",
            request,
            Role.CONTROLLER,
            timeout_ms=timeout_ms,
            error_of=not_controller(lambda response: [response]),
        )
        check(response.error_code)
        return elections.election_results(response)

    # --- groups --------------------------------------------------------------------------------------------------
    @property
    def groups(self) -> GroupCalls:
        """The calls about consumer groups and their committed offsets."""
        return GroupCalls(self._send)

    # --- records -------------------------------------------------------------------------------------------------
    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> Results[TopicPartition, int]:
        """Deletes the records below these offsets; -1 stands for the high watermark. Each result is the partition's low
        watermark: below it, every replica in the ISR has deleted the records."""
        results: Results[TopicPartition, int] = Results(offsets)

        async def delete_on(asked: list[TopicPartition], send: SendToLeader) -> None:
            request = records.delete_request(
                {partition: offsets[partition] for partition in asked}, timeout_ms=self._server_timeout_ms(timeout_ms)
            )
            response: DeleteRecordsResponse = await send("deleteRecords", request)
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    _settle_unless_moved(results, partition, each.error_code, each.low_watermark)

        async def delete() -> None:
            leaders = self._partition_leaders()
            leader_of = await leaders.find(results, list(offsets), self._timeout_ms(timeout_ms))
            async with asyncio.TaskGroup() as group:
                for leader, asked in grouped(leader_of, leader_of.get).items():
                    known = dict.fromkeys(asked, leader)
                    group.create_task(leaders.ask(results, known, delete_on, self._timeout_ms(timeout_ms)))

        self._start("deleteRecords", results, results, delete)
        return results

    # --- configurations ------------------------------------------------------------------------------------------
    async def list_config_resources(
        self, types: Iterable[configs.ResourceType], *, timeout_ms: int | None = None
    ) -> list[configs.ConfigResource]:
        """Returns the resources of these types; client metrics and groups only if something is set for them. No type stands
        for all types."""
        response: ListConfigResourcesResponse = await self._send(
            "listConfigResources",
            ListConfigResourcesRequest(resource_types=sorted(types)),
            Role.ANY_BROKER,
            timeout_ms=timeout_ms,
            error_of=code_only,
            version=configs.LIST_RESOURCES_VERSION,
        )
        check(response.error_code)
        return configs.config_resources(response)

    def describe_configs(
        self,
        resources: Iterable[configs.ConfigResource],
        *,
        include_synonyms: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[configs.ConfigResource, Mapping[str, configs.ConfigEntry]]:
        """Returns the configuration of each resource, by key. Each broker is asked for its own configuration."""
        results: Results[configs.ConfigResource, Mapping[str, configs.ConfigEntry]] = Results(resources)

        async def describe(destination: Destination, asked: list[configs.ConfigResource]) -> None:
            request = configs.describe_request(asked, include_synonyms=include_synonyms)
            response: DescribeConfigsResponse = await self._send(
                "describeConfigs", request, destination, timeout_ms=timeout_ms
            )
            by_name = _by_name(asked)
            for result in response.results:
                resource = by_name.get((result.resource_type, result.resource_name))
                if resource is not None:
                    entries = configs.config_entries(result)
                    results.settle(resource, result.error_code, result.error_message, entries)

        for destination, asked in grouped(results, lambda each: _destination(each.broker_id)).items():
            self._start("describeConfigs", results, asked, partial(describe, destination, asked))
        return results

    def incremental_alter_configs(
        self,
        changes: Mapping[configs.ConfigResource, Sequence[configs.ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[configs.ConfigResource, None]:
        """Changes some keys of topics, brokers and groups, and leaves their other keys unchanged. The changes of one
        resource are atomic. With `validate_only`, the cluster only validates the changes. Each broker takes the changes of
        its own configuration, and a client of controllers sends all changes to the active one."""
        results: Results[configs.ConfigResource, None] = Results(changes)

        async def alter(destination: Destination, asked: list[configs.ConfigResource]) -> None:
            request = configs.alter_request({each: changes[each] for each in asked}, validate_only=validate_only)
            response: IncrementalAlterConfigsResponse = await self._send(
                "incrementalAlterConfigs",
                request,
                destination,
                timeout_ms=timeout_ms,
                error_of=not_controller(lambda response: response.responses),
            )
            by_name = _by_name(asked)
            for result in response.responses:
                resource = by_name.get((result.resource_type, result.resource_name))
                if resource is not None:
                    results.settle(resource, result.error_code, result.error_message, None)

        def destination_of(resource: configs.ConfigResource) -> Destination:
            return Role.CONTROLLER if self.endpoint_type is EndpointType.CONTROLLER else _destination(resource.broker_id)

        for destination, asked in grouped(results, destination_of).items():
            self._start("incrementalAlterConfigs", results, asked, partial(alter, destination, asked))
        return results

    # --- log directories -----------------------------------------------------------------------------------------

    def describe_log_dirs(
        self, broker_ids: Iterable[int], *, timeout_ms: int | None = None
    ) -> Results[int, dict[str, log_dirs.LogDirInfo]]:
        """Returns the log directories of each broker, by path."""
        results: Results[int, dict[str, log_dirs.LogDirInfo]] = Results(broker_ids)

        async def describe(broker_id: int) -> None:
            response = await self._send(
                "describeLogDirs", log_dirs.describe_request(), broker_id, timeout_ms=timeout_ms, error_of=code_only
            )
            results.complete(broker_id, log_dirs.log_dir_infos(response))

        for broker_id in results:
            self._start("describeLogDirs", results, [broker_id], partial(describe, broker_id))
        return results

    def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, log_dirs.ReplicaLogDirInfo]:
        """Returns the directory of each replica, and the directory that the replica is moving to, if any."""
        results: Results[TopicPartitionReplica, log_dirs.ReplicaLogDirInfo] = Results(replicas)

        async def describe(broker_id: int, asked: list[TopicPartitionReplica]) -> None:
            request = log_dirs.describe_request(asked)
            response = await self._send(
                "describeReplicaLogDirs", request, broker_id, timeout_ms=timeout_ms, error_of=code_only
            )
            infos = log_dirs.log_dir_infos(response)
            for replica in asked:
                info = log_dirs.replica_log_dir_info(replica, infos)
                if isinstance(info, AdminError):
                    results.fail([replica], info)
                else:
                    results.complete(replica, info)

        for broker_id, asked in grouped(results, lambda each: each.broker_id).items():
            self._start("describeReplicaLogDirs", results, asked, partial(describe, broker_id, asked))
        return results

    def alter_replica_log_dirs(
        self, assignment: Mapping[TopicPartitionReplica, str], *, timeout_ms: int | None = None
    ) -> Results[TopicPartitionReplica, None]:
        """Asks brokers to keep replicas in these of their directories: an absolute path, or `any` to cancel a move.

        Success means that the broker has accepted the request. The move goes on in the background, and
        `describe_replica_log_dirs` shows its progress. REPLICA_NOT_AVAILABLE means that the broker does not have the replica
        yet and will create it in that directory, or that the replica is just being created or swapped; in the second case,
        try again. Each replica succeeds or fails on its own.
        """
        results: Results[TopicPartitionReplica, None] = Results(assignment)

        async def alter(broker_id: int, asked: list[TopicPartitionReplica]) -> None:
            request = log_dirs.alter_request({replica: assignment[replica] for replica in asked})
            response = await self._send("alterReplicaLogDirs", request, broker_id, timeout_ms=timeout_ms)
            for replica, code in log_dirs.alter_errors(response, broker_id).items():
                results.settle(replica, code, None, None)

        for broker_id, asked in grouped(results, lambda each: each.broker_id).items():
            self._start("alterReplicaLogDirs", results, asked, partial(alter, broker_id, asked))
        return results

    # --- any request ---------------------------------------------------------------------------------------------
    async def send(self, request: Struct, destination: Destination, *, timeout_ms: int | None = None) -> Any:
        """Sends a request that has no method of its own. Returns the response, including any errors in it."""
        return await self._send(type(request).__name__, request, destination, timeout_ms=timeout_ms)

    async def _send(
        self,
        name: str,
        request: Struct,
        destination: Destination,
        *,
        timeout_ms: int | None,
        error_of: ErrorOf = no_error,
        version: int | None = None,
    ) -> Any:
        env, sender = self._open()
        deadline_ns = env.now_ns() + self._timeout_ms(timeout_ms) * NS_PER_MS
        return await sender.send(
            request, destination, name=name, deadline_ns=deadline_ns, error_of=error_of, version=version
        )

    def _open(self) -> tuple[Environment, RequestSender]:
        if self._env is None or self._sender is None:
            raise RuntimeError("an AdminClient can be used inside its `async with` block only")
        return self._env, self._sender

    def _partition_leaders(self) -> PartitionLeaders:
        return PartitionLeaders(*self._open(), lambda names, timeout_ms: self.describe_topics(names, timeout_ms=timeout_ms))

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        return self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _server_timeout_ms(self, timeout_ms: int | None) -> int:
        """Returns the value of a request's timeout field: at most as long as this client waits for one attempt."""
        return min(self._timeout_ms(timeout_ms), self._config.request_timeout_ms)

    def _start(self, name: str, results: Results[Key, Any], keys: Iterable[Key], work: Work) -> None:
        """Starts a task that runs `work`, which completes the futures of these keys."""
        self._open()
        asked = list(keys)
        task = self._task_group.create_task(_finish(name, results, asked, work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # If futures are still pending when the task ends, the task was cancelled, perhaps before its first step.
        task.add_done_callback(lambda _: results.fail(asked, closed(name)))


async def _finish(name: str, results: Results[Key, Any], keys: list[Key], work: Work) -> None:
    try:
        await work()
    except AdminError as error:
        results.fail(keys, error)
    for key in results.pending(keys):
        reason = f"the response has no result for {key}. Call: {name}"
        results.fail([key], RequestFailed(ErrorCode.UNKNOWN_SERVER_ERROR, reason))


def _settle_unless_moved(
    results: Results[TopicPartition, Value], partition: TopicPartition, code: int, value: Value
) -> None:
    if code not in LEADER_CHANGED:
        results.settle(partition, code, None, value)


def _destination(broker_id: int | None) -> Destination:
    return Role.ANY_BROKER if broker_id is None else broker_id


def _by_name(resources: Iterable[configs.ConfigResource]) -> dict[tuple[int, str], configs.ConfigResource]:
    return {(int(each.type), each.name): each for each in resources}


def _metadata_request(names: list[str] | None) -> MetadataRequest:
    asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=False)
