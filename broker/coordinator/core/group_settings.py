"""The settings of the group coordinator that its decisions depend on (core)."""

from dataclasses import dataclass

from common.configuration.server import ServerConfig
from common.time_units import MS_PER_HOUR, MS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Each field is the configuration key of the same name with dots for underscores, in milliseconds where it is a time.
    The defaults are Kafka's."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The names of the assignors; the first is the default."""
    group_consumer_migration_policy: str = "bidirectional"
    """In which direction groups with members change their protocol: disabled, upgrade, downgrade or bidirectional."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * MS_PER_HOUR
    """From `offsets.retention.minutes`."""
    batch_bytes_max: int = 1_048_588
    """From `max.message.bytes` of `__consumer_offsets`: what the records of one step may come to as a batch."""

    @property
    def can_upgrade_groups(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.group_consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def can_downgrade_groups(self) -> bool:
        """Whether a consumer group that only classic members are left in becomes a classic group."""
        return self.group_consumer_migration_policy in ("downgrade", "bidirectional")

    @property
    def keeps_protocols_apart(self) -> bool:
        """Whether a consumer group takes no classic members: it could never get back to one protocol (KAFKA-20640)."""
        return self.group_consumer_migration_policy == "disabled"


def group_settings(config: ServerConfig, batch_bytes_max: int) -> GroupSettings:
    """Derives the settings from server.properties."""
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=config.group_consumer_assignors,
        group_consumer_migration_policy=config.group_consumer_migration_policy,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * MS_PER_MINUTE,
        batch_bytes_max=batch_bytes_max,
    )
