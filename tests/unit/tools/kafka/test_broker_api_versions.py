"""kafka-broker-api-versions: its output, which equals Kafka's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.configuration.endpoints import HostPort
from common.protocol.api_keys import ApiKey
from common.protocol.messages.api_versions import ApiVersion
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from common.protocol.registry import APIS
from tests.unit.tools.fake_broker import FakeBroker
from tools.kafka import broker_api_versions
from tools.kafka.broker_api_versions import main


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({}) as fake:
        fake.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: cluster(fake.address)
        yield fake


def cluster(address: HostPort) -> DescribeClusterResponse:
    rack_less = DescribeClusterBroker(broker_id=1, host=address.host, port=address.port)
    return DescribeClusterResponse(cluster_id="c", brokers=[rack_less])


def test_every_api_of_kafka_is_listed(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """The fake broker serves three APIs. The others are shown as unsupported."""
    assert main(["--bootstrap-server", str(broker.address)]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == f"{broker.address} (id: 1 rack: null isFenced: false) -> ("
    assert last == ")"
    assert lines[0] == "\tProduce(0): UNSUPPORTED,"
    assert lines[-1] == "\tUnregisterController(94): UNSUPPORTED"
    versions = APIS[ApiKey.METADATA].versions
    assert f"\tMetadata(3): {versions.first} to {versions.last} [usable: {versions.last}]," in lines
    assert all(line.endswith(",") for line in lines[:-1])


@pytest.mark.parametrize(
    ("key", "low", "high", "text"),
    [
        (ApiKey.UNREGISTER_BROKER, 0, 0, "\tUnregisterBroker(64): 0 [usable: 0]"),
        (ApiKey.UNREGISTER_BROKER, 1, 2, "\tUnregisterBroker(64): 1 to 2 [unusable: node too new]"),
        (ApiKey.FETCH, 0, 1, "\tFetch(1): 0 to 1 [unusable: node too old]"),
        (92, 0, 1, "\tDeleteShareGroupOffsets(92): 0 to 1"),
        (1000, 0, 3, "\tUNKNOWN(1000): 0 to 3"),
    ],
)
def test_versions_of_other_brokers(capsys: pytest.CaptureFixture[str], key: int, low: int, high: int, text: str) -> None:
    """A broker may be older or newer than this tool, and serve APIs that the tool does not know."""
    broker_api_versions._print("h:1 ->", [ApiVersion(api_key=key, min_version=low, max_version=high)])
    assert text in [line.removesuffix(",") for line in capsys.readouterr().out.splitlines()]


def test_a_broker_that_does_not_answer(broker: FakeBroker, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The other brokers are shown all the same. The status is 1."""
    response = cluster(broker.address)
    response.brokers.append(DescribeClusterBroker(broker_id=2, host="127.0.0.1", port=1))
    broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: response
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=200\n")
    assert main(["--bootstrap-server", str(broker.address), "--command-config", str(config)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"{broker.address} (id: 1 ")
    assert out[-1].startswith("127.0.0.1:1 (id: 2 rack: null isFenced: false) -> ERROR: Timed out waiting")
