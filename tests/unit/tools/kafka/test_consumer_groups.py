"""kafka-consumer-groups: its checks, its requests and its tables, which equal those of Kafka 4.1 to the byte."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.codec import encode_with_version
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import TopicPartition as WireTopicPartition
from common.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from common.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from common.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from common.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from common.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
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
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.tools.fake_broker import FakeBroker
from tools.kafka.consumer_groups import WARNING, main

# Every log is from 2 to 10, and its records have their offsets as timestamps.
START, END = 2, 10
NO_GROUP = "org.apache.kafka.common.errors.GroupIdNotFoundException: Group gone not found."


def member(name: str, partitions: Sequence[int], instance_id: str | None = None) -> DescribedGroupMember:
    assigned = [WireTopicPartition(topic="orders", partitions=list(partitions))] if partitions else []
    return DescribedGroupMember(
        member_id=f"{name}-1",
        group_instance_id=instance_id,
        client_id=name,
        client_host="/10.0.0.1",
        member_assignment=encode_with_version(ConsumerProtocolAssignment(assigned_partitions=assigned), 1),
    )


GROUPS = {
    "busy": DescribedGroup(
        group_id="busy",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[member("one", [1]), member("two", [0, 2])],
    ),
    "idle": DescribedGroup(group_id="idle", group_state="Empty", protocol_type="consumer"),
    "moving": DescribedGroup(
        group_id="moving", group_state="PreparingRebalance", protocol_type="consumer", members=[member("x", [], "inst")]
    ),
}
COMMITTED = {"busy": {0: 7, 1: 10, 3: 5}, "idle": {1: 4}}
TYPES = {"busy": "consumer", "idle": "consumer", "moving": "consumer", "workers": "connect"}


class Cluster:
    """The answers of a broker with some groups and the topic `orders` of four partitions, the last without a leader."""

    def __init__(self) -> None:
        self.broker = FakeBroker(
            {
                ApiKey.DESCRIBE_CLUSTER: self._cluster,
                ApiKey.FIND_COORDINATOR: self._coordinator,
                ApiKey.LIST_GROUPS: self._list,
                ApiKey.DESCRIBE_GROUPS: self._describe,
                ApiKey.DELETE_GROUPS: self._delete,
                ApiKey.OFFSET_FETCH: self._committed,
                ApiKey.OFFSET_COMMIT: self._commit,
                ApiKey.OFFSET_DELETE: self._delete_offsets,
                ApiKey.METADATA: self._metadata,
                ApiKey.LIST_OFFSETS: self._offsets,
            }
        )

    def _cluster(self, _: DescribeClusterRequest) -> DescribeClusterResponse:
        address = self.broker.address
        return DescribeClusterResponse(brokers=[DescribeClusterBroker(broker_id=1, host=address.host, port=address.port)])

    def _coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        address = self.broker.address
        found = Coordinator(key=request.coordinator_keys[0], node_id=1, host=address.host, port=address.port)
        return FindCoordinatorResponse(coordinators=[found])

    def _list(self, request: ListGroupsRequest) -> ListGroupsResponse:
        states = {name: GROUPS[name].group_state if name in GROUPS else "Stable" for name in TYPES}
        return ListGroupsResponse(
            groups=[
                ListedGroup(group_id=name, protocol_type=type_, group_state=states[name], group_type="classic")
                for name, type_ in TYPES.items()
                if not request.states_filter or states[name] in request.states_filter
            ]
        )

    def _describe(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        (name,) = request.groups
        unknown = DescribedGroup(
            group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {name} not found."
        )
        return DescribeGroupsResponse(groups=[GROUPS.get(name, unknown)])

    def _delete(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        (name,) = request.groups_names
        codes = {"busy": ErrorCode.NON_EMPTY_GROUP, "moving": ErrorCode.NON_EMPTY_GROUP, "idle": ErrorCode.NONE}
        code = codes.get(name, ErrorCode.GROUP_ID_NOT_FOUND)
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name, error_code=code)])

    def _committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        (asked,) = request.groups
        partitions = [
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset, committed_leader_epoch=index - 1)
            for index, offset in COMMITTED.get(asked.group_id, {}).items()
        ]
        topics = [OffsetFetchResponseTopics(name="orders", partitions=partitions)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)])

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=each.partition_index) for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        if request.group_id not in GROUPS:
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if request.group_id == "busy" else ErrorCode.NONE
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        topics = []
        for asked in request.topics or []:
            known = asked.name == "orders"
            partitions = [MetadataResponsePartition(partition_index=i, leader_id=1 if i < 3 else -1) for i in range(4)]
            topics.append(
                MetadataResponseTopic(
                    name=asked.name,
                    error_code=ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=partitions if known else [],
                )
            )
        return MetadataResponse(topics=topics)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        def offset(timestamp: int) -> int:
            if timestamp < 0:
                return END if timestamp == -1 else START
            return max(timestamp, START) if timestamp < END else -1

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=offset(each.timestamp))
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class Tool:
    """Runs main() on that cluster."""

    def __init__(self, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Returns the exit status, stdout and stderr."""
        try:
            status = main(["--bootstrap-server", str(self.broker.address), *arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else -1
        captured = self._capsys.readouterr()
        return status, captured.out, captured.err

    def sent(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.broker.requests if isinstance(request, kind)]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    with Cluster().broker as broker:
        yield Tool(broker, capsys)


def lines(*text: str) -> str:
    return "".join(f"{line}\n" for line in text)


# --- list ------------------------------------------------------------------------------------------------------------


def test_groups_are_listed(tool: Tool) -> None:
    """The workers of Kafka Connect are a group, but not one of consumers."""
    assert tool("--list") == (0, "busy\nidle\nmoving\n", "")
    assert tool("--list", "--state") == (
        0,
        lines(
            "GROUP                     STATE               ",
            "busy                      Stable              ",
            "idle                      Empty               ",
            "moving                    PreparingRebalance  ",
        ),
        "",
    )
    assert tool("--list", "--type", "--state", "stable, EMPTY") == (
        0,
        lines(
            "GROUP                     TYPE                 STATE               ",
            "busy                      Classic              Stable              ",
            "idle                      Classic              Empty               ",
        ),
        "",
    )
    assert tool.sent(ListGroupsRequest)[-1].states_filter == ["Stable", "Empty"]
    assert tool("--list", "--type", "consumer,classic")[0] == 0
    assert tool.sent(ListGroupsRequest)[-1].types_filter == ["Consumer", "Classic"]


# --- describe --------------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_with_members(tool: Tool) -> None:
    """The member with the most partitions comes first. The end of a partition without a leader is not known."""
    head = "GROUP           TOPIC           PARTITION  {}CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "
    head += "HOST            CLIENT-ID"
    status, out, err = tool("--describe", "--group", "busy")
    assert (status, err) == (0, "")
    assert out == lines(
        "",
        head.format(""),
        "busy            orders          0          7               10              3               two-1           "
        "/10.0.0.1       two",
        "busy            orders          2          -               10              -               two-1           "
        "/10.0.0.1       two",
        "busy            orders          1          10              10              0               one-1           "
        "/10.0.0.1       one",
        "busy            orders          3          5               -               -               -               "
        "-               -",
    )
    assert tool("--describe", "--group", "busy", "--offsets", "--verbose")[1].splitlines()[1:3] == [
        head.format("LEADER-EPOCH    "),
        "busy            orders          0          -               7               10              3               "
        "two-1           /10.0.0.1       two",
    ]


def test_members_of_a_group(tool: Tool) -> None:
    """The column of instance ids is there if a member has one. With --verbose, the assignments follow."""
    assert tool("--describe", "--group", "busy", "--members") == (
        0,
        lines(
            "",
            "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ",
            "busy            one-1           /10.0.0.1       one             1               ",
            "busy            two-1           /10.0.0.1       two             2               ",
        ),
        "",
    )
    assert tool("--describe", "--group", "moving", "--members", "--verbose") == (
        0,
        lines(
            "",
            "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       #PARTITIONS     "
            "CURRENT-EPOCH   CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   ",
            "moving          x-1             inst              /10.0.0.1       x               0               "
            "-               -                    -               -                   ",
        ),
        "\nWarning: Consumer group 'moving' is rebalancing.\n",
    )
    assert "orders:0,2 " in tool("--describe", "--group", "busy", "--members", "--verbose")[1]


def test_states_of_all_groups(tool: Tool) -> None:
    """Each group has its own table. The coordinator is an address with an id."""
    status, out, err = tool("--describe", "--all-groups", "--state")
    assert (status, err.splitlines()) == (
        0,
        [
            "",
            "Consumer group 'idle' has no active members.",
            "",
            "Warning: Consumer group 'moving' is rebalancing.",
        ],
    )
    coordinator = f"{tool.broker.address}  (1)".ljust(25)
    assert out.splitlines()[:6] == [
        "",
        "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
        f"busy            {coordinator} range                Stable               2",
        "",
        "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
        f"idle            {coordinator} -                    Empty                0",
    ]
    verbose = tool("--describe", "--group", "busy", "--state", "--verbose")[1].splitlines()
    assert verbose[1].endswith("STATE                GROUP-EPOCH     TARGET-ASSIGNMENT-EPOCH   #MEMBERS")
    assert verbose[2].endswith("Stable               -               -                         2")


def test_a_group_that_does_not_exist_is_status_0(tool: Tool) -> None:
    """As in Kafka, the error is on stdout. Nothing is shown of the other group."""
    error = f"\nError: Executing consumer group command failed due to {NO_GROUP}\n"
    assert tool("--describe", "--group", "gone", "--group", "busy") == (0, error, "")


# --- reset -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--to-earliest", "--topic", "orders:0,2"), {0: 2, 2: 2}),
        (("--to-latest", "--all-topics"), {1: 10}),
        (("--to-offset", "6", "--topic", "orders:0,1", "--topic", "orders:2"), {0: 6, 1: 6, 2: 6}),
        (("--to-offset", "2", "--topic", "orders:0"), {0: 2}),
        (("--shift-by", "0", "--all-topics"), {1: 4}),
        (("--to-current", "--topic", "orders:0,1"), {0: 10, 1: 4}),
        (("--shift-by", "3", "--all-topics"), {1: 7}),
        (("--shift-by", "-1", "--topic", "orders:1"), {1: 3}),
        (("--to-datetime", "1970-01-01T00:00:00.008", "--all-topics"), {1: 8}),
        (("--by-duration", "P99999D", "--all-topics"), {1: 2}),
    ],
)
def test_the_new_offsets(tool: Tool, options: tuple[str, ...], offsets: dict[int, int]) -> None:
    """They are shown without --execute, and committed with it."""
    table = "".join(
        f"\nidle                           orders                         {index:<10} {offset:<15}"
        for index, offset in offsets.items()
    )
    head = "\nGROUP                          TOPIC                          PARTITION  NEW-OFFSET     "
    assert tool("--reset-offsets", "--group", "idle", *options) == (0, f"{head}{table}\n", f"{WARNING}\n")
    assert tool("--reset-offsets", "--group", "idle", "--dry-run", *options) == (0, f"{head}{table}\n", "")
    assert tool.sent(OffsetCommitRequest) == []
    assert tool("--reset-offsets", "--group", "idle", "--execute", *options) == (0, f"{head}{table}\n", "")
    ((topic,),) = [request.topics for request in tool.sent(OffsetCommitRequest)]
    assert {each.partition_index: each.committed_offset for each in topic.partitions} == offsets


def test_offsets_outside_of_the_log_are_limited(tool: Tool) -> None:
    reset = ("--reset-offsets", "--group", "idle", "--dry-run", "--export", "--topic", "orders:0")
    too_high = "New offset (11) is higher than latest offset for topic partition orders-0. Value will be set to 10\n"
    assert tool(*reset, "--to-offset", "11") == (0, "orders,0,10\n\n", too_high)
    too_low = "New offset (1) is lower than earliest offset for topic partition orders-0. Value will be set to 2\n"
    assert tool(*reset, "--to-offset", "1") == (0, "orders,0,2\n\n", too_low)


def test_a_time_after_the_last_record(tool: Tool) -> None:
    status, out, _ = tool(
        "--reset-offsets", "--group", "idle", "--dry-run", "--export", "--all-topics", "--by-duration", "PT1S"
    )
    warning = "\nWarn: Partition 1 from topic orders is empty. Falling back to latest known offset.\n"
    assert (status, out) == (0, f"{warning}orders,1,10\n\n")


def test_a_reset_by_file(tool: Tool, tmp_path: Path) -> None:
    """The file is what --export prints: without the group if there is one, with it if there are several."""
    path = tmp_path / "plan.csv"
    path.write_text("orders,0,3\norders,2,9\n\n")
    reset = ("--reset-offsets", "--dry-run", "--from-file", str(path), "--export")
    assert tool(*reset, "--group", "idle") == (0, "orders,0,3\norders,2,9\n\n", "")
    path.write_text("idle,orders,0,3\n")
    missing = "\nError: No reset plan for group fresh found\n"
    assert tool(*reset, "--group", "idle", "--group", "fresh") == (0, f"{missing}idle,orders,0,3\n\n", "")


def test_only_groups_without_members_are_reset(tool: Tool) -> None:
    """A group that does not exist yet may be given offsets."""
    reset = ("--reset-offsets", "--execute", "--to-earliest", "--topic", "orders:0", "--export")
    assert tool(*reset, "--group", "busy", "--group", "fresh") == (
        0,
        "\nError: Assignments can only be reset if the group 'busy' is inactive, but the current state is Stable.\n"
        "fresh,orders,0,2\n\n",
        "",
    )
    assert [request.group_id for request in tool.sent(OffsetCommitRequest)] == ["fresh"]


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("nowhere", "UnknownTopicOrPartitionException: This server does not host this topic-partition."),
        ("orders:9", "UnknownTopicOrPartitionException: partition orders-9 does not exist"),
        ("orders", "LeaderNotAvailableException: partition orders-3 has no leader"),
    ],
)
def test_partitions_that_cannot_be_reset(tool: Tool, topic: str, reason: str) -> None:
    """Nothing is committed. As in Kafka, the status is 0."""
    done = tool("--reset-offsets", "--execute", "--to-latest", "--group", "idle", "--topic", topic)
    error = f"\nError: Executing consumer group command failed due to org.apache.kafka.common.errors.{reason}\n"
    assert done == (0, error, "")
    assert tool.sent(OffsetCommitRequest) == []


# --- delete ----------------------------------------------------------------------------------------------------------


def test_groups_are_deleted(tool: Tool) -> None:
    assert tool("--delete", "--group", "idle") == (
        0,
        "Deletion of requested consumer groups ('idle') was successful.\n",
        "",
    )
    errors = "org.apache.kafka.common.errors."
    assert tool("--delete", "--group", "busy", "--group", "idle", "--group", "gone") == (
        0,
        lines(
            "",
            "Error: Deletion of some consumer groups failed:",
            f"* Group 'busy' could not be deleted due to: {errors}GroupNotEmptyException: The group is not empty.",
            f"* Group 'gone' could not be deleted due to: {errors}GroupIdNotFoundException: The group id does not exist.",
            "",
            "These consumer groups were deleted successfully: 'idle'",
        ),
        "",
    )


def test_offsets_are_deleted(tool: Tool) -> None:
    head = "TOPIC           PARTITION  STATUS         "
    assert tool("--delete-offsets", "--group", "idle", "--topic", "orders:1", "--topic", "nowhere") == (
        0,
        lines(
            "Request succeeded for deleting offsets from group idle.",
            "",
            head,
            "orders          1          Successful     ",
            "nowhere         -          Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server "
            "does not host this topic-partition.",
        ),
        "",
    )
    subscribed = "org.apache.kafka.common.errors.GroupSubscribedToTopicException: Deleting offsets of a topic is forbidden "
    subscribed += "while the consumer group is actively subscribed to it."
    assert tool("--delete-offsets", "--group", "busy", "--topic", "orders:1") == (
        0,
        lines(
            "",
            "Error: Encountered some partition-level error, see the follow-up details.",
            "",
            head,
            f"orders          1          Error: {subscribed}",
        ),
        "",
    )
    gone = tool("--delete-offsets", "--group", "gone", "--topic", "orders:1")
    assert (gone[0], gone[1].splitlines()[1]) == (0, "Error: The group id does not exist.")


def test_offsets_of_a_group_and_a_topic_that_do_not_exist(tool: Tool) -> None:
    """The group is asked for even if there is no partition to name, and both errors are shown."""
    unknown = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this "
    assert tool("--delete-offsets", "--group", "gone", "--topic", "nowhere") == (
        0,
        lines(
            "",
            "Error: The group id does not exist.",
            "",
            "TOPIC           PARTITION  STATUS         ",
            f"nowhere         -          Error: {unknown}topic-partition.",
        ),
        "",
    )


# --- validate a regular expression -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regex", "verdict"),
    [
        ("orders-.*", "The regular expression `orders-.*` is valid.\n"),
        ("", "The regular expression `` is valid.\n"),
        ("[", "The regular expression `[` is invalid: "),
        # Java knows this one, and RE2 does not.
        ("(?=a)a", "The regular expression `(?=a)a` is invalid: "),
    ],
)
def test_a_regular_expression_is_judged_without_a_broker(
    capsys: pytest.CaptureFixture[str], regex: str, verdict: str
) -> None:
    """As in Kafka, the status is 0 whatever the verdict is."""
    assert main(["--validate-regex", regex]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(verdict)
    assert captured.out.endswith(".\n")
    assert captured.err == ""


# --- wrong command lines ---------------------------------------------------------------------------------------------


def test_every_other_action_needs_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    """The one line is that of Kafka's tool."""
    assert main(["--list"]) == 1
    assert capsys.readouterr().err == 'Missing required argument "[bootstrap-server]"\n'


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--group g", "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, "),
        ("--list --describe --group g", "Command must include exactly one action: "),
        ("--validate-regex a --list", "Command must include exactly one action: "),
        ("--describe", "Option [describe] takes one of these options: [all-groups], [group]"),
        ("--delete", "Option [delete] takes one of these options: [all-groups], [group]"),
        ("--reset-offsets --to-latest --topic t", "Option [reset-offsets] takes one of these options: "),
        ("--delete-offsets --group g", "Option [delete-offsets] takes the following options: [topic], [group]"),
        ("--describe --group g --all-groups", 'Option "[group]" can\'t be used with option "[all-groups]"'),
        ("--describe --group g --members --offsets", "Option [describe] takes at most one of these options: "),
        ("--describe --group g --state stable", "Option [describe] does not take a value for [state]"),
        ("--describe --group g --topic t", 'Option "[topic]" can\'t be used with option "[describe]"'),
        ("--describe --group g --type", "Option [type] is only for [list]"),
        ("--list --group g", 'Option "[group]" can\'t be used with option "[list]"'),
        ("--list --members", "Option [members] is only for [describe]"),
        ("--delete --group g --state", "Option [state] is only for [describe] and [list]"),
        ("--delete --group g --topic t", "The consumer does not support topic-specific offset deletion"),
        ("--list --state foo", "Invalid state list 'foo'. Valid states are: CompletingRebalance, Stable, "),
        ("--list --type foo,classic", "Invalid types list 'foo,classic'. Valid types are: Consumer, Classic"),
        ("--reset-offsets --group g --topic t", "Option '[reset-offsets]' requires one of the following scenarios: ["),
        ("--reset-offsets --group g --to-latest", "One of the reset scopes should be defined: --all-topics, --topic."),
        (
            "--reset-offsets --group g --topic t --to-latest --to-offset 0",
            'Option "[to-offset]" can\'t be used with option "[to-latest]"',
        ),
        (
            "--reset-offsets --group g --topic t --to-latest --dry-run --execute",
            "Option [reset-offsets] only accepts one of [execute] and [dry-run]",
        ),
        ("--reset-offsets --dry-run --group idle --topic orders:x --to-latest", "Invalid partition 'x' specified in topic "),
        ("--reset-offsets --dry-run --group idle --topic orders --to-datetime now", "Error parsing timestamp now"),
        (
            "--reset-offsets --dry-run --group idle --topic orders --by-duration 1h",
            "Text cannot be parsed to a Duration: 1h",
        ),
        (
            "--reset-offsets --dry-run --group idle --from-file /nowhere.csv",
            "Unable to read file /nowhere.csv: No such file or directory",
        ),
        (
            "--reset-offsets --dry-run --group idle --topic orders:1,2 --shift-by 1",
            "Cannot shift offset for partition orders-2 since there is no current committed offset",
        ),
    ],
)
def test_wrong_arguments(tool: Tool, options: str, text: str) -> None:
    """One line on stderr, and status 1."""
    status, out, err = tool(*options.split())
    assert (status, out) == (1, "")
    assert err.startswith(text)
    assert err.count("\n") == 1
    assert tool.sent(OffsetCommitRequest) == []


def test_numbers_are_checked(tool: Tool) -> None:
    """argparse says what is wrong, and shows the usage."""
    status, _, err = tool("--reset-offsets", "--group", "g", "--topic", "t", "--to-offset", "x")
    assert (status, err.splitlines()[0]) == (
        1,
        "kafka-consumer-groups: argument --to-offset: 'x' is not a number from -9223372036854775808 to 9223372036854775807",
    )
