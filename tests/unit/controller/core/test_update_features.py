"""UpdateFeatures: every reason to refuse an update, and what downgrades keep, lose and refuse to lose."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import pytest

from common.ids import NO_LEADER, BrokerId, Offset, TopicId, TopicIdPartition
from common.metadata.directory_ids import LOST, MIGRATING
from common.metadata.metadata_version import (
    CONTROLLER_FEATURES,
    DIRECTORY_NUMBERING_FEATURE,
    LATEST_LEVEL,
    METADATA_VERSION_FEATURE,
    MINIMUM_BOOTSTRAP_LEVEL,
    TRANSACTION_VERSION_FEATURE,
)
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.controller_registration import ControllerRegistrationRequest, Feature
from common.protocol.messages.elect_leaders import ElectionType
from common.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from common.protocol.numbering import Numbering
from common.records.metadata_frame import ApiMessageAndVersion, encode_record
from common.records.metadata_records import (
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationRecord,
    ZkMigrationState,
)
from controller.core.controller_registration import handle_controller_registration
from controller.core.result import ControllerResult
from controller.core.update_features import update_features
from tests.unit.controller.core.context import ControllerContext, directory

LEVELS = range(MINIMUM_BOOTSTRAP_LEVEL, LATEST_LEVEL + 1)


def update(
    context: ControllerContext,
    level: int,
    kind: int = UpgradeType.UPGRADE,
    *,
    feature: str = METADATA_VERSION_FEATURE,
    dry_run: bool = False,
) -> UpdateFeaturesResponse:
    key = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=dry_run)
    return context.apply(update_features(context.turn(), request))


def refused(
    context: ControllerContext, level: int, kind: int = UpgradeType.UPGRADE, *, feature: str = METADATA_VERSION_FEATURE
) -> str:
    """Returns the error's text without what every text begins with."""
    before = len(context.log)
    with pytest.raises(ApiError) as caught:
        update(context, level, kind, feature=feature)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert len(context.log) == before
    start = (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {feature}. "
    )
    assert caught.value.message is not None
    assert caught.value.message.startswith(start)
    return caught.value.message.removeprefix(start)


def test_an_upgrade_writes_the_new_level() -> None:
    """Only the feature's record is written. A dry run writes nothing, and neither does an update to the present level."""
    context = ControllerContext(level=16)
    context.start(1)
    for dry_run, level in (True, 17), (False, 16):
        assert update(context, level, dry_run=dry_run).error_code == ErrorCode.NONE
        assert context.last_records == []
    response = update(context, 17)
    assert [each.feature for each in response.results] == [METADATA_VERSION_FEATURE]
    assert [each.record for each in context.last_records] == [
        FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=17)
    ]
    assert context.event("feature_updated") == {
        "feature": METADATA_VERSION_FEATURE,
        "level_before": 16,
        "level": 17,
        "lost": [],
    }
    assert context.state.metadata_version == 17


REFUSALS: Sequence[tuple[str, int, int, str]] = (
    (METADATA_VERSION_FEATURE, 22, 7, "The controller does not support the given upgrade type."),
    (METADATA_VERSION_FEATURE, -1, 1, "A feature version cannot be less than 0."),
    (METADATA_VERSION_FEATURE, 0, 3, "Local controller 100 only supports versions 1-33"),
    (METADATA_VERSION_FEATURE, 34, 1, "Local controller 100 only supports versions 1-33"),
    (METADATA_VERSION_FEATURE, 99, 1, "Local controller 100 only supports versions 1-33"),
    (METADATA_VERSION_FEATURE, 3, 3, "Unable to set a metadata.version less than 3.3-IV0"),
    (
        METADATA_VERSION_FEATURE,
        20,
        1,
        "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.",
    ),
    (METADATA_VERSION_FEATURE, 22, 2, "Can't downgrade to a newer version."),
    (METADATA_VERSION_FEATURE, 22, 3, "Can't downgrade to a newer version."),
    ("kraft.version", 1, 1, "Local controller 100 does not support this feature."),
    (TRANSACTION_VERSION_FEATURE, 3, 1, "Local controller 100 only supports versions 0-2"),
    ("group.version", 2, 1, "Local controller 100 only supports versions 0-1"),
    ("eligible.leader.replicas.version", 1, 1, "Local controller 100 does not support this feature."),
    ("group.versoin", 1, 1, "Local controller 100 does not support this feature."),
    ("group.versoin", 0, 2, "Feature group.versoin not found."),
    (
        DIRECTORY_NUMBERING_FEATURE,
        0,
        3,
        "The numbering of directory ids is chosen when the cluster is formatted and cannot be changed.",
    ),
)


def test_transaction_version_goes_up_and_down() -> None:
    context = ControllerContext(level=21)
    for level, kind in ((2, UpgradeType.UPGRADE), (1, UpgradeType.SAFE_DOWNGRADE), (0, UpgradeType.SAFE_DOWNGRADE)):
        update(context, level, kind, feature=TRANSACTION_VERSION_FEATURE)
        assert context.state.features.get(TRANSACTION_VERSION_FEATURE, 0) == level


@pytest.mark.parametrize(
    ("before", "after", "is_possible"),
    [(MINIMUM_BOOTSTRAP_LEVEL, 7, True), (MINIMUM_BOOTSTRAP_LEVEL, 6, False), (7, 6, False), (7, 7, True)],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_transaction_version_depends_on_the_metadata_version_of_the_same_request(
    before: int, after: int, is_possible: bool, is_first: bool
) -> None:
    """As in Kafka: what counts are the levels after the request, in whichever order it names the features."""
    context = ControllerContext(level=before)
    kind = UpgradeType.UPGRADE if after >= before else UpgradeType.UNSAFE_DOWNGRADE
    updates = [
        FeatureUpdateKey(feature=METADATA_VERSION_FEATURE, max_version_level=after, upgrade_type=kind),
        FeatureUpdateKey(feature=TRANSACTION_VERSION_FEATURE, max_version_level=2),
    ]
    request = UpdateFeaturesRequest(feature_updates=updates if is_first else updates[::-1])
    reason = r"transaction\.version could not be set to 2 because it depends on metadata\.version=7 \(3\.3-IV3\)"
    with nullcontext() if is_possible else pytest.raises(ApiError, match=reason):
        context.apply(update_features(context.turn(), request))
    levels = (context.state.metadata_version, context.state.features.get(TRANSACTION_VERSION_FEATURE, 0))
    assert levels == ((after, 2) if is_possible else (before, 0))


@pytest.mark.parametrize(("feature", "level", "kind", "reason"), REFUSALS)
def test_an_update_that_is_never_possible(feature: str, level: int, kind: int, reason: str) -> None:
    """The texts are Kafka's, except for the feature of our own."""
    assert refused(ControllerContext(level=21), level, kind, feature=feature) == reason


@pytest.mark.parametrize("feature", ["share.version", "eligible.leader.replicas.version", "kraft.version", "later.version"])
def test_a_feature_that_kafka_or_the_log_knows_can_be_disabled(feature: str) -> None:
    """Kafka's tool sets all features of a release, also those that only Kafka has. A later release may write others."""
    context = ControllerContext(level=21)
    if feature == "later.version":
        context.apply(ControllerResult([ApiMessageAndVersion(FeatureLevelRecord(name=feature, feature_level=1), 0)], None))
    update(context, 0, UpgradeType.SAFE_DOWNGRADE, feature=feature)
    assert feature not in context.state.features


def test_a_broker_that_cannot_speak_the_new_level() -> None:
    """The refusal names the broker, fenced or not, and its range."""
    context = ControllerContext(level=16)
    context.start(1)
    context.register(2, features=[(METADATA_VERSION_FEATURE, 1, 16), (DIRECTORY_NUMBERING_FEATURE, 0, 1)])
    assert refused(context, 17) == "Broker 2 only supports versions 1-16"


def test_all_updates_take_effect_or_none() -> None:
    """The second update is refused, so the first one has no effect either. A feature named twice is malformed."""
    context = ControllerContext(level=16)
    updates = [
        FeatureUpdateKey(feature=METADATA_VERSION_FEATURE, max_version_level=17),
        FeatureUpdateKey(feature="kraft.version", max_version_level=1),
    ]
    for request, code in (
        (updates, ErrorCode.INVALID_UPDATE_VERSION),
        ([updates[0], updates[0]], ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(ApiError) as caught:
            context.apply(update_features(context.turn(), UpdateFeaturesRequest(feature_updates=request)))
        assert caught.value.code is code
    assert context.state.metadata_version == 16


def test_version_0_asks_for_a_safe_downgrade() -> None:
    """Its flag takes the place of the upgrade type."""
    context = ControllerContext(level=21)
    key = FeatureUpdateKey(feature=METADATA_VERSION_FEATURE, max_version_level=20, allow_downgrade=True)
    context.apply(update_features(context.turn(), UpdateFeaturesRequest(feature_updates=[key])))
    assert context.state.metadata_version == 20


# --- downgrades ------------------------------------------------------------------------------------------------------


def full_context(level: int) -> tuple[ControllerContext, TopicId]:
    """Returns a cluster that holds everything that this level can express and some lower one cannot."""
    context = ControllerContext(level=level, migration=True)
    has_directories = level >= 17
    for broker_id in (1, 2, 3):
        directories = [f"{broker_id}a", f"{broker_id}b"] if has_directories else []
        context.start(broker_id, directories, is_migrating=broker_id == 2 and level >= 8)
    topic_id = context.topic("t", [[1, 2], [2, 3], [3, 1]])
    if has_directories:
        context.assign(1, {"1a": [TopicIdPartition(topic_id, 0)]})
        context.heartbeat(2, offline=["2b"], cordoned=[])
        context.heartbeat(1, cordoned=["1a"])
    context.heartbeat(3, want_shut_down=True, metadata_offset=0)
    assert context.state.brokers[BrokerId(3)].in_controlled_shutdown is (level >= 7)
    kept = [
        *([ApiMessageAndVersion(UserScramCredentialRecord(name="u", mechanism=1), 0)] if level >= 11 else []),
        *([ApiMessageAndVersion(DelegationTokenRecord(token_id="k"), 0)] if level >= 14 else []),
        *([ApiMessageAndVersion(ZkMigrationRecord(zk_migration_state=ZkMigrationState.MIGRATION), 0)] if level >= 8 else []),
    ]
    context.apply(ControllerResult(kept, None))
    if level >= 15:
        request = ControllerRegistrationRequest(
            controller_id=9,
            features=[
                Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in CONTROLLER_FEATURES.items()
            ],
        )
        context.apply(handle_controller_registration(context.turn(), request))
    return context, topic_id


def rebuilt(state: MetadataState) -> MetadataState:
    """Returns what a node gets that loads a snapshot of the state."""
    reader = MetadataRecordReader()
    copy = MetadataState()
    for offset, written in enumerate(generate_snapshot_records(state)):
        frame = encode_record(written.record, written.version, Numbering.KIP858)
        copy.replay(reader.decode(frame), offset=Offset(offset))
    return copy


@pytest.mark.parametrize(("level", "lower"), [(one, other) for one, other in product(LEVELS, LEVELS) if other < one])
def test_a_snapshot_after_every_downgrade(level: int, lower: int) -> None:
    """From every level to every lower one: a safe downgrade loses nothing, or is refused and changes nothing; an unsafe one
    always works. Snapshots can be written before and after, and rebuild the same state."""
    context, _ = full_context(level)
    assert rebuilt(context.state) == context.state
    loses = any(lower < boundary <= level for boundary in (7, 8, 11, 14, 17, 30))
    if loses:
        assert "it might delete metadata information" in refused(context, lower, UpgradeType.SAFE_DOWNGRADE)
    kind = UpgradeType.UNSAFE_DOWNGRADE if loses else UpgradeType.SAFE_DOWNGRADE
    assert update(context, lower, kind).error_code == ErrorCode.NONE
    assert context.state.metadata_version == lower
    assert rebuilt(context.state) == context.state
    assert bool(context.state.controllers) is (lower >= 15)
    assert context.state.zk_migration_state is (ZkMigrationState.MIGRATION if lower >= 8 else None)
    assert (len(context.last_records) > 1) is loses
    assert bool(context.event("feature_updated")["lost"]) is loses


def test_a_refused_downgrade_names_what_it_would_lose() -> None:
    """Each kind of loss is named with its brokers, partitions, users and tokens."""
    context, _ = full_context(21)
    assert refused(context, 4, UpgradeType.SAFE_DOWNGRADE) == (
        "Refusing to perform the requested downgrade because it might delete metadata information: metadata.version 3.3-IV0 "
        "cannot express the registered directories of brokers 1, 2, 3; the directories of partitions t-0, t-1, t-2; "
        "the controlled shutdown of brokers 3; the ZooKeeper mode of brokers 2; "
        "the state of the migration from ZooKeeper, MIGRATION; the SCRAM credentials of users u; the delegation tokens k. "
        "An unsafe downgrade deletes it."
    )


def test_a_refused_downgrade_names_brokers_in_the_order_of_their_ids() -> None:
    """Not in that of their registrations."""
    context = ControllerContext(level=21)
    for broker_id in (3, 1, 2):
        context.start(broker_id, [f"{broker_id}-a"])
    assert "the registered directories of brokers 1, 2, 3. An" in refused(context, 16, UpgradeType.SAFE_DOWNGRADE)


def test_an_unsafe_downgrade_loses_exactly_the_directories() -> None:
    """Below 17 nobody knows directories, lost ones included. Everything else about brokers and partitions stays, and nobody
    is fenced."""
    context, topic_id = full_context(21)
    brokers = dict(context.state.brokers)
    before = context.partition(topic_id)
    update(context, 16, UpgradeType.UNSAFE_DOWNGRADE)
    kinds = [type(each.record) for each in context.last_records]
    assert kinds == [*[PartitionChangeRecord] * 3, FeatureLevelRecord, *[RegisterBrokerRecord] * 3]
    after = context.partition(topic_id)
    assert after.directories == (MIGRATING, MIGRATING)
    assert (after.leader, after.isr, after.leader_epoch) == (before.leader, before.isr, before.leader_epoch)
    for broker_id, broker in brokers.items():
        now = context.state.brokers[broker_id]
        assert now == replace(broker, directories=(), lost_directories=())


def test_an_unsafe_downgrade_below_30_loses_exactly_the_cordons() -> None:
    """Only broker 1 has one, and it keeps everything else; a safe downgrade names it. That broker 2 has said it has none is
    forgotten without a record."""
    context, _ = full_context(30)
    brokers = dict(context.state.brokers)
    assert "the cordoned directories of brokers 1. An" in refused(context, 29, UpgradeType.SAFE_DOWNGRADE)
    update(context, 29, UpgradeType.UNSAFE_DOWNGRADE)
    assert [type(each.record) for each in context.last_records] == [FeatureLevelRecord, RegisterBrokerRecord]
    assert brokers[BrokerId(2)].cordoned_directories == ()
    for broker_id in (BrokerId(1), BrokerId(2)):
        brokers[broker_id] = replace(brokers[broker_id], cordoned_directories=None)
    assert context.state.brokers == brokers


def test_no_downgrade_makes_a_lost_replica_a_leader() -> None:
    """Without directories the last in-sync replica would be elected although it has no log, and while it leads, no other
    replica can be elected. So not even an unsafe downgrade happens before the administrator has decided about it."""
    context = ControllerContext(level=21)
    for broker_id in (1, 2):
        context.start(broker_id, [f"{broker_id}a", f"{broker_id}b"])
    topic_id, other_id = context.topic("t", [[1, 2], [1, 2]]), context.topic("sole", [[1]])
    for index in (0, 1):
        context.alter(topic_id, index, [1])
    lost = [TopicIdPartition(topic_id, 1), TopicIdPartition(other_id, 0)]
    context.assign(1, {}, ids={LOST: lost})
    assert [context.leader_and_isr(*key) for key in lost] == [(NO_LEADER, [1])] * 2
    assert refused(context, 16, UpgradeType.UNSAFE_DOWNGRADE) == (
        "metadata.version 3.7-IV1 cannot express that the last in-sync replica of the partitions t-1 is LOST: it would be "
        "elected without its log. Put its directory back into log.dirs and restart its broker, or elect another replica "
        "with kafka-leader-election --election-type unclean."
    )
    context.elect({"t": [1]}, election_type=ElectionType.UNCLEAN)
    assert context.leader_and_isr(topic_id, 1) == (2, [2])
    update(context, 16, UpgradeType.UNSAFE_DOWNGRADE)
    assert context.leader_and_isr(topic_id, 1) == (2, [2])


@pytest.mark.parametrize("is_gone", [False, True])
def test_an_unclean_election_permits_the_downgrade_although_no_other_replica_is_there(is_gone: bool) -> None:
    """No partition blocks a downgrade forever. If every replica is LOST, an unclean election revives one of them. If their
    brokers are gone, the partition is first reassigned to others."""
    context = ControllerContext(level=21)
    for broker_id in (1, 2, 3):
        context.start(broker_id, [f"{broker_id}a", f"{broker_id}b"])
    topic_id = context.topic("t", [[1, 2]])
    context.alter(topic_id, 0, [1])
    for broker_id in (2, 1):
        context.assign(broker_id, {}, ids={LOST: [TopicIdPartition(topic_id, 0)]})
    assert "t-0 is LOST" in refused(context, 16, UpgradeType.UNSAFE_DOWNGRADE)
    if is_gone:
        context.unregister(1)
        context.unregister(2)
        assert "t-0 is LOST" in refused(context, 16, UpgradeType.UNSAFE_DOWNGRADE)
        context.reassign("t", {0: [3]})
    context.elect({"t": [0]}, election_type=ElectionType.UNCLEAN)
    leader = 3 if is_gone else 1
    assert context.leader_and_isr(topic_id, 0) == (leader, [leader])
    update(context, 16, UpgradeType.UNSAFE_DOWNGRADE)
    assert context.leader_and_isr(topic_id, 0) == (leader, [leader])


def test_directories_come_back_with_the_level() -> None:
    """After an unsafe downgrade and an upgrade, the brokers register again with their directories, and assign again."""
    context, topic_id = full_context(21)
    update(context, 16, UpgradeType.UNSAFE_DOWNGRADE)
    update(context, 17)
    epoch = context.epoch(1)
    context.register(1, ["1a", "1b"])
    broker = context.state.brokers[BrokerId(1)]
    assert broker.epoch == epoch
    assert not broker.fenced
    assert broker.directories == tuple(sorted([directory("1a"), directory("1b")]))
    context.assign(1, {"1b": [TopicIdPartition(topic_id, 0)]})
    assert context.partition(topic_id).directory(BrokerId(1)) == directory("1b")
