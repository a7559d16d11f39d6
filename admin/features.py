"""The cluster's features as an AdminClient shows them, and the requests that change them (core)."""

from collections.abc import Mapping
from dataclasses import dataclass

from common.protocol.messages.api_versions import ApiVersionsResponse
from common.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpgradeType


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """Counterpart of Kafka's class of this name. `supported` has the lowest and the highest level that the node supports."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    finalized_epoch: int | None
    """The metadata offset of the levels; None if the node does not know them."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that a feature is to have. Only an upgrade may raise it, only a downgrade may lower it."""

    max_version_level: int
    upgrade_type: UpgradeType


def feature_metadata(response: ApiVersionsResponse) -> FeatureMetadata:
    """Reads the features in the response of a node."""
    return FeatureMetadata(
        supported={each.name: (each.min_version, each.max_version) for each in response.supported_features},
        finalized={each.name: each.max_version_level for each in response.finalized_features},
        finalized_epoch=response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
    )


def update_request(updates: Mapping[str, FeatureUpdate], *, validate_only: bool, timeout_ms: int) -> UpdateFeaturesRequest:
    """Makes the request for these updates."""
    return UpdateFeaturesRequest(
        timeout_ms=timeout_ms,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=each.max_version_level, upgrade_type=each.upgrade_type)
            for name, each in updates.items()
        ],
        validate_only=validate_only,
    )
