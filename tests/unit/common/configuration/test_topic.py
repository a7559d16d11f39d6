"""Topic configuration: overrides of the server's defaults, and what is refused."""

import pytest

from common.configuration.server import load_server_config
from common.configuration.settings import ConfigError
from common.configuration.topic import TopicConfig, default_topic_config, topic_config, validate_topic_overrides
from tests.unit.common.configuration.test_server import BROKER


def test_overrides_beat_the_servers_defaults() -> None:
    """Some settings have one name in server.properties and another in a topic's configuration. Overrides use the topic's
    name."""
    server = load_server_config(BROKER | {"log.retention.minutes": "5", "min.insync.replicas": "2"})
    defaults = default_topic_config(server)
    assert defaults.retention_ms == 300_000
    assert defaults.min_insync_replicas == 2
    assert topic_config(defaults, {}) is defaults
    assert topic_config(defaults, {"retention.ms": "-1"}).retention_ms == -1
    assert topic_config(defaults, {"segment.bytes": "1024"}).min_insync_replicas == 2


def test_the_class_defaults_are_kafkas() -> None:
    """If server.properties sets no topic defaults, every topic setting has the default that TopicConfig declares."""
    assert default_topic_config(load_server_config(BROKER)) == TopicConfig()


@pytest.mark.parametrize(
    ("overrides", "fragment"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact has no effect in this version; only delete is served"),
        ({"retention.ms": "soon"}, "retention.ms=soon"),
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"min.insync.replicas": "0"}, "at least 1"),
        ({"min.compaction.lag.ms": "5"}, "leave it out"),
    ],
)
def test_what_cannot_be_followed_is_refused(overrides: dict[str, str | None], fragment: str) -> None:
    """A key that has no effect is refused, because storing it would mislead the operator."""
    with pytest.raises(ConfigError) as caught:
        validate_topic_overrides(overrides)
    assert fragment in str(caught.value)


def test_values_that_ask_for_what_happens_anyway_are_accepted() -> None:
    """Tools routinely send cleanup.policy=delete and compression.type=producer, so both are accepted."""
    validate_topic_overrides({"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "1"})


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1, 12:3"])
def test_throttled_replicas_are_all_or_a_list(value: str) -> None:
    """The value is "*" for all replicas, or a list. An entry of the list is a partition and a broker."""
    validate_topic_overrides({"leader.replication.throttled.replicas": value})


@pytest.mark.parametrize("value", ["1", "*,0:1", "0:1:2", "a:b", "-1:0"])
def test_other_throttled_replicas_are_refused(value: str) -> None:
    """The error shows the expected form."""
    with pytest.raises(ConfigError, match="PARTITION:BROKER"):
        validate_topic_overrides({"follower.replication.throttled.replicas": value})


def test_an_override_that_cannot_be_read_is_passed_over() -> None:
    """The record may come from another version. The topic's other overrides remain in effect."""
    config = topic_config(TopicConfig(), {"retention.ms": "soon", "segment.bytes": "1024"})
    assert config == TopicConfig(segment_bytes=1024)
