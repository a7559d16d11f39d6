"""Answers ApiVersions: what the broker's listener serves, and the cluster's features (shell without I/O).

Counterpart of KafkaApis.handleApiVersionsRequest. The epoch of the finalized features is the metadata offset of the last
record that was replayed into the image.
"""

from collections.abc import Iterable

from common.metadata.state import MetadataState
from common.net.api_versions import advertised_versions, api_versions_response, supported_features
from common.net.request_context import RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)


class ApiVersionsRequests:
    """Handles ApiVersions. `served` are the other APIs of the listener."""

    def __init__(self, state: MetadataState, served: Iterable[ApiKey]) -> None:
        self._state = state
        # The same in every response.
        self._api_keys = api_versions_response(advertised_versions((*served, ApiKey.API_VERSIONS))).api_keys

    def handle(self, context: RequestContext, _request: ApiVersionsRequest) -> ApiVersionsResponse:
        """Answers every client alike, even while the broker is starting."""
        response = ApiVersionsResponse(api_keys=self._api_keys)
        response.supported_features = supported_features(context.api_version)
        response.finalized_features_epoch = self._state.last_offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self._state.features.items()
        ]
        return response
