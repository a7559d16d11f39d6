"""Topic configuration: the keys that have an effect, the server's defaults for them, and validation (core).

A topic's overrides are ConfigRecords in the metadata; a partition uses the server's defaults overlaid with its topic's
overrides. A Kafka key that has no effect yet is rejected, unless its value asks for what Diskraft does anyway. An override
with such a value is stored like any other and changes nothing. Counterpart of Kafka's LogConfig.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from common.configuration.server import ServerConfig
from common.configuration.settings import (
    INT_MAX,
    ConfigError,
    ConfigType,
    boolean,
    custom,
    integer,
    keys_of,
    load_readable_settings,
    load_settings,
)

_THROTTLED_REPLICA = re.compile("[0-9]+:[0-9]+")


def _parse_throttled_replicas(value: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in value.split(",") if part.strip())
    if parts != ("*",) and not all(_THROTTLED_REPLICA.fullmatch(part) for part in parts):
        raise ValueError
    return parts


THROTTLED_REPLICAS = "* or a list of PARTITION:BROKER separated by commas"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic's logs. Durations are in milliseconds, sizes in bytes."""

    file_delete_delay_ms: int = integer(60_000, at_least=0)
    # The replicas to which replication is throttled (KIP-73), each as PARTITION:BROKER, or "*" for all.
    follower_replication_throttled_replicas: tuple[str, ...] = custom(
        _parse_throttled_replicas, THROTTLED_REPLICAS, (), ConfigType.LIST
    )
    index_interval_bytes: int = integer(4_096, at_least=0, at_most=INT_MAX)
    leader_replication_throttled_replicas: tuple[str, ...] = custom(
        _parse_throttled_replicas, THROTTLED_REPLICAS, (), ConfigType.LIST
    )
    max_message_bytes: int = integer(1_048_588, at_least=0, at_most=INT_MAX)
    min_insync_replicas: int = integer(1, at_least=1, at_most=INT_MAX)
    retention_bytes: int = integer(-1, at_least=-1)
    retention_ms: int = integer(604_800_000, at_least=-1)
    segment_bytes: int = integer(1024**3, at_least=14, at_most=INT_MAX)
    segment_index_bytes: int = integer(10 * 1024 * 1024, at_least=4, at_most=INT_MAX)
    segment_ms: int = integer(604_800_000, at_least=1)
    unclean_leader_election_enable: bool = boolean(False)


# Kafka's keys that have no effect yet, each with the only value that is accepted, because it describes what happens anyway.
# None means that no value is accepted.
WITHOUT_EFFECT: Mapping[str, str | None] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": None,
    "compression.lz4.level": None,
    "compression.type": "producer",
    "compression.zstd.level": None,
    "delete.retention.ms": None,
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "local.retention.bytes": None,
    "local.retention.ms": None,
    "max.compaction.lag.ms": None,
    "message.downconversion.enable": None,
    "message.timestamp.after.max.ms": None,
    "message.timestamp.before.max.ms": None,
    "message.timestamp.difference.max.ms": None,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": None,
    "min.compaction.lag.ms": None,
    "preallocate": "false",
    "remote.storage.enable": "false",
    "segment.jitter.ms": "0",
}

# The entries of WITHOUT_EFFECT that have a value. They are reported for every topic, because some clients look up a key
# without checking whether it exists.
SERVED_ANYWAY: Mapping[str, str] = {key: value for key, value in WITHOUT_EFFECT.items() if value is not None}

# The entries of WITHOUT_EFFECT whose values are lists.
LIST_WITHOUT_EFFECT = frozenset({"cleanup.policy"})

# The broker-level keys that hold the default of a topic's key. If there are several, the first one that is set wins.
BROKER_KEYS: Final = MappingProxyType[str, tuple[str, ...]](
    {
        "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
        "follower.replication.throttled.replicas": (),
        "index.interval.bytes": ("log.index.interval.bytes",),
        "leader.replication.throttled.replicas": (),
        "max.message.bytes": ("message.max.bytes",),
        "min.insync.replicas": ("min.insync.replicas",),
        "retention.bytes": ("log.retention.bytes",),
        "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "segment.bytes": ("log.segment.bytes",),
        "segment.index.bytes": ("log.index.size.max.bytes",),
        "segment.ms": ("log.roll.ms", "log.roll.hours"),
        "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    }
)


def default_topic_config(server: ServerConfig) -> TopicConfig:
    """Returns this server's settings for a topic without overrides."""
    return TopicConfig(
        file_delete_delay_ms=server.log_segment_delete_delay_ms,
        index_interval_bytes=server.log_index_interval_bytes,
        max_message_bytes=server.message_max_bytes,
        min_insync_replicas=server.min_insync_replicas,
        retention_bytes=server.log_retention_bytes,
        retention_ms=server.retention_ms,
        segment_bytes=server.log_segment_bytes,
        segment_index_bytes=server.log_index_size_max_bytes,
        segment_ms=server.log_roll_ms if server.log_roll_ms is not None else server.log_roll_hours * 3_600_000,
        unclean_leader_election_enable=server.unclean_leader_election_enable,
    )


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Returns `defaults` overlaid with a topic's overrides. An override that cannot be read is skipped."""
    if not overrides:
        return defaults
    return replace(defaults, **load_readable_settings(TopicConfig, overrides))


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raises ConfigError for an unknown key, an invalid value, or a key in WITHOUT_EFFECT with any value but the accepted
    one."""
    known = frozenset(keys_of(TopicConfig))
    for key in sorted(overrides):
        value = overrides[key]
        if value is None:
            raise ConfigError(f"{key} has no value; leave it out to use the default")
        if key in WITHOUT_EFFECT:
            served = WITHOUT_EFFECT[key]
            if value != served:
                allowed = f"only {served or 'an empty value'} is served" if served is not None else "leave it out"
                raise ConfigError(f"{key}={value} has no effect in this version; {allowed}")
        elif key not in known:
            raise ConfigError(f"Unknown topic config name: {key}")
    load_settings(TopicConfig, {key: value for key, value in overrides.items() if key in known and value is not None})
