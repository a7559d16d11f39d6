"""Tests kafka-delete-records: its request, its checks of the file, and its output, which equals that of Kafka's tool."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.tools.fake_broker import FakeBroker
from tools.kafka.delete_records import main


class Tool:
    """Runs main() against a broker that leads t-0 and t-1, while t-2 has no leader."""

    def __init__(self, capsys: pytest.CaptureFixture[str], file: Path) -> None:
        self.errors: dict[int, ErrorCode] = {}
        self.broker = FakeBroker({ApiKey.METADATA: self._metadata, ApiKey.DELETE_RECORDS: self._delete})
        self._capsys = capsys
        self._file = file

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        address = self.broker.address
        topics = [
            MetadataResponseTopic(
                name="t",
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=1 if index < 2 else -1) for index in range(3)
                ],
            )
            if topic.name == "t"
            else MetadataResponseTopic(name=topic.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for topic in request.topics or ()
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=address.host, port=address.port)], topics=topics
        )

    def _delete(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=each.partition_index,
                            low_watermark=each.offset,
                            error_code=self.errors.get(each.partition_index, ErrorCode.NONE),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def __call__(self, content: Any, *options: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        self._file.write_text(content if isinstance(content, str) else json.dumps(content))
        status = main(["--bootstrap-server", str(self.broker.address), "--offset-json-file", str(self._file), *options])
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Tool]:
    made = Tool(capsys, tmp_path / "offsets.json")
    with made.broker:
        yield made


def offsets(*entries: tuple[str, int, int]) -> dict[str, Any]:
    return {
        "partitions": [{"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in entries],
        "version": 1,
    }


def test_the_low_watermarks_are_printed(tool: Tool) -> None:
    assert tool(offsets(("t", 0, 5), ("t", 1, 7))) == (
        0,
        [
            "Executing records delete operation",
            "Records delete operation completed:",
            "partition: t-0\tlow_watermark: 5",
            "partition: t-1\tlow_watermark: 7",
        ],
        [],
    )


def test_a_partition_that_refuses_does_not_change_the_exit_status(tool: Tool, tmp_path: Path) -> None:
    """Nor does one without a leader, for which the tool waits until the timeout."""
    tool.errors[1] = ErrorCode.OFFSET_OUT_OF_RANGE
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=1000\nrequest.timeout.ms=1000\n")
    entries = offsets(("t", 0, 5), ("t", 1, 7), ("t", 2, 0), ("t", 9, 0), ("none", 0, 0))
    status, out, _ = tool(entries, "--command-config", str(config))
    assert status == 0
    assert out[2] == "partition: t-0\tlow_watermark: 5"
    assert out[3] == (
        "partition: t-1\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException: The requested offset is not "
        "within the range of offsets maintained by the server."
    )
    names = [line.split("errors.")[1].split(":")[0] for line in out[3:]]
    assert names == [
        "OffsetOutOfRangeException",
        "TimeoutException",
        "UnknownTopicOrPartitionException",
        "UnknownTopicOrPartitionException",
    ]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "InvalidTopicException: The request attempted to perform an operation on an invalid topic.",
        ),
        (
            ErrorCode.POLICY_VIOLATION,
            "PolicyViolationException: Request parameters do not satisfy the configured policy.",
        ),
        # One that no text is known for.
        (ErrorCode.INVALID_RECORD_STATE, "InvalidRecordStateException: INVALID_RECORD_STATE"),
    ],
)
def test_an_error_without_a_message_has_a_text(tool: Tool, code: ErrorCode, text: str) -> None:
    tool.errors[0] = code
    _, out, _ = tool(offsets(("t", 0, 5)))
    assert out[-1] == f"partition: t-0\terror: org.apache.kafka.common.errors.{text}"


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The line has the reason in words, not its number."""
    assert main(["--bootstrap-server", "127.0.0.1:1", "--offset-json-file", "/nowhere.json"]) == 1
    assert capsys.readouterr().err == "--offset-json-file /nowhere.json cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "The input string is not a valid JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[" * 100_000, "The input string is not a valid JSON: it is nested too deeply"),
        (offsets(("a\udc00", 0, 1)), r"not a valid JSON: \udc00 is half of a surrogate pair and stands alone"),
        ("[]", "The input string is not a valid JSON"),
        ({"version": 1}, "Missing partitions field"),
        ({"version": 2, "partitions": []}, "Not supported version field value 2"),
        (offsets(("t", 0, 1), ("t", 0, 2)), "Offset json file contains duplicate topic partitions: t-0"),
        ({"partitions": [{"topic": "t", "partition": 0}]}, "has no topic, partition and offset"),
        (
            offsets(("t", 1 << 31, 1)),
            'the partition or the offset in {"topic": "t", "partition": 2147483648, "offset": 1} of ',
        ),
        (offsets(("t", 0, 1 << 63)), "of the offset json file is out of range"),
        ({"partitions": [{"topic": "t", "partition": True, "offset": 1}]}, "has no topic, partition and offset"),
    ],
)
def test_a_file_that_cannot_be_followed_is_an_error(tool: Tool, content: Any, message: str) -> None:
    status, out, err = tool(content)
    assert status == 1
    assert message in err[0]
    assert out == []
    assert not [each for each in tool.broker.requests if isinstance(each, DeleteRecordsRequest)]
