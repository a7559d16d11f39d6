"""Topic configuration: the keys that have an effect, the server's defaults for them, and validation (core).

A topic's overrides are ConfigRecords in the metadata; a partition uses the server's defaults overlaid with its topic's
overrides. A Kafka key that has no effect yet is rejected, unless its value asks for what Diskraft does anyway. An override
with such a value is stored like any other and changes nothing. Counterpart of Kafka's LogConfig.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from common.configuration.server import (
    CLEANUP_POLICIES,
    COMPACT,
    COMPRESSION_CODES,
    COMPRESSION_TYPES,
    CREATE_TIME,
    DELETE,
    GZIP_LEVELS,
    GZIP_LEVELS_ALLOWED,
    LOG_APPEND_TIME,
    LZ4_LEVELS,
    PRODUCER,
    TIMESTAMP_TYPES,
    ZSTD_LEVELS,
    ServerConfig,
    parse_gzip_level,
)
from common.configuration.settings import (
    BLANKS,
    INT_MAX,
    LONG_MAX,
    ConfigError,
    ConfigType,
    boolean,
    choice,
    custom,
    decimal,
    integer,
    load_readable_settings,
    load_settings,
    settings_of,
    words,
)
from common.time_units import MS_PER_HOUR

_THROTTLED_REPLICA = re.compile("[0-9]+:[0-9]+")


def _parse_throttled_replicas(value: str) -> tuple[str, ...]:
    parts = tuple(part for each in value.split(",") if (part := each.strip(BLANKS)))
    if parts != ("*",) and not all(_THROTTLED_REPLICA.fullmatch(part) for part in parts):
        raise ValueError
    return parts


THROTTLED_REPLICAS = "* or a list of PARTITION:BROKER separated by commas"


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """The settings of one topic's logs. Durations are in milliseconds, sizes in bytes. No slots, because what every append
    asks for is computed once and kept."""

    cleanup_policy: tuple[str, ...] = words((DELETE,), among=CLEANUP_POLICIES)
    compression_gzip_level: int = custom(parse_gzip_level, GZIP_LEVELS_ALLOWED, GZIP_LEVELS[0], ConfigType.INT)
    compression_lz4_level: int = integer(LZ4_LEVELS[0], at_least=LZ4_LEVELS[1], at_most=LZ4_LEVELS[2])
    compression_type: str = choice(PRODUCER, among=COMPRESSION_TYPES)
    compression_zstd_level: int = integer(ZSTD_LEVELS[0], at_least=ZSTD_LEVELS[1], at_most=ZSTD_LEVELS[2])
    delete_retention_ms: int = integer(86_400_000, at_least=0)
    file_delete_delay_ms: int = integer(60_000, at_least=0)
    flush_messages: int = integer(LONG_MAX, at_least=1)
    flush_ms: int = integer(LONG_MAX, at_least=0)
    # The replicas to which replication is throttled (KIP-73), each as PARTITION:BROKER, or "*" for all.
    follower_replication_throttled_replicas: tuple[str, ...] = custom(
        _parse_throttled_replicas, THROTTLED_REPLICAS, (), ConfigType.LIST
    )
    index_interval_bytes: int = integer(4_096, at_least=0, at_most=INT_MAX)
    leader_replication_throttled_replicas: tuple[str, ...] = custom(
        _parse_throttled_replicas, THROTTLED_REPLICAS, (), ConfigType.LIST
    )
    max_compaction_lag_ms: int = integer(LONG_MAX, at_least=1)
    max_message_bytes: int = integer(1_048_588, at_least=0, at_most=INT_MAX)
    message_timestamp_after_max_ms: int = integer(3_600_000, at_least=0)
    message_timestamp_before_max_ms: int = integer(LONG_MAX, at_least=0)
    message_timestamp_type: str = choice(CREATE_TIME, among=TIMESTAMP_TYPES)
    min_cleanable_dirty_ratio: float = decimal(0.5, at_least=0, at_most=1)
    min_compaction_lag_ms: int = integer(0, at_least=0)
    min_insync_replicas: int = integer(1, at_least=1, at_most=INT_MAX)
    # Any negative number means no limit, as in Kafka.
    retention_bytes: int = integer(-1)
    retention_ms: int = integer(604_800_000, at_least=-1)
    segment_bytes: int = integer(1024**3, at_least=14, at_most=INT_MAX)
    segment_index_bytes: int = integer(10 * 1024 * 1024, at_least=4, at_most=INT_MAX)
    segment_jitter_ms: int = integer(0, at_least=0)
    segment_ms: int = integer(604_800_000, at_least=1)
    unclean_leader_election_enable: bool = boolean(False)

    @cached_property
    def is_compacted(self) -> bool:
        """Whether the log keeps only the latest record of each key."""
        return COMPACT in self.cleanup_policy

    @property
    def is_deleted_from(self) -> bool:
        """Whether old segments are deleted by retention.ms and retention.bytes."""
        return DELETE in self.cleanup_policy

    @cached_property
    def stored_compression(self) -> tuple[int, int | None] | None:
        """The code and the level of the codec with which the leader stores batches; None if it stores them as they are
        sent. The level is None if the codec has no levels."""
        if self.compression_type == PRODUCER:
            return None
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return COMPRESSION_CODES[self.compression_type], levels.get(self.compression_type)

    @cached_property
    def has_log_append_time(self) -> bool:
        """Whether the broker sets the timestamps."""
        return self.message_timestamp_type == LOG_APPEND_TIME

    @cached_property
    def roll_ms(self) -> int:
        """How long a segment takes appends. A compacted log rolls in time to be compacted within max.compaction.lag.ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @cached_property
    def roll_jitter_ms(self) -> int:
        """A segment is rolled earlier by less than this. More than `roll_ms` would roll it with every batch."""
        return min(self.segment_jitter_ms, self.roll_ms)


# The keys that have an effect, in order of declaration.
TOPIC_SETTINGS: Final = MappingProxyType(settings_of(TopicConfig))

# Kafka's keys that have no effect yet, each with the only value that is accepted, because it describes what happens anyway.
# None means that no value is accepted.
WITHOUT_EFFECT: Mapping[str, str | None] = {
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "message.downconversion.enable": None,
    "message.timestamp.difference.max.ms": None,
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
}

# The entries of WITHOUT_EFFECT that have a value. They are reported for every topic, because some clients look up a key
# without checking whether it exists.
SERVED_ANYWAY: Mapping[str, str] = {key: value for key, value in WITHOUT_EFFECT.items() if value is not None}

# The type of each key in SERVED_ANYWAY, as in Kafka's LogConfig.
SERVED_TYPES: Final[Mapping[str, ConfigType]] = MappingProxyType(
    {key: ConfigType.BOOLEAN if value in ("true", "false") else ConfigType.LONG for key, value in SERVED_ANYWAY.items()}
)

# The broker-level keys that hold the default of a topic's key. If there are several, the first one that is set wins.
BROKER_KEYS: Final = MappingProxyType[str, tuple[str, ...]](
    {
        "cleanup.policy": ("log.cleanup.policy",),
        "compression.gzip.level": ("compression.gzip.level",),
        "compression.lz4.level": ("compression.lz4.level",),
        "compression.type": ("compression.type",),
        "compression.zstd.level": ("compression.zstd.level",),
        "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
        "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
        "flush.messages": ("log.flush.interval.messages",),
        "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "follower.replication.throttled.replicas": (),
        "index.interval.bytes": ("log.index.interval.bytes",),
        "leader.replication.throttled.replicas": (),
        "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
        "max.message.bytes": ("message.max.bytes",),
        "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
        "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
        "message.timestamp.type": ("log.message.timestamp.type",),
        "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
        "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
        "min.insync.replicas": ("min.insync.replicas",),
        "retention.bytes": ("log.retention.bytes",),
        "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "segment.bytes": ("log.segment.bytes",),
        "segment.index.bytes": ("log.index.size.max.bytes",),
        "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        "segment.ms": ("log.roll.ms", "log.roll.hours"),
        "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    }
)


def default_topic_config(server: ServerConfig) -> TopicConfig:
    """Returns this server's settings for a topic without overrides."""
    return TopicConfig(
        cleanup_policy=server.log_cleanup_policy,
        compression_gzip_level=server.compression_gzip_level,
        compression_lz4_level=server.compression_lz4_level,
        compression_type=server.compression_type,
        compression_zstd_level=server.compression_zstd_level,
        delete_retention_ms=server.log_cleaner_delete_retention_ms,
        file_delete_delay_ms=server.log_segment_delete_delay_ms,
        flush_messages=server.log_flush_interval_messages,
        flush_ms=server.flush_ms,
        index_interval_bytes=server.log_index_interval_bytes,
        max_compaction_lag_ms=server.log_cleaner_max_compaction_lag_ms,
        max_message_bytes=server.message_max_bytes,
        message_timestamp_after_max_ms=server.log_message_timestamp_after_max_ms,
        message_timestamp_before_max_ms=server.log_message_timestamp_before_max_ms,
        message_timestamp_type=server.log_message_timestamp_type,
        min_cleanable_dirty_ratio=server.log_cleaner_min_cleanable_ratio,
        min_compaction_lag_ms=server.log_cleaner_min_compaction_lag_ms,
        min_insync_replicas=server.min_insync_replicas,
        retention_bytes=server.log_retention_bytes,
        retention_ms=server.retention_ms,
        segment_bytes=server.log_segment_bytes,
        segment_index_bytes=server.log_index_size_max_bytes,
        segment_jitter_ms=(
            server.log_roll_jitter_hours * MS_PER_HOUR if server.log_roll_jitter_ms is None else server.log_roll_jitter_ms
        ),
        segment_ms=server.log_roll_ms if server.log_roll_ms is not None else server.log_roll_hours * MS_PER_HOUR,
        unclean_leader_election_enable=server.unclean_leader_election_enable,
    )


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Returns `defaults` overlaid with a topic's overrides. An override that cannot be read is skipped."""
    if not overrides:
        return defaults
    return replace(defaults, **load_readable_settings(TopicConfig, overrides))


def validate_policies(key: str, value: str) -> None:
    """Raises ConfigError if a policy in the list is empty or occurs twice. With such a topic, brokers of Apache Kafka would
    create no log of it, and start no more. With such a default, they would apply no dynamic defaults at all."""
    policies = [each.strip(BLANKS) for each in value.split(",")] if value.strip(BLANKS) else []
    if not all(policies):
        raise ConfigError(f"{key}={value} is not valid; no policy may be empty")
    if len(set(policies)) < len(policies):
        raise ConfigError(f"{key}={value} is not valid; no policy may occur twice")


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raises ConfigError for an unknown key, an invalid value, or a key in WITHOUT_EFFECT with any value but the accepted
    one."""
    for key in sorted(overrides):
        value = overrides[key]
        if value is None:
            raise ConfigError(f"{key} has no value; leave it out to use the default")
        if key in WITHOUT_EFFECT:
            served = WITHOUT_EFFECT[key]
            if value != served:
                allowed = f"only {served or 'an empty value'} is served" if served is not None else "leave it out"
                raise ConfigError(f"{key}={value} has no effect in this version; {allowed}")
        elif key not in TOPIC_SETTINGS:
            raise ConfigError(f"Unknown topic config name: {key}")
        elif key == "cleanup.policy":
            validate_policies(key, value)
    values = load_settings(
        TopicConfig, {key: value for key, value in overrides.items() if key in TOPIC_SETTINGS and value is not None}
    )
    shortest, longest = values.get("min_compaction_lag_ms"), values.get("max_compaction_lag_ms")
    if shortest is not None and longest is not None and shortest > longest:
        raise ConfigError(f"min.compaction.lag.ms={shortest} is not valid; it takes at most max.compaction.lag.ms={longest}")
