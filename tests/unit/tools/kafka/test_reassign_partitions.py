"""Tests kafka-reassign-partitions against three fake brokers: its output, which is Kafka's, the order of its requests, and
that what it refuses changes nothing."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from common.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from common.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
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
from tests.unit.tools.fake_broker import FakeBroker
from tools.kafka.reassign_partitions import ALREADY_RUNNING, RUN_VERIFY, TIMEOUT_MS, main

ROLLBACK = "Save this to use as the --reassignment-json-file option during rollback"
NO_ROOM = "has no room for a copy, or the replica is offline"
SET, DELETE = 0, 1
CLEARED = [
    "Clearing broker-level throttles on brokers 1,2,3",
    "Clearing topic-level throttles on topic t",
]


class Cluster:
    """Three brokers with the directories /a and /b. Topic t has the partitions 0 and 1 on the brokers 1 and 2."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self._folder = folder
        self.replicas = {0: [1, 2], 1: [2, 1]}
        self.racks: dict[int, str | None] = {1: None, 2: None, 3: None}
        # By broker and path: the partitions of t there, and those that move there.
        self.logs: dict[tuple[int, str], list[int]] = {(1, "/a"): [0], (1, "/b"): [1], (2, "/a"): [0, 1]}
        self.futures: dict[tuple[int, str], list[int]] = {}
        self.offline: set[tuple[int, str]] = set()
        self.cordoned: set[tuple[int, str]] = set()
        self.ongoing: list[OngoingPartitionReassignment] = []
        # The answers to AlterReplicaLogDirs, by broker and partition, one after another; then NONE.
        self.wishes: dict[tuple[int, int], list[ErrorCode]] = {}
        self.refused: dict[int, str] = {}
        self.journal: list[tuple[int, Any]] = []
        self.brokers = {broker_id: self._broker(broker_id) for broker_id in (1, 2, 3)}
        for broker in self.brokers.values():
            broker.members = self.brokers

    def _broker(self, broker_id: int) -> FakeBroker:
        return FakeBroker(
            {
                ApiKey.METADATA: self._metadata,
                ApiKey.DESCRIBE_CLUSTER: lambda _: DescribeClusterResponse(
                    brokers=[DescribeClusterBroker(broker_id=id_, rack=rack) for id_, rack in self.racks.items()]
                ),
                ApiKey.DESCRIBE_LOG_DIRS: lambda _: self._log_dirs(broker_id),
                ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda request: self._reassign(broker_id, request),
                ApiKey.ALTER_REPLICA_LOG_DIRS: lambda request: self._alter_log_dirs(broker_id, request),
                ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request: self._configure(broker_id, request),
            }
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=replicas[0], replica_nodes=replicas)
            for index, replicas in self.replicas.items()
        ]
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(name=each.name, partitions=partitions)
                if each.name == "t"
                else MetadataResponseTopic(name=each.name, error_code=missing)
                for each in request.topics or []
            ]
        )

    def _log_dirs(self, broker_id: int) -> DescribeLogDirsResponse:
        def result(path: str) -> DescribeLogDirsResult:
            if (broker_id, path) in self.offline:
                return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
            places = ((self.logs, False), (self.futures, True))
            found = [
                DescribeLogDirsPartition(partition_index=index, is_future_key=is_future)
                for table, is_future in places
                for index in table.get((broker_id, path), [])
            ]
            topics = [DescribeLogDirsTopic(name="t", partitions=found)]
            return DescribeLogDirsResult(log_dir=path, topics=topics, is_cordoned=(broker_id, path) in self.cordoned)

        return DescribeLogDirsResponse(results=[result("/a"), result("/b")])

    def _list(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        asked = None if request.topics is None else [index for each in request.topics for index in each.partition_indexes]
        found = [each for each in self.ongoing if asked is None or each.partition_index in asked]
        topics = [OngoingTopicReassignment(name="t", partitions=found)] if found else []
        return ListPartitionReassignmentsResponse(topics=topics)

    def _reassign(self, broker_id: int, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        self.journal.append((broker_id, request))

        def result(index: int) -> ReassignablePartitionResponse:
            message = self.refused.get(index)
            code = ErrorCode.NONE if message is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT
            return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)

        return AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(name=each.name, partitions=[result(p.partition_index) for p in each.partitions])
                for each in request.topics
            ]
        )

    def _alter_log_dirs(self, broker_id: int, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        self.journal.append((broker_id, request))

        def result(index: int) -> AlterReplicaLogDirPartitionResult:
            answers = self.wishes.get((broker_id, index), [])
            code = answers.pop(0) if answers else ErrorCode.NONE
            return AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)

        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[result(each) for each in topic.partitions])
                for log_dir in request.dirs
                for topic in log_dir.topics
            ]
        )

    def _configure(self, broker_id: int, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        self.journal.append((broker_id, request))
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each.resource_name == "gone" else ErrorCode.NONE,
                )
                for each in request.resources
            ]
        )

    # --- the tool ------------------------------------------------------------------------------------------------

    def __call__(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        status = main(["--bootstrap-server", str(self.brokers[1].address), *arguments])
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    def file(self, text: str) -> str:
        path = self._folder / "file.json"
        path.write_text(text)
        return str(path)

    def on(self, action: str, *entries: Any, more: Sequence[str] = ()) -> tuple[int, list[str], list[str]]:
        """Runs an action with a file of these partitions."""
        return self(action, "--reassignment-json-file", self.file(json.dumps({"partitions": entries})), *more)

    # --- what was sent -------------------------------------------------------------------------------------------

    @property
    def story(self) -> list[str]:
        """What was changed, in order: wishes for directories by broker, and reassignments."""
        lines = []
        for broker_id, request in self.journal:
            if isinstance(request, AlterReplicaLogDirsRequest):
                dirs = [(log_dir.path, topic.partitions) for log_dir in request.dirs for topic in log_dir.topics]
                lines += [f"{broker_id}: {partitions} to {path}" for path, partitions in dirs]
            elif isinstance(request, AlterPartitionReassignmentsRequest):
                lines += [
                    f"{each.partition_index}: {each.replicas}" for topic in request.topics for each in topic.partitions
                ]
        return lines

    @property
    def configured(self) -> dict[str, list[tuple[str, int, str | None]]]:
        """The changes of configuration, by resource."""
        return {
            resource.resource_name: [(each.name, each.config_operation, each.value) for each in resource.configs]
            for _, request in self.journal
            if isinstance(request, IncrementalAlterConfigsRequest)
            for resource in request.resources
        }


@pytest.fixture
def cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(capsys, tmp_path)
    yield made
    for broker in made.brokers.values():
        broker.close()


def part(index: int, replicas: list[int], log_dirs: list[str] | None = None, topic: str = "t") -> dict[str, Any]:
    entry = {"topic": topic, "partition": index, "replicas": replicas}
    return entry if log_dirs is None else entry | {"log_dirs": log_dirs}


def assignment(*entries: dict[str, Any]) -> str:
    return json.dumps({"version": 1, "partitions": list(entries)}, separators=(",", ":"))


# --- --execute -------------------------------------------------------------------------------------------------------


def test_a_replica_moves_to_a_directory_of_another_broker(cluster: Cluster) -> None:
    """The broker is told the directory before the reassignment begins, answers that it does not have the replica, and is
    asked again until it has. The current assignment has the real directories; a replica that is nowhere has `any`."""
    cluster.wishes[3, 0] = [ErrorCode.REPLICA_NOT_AVAILABLE] * 3
    cluster.logs[2, "/a"] = [1]
    status, lines, errors = cluster.on("--execute", part(0, [3, 2], ["/b", "any"]))
    assert (status, errors) == (0, [])
    assert lines == [
        "Current partition replica assignment",
        "",
        assignment(part(0, [1, 2], ["/a", "any"])),
        "",
        ROLLBACK,
        "Successfully started partition reassignment for t-0",
        "Successfully started moving log directory to /b for replica t-0 with broker 3 ",
    ]
    assert cluster.story == ["3: [0] to /b", "0: [3, 2]", *["3: [0] to /b"] * 3]


def test_several_replicas_are_reported_as_they_start(cluster: Cluster) -> None:
    """Sorted by broker. What a broker accepts at once is not sent again."""
    cluster.wishes[3, 0] = [ErrorCode.REPLICA_NOT_AVAILABLE]
    status, lines, _ = cluster.on("--execute", part(0, [1, 3], ["/b", "/a"]), part(1, [2, 1], ["/b", "/a"]))
    assert status == 0
    assert lines[2] == assignment(part(0, [1, 2], ["/a", "/a"]), part(1, [2, 1], ["/a", "/b"]))
    assert lines[5:] == [
        "Successfully started partition reassignments for t-0,t-1",
        "Successfully started moving log directory to /b for replica t-0 with broker 1 ",
        "Successfully started moving log directory to /a for replica t-1 with broker 1 ",
        "Successfully started moving log directory to /b for replica t-1 with broker 2 ",
        "Successfully started moving log directory to /a for replica t-0 with broker 3 ",
    ]
    first, middle, last = cluster.story[:4], cluster.story[4:6], cluster.story[6:]
    assert sorted(first) == ["1: [0] to /b", "1: [1] to /a", "2: [1] to /b", "3: [0] to /a"]
    assert (middle, last) == (["0: [1, 3]", "1: [2, 1]"], ["3: [0] to /a"])


def test_a_replica_that_does_not_come_ends_the_tool_at_the_timeout(cluster: Cluster) -> None:
    """The reassignment goes on, and its replica will be created in the directory: the broker remembers it."""
    cluster.wishes[3, 0] = [ErrorCode.REPLICA_NOT_AVAILABLE] * 9
    cluster.wishes[3, 1] = [ErrorCode.REPLICA_NOT_AVAILABLE] * 9
    entries = [part(0, [3], ["/b"]), part(1, [3], ["/b"])]
    assert TIMEOUT_MS == 10_000
    status, _, errors = cluster.on("--execute", *entries, more=["--timeout", "150"])
    assert (status, errors) == (1, ["Timed out before log directory moves could be started for: t-0-3,t-1-3"])
    assert cluster.story == ["3: [0, 1] to /b", "0: [3]", "1: [3]", *["3: [0, 1] to /b"] * 2]


def test_another_error_of_a_broker_ends_it_before_the_reassignment(cluster: Cluster) -> None:
    """The wishes that were accepted are taken back."""
    cluster.wishes[3, 0] = [ErrorCode.REPLICA_NOT_AVAILABLE]
    cluster.wishes[2, 1] = [ErrorCode.KAFKA_STORAGE_ERROR]
    entries = [part(0, [1, 3], ["/b", "/a"]), part(1, [2], ["/b"])]
    status, _, errors = cluster.on("--execute", *entries)
    assert (status, errors) == (1, [f"Error: Failed to alter dir for t-1-2: /b of broker 2 {NO_ROOM}"])
    assert sorted(cluster.story[:3]) == ["1: [0] to /b", "2: [1] to /b", "3: [0] to /a"]
    assert sorted(cluster.story[3:]) == ["1: [0] to any", "2: [1] to any", "3: [0] to any"]


def test_an_error_after_the_reassignment_has_begun_ends_it_too(cluster: Cluster) -> None:
    cluster.wishes[3, 0] = [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR]
    status, lines, errors = cluster.on("--execute", part(0, [3], ["/b"]))
    assert (status, errors) == (1, [f"Error: Failed to alter dir for t-0-3: /b of broker 3 {NO_ROOM}"])
    assert lines[-1] == "Successfully started partition reassignment for t-0"


def test_partitions_that_the_controller_refuses(cluster: Cluster) -> None:
    """Each has its line, and their wishes are taken back. Those of the partitions that were accepted stay."""
    cluster.wishes[3, 0] = [ErrorCode.REPLICA_NOT_AVAILABLE]
    cluster.refused = {1: "not like this", 0: "nor this"}
    status, lines, errors = cluster.on("--execute", part(1, [2, 3], ["any", "/a"]), part(0, [3], ["/b"]))
    assert (status, errors) == (1, ["Error reassigning partition(s):", "t-0: nor this", "t-1: not like this"])
    assert lines[-1] == ROLLBACK
    assert cluster.story[-1] == "3: [1, 0] to any" or cluster.story[-1] == "3: [0, 1] to any"
    cluster.journal.clear()
    cluster.refused = {1: "not like this"}
    cluster.wishes[3, 0] = [ErrorCode.REPLICA_NOT_AVAILABLE]
    cluster.on("--execute", part(1, [2, 3], ["any", "/a"]), part(0, [3], ["/b"]))
    assert cluster.story[-1] == "3: [1] to any"


@pytest.mark.parametrize("more", [[], ["--disallow-replication-factor-change"]])
def test_the_number_of_replicas_may_change_unless_it_is_forbidden(cluster: Cluster, more: list[str]) -> None:
    assert cluster.on("--execute", part(0, [1, 2, 3]), more=more)[0] == 0
    ((_, request),) = cluster.journal
    assert request.allow_replication_factor_change is not bool(more)


def test_another_reassignment_needs_additional(cluster: Cluster) -> None:
    cluster.ongoing = [OngoingPartitionReassignment(partition_index=1, replicas=[2, 1, 3], adding_replicas=[3])]
    assert cluster.on("--execute", part(0, [3])) == (1, [], [ALREADY_RUNNING])
    assert cluster.journal == []
    assert cluster.on("--execute", part(0, [3]), more=["--additional"])[0] == 0
    assert cluster.story == ["0: [3]"]


def test_throttles_are_set_before_anything_moves(cluster: Cluster) -> None:
    """--throttle names the sources and destinations between brokers, and leaves moves inside brokers alone."""
    more = ["--throttle", "1000", "--replica-alter-log-dirs-throttle", "2000"]
    status, lines, _ = cluster.on("--execute", part(0, [1, 3], ["/b", "any"]), part(1, [2, 1], ["/b", "any"]), more=more)
    assert status == 0
    assert lines[5:8] == [
        RUN_VERIFY,
        "The inter-broker throttle limit was set to 1000 B/s",
        "The replica-alter-dir throttle limit was set to 2000 B/s",
    ]
    kinds = [type(request) for _, request in cluster.journal]
    assert kinds.index(AlterReplicaLogDirsRequest) > max(
        place for place, kind in enumerate(kinds) if kind is IncrementalAlterConfigsRequest
    )
    assert cluster.configured["t"] == [
        ("leader.replication.throttled.replicas", SET, "0:1,0:2,1:1,1:2"),
        ("follower.replication.throttled.replicas", SET, "0:3"),
    ]
    assert cluster.configured["2"] == [("replica.alter.log.dirs.io.max.bytes.per.second", SET, "2000")]
    rates = [("leader.replication.throttled.rate", SET, "1000"), ("follower.replication.throttled.rate", SET, "1000")]
    assert cluster.configured["3"] == rates
    cluster.journal.clear()
    assert cluster.on("--execute", part(0, [1, 2], ["/b", "any"]), more=["--throttle", "7"])[0] == 0
    changed = {name for changes in cluster.configured.values() for name, _, _ in changes}
    assert "replica.alter.log.dirs.io.max.bytes.per.second" not in changed


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (part(0, [1, 9]), "Unknown broker id 9"),
        (part(0, [1], topic="u"), "Topic u not found."),
        (part(7, [1]), "Unable to find partition: t-7"),
        (
            part(0, [1, 2], ["/a"]),
            "Size of replicas list [1, 2] is different from size of log dirs list [/a] for partition t-0",
        ),
        (part(0, [1], ["/c"]), "Failed to alter dir for t-0-1: /c is not a log directory of broker 1"),
        (part(0, [1], ["/a/../b"]), "Failed to alter dir for t-0-1: /a/../b is not a log directory of broker 1"),
        (part(0, [2], ["/b"]), "Failed to alter dir for t-0-2: /b of broker 2 is offline"),
        (part(0, [1], ["/b"]), "Failed to alter dir for t-0-1: /b of broker 1 is cordoned"),
        (part(0, []), "Partition replica list cannot be empty"),
    ],
)
def test_what_cannot_be_changes_nothing(cluster: Cluster, entry: dict[str, Any], message: str) -> None:
    """Neither throttles nor wishes nor reassignments are sent, and nothing is printed. Another partition of the same file
    could be moved."""
    cluster.offline.add((2, "/b"))
    cluster.cordoned.add((1, "/b"))
    more = ["--throttle", "5", "--replica-alter-log-dirs-throttle", "5"]
    assert cluster.on("--execute", part(1, [1], ["/a"]), entry, more=more) == (1, [], [f"Error: {message}"])
    assert cluster.journal == []


def test_files_that_cannot_be_read(cluster: Cluster, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.json")
    assert cluster("--execute", "--reassignment-json-file", missing) == (
        1,
        [],
        [f"Error: cannot read {missing}: No such file or directory"],
    )
    status, _, (error,) = cluster("--verify", "--reassignment-json-file", cluster.file("{"))
    assert status == 1
    assert error.startswith("Error: The input string is not a valid JSON: ")
    (tmp_path / "file.json").write_bytes(b"\xff")
    status, _, (error,) = cluster("--cancel", "--reassignment-json-file", str(tmp_path / "file.json"))
    assert (status, "is not a text in UTF-8" in error) == (1, True)


# --- --verify --------------------------------------------------------------------------------------------------------


def test_what_is_done_loses_its_throttles(cluster: Cluster) -> None:
    status, lines, errors = cluster.on("--verify", part(0, [1, 2], ["/a", "any"]))
    assert (status, errors) == (0, [])
    assert lines == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is completed.",
        "Reassignment of replica t-0-1 completed successfully.",
        *CLEARED,
    ]
    rates = [
        ("leader.replication.throttled.rate", DELETE, None),
        ("follower.replication.throttled.rate", DELETE, None),
        ("replica.alter.log.dirs.io.max.bytes.per.second", DELETE, None),
    ]
    replicas = [
        ("leader.replication.throttled.replicas", DELETE, None),
        ("follower.replication.throttled.replicas", DELETE, None),
    ]
    assert cluster.configured == {"1": rates, "2": rates, "3": rates, "t": replicas}


def test_a_broker_that_is_away_keeps_its_throttles(cluster: Cluster) -> None:
    """The others lose theirs. As with Kafka's tool, it is an error: the broker would come back with a throttle that is no
    longer wanted."""
    cluster.replicas[0] = [1, 9]
    status, lines, errors = cluster.on("--verify", part(0, [1, 9]))
    assert (status, lines[-2:]) == (1, CLEARED)
    assert errors == ["Error: not in the cluster: broker 9; to remove the throttles there, use --verify again later"]
    assert sorted(cluster.configured) == ["1", "2", "3", "t"]


def test_throttles_can_be_preserved(cluster: Cluster) -> None:
    status, lines, _ = cluster.on("--verify", part(0, [1, 2]), more=["--preserve-throttles"])
    # Without directories, Kafka's tool prints an empty line in place of their states.
    assert (status, lines) == (0, ["Status of partition reassignment:", "Reassignment of partition t-0 is completed.", ""])
    assert cluster.journal == []


def test_what_is_in_progress_keeps_its_throttles(cluster: Cluster) -> None:
    """A move inside a broker, and then a reassignment, even one that the file does not name."""
    cluster.futures[1, "/b"] = [0]
    status, lines, _ = cluster.on("--verify", part(0, [1, 2], ["/b", "any"]))
    assert status == 0
    assert lines[2:] == ["Reassignment of replica t-0-1 is still in progress."]
    cluster.futures.clear()
    cluster.ongoing = [OngoingPartitionReassignment(partition_index=1, replicas=[2, 1, 3], adding_replicas=[3])]
    status, lines, _ = cluster.on("--verify", part(0, [1, 2]), part(1, [2, 3]))
    assert lines[1:] == [
        "Reassignment of partition t-0 is completed.",
        "Reassignment of partition t-1 is still in progress.",
        "",
    ]
    assert cluster.on("--verify", part(0, [1, 2]))[1][2:] == [""]
    assert cluster.journal == []


def test_what_may_go_on_moving_keeps_its_throttles(cluster: Cluster) -> None:
    """A replica in an offline directory, and one on a broker that is away. As with Kafka's tool, only the latter is an
    error: the tool cannot know the state of that replica."""
    cluster.offline = {(1, "/a")}
    lost = (
        "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline log directory on the broker."
    )
    assert cluster.on("--verify", part(0, [1, 2], ["/b", "any"])) == (
        0,
        ["Status of partition reassignment:", "Reassignment of partition t-0 is completed.", lost],
        [],
    )
    cluster.replicas[0] = [1, 9]
    assert cluster.on("--verify", part(0, [1, 9], ["any", "/b"])) == (
        1,
        [
            "Status of partition reassignment:",
            "Reassignment of partition t-0 is completed.",
            "Partition t-0 cannot be found in any live log directory on broker 9.",
        ],
        ["Error: not in the cluster: broker 9"],
    )
    assert cluster.journal == []


def test_replicas_that_are_elsewhere_and_topics_that_are_gone(cluster: Cluster) -> None:
    """A topic that does not exist is an error in the end, as with Kafka's tool: a script must not take its reassignment for
    completed."""
    status, lines, errors = cluster.on("--verify", part(0, [1, 3], ["/b", "any"]), part(0, [9], topic="gone"), part(5, [1]))
    assert (status, errors) == (1, ["Error: UNKNOWN_TOPIC_OR_PARTITION"])
    assert lines == [
        "Status of partition reassignment:",
        "There is no active reassignment of partition gone-0, but replica set is  rather than 9.",
        "There is no active reassignment of partition t-0, but replica set is 1,2 rather than 1,3.",
        "There is no active reassignment of partition t-5, but replica set is  rather than 1.",
        "Partition t-0 on broker 1 is not being moved from log dir /a to /b.",
        CLEARED[0],
        "Clearing topic-level throttles on topics gone,t",
    ]


# --- --cancel and --list ---------------------------------------------------------------------------------------------


def test_reassignments_and_moves_are_cancelled(cluster: Cluster) -> None:
    """Only those in progress: a replica that moves is sent back to the directory where it is. The metadata still names the
    replica that the reassignment was to add."""
    cluster.replicas[0] = [1, 2, 3]
    cluster.ongoing = [OngoingPartitionReassignment(partition_index=0, replicas=[1, 2, 3], adding_replicas=[3])]
    cluster.futures[1, "/a"] = [1]
    status, lines, errors = cluster.on("--cancel", part(0, [1, 3], ["/a", "/a"]), part(1, [2, 1], ["/a", "/a"]))
    assert (status, errors) == (0, [])
    assert lines == [
        "Successfully cancelled partition reassignment for: t-0",
        "Successfully started moving log directory to /b for replica t-1 with broker 1 ",
        *CLEARED,
    ]
    assert cluster.story == ["0: None", "1: [1] to /b"]


def test_nothing_to_cancel(cluster: Cluster) -> None:
    status, lines, _ = cluster.on("--cancel", part(0, [1, 2], ["/a", "any"]), more=["--preserve-throttles"])
    assert (status, lines) == (
        0,
        [
            "None of the specified partition reassignments are active.",
            "None of the specified partition moves are active.",
        ],
    )
    assert cluster.journal == []


def test_a_move_of_a_broker_that_is_away_is_not_cancelled(cluster: Cluster) -> None:
    """The others are. As with Kafka's tool that is an error, and the throttles stay."""
    cluster.futures[1, "/b"] = [0]
    assert cluster.on("--cancel", part(0, [1, 9], ["/b", "/b"])) == (
        1,
        [
            "None of the specified partition reassignments are active.",
            "Successfully started moving log directory to /a for replica t-0 with broker 1 ",
        ],
        ["Error: not in the cluster: broker 9"],
    )
    assert cluster.story == ["1: [0] to /a"]
    assert cluster.configured == {}


def test_a_move_from_a_directory_that_is_offline_is_not_cancelled(cluster: Cluster) -> None:
    """The others are. The move goes on when the directory is back, so the throttles stay. Kafka's tool removes them. A
    replica that the partition does not have is no reason."""
    cluster.offline = {(1, "/a")}
    cluster.futures[2, "/b"] = [0]
    assert cluster.on("--cancel", part(0, [1, 2], ["/b", "/b"]), part(1, [2, 3], ["any", "/a"])) == (
        1,
        [
            "None of the specified partition reassignments are active.",
            "Successfully started moving log directory to /a for replica t-0 with broker 2 ",
        ],
        [
            "Error: Partition t-0 is not found in any live log dir on broker 1. There is likely an offline log directory on "
            "the broker."
        ],
    )
    assert cluster.story == ["2: [0] to /a"]
    assert cluster.configured == {}


def test_a_cancellation_that_is_refused(cluster: Cluster) -> None:
    cluster.ongoing = [
        OngoingPartitionReassignment(partition_index=index, replicas=[1], adding_replicas=[3]) for index in (0, 1)
    ]
    cluster.refused = {0: "too late"}
    errors = ["Error cancelling partition reassignment for:", "t-0: too late"]
    assert cluster.on("--cancel", part(0, [1]), part(1, [1])) == (1, [], errors)


def test_reassignments_are_listed(cluster: Cluster) -> None:
    assert cluster("--list") == (0, ["No partition reassignments found."], [])
    cluster.ongoing = [
        OngoingPartitionReassignment(partition_index=0, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[1])
    ]
    listed = ["Current partition reassignments:", "t-0: replicas: 1,2,3. adding: 3. removing: 1."]
    assert cluster("--list") == (0, listed, [])


# --- --generate ------------------------------------------------------------------------------------------------------


def generate(
    cluster: Cluster, broker_list: str, *more: str, topics: Sequence[str] = ("t",)
) -> tuple[int, list[str], list[str]]:
    text = json.dumps({"topics": [{"topic": topic} for topic in topics]})
    return cluster("--generate", "--topics-to-move-json-file", cluster.file(text), "--broker-list", broker_list, *more)


def test_a_plan_for_topics(cluster: Cluster) -> None:
    """The current assignment has the real directories, the proposed one `any`, with as many replicas, on these brokers."""
    status, lines, errors = generate(cluster, "1,3")
    assert (status, errors) == (0, [])
    assert lines[:4] == [
        "Current partition replica assignment",
        assignment(part(0, [1, 2], ["/a", "/a"]), part(1, [2, 1], ["/a", "/b"])),
        "",
        "Proposed partition reassignment configuration",
    ]
    proposed = json.loads(lines[4])
    assert [each["partition"] for each in proposed["partitions"]] == [0, 1]
    leaders = [each["replicas"][0] for each in proposed["partitions"]]
    assert sorted(leaders) == [1, 3]
    for each in proposed["partitions"]:
        assert (sorted(each["replicas"]), each["log_dirs"]) == ([1, 3], ["any", "any"])
    assert cluster.journal == []


def test_racks_are_all_known_or_left_aside(cluster: Cluster) -> None:
    cluster.racks = {1: "r", 2: "r", 3: "s"}
    status, lines, _ = generate(cluster, "1,2,3")
    assert status == 0
    for each in json.loads(lines[4])["partitions"]:
        assert 3 in each["replicas"]
    cluster.racks[3] = None
    message = (
        "Error: Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
        "without rack information."
    )
    assert generate(cluster, "1,2,3") == (1, [], [message])
    assert generate(cluster, "1,2,3", "--disable-rack-aware")[0] == 0


@pytest.mark.parametrize(
    ("broker_list", "topics", "message"),
    [
        ("1,x", ["t"], 'For input string: "x"'),
        ("1,2,1", ["t"], "Broker list contains duplicate entries: [1]"),
        ("1,2", ["t", "t"], "List of topics to reassign contains duplicate entries: [t]"),
        ("1,2", ["u"], "Topic u not found."),
        ("1,9", ["t"], "Unknown broker id 9"),
        ("1", ["t"], "Replication factor: 2 larger than available brokers: 1."),
    ],
)
def test_plans_that_cannot_be_made(cluster: Cluster, broker_list: str, topics: list[str], message: str) -> None:
    assert generate(cluster, broker_list, topics=topics) == (1, [], [f"Error: {message}"])


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
        (
            ["--list", "--verify"],
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list",
        ),
        (["--execute"], 'Missing required argument "[reassignment-json-file]"'),
        (["--generate", "--broker-list", "1"], 'Missing required argument "[topics-to-move-json-file]"'),
        (["--list", "--timeout", "0"], 'Option "[timeout]" can\'t be used with action "[list]"'),
        (
            ["--verify", "--reassignment-json-file", "f", "--throttle", "0"],
            'Option "[throttle]" can\'t be used with action "[verify]"',
        ),
        (
            ["--cancel", "--reassignment-json-file", "f", "--additional"],
            'Option "[additional]" can\'t be used with action "[cancel]"',
        ),
        (
            ["--bootstrap-controller", "127.0.0.1:1", "--verify", "--reassignment-json-file", "f"],
            'Option "[bootstrap-controller]" can\'t be used with action "[verify]"',
        ),
        (
            ["--bootstrap-controller", "127.0.0.1:1", "--cancel", "--reassignment-json-file", "f"],
            "--cancel with --bootstrap-controller needs --preserve-throttles: the throttles are the brokers'",
        ),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [] if "--bootstrap-controller" in arguments else ["--bootstrap-server", "127.0.0.1:1"]
    with pytest.raises(SystemExit) as end:
        main([*nodes, *arguments])
    assert end.value.code == 1
    assert capsys.readouterr().err.splitlines()[0] == f"kafka-reassign-partitions: {message}"
