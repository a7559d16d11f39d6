"""What all tools that use the admin client have in common: --command-config, and errors that take one line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.client import AdminClient
from common.protocol.api_keys import ApiKey
from common.protocol.messages.describe_cluster import DescribeClusterResponse
from tests.unit.tools.fake_broker import FakeBroker
from tools.errors import ToolError
from tools.kafka.admin_run import run_admin
from tools.kafka.topics import main


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({ApiKey.DESCRIBE_CLUSTER: lambda _: DescribeClusterResponse(cluster_id="the-cluster")}) as fake:
        yield fake


async def cluster_id(admin: AdminClient) -> str:
    return (await admin.describe_cluster()).cluster_id


def test_the_work_runs_with_a_client_and_its_result_comes_back(broker: FakeBroker) -> None:
    """An error that the tool itself raises is passed on unchanged."""

    async def fail(_admin: AdminClient) -> None:
        raise ToolError("of the work")

    assert run_admin(str(broker.address), cluster_id) == "the-cluster"
    with pytest.raises(ToolError, match=r"^of the work$"):
        run_admin(str(broker.address), fail)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"request.timeout.ms=soon\n", "request.timeout.ms=soon is not a number of milliseconds"),
        (b"\\u12", "client.properties is not a properties file"),
        (None, "cannot read the configuration .*client.properties: No such file or directory"),
    ],
)
def test_settings_that_cannot_be_used(broker: FakeBroker, tmp_path: Path, content: bytes | None, reason: str) -> None:
    """The error names the key or the file. No request is sent."""
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ToolError, match=reason):
        run_admin(str(broker.address), cluster_id, command_config=str(path))
    assert broker.requests == []


@pytest.mark.parametrize("text", ["", ",", "host", "host:port", "host:99999", "::1:9092"])
def test_a_bootstrap_server_that_is_none(text: str) -> None:
    """The error names the expected format."""
    with pytest.raises(ToolError, match=r"bootstrap server .*it takes host:port"):
        run_admin(text, cluster_id)


def test_the_settings_of_a_tool_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kafka-topics gives up when the timeout in the file of --command-config expires. Its error has the same words as that
    of Kafka's tool. Warnings do not go to stdout, because programs may read it."""
    path = tmp_path / "client.properties"
    path.write_text("default.api.timeout.ms=100\nretry.backoff.ms=10\n")
    assert main(["--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(
        "Error while executing topic command : Timed out waiting for a node assignment. Call: listTopics ("
    )
