"""The settings of an AdminClient, read from a properties file: Kafka's keys, and a one-line error for an invalid value."""

import pytest

from admin.config import AdminConfig, parse_bootstrap_servers
from admin.errors import InvalidSetting
from common.configuration.endpoints import HostPort


def test_keys_are_kafkas_and_absent_ones_have_kafkas_defaults() -> None:
    """Keys that have no effect here are accepted too, because the same file may also be used for Kafka's tools."""
    assert AdminConfig.from_properties({}) == AdminConfig("adminclient", 60_000, 30_000, 100, 1_000)
    given = {
        "client.id": "me",
        "default.api.timeout.ms": "5000",
        "request.timeout.ms": "1000",
        "retry.backoff.ms": "0",
        "retry.backoff.max.ms": "20",
        "security.protocol": "PLAINTEXT",
    }
    assert AdminConfig.from_properties(given) == AdminConfig("me", 5_000, 1_000, 0, 20)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", ""])
def test_a_security_protocol_that_is_not_served_is_refused(protocol: str) -> None:
    """Otherwise the client would send in the clear what its user wants encrypted."""
    with pytest.raises(InvalidSetting, match=f"security.protocol={protocol} is not supported; it takes PLAINTEXT"):
        AdminConfig.from_properties({"security.protocol": protocol})


@pytest.mark.parametrize("text", ["", "-1", "1.5", "soon", "2147483648", "99999999999999999999"])
def test_a_timeout_that_is_none_is_named_with_its_key(text: str) -> None:
    """The error is one line with the key, the value and the allowed range."""
    with pytest.raises(InvalidSetting) as caught:
        AdminConfig.from_properties({"request.timeout.ms": text})
    assert str(caught.value) == f"request.timeout.ms={text} is not a number of milliseconds from 0 to 2147483647"


def test_a_bootstrap_server_may_name_its_protocol() -> None:
    """As in Kafka, where such addresses are copied from the listeners of server.properties."""
    assert parse_bootstrap_servers("PLAINTEXT://a:1, plaintext://[::1]:2,b:3") == [
        HostPort("a", 1),
        HostPort("::1", 2),
        HostPort("b", 3),
    ]


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ("SSL://a:1", "bootstrap server 'SSL://a:1': SSL is not supported; it takes PLAINTEXT in this version"),
        ("PLAINTEXT://a", "bootstrap server 'a' is not host:port; it takes host:port, several separated by commas"),
        (
            "a:92000",
            "bootstrap server 'a:92000' has a port out of range (1 to 65535); it takes host:port, several separated by "
            "commas",
        ),
        (
            "fe80::1:9092",
            "bootstrap server 'fe80::1:9092' has an IPv6 host without brackets; it takes host:port, several separated by "
            "commas",
        ),
    ],
)
def test_bootstrap_servers_that_are_refused(server: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        parse_bootstrap_servers(server)
    assert str(caught.value) == message
