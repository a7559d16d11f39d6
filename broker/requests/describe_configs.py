"""DescribeConfigs: what a topic or this broker follows, and where each value comes from (shell without I/O).

Answers to Kafka's ConfigHelper. Only keys that have an effect are listed. Easy to get wrong: a value's source is where it
was *set*; a topic that overrides nothing follows the broker's file or the built-in default, key by key.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from common.configuration.server import ServerConfig
from common.configuration.settings import key_of, keys_of
from common.configuration.topic import TopicConfig, default_topic_config, topic_config
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

# Kafka's ConfigSource.
TOPIC_SOURCE = 1
STATIC_BROKER_SOURCE = 4
DEFAULT_SOURCE = 5

# Kafka's ConfigType by Python type.
BOOLEAN_TYPE, STRING_TYPE, LONG_TYPE, LIST_TYPE = 1, 2, 5, 7


class DescribeConfigsRequests:
    """Handler of DescribeConfigs. `properties` are the lines of server.properties as they were given."""

    def __init__(
        self, state: MetadataState, *, broker_id: BrokerId, config: ServerConfig, properties: Mapping[str, str]
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._config = config
        self._properties = properties

    def handle(self, _context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """One result for each resource that was asked for."""
        results = [self._describe(asked, with_synonyms=request.include_synonyms) for asked in request.resources]
        return DescribeConfigsResponse(results=results)

    def _describe(self, asked: DescribeConfigsResource, *, with_synonyms: bool) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        match asked.resource_type:
            case ConfigResourceType.TOPIC:
                error, message = self._topic_error(asked.resource_name)
                entries = () if error else self._topic_entries(asked.resource_name, with_synonyms=with_synonyms)
            case ConfigResourceType.BROKER:
                error, message = self._broker_error(asked.resource_name)
                entries = () if error else tuple(self._broker_entries())
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
        # The empty name stands for the cluster-wide defaults, which cannot be set yet.
        if name in ("", str(self._broker_id)):
            return ErrorCode.NONE, None
        return ErrorCode.INVALID_REQUEST, f"this is broker {self._broker_id}; ask broker {name} for its configuration"

    def _topic_entries(self, name: str, *, with_synonyms: bool) -> Sequence[DescribeConfigsResourceResult]:
        overrides = self._state.config(ConfigResourceType.TOPIC, name)
        defaults = default_topic_config(self._config)
        effective = topic_config(defaults, overrides)
        built_in = TopicConfig()
        entries: list[DescribeConfigsResourceResult] = []
        for field_name in (field.name for field in dataclasses.fields(TopicConfig)):
            key = key_of(field_name)
            default_source = (
                DEFAULT_SOURCE if getattr(defaults, field_name) == getattr(built_in, field_name) else STATIC_BROKER_SOURCE
            )
            synonyms = [DescribeConfigsSynonym(name=key, value=_text(getattr(defaults, field_name)), source=default_source)]
            if key in overrides:
                synonyms.insert(0, DescribeConfigsSynonym(name=key, value=overrides[key], source=TOPIC_SOURCE))
            entries.append(
                _entry(key, getattr(effective, field_name), synonyms[0].source, synonyms if with_synonyms else [])
            )
        return entries

    def _broker_entries(self) -> Iterator[DescribeConfigsResourceResult]:
        for key in keys_of(ServerConfig):
            value = getattr(self._config, key.replace(".", "_"))
            source = STATIC_BROKER_SOURCE if key in self._properties else DEFAULT_SOURCE
            shown = self._properties.get(key, value) if not isinstance(value, bool | int | str | None) else value
            yield dataclasses.replace(_entry(key, shown, source, []), read_only=True)


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
        return ",".join(str(item) for item in value)
    return str(value)


def _type_of(value: object) -> int:
    if isinstance(value, bool):
        return BOOLEAN_TYPE
    if isinstance(value, int):
        return LONG_TYPE
    return LIST_TYPE if isinstance(value, tuple) else STRING_TYPE
