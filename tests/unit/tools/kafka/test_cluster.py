"""Tests kafka-cluster: printing the cluster id for health checks, and unregistering a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from common.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.unit.tools.fake_broker import Answer, FakeBroker
from tools.kafka.cluster import main


def unregister(request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    if request.broker_id == 3:
        return UnregisterBrokerResponse()
    return UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=None)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    answers: dict[ApiKey, Answer] = {
        ApiKey.DESCRIBE_CLUSTER: lambda _: DescribeClusterResponse(cluster_id="the-cluster"),
        ApiKey.UNREGISTER_BROKER: unregister,
    }
    with FakeBroker(answers) as fake:
        yield fake


def test_the_cluster_id_is_printed(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The long and the short flag both work."""
    for flag in ("--bootstrap-server", "-b"):
        assert main(["cluster-id", flag, str(broker.address)]) == 0
        assert capsys.readouterr().out == "Cluster ID: the-cluster\n"


def test_a_broker_is_unregistered_or_its_error_named(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Unregistering a registered broker succeeds. Unregistering one that is not registered fails."""
    assert main(["unregister", "-b", str(broker.address), "--id", "3"]) == 0
    assert capsys.readouterr().out == "Broker 3 is no longer registered.\n"
    assert main(["unregister", "-b", str(broker.address), "-i", "4"]) == 1
    assert capsys.readouterr().err == "broker 4 cannot be unregistered: BROKER_ID_NOT_REGISTERED\n"


def test_the_directory_numbering(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster without the feature has Apache Kafka's numbers."""
    numbering = FinalizedFeatureKey(name="diskraft.directory.numbering", max_version_level=1, min_version_level=1)
    for finalized, text in ([], "apache"), ([numbering], "kip-858"):
        broker.features = ApiVersionsResponse(finalized_features=finalized, finalized_features_epoch=1)
        assert main(["directory-numbering", "-b", str(broker.address)]) == 0
        assert capsys.readouterr().out == f"Directory numbering: {text}\n"


def test_the_addresses_of_the_brokers(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints Kafka's columns, as wide as the longest host and rack."""
    brokers = [
        DescribeClusterBroker(broker_id=2, host="broker-2.example", port=9092, rack="a-long-rack"),
        DescribeClusterBroker(broker_id=1, host="b1", port=19092),
    ]
    broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(cluster_id="c", brokers=brokers)
    assert main(["list-endpoints", "-b", str(broker.address)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ID         HOST             PORT       RACK        STATE      ENDPOINT_TYPE  ",
        "1          b1               19092      null        unfenced   broker         ",
        "2          broker-2.example 9092       a-long-rack unfenced   broker         ",
    ]


def test_fenced_brokers_are_shown_if_so_wanted(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The broker is asked for them only with the flag."""

    def describe(request: DescribeClusterRequest) -> DescribeClusterResponse:
        found = [DescribeClusterBroker(broker_id=1, host="b1", port=9092)]
        if request.include_fenced_brokers:
            found.append(DescribeClusterBroker(broker_id=2, host="b2", port=9092, is_fenced=True))
        return DescribeClusterResponse(brokers=found)

    broker.answers[ApiKey.DESCRIBE_CLUSTER] = describe
    for flags, states in (([], ["unfenced"]), (["--include-fenced-brokers"], ["unfenced", "fenced"])):
        assert main(["list-endpoints", "-b", str(broker.address), *flags]) == 0
        assert [line.split()[4] for line in capsys.readouterr().out.splitlines()[1:]] == states


@pytest.mark.parametrize(
    "arguments", [[], ["cluster-id"], ["unregister", "-b", "h:1"], ["unregister", "-b", "h:1", "-i", "x"]]
)
def test_a_wrong_command_line_gives_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 1, and the usage is on stderr."""
    with pytest.raises(SystemExit, match="1"):
        main(arguments)
    assert "usage: kafka-cluster" in capsys.readouterr().err


def test_no_answer_is_status_1_and_a_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing listens at the address. The tool logs a warning at once. When the timeout of the call expires, it prints one
    line."""
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=100\n")
    assert main(["cluster-id", "-b", "127.0.0.1:1", "--config", str(config)]) == 1
    warning, error = capsys.readouterr().err.splitlines()
    assert "node_unavailable" in warning and "127.0.0.1:1" in warning
    assert error.startswith(
        "Timed out waiting for a node assignment. Call: describeCluster (cannot connect to 127.0.0.1:1: "
    )


def test_the_addresses_of_the_controllers(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Controllers have no column STATE, as in Kafka's tool, and the tool cannot ask them for fenced brokers."""

    def describe(request: DescribeClusterRequest) -> DescribeClusterResponse:
        assert request.endpoint_type == 2
        address = broker.address
        found = [DescribeClusterBroker(broker_id=100, host=address.host, port=address.port)]
        return DescribeClusterResponse(cluster_id="c", controller_id=100, brokers=found)

    broker.answers[ApiKey.DESCRIBE_CLUSTER] = describe
    for flag in ("--bootstrap-controller", "-C"):
        assert main(["list-endpoints", flag, str(broker.address)]) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
            ["ID", "HOST", "PORT", "RACK", "ENDPOINT_TYPE"],
            ["100", broker.address.host, str(broker.address.port), "null", "controller"],
        ]
    assert main(["list-endpoints", "-C", str(broker.address), "--include-fenced-brokers"]) == 1
    assert "only supported with --bootstrap-server" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["-b", "h:1", "-C", "h:2"], []])
def test_brokers_or_controllers_but_not_both(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command line takes exactly one of the two."""
    with pytest.raises(SystemExit) as ended:
        main(["cluster-id", *given])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert "--bootstrap-controller" in error
    assert "not allowed with" in error if given else "is required" in error
