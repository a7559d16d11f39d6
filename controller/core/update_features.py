"""Changes the finalized levels of features (core; KIP-584, KIP-778).

Counterpart of updateFeatures in Kafka's FeatureControlManager. All updates of a request take effect, or none.

1. Every registered broker and controller must support the new level. The message names the first one that does not.
2. A safe downgrade of metadata.version is refused while the metadata holds something that the lower level cannot express.
   The message names all of it. An unsafe downgrade removes exactly that (`feature_losses`), in the same transaction. It is
   refused only where it would make a LOST replica the leader.
3. `diskraft.directory.numbering` never changes: the records written before have their directory ids in its numbers.
4. As in Kafka 4, a further feature such as transaction.version rises above level 0 only where metadata.version is 3.3-IV3 or
   newer after the request. It may change in both directions: the coordinators read the records of all its levels.
"""

from collections.abc import Iterator, Mapping

from common.metadata.metadata_version import (
    BROKER_FEATURES,
    CONTROLLER_FEATURES,
    DIRECTORY_NUMBERING_FEATURE,
    FURTHER_FEATURES_LEVEL,
    GROUP_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    MINIMUM_BOOTSTRAP_LEVEL,
    TRANSACTION_VERSION_FEATURE,
    SupportedLevels,
    level_name,
    supported_levels,
)
from common.metadata.registrations import SupportedFeature
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import FeatureLevelRecord
from controller.core.feature_losses import Losses, find_losses, generate_records_after, generate_records_before
from controller.core.long_decisions import Sliced
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

_NOT_AN_UPGRADE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
_FURTHER_FEATURES = (TRANSACTION_VERSION_FEATURE, GROUP_VERSION_FEATURE)
# All that Kafka's controller knows, and ours. A tool of Kafka that changes the release sets the other ones to 0 too.
_KNOWN_FEATURES = {*BROKER_FEATURES, "share.version", "streams.version"}
_FAILED = "The update failed for all features since the following feature had an error: "


def update_features(turn: Turn, request: UpdateFeaturesRequest) -> Sliced[ControllerResult[UpdateFeaturesResponse]]:
    """Updates the features, or only checks the updates if `validate_only` is set. Raises ApiError(INVALID_UPDATE_VERSION or
    INVALID_REQUEST) if one of the updates is refused."""
    state = turn.state
    names = [update.feature for update in request.feature_updates]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the request names a feature twice")
    losses = Losses()
    levels = {update.feature: update.max_version_level for update in request.feature_updates}
    for update in request.feature_updates:
        reason = _reason_refused(turn, update, levels.get(METADATA_VERSION_FEATURE, state.metadata_version))
        if reason is not None:
            raise _refusal(update, reason)
        if update.feature == METADATA_VERSION_FEATURE and update.max_version_level < state.metadata_version:
            losses = yield from find_losses(state, update.max_version_level)
            if losses and _upgrade_type(update) is not UpgradeType.UNSAFE_DOWNGRADE:
                raise _refusal(update, _may_delete(update.max_version_level, losses))
            reason = losses.reason_to_refuse()
            if reason is not None:
                raise _refusal(update, reason)
    results = [UpdatableFeatureResult(feature=name) for name in names]
    response = UpdateFeaturesResponse(results=results)
    if request.validate_only:
        return ControllerResult([], response)
    changed = [each for each in request.feature_updates if each.max_version_level != _current_level(state, each.feature)]
    records = yield from generate_records_before(state, losses)
    records += [
        ApiMessageAndVersion(FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level), 0)
        for update in changed
    ]
    records += generate_records_after(losses)
    events = [
        ControllerEvent(
            "feature_updated",
            {
                "feature": update.feature,
                "level_before": _current_level(state, update.feature),
                "level": update.max_version_level,
                "lost": losses.description() if update.feature == METADATA_VERSION_FEATURE else [],
            },
        )
        for update in changed
    ]
    return ControllerResult(records, response, events=events)


def _current_level(state: MetadataState, feature: str) -> int:
    return state.metadata_version if feature == METADATA_VERSION_FEATURE else state.features.get(feature, 0)


def _upgrade_type(update: FeatureUpdateKey) -> UpgradeType | None:
    """Returns the type of the update; None if it is unknown. Version 0 can only ask for an upgrade or a safe downgrade."""
    if update.allow_downgrade:
        return UpgradeType.SAFE_DOWNGRADE
    return next((each for each in UpgradeType if each == update.upgrade_type), None)


def _refusal(update: FeatureUpdateKey, reason: str) -> ApiError:
    text = f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, _FAILED + text)


def _may_delete(level: int, losses: Losses) -> str:
    return (
        "Refusing to perform the requested downgrade because it might delete metadata information: "
        f"metadata.version {level_name(level)} cannot express {'; '.join(losses.description())}. "
        "An unsafe downgrade deletes it."
    )


# --- checks ----------------------------------------------------------------------------------------------------------


def _reason_refused(turn: Turn, update: FeatureUpdateKey, metadata_version: int) -> str | None:
    """Checks everything except what a downgrade would lose. The texts are Kafka's where Kafka has one. `metadata_version` is
    the level that the request leaves."""
    level, current = update.max_version_level, _current_level(turn.state, update.feature)
    kind = _upgrade_type(update)
    if kind is None:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    unsupported = _reason_not_supported(turn, update.feature, level)
    if unsupported is not None:
        return unsupported
    if level < current and kind is UpgradeType.UPGRADE:
        return _NOT_AN_UPGRADE
    if level > current and kind is not UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if update.feature == DIRECTORY_NUMBERING_FEATURE and level != current:
        return "The numbering of directory ids is chosen when the cluster is formatted and cannot be changed."
    if update.feature not in _KNOWN_FEATURES and update.feature not in turn.state.features:
        # Level 0 is supported by nodes that have not heard of the feature. A mistyped name must not pass for a success.
        return f"Feature {update.feature} not found."
    if update.feature in _FURTHER_FEATURES and level > 0 and metadata_version < FURTHER_FEATURES_LEVEL:
        return (
            f"{update.feature} could not be set to {level} because it depends on "
            f"{METADATA_VERSION_FEATURE}={FURTHER_FEATURES_LEVEL} ({level_name(FURTHER_FEATURES_LEVEL)})"
        )
    if update.feature == METADATA_VERSION_FEATURE and level < MINIMUM_BOOTSTRAP_LEVEL:
        return f"Unable to set a metadata.version less than {level_name(MINIMUM_BOOTSTRAP_LEVEL)}"
    return None


def _reason_not_supported(turn: Turn, feature: str, level: int) -> str | None:
    for who, levels in _nodes(turn, feature):
        if level not in levels:
            if levels.maximum == 0:
                return f"{who} does not support this feature."
            return f"{who} only supports versions {levels.minimum}-{levels.maximum}"
    return None


def _nodes(turn: Turn, feature: str) -> Iterator[tuple[str, SupportedLevels]]:
    """Yields each node with the levels of the feature that it supports: 0 if it does not know the feature."""
    yield f"Local controller {turn.settings.resolver.node_name}", supported_levels(CONTROLLER_FEATURES, feature)
    for broker in turn.state.brokers.values():
        yield f"Broker {broker.broker_id}", _registered_levels(broker.features, feature)
    for controller in turn.state.controllers.values():
        yield f"Controller {controller.controller_id}", _registered_levels(controller.features, feature)


def _registered_levels(features: tuple[SupportedFeature, ...], name: str) -> SupportedLevels:
    found: Mapping[str, SupportedLevels] = {
        each.name: SupportedLevels(each.min_version, each.max_version) for each in features
    }
    return found.get(name, SupportedLevels(0, 0))
