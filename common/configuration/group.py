"""Group configuration: the keys that have an effect, the server's defaults for them, and validation (core; KIP-848).

A group's overrides are ConfigRecords in the metadata; its coordinator uses the server's defaults overlaid with them. They
may be set before the group exists, and they stay when it is deleted. Diskraft has neither share groups nor streams groups,
so their keys are refused. Counterpart of Kafka's GroupConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from common.configuration.server import ServerConfig
from common.configuration.settings import (
    INT_MAX,
    ConfigError,
    integer,
    load_readable_settings,
    load_settings,
    settings_of,
)

# The longest group id, in bytes: the keys of the records in __consumer_offsets hold no longer one.
GROUP_ID_BYTES_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of one group of the consumer protocol. Durations are in milliseconds."""

    consumer_assignment_interval_ms: int = integer(0, at_least=0, at_most=INT_MAX)
    consumer_heartbeat_interval_ms: int = integer(5_000, at_least=1, at_most=INT_MAX)
    consumer_session_timeout_ms: int = integer(45_000, at_least=1, at_most=INT_MAX)


# The keys that have an effect, in order of declaration.
GROUP_SETTINGS: Final = MappingProxyType(settings_of(GroupConfig))

# Kafka's keys of group types that Diskraft does not have. No value of them describes what happens anyway.
WITHOUT_EFFECT = frozenset(
    """
    share.auto.offset.reset share.heartbeat.interval.ms share.isolation.level share.record.lock.duration.ms
    share.session.timeout.ms streams.heartbeat.interval.ms streams.num.standby.replicas streams.session.timeout.ms
    """.split()
)


def server_key(key: str) -> str:
    """Returns the server's key for groups that do not set this one."""
    return f"group.{key}"


def default_group_config(server: ServerConfig) -> GroupConfig:
    """Returns this server's settings for a group without overrides. An assignment interval that was set for all brokers, and
    is outside this one's bounds, counts as the nearest that is inside, as in Kafka."""
    least, most = server.group_consumer_min_assignment_interval_ms, server.group_consumer_max_assignment_interval_ms
    return GroupConfig(
        consumer_assignment_interval_ms=min(max(least, server.group_consumer_assignment_interval_ms), most),
        consumer_heartbeat_interval_ms=server.group_consumer_heartbeat_interval_ms,
        consumer_session_timeout_ms=server.group_consumer_session_timeout_ms,
    )


def group_config(defaults: GroupConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """Returns `defaults` overlaid with a group's overrides. An override that cannot be read is skipped."""
    if not overrides:
        return defaults
    return replace(defaults, **load_readable_settings(GroupConfig, overrides))


def validate_group_overrides(server: ServerConfig, overrides: Mapping[str, str]) -> None:
    """Raises ConfigError for an unknown key, one without effect, and an invalid value. Values are also invalid if, together
    with the server's defaults, they are outside the server's bounds or contradict each other."""
    for key in sorted(overrides):
        if key in WITHOUT_EFFECT:
            raise ConfigError(f"{key} has no effect in this version; leave it out")
        if key not in GROUP_SETTINGS:
            raise ConfigError(f"Unknown group config name: {key}")
    config = replace(default_group_config(server), **load_settings(GroupConfig, overrides))
    validate_assignment_interval(server, prefix="consumer", assignment_interval_ms=config.consumer_assignment_interval_ms)
    validate_consumer_times(
        server,
        prefix="consumer",
        heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
        session_timeout_ms=config.consumer_session_timeout_ms,
    )


def validate_consumer_times(
    config: ServerConfig, *, prefix: str, heartbeat_interval_ms: int, session_timeout_ms: int
) -> None:
    """Validates the two times of consumer groups, or of one group, against the server's bounds. `prefix` is what their keys
    begin with. Raises ConfigError."""
    _validate_bounds(
        f"{prefix}.heartbeat.interval.ms",
        heartbeat_interval_ms,
        config.group_consumer_min_heartbeat_interval_ms,
        config.group_consumer_max_heartbeat_interval_ms,
    )
    _validate_bounds(
        f"{prefix}.session.timeout.ms",
        session_timeout_ms,
        config.group_consumer_min_session_timeout_ms,
        config.group_consumer_max_session_timeout_ms,
    )
    if heartbeat_interval_ms >= session_timeout_ms:
        raise ConfigError(
            f"{prefix}.heartbeat.interval.ms={heartbeat_interval_ms} is not valid; "
            f"it takes less than {prefix}.session.timeout.ms={session_timeout_ms}"
        )


def validate_assignment_interval(config: ServerConfig, *, prefix: str, assignment_interval_ms: int) -> None:
    """Validates the time between two assignments of consumer groups, or of one group. Raises ConfigError."""
    _validate_bounds(
        f"{prefix}.assignment.interval.ms",
        assignment_interval_ms,
        config.group_consumer_min_assignment_interval_ms,
        config.group_consumer_max_assignment_interval_ms,
    )


def _validate_bounds(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        name = key.removeprefix("group.").removeprefix("consumer.")
        raise ConfigError(
            f"{key}={value} is not valid; it takes from group.consumer.min.{name}={least} "
            f"to group.consumer.max.{name}={most}"
        )
