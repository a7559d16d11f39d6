"""Tests kafka-log-dirs: it asks each broker itself and prints one line of JSON in Kafka's format."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from common.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.unit.tools.fake_broker import FakeBroker
from tools.kafka.log_dirs import main

INTRODUCTION = "Querying brokers for log directories information"


def held(topic: str, *indexes: int) -> DescribeLogDirsTopic:
    partitions = [DescribeLogDirsPartition(partition_index=i, partition_size=100 + i, offset_lag=i) for i in indexes]
    return DescribeLogDirsTopic(name=topic, partitions=partitions)


class Cluster:
    """Two brokers: 1 with an offline directory, 2 with two topics."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.results = {
            1: [DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/d1")],
            2: [
                DescribeLogDirsResult(log_dir="/d1", topics=[held("a", 0, 1)]),
                DescribeLogDirsResult(log_dir="/d2", topics=[held("b", 7)]),
            ],
        }
        self.error_code = ErrorCode.NONE
        self.brokers = {id_: self._broker(id_) for id_ in (1, 2)}
        for broker in self.brokers.values():
            broker.members = self.brokers

    def _broker(self, broker_id: int) -> FakeBroker:
        return FakeBroker(
            {
                ApiKey.DESCRIBE_CLUSTER: lambda _: DescribeClusterResponse(
                    brokers=[DescribeClusterBroker(broker_id=id_) for id_ in reversed(self.brokers)]
                ),
                ApiKey.DESCRIBE_LOG_DIRS: lambda _: DescribeLogDirsResponse(
                    error_code=self.error_code, results=self.results[broker_id]
                ),
            }
        )

    def asked(self, broker_id: int) -> list[DescribeLogDirsRequest]:
        return [each for each in self.brokers[broker_id].requests if isinstance(each, DescribeLogDirsRequest)]

    def __call__(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        status = main(["--bootstrap-server", str(self.brokers[1].address), "--describe", *arguments])
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    def described(self, *arguments: str) -> list[dict[str, Any]]:
        status, (first, second, text), err = self(*arguments)
        assert (status, err) == (0, [])
        content = json.loads(text)
        ids = ",".join(str(broker["broker"]) for broker in content["brokers"])
        assert (first, second) == (INTRODUCTION, f"Received log directory information from brokers {ids}")
        assert content["version"] == 1
        brokers: list[dict[str, Any]] = content["brokers"]
        return brokers


@pytest.fixture
def cluster(capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    made = Cluster(capsys)
    yield made
    for broker in made.brokers.values():
        broker.close()


def test_all_brokers_are_described_in_kafkas_form(cluster: Cluster) -> None:
    """Brokers are sorted by id, and all keys are Kafka's. An offline directory has Kafka's Java exception and no
    partitions."""
    status, lines, _ = cluster()
    assert status == 0
    assert lines[2] == (
        '{"version":1,"brokers":['
        '{"broker":1,"logDirs":[{"logDir":"/d1","error":"org.apache.kafka.common.errors.KafkaStorageException",'
        '"partitions":[]}]},'
        '{"broker":2,"logDirs":[{"logDir":"/d1","error":null,"partitions":['
        '{"partition":"a-0","size":100,"offsetLag":0,"isFuture":false},'
        '{"partition":"a-1","size":101,"offsetLag":1,"isFuture":false}]},'
        '{"logDir":"/d2","error":null,"partitions":[{"partition":"b-7","size":107,"offsetLag":7,"isFuture":false}]}]}]}'
    )
    assert [request.topics for request in cluster.asked(2)] == [None]


def test_some_brokers_and_some_topics(cluster: Cluster) -> None:
    """Directories without the given topics are shown empty. A broker that is named twice is asked once."""
    assert cluster.described("--broker-list", "2,2", "--topic-list", "b,c") == [
        {
            "broker": 2,
            "logDirs": [
                {"logDir": "/d1", "error": None, "partitions": []},
                {
                    "logDir": "/d2",
                    "error": None,
                    "partitions": [{"partition": "b-7", "size": 107, "offsetLag": 7, "isFuture": False}],
                },
            ],
        }
    ]
    assert len(cluster.asked(2)) == 1


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (57, "org.apache.kafka.common.errors.LogDirNotFoundException"),
        (29, "TOPIC_AUTHORIZATION_FAILED"),
        (4711, "error 4711"),
    ],
)
def test_other_errors_of_a_directory(cluster: Cluster, code: int, shown: str) -> None:
    """An error is shown as Kafka's Java exception or, if it has none, by its name. An unknown code is shown as a number."""
    cluster.results[1] = [DescribeLogDirsResult(error_code=code, log_dir="/d1")]
    assert cluster.described("--broker-list", "1")[0]["logDirs"][0]["error"] == shown


def test_brokers_that_do_not_exist(cluster: Cluster) -> None:
    """If some of the brokers are unknown, Kafka's error line is printed before any broker is asked for its directories."""
    line = "ERROR: The given brokers do not exist from --broker-list: 9,8. Current existent brokers: 1,2"
    assert cluster("--broker-list", "1,9,8") == (1, [], [line])


def test_a_broker_list_that_is_none(cluster: Cluster) -> None:
    """The only output is one error line, which quotes the list."""
    assert cluster("--broker-list", "one") == (
        1,
        [],
        ["--broker-list one is not a comma-separated list of broker ids"],
    )


def test_a_broker_that_refuses(cluster: Cluster) -> None:
    """The broker refuses the whole request. The error line says so."""
    cluster.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    status, out, (line,) = cluster()
    assert (status, out) == (1, [INTRODUCTION])
    assert line == "broker 1 does not describe its log directories: CLUSTER_AUTHORIZATION_FAILED"


# --- KIP-113's schema ------------------------------------------------------------------------------------------------


def test_one_broker_is_described_in_the_form_of_the_kip(cluster: Cluster) -> None:
    """The JSON is the only line of output. A future replica is shown as temporary, with the lag that the broker reports."""
    moving = DescribeLogDirsPartition(partition_index=7, partition_size=10, offset_lag=97, is_future_key=True)
    cluster.results[2][0].topics.append(DescribeLogDirsTopic(name="b", partitions=[moving]))
    status, (line,), err = cluster("--schema", "kip-113", "--broker", "2")
    assert (status, err) == (0, [])
    assert line == (
        '{"version":1,"log_dirs":['
        '{"is_live":true,"path":"/d1","partitions":['
        '{"topic":"a","partition":0,"size":100,"offset_lag":0,"is_temporary":false},'
        '{"topic":"a","partition":1,"size":101,"offset_lag":1,"is_temporary":false},'
        '{"topic":"b","partition":7,"size":10,"offset_lag":97,"is_temporary":true}]},'
        '{"is_live":true,"path":"/d2","partitions":['
        '{"topic":"b","partition":7,"size":107,"offset_lag":7,"is_temporary":false}]}]}'
    )


def test_an_offline_directory_is_not_live_in_the_form_of_the_kip(cluster: Cluster) -> None:
    """An offline directory is shown without partitions."""
    status, (line,), _ = cluster("--schema", "kip-113", "--broker", "1")
    assert (status, line) == (0, '{"version":1,"log_dirs":[{"is_live":false,"path":"/d1","partitions":[]}]}')


def test_some_directories_and_some_topics_in_the_form_of_the_kip(cluster: Cluster) -> None:
    """--log-dirs selects directories, and --topics selects partitions."""
    _, (line,), _ = cluster("--schema", "kip-113", "--broker", "2", "--log-dirs", "/d2", "--topics", "b,c")
    assert [(each["path"], len(each["partitions"])) for each in json.loads(line)["log_dirs"]] == [("/d2", 1)]
    _, (line,), _ = cluster("--schema", "kip-113", "--broker", "2", "--log-dirs", "/d2,/d1", "--topics", "a")
    assert [(each["path"], len(each["partitions"])) for each in json.loads(line)["log_dirs"]] == [("/d1", 2), ("/d2", 0)]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            ["--schema", "kip-113", "--broker", "9"],
            "ERROR: The given brokers do not exist from --broker: 9. Current existent brokers: 1,2",
        ),
        (
            ["--schema", "kip-113", "--broker", "2", "--log-dirs", "/d2,/d9,d1"],
            "ERROR: The given log directories do not exist from --log-dirs: /d9,d1. Log directories of broker 2: /d1,/d2",
        ),
        (["--schema", "kip-113"], "--schema kip-113 needs --broker: it describes one broker"),
        (["--schema", "kip-113", "--broker", "1", "--topic-list", "a"], "--topic-list is for --schema kafka only"),
        (["--schema", "kip-113", "--broker", "1", "--broker-list", "1"], "--broker-list is for --schema kafka only"),
        (["--broker", "1"], "--broker is for --schema kip-113 only"),
        (["--log-dirs", "/d1"], "--log-dirs is for --schema kip-113 only"),
        (["--topics", "a"], "--topics is for --schema kip-113 only"),
    ],
)
def test_what_one_broker_and_its_directories_do_not_allow(cluster: Cluster, flags: list[str], line: str) -> None:
    """One line says what is wrong. A command line may not combine flags of the two schemas."""
    assert cluster(*flags) == (1, [], [line])


def test_a_command_line_without_describe_is_refused(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """--describe is required although it is the only action, as in Kafka."""
    with pytest.raises(SystemExit, match="1"):
        main(["--bootstrap-server", str(cluster.brokers[1].address)])
    assert "--describe" in capsys.readouterr().err
