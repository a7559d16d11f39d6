"""Describes the configuration of a topic, a group, this node or all brokers, with the source of each value (core).

Counterpart of Kafka's ConfigHelper, for the listeners of brokers and controllers. The values and their sources come from the
same resolver as the node's own settings.
For a topic the answer lists the keys that have an effect, the keys for which we support only one value, and all other keys
that the topic sets. The source of a value is where it was *set*, even if it was set to the default. For the empty broker
name, which stands for all brokers, the answer lists only the keys that are set there. A broker's own answer lists the keys
that have an effect, but a throttle only where it is set, as in Kafka.
For a group the answer lists the keys that have an effect, and all other keys that are set for it. The group need not exist.
As in Kafka since 4.3, what a group inherits is listed under the server's key, with the source that it has there.

The value of a key that the node does not know is not shown, because it may be a secret of a plug-in.

A request may name thousands of topics, so the description is a generator that yields after each resource. It describes the
configuration at the time of the call, even if that changes meanwhile.
"""

import dataclasses
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final

from common.configuration.documentation import GROUP_DOCUMENTATION, SERVER_DOCUMENTATION, TOPIC_DOCUMENTATION
from common.configuration.group import GROUP_SETTINGS, GroupConfig, default_group_config, group_config, server_key
from common.configuration.group import WITHOUT_EFFECT as GROUP_KEYS_WITHOUT_EFFECT
from common.configuration.resolver import CLUSTER_DEFAULT_NAME, ConfigResolver, ConfigSource, ConfigSynonym
from common.configuration.resource_types import why_not_configurable
from common.configuration.server import DYNAMIC_KEYS, SERVER_SETTINGS, THROTTLE_NAMES
from common.configuration.settings import ConfigType, field_of, is_readable
from common.configuration.topic import (
    SERVED_ANYWAY,
    SERVED_TYPES,
    TOPIC_SETTINGS,
    TopicConfig,
    default_topic_config,
    topic_config,
)
from common.configuration.value_text import value_text
from common.metadata.state import MetadataState
from common.metadata.topic_names import InvalidTopicName, validate_topic_name
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from common.records.metadata_records import ConfigResourceType

# The type of a key that the node does not know.
UNKNOWN_TYPE = 0

_NOTHING_SET: Final = MappingProxyType[str, str]({})
_DOCUMENTATION: Final = MappingProxyType(
    {
        ConfigResourceType.TOPIC: TOPIC_DOCUMENTATION,
        ConfigResourceType.BROKER: SERVER_DOCUMENTATION,
        ConfigResourceType.GROUP: GROUP_DOCUMENTATION,
    }
)


def describe_configs(
    state: MetadataState, resolver: ConfigResolver, request: DescribeConfigsRequest
) -> Generator[None, None, DescribeConfigsResponse]:
    """Describes the requested resources, and yields after each of them. Returns one result per resource; a resource that is
    repeated with the same keys gets one result."""
    return _Description(_Configs(state, resolver, request.resources), resolver, request).results(request.resources)


class _Configs:
    """The dynamic configuration of the requested resources and of the node at the time of the call."""

    def __init__(self, state: MetadataState, resolver: ConfigResolver, resources: Iterable[DescribeConfigsResource]) -> None:
        named = {(each.resource_type, each.resource_name) for each in resources}
        own = {(int(ConfigResourceType.BROKER), name) for name in (CLUSTER_DEFAULT_NAME, resolver.node_name)}
        set_configs = state.configs
        self._configs = {key: dict(set_configs[key]) for key in set_configs.keys() & (named | own)}
        self._topics = state.topic_ids.keys() & {name for type_, name in named if type_ == ConfigResourceType.TOPIC}

    def config(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        return self._configs.get((resource_type, resource_name), _NOTHING_SET)

    def has_topic(self, name: str) -> bool:
        return name in self._topics


class _Description:
    """The answer to one request."""

    def __init__(self, state: _Configs, resolver: ConfigResolver, request: DescribeConfigsRequest) -> None:
        self._state = state
        self._resolver = resolver
        self._with_synonyms = request.include_synonyms
        self._with_documentation = request.include_documentation
        # The entries of topic keys that the topic itself does not set. All topics share them. Filled by the first topic.
        self._inherited: dict[str, DescribeConfigsResourceResult] = {}

    def results(self, resources: Iterable[DescribeConfigsResource]) -> Generator[None, None, DescribeConfigsResponse]:
        response = DescribeConfigsResponse()
        described: set[tuple[int, str, frozenset[str]]] = set()
        for asked in resources:
            key = (asked.resource_type, asked.resource_name, frozenset(asked.configuration_keys or ()))
            if key not in described:
                described.add(key)
                response.results.append(self._result(asked))
            yield
        return response

    def _result(self, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        entries: Iterator[DescribeConfigsResourceResult] = iter(())
        match asked.resource_type:
            case ConfigResourceType.TOPIC:
                error, message = self._topic_error(asked.resource_name)
                if error is ErrorCode.NONE:
                    entries = self._topic_entries(asked.resource_name)
            case ConfigResourceType.BROKER:
                error, message = self._broker_error(asked.resource_name)
                if error is ErrorCode.NONE:
                    entries = self._broker_entries() if asked.resource_name else self._cluster_default_entries()
            case ConfigResourceType.GROUP:
                error, message = _group_error(asked.resource_name)
                if error is ErrorCode.NONE:
                    entries = self._group_entries(asked.resource_name)
            case _:
                error, message = ErrorCode.INVALID_REQUEST, why_not_configurable(asked.resource_type)
        result.error_code, result.error_message = error, message
        wanted = asked.configuration_keys
        result.configs = [entry for entry in entries if not wanted or entry.name in wanted]
        for entry in result.configs:
            if not self._with_synonyms:
                entry.synonyms = []
            if self._with_documentation:
                entry.documentation = _DOCUMENTATION[ConfigResourceType(asked.resource_type)].get(entry.name)
        return result

    def _topic_error(self, name: str) -> tuple[ErrorCode, str | None]:
        try:
            validate_topic_name(name)
        except InvalidTopicName as error:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)
        if not self._state.has_topic(name):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist"
        return ErrorCode.NONE, None

    def _broker_error(self, name: str) -> tuple[ErrorCode, str | None]:
        own = self._resolver.node_name
        if name in (CLUSTER_DEFAULT_NAME, own):
            return ErrorCode.NONE, None
        # Leave out the requested name: it could make the message longer than a protocol string may be.
        return ErrorCode.INVALID_REQUEST, f"this is node {own}; ask the node whose configuration it is"

    # --- entries -------------------------------------------------------------------------------------------------

    def _topic_entries(self, name: str) -> Iterator[DescribeConfigsResourceResult]:
        overrides = self._state.config(ConfigResourceType.TOPIC, name)
        if not self._inherited:
            self._inherited = {entry.name: entry for entry in self._settings_of_topic({}, TOPIC_SETTINGS)}
        own = {entry.name: entry for entry in self._settings_of_topic(overrides, overrides)}
        yield from (own.get(key, entry) for key, entry in self._inherited.items())
        for key in sorted((overrides.keys() | SERVED_ANYWAY.keys()) - TOPIC_SETTINGS.keys()):
            if key in overrides:
                # The key was accepted because its value asks for what we do anyway. Show the value as it was set.
                synonym = ConfigSynonym(key, overrides[key], ConfigSource.DYNAMIC_TOPIC_CONFIG)
                yield _entry(key, overrides[key], SERVED_TYPES.get(key, ConfigType.STRING), [synonym])
            else:
                yield _entry(key, SERVED_ANYWAY[key], SERVED_TYPES[key], [], read_only=True)

    def _settings_of_topic(
        self, overrides: Mapping[str, str], keys: Iterable[str]
    ) -> Iterator[DescribeConfigsResourceResult]:
        """Yields the entries of those of the keys that have an effect."""
        effective = topic_config(self._topic_defaults, overrides)
        for key in keys:
            if key in TOPIC_SETTINGS:
                synonyms = self._resolver.topic_synonyms(self._state, overrides, key)
                yield _entry(key, value_text(getattr(effective, field_of(key))), TOPIC_SETTINGS[key].type, synonyms)

    @cached_property
    def _topic_defaults(self) -> TopicConfig:
        return default_topic_config(self._resolver.server_config(self._state))

    def _broker_entries(self) -> Iterator[DescribeConfigsResourceResult]:
        effective = self._resolver.server_config(self._state)
        for key, setting in SERVER_SETTINGS.items():
            synonyms = self._resolver.broker_synonyms(self._state, key)
            value = value_text(getattr(effective, field_of(key)))
            entry = _entry(key, value, setting.type, synonyms, read_only=key not in DYNAMIC_KEYS)
            # The value may be set under the key's other name only. Do not show this key as set then: a client that reads the
            # whole configuration, changes it and writes it back would set both names.
            own_sources = [synonym.source for synonym in synonyms if synonym.name == key]
            entry.config_source = own_sources[0] if own_sources else ConfigSource.DEFAULT_CONFIG
            # Kafka lists a throttle only where it is set. To programs that add and remove throttles, a listed one is in
            # force.
            if key not in THROTTLE_NAMES or entry.config_source != ConfigSource.DEFAULT_CONFIG:
                yield entry
        own = self._state.config(ConfigResourceType.BROKER, self._resolver.node_name)
        everywhere = self._state.config(ConfigResourceType.BROKER, CLUSTER_DEFAULT_NAME)
        yield from _unknown(own, ConfigSource.DYNAMIC_BROKER_CONFIG, read_only=True)
        others = {key: value for key, value in everywhere.items() if key not in own}
        yield from _unknown(others, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, read_only=True)

    def _cluster_default_entries(self) -> Iterator[DescribeConfigsResourceResult]:
        configs = self._state.config(ConfigResourceType.BROKER, CLUSTER_DEFAULT_NAME)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        for key in sorted(configs.keys() & SERVER_SETTINGS.keys()):
            yield _entry(key, configs[key], SERVER_SETTINGS[key].type, [ConfigSynonym(key, configs[key], source)])
        yield from _unknown(configs, source, read_only=True)

    def _group_entries(self, name: str) -> Iterator[DescribeConfigsResourceResult]:
        overrides = self._state.config(ConfigResourceType.GROUP, name)
        effective = group_config(self._group_defaults, overrides)
        for key, setting in GROUP_SETTINGS.items():
            value = value_text(getattr(effective, field_of(key)))
            is_set = key in overrides and is_readable(setting, overrides[key])
            own = [ConfigSynonym(key, overrides[key], ConfigSource.DYNAMIC_GROUP_CONFIG)] if is_set else []
            of_server = self._resolver.broker_synonyms(self._state, server_key(key))
            yield _entry(key, value, setting.type, [*own, *of_server])
        # Another controller has accepted the other keys.
        others = {key: value for key, value in overrides.items() if key not in GROUP_SETTINGS}
        for key in sorted(others.keys() & GROUP_KEYS_WITHOUT_EFFECT):
            synonym = ConfigSynonym(key, others[key], ConfigSource.DYNAMIC_GROUP_CONFIG)
            yield _entry(key, others[key], UNKNOWN_TYPE, [synonym])
        unknown = {key: value for key, value in others.items() if key not in GROUP_KEYS_WITHOUT_EFFECT}
        yield from _unknown(unknown, ConfigSource.DYNAMIC_GROUP_CONFIG, read_only=False)

    @cached_property
    def _group_defaults(self) -> GroupConfig:
        return default_group_config(self._resolver.server_config(self._state))


def _group_error(name: str) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if name else (ErrorCode.INVALID_REQUEST, "Group name must not be empty")


def _unknown(
    configs: Mapping[str, str], source: ConfigSource, *, read_only: bool
) -> Iterator[DescribeConfigsResourceResult]:
    for key in sorted(configs.keys() - SERVER_SETTINGS.keys()):
        entry = _entry(key, None, UNKNOWN_TYPE, [ConfigSynonym(key, None, source)], read_only=read_only)
        yield dataclasses.replace(entry, is_sensitive=True)


def _entry(
    key: str, value: str | None, type_: int, synonyms: Sequence[ConfigSynonym], *, read_only: bool = False
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key,
        value=value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        config_type=type_,
        synonyms=[DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms],
    )
