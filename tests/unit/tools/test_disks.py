"""Tests `diskraft disks list` and `move` against fake brokers: what they print, ask and refuse."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.ids import DirectoryId, uuid_text
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
from common.protocol.messages.api_versions import ApiVersionsResponse
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from common.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
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
from common.storage.meta_properties import MetaProperties, format_meta_properties
from tests.unit.common.metadata.builders import directory
from tests.unit.tools.fake_broker import FakeBroker
from tools.diskraft import main


class Cluster:
    """Brokers 1 to 3 with a directory each, and a topic t. Broker 1 has two directories, and t-0 moves to the second."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self.first, self.second = str(folder / "a"), str(folder / "b")
        self.replicas = [1, 2]
        self.is_reassigned = False
        # How often DescribeCluster is answered; then it fails.
        self.answers_left = 100
        self.silent: set[int] = set()
        self.fenced: set[int] = set()
        self.brokers = {broker_id: self._broker(broker_id) for broker_id in (1, 2, 3)}
        for broker in self.brokers.values():
            broker.members = self.brokers

    def _broker(self, broker_id: int) -> FakeBroker:
        return FakeBroker(
            {
                ApiKey.METADATA: self._metadata,
                ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
                ApiKey.DESCRIBE_LOG_DIRS: lambda _: self._log_dirs(broker_id),
                ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._reassign,
                ApiKey.ALTER_REPLICA_LOG_DIRS: self._alter_log_dirs,
            }
        )

    def _describe_cluster(self, _request: Any) -> DescribeClusterResponse:
        self.answers_left -= 1
        if self.answers_left < 0:
            return DescribeClusterResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="enough")
        brokers = [DescribeClusterBroker(broker_id=id_, is_fenced=id_ in self.fenced) for id_ in self.brokers]
        return DescribeClusterResponse(cluster_id="the-cluster", brokers=brokers)

    def _metadata(self, _request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=self.replicas)
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])

    def _log_dirs(self, broker_id: int) -> DescribeLogDirsResponse:
        if broker_id in self.silent:
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        def holding(size: int, *, is_future: bool = False) -> list[DescribeLogDirsTopic]:
            partition = DescribeLogDirsPartition(partition_index=0, partition_size=size, is_future_key=is_future)
            return [DescribeLogDirsTopic(name="t", partitions=[partition])]

        if broker_id > 1:
            return DescribeLogDirsResponse(
                results=[DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/dead")]
                if broker_id == 2
                else [DescribeLogDirsResult(log_dir=self.first, total_bytes=100, usable_bytes=100)]
            )
        sizes: dict[str, Any] = {"total_bytes": 1000, "usable_bytes": 750}
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(log_dir=self.first, topics=holding(80), **sizes),
                DescribeLogDirsResult(log_dir=self.second, topics=holding(20, is_future=True), **sizes),
            ]
        )

    def _list(self, _request: Any) -> ListPartitionReassignmentsResponse:
        ongoing = [OngoingTopicReassignment(name="t", partitions=[OngoingPartitionReassignment(partition_index=0)])]
        return ListPartitionReassignmentsResponse(topics=ongoing if self.is_reassigned else [])

    def _reassign(self, _request: Any) -> AlterPartitionReassignmentsResponse:
        result = ReassignableTopicResponse(name="t", partitions=[ReassignablePartitionResponse(partition_index=0)])
        return AlterPartitionReassignmentsResponse(responses=[result])

    def _alter_log_dirs(self, _request: Any) -> AlterReplicaLogDirsResponse:
        partition = AlterReplicaLogDirPartitionResult(partition_index=0)
        return AlterReplicaLogDirsResponse(results=[AlterReplicaLogDirTopicResult(topic_name="t", partitions=[partition])])

    def __call__(self, action: str, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        status = main(["disks", action, "--bootstrap-server", str(self.brokers[1].address), *arguments])
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    @property
    def changes(self) -> list[Any]:
        """What was changed: the broker and the directory, or the replicas."""
        found: list[Any] = []
        for broker_id, broker in self.brokers.items():
            for request in broker.requests:
                if isinstance(request, AlterReplicaLogDirsRequest):
                    found.append((broker_id, request.dirs[0].path))
                elif isinstance(request, AlterPartitionReassignmentsRequest):
                    assert not request.allow_replication_factor_change
                    found.append(request.topics[0].partitions[0].replicas)
        return found


@pytest.fixture
def cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(capsys, tmp_path)
    yield made
    for broker in made.brokers.values():
        broker.close()


def give_id(path: str, node_id: int, directory_id: DirectoryId | None, cluster_id: str = "the-cluster") -> None:
    Path(path).mkdir()
    properties = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
    (Path(path) / "meta.properties").write_bytes(format_meta_properties(properties))


# --- list ------------------------------------------------------------------------------------------------------------


def test_the_disks_of_all_brokers(cluster: Cluster) -> None:
    status, lines, errors = cluster("list")
    assert (status, errors) == (0, [])
    head, first, second, dead, third = (line.split() for line in lines)
    assert head[:3] == ["broker", "disk", "directory"]
    assert first == ["1", cluster.first, "-", "online", "1000", "B", "250", "B", "(25", "%)", "1", "1"]
    moving = ["██░░░░░░░░", "25", "%", "t-0", "from", cluster.first]
    assert second == ["1", cluster.second, "-", "online", "1000", "B", "250", "B", "(25", "%)", "0", "0", *moving]
    assert dead == ["2", "/dead", "-", "offline", "-", "-", "-", "-"]
    assert third[:4] == ["3", cluster.first, "-", "online"]


def test_a_narrow_terminal_gets_whole_paths(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that the terminal wraps can still be read, and its path copied. A path that is broken to fit a column cannot."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "40")
    status, lines, _ = cluster("list")
    assert (status, len(lines)) == (0, 5)
    assert [line.split()[1] for line in lines[1:]] == [cluster.first, cluster.second, "/dead", cluster.first]


def test_directory_ids_come_from_this_machines_files(cluster: Cluster) -> None:
    """Only of the same cluster and broker: broker 3 of another machine has the same path as broker 1."""
    give_id(cluster.first, 1, directory(7))
    give_id(cluster.second, 1, directory(8), cluster_id="another")
    status, (line,), _ = cluster("list", "--format", "json")
    assert status == 0
    ids = {
        (broker["broker"], disk["path"]): disk["directory_id"]
        for broker in json.loads(line)["brokers"]
        for disk in broker["disks"]
    }
    assert ids == {
        (1, cluster.first): uuid_text(directory(7)),
        (1, cluster.second): None,
        (2, "/dead"): None,
        (3, cluster.first): None,
    }


def test_a_broker_that_refuses_does_not_hide_the_others(cluster: Cluster) -> None:
    cluster.silent = {2}
    status, (line,), errors = cluster("list", "--format", "json")
    assert (status, errors) == (
        0,
        ["broker 2 does not describe its log directories: CLUSTER_AUTHORIZATION_FAILED"],
    )
    assert [broker["broker"] for broker in json.loads(line)["brokers"]] == [1, 3]


def test_a_broker_that_is_down_is_named(cluster: Cluster) -> None:
    cluster.fenced = {3}
    status, (line,), errors = cluster("list", "--format", "json")
    assert (status, errors) == (0, ["broker 3 is down or fenced, so its disks are not shown"])
    assert [broker["broker"] for broker in json.loads(line)["brokers"]] == [1, 2]


def test_a_broker_of_apache_kafka_3_9_does_not_say_which_are_down(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = FakeBroker._versions

    def older(broker: FakeBroker) -> ApiVersionsResponse:
        response = versions(broker)
        (served,) = [each for each in response.api_keys if each.api_key == ApiKey.DESCRIBE_CLUSTER]
        served.max_version = 1
        return response

    monkeypatch.setattr(FakeBroker, "_versions", older)
    status, (line,), errors = cluster("list", "--format", "json")
    assert (status, errors, len(json.loads(line)["brokers"])) == (0, [], 3)


def test_a_closed_pipe_ends_the_list(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with every tool, the reader of the output may leave: the status is 0, and nothing is said."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert cluster("list", "--watch", "0.01") == (0, [], [])
        monkeypatch.undo()


def test_watching_lists_again_and_again(cluster: Cluster) -> None:
    cluster.answers_left = 3
    status, lines, errors = cluster("list", "--format", "json", "--watch", "0.01")
    assert (status, len(lines), errors) == (1, 3, ["enough"])


# --- move ------------------------------------------------------------------------------------------------------------


def test_a_replica_moves_inside_its_broker(cluster: Cluster) -> None:
    line = f"Successfully started moving log directory to {cluster.second} for replica t-0 with broker 1 "
    assert cluster("move", "t-0", f"1:{cluster.second}") == (0, [line], [])
    assert cluster.changes == [(1, cluster.second)]


def test_a_replica_moves_to_another_broker(cluster: Cluster) -> None:
    """In the place of the one that gives it away. Where there is only one, that is clear."""
    moved = [
        "Successfully started partition reassignment for t-0",
        f"Successfully started moving log directory to {cluster.first} for replica t-0 with broker 3 ",
    ]
    assert cluster("move", "t-0", f"3:{cluster.first}", "--from", "1") == (0, moved, [])
    assert sorted(cluster.changes, key=str) == [(3, cluster.first), [3, 2]]
    cluster.replicas = [2]
    assert cluster("move", "t-0", f"3:{cluster.first}") == (0, moved, [])
    assert [3] in cluster.changes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t", "1:/x"], "t is not a partition; it takes TOPIC-PARTITION, such as orders-0"),
        (["t-0", "1:x"], "1:x is not a disk; it takes BROKER:DIR with an absolute path, such as 1:/disk-2"),
        (["t-0", "9:/x"], "Unknown broker id 9"),
        (["t-7", "1:/x"], "Unable to find partition: t-7"),
        (["t-0", "1:/x"], "Failed to alter dir for t-0-1: /x is not a log directory of broker 1"),
        (["t-0", "2:/dead"], "Failed to alter dir for t-0-2: /dead of broker 2 is offline"),
        (["t-0", "3:/x"], "t-0 is on brokers 1,2; --from says which of them moves to broker 3"),
        (["t-0", "3:/x", "--from", "9"], "broker 9 has no replica of t-0, which is on brokers 1,2"),
        (["t-0", "1:/x", "--from", "2"], "broker 1 already has a replica of t-0, which is on brokers 1,2"),
    ],
)
def test_moves_that_cannot_be(cluster: Cluster, arguments: list[str], message: str) -> None:
    assert cluster("move", *arguments) == (1, [], [message])
    assert cluster.changes == []


def test_a_partition_that_is_being_reassigned_is_left_alone(cluster: Cluster) -> None:
    cluster.is_reassigned = True
    message = "t-0 is already being reassigned; wait, or cancel it with kafka-reassign-partitions"
    assert cluster("move", "t-0", f"3:{cluster.first}", "--from", "1") == (1, [], [message])
    assert cluster.changes == []


# --- the lab ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["make", "kill", "heal", "revive", "replace", "remove"])
def test_the_root_directory_is_no_disk(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disks", action, "/"]) == 1
    assert capsys.readouterr().err == "/ is not a disk of the lab: its image could not stand beside it\n"
