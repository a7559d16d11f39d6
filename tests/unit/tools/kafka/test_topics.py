"""Tests kafka-topics: its requests, its exit status after errors, and its output, which equals Kafka's down to the tabs."""

from collections.abc import Iterator
from typing import Any

import pytest

from common.ids import uuid_text
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from common.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
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
from tests.unit.common.metadata.builders import topic_id
from tests.unit.tools.fake_broker import Answer, FakeBroker
from tools.kafka import topics
from tools.kafka.topics import main

IDS = {"orders": topic_id(1), "order-lines": topic_id(2), "__consumer_offsets": topic_id(3)}


def partition(index: int, leader: int, replicas: list[int], isr: list[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)


TOPICS = [
    MetadataResponseTopic(name="orders", topic_id=IDS["orders"], partitions=[partition(0, 1, [1, 2, 3], [1, 2, 3])]),
    MetadataResponseTopic(
        name="order-lines",
        topic_id=IDS["order-lines"],
        partitions=[partition(0, 2, [2, 3], [2, 3]), partition(1, -1, [3, 2], [3]), partition(2, 2, [2, 3], [2])],
    ),
    MetadataResponseTopic(name="__consumer_offsets", topic_id=IDS["__consumer_offsets"], is_internal=True),
]


def metadata(request: MetadataRequest) -> MetadataResponse:
    assert not request.allow_auto_topic_creation
    names = None if request.topics is None else {topic.name for topic in request.topics}
    return MetadataResponse(topics=[topic for topic in TOPICS if names is None or topic.name in names])


def describe_configs(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    entries = [
        DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1),
        DescribeConfigsResourceResult(name="min.insync.replicas", value="2", config_source=1),
        DescribeConfigsResourceResult(name="segment.ms", value="9", config_source=4),
        DescribeConfigsResourceResult(name="segment.bytes", value="7", config_source=5),
    ]
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=2,
                resource_name=resource.resource_name,
                configs=entries if resource.resource_name == "order-lines" else entries[3:],
            )
            for resource in request.resources
        ]
    )


class Tool:
    """Runs main() against a broker with three topics."""

    def __init__(self, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        try:
            status = main(["--bootstrap-server", str(self.broker.address), *arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else -1
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    def sent(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.broker.requests if isinstance(request, kind)]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in IDS else ErrorCode.NONE,
                    error_message=f"Topic '{topic.name}' already exists." if topic.name in IDS else None,
                )
                for topic in request.topics
            ]
        )

    def delete(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        # Answers in another order than the request, as a controller may.
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=None,
                    topic_id=topic.topic_id,
                    error_code=ErrorCode.TOPIC_DELETION_DISABLED if topic.topic_id == IDS["orders"] else ErrorCode.NONE,
                )
                for topic in reversed(request.topics)
            ]
        )

    def create_partitions(request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.INVALID_PARTITIONS if topic.count == 3 else ErrorCode.NONE,
                    error_message="Topic already has 3 partition(s)." if topic.count == 3 else None,
                )
                for topic in request.topics
            ]
        )

    answers: dict[ApiKey, Answer] = {
        ApiKey.METADATA: metadata,
        ApiKey.CREATE_TOPICS: create,
        ApiKey.DELETE_TOPICS: delete,
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.CREATE_PARTITIONS: create_partitions,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _: ListPartitionReassignmentsResponse(),
    }
    with FakeBroker(answers) as broker:
        yield Tool(broker, capsys)


# --- create ----------------------------------------------------------------------------------------------------------


def test_create_with_the_clusters_defaults(tool: Tool) -> None:
    """The controller chooses the values of all options that are not given."""
    assert tool("--create", "--topic", "new") == (0, ["Created topic new."], [])
    (request,) = tool.sent(CreateTopicsRequest)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("new", -1, -1)
    assert (topic.assignments, topic.configs, request.validate_only) == ([], [], False)


def test_create_with_numbers_and_configuration(tool: Tool) -> None:
    """A value may itself contain '=', which also separates key and value."""
    flags = ["--partitions", "6", "--replication-factor", "3", "--config", "a=1", "--config", "b=x=y"]
    assert tool("--create", "--topic", "new", *flags)[0] == 0
    (topic,) = tool.sent(CreateTopicsRequest)[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (6, 3)
    assert [(config.name, config.value) for config in topic.configs] == [("a", "1"), ("b", "x=y")]


def test_create_with_a_replica_assignment(tool: Tool) -> None:
    """Colons separate broker ids, commas separate partitions. The request has neither a partition count nor a replication
    factor, because both follow from the assignment."""
    assert tool("--create", "--topic", "new", "--replica-assignment", "1:2,2:3")[0] == 0
    (topic,) = tool.sent(CreateTopicsRequest)[0].topics
    assert [(each.partition_index, each.broker_ids) for each in topic.assignments] == [(0, [1, 2]), (1, [2, 3])]
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


def test_creating_what_exists_is_an_error_unless_allowed(tool: Tool) -> None:
    """The error message is the controller's. With --if-not-exists there is no error and no line about a created topic."""
    assert tool("--create", "--topic", "orders") == (
        1,
        [],
        ["Error while executing topic command : Topic 'orders' already exists."],
    )
    assert tool("--create", "--topic", "orders", "--if-not-exists") == (0, [], [])


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--create"], "--create needs --topic"),
        (["--delete"], "--delete needs --topic"),
        (["--create", "--topic", "t", "--partitions", "0"], "The partitions must be greater than 0"),
        (["--create", "--topic", "t", "--partitions", "2147483648"], "The partitions must be at most 2147483647"),
        (["--create", "--topic", "t", "--replication-factor", "0"], "must be between 1 and 32767 inclusive"),
        (["--create", "--topic", "t", "--replication-factor", "40000"], "must be between 1 and 32767 inclusive"),
        (["--create", "--topic", "t", "--replica-assignment", "1,2", "--partitions", "2"], "leave out --partitions"),
        (["--create", "--topic", "t", "--replica-assignment", "1:x"], "'1:x' is not a list of broker ids"),
        (["--create", "--topic", "t", "--replica-assignment", "99999999999"], "'99999999999' is not a number "),
        (["--create", "--topic", "t", "--config", "novalue"], "--config novalue is not KEY=VALUE"),
        (["--describe", "--topic", "("], "is not a regular expression"),
        (["--describe", "--topic-id", "x"], "--topic-id x is not an id"),
        (["--list", "--partitions", "3"], "--partitions cannot be used with --list"),
        (["--create", "--topic", "t", "--if-exists"], "--if-exists cannot be used with --create"),
        (["--delete", "--topic", "t", "--topics-with-overrides"], "--topics-with-overrides cannot be used with --delete"),
        (
            ["--describe", "--topics-with-overrides", "--unavailable-partitions"],
            "--unavailable-partitions cannot be used with --topics-with-overrides",
        ),
        (["--describe", "--if-exists"], "--describe --if-exists needs --topic or --topic-id"),
        (["--create", "--list"], "not allowed with"),
        ([], "required"),
        (["--create", "--topic", "t", "--partitions", "many"], "invalid int value"),
        (["--list", "--top", "t"], "ambiguous option: --top could match"),
        (["--list", "--no-such-flag"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_is_refused_and_changes_nothing(tool: Tool, flags: list[str], text: str) -> None:
    """The exit status is 1, the first line on stderr says what is wrong, and nothing is changed."""
    status, out, err = tool(*flags)
    assert (status, out) == (1, [])
    assert text in err[0]
    assert tool.sent(CreateTopicsRequest) == []


# --- list ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ([], ["__consumer_offsets", "order-lines", "orders"]),
        (["--exclude-internal"], ["order-lines", "orders"]),
        (["--topic", "order.*"], ["order-lines", "orders"]),
        (["--topic", "order"], []),
        (["--topic", ""], []),
        (["--topic", "orders,__consumer_offsets"], ["__consumer_offsets", "orders"]),
        (["--topic", "'orders, order-lines'"], ["order-lines", "orders"]),
    ],
)
def test_topics_are_listed_sorted_and_by_pattern(tool: Tool, flags: list[str], names: list[str]) -> None:
    """Names are sorted. --topic is a regular expression for the whole name, with commas between alternatives."""
    assert tool("--list", *flags) == (0, names, [])


# --- describe --------------------------------------------------------------------------------------------------------


def test_topics_are_described_in_kafkas_lines(tool: Tool) -> None:
    """Prints a header with what is configured for the topic or for its broker, then a line for each partition, with tabs
    between the fields."""
    tail = "Elr: N/A\tLastKnownElr: N/A"
    assert tool("--describe", "--topic", "order.*") == (
        0,
        [
            f"Topic: order-lines\tTopicId: {uuid_text(IDS['order-lines'])}\tPartitionCount: 3\tReplicationFactor: 2\t"
            "Configs: min.insync.replicas=2,retention.ms=5,segment.ms=9",
            f"\tTopic: order-lines\tPartition: 0\tLeader: 2\tReplicas: 2,3\tIsr: 2,3\t{tail}",
            f"\tTopic: order-lines\tPartition: 1\tLeader: none\tReplicas: 3,2\tIsr: 3\t{tail}",
            f"\tTopic: order-lines\tPartition: 2\tLeader: 2\tReplicas: 2,3\tIsr: 2\t{tail}",
            f"Topic: orders\tTopicId: {uuid_text(IDS['orders'])}\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: ",
            f"\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\t{tail}",
        ],
        [],
    )


def test_topics_are_described_also_without_a_controller(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers so when the controller has not answered it in time."""
    monkeypatch.setattr(topics, "REASSIGNMENTS_MS", 100)
    timed_out = ListPartitionReassignmentsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    tool.broker.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: timed_out
    status, lines, errors = tool("--describe", "--unavailable-partitions")
    assert (status, [line.split("\t")[1:3] for line in lines]) == (0, [["Topic: order-lines", "Partition: 1"]])
    assert errors[-1].startswith("Reassignments in progress are not shown: Timed out")


def test_eligible_leader_replicas_are_shown_if_the_broker_knows_them(tool: Tool) -> None:
    """They are not applicable (N/A) for a broker that does not serve DescribeTopicPartitions."""
    described = DescribeTopicPartitionsResponsePartition(
        leader_id=-1, replica_nodes=[1, 2, 3], isr_nodes=[1], eligible_leader_replicas=[2, 3], last_known_elr=[]
    )
    topic = DescribeTopicPartitionsResponseTopic(name="orders", topic_id=IDS["orders"], partitions=[described])
    tool.broker.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = lambda _: DescribeTopicPartitionsResponse(topics=[topic])
    status, lines, _ = tool("--describe", "--topic", "orders")
    assert (status, lines[1:]) == (
        0,
        ["\tTopic: orders\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1\tElr: 2,3\tLastKnownElr: "],
    )


@pytest.mark.parametrize(
    ("flag", "partitions"),
    [
        ("--under-replicated-partitions", ["order-lines-1", "order-lines-2"]),
        ("--unavailable-partitions", ["order-lines-1"]),
        ("--under-min-isr-partitions", ["order-lines-1", "order-lines-2"]),
        ("--at-min-isr-partitions", ["order-lines-0"]),
    ],
)
def test_describe_only_some_partitions(tool: Tool, flag: str, partitions: list[str]) -> None:
    """Prints the matching partitions of all topics, without header lines. Each topic's own min.insync.replicas counts."""
    status, out, _ = tool("--describe", flag)
    assert status == 0
    fields = [dict(field.split(": ", 1) for field in line.strip().split("\t")) for line in out]
    assert [f"{each['Topic']}-{each['Partition']}" for each in fields] == partitions


def test_only_topics_with_a_configuration(tool: Tool) -> None:
    """Prints only header lines."""
    status, out, err = tool("--describe", "--topics-with-overrides")
    assert (status, err) == (0, [])
    assert [line.split("\t")[0] for line in out] == ["Topic: order-lines"]


def test_describe_by_id(tool: Tool) -> None:
    """The id counts even if --topic is given too. An id that no topic has is an error, unless --if-exists is given."""
    status, out, _ = tool("--describe", "--topic-id", uuid_text(IDS["orders"]), "--topic", "order-lines")
    assert status == 0
    assert [line.split("\t")[0] for line in out if line.startswith("Topic")] == ["Topic: orders"]
    unknown = uuid_text(topic_id(9))
    failed = f"Error while executing topic command : TopicId '{unknown}' does not exist as expected"
    assert tool("--describe", "--topic-id", unknown) == (1, [], [failed])
    assert tool("--describe", "--topic-id", unknown, "--if-exists") == (0, [], [])


def test_delete_config_has_no_effect(tool: Tool) -> None:
    """The line on stderr names the tool that deletes a configuration."""
    assert tool("--list", "--exclude-internal", "--delete-config", "retention.ms") == (
        0,
        ["order-lines", "orders"],
        ["--delete-config has no effect; kafka-configs --alter --delete-config deletes it"],
    )


def test_a_topic_that_is_deleted_before_it_is_described_is_left_out(tool: Tool) -> None:
    """The broker lists the topic, but no longer knows it at the next request. Any other error of a topic makes the tool
    fail."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def metadata_of_some(request: MetadataRequest) -> MetadataResponse:
        response = metadata(request)
        gone = MetadataResponseTopic(name="orders", error_code=code)
        if request.topics is not None:
            response.topics = [gone if topic.name == "orders" else topic for topic in response.topics]
        return response

    tool.broker.answers[ApiKey.METADATA] = metadata_of_some
    status, out, err = tool("--describe", "--topic", "order.*")
    assert (status, err) == (0, [])
    assert {line.split("\t")[0] for line in out if line.startswith("Topic")} == {"Topic: order-lines"}
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    failed = "Error while executing topic command : orders: TOPIC_AUTHORIZATION_FAILED"
    assert tool("--describe", "--topic", "order.*") == (1, [], [failed])


@pytest.mark.parametrize("action", ["--describe", "--delete"])
def test_a_topic_that_does_not_exist(tool: Tool, action: str) -> None:
    """Prints Kafka's error line and exits with status 1. With --if-exists there is no output and no error."""
    assert tool(action, "--topic", "unknown") == (
        1,
        [],
        ["Error while executing topic command : Topic 'unknown' does not exist as expected"],
    )
    assert tool(action, "--topic", "unknown", "--if-exists") == (0, [], [])
    assert tool.sent(DeleteTopicsRequest) == []


@pytest.mark.parametrize("flags", [[], ["--if-exists"]])
def test_an_empty_name_is_not_every_topic(tool: Tool, flags: list[str]) -> None:
    """As in Kafka, it matches no topic, and that is no error."""
    assert tool("--describe", "--topic", "", *flags) == (0, [], [])


# --- delete ----------------------------------------------------------------------------------------------------------


def test_delete_by_regular_expression(tool: Tool) -> None:
    """One request deletes every matching topic by its id. As in Kafka, nothing is printed on success."""
    assert tool("--delete", "--topic", "order-.*,__.*") == (0, [], [])
    (request,) = tool.sent(DeleteTopicsRequest)
    assert [topic.topic_id for topic in request.topics] == [IDS["__consumer_offsets"], IDS["order-lines"]]
    assert all(topic.name is None for topic in request.topics)


def test_delete_that_is_refused(tool: Tool) -> None:
    """The error names the right topic although the response lists the topics in another order than the request."""
    assert tool("--delete", "--topic", ".*") == (
        1,
        [],
        ["Error while executing topic command : orders: TOPIC_DELETION_DISABLED"],
    )


# --- alter -----------------------------------------------------------------------------------------------------------


def test_alter_adds_partitions_to_every_matching_topic(tool: Tool) -> None:
    """As in Kafka, nothing is printed. Without an assignment, the controller places the replicas."""
    assert tool("--alter", "--topic", "order.*", "--partitions", "6") == (0, [], [])
    (request,) = tool.sent(CreatePartitionsRequest)
    assert [(topic.name, topic.count, topic.assignments) for topic in request.topics] == [
        ("order-lines", 6, None),
        ("orders", 6, None),
    ]
    assert not request.validate_only


def test_alter_with_an_assignment(tool: Tool) -> None:
    """The option names the replicas of all partitions. As in Kafka, the entries for existing partitions are skipped."""
    assert tool("--alter", "--topic", "orders", "--partitions", "2", "--replica-assignment", "1:2,2:3")[0] == 0
    (request,) = tool.sent(CreatePartitionsRequest)
    assert [each.broker_ids for each in request.topics[0].assignments] == [[2, 3]]


def test_alter_that_is_refused(tool: Tool) -> None:
    """The tool prints why the command fails: the controller refuses the change, the topic does not exist, or --alter does
    not take an option."""
    assert tool("--alter", "--topic", "orders", "--partitions", "3") == (
        1,
        [],
        ["Error while executing topic command : Topic already has 3 partition(s)."],
    )
    assert tool("--alter", "--topic", "none", "--partitions", "3")[0] == 1
    assert tool("--alter", "--topic", "none", "--partitions", "3", "--if-exists") == (0, [], [])
    assert tool("--alter", "--topic", "orders") == (1, [], ["--alter needs --partitions"])
    assert tool("--alter", "--partitions", "3") == (1, [], ["--alter needs --topic"])
    for option in (["--config", "a=1"], ["--replication-factor", "2"]):
        assert tool("--alter", "--topic", "orders", "--partitions", "4", *option) == (
            1,
            [],
            ["--alter changes the number of partitions only; leave out --config and --replication-factor"],
        )
    assert len(tool.sent(CreatePartitionsRequest)) == 1


# --- reassignments ---------------------------------------------------------------------------------------------------


def test_describe_shows_what_a_reassignment_adds_and_removes(tool: Tool) -> None:
    """Replicas that are being added do not count toward the replication factor, and do not make a partition
    under-replicated. A reassignment that was completed before the metadata was read shows only in the line of its
    partition."""
    moving = OngoingPartitionReassignment(partition_index=2, replicas=[2, 3, 4], adding_replicas=[4], removing_replicas=[3])
    done = OngoingPartitionReassignment(partition_index=0, replicas=[2, 3, 9], adding_replicas=[9])
    tool.broker.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="order-lines", partitions=[moving, done])]
    )
    status, lines, _ = tool("--describe", "--topic", "order-lines")
    assert status == 0
    assert "ReplicationFactor: 2\t" in lines[0]
    assert lines[3] == (
        "\tTopic: order-lines\tPartition: 2\tLeader: 2\tReplicas: 2,3\tIsr: 2\tAdding Replicas: 4\tRemoving Replicas: 3"
        "\tElr: N/A\tLastKnownElr: N/A"
    )
    _, lines, _ = tool("--describe", "--topic", "order-lines", "--under-replicated-partitions")
    assert [line.split("\t")[2] for line in lines] == ["Partition: 1", "Partition: 2"]
    grown = OngoingPartitionReassignment(partition_index=1, replicas=[3, 2], adding_replicas=[2])
    tool.broker.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="order-lines", partitions=[grown])]
    )
    _, lines, _ = tool("--describe", "--topic", "order-lines", "--under-replicated-partitions")
    assert [line.split("\t")[2] for line in lines] == ["Partition: 2"]
