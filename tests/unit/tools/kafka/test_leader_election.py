"""Tests kafka-leader-election: its requests, its exit status for errors, and its output, which equals that of Kafka's
tool."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from tests.unit.tools.fake_broker import FakeBroker
from tools.kafka.leader_election import main

ONLY_ONE_WAY = "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"


def result(partition: int, code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> PartitionResult:
    return PartitionResult(partition_id=partition, error_code=code, error_message=message)


class Tool:
    """Runs main() against a broker that returns `answer`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.answer = ElectLeadersResponse()
        self.broker = FakeBroker({ApiKey.ELECT_LEADERS: lambda _: self.answer})
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        status = main(["--bootstrap-server", str(self.broker.address), *arguments])
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    @property
    def request(self) -> ElectLeadersRequest:
        (request,) = (each for each in self.broker.requests if isinstance(each, ElectLeadersRequest))
        return request


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    made = Tool(capsys)
    with made.broker:
        yield made


def test_one_partition(tool: Tool) -> None:
    tool.answer = ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic="t", partition_result=[result(3)])]
    )
    assert tool("--election-type", "preferred", "--topic", "t", "--partition", "3") == (
        0,
        ["Successfully completed leader election (PREFERRED) for partitions t-3"],
        [],
    )
    assert tool.request.election_type == ElectionType.PREFERRED
    assert tool.request.topic_partitions == [TopicPartitions(topic="t", partitions=[3])]


def test_all_partitions(tool: Tool) -> None:
    """The election type may be in upper case. If no partition needed an election, the tool prints nothing."""
    assert tool("--election-type", "UNCLEAN", "--all-topic-partitions") == (0, [], [])
    assert tool.request.election_type == ElectionType.UNCLEAN
    assert tool.request.topic_partitions is None


def test_partitions_of_a_file_and_every_outcome(tool: Tool, tmp_path: Path) -> None:
    """The tool prints one line for each kind of outcome. If an election failed, the exit status is 1."""
    message = "The preferred leader was not available."
    tool.answer = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic="u", partition_result=[result(0)]),
            ReplicaElectionResult(
                topic="t",
                partition_result=[
                    result(2, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
                    result(1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message),
                    result(0),
                ],
            ),
        ]
    )
    path = tmp_path / "partitions.json"
    named = [("t", 0), ("u", 0), ("t", 1), ("t", 2)]
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": partition} for topic, partition in named]}))
    assert tool("--election-type", "preferred", "--path-to-json-file", str(path)) == (
        1,
        [
            "Successfully completed leader election (PREFERRED) for partitions t-0, u-0",
            "Valid replica already elected for partitions t-2",
            "Error completing leader election (PREFERRED) for partition: t-1: "
            f"org.apache.kafka.common.errors.PreferredLeaderNotAvailableException: {message}",
        ],
        ["1 replica(s) could not be elected"],
    )
    assert tool.request.topic_partitions == [
        TopicPartitions(topic="t", partitions=[0, 1, 2]),
        TopicPartitions(topic="u", partitions=[0]),
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, "Timeout waiting for election results"),
        (ErrorCode.INVALID_REQUEST, "Error while making request: INVALID_REQUEST"),
    ],
)
def test_a_request_that_fails(tool: Tool, code: ErrorCode, message: str) -> None:
    tool.answer = ElectLeadersResponse(error_code=code)
    assert tool("--election-type", "preferred", "--all-topic-partitions") == (1, [], [message])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "t", "--partition", "0"], "Missing required option(s): election-type"),
        (["--election-type", "preferred"], ONLY_ONE_WAY),
        (["--election-type", "preferred", "--all-topic-partitions", "--topic", "t"], ONLY_ONE_WAY),
        (["--election-type", "preferred", "--topic", "t"], "Missing required option(s): partition"),
        (
            ["--election-type", "preferred", "--all-topic-partitions", "--partition", "1"],
            "Option partition is only allowed if topic is used",
        ),
    ],
)
def test_options_that_do_not_go_together(tool: Tool, arguments: list[str], message: str) -> None:
    assert tool(*arguments) == (1, [], [message])


def test_both_required_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert capsys.readouterr().err == "Missing required option(s): bootstrap-server, election-type\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Replica election data is empty"),
        ("{}", 'Replica election data is missing "partitions" field'),
        ("[]", 'Replica election data is missing "partitions" field'),
        ('{"partitions": 1}', '"partitions" of the replica election data is not a list'),
        ('{"partitions": [{"topic": "t"}]}', '{"topic": "t"} of the replica election data names no topic and partition'),
        (
            '{"partitions": [{"topic": "t", "partition": true}]}',
            '{"topic": "t", "partition": true} of the replica election data names no topic and partition',
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 2147483648}]}',
            'the partition in {"topic": "t", "partition": 2147483648} of the replica election data is out of range',
        ),
        ('{"partitions": [7]}', "7 of the replica election data names no topic and partition"),
        (
            '{"partitions": [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 1}]}',
            "Replica election data contains duplicate partitions: [t-1]",
        ),
    ],
)
def test_files_that_cannot_be(tool: Tool, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "partitions.json"
    path.write_text(text)
    assert tool("--election-type", "preferred", "--path-to-json-file", str(path)) == (1, [], [message])


def test_files_that_cannot_be_read(tool: Tool, tmp_path: Path) -> None:
    """The file does not exist, or it is not JSON that can be used. The error names the file."""
    path = tmp_path / "partitions.json"
    for text in (None, "{", "[" * 100_000, r'{"partitions": [{"topic": "\ud800", "partition": 0}]}'):
        if text is not None:
            path.write_text(text)
        status, printed, errors = tool("--election-type", "preferred", "--path-to-json-file", str(path))
        assert (status, printed, len(errors)) == (1, [], 1)
        assert str(path) in errors[0]
        assert "Errno" not in errors[0]
