"""What a listener advertises, and its answers to ApiVersions (core).

Kafka's `ApiVersionManager`. Advertised is what has a handler, in the ranges of the registry. Easy to get wrong: an
ApiVersions request of an unknown version is answered, in version 0, while any other such request costs the connection; and
a feature whose lowest level is 0 may not be listed before version 4 (KIP-1022), since older clients take 0 for a malformed
answer.
"""

from collections.abc import Iterable, Mapping

from common.metadata.metadata_version import SUPPORTED_FEATURES
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from common.protocol.registry import APIS
from common.protocol.schema import VersionRange

LEVEL_ZERO_FIRST_VERSION = 4


def advertised_versions(served: Iterable[ApiKey]) -> dict[ApiKey, VersionRange]:
    """The version ranges to advertise for the APIs that have a handler, in the order of their numbers."""
    return {key: APIS[key].advertised for key in sorted(served)}


def api_versions_response(advertised: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    """The answer of a listener that has no features to tell of."""
    return ApiVersionsResponse(api_keys=_entries(advertised))


def supported_features(api_version: int) -> list[SupportedFeatureKey]:
    """The features of this node, for an ApiVersions request of this version."""
    return [
        SupportedFeatureKey(name=name, min_version=levels.minimum, max_version=levels.maximum)
        for name, levels in SUPPORTED_FEATURES.items()
        if levels.minimum > 0 or api_version >= LEVEL_ZERO_FIRST_VERSION
    ]


def unsupported_version_response(advertised: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    """The answer, to be sent in version 0, to an ApiVersions request of a version that is not served (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_entries(advertised))


def _entries(advertised: Mapping[ApiKey, VersionRange]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
        for key, versions in advertised.items()
    ]
