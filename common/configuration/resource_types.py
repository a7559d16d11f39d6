"""The types of resources that have a configuration in Kafka, but none here (core)."""

from types import MappingProxyType
from typing import Final

from common.protocol.messages.list_config_resources import CLIENT_METRICS

BROKER_LOGGER: Final = 8

_ABSENT: Final = MappingProxyType({BROKER_LOGGER: "loggers with levels of their own", CLIENT_METRICS: "client metrics"})


def why_not_configurable(resource_type: int) -> str:
    """Returns the message for a request that names a type without configuration."""
    absent = _ABSENT.get(resource_type)
    return f"Unknown resource type {resource_type}" if absent is None else f"Diskraft has no {absent}"
