"""Topics and configurations: the AdminClient's requests, and the values that it builds from the responses."""

import pytest

from admin.configs import ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ConfigSynonym, ResourceType
from admin.errors import RequestFailed
from admin.partitions import TopicPartition
from admin.reassignments import PartitionReassignment
from admin.topics import (
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicMetadata,
    leaders_of,
)
from common.ids import Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from common.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from common.protocol.messages.elect_leaders import (
    ElectionType,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from common.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from common.protocol.messages.list_config_resources import ConfigResource as WireResource
from common.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.admin.cluster import Answer, FakeCluster
from tests.unit.common.metadata.builders import topic_id
from tests.unit.common.net.worlds import World, run_simulated

T, U = topic_id(1), topic_id(2)


def test_topics_are_listed_and_described() -> None:
    """`list_topics` asks for all topics, `describe_topics` only for the named ones. Neither may create a topic. Names and
    partitions are sorted. A topic that does not exist gets an error of its own."""

    def metadata(request: MetadataRequest) -> MetadataResponse:
        assert not request.allow_auto_topic_creation
        partitions = [
            MetadataResponsePartition(
                partition_index=1, leader_id=-1, leader_epoch=4, replica_nodes=[2, 1], isr_nodes=[2], offline_replicas=[2]
            ),
            MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=3, replica_nodes=[1, 2], isr_nodes=[1]),
        ]
        known = {
            "u": MetadataResponseTopic(name="u", topic_id=U, is_internal=True),
            "t": MetadataResponseTopic(name="t", topic_id=T, partitions=partitions),
        }
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        names = list(known) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            topics=[known.get(name, MetadataResponseTopic(name=name, error_code=missing)) for name in names]
        )

    async def scenario(world: World) -> None:
        async with FakeCluster(world, [{ApiKey.METADATA: metadata}]) as cluster, cluster.admin() as admin:
            assert await admin.list_topics() == [TopicListing("t", T, False), TopicListing("u", U, True)]
            results = admin.describe_topics(["t", "missing"])
            described = await results["t"]
            assert (described.name, described.topic_id, described.is_internal) == ("t", T, False)
            assert described.partitions == (
                PartitionDescription(0, 1, 3, (1, 2), (1,), ()),
                PartitionDescription(1, None, 4, (2, 1), (2,), (2,)),
            )
            with pytest.raises(RequestFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await results["missing"]

    run_simulated(scenario)


def test_topics_are_described_in_parts_by_newer_brokers() -> None:
    """A broker that serves DescribeTopicPartitions is asked until there is no cursor. The parts of a topic are joined, but a
    topic that was made anew between two parts is described as it is now. The eligible leader replicas are known."""
    replies = {
        None: ([part("a", T, 0, 1), part("b", U, 0)], Cursor(topic_name="b", partition_index=1)),
        "b1": ([part("b", T, 1)], Cursor(topic_name="missing", partition_index=0)),
        "missing0": ([missing_part("missing")], None),
    }
    asked: list[list[str]] = []

    def describe(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        asked.append([topic.name for topic in request.topics])
        cursor = request.cursor
        parts, following = replies[None if cursor is None else f"{cursor.topic_name}{cursor.partition_index}"]
        return DescribeTopicPartitionsResponse(topics=parts, next_cursor=following)

    async def scenario(world: World) -> None:
        answers: list[dict[ApiKey, Answer]] = [{ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe}]
        async with FakeCluster(world, answers) as cluster, cluster.admin() as admin:
            results = admin.describe_topics(["missing", "b", "a"])
            assert (await results["a"]).partitions == tuple(
                PartitionDescription(index, 1, 3, (1, 2), (1,), (), (2,), ()) for index in (0, 1)
            )
            made_anew = await results["b"]
            assert (made_anew.topic_id, [each.partition for each in made_anew.partitions]) == (T, [1])
            with pytest.raises(RequestFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await results["missing"]
            assert asked == [["a", "b", "missing"], ["b", "missing"], ["missing"]]

    run_simulated(scenario)


def part(name: str, id_: Uuid, *indexes: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=id_,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=1,
                leader_epoch=3,
                replica_nodes=[1, 2],
                isr_nodes=[1],
                eligible_leader_replicas=[2],
                last_known_elr=[],
            )
            for index in indexes
        ],
    )


def missing_part(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_leaders_are_found_by_partition() -> None:
    partitions = tuple(PartitionDescription(index, leader, 0, (), (), ()) for index, leader in ((0, 3), (1, None)))
    found = leaders_of([TopicDescription("t", Uuid(bytes(16)), False, partitions)])
    assert found == {TopicPartition("t", 0): 3, TopicPartition("t", 1): None}


def test_topics_are_created() -> None:
    """Topics are created with defaults, with counts and configuration, or with an assignment. The request's timeout for the
    broker equals that of one attempt."""

    def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, topic_id=T, num_partitions=4, replication_factor=2)
                for topic in request.topics
            ]
        )

    async def scenario(world: World) -> None:
        async with FakeCluster(world, [{ApiKey.CREATE_TOPICS: create}]) as cluster, cluster.admin() as admin:
            topics = [
                NewTopic("default"),
                NewTopic("counted", 4, 2, configs={"a": "1"}),
                NewTopic("assigned", replicas_assignments={0: [1, 2], 1: [2, 1]}),
            ]
            created = await admin.create_topics(topics, validate_only=True).all()
            assert created == dict.fromkeys(["default", "counted", "assigned"], TopicMetadata(T, 4, 2))
            (request,) = cluster[1].asked
            assert (request.validate_only, request.timeout_ms) == (True, 150)
            default, counted, assigned = request.topics
            assert (default.num_partitions, default.replication_factor) == (-1, -1)
            assert (counted.num_partitions, counted.replication_factor) == (4, 2)
            assert [(config.name, config.value) for config in counted.configs] == [("a", "1")]
            assert [(each.partition_index, each.broker_ids) for each in assigned.assignments] == [(0, [1, 2]), (1, [2, 1])]

    run_simulated(scenario)


def test_topics_are_deleted_by_id() -> None:
    """The response may list the topics in any order. Each result is matched to its topic by id."""

    def delete(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        codes: dict[Uuid, ErrorCode] = {T: ErrorCode.NONE, U: ErrorCode.TOPIC_DELETION_DISABLED}
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=None, topic_id=topic.topic_id, error_code=codes[topic.topic_id])
                for topic in reversed(request.topics)
            ]
        )

    async def scenario(world: World) -> None:
        async with FakeCluster(world, [{ApiKey.DELETE_TOPICS: delete}]) as cluster, cluster.admin() as admin:
            results = admin.delete_topics([T, U])
            await results[T]
            with pytest.raises(RequestFailed, match="TOPIC_DELETION_DISABLED"):
                await results[U]

    run_simulated(scenario)


def test_a_broker_describes_its_own_configuration() -> None:
    """One request to any broker describes the topics, the groups and the defaults of all brokers. A broker's configuration
    is requested from that broker."""

    def describe(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    error_code=ErrorCode.INVALID_REQUEST if each.resource_name == "bad" else ErrorCode.NONE,
                    error_message="a bad name" if each.resource_name == "bad" else None,
                    configs=[
                        DescribeConfigsResourceResult(
                            name="key",
                            value="1",
                            read_only=True,
                            config_source=99,
                            synonyms=[DescribeConfigsSynonym(name="keys", value="2", source=5)],
                        )
                    ],
                )
                for each in request.resources
            ]
        )

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {ApiKey.DESCRIBE_CONFIGS: describe}
        async with FakeCluster(world, [answers, answers]) as cluster, cluster.admin() as admin:
            resources = [
                ConfigResource(ResourceType.TOPIC, "2"),
                ConfigResource(ResourceType.BROKER, "2"),
                ConfigResource(ResourceType.BROKER, ""),
                ConfigResource(ResourceType.BROKER_LOGGER, "2"),
                ConfigResource(ResourceType.GROUP, "2"),
            ]
            described = await admin.describe_configs(resources, include_synonyms=True).all()
            synonyms = (ConfigSynonym("keys", "2", ConfigSource.DEFAULT_CONFIG),)
            entry = ConfigEntry("key", "1", ConfigSource.UNKNOWN, False, True, synonyms)
            assert described == {resource: {"key": entry} for resource in resources}
            of_broker_2 = [[4, "2"], [8, "2"]]
            everywhere = [
                [[each.resource_type, each.resource_name] for each in request.resources]
                for broker in cluster.brokers.values()
                for request in broker.asked
            ]
            assert sorted(everywhere) == [[[2, "2"], [4, ""], [32, "2"]], of_broker_2]
            assert [[each.resource_type, each.resource_name] for each in cluster[2].asked[-1].resources] == of_broker_2
            assert all(resource.configuration_keys is None for resource in cluster[2].asked[-1].resources)
            with pytest.raises(RequestFailed, match="a bad name"):
                await admin.describe_configs([ConfigResource(ResourceType.TOPIC, "bad")]).all()

    run_simulated(scenario)


def test_configured_resources_are_listed() -> None:
    """The request names the types. Resources of a type that the client does not know are left out."""

    def listed(request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
        if request.resource_types:
            assert request.resource_types == [16, 32]
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        found = [WireResource(resource_name="g", resource_type=32), WireResource(resource_name="x", resource_type=64)]
        return ListConfigResourcesResponse(config_resources=found)

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {ApiKey.LIST_CONFIG_RESOURCES: listed}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            assert await admin.list_config_resources([]) == [ConfigResource(ResourceType.GROUP, "g")]
            with pytest.raises(RequestFailed, match="UNSUPPORTED_VERSION"):
                await admin.list_config_resources([ResourceType.GROUP, ResourceType.CLIENT_METRICS])

    run_simulated(scenario)


def test_configurations_are_changed_resource_by_resource() -> None:
    """A broker receives the changes of its own configuration. Any broker receives all other changes, in one request. A
    refused resource does not make the others fail."""

    def alter(request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        assert request.validate_only
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    error_code=ErrorCode.INVALID_CONFIG if each.resource_name == "u" else ErrorCode.NONE,
                    error_message="a bad value" if each.resource_name == "u" else None,
                )
                for each in request.resources
            ]
        )

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {ApiKey.INCREMENTAL_ALTER_CONFIGS: alter}
        async with FakeCluster(world, [answers, answers]) as cluster, cluster.admin() as admin:
            t, u = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.TOPIC, "u")
            broker = ConfigResource(ResourceType.BROKER, "2")
            changes = [ConfigChange("a", ConfigOperation.SET, "1"), ConfigChange("b", ConfigOperation.DELETE)]
            results = admin.incremental_alter_configs({t: changes, broker: changes[:1], u: changes[1:]}, validate_only=True)
            await results[t]
            await results[broker]
            with pytest.raises(RequestFailed, match="a bad value"):
                await results[u]
            sent = {
                id_: [
                    (resource.resource_name, [(each.name, each.config_operation, each.value) for each in resource.configs])
                    for request in fake.asked
                    for resource in request.resources
                ]
                for id_, fake in cluster.brokers.items()
            }
            set_a, delete_b = ("a", 0, "1"), ("b", 1, None)
            assert sent == {1: [("t", [set_a, delete_b]), ("u", [delete_b])], 2: [("2", [set_a])]}

    run_simulated(scenario)


def test_partitions_are_added_reassignments_listed_and_leaders_elected() -> None:
    """Each request goes to the controller. Each partition has its own result. If a response fails as a whole, its error code
    is raised."""
    elected = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic="t",
                partition_result=[
                    PartitionResult(partition_id=0),
                    PartitionResult(partition_id=1, error_code=ErrorCode.ELECTION_NOT_NEEDED, error_message="no need"),
                ],
            )
        ]
    )
    ongoing = OngoingPartitionReassignment(partition_index=3, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1])

    async def scenario(world: World) -> None:
        answers: dict[ApiKey, Answer] = {
            ApiKey.CREATE_PARTITIONS: lambda _: CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t")]),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _: ListPartitionReassignmentsResponse(
                topics=[OngoingTopicReassignment(name="t", partitions=[ongoing])]
            ),
            ApiKey.ELECT_LEADERS: lambda _: elected,
        }
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            await admin.create_partitions({"t": NewPartitions(3, [[2, 1]])}).all()
            assert await admin.list_partition_reassignments() == {
                TopicPartition("t", 3): PartitionReassignment((1, 2), (2,), (1,))
            }
            asked = [TopicPartition("t", 0), TopicPartition("t", 1)]
            results = await admin.elect_leaders(ElectionType.PREFERRED, asked)
            assert results[asked[0]] is None
            assert str(results[asked[1]]) == "no need"
            elected.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            with pytest.raises(RequestFailed, match="CLUSTER_AUTHORIZATION_FAILED"):
                await admin.elect_leaders(ElectionType.UNCLEAN)
            added, _listing, some, everything = cluster[1].asked
            assert [(each.name, each.count, each.assignments[0].broker_ids) for each in added.topics] == [("t", 3, [2, 1])]
            assert [(each.topic, each.partitions) for each in some.topic_partitions] == [("t", [0, 1])]
            assert (everything.election_type, everything.topic_partitions) == (ElectionType.UNCLEAN, None)

    run_simulated(scenario)
