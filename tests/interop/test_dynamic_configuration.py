"""Real clients and kafka-configs change configuration while the cluster runs.

The tests share one cluster. Every configuration that a test changes for brokers is therefore harmless to other tests, and
the test deletes it again.
"""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.interop.our_tools import run_tool
from tests.interop.waiting import until_equal

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType as PythonType

SECONDS_MAX = 60
RATE = "leader.replication.throttled.rate"
THROTTLED = "leader.replication.throttled.replicas"


@pytest.fixture
def librdkafka(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def kafka_python(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap.split(","), request_timeout_ms=SECONDS_MAX * 1000)
    yield client
    client.close()


def change(admin: Any, resource_type: ResourceType, name: str, *changes: tuple[str, str | None, AlterConfigOpType]) -> None:
    """Changes configuration keys with librdkafka's IncrementalAlterConfigs. Each change is (key, value, operation)."""
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in changes]
    resource = ConfigResource(resource_type, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def configs(admin: Any, resource_type: ResourceType, name: str) -> Any:
    """Returns the configuration entries by key, as librdkafka describes them."""
    resource = ConfigResource(resource_type, name)
    return admin.describe_configs([resource])[resource].result(SECONDS_MAX)


def until_described(
    admin: Any, resource_type: ResourceType, name: str, expected: Mapping[str, tuple[str | None, ConfigSource]]
) -> None:
    """Waits until these keys have these values and sources."""

    def described() -> dict[str, tuple[str | None, ConfigSource]]:
        found = configs(admin, resource_type, name)
        return {key: (found[key].value, ConfigSource(found[key].source)) for key in expected}

    until_equal(described, expected)


def test_librdkafka_changes_a_topic(librdkafka: Any, topic: str) -> None:
    """The result of each operation (set, append, subtract, delete) is visible, and so is the source of the value."""
    change(
        librdkafka,
        ResourceType.TOPIC,
        topic,
        ("retention.ms", "86400000", AlterConfigOpType.SET),
        (THROTTLED, "0:1,1:2", AlterConfigOpType.APPEND),
    )
    dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG
    expected = {"retention.ms": ("86400000", dynamic), THROTTLED: ("0:1,1:2", dynamic)}
    until_described(librdkafka, ResourceType.TOPIC, topic, expected)
    change(
        librdkafka,
        ResourceType.TOPIC,
        topic,
        ("retention.ms", None, AlterConfigOpType.DELETE),
        (THROTTLED, "0:1", AlterConfigOpType.SUBTRACT),
    )
    expected = {"retention.ms": ("604800000", ConfigSource.DEFAULT_CONFIG), THROTTLED: ("1:2", dynamic)}
    until_described(librdkafka, ResourceType.TOPIC, topic, expected)


def test_librdkafka_replaces_a_topics_configuration(librdkafka: Any, topic: str) -> None:
    """The older AlterConfigs deletes every key that the request leaves out."""
    change(librdkafka, ResourceType.TOPIC, topic, ("retention.ms", "1000000", AlterConfigOpType.SET))
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "3600000"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        librdkafka.alter_configs([resource])[resource].result(SECONDS_MAX)
    expected = {
        "retention.ms": ("604800000", ConfigSource.DEFAULT_CONFIG),
        "segment.ms": ("3600000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
    }
    until_described(librdkafka, ResourceType.TOPIC, topic, expected)


def test_librdkafka_changes_a_broker(librdkafka: Any) -> None:
    """The value is in effect only on the broker that was changed."""
    change(librdkafka, ResourceType.BROKER, "2", (RATE, "1000000", AlterConfigOpType.SET))
    until_described(librdkafka, ResourceType.BROKER, "2", {RATE: ("1000000", ConfigSource.DYNAMIC_BROKER_CONFIG)})
    assert not configs(librdkafka, ResourceType.BROKER, "2")[RATE].is_read_only
    assert RATE not in configs(librdkafka, ResourceType.BROKER, "1")
    change(librdkafka, ResourceType.BROKER, "2", (RATE, None, AlterConfigOpType.DELETE))
    until_equal(lambda: RATE in configs(librdkafka, ResourceType.BROKER, "2"), False)


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "value", "code"),
    [
        (ResourceType.TOPIC, None, "segment.bytes", "many", KafkaError.INVALID_CONFIG),
        (ResourceType.TOPIC, None, "no.such.key", "1", KafkaError.INVALID_CONFIG),
        (ResourceType.TOPIC, "there-is-no-such-topic", "segment.ms", "1", KafkaError.UNKNOWN_TOPIC_OR_PART),
        (ResourceType.BROKER, "1", "log.dirs", "/elsewhere", KafkaError.INVALID_REQUEST),
        (ResourceType.BROKER, "1", RATE, "fast", KafkaError.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changed(
    librdkafka: Any, topic: str, resource_type: ResourceType, name: str | None, key: str, value: str, code: int
) -> None:
    """Each change is refused with Kafka's error code."""
    with pytest.raises(KafkaException) as refused:
        change(librdkafka, resource_type, name or topic, (key, value, AlterConfigOpType.SET))
    assert refused.value.args[0].code() == code


def test_kafka_python_changes_a_topic_and_a_broker(kafka_python: Any, topic: str) -> None:
    """Changes the configuration with both requests, the incremental and the older one. kafka-python itself refuses keys that
    DescribeConfigs does not list as changeable, and throttles that are not set yet."""
    for incremental in (True, False):
        wanted = {"retention.ms": "86400000" if incremental else "172800000"}
        result = kafka_python.alter_configs([PythonResource(PythonType.TOPIC, topic, wanted)], incremental=incremental)
        assert result == {"topic": {topic: "OK"}}
        described: dict[str, Any] = {}

        def values(described: dict[str, Any] = described) -> dict[str, str]:
            described.update(kafka_python.describe_configs([PythonResource(PythonType.TOPIC, topic)])["topic"][topic])
            return {key: entry["value"] for key, entry in described.items()}

        until_equal(values, wanted)
        assert described["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        assert described["retention.ms"]["config_type"] == "LONG"
    for value in ("20000", ("DELETE", None)):
        result = kafka_python.alter_configs([PythonResource(PythonType.BROKER, "3", {"log.cleaner.backoff.ms": value})])
        assert result == {"broker": {"3": "OK"}}
    with pytest.raises(ValueError, match="node"):
        kafka_python.alter_configs([PythonResource(PythonType.BROKER, "3", {"node.id": "4"})])


def test_the_tool_sets_shows_and_deletes(bootstrap: str, topic: str) -> None:
    """Changes the configuration of a topic, of one broker and of all brokers. A broker's own value takes precedence over the
    value for all brokers."""
    server = ("--bootstrap-server", bootstrap)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    added = run_tool("configs", *server, *of_topic, "--alter", "--add-config", f"{THROTTLED}=[0:1,1:2],segment.ms=3600000")
    assert (added.status, added.lines) == (0, [f"Completed updating config for topic {topic}."]), added
    until_equal(
        lambda: run_tool("configs", *server, *of_topic, "--describe").lines,
        [
            f"Dynamic configs for topic {topic} are:",
            f"  {THROTTLED}=0:1,1:2 sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{THROTTLED}=0:1,1:2, "
            f"DEFAULT_CONFIG:{THROTTLED}=}}",
            "  segment.ms=3600000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=3600000, "
            "DEFAULT_CONFIG:log.roll.hours=168}",
        ],
    )
    rate = "follower.replication.throttled.rate"
    of_all, of_one = ("--entity-type", "brokers", "--entity-default"), ("--entity-type", "brokers", "--entity-name", "1")
    try:
        for entity, value in ((of_all, "2000000"), (of_one, "1000000")):
            assert run_tool("configs", *server, *entity, "--alter", "--add-config", f"{rate}={value}").status == 0
        until_equal(
            lambda: run_tool("configs", *server, *of_one, "--describe").lines,
            [
                "Dynamic configs for broker 1 are:",
                f"  {rate}=1000000 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{rate}=1000000, "
                f"DYNAMIC_DEFAULT_BROKER_CONFIG:{rate}=2000000, DEFAULT_CONFIG:{rate}=9223372036854775807}}",
            ],
        )
    finally:
        for entity in (of_all, of_one):
            assert run_tool("configs", *server, *entity, "--alter", "--delete-config", rate).status == 0
    until_equal(
        lambda: run_tool("configs", *server, *of_all, "--describe").lines,
        ["Default configs for brokers in the cluster are:"],
    )
    refused = run_tool("configs", *server, *of_one, "--alter", "--add-config", "node.id=7")
    assert refused.status == 1
    assert refused.errors == ["Error while executing config command: Cannot update these configs dynamically: Set(node.id)"]
