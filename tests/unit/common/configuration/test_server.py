"""server.properties: defaults, cross-checks, and the one-line errors for the operator."""

import pytest

from common.configuration.endpoints import Endpoint, Voter
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError
from common.net.server_limits import server_limits
from tests.unit.common.configuration.node_properties import BROKER


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


@pytest.mark.parametrize("ids", [{"node.id": "7"}, {"broker.id": "7"}, {"node.id": "7", "broker.id": " 7"}])
def test_the_nodes_id_has_two_names(ids: dict[str, str]) -> None:
    """Both names show the id, whichever is set. broker.id is the name from clusters with ZooKeeper."""
    config = load_server_config({key: value for key, value in BROKER.items() if key != "node.id"} | ids)
    assert (config.node_id, config.broker_id, config.warnings) == (7, 7, ())


def test_the_limits_of_listeners_can_be_configured() -> None:
    """An address with a limit of its own may be an IPv6 address, with or without brackets. A negative size of the memory for
    requests sets no limit."""
    overrides = "10.0.0.1:5, [::1]:6,::2:7"
    limits = server_limits(
        load_server_config(
            BROKER
            | {"max.connections.per.ip.overrides": overrides, "queued.max.request.bytes": "1000", "max.connections": "9"}
        )
    )
    assert limits.connections_of_hosts_max == {"10.0.0.1": 5, "::1": 6, "::2": 7}
    assert (limits.request_memory_bytes, limits.connections_max, limits.connections_per_host_max) == (1000, 9, 1000)
    unlimited = server_limits(load_server_config(BROKER | {"queued.max.request.bytes": "-1"}))
    assert unlimited.request_memory_bytes > 2**60


def test_unknown_keys_and_keys_without_effect_are_warnings() -> None:
    """Unknown keys are reported one by one, keys without effect in one line. They do not prevent the start."""
    config = load_server_config(BROKER | {"no.such.key": "1", "num.io.threads": "8", "background.threads": "4"})
    assert config.warnings == (
        "no.such.key is not a known key; it is ignored",
        "no effect in this version: background.threads, num.io.threads",
    )


def test_a_key_of_kafka_is_not_taken_for_a_typo() -> None:
    """Kafka has `log.dir` beside `log.dirs`, and many other keys that resemble each other and have no effect here."""
    config = load_server_config(BROKER | {"node.id": "1", "log.preallocate": "true", "log.dir": "/d3"})
    assert config.warnings == ("no effect in this version: log.preallocate",)
    assert config.doubts == ()


def test_the_key_that_a_typo_was_meant_to_be_is_named() -> None:
    """A mistyped key without which the node still runs as its operator meant is a warning, as in Kafka."""
    config = load_server_config(BROKER | {"num.partitoins": "3", "LOG_RETENTION_MS": "1"})
    assert config.doubts == config.warnings
    assert config.doubts == (
        "LOG_RETENTION_MS is not a known key; it is ignored (is log.retention.ms meant?)",
        "num.partitoins is not a known key; it is ignored (is num.partitions meant?)",
    )


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("log.dirz", "log.dirs"),
        ("logs.dirs", "log.dirs"),
        ("LOG_DIRS", "log.dirs"),
        ("node.di", "node.id"),
        ("proces.roles", "process.roles"),
        ("controller.quorum.voter", "controller.quorum.voters"),
        ("controler.listener.name", "controller.listener.names"),
    ],
)
def test_a_typo_in_a_key_that_matters_is_an_error(typo: str, meant: str) -> None:
    """Without log.dirs, a node of Kafka's would write to /tmp/kafka-logs. Beside the right key, the typo is a warning."""
    properties = {typo if key == meant else key: value for key, value in BROKER.items()}
    with pytest.raises(ConfigError) as caught:
        load_server_config(properties)
    assert str(caught.value) == f"{typo} is not a known key, and {meant} is not set; is {meant} meant?"
    assert load_server_config(BROKER | {typo: "x"}).doubts == (
        f"{typo} is not a known key; it is ignored (is {meant} meant?)",
    )


def test_data_in_the_default_directory_is_a_doubt() -> None:
    """Kafka's default is a folder that many systems empty when they boot."""
    config = load_server_config({key: value for key, value in BROKER.items() if key != "log.dirs"})
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.doubts == ("log.dirs is not set; its default is /tmp/kafka-logs",)
    assert load_server_config(BROKER | {"log.dir": "/d"}).doubts == ()


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"node.id": "x"}, ["node.id=x", "whole number"]),
        ({"node.id": "-1"}, ["node.id=-1", "at least 0"]),
        ({"broker.id": "2"}, ["broker.id=2", "the value of node.id"]),
        ({"intra.broker.throttled.rate": "fast"}, ["intra.broker.throttled.rate=fast is not valid", "whole number"]),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, ["max.connections.per.ip.overrides", "'10.0.0.1' is not"]),
        ({"max.connections.per.ip.overrides": "h:1,h:2"}, ["'h' occurs twice"]),
        ({"max.connections.per.ip.overrides": "h:-1"}, ["'h:-1' is not HOST:NUMBER"]),
        ({"socket.connection.setup.timeout.ms": "0"}, ["socket.connection.setup.timeout.ms=0", "at least 1"]),
        ({"log.dirs": "d1"}, ["log.dirs=d1", "'d1' is relative"]),
        ({"log.dirs": "/a,/b,/a/"}, ["'/a' occurs twice"]),
        ({"log.dirs": "/a,/b,/a/disk-1"}, ["'/a/disk-1' lies in '/a'"]),
        ({"process.roles": "zookeeper"}, ["process.roles=zookeeper", "broker, controller"]),
        ({"process.roles": ""}, ["process.roles="]),
        ({"process.roles": "broker,broker"}, ["process.roles=broker,broker", "twice"]),
        ({"controller.quorum.voters": "localhost:9093"}, ["controller.quorum.voters", "id@host:port"]),
        ({"controller.quorum.voters": "1@localhost:9093"}, ["node.id=1", "outside controller.quorum.voters"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, ["'127.0.0.1:70000' has a port out of range (0 to 65535)"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:-1"}, ["'127.0.0.1:-1' has a port out of range (0 to 65535)"]),
        ({"listeners": f"PLAINTEXT://:{'9' * 5000}"}, ["has a port out of range (0 to 65535)"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:9o92"}, ["listeners", "'127.0.0.1:9o92' is not host:port"]),
        ({"advertised.listeners": "PLAINTEXT://h:65536"}, ["advertised.listeners", "has a port out of range (0 to 65535)"]),
        ({"controller.quorum.voters": "1@h:65536"}, ["controller.quorum.voters", "'h:65536' has a port", "(1 to 65535)"]),
        ({"controller.quorum.voters": "1@h:0"}, ["'h:0' has a port out of range (1 to 65535)"]),
        ({"controller.quorum.voters": "1@:9093"}, ["':9093' has no host"]),
        (
            {"listeners": "SSL://127.0.0.1:9092"},
            [
                "listeners=SSL://127.0.0.1:9092",
                "SSL has the protocol SSL",
                "takes SSL:PLAINTEXT in listener.security.protocol.map",
            ],
        ),
        (
            {"listeners": "OWN://127.0.0.1:9092"},
            [
                "listeners=OWN://127.0.0.1:9092",
                "OWN has no protocol",
                "takes OWN:PLAINTEXT in listener.security.protocol.map",
            ],
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"},
            [
                "listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT is",
                "has the protocol SSL",
                "PLAINTEXT:PLAINTEXT",
            ],
        ),
        (
            {"listeners": "CONTROLLER://127.0.0.1:9092"},
            ["listeners=CONTROLLER:", "a broker has no listener of controller.listener.names=CONTROLLER"],
        ),
        (
            {"listeners": "CONTROLLER://:9092", "process.roles": "broker,controller", "node.id": "100"},
            ["listeners=CONTROLLER:", "a broker needs a listener besides controller.listener.names=CONTROLLER"],
        ),
        (
            {"listeners": "PLAINTEXT://:9092", "process.roles": "controller", "node.id": "100"},
            ["listeners=PLAINTEXT:", "a controller needs a listener of controller.listener.names=CONTROLLER"],
        ),
        (
            {"advertised.listeners": "OTHER://h:1", "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
            ["advertised.listeners=OTHER://h:1", "the broker has no listener OTHER"],
        ),
        ({"advertised.listeners": "OTHER://h:1"}, ["advertised.listeners=OTHER://h:1", "the broker has no listener OTHER"]),
        ({"controller.quorum.bootstrap.servers": "CONTROLLER://h:1"}, ["'CONTROLLER://h:1' is not host:port"]),
        (
            {"group.coordinator.rebalance.protocols": "consumer"},
            ["group.coordinator.rebalance.protocols=consumer", "classic"],
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, ["cannot be reached"]),
        ({"auto.create.topics.enable": "yes"}, ["auto.create.topics.enable=yes", "true or false"]),
        ({"broker.session.timeout.ms": "100"}, ["broker.heartbeat.interval.ms"]),
        ({"diskraft.prometheus.listener": "9404"}, ["diskraft.prometheus.listener=9404", "host:port"]),
        ({"diskraft.prometheus.listener": ":94040"}, ["':94040' has a port out of range (0 to 65535)"]),
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


def test_a_bad_former_name_is_named_as_it_is_set() -> None:
    """The file has broker.id only, so an error that named node.id would lead to a line that is not there."""
    former = {name: value for name, value in BROKER.items() if name != "node.id"} | {"broker.id": "one"}
    with pytest.raises(ConfigError, match=r"^broker\.id=one is not valid; it takes a whole number of at least 0"):
        load_server_config(former)


@pytest.mark.parametrize("key", ["node.id", "process.roles", "controller.quorum.voters", "controller.listener.names"])
def test_missing_keys_are_named(key: str) -> None:
    """If a required key is missing, the error starts with its name."""
    with pytest.raises(ConfigError, match=f"^{key} is missing"):
        load_server_config({name: value for name, value in BROKER.items() if name != key})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector",) * 2,
        ("org.apache.kafka.common.replica.LeaderSelector",) * 2,
        ("none", "none"),
        ("", None),
    ],
)
def test_the_replica_selector_is_one_of_kafkas(value: str, expected: str | None) -> None:
    """Kafka's class by its full name, or one of the names for the leader."""
    assert load_server_config({**BROKER, "replica.selector.class": value}).replica_selector_class == expected


def test_another_replica_selector_is_refused() -> None:
    """A class of the operator's own cannot be loaded. Ignoring it would send consumers elsewhere than intended."""
    with pytest.raises(ConfigError) as caught:
        load_server_config({**BROKER, "replica.selector.class": "com.example.Nearest"})
    assert str(caught.value) == (
        "replica.selector.class=com.example.Nearest is not valid (other classes cannot be loaded); it takes "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector, org.apache.kafka.common.replica.LeaderSelector or nothing"
    )
