"""What a listener advertises, and its answers to ApiVersions (core).

Kafka's `ApiVersionManager`. Advertised is what has a handler, in the ranges of the registry. The easy thing to get wrong:
an ApiVersions request of an unknown version is answered, in version 0, while any other such request costs the connection.
"""

from collections.abc import Iterable, Mapping

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from common.protocol.registry import APIS
from common.protocol.schema import VersionRange


def advertised_versions(served: Iterable[ApiKey]) -> dict[ApiKey, VersionRange]:
    """The version ranges to advertise for the APIs that have a handler, in the order of their numbers."""
    return {key: APIS[key].advertised for key in sorted(served)}


def api_versions_response(advertised: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    """The answer of a listener that has no features to tell of."""
    return ApiVersionsResponse(api_keys=_entries(advertised))


def unsupported_version_response(advertised: Mapping[ApiKey, VersionRange]) -> ApiVersionsResponse:
    """The answer, to be sent in version 0, to an ApiVersions request of a version that is not served (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_entries(advertised))


def _entries(advertised: Mapping[ApiKey, VersionRange]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
        for key, versions in advertised.items()
    ]
