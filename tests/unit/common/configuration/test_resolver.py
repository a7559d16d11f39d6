"""The resolver decides which of the values that are set for a key is in effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from common.configuration.resolver import ConfigResolver, ConfigSource
from common.configuration.server import DYNAMIC_KEYS, MOVE_RATE_NAMES
from common.configuration.server_loading import load_server_config
from common.configuration.settings import settings_of
from common.configuration.topic import BROKER_KEYS, TopicConfig, default_topic_config, topic_config
from tests.unit.common.configuration.node_properties import BROKER as PROPERTIES

TOPIC, BROKER = 2, 4
NODE_ID = PROPERTIES["node.id"]
MOVE_RATE, MOVE_RATE_OF_THE_KIP = MOVE_RATE_NAMES


@dataclass
class Dynamic:
    """Dynamic configuration of a topic, of this broker and of all brokers. Other resources have none."""

    topic: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    everywhere: Mapping[str, str] = field(default_factory=dict)

    def config(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        resources = {(TOPIC, "t"): self.topic, (BROKER, NODE_ID): self.own, (BROKER, ""): self.everywhere}
        return resources.get((resource_type, resource_name), {})


def resolver(**properties: str) -> ConfigResolver:
    given = PROPERTIES | {key.replace("_", "."): value for key, value in properties.items()}
    return ConfigResolver(load_server_config(given), given)


def topic_config_of(given: ConfigResolver, dynamic: Dynamic, topic: str) -> TopicConfig:
    return topic_config(default_topic_config(given.server_config(dynamic)), dynamic.config(TOPIC, topic))


@pytest.mark.parametrize(
    ("properties", "dynamic", "expected"),
    [
        ({}, Dynamic(), 604_800_000),
        ({"log_retention_ms": "4"}, Dynamic(), 4),
        ({"log_retention_ms": "4"}, Dynamic(everywhere={"log.retention.ms": "3"}), 3),
        ({"log_retention_ms": "4"}, Dynamic(own={"log.retention.ms": "2"}, everywhere={"log.retention.ms": "3"}), 2),
        ({"log_retention_ms": "4"}, Dynamic(own={"log.retention.ms": "2"}, topic={"retention.ms": "1"}), 1),
        ({"log_retention_minutes": "4"}, Dynamic(everywhere={"log.retention.ms": "3"}), 3),
    ],
)
def test_the_first_place_that_sets_a_value_counts(properties: dict[str, str], dynamic: Dynamic, expected: int) -> None:
    """The order is topic, this broker, all brokers, server.properties, default. The order of the places matters more than
    that of the units: log.retention.ms of all brokers beats log.retention.minutes in server.properties."""
    assert topic_config_of(resolver(**properties), dynamic, "t").retention_ms == expected


def test_a_topic_without_overrides_gets_the_dynamic_defaults() -> None:
    """A topic does not get the overrides of another topic."""
    dynamic = Dynamic(topic={"min.insync.replicas": "3"}, everywhere={"min.insync.replicas": "2"})
    assert topic_config_of(resolver(), dynamic, "other").min_insync_replicas == 2
    assert resolver().server_config(dynamic).min_insync_replicas == 2


@pytest.mark.parametrize(
    ("own", "everywhere", "properties", "expected"),
    [
        ({}, {}, {MOVE_RATE_OF_THE_KIP: "1"}, 1),
        ({}, {}, {MOVE_RATE: "2", MOVE_RATE_OF_THE_KIP: "1"}, 2),
        ({}, {MOVE_RATE_OF_THE_KIP: "3"}, {MOVE_RATE: "2"}, 3),
        ({MOVE_RATE_OF_THE_KIP: "4"}, {MOVE_RATE: "3"}, {MOVE_RATE: "2"}, 4),
        ({MOVE_RATE_OF_THE_KIP: "4", MOVE_RATE: "5"}, {}, {}, 5),
        ({MOVE_RATE_OF_THE_KIP: "4", MOVE_RATE: "fast"}, {}, {}, 4),
    ],
)
def test_the_two_names_of_the_move_rate(
    own: dict[str, str], everywhere: dict[str, str], properties: dict[str, str], expected: int
) -> None:
    """If both names are set at the same place, Apache Kafka's name takes precedence. If they are set at different places,
    the place decides. Both names show the resulting rate."""
    given = PROPERTIES | properties
    config = ConfigResolver(load_server_config(given), given).server_config(Dynamic(own=own, everywhere=everywhere))
    assert config.replica_alter_log_dirs_io_max_bytes_per_second == expected
    assert config.intra_broker_throttled_rate == expected


def test_the_number_of_mover_threads_is_that_of_the_directories_unless_it_is_set() -> None:
    """The default is that of KIP-113: one thread for each directory."""
    given = resolver(log_dirs="/a,/b,/c")
    assert given.server_config(Dynamic()).replica_alter_log_dirs_threads == 3
    changed = Dynamic(own={"num.replica.alter.log.dirs.threads": "1"})
    assert given.server_config(changed).replica_alter_log_dirs_threads == 1


def test_what_this_node_cannot_apply_is_passed_over() -> None:
    """A record written by another version may hold an invalid value, an unknown key, or a key that only a restart can
    change. The resolver ignores such a value. The next value in the order is in effect and is the first synonym."""
    dynamic = Dynamic(
        topic={"segment.bytes": "big", "cleanup.policy": "delete", "min.insync.replicas": "2"},
        own={"log.segment.bytes": "small", "no.such": "1", "num.partitions": "7"},
        everywhere={"log.segment.bytes": "2048"},
    )
    given = resolver(log_segment_bytes="1024")
    config = topic_config_of(given, dynamic, "t")
    assert (config.segment_bytes, config.min_insync_replicas) == (2048, 2)
    assert given.server_config(dynamic).num_partitions == 1
    synonyms = given.topic_synonyms(dynamic, dynamic.topic, "segment.bytes")
    assert [(each.value, each.source) for each in synonyms] == [
        ("2048", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("1024", ConfigSource.STATIC_BROKER_CONFIG),
        ("1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert [each.source for each in given.broker_synonyms(dynamic, "num.partitions")] == [ConfigSource.DEFAULT_CONFIG]


def test_a_key_without_a_brokers_key_has_its_own_default() -> None:
    """No broker key gives a default for a topic's throttled replicas."""
    (synonym,) = resolver().topic_synonyms(Dynamic(), {}, "leader.replication.throttled.replicas")
    assert (synonym.name, synonym.value) == ("leader.replication.throttled.replicas", "")
    assert synonym.source is ConfigSource.DEFAULT_CONFIG


def test_the_default_of_every_topic_key_can_be_changed_for_the_whole_cluster() -> None:
    """For each topic key, the first of its broker keys is dynamic. The other broker keys of a duration, such as
    log.retention.hours, are not, as in Kafka."""
    assert {keys[0] for keys in BROKER_KEYS.values() if keys} <= DYNAMIC_KEYS
    assert sorted(BROKER_KEYS) == sorted(settings_of(TopicConfig))
