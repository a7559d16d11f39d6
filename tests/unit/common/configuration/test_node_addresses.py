"""server.properties: listeners, what is advertised, and where the quorum is."""

import pytest

from common.configuration.endpoints import Endpoint, HostPort, Voter
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError
from tests.unit.common.configuration.node_properties import BROKER, CONTROLLER

# The entries of the server.properties of Apache Kafka 4.1 that name nodes and listeners.
STOCK = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "log.dirs": "/d",
}


def test_an_empty_listener_host_is_advertised_by_the_hosts_name() -> None:
    """A listener on all interfaces needs a name that clients can reach."""
    config = load_server_config(BROKER | {"listeners": "PLAINTEXT://:0"}, host_name="host.example")
    assert config.listeners == (Endpoint("PLAINTEXT", "", 0),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "host.example", 0),)


def test_a_controller_has_only_its_controller_listener() -> None:
    """A controller-only node advertises nothing to clients."""
    config = load_server_config(CONTROLLER)
    assert config.controller_listeners == (Endpoint("CONTROLLER", "", 9093),)
    assert config.broker_listeners == ()
    assert config.advertised_listeners == ()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, [("controller", 9093)]),
        ({"listeners": "CONTROLLER://0.0.0.0:0"}, [("controller", 9093)]),
        ({"listeners": "CONTROLLER://own:9093"}, [("own", 9093)]),
        (
            {"listeners": "CONTROLLER://:9093", "advertised.listeners": "CONTROLLER://outside:19093"},
            [("outside", 19093)],
        ),
        (
            {"listeners": "SECOND://:0,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER,SECOND"}
            | {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SECOND:PLAINTEXT"},
            [("host.example", 0), ("controller", 9093)],
        ),
    ],
)
def test_where_a_controller_is_reached(properties: dict[str, str], expected: list[tuple[str, int]]) -> None:
    """The address of each listener that the controller registers: advertised, its own, the quorum's, or the machine's."""
    voters = {"controller.quorum.voters": "100@controller:9093", "node.id": "100"}
    config = load_server_config(CONTROLLER | voters | properties, host_name="host.example")
    assert [(each.host, each.port) for each in config.advertised_controller_listeners] == expected


def test_the_stock_file_of_kafka_4_1() -> None:
    """The node is its own only voter, and advertises only the listener of its broker."""
    config = load_server_config(STOCK)
    assert config.is_standalone
    assert config.controller_quorum_voters == (Voter(1, "localhost", 9093),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "localhost", 9092),)
    assert config.controller_listeners == (Endpoint("CONTROLLER", "", 9093),)


def test_the_bootstrap_server_may_be_the_advertised_controller_listener() -> None:
    """The port that others see may be another one than the port that the controller listens on."""
    changes = {
        "controller.quorum.bootstrap.servers": "outside:19093",
        "advertised.listeners": "PLAINTEXT://outside:9092,CONTROLLER://outside:19093",
    }
    assert load_server_config(STOCK | changes).controller_quorum_voters == (Voter(1, "outside", 19093),)


def test_a_broker_follows_a_quorum_of_several_controllers() -> None:
    """Apache Kafka's controllers may be several. One of ours is alone, so it refuses to be one of several."""
    voters = {"controller.quorum.voters": "100@localhost:9093,101@localhost:9094,102@localhost:9095"}
    assert [voter.node_id for voter in load_server_config(BROKER | voters).controller_quorum_voters] == [100, 101, 102]
    with pytest.raises(ConfigError, match="lists 3 voters; on a controller it takes one"):
        load_server_config(CONTROLLER | voters)


def test_a_broker_needs_no_more_than_addresses_of_the_quorum() -> None:
    """As in the file for brokers that Apache Kafka 4.1 ships. It learns from the answers who leads."""
    servers = {"controller.quorum.bootstrap.servers": "a:9093,b:9094"}
    without_voters = {key: value for key, value in BROKER.items() if key != "controller.quorum.voters"}
    config = load_server_config(without_voters | servers)
    assert config.controller_quorum_voters == ()
    assert config.quorum_servers == (HostPort("a", 9093), HostPort("b", 9094))
    assert not config.is_standalone
    with pytest.raises(ConfigError, match=r"controller\.quorum\.voters is missing"):
        load_server_config(without_voters)


def test_listed_voters_count_before_bootstrap_servers() -> None:
    """Kafka allows both keys in one file."""
    config = load_server_config(STOCK | {"controller.quorum.voters": "1@other:9093"})
    assert config.controller_quorum_voters == (Voter(1, "other", 9093),)
    assert not config.is_standalone


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"controller.quorum.bootstrap.servers": "a:9093,b:9093"}, "one controller in this version"),
        ({"controller.quorum.bootstrap.servers": "other:9094"}, "is not this node's controller listener"),
        ({"controller.quorum.bootstrap.servers": "localhost"}, "'localhost' is not host:port"),
        ({"controller.quorum.bootstrap.servers": "localhost:0"}, "'localhost:0' has a port out of range (1 to 65535)"),
        ({"controller.quorum.bootstrap.servers": ":9093"}, "':9093' has no host"),
        ({"controller.quorum.bootstrap.servers": ""}, "controller.quorum.voters is missing"),
    ],
)
def test_bootstrap_servers_that_do_not_give_the_voter(changes: dict[str, str], text: str) -> None:
    """Several controllers, another node's address, and no address."""
    with pytest.raises(ConfigError) as caught:
        load_server_config(STOCK | changes)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ipv6_hosts_stand_in_brackets() -> None:
    """The brackets around an IPv6 address are part of the text but not of the host."""
    config = load_server_config(BROKER | {"listeners": "PLAINTEXT://[::1]:9092"})
    assert config.listeners[0].host == "::1"
    assert str(HostPort("::1", 9092)) == "[::1]:9092"
