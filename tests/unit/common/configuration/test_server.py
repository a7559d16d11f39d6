"""server.properties: defaults, cross-checks, and the one-line errors for the operator."""

import pytest

from common.configuration.endpoints import Endpoint, HostPort, Voter
from common.configuration.server import load_server_config, properties_from_environment
from common.configuration.settings import ConfigError

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@localhost:9093",
    "log.dirs": "/d1,/d2/",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@localhost:9093",
    "listeners": "CONTROLLER://:9093",
    "log.dirs": "/m",
}


def test_a_small_broker_configuration_gets_kafkas_defaults() -> None:
    """Loads the smallest broker configuration and checks several defaults."""
    config = load_server_config(BROKER, host_name="host.example")
    assert config.log_dirs == ("/d1", "/d2")
    assert config.metadata_log_dir == "/d1"
    assert config.all_log_dirs == ("/d1", "/d2")
    assert config.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners == config.listeners
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.controller_quorum_voters == (Voter(100, "localhost", 9093),)
    assert config.log_dir_failure_timeout_ms == 30_000
    assert config.retention_ms == 7 * 24 * 3_600_000
    assert config.warnings == ()


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


def test_unknown_keys_and_keys_without_effect_are_warnings() -> None:
    """Unknown keys and keys without effect are reported by name, sorted, and do not prevent the start."""
    config = load_server_config(BROKER | {"no.such.key": "1", "num.io.threads": "8"})
    assert config.warnings == (
        "no.such.key is not a known key; it is ignored",
        "num.io.threads has no effect in this version",
    )


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"node.id": "x"}, ["node.id=x", "whole number"]),
        ({"node.id": "-1"}, ["node.id=-1", "at least 0"]),
        ({"log.dirs": "d1"}, ["log.dirs=d1", "'d1' is relative"]),
        ({"log.dirs": "/a,/b,/a/"}, ["'/a' occurs twice"]),
        ({"process.roles": "zookeeper"}, ["process.roles=zookeeper", "broker, controller"]),
        ({"process.roles": ""}, ["process.roles="]),
        ({"controller.quorum.voters": "localhost:9093"}, ["controller.quorum.voters", "id@host:port"]),
        ({"controller.quorum.voters": "1@localhost:9093"}, ["node.id=1", "outside controller.quorum.voters"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, ["listeners", "not host:port"]),
        ({"listeners": "SSL://127.0.0.1:9092"}, ["SSL", "PLAINTEXT"]),
        ({"listeners": "CONTROLLER://127.0.0.1:9092"}, ["a broker has no listener of"]),
        (
            {"advertised.listeners": "OTHER://h:1", "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
            ["OTHER"],
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, ["cannot be reached"]),
        ({"auto.create.topics.enable": "yes"}, ["auto.create.topics.enable=yes", "true or false"]),
        ({"broker.session.timeout.ms": "100"}, ["broker.heartbeat.interval.ms"]),
        ({"diskraft.prometheus.listener": "9404"}, ["diskraft.prometheus.listener=9404", "host:port"]),
        ({"log.dir.failure.timeout.ms": "0"}, ["log.dir.failure.timeout.ms=0", "at least 1"]),
    ],
)
def test_bad_values_are_one_line_naming_key_value_and_allowed(changes: dict[str, str], fragments: list[str]) -> None:
    """Each bad value raises one ConfigError that names the key, the value and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        load_server_config(BROKER | changes)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["node.id", "process.roles", "controller.quorum.voters", "controller.listener.names"])
def test_missing_keys_are_named(key: str) -> None:
    """If a required key is missing, the error starts with its name."""
    with pytest.raises(ConfigError, match=f"^{key} is missing"):
        load_server_config({name: value for name, value in BROKER.items() if name != key})


def test_environment_variables_follow_the_official_image() -> None:
    """In the variable names of the official Docker image, one underscore stands for a dot, two for an underscore and three
    for a dash. Variables that only the image's scripts use are skipped."""
    variables = {"KAFKA_LOG_DIRS": "/a", "KAFKA_X__Y___Z": "1", "KAFKA_HEAP_OPTS": "-Xmx1g", "HOME": "/"}
    assert properties_from_environment(variables) == {"log.dirs": "/a", "x_y-z": "1"}


def test_ipv6_hosts_stand_in_brackets() -> None:
    """The brackets around an IPv6 address are part of the text but not of the host."""
    config = load_server_config(BROKER | {"listeners": "PLAINTEXT://[::1]:9092"})
    assert config.listeners[0].host == "::1"
    assert str(HostPort("::1", 9092)) == "[::1]:9092"
