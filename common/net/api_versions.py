"""The versions and features that a listener advertises, and its ApiVersions responses (core).

Counterpart of Kafka's `ApiVersionManager`. A listener advertises the APIs that have a handler, in the version ranges of the
registry. An ApiVersions request in an unknown version gets a response in version 0; any other request in an unknown version
closes the connection. A client that does not name its software properly is refused (KIP-511). A feature whose lowest level
is 0 must not be listed before version 4 (KIP-1022), because older clients reject such a response as malformed.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from common.metadata.metadata_version import Features
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from common.protocol.registry import APIS
from common.protocol.schema import VersionRange

LEVEL_ZERO_FIRST_VERSION = 4
_SOFTWARE_FIRST_VERSION = 3
_NO_NODE = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def advertised_versions(served: Iterable[ApiKey]) -> dict[ApiKey, VersionRange]:
    """Returns the version ranges to advertise for the APIs that have a handler, sorted by API key."""
    return {key: APIS[key].advertised for key in sorted(served)}


def api_versions_response(advertised: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    """Builds the response of a listener that advertises no features."""
    return ApiVersionsResponse(api_keys=_entries(advertised))


def supported_features(features: Features, api_version: int) -> list[SupportedFeatureKey]:
    """Returns those of the node's features that may be listed in a response of this version."""
    return [
        SupportedFeatureKey(name=name, min_version=levels.minimum, max_version=levels.maximum)
        for name, levels in features.items()
        if levels.minimum > 0 or api_version >= LEVEL_ZERO_FIRST_VERSION
    ]


def invalid_request_response(request: ApiVersionsRequest, api_version: int) -> ApiVersionsResponse | None:
    """Returns the refusal of a client that does not name its software and its version in the form that KIP-511 asks for, or
    that names a cluster without a node in it, or the other way round (KIP-1242)."""
    names = (request.client_software_name, request.client_software_version)
    names_both_or_none = (request.cluster_id is None) == (request.node_id == _NO_NODE)
    if names_both_or_none and (api_version < _SOFTWARE_FIRST_VERSION or all(_SOFTWARE.fullmatch(name) for name in names)):
        return None
    return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)


def unsupported_version_response(advertised: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    """Builds the response to an ApiVersions request in an unsupported version. Must be sent in version 0 (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_entries(advertised))


def _entries(advertised: Mapping[ApiKey, VersionRange]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
        for key, versions in advertised.items()
    ]
