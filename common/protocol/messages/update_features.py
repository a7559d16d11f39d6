"""UpdateFeatures: changes the finalized level of features, all of them or none (KIP-584, KIP-778) (core).

From version 2 on, a response holds only the top-level error. Before, it also lists the features if the update succeeded.
Version 0 has no upgrade type, only a flag that allows a downgrade.
"""

from enum import IntEnum

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


class UpgradeType(IntEnum):
    """Kafka's FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@struct
class FeatureUpdateKey(Struct):
    feature: str = ""
    max_version_level: Int16 = 0
    allow_downgrade: bool = field(default=False, versions="0")
    upgrade_type: Int8 = field(default=1, versions="1+")


@message(kind=Kind.REQUEST, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Struct):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: bool = field(default=False, versions="1+")


@struct
class UpdatableFeatureResult(Struct):
    feature: str = ""
    error_code: Int16 = 0
    error_message: str | None = None


@message(kind=Kind.RESPONSE, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: list[UpdatableFeatureResult] = field(default_factory=list, versions="0-1", ignorable=True)
