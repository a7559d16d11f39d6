"""Configurations in the form in which an AdminClient shows and changes them, and the requests for this (core)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from common.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from common.protocol.messages.list_config_resources import ListConfigResourcesResponse

# The first version that can list other resources than client metrics.
LIST_RESOURCES_VERSION = 1


class ResourceType(IntEnum):
    """The types of resources that have a configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from. UNKNOWN also stands for the sources of newer brokers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def of(cls, number: int) -> "ConfigSource":
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic by its name, a broker by its id as text, or a group by its id."""

    type: ResourceType
    name: str

    @property
    def broker_id(self) -> int | None:
        """The only broker that can answer for this resource; None if any broker can. An empty name is the default of all
        brokers."""
        if self.type not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not self.name:
            return None
        return int(self.name) if self.name.isascii() and self.name.isdecimal() else None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    """None if the key has no value, or if its value is sensitive."""
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one key. Counterpart of Kafka's AlterConfigOp."""

    name: str
    operation: ConfigOperation
    value: str | None = None


def alter_request(
    changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(name=each.name, config_operation=each.operation, value=each.value) for each in changed
                ],
            )
            for resource, changed in changes.items()
        ],
        validate_only=validate_only,
    )


def describe_request(resources: Sequence[ConfigResource], *, include_synonyms: bool) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=each.type, resource_name=each.name, configuration_keys=None)
            for each in resources
        ],
        include_synonyms=include_synonyms,
    )


def config_resources(response: ListConfigResourcesResponse) -> list[ConfigResource]:
    """Returns the resources of the response, without those of types that only newer brokers have."""
    known = {int(each) for each in ResourceType}
    return [
        ConfigResource(ResourceType(each.resource_type), each.resource_name)
        for each in response.config_resources
        if each.resource_type in known
    ]


def config_entries(result: DescribeConfigsResult) -> Mapping[str, ConfigEntry]:
    return MappingProxyType({entry.name: _config_entry(entry) for entry in result.configs})


def _config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        ConfigSource.of(entry.config_source),
        entry.is_sensitive,
        entry.read_only,
        tuple(ConfigSynonym(each.name, each.value, ConfigSource.of(each.source)) for each in entry.synonyms),
    )
