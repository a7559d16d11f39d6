"""Keeps the configuration that is in effect on this broker, and notifies subscribers of changes (core; KIP-226).

`metadata_changed` is called with every change of the metadata. Code that needs a value only at the moment of use
reads `server`. Code that must act when a value changes subscribes.
"""

from collections.abc import Callable

from common.configuration.group import GroupConfig, default_group_config, group_config
from common.configuration.resolver import ConfigResolver, DynamicConfigs
from common.configuration.server import DYNAMIC_KEYS, ServerConfig
from common.configuration.settings import field_of
from common.configuration.topic import TopicConfig, default_topic_config, topic_config
from common.metadata.delta import MetadataDelta
from common.records.metadata_records import ConfigResourceType


class CurrentConfiguration:
    """See the module docstring. `dynamic` is the broker's image of the metadata."""

    def __init__(self, resolver: ConfigResolver, dynamic: DynamicConfigs) -> None:
        self._resolver = resolver
        self._dynamic = dynamic
        self._subscribers: list[Callable[[], None]] = []
        self._server = resolver.server_config(dynamic)
        # The configuration of a topic without overrides. Invariant: derived from `_server`.
        self._topic_defaults = default_topic_config(self._server)
        # The configuration of a group without overrides. Invariant: derived from `_server`.
        self._group_defaults = default_group_config(self._server)

    @property
    def server(self) -> ServerConfig:
        """The broker's configuration as of the last refresh."""
        return self._server

    def topic(self, name: str) -> TopicConfig:
        """Returns the configuration of a topic: its overrides from the newest image, and the defaults as of the last refresh
        for all other keys."""
        return topic_config(self._topic_defaults, self._dynamic.config(ConfigResourceType.TOPIC, name))

    def group(self, group_id: str) -> GroupConfig:
        """Returns the configuration of a group: its overrides from the newest image, and the defaults for all other keys."""
        return group_config(self._group_defaults, self._dynamic.config(ConfigResourceType.GROUP, group_id))

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Calls `on_change` after every refresh that changed a value of the broker's configuration."""
        self._subscribers.append(on_change)

    def metadata_changed(self, delta: MetadataDelta) -> list[str]:
        """Refreshes if the delta contains broker configuration. Returns the keys whose values changed."""
        is_about_brokers = any(resource_type == ConfigResourceType.BROKER for resource_type, _ in delta.changed_configs)
        return self.refresh() if is_about_brokers else []

    def refresh(self) -> list[str]:
        """Resolves the broker's configuration again and returns the keys whose values changed. If there are any, the
        subscribers are notified."""
        before, self._server = self._server, self._resolver.server_config(self._dynamic)
        changed = [
            key for key in sorted(DYNAMIC_KEYS) if getattr(before, field_of(key)) != getattr(self._server, field_of(key))
        ]
        if changed:
            self._topic_defaults = default_topic_config(self._server)
            self._group_defaults = default_group_config(self._server)
            for on_change in self._subscribers:
                on_change()
        return changed
