"""Answers ApiVersions: what the broker's listener serves, and the cluster's features (shell without I/O).

Counterpart of KafkaApis.handleApiVersionsRequest. The epoch of the finalized features is the metadata offset of the last
record that was replayed into the image.

A client that wants to reach another node, or another cluster, has to start again from its bootstrap servers (KIP-1242): the
address of the node that it knew belongs to this one now.

What is forwarded to the controller is offered only in versions that the controller serves too (KIP-590): it may run another
release than this broker, and decodes the client's request itself.
"""

from collections.abc import Callable, Iterable, Mapping

from common.ids import BrokerId
from common.metadata.metadata_version import BROKER_FEATURES
from common.metadata.state import MetadataState
from common.net.api_versions import advertised_versions, api_versions_response, invalid_request_response, supported_features
from common.net.request_context import RequestContext
from common.protocol.api_keys import FORWARDABLE, ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from common.protocol.schema import NO_VERSIONS, VersionRange


class ApiVersionsRequests:
    """Handles ApiVersions. `served` are the other APIs of the listener. `controller_versions` returns what the active
    controller serves, by API key: the same mapping until that changes, and an empty one while it is unknown."""

    def __init__(
        self,
        state: MetadataState,
        served: Iterable[ApiKey],
        controller_versions: Callable[[], Mapping[int, VersionRange]],
        *,
        cluster_id: str,
        broker_id: BrokerId,
    ) -> None:
        self._state = state
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._own = advertised_versions((*served, ApiKey.API_VERSIONS))
        self._controller_versions = controller_versions
        # What was last advertised, and the versions of the controller that it goes by.
        self._seen: Mapping[int, VersionRange] = {}
        self._api_keys = api_versions_response(self._own).api_keys

    def handle(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        """Answers every client alike, even while the broker is starting."""
        refusal = invalid_request_response(request, context.api_version)
        if refusal is not None:
            return refusal
        wanted = (request.cluster_id, request.node_id)
        if request.cluster_id is not None and wanted != (self._cluster_id, self._broker_id):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        theirs = self._controller_versions()
        if theirs is not self._seen:
            self._seen = theirs
            self._api_keys = api_versions_response(without_what_controller_lacks(self._own, theirs)).api_keys
        response = ApiVersionsResponse(api_keys=self._api_keys)
        response.supported_features = supported_features(BROKER_FEATURES, context.api_version)
        response.finalized_features_epoch = self._state.last_offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self._state.features.items()
        ]
        return response


def without_what_controller_lacks(
    own: Mapping[ApiKey, VersionRange], controller: Mapping[int, VersionRange]
) -> dict[ApiKey, VersionRange]:
    """Returns the versions of this broker less those of forwarded requests that the controller does not serve."""
    if not controller:
        return dict(own)
    common: dict[ApiKey, VersionRange] = {}
    for key, versions in own.items():
        theirs = controller.get(key, NO_VERSIONS) if key in FORWARDABLE else versions
        both = VersionRange(max(versions.first, theirs.first), min(versions.last, theirs.last))
        if both.first <= both.last:
            common[key] = both
    return common
