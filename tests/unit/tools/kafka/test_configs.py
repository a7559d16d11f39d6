"""Tests kafka-configs: its requests, the brokers to which it sends them, and its output, which equals that of Kafka's
tool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from common.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from common.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from common.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from common.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.unit.common.metadata.builders import topic_id
from tests.unit.tools.fake_broker import Answer, FakeBroker
from tools.kafka.configs import main

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1
RATE = "leader.replication.throttled.rate"
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"


def entry(key: str, value: str | None, source: int, **fields: Any) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(name=key, value=value, source=source)]
    if source == 1:
        synonyms.append(DescribeConfigsSynonym(name=f"log.{key}", value="9", source=5))
    return DescribeConfigsResourceResult(name=key, value=value, config_source=source, synonyms=synonyms, **fields)


# The configuration entries by resource type and name.
CONFIGS = {
    (TOPIC, "t"): [entry("segment.ms", "7", 5), entry("retention.ms", "5", 1)],
    (TOPIC, "u"): [entry("retention.ms", "9", 5)],
    (BROKER, "1"): [entry(RATE, "5", 2), entry("a.secret", None, 2, is_sensitive=True), entry("node.id", "1", 4)],
    (BROKER, "2"): [entry(RATE, "6", 3)],
    (BROKER, ""): [entry(RATE, "6", 3)],
    (GROUP, "set"): [entry(SESSION, "45000", 5), entry(HEARTBEAT, "6000", 8)],
    (GROUP, "live"): [entry(SESSION, "45000", 5), entry(HEARTBEAT, "5000", 5)],
    (GROUP, "new"): [entry(SESSION, "45000", 5), entry(HEARTBEAT, "5000", 5)],
}


def describe(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    assert request.include_synonyms
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=CONFIGS[each.resource_type, each.resource_name],
            )
            for each in request.resources
        ]
    )


def alter(request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    (resource,) = request.resources
    is_bad = any(config.name == "node.id" for config in resource.configs)
    result = AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    if is_bad:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = "Cannot update these configs dynamically: Set(node.id)"
    return IncrementalAlterConfigsResponse(responses=[result])


def list_resources(request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    assert request.resource_types == [GROUP]
    return ListConfigResourcesResponse(config_resources=[ConfigResource(resource_name="set", resource_type=GROUP)])


class Tool:
    """Runs main() against a cluster with topics t and u, the group live, the group set, for which something is set but which
    does not exist, and two brokers. Broker 1 is the bootstrap server."""

    def __init__(self, brokers: list[FakeBroker], capsys: pytest.CaptureFixture[str]) -> None:
        self.brokers = brokers
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        try:
            status = main(["--bootstrap-server", str(self.brokers[0].address), *arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else -1
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    def altered(self, broker: int = 0) -> list[tuple[int, str, list[tuple[str, int, str | None]]]]:
        """Returns the resources that this broker was asked to alter, each with its changes as (key, operation, value)."""
        return [
            (
                resource.resource_type,
                resource.resource_name,
                [(config.name, config.config_operation, config.value) for config in resource.configs],
            )
            for request in self.brokers[broker].requests
            if isinstance(request, IncrementalAlterConfigsRequest)
            for resource in request.resources
        ]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    topics = [MetadataResponseTopic(name=name, topic_id=topic_id(number)) for number, name in ((2, "u"), (1, "t"))]
    answers: dict[ApiKey, Answer] = {
        ApiKey.METADATA: lambda _: MetadataResponse(topics=topics),
        ApiKey.DESCRIBE_CLUSTER: lambda _: DescribeClusterResponse(
            brokers=[DescribeClusterBroker(broker_id=id_) for id_ in (1, 2)]
        ),
        ApiKey.DESCRIBE_CONFIGS: describe,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter,
        ApiKey.LIST_CONFIG_RESOURCES: list_resources,
    }
    answers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(groups=[ListedGroup(group_id="live")])
    with FakeBroker(answers) as first, FakeBroker(answers) as second:
        first.members = second.members = {1: first, 2: second}
        yield Tool([first, second], capsys)


# --- alter -----------------------------------------------------------------------------------------------------------


def test_alter_a_topic(tool: Tool) -> None:
    """Square brackets enclose a value that contains commas. A value may be empty."""
    flags = (
        "--add-config",
        "leader.replication.throttled.replicas=[0:1,1:2],segment.ms=5,a=",
        "--delete-config",
        "retention.ms",
    )
    output = tool("--alter", "--entity-type", "topics", "--entity-name", "t", *flags)
    assert output == (0, ["Completed updating config for topic t."], [])
    changes = [
        ("leader.replication.throttled.replicas", SET, "0:1,1:2"),
        ("segment.ms", SET, "5"),
        ("a", SET, ""),
        ("retention.ms", DELETE, None),
    ]
    assert tool.altered() == [(TOPIC, "t", changes)]


def test_a_broker_is_altered_by_itself(tool: Tool) -> None:
    """A change of broker 2 goes to broker 2, not to the bootstrap server."""
    output = tool("--alter", "--entity-type", "brokers", "--entity-name", "2", "--add-config", f"{RATE}=5")
    assert output == (0, ["Completed updating config for broker 2."], [])
    assert (tool.altered(0), tool.altered(1)) == ([], [(BROKER, "2", [(RATE, SET, "5")])])


@pytest.fixture
def controller() -> Iterator[FakeBroker]:
    """Controller 9, the only one."""
    with FakeBroker({ApiKey.DESCRIBE_CONFIGS: describe, ApiKey.INCREMENTAL_ALTER_CONFIGS: alter}) as node:
        itself = DescribeClusterBroker(broker_id=9, host=node.address.host, port=node.address.port)
        node.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
            endpoint_type=2, controller_id=9, brokers=[itself]
        )
        yield node


def test_a_controller_takes_the_change_of_a_broker_that_refuses_connections(
    controller: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the change nor the deletion asks the broker for anything."""
    asked = ("--bootstrap-controller", str(controller.address))
    for change in (("--add-config", f"{RATE}=5"), ("--delete-config", "max.connections")):
        assert main([*asked, "--alter", "--broker", "1", *change]) == 0
        assert capsys.readouterr().out.splitlines() == ["Completed updating config for broker 1."]
    altered = [each.resources[0] for each in controller.requests if isinstance(each, IncrementalAlterConfigsRequest)]
    assert [(each.resource_name, each.configs[0].name) for each in altered] == [("1", RATE), ("1", "max.connections")]


@pytest.mark.parametrize("keys", [(), ("--all",)])
def test_a_controller_does_not_describe_a_broker(
    keys: tuple[str, ...], controller: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--bootstrap-controller", str(controller.address))
    assert main([*asked, "--describe", *keys, "--broker", "1"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "1 is no controller; there are 9. Only brokers can be asked about brokers: use --bootstrap-server"
    ]


@pytest.mark.parametrize("entity", [("--entity-type", "brokers", "--entity-default"), ("--broker-defaults",)])
def test_the_default_of_all_brokers(tool: Tool, entity: tuple[str, ...]) -> None:
    """The request names the broker resource with the empty name. Any broker may receive it."""
    output = tool("--alter", *entity, "--delete-config", RATE)
    assert output == (0, ["Completed updating default config for brokers in the cluster."], [])
    assert tool.altered() == [(BROKER, "", [(RATE, DELETE, None)])]


@pytest.mark.parametrize("entity", [("--entity-type", "groups", "--entity-name", "set"), ("--group", "set")])
def test_alter_a_group(tool: Tool, entity: tuple[str, ...]) -> None:
    """Any broker may receive the change of a group."""
    output = tool("--alter", *entity, "--add-config", f"{SESSION}=50000", "--delete-config", HEARTBEAT)
    assert output == (0, ["Completed updating config for group set."], [])
    assert tool.altered() == [(GROUP, "set", [(SESSION, SET, "50000"), (HEARTBEAT, DELETE, None)])]


def test_alter_a_group_that_does_not_exist_yet(tool: Tool) -> None:
    """As in Kafka, a group can be configured before its first member joins."""
    assert tool("--alter", "--group", "new", "--add-config", f"{HEARTBEAT}=6000")[0] == 0
    assert tool.altered() == [(GROUP, "new", [(HEARTBEAT, SET, "6000")])]


def test_keys_from_a_file(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables such as KAFKA_NODE_ID override the configuration of a node. They add nothing to the tool's
    request."""
    monkeypatch.setenv("KAFKA_NODE_ID", "7")
    path = tmp_path / "new.properties"
    path.write_text("retention.ms=5\n# a comment\nsegment.ms = 6\n")
    assert tool("--alter", "--topic", "t", "--add-config-file", str(path))[0] == 0
    assert tool.altered() == [(TOPIC, "t", [("retention.ms", SET, "5"), ("segment.ms", SET, "6")])]


def test_what_the_cluster_refuses(tool: Tool) -> None:
    """The tool prints one line on stderr and exits with status 1."""
    status, out, err = tool("--alter", "--broker", "1", "--add-config", "node.id=2")
    assert (status, out) == (1, [])
    assert err == ["Error while executing config command: Cannot update these configs dynamically: Set(node.id)"]


# --- describe --------------------------------------------------------------------------------------------------------


def test_describe_what_is_set_on_a_topic(tool: Tool) -> None:
    """Shows only the values that are set on the topic, with their synonyms."""
    assert tool("--describe", "--entity-type", "topics", "--entity-name", "t") == (
        0,
        [
            "Dynamic configs for topic t are:",
            "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5, "
            "DEFAULT_CONFIG:log.retention.ms=9}",
        ],
        [],
    )


def test_describe_all_of_a_topic(tool: Tool) -> None:
    """Shows every key, in alphabetical order."""
    assert tool("--describe", "--all", "--topic", "t") == (
        0,
        [
            "All configs for topic t are:",
            "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5, "
            "DEFAULT_CONFIG:log.retention.ms=9}",
            "  segment.ms=7 sensitive=false synonyms={DEFAULT_CONFIG:segment.ms=7}",
        ],
        [],
    )


def test_describe_every_broker_and_the_default(tool: Tool) -> None:
    """Each broker describes its own configuration. A sensitive value is shown as null."""
    assert tool("--describe", "--entity-type", "brokers") == (
        0,
        [
            "Dynamic configs for broker 1 are:",
            "  a.secret=null sensitive=true synonyms={DYNAMIC_BROKER_CONFIG:a.secret=null}",
            f"  {RATE}=5 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{RATE}=5}}",
            "Dynamic configs for broker 2 are:",
            "Default configs for brokers in the cluster are:",
            f"  {RATE}=6 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:{RATE}=6}}",
        ],
        [],
    )
    asked = [
        each.resources[0].resource_name for each in tool.brokers[1].requests if isinstance(each, DescribeConfigsRequest)
    ]
    assert asked == ["2"]


def test_describe_every_topic(tool: Tool) -> None:
    """The topics are in alphabetical order."""
    status, out, _ = tool("--describe", "--entity-type", "topics")
    assert status == 0
    assert [line for line in out if line.endswith("are:")] == [
        "Dynamic configs for topic t are:",
        "Dynamic configs for topic u are:",
    ]


def test_describe_every_group(tool: Tool) -> None:
    """Shows the groups that exist, and those for which something is set."""
    assert tool("--describe", "--entity-type", "groups") == (
        0,
        [
            "Dynamic configs for group live are:",
            "Dynamic configs for group set are:",
            f"  {HEARTBEAT}=6000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{HEARTBEAT}=6000}}",
        ],
        [],
    )


def test_a_broker_that_lists_no_configured_groups(tool: Tool) -> None:
    """Brokers before Kafka 4.1 do not. As in Kafka, a group that does not exist is then described if it is named, because
    something may be set for it, and left out of the list."""
    for broker in tool.brokers:
        del broker.answers[ApiKey.LIST_CONFIG_RESOURCES]
    assert tool("--describe", "--group", "set") == (
        0,
        [
            "Dynamic configs for group set are:",
            f"  {HEARTBEAT}=6000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{HEARTBEAT}=6000}}",
        ],
        [],
    )
    assert tool("--describe", "--entity-type", "groups") == (0, ["Dynamic configs for group live are:"], [])


def test_describe_all_of_a_group_that_does_not_exist(tool: Tool) -> None:
    """As in Kafka, the tool then shows what the group would have."""
    assert tool("--describe", "--all", "--group", "new") == (
        0,
        [
            "All configs for group new are:",
            f"  {HEARTBEAT}=5000 sensitive=false synonyms={{DEFAULT_CONFIG:{HEARTBEAT}=5000}}",
            f"  {SESSION}=45000 sensitive=false synonyms={{DEFAULT_CONFIG:{SESSION}=45000}}",
        ],
        [],
    )


@pytest.mark.parametrize(
    ("entity", "line"),
    [
        (("--topic", "none"), "The topic 'none' doesn't exist and doesn't have dynamic config."),
        (("--broker", "7"), "The broker '7' doesn't exist and doesn't have dynamic config."),
        (("--group", "new"), "The group 'new' doesn't exist and doesn't have dynamic config."),
    ],
)
def test_describe_what_does_not_exist(tool: Tool, entity: tuple[str, ...], line: str) -> None:
    """As in Kafka, the tool prints a line and exits with status 0."""
    assert tool("--describe", *entity) == (0, [line], [])


# --- wrong command lines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("--describe",), "Exactly one of --entity-type"),
        (("--describe", "--topic", "t", "--broker", "1"), "Exactly one of --entity-type"),
        (("--describe", "--entity-type", "users"), "Invalid entity type users"),
        (("--describe", "--entity-type", "brokers", "--entity-name", "1", "--entity-default"), "together"),
        (("--describe", "--entity-type", "brokers", "--entity-name", ""), "--entity-default"),
        (("--alter", "--entity-type", "brokers", "--add-config", "a=1"), "--entity-name or --entity-default must be"),
        (("--alter", "--entity-type", "topics", "--add-config", "a=1"), "--entity-name must be specified with --alter"),
        (("--alter", "--entity-type", "groups", "--add-config", "a=1"), "--entity-name must be specified with --alter"),
        (
            ("--alter", "--entity-type", "groups", "--entity-default", "--add-config", "a=1"),
            "--entity-default must not be specified with groups",
        ),
        (
            ("--describe", "--entity-type", "topics", "--entity-default"),
            "--entity-default must not be specified with topics",
        ),
        (("--describe", "--entity-type", "groups", "--entity-name", ""), "an empty name stands for no entity"),
        (("--alter", "--topic", "t"), "At least one of --add-config"),
        (("--alter", "--topic", "t", "--add-config", "a"), 'must be in the format "key=val"'),
        (
            ("--alter", "--topic", "t", "--add-config", "a=1,cleanup.policy=[compact,delete"),
            "Invalid entity config: a square bracket is not closed in cleanup.policy=[compact,delete",
        ),
        (("--alter", "--topic", "t", "--add-config", "a=1", "--add-config-file", "/none"), "Only one of --add-config"),
        (("--alter", "--topic", "t", "--add-config-file", "/none"), "cannot read /none"),
        (("--alter", "--topic", "t", "--delete-config", "segment.ms"), "Invalid config(s): segment.ms"),
        (("--alter", "--topic", "a/b", "--add-config", "a=1"), "a/b"),
        (("--describe", "--topic", "a/b"), "a/b"),
        (("--describe", "--broker", "one"), "must be a valid integer broker id, found: one"),
        (("--alter", "--broker", "one", "--add-config", "a=1"), "must be a valid integer broker id, found: one"),
        (("--alter", "--broker", "7", "--add-config", "a=1"), "broker 7 is not in the cluster; there are 1, 2"),
    ],
)
def test_wrong_command_lines(tool: Tool, arguments: tuple[str, ...], fragment: str) -> None:
    """The tool prints one line on stderr, exits with status 1, and alters nothing."""
    status, out, err = tool(*arguments)
    assert (status, out, len(err)) == (1, [], 1)
    assert fragment in err[0]
    assert tool.altered() == []
