"""ApiVersions of the broker: what its listener serves, and the features of the cluster (shell without I/O).

Easy to get wrong: a feature whose lowest level is 0 may not be listed before version 4 (KIP-1022), since older clients take
0 for a malformed answer.
"""

from collections.abc import Iterable

from common.metadata.metadata_version import SUPPORTED_FEATURES
from common.metadata.state import MetadataState
from common.net.api_versions import advertised_versions, api_versions_response
from common.net.request_context import RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

LEVEL_ZERO_SINCE = 4


class ApiVersionsRequests:
    """Handler of ApiVersions; `served` are the other APIs of the listener."""

    def __init__(self, state: MetadataState, served: Iterable[ApiKey]) -> None:
        self._state = state
        self._advertised = advertised_versions((*served, ApiKey.API_VERSIONS))

    def handle(self, context: RequestContext, _request: ApiVersionsRequest) -> ApiVersionsResponse:
        """The same for everybody, connected to a broker that is starting or not."""
        response = api_versions_response(self._advertised)
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=levels.minimum, max_version=levels.maximum)
            for name, levels in SUPPORTED_FEATURES.items()
            if levels.minimum > 0 or context.api_version >= LEVEL_ZERO_SINCE
        ]
        response.finalized_features_epoch = self._state.last_offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self._state.features.items()
        ]
        return response
