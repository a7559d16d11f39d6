"""Tests the admin client of the tools: its requests, and one-line errors for servers that are missing or not Kafka."""

import socket
from collections.abc import Iterator

import pytest

from common.configuration.endpoints import HostPort
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.unit.tools.fake_broker import FakeBroker, LastBytes
from tools.errors import ToolError
from tools.kafka.admin_client import AdminClient, NodeConnection, check, error_name

METADATA = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=2, host="b", port=9093), MetadataResponseBroker(node_id=1, host="::1", port=1)],
    cluster_id="the-cluster",
)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({ApiKey.METADATA: lambda _: METADATA, ApiKey.CREATE_TOPICS: lambda _: CreateTopicsResponse()}) as fake:
        yield fake


@pytest.fixture
def nobody() -> HostPort:
    """Returns an address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return HostPort(*taken.getsockname()[:2])


def test_metadata_of_all_topics_or_of_some(broker: FakeBroker) -> None:
    """`metadata()` requests all topics, and `metadata` with a list only those topics. No request may create a topic."""
    with AdminClient(str(broker.address)) as client:
        assert client.metadata().cluster_id == "the-cluster"
        assert client.metadata(["a"]).cluster_id == "the-cluster"
        assert client.brokers() == {1: HostPort("::1", 1), 2: HostPort("b", 9093)}
    everything, named, none = broker.requests
    assert everything.topics is None
    assert [topic.name for topic in named.topics] == ["a"]
    assert none.topics == []
    assert not any(request.allow_auto_topic_creation for request in broker.requests)


def test_the_first_bootstrap_server_that_answers_is_used(broker: FakeBroker, nobody: HostPort) -> None:
    """The first broker of the list is down."""
    with AdminClient(f"{nobody}, {broker.address}") as client:
        assert client.metadata([]).cluster_id == "the-cluster"


def test_addresses_where_nothing_listens_are_named_in_one_line(nobody: HostPort) -> None:
    """One line names every address with its reason."""
    with AdminClient(f"{nobody},{nobody}") as client, pytest.raises(ToolError) as caught:
        client.metadata()
    assert str(caught.value).count(f"cannot connect to {nobody}") == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", ",", "host", "host:port", "host:99999", "::1:9092"])
def test_a_bootstrap_server_that_is_none(text: str) -> None:
    """The error names the flag and the format that it takes."""
    with pytest.raises(ToolError, match=r"--bootstrap-server .*it takes host:port"):
        AdminClient(text)


def test_an_api_that_is_not_served(broker: FakeBroker) -> None:
    """The broker does not serve the API, or serves no version of it that the client knows."""
    del broker.answers[ApiKey.CREATE_TOPICS]
    with AdminClient(str(broker.address)) as client, pytest.raises(ToolError, match="does not support CREATE_TOPICS"):
        client.send(CreateTopicsRequest())
    too_new = ApiVersionsResponse(api_keys=[ApiVersion(api_key=ApiKey.METADATA, min_version=90, max_version=99)])
    broker.answers[ApiKey.API_VERSIONS] = lambda _: too_new
    with AdminClient(str(broker.address)) as client, pytest.raises(ToolError, match="only in versions 90 to 99"):
        client.metadata()


def test_a_node_that_refuses_to_name_its_versions(broker: FakeBroker) -> None:
    """ApiVersions returns an error instead of the list."""
    broker.answers[ApiKey.API_VERSIONS] = lambda _: ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    with pytest.raises(ToolError, match="refuses to name its versions: INVALID_REQUEST"):
        NodeConnection(broker.address)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a response of 1213486160 bytes"),
        (b"\xff\xff\xff\xff", "a response of 4294967295 bytes"),
        (b"\x00\x00\x00\x02\x00\x00", "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x01", "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x0c\x00\x00\x00\x63\x00\x00\x01\x00\x00\x00\x00\x00", "answered a request that was not sent"),
        (LastBytes(b"\x00\x00\x00\x20half"), "closed the connection"),
        (None, "closed the connection"),
    ],
)
def test_something_that_is_not_kafka(broker: FakeBroker, answer: bytes | None, reason: str) -> None:
    """The server is a web server, sends nonsense or a response to another request, or closes the connection early. The error
    is one line without a traceback, and no socket is left open."""
    broker.answers[ApiKey.API_VERSIONS] = lambda _: answer
    with pytest.raises(ToolError, match=reason):
        NodeConnection(broker.address)


def test_a_node_that_never_answers(broker: FakeBroker) -> None:
    """The request fails at its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = HostPort(*silent.getsockname()[:2])
        with pytest.raises(ToolError, match="did not answer: timed out"):
            NodeConnection(address, timeout=0.05)


def test_a_request_that_cannot_be_sent(broker: FakeBroker) -> None:
    """A number does not fit its field. The error blames the request, not the broker."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", replication_factor=70_000)])
    with AdminClient(str(broker.address)) as client:
        with pytest.raises(ToolError, match="cannot encode the request: CreateTopicsRequest"):
            client.send(request)
        # The connection can still be used.
        assert client.metadata([]).cluster_id == "the-cluster"


def test_an_error_has_the_brokers_words_its_name_or_its_number() -> None:
    """The error is the broker's message, else the name of the code, else its number."""
    check(ErrorCode.NONE, None, "x")
    with pytest.raises(ToolError, match=r"^x: the broker's words$"):
        check(ErrorCode.INVALID_CONFIG, "the broker's words", "x")
    with pytest.raises(ToolError, match=r"^x: INVALID_CONFIG$"):
        check(ErrorCode.INVALID_CONFIG, None, "x")
    assert error_name(4711) == "error 4711"
