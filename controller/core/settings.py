"""The part of the configuration that the controller's operations depend on (core).

The settings are an immutable value, so that operations stay functions of their arguments. Durations are in nanoseconds, as
everywhere in the code; the configuration's keys are in milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from common.configuration.resolver import ConfigResolver
from common.configuration.server import ServerConfig
from common.time_units import NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The settings that the controller's operations need."""

    cluster_id: str
    session_timeout_ns: int
    # Resolves the configuration that is in effect on this node, together with the metadata state.
    resolver: ConfigResolver
    num_partitions: int = 1
    default_replication_factor: int = 1
    is_topic_deletion_enabled: bool = True
    # Whether brokers in ZooKeeper mode may register.
    is_zk_migration_enabled: bool = False


def controller_settings(config: ServerConfig, properties: Mapping[str, str], cluster_id: str) -> ControllerSettings:
    """Derives the settings from server.properties: `properties` are its entries as written, `config` is the configuration
    loaded from them."""
    return ControllerSettings(
        cluster_id=cluster_id,
        session_timeout_ns=config.broker_session_timeout_ms * NS_PER_MS,
        resolver=ConfigResolver(config, properties),
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        is_topic_deletion_enabled=config.delete_topic_enable,
        is_zk_migration_enabled=config.zookeeper_metadata_migration_enable,
    )
