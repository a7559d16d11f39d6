"""Answers DescribeConfigs: the configuration of a topic or of this broker, with sources (shell without I/O).

Counterpart of Kafka's ConfigHelper. For a topic it lists the keys that have an effect, the keys for which we support only
one value, and all other keys that the topic sets. The source of a value is where it was *set*, even if it was set to the
default. The broker-level key for a topic setting usually has a different name. For durations there may be several such keys,
and the key with the finest unit wins.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from common.configuration.endpoints import Endpoint, HostPort, Voter
from common.configuration.server import ServerConfig
from common.configuration.settings import key_of, keys_of
from common.configuration.topic import SERVED_ANYWAY, TopicConfig, default_topic_config, topic_config
from common.ids import BrokerId
from common.metadata.state import MetadataState
from common.metadata.topic_names import InvalidTopicName, validate_topic_name
from common.net.request_context import RequestContext
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

# The values of Kafka's ConfigSource.
TOPIC_SOURCE = 1
STATIC_BROKER_SOURCE = 4
DEFAULT_SOURCE = 5

# The values of Kafka's ConfigType for the Python types of our settings.
BOOLEAN_TYPE, STRING_TYPE, LONG_TYPE, LIST_TYPE = 1, 2, 5, 7

# The broker-level keys that hold the default of a topic's key. If there are several, the first one that is set wins.
BROKER_KEYS: Final = MappingProxyType[str, tuple[str, ...]](
    {
        "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
        "index.interval.bytes": ("log.index.interval.bytes",),
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
_SERVER_DEFAULTS: Final = MappingProxyType({key_of(field.name): field.default for field in dataclasses.fields(ServerConfig)})


class DescribeConfigsRequests:
    """Handles DescribeConfigs. `properties` are the entries of server.properties as written."""

    def __init__(
        self, state: MetadataState, *, broker_id: BrokerId, config: ServerConfig, properties: Mapping[str, str]
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._config = config
        self._properties = properties

    def handle(self, _context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """Returns one result per requested resource. A resource that is repeated with the same keys gets one result."""
        distinct = {_asked_for(asked): asked for asked in request.resources}
        results = [self._describe(asked, with_synonyms=request.include_synonyms) for asked in distinct.values()]
        return DescribeConfigsResponse(results=results)

    def _describe(self, asked: DescribeConfigsResource, *, with_synonyms: bool) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        match asked.resource_type:
            case ConfigResourceType.TOPIC:
                error, message = self._topic_error(asked.resource_name)
                entries = () if error else self._topic_entries(asked.resource_name, with_synonyms=with_synonyms)
            case ConfigResourceType.BROKER:
                error, message = self._broker_error(asked.resource_name)
                # The empty name means the cluster-wide defaults, which cannot be set yet.
                entries = (
                    () if error or not asked.resource_name else tuple(self._broker_entries(with_synonyms=with_synonyms))
                )
            case _:
                error, message = ErrorCode.INVALID_REQUEST, f"resource type {asked.resource_type} is not served"
                entries = ()
        result.error_code, result.error_message = error, message
        wanted = asked.configuration_keys
        result.configs = [entry for entry in entries if not wanted or entry.name in wanted]
        return result

    def _topic_error(self, name: str) -> tuple[ErrorCode, str | None]:
        try:
            validate_topic_name(name)
        except InvalidTopicName as error:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)
        if name not in self._state.topic_ids:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist"
        return ErrorCode.NONE, None

    def _broker_error(self, name: str) -> tuple[ErrorCode, str | None]:
        if name in ("", str(self._broker_id)):
            return ErrorCode.NONE, None
        # Leave out the requested name: it could make the message longer than a protocol string may be.
        return ErrorCode.INVALID_REQUEST, f"this is broker {self._broker_id}; ask the broker whose configuration it is"

    def _topic_entries(self, name: str, *, with_synonyms: bool) -> Sequence[DescribeConfigsResourceResult]:
        overrides = self._state.config(ConfigResourceType.TOPIC, name)
        effective = topic_config(default_topic_config(self._config), overrides)
        entries: list[DescribeConfigsResourceResult] = []
        for field_name in (field.name for field in dataclasses.fields(TopicConfig)):
            key = key_of(field_name)
            synonyms = self._synonyms(key, overrides)
            entries.append(
                _entry(key, getattr(effective, field_name), synonyms[0].source, synonyms if with_synonyms else [])
            )
        for key in sorted((overrides.keys() | SERVED_ANYWAY.keys()) - BROKER_KEYS.keys()):
            if key not in overrides:
                entries.append(dataclasses.replace(_entry(key, SERVED_ANYWAY[key], DEFAULT_SOURCE, []), read_only=True))
                continue
            # The key was accepted because its value asks for what we do anyway. Show the value as it was set.
            synonym = DescribeConfigsSynonym(name=key, value=overrides[key], source=TOPIC_SOURCE)
            entries.append(_entry(key, overrides[key], TOPIC_SOURCE, [synonym] if with_synonyms else []))
        return entries

    def _synonyms(self, key: str, overrides: Mapping[str, str]) -> list[DescribeConfigsSynonym]:
        """Returns every value that is set for the key, and its defaults. The effective value is the first. Never empty."""
        synonyms: list[DescribeConfigsSynonym] = []
        if key in overrides:
            synonyms.append(DescribeConfigsSynonym(name=key, value=overrides[key], source=TOPIC_SOURCE))
        synonyms += [
            DescribeConfigsSynonym(name=broker_key, value=self._properties[broker_key], source=STATIC_BROKER_SOURCE)
            for broker_key in BROKER_KEYS[key]
            if broker_key in self._properties
        ]
        synonyms += [
            DescribeConfigsSynonym(name=broker_key, value=_text(_SERVER_DEFAULTS[broker_key]), source=DEFAULT_SOURCE)
            for broker_key in BROKER_KEYS[key]
            if _SERVER_DEFAULTS[broker_key] is not None
        ]
        return synonyms

    def _broker_entries(self, *, with_synonyms: bool) -> Iterator[DescribeConfigsResourceResult]:
        for key in keys_of(ServerConfig):
            value = getattr(self._config, key.replace(".", "_"))
            source = STATIC_BROKER_SOURCE if key in self._properties else DEFAULT_SOURCE
            synonyms = list(self._broker_synonyms(key)) if with_synonyms else []
            yield dataclasses.replace(_entry(key, value, source, synonyms), read_only=True)

    def _broker_synonyms(self, key: str) -> Iterator[DescribeConfigsSynonym]:
        """Yields the key's entry in server.properties and its built-in default, if they exist."""
        if key in self._properties:
            yield DescribeConfigsSynonym(name=key, value=self._properties[key], source=STATIC_BROKER_SOURCE)
        default = _SERVER_DEFAULTS[key]
        # A mandatory key has no default.
        if default is not None and default is not dataclasses.MISSING:
            yield DescribeConfigsSynonym(name=key, value=_text(default), source=DEFAULT_SOURCE)


def _asked_for(asked: DescribeConfigsResource) -> tuple[int, str, frozenset[str]]:
    return asked.resource_type, asked.resource_name, frozenset(asked.configuration_keys or ())


def _entry(key: str, value: object, source: int, synonyms: list[DescribeConfigsSynonym]) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key, value=_text(value), config_source=source, config_type=_type_of(value), synonyms=synonyms
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(_item_text, value))
    return str(value)


def _item_text(item: object) -> str:
    """Formats an element of a list as in server.properties."""
    match item:
        case Endpoint():
            return f"{item.name}://{HostPort(item.host, item.port)}"
        case Voter():
            return f"{item.node_id}@{HostPort(item.host, item.port)}"
        case (str() as name, str() as protocol):
            return f"{name}:{protocol}"
        case _:
            return str(item)


def _type_of(value: object) -> int:
    if isinstance(value, bool):
        return BOOLEAN_TYPE
    if isinstance(value, int):
        return LONG_TYPE
    return LIST_TYPE if isinstance(value, tuple) else STRING_TYPE
