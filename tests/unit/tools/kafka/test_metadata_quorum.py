"""kafka-metadata-quorum: its output, which equals Kafka's, for three voters of which one lags."""

import time
from collections.abc import Iterator
from functools import partial

import pytest

from common.ids import Uuid, uuid_text
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_cluster import DescribeClusterResponse
from common.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from tests.unit.tools.fake_broker import Answer, FakeBroker
from tools.kafka.metadata_quorum import main

IDS = [Uuid(bytes([number]) * 16) for number in range(5)]


def replica(id_: int, end_offset: int, caught_up_ms: int = -1) -> ReplicaState:
    return ReplicaState(
        replica_id=id_,
        replica_directory_id=IDS[id_] if id_ != 4 else Uuid(bytes(16)),
        log_end_offset=end_offset,
        last_fetch_timestamp=caught_up_ms,
        last_caught_up_timestamp=caught_up_ms,
    )


PARTITION = ResponsePartitionData(
    leader_id=2,
    leader_epoch=7,
    high_watermark=90,
    current_voters=[replica(1, 100, 5000), replica(2, 100, 6000), replica(3, 80, 4500)],
    observers=[replica(4, 99)],
)


def quorum(request: DescribeQuorumRequest, partition: ResponsePartitionData = PARTITION) -> DescribeQuorumResponse:
    ((topic, (asked,)),) = ((each.topic_name, each.partitions) for each in request.topics)
    assert (topic, asked.partition_index) == ("__cluster_metadata", 0)
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=topic, partitions=[partition])],
        nodes=[Node(node_id=2, listeners=[Listener(name="CONTROLLER", host="h", port=9093)])],
    )


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    answers: dict[ApiKey, Answer] = {
        ApiKey.DESCRIBE_CLUSTER: lambda _: DescribeClusterResponse(cluster_id="the-cluster"),
        ApiKey.DESCRIBE_QUORUM: quorum,
    }
    with FakeBroker(answers) as fake:
        yield fake


def describe(broker: FakeBroker, *flags: str) -> int:
    return main(["--bootstrap-server", str(broker.address), "describe", *flags])


def test_the_status(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The lag is that of the slowest voter, compared with the leader. Only one voter's listeners are known."""
    one, two, three = (uuid_text(id_) for id_ in IDS[1:4])
    assert describe(broker, "--status") == 0
    assert capsys.readouterr().out == (
        "ClusterId:              the-cluster\n"
        "LeaderId:               2\n"
        "LeaderEpoch:            7\n"
        "HighWatermark:          90\n"
        "MaxFollowerLag:         20\n"
        "MaxFollowerLagTimeMs:   1500\n"
        f'CurrentVoters:          [{{"id": 1, "directoryId": "{one}"}}, '
        f'{{"id": 2, "directoryId": "{two}", "endpoints": ["CONTROLLER://h:9093"]}}, '
        f'{{"id": 3, "directoryId": "{three}"}}]\n'
        'CurrentObservers:       [{"id": 4, "directoryId": null}]\n'
    )


def test_a_lag_that_the_leader_does_not_know(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """A voter that has never fetched has no time. Without a leader among the voters nothing is known."""
    voters = [replica(2, 100, 6000), replica(3, 0)]
    for leader_id, lag, lag_ms in (2, 100, -1), (-1, -1, -1):
        partition = ResponsePartitionData(leader_id=leader_id, current_voters=voters)
        broker.answers[ApiKey.DESCRIBE_QUORUM] = partial(quorum, partition=partition)
        assert describe(broker, "--status") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[4:6] == [f"MaxFollowerLag:         {lag}", f"MaxFollowerLagTimeMs:   {lag_ms}"]


def test_the_replication(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The leader comes first, then the other voters and the observers, in columns separated by tabs."""
    assert describe(broker, "--replication") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == (
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus  \t"
    )
    cells = [[cell.strip() for cell in row.split("\t")] for row in rows]
    assert cells == [
        ["2", uuid_text(IDS[2]), "100", "0", "6000", "6000", "Leader", ""],
        ["1", uuid_text(IDS[1]), "100", "0", "5000", "5000", "Follower", ""],
        ["3", uuid_text(IDS[3]), "80", "20", "4500", "4500", "Follower", ""],
        ["4", uuid_text(IDS[0]), "99", "1", "-1", "-1", "Observer", ""],
    ]


def test_times_for_people(broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are shown as how long ago they were, with the short flag too."""
    monkeypatch.setattr(time, "time_ns", lambda: 7_000 * 10**6)
    for flag in "--human-readable", "-hr":
        assert describe(broker, "--replication", flag) == 0
        times = [line.split("\t")[4].strip() for line in capsys.readouterr().out.splitlines()[1:]]
        assert times == ["1000 ms ago", "2000 ms ago", "2500 ms ago", "-1"]


def test_an_error_of_the_quorum(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The error of the partition is the error of the call."""
    broken = ResponsePartitionData(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not you")
    broker.answers[ApiKey.DESCRIBE_QUORUM] = lambda request: quorum(request, broken)
    assert describe(broker, "--status") == 1
    assert capsys.readouterr().err == "not you\n"
    broker.answers[ApiKey.DESCRIBE_QUORUM] = lambda _: DescribeQuorumResponse()
    assert describe(broker, "--status") == 1
    assert "the response has no result for the metadata partition" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ([], "one of the arguments --status --replication is required"),
        (["--status", "--replication"], "not allowed with argument"),
        (["--status", "--human-readable"], "--human-readable is for describe --replication"),
    ],
)
def test_wrong_arguments(broker: FakeBroker, capsys: pytest.CaptureFixture[str], flags: list[str], text: str) -> None:
    """The first line on stderr says what is wrong. The status is 1."""
    with pytest.raises(SystemExit, match="1"):
        describe(broker, *flags)
    assert text in capsys.readouterr().err.splitlines()[0]
