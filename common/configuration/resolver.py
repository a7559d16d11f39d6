"""Resolves the effective configuration: chooses among the values that are set for each key (core; KIP-226).

A node applies the values resolved here, and DescribeConfigs shows them. A key can be set in several places, and the first
place that sets it counts:

1. the topic (only for topic keys),
2. the dynamic configuration of this broker,
3. the dynamic configuration of all brokers, the cluster-wide default,
4. server.properties,
5. the built-in default.

A topic key has another name in places 2 to 5, and sometimes several names. The place counts before the name: only if one
place sets several of the names does the order of the names matter.

Dynamic configuration is in ConfigRecords. The controller validates a value before it writes the record, but the record may
come from another version of the software. This node skips a value that it cannot read, as Kafka does: if the value stopped
the node, no request to the node could correct it.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Protocol

from common.configuration.server import (
    DYNAMIC_KEYS,
    MOVE_RATE_NAMES,
    NODE_ID_NAMES,
    SERVER_SETTINGS,
    ServerConfig,
    with_both_move_rates,
)
from common.configuration.settings import is_readable, key_of, load_readable_settings
from common.configuration.topic import BROKER_KEYS, TOPIC_SETTINGS, TopicConfig
from common.configuration.value_text import value_text
from common.records.metadata_records import ConfigResourceType

# The resource name of the cluster-wide default.
CLUSTER_DEFAULT_NAME = ""

# The built-in defaults as text. A mandatory key and an optional one without a default are left out.
_SERVER_DEFAULTS: Final = MappingProxyType(
    {
        key_of(field.name): text
        for field in dataclasses.fields(ServerConfig)
        if field.default is not dataclasses.MISSING and (text := value_text(field.default)) is not None
    }
)
_TOPIC_DEFAULTS: Final = MappingProxyType(
    {key_of(field.name): value_text(field.default) for field in dataclasses.fields(TopicConfig)}
)


class ConfigSource(IntEnum):
    """Where a value is set, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the values that are set for a key, with the name under which it is set."""

    name: str
    value: str | None
    source: ConfigSource


class DynamicConfigs(Protocol):
    """The content of the replayed ConfigRecords (`MetadataState`)."""

    def config(self, resource_type: int, resource_name: str) -> Mapping[str, str]: ...


class ConfigResolver:
    """Resolves the configuration of one node. `properties` are the entries of server.properties as written, `server` is the
    configuration loaded from them."""

    def __init__(self, server: ServerConfig, properties: Mapping[str, str]) -> None:
        self._server = server
        self._properties = properties
        self._broker_name = str(server.node_id)

    @property
    def node_name(self) -> str:
        """The name of this node as a resource of type BROKER."""
        return self._broker_name

    # --- values --------------------------------------------------------------------------------------------------

    def server_config(self, dynamic: DynamicConfigs) -> ServerConfig:
        """Returns the node's configuration, including dynamic configuration."""
        values: dict[str, Any] = {}
        for name in (CLUSTER_DEFAULT_NAME, self._broker_name):
            # Resolve the two names of the move rate separately for each place, because the place counts before the name.
            configs = with_both_move_rates(self._applicable(dynamic, name))
            values |= load_readable_settings(ServerConfig, configs)
        return dataclasses.replace(self._server, **values) if values else self._server

    # --- synonyms ------------------------------------------------------------------------------------------------

    def topic_synonyms(self, dynamic: DynamicConfigs, overrides: Mapping[str, str], key: str) -> Sequence[ConfigSynonym]:
        """Returns every value that is set for a topic's key, and the default. The first one counts. `overrides` are the
        topic's own settings. The result is never empty."""
        synonyms: list[ConfigSynonym] = []
        if key in overrides and is_readable(TOPIC_SETTINGS[key], overrides[key]):
            synonyms.append(ConfigSynonym(key, overrides[key], ConfigSource.DYNAMIC_TOPIC_CONFIG))
        synonyms += self._synonyms(dynamic, BROKER_KEYS[key])
        if not BROKER_KEYS[key]:
            synonyms.append(ConfigSynonym(key, _TOPIC_DEFAULTS[key], ConfigSource.DEFAULT_CONFIG))
        return synonyms

    def broker_synonyms(self, dynamic: DynamicConfigs, key: str) -> Sequence[ConfigSynonym]:
        """Returns every value that is set for a broker's key, and the default if there is one. The first one counts."""
        names = next((names for names in (MOVE_RATE_NAMES, NODE_ID_NAMES) if key in names), (key,))
        return list(self._synonyms(dynamic, names))

    def _synonyms(self, dynamic: DynamicConfigs, names: Sequence[str]) -> Iterator[ConfigSynonym]:
        for source, values in (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self._applicable(dynamic, self._broker_name)),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self._applicable(dynamic, CLUSTER_DEFAULT_NAME)),
            (ConfigSource.STATIC_BROKER_CONFIG, self._properties),
            (ConfigSource.DEFAULT_CONFIG, _SERVER_DEFAULTS),
        ):
            for name in names:
                if name in values:
                    yield ConfigSynonym(name, values[name], source)

    def _applicable(self, dynamic: DynamicConfigs, broker_name: str) -> Mapping[str, str]:
        """Returns the dynamic configuration of a broker or of all brokers, without entries that this node cannot apply."""
        configs = dynamic.config(ConfigResourceType.BROKER, broker_name)
        return {
            key: value for key, value in configs.items() if key in DYNAMIC_KEYS and is_readable(SERVER_SETTINGS[key], value)
        }
