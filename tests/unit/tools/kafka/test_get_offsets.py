"""kafka-get-offsets: which partitions it asks for which time, and its output, which equals Kafka's."""

from collections.abc import Iterator

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
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
from tests.unit.tools.fake_broker import Answer, FakeBroker
from tools.kafka.get_offsets import main


def topic(name: str, leaders: list[int], *, is_internal: bool = False) -> MetadataResponseTopic:
    partitions = [MetadataResponsePartition(partition_index=index, leader_id=id_) for index, id_ in enumerate(leaders)]
    return MetadataResponseTopic(name=name, is_internal=is_internal, partitions=partitions)


TOPICS = [topic("orders", [1, 1, 1]), topic("logs", [1, -1]), topic("__hidden", [1], is_internal=True)]


def metadata(request: MetadataRequest) -> MetadataResponse:
    names = None if request.topics is None else {each.name for each in request.topics}
    return MetadataResponse(topics=[each for each in TOPICS if names is None or each.name in names])


def offset_of(name: str, index: int, timestamp: int) -> ListOffsetsPartitionResponse:
    """The last partition of orders refuses. No record is newer than 1000."""
    if (name, index) == ("orders", 2):
        return ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return ListOffsetsPartitionResponse(partition_index=index, offset=-1 if timestamp > 1000 else timestamp + 100 + index)


def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    assert request.replica_id == -1
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=each.name,
                partitions=[offset_of(each.name, asked.partition_index, asked.timestamp) for asked in each.partitions],
            )
            for each in request.topics
        ]
    )


class Tool:
    """Runs main() against a broker with three topics."""

    def __init__(self, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        status = main(["--bootstrap-server", str(self._broker.address), *arguments])
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    answers: dict[ApiKey, Answer] = {ApiKey.METADATA: metadata, ApiKey.LIST_OFFSETS: list_offsets}
    with FakeBroker(answers) as broker:
        yield Tool(broker, capsys)


def test_all_partitions_at_the_end(tool: Tool) -> None:
    """The latest offset is the default. A partition without a leader, and one that refuses, are named on stderr."""
    skip = "Skip getting offsets for topic-partition"
    assert tool() == (
        0,
        ["__hidden:0:99", "logs:0:99", "orders:0:99", "orders:1:100"],
        [
            f"{skip} logs-1 due to error: it has no leader",
            f"{skip} orders-2 due to error: TOPIC_AUTHORIZATION_FAILED",
        ],
    )


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (["--exclude-internal-topics", "--topic", ".*,x"], ["logs:0:99", "orders:0:99", "orders:1:100"]),
        (["--topic", "orders", "--partitions", "1,7"], ["orders:1:100"]),
        (["--topic-partitions", "orders:1"], ["orders:1:100"]),
        (["--topic-partitions", "orders:0-1,logs:0"], ["logs:0:99", "orders:0:99"]),
        (["--topic-partitions", "orders:-2"], ["orders:0:99", "orders:1:100"]),
        (["--topic-partitions", "ord.*:1-, __hidden"], ["__hidden:0:99", "orders:1:100"]),
        (["--topic-partitions", ":0-1"], ["__hidden:0:99", "logs:0:99", "orders:0:99"]),
        (["--topic", "logs", "--time", "earliest"], ["logs:0:98"]),
        (["--topic", "logs", "--time", "-3"], ["logs:0:97"]),
        (["--topic", "logs", "--time", "50"], ["logs:0:150"]),
        (["--topic", "logs", "--time", "1001"], []),
    ],
)
def test_some_partitions_at_some_time(tool: Tool, flags: list[str], lines: list[str]) -> None:
    """The end of a range is exclusive. A partition without a record as new as the time is left out."""
    status, out, _ = tool(*flags)
    assert (status, out) == (0, lines)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--topic", "unknown"], "Could not match any topic-partitions"),
        (["--topic", ""], "Could not match any topic-partitions"),
        (["--time", "yesterday"], "Malformed time argument yesterday; it takes -1 or latest"),
        (["--time", "-6"], "Malformed time argument -6"),
        (["--time", "9223372036854775808"], "Malformed time argument"),
        (["--partitions", "a"], "--partitions expects a comma separated list of numeric partition ids"),
        (["--topic-partitions", "t:a"], "Invalid rule specification: t:a"),
        (["--topic-partitions", "t:0", "--topic", "t"], "cannot be used with --topic or --partitions"),
        (["--topic", "("], "( is not a regular expression"),
        (["--topic-partitions", "(:0"], "( is not a regular expression"),
    ],
)
def test_wrong_arguments(tool: Tool, flags: list[str], text: str) -> None:
    """One line on stderr, and status 1."""
    status, out, (line,) = tool(*flags)
    assert (status, out) == (1, [])
    assert line.startswith("Error occurred: ")
    assert text in line
