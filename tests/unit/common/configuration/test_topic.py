"""Topic configuration: overrides of the server's defaults, and what is refused."""

import pytest

from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError
from common.configuration.topic import TopicConfig, default_topic_config, topic_config, validate_topic_overrides
from common.storage.log_config import NEVER
from tests.unit.common.configuration.node_properties import BROKER


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


def test_a_negative_size_of_a_topic_keeps_everything() -> None:
    """Kafka's controller stores any negative number. A broker that skipped -2 would delete by its own limit."""
    defaults = default_topic_config(load_server_config(BROKER | {"log.retention.bytes": "1000"}))
    validate_topic_overrides({"retention.bytes": "-2"})
    assert topic_config(defaults, {"retention.bytes": "-2"}).retention_bytes < 0


def test_the_number_of_unsynced_records_is_limited_by_the_topic_or_the_server() -> None:
    assert TopicConfig().flush_messages == NEVER
    defaults = default_topic_config(load_server_config(BROKER | {"log.flush.interval.messages": "100"}))
    assert defaults.flush_messages == 100
    validate_topic_overrides({"flush.messages": "1"})
    assert topic_config(defaults, {"flush.messages": "1"}).flush_messages == 1


@pytest.mark.parametrize(
    ("server", "jitter_ms"),
    [({}, 0), ({"log.roll.jitter.hours": "1"}, 3_600_000), ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "5"}, 5)],
)
def test_how_much_earlier_a_segment_rolls_is_said_by_the_topic_or_the_server(server: dict[str, str], jitter_ms: int) -> None:
    defaults = default_topic_config(load_server_config(BROKER | server))
    assert defaults.roll_jitter_ms == jitter_ms
    assert topic_config(defaults, {"segment.jitter.ms": "70"}).roll_jitter_ms == 70
    assert topic_config(defaults, {"segment.jitter.ms": "70", "segment.ms": "60"}).roll_jitter_ms == 60
    lag = {"segment.jitter.ms": "70", "max.compaction.lag.ms": "50", "cleanup.policy": "compact"}
    assert topic_config(defaults, lag).roll_jitter_ms == 50


@pytest.mark.parametrize(
    ("server", "flush_ms"),
    [
        ({}, NEVER),
        ({"log.flush.scheduler.interval.ms": "2000"}, 2000),
        ({"log.flush.scheduler.interval.ms": "2000", "log.flush.interval.ms": "10000"}, 10_000),
    ],
)
def test_when_a_log_is_synced_is_said_by_the_topic_or_the_server(server: dict[str, str], flush_ms: int) -> None:
    defaults = default_topic_config(load_server_config(BROKER | server))
    assert defaults.flush_ms == flush_ms
    validate_topic_overrides({"flush.ms": "0"})
    assert topic_config(defaults, {"flush.ms": "0"}).flush_ms == 0


def test_the_class_defaults_are_kafkas() -> None:
    """If server.properties sets no topic defaults, every topic setting has the default that TopicConfig declares."""
    assert default_topic_config(load_server_config(BROKER)) == TopicConfig()


@pytest.mark.parametrize(
    ("overrides", "fragment"),
    [
        ({"cleanup.policy": "compact,shrink"}, "cleanup.policy=compact,shrink is not valid"),
        ({"retention.ms": "soon"}, "retention.ms=soon"),
        ({"retention.ms": "5\u00a0"}, "a whole number"),
        ({"retention.ms": "\u0085" + "5"}, "control characters"),
        ({"min.cleanable.dirty.ratio": "\u20030.5"}, "a number"),
        ({"unclean.leader.election.enable": "true\u3000"}, "true or false"),
        ({"compression.type": "gzip\u00a0"}, "one of producer"),
        ({"cleanup.policy": "delete,\u00a0compact"}, "a comma-separated list"),
        ({"leader.replication.throttled.replicas": "0:1,\u00a01:1"}, "PARTITION:BROKER"),
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"min.insync.replicas": "0"}, "at least 1"),
        ({"flush.messages": "0"}, "flush.messages=0 is not valid; it takes a whole number of at least 1"),
        ({"flush.ms": "-1"}, "flush.ms=-1 is not valid; it takes a whole number of at least 0"),
        ({"preallocate": "true"}, "only false is served"),
        ({"message.downconversion.enable": "true"}, "leave it out"),
        ({"remote.storage.enable": "true"}, "only false is served"),
        ({"local.retention.ms": "1000"}, "only -2 is served"),
        ({"compression.type": "brotli"}, "one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ({"compression.gzip.level": "0"}, "from 1 to 9, or -1"),
        ({"compression.gzip.level": "10"}, "from 1 to 9, or -1"),
        ({"compression.gzip.level": "-2"}, "from 1 to 9, or -1"),
        ({"compression.lz4.level": "18"}, "at least 1 and at most 17"),
        ({"compression.zstd.level": "23"}, "at most 22"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "a number of at least 0 and at most 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "a number of at least 0"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "at most max.compaction.lag.ms=5"),
    ],
)
def test_what_cannot_be_followed_is_refused(overrides: dict[str, str | None], fragment: str) -> None:
    """A key that has no effect is refused, because storing it would mislead the operator. Only the blanks that Kafka takes
    away may surround a value."""
    with pytest.raises(ConfigError) as caught:
        validate_topic_overrides(overrides)
    assert fragment in str(caught.value)


def test_values_that_ask_for_what_happens_anyway_are_accepted() -> None:
    """Tools routinely send compression.type=producer, so it is accepted."""
    validate_topic_overrides({"compression.type": "producer", "retention.ms": "1"})
    validate_topic_overrides(
        {"compression.type": " producer\t", "retention.ms": "\n1 ", "cleanup.policy": "delete , compact"}
    )


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete", "delete, compact", ""])
def test_both_policies_and_none_are_served(policy: str) -> None:
    """Without a policy, records stay until they are deleted with kafka-delete-records."""
    validate_topic_overrides({"cleanup.policy": policy})
    config = topic_config(TopicConfig(), {"cleanup.policy": policy})
    assert (config.is_compacted, config.is_deleted_from) == ("compact" in policy, "delete" in policy)


def test_a_compacted_log_rolls_within_the_longest_lag() -> None:
    """Only whole segments that take no more appends are compacted."""
    lag = {"max.compaction.lag.ms": "1000"}
    assert topic_config(TopicConfig(), lag).roll_ms == TopicConfig().segment_ms
    assert topic_config(TopicConfig(), lag | {"cleanup.policy": "compact"}).roll_ms == 1000


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


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, None),
        ({"compression.type": "producer", "compression.zstd.level": "19"}, None),
        ({"compression.type": "uncompressed"}, (0, None)),
        ({"compression.type": "gzip"}, (1, -1)),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, (1, 9)),
        ({"compression.type": "snappy"}, (2, None)),
        ({"compression.type": "lz4"}, (3, 9)),
        ({"compression.type": "zstd", "compression.zstd.level": "-7"}, (4, -7)),
    ],
)
def test_the_codec_and_the_level_of_stored_batches(
    overrides: dict[str, str], expected: tuple[int, int | None] | None
) -> None:
    """compression.type gives the code, and the level that belongs to it is used. Snappy has no levels."""
    validate_topic_overrides(overrides)
    assert topic_config(TopicConfig(), overrides).stored_compression == expected
