"""Answers ListConfigResources: topics, brokers and configured groups (shell without I/O; KIP-1142).

Version 0 is ListClientMetricsResources (KIP-714). Client metrics and loggers have no configuration in this version of
Diskraft, so none is ever listed. A group is listed while something is set for it, whether it exists or not. Kafka goes on
listing a group whose last key was deleted until the broker restarts.
"""

from collections.abc import Iterator

from common.configuration.resource_types import BROKER_LOGGER
from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_config_resources import (
    CLIENT_METRICS,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from common.records.metadata_records import ConfigResourceType

# The types that Kafka lists. Another one gets an error.
LISTED_TYPES = (*ConfigResourceType, BROKER_LOGGER, CLIENT_METRICS)
_TYPES_FIRST_VERSION = 1


class ListConfigResourcesRequests:
    """Handles ListConfigResources."""

    def __init__(self, state: MetadataState) -> None:
        self._state = state

    def handle(self, context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
        """Returns the resources of the requested types, sorted by type and name."""
        if context.api_version < _TYPES_FIRST_VERSION:
            return ListConfigResourcesResponse()
        types = set(request.resource_types) or set(LISTED_TYPES)
        if not types.issubset(LISTED_TYPES):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=resource_type)
                for resource_type in sorted(types)
                for name in self._names(resource_type)
            ]
        )

    def _names(self, resource_type: int) -> Iterator[str]:
        if resource_type == ConfigResourceType.TOPIC:
            yield from sorted(self._state.topic_ids)
        elif resource_type == ConfigResourceType.BROKER:
            yield from map(str, sorted(self._state.brokers))
        elif resource_type == ConfigResourceType.GROUP:
            yield from sorted(name for type_, name in self._state.configs if type_ == ConfigResourceType.GROUP)
