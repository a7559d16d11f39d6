"""Broker registration: what is refused, what the old incarnation loses to a new one, and what the same incarnation keeps."""

from collections.abc import Callable

import pytest

from common.ids import NO_LEADER, BrokerId, TopicIdPartition, Uuid
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, LATEST_LEVEL, METADATA_VERSION_FEATURE
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.broker_registration import BrokerRegistrationRequest
from common.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from common.records.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from common.slices import at_once
from controller.core.registration import handle_broker_registration
from controller.core.update_features import update_features
from tests.unit.controller.core.context import CLUSTER_ID, ControllerContext, directory, incarnation

ONE = BrokerId(1)


def test_a_first_registration_is_fenced_and_lists_its_directories() -> None:
    """Compares the whole record. Its directories are sorted, and the broker epoch is the record's offset."""
    controller = ControllerContext()
    response = controller.register(1, ["b", "a"], rack="r")
    assert response.error_code == ErrorCode.NONE
    assert response.broker_epoch == 2
    assert controller.records == [
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=incarnation("1-first"),
            broker_epoch=2,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="host-1", port=9092, security_protocol=0)],
            features=[
                BrokerFeature(name=METADATA_VERSION_FEATURE, min_supported_version=1, max_supported_version=LATEST_LEVEL),
                BrokerFeature(name=DIRECTORY_NUMBERING_FEATURE, min_supported_version=0, max_supported_version=1),
            ],
            rack="r",
            fenced=True,
            log_dirs=[directory("a"), directory("b")],
        )
    ]
    assert [written.version for written in controller.last_records] == [3]
    assert controller.event("broker_registered")["broker_id"] == 1


Refused = Callable[[ControllerContext], object]


def _register_raw(controller: ControllerContext, log_dirs: list[Uuid]) -> object:
    request = BrokerRegistrationRequest(broker_id=9, cluster_id=CLUSTER_ID, log_dirs=log_dirs)
    return at_once(handle_broker_registration(controller.turn(), request))


REFUSALS: dict[str, tuple[Refused, ErrorCode]] = {
    "the number for no leader": (lambda c: c.register(-1, ["x"]), ErrorCode.INVALID_REQUEST),
    "the number for no change of leader": (lambda c: c.register(-2, ["x"]), ErrorCode.INVALID_REQUEST),
    "another cluster": (lambda c: c.register(9, ["x"], cluster_id="else"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    "migrating from ZooKeeper": (lambda c: c.register(9, ["x"], is_migrating=True), ErrorCode.BROKER_ID_NOT_REGISTERED),
    "too large": (
        lambda c: c.register(9, ["x"], features=[(f"{number:0200}", 0, 1) for number in range(2_000)]),
        ErrorCode.INVALID_REGISTRATION,
    ),
    "no directories": (lambda c: c.register(9, []), ErrorCode.INVALID_REQUEST),
    "directory twice": (lambda c: c.register(9, ["x", "x"]), ErrorCode.INVALID_REGISTRATION),
    "reserved: unassigned": (lambda c: _register_raw(c, [UNASSIGNED]), ErrorCode.INVALID_REGISTRATION),
    "reserved: lost": (lambda c: _register_raw(c, [directory("x"), LOST]), ErrorCode.INVALID_REGISTRATION),
    "reserved: 99": (lambda c: _register_raw(c, [Uuid(bytes(15) + b"\x63")]), ErrorCode.INVALID_REGISTRATION),
    "another broker's": (lambda c: c.register(9, ["x", "one-a"]), ErrorCode.INVALID_REGISTRATION),
    "another broker's lost": (lambda c: c.register(9, ["x", "one-b"]), ErrorCode.INVALID_REGISTRATION),
    "alive as another incarnation": (
        lambda c: c.register(1, ["one-a"], incarnation_name="second"),
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ),
    "metadata.version too low": (
        lambda c: c.register(9, ["x"], features=[(METADATA_VERSION_FEATURE, 1, 20), (DIRECTORY_NUMBERING_FEATURE, 0, 1)]),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "no metadata.version": (
        lambda c: c.register(9, ["x"], features=[(DIRECTORY_NUMBERING_FEATURE, 0, 1)]),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "metadata.version too high": (
        lambda c: c.register(9, ["x"], features=[(METADATA_VERSION_FEATURE, 22, 25), (DIRECTORY_NUMBERING_FEATURE, 0, 1)]),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "a feature that it cannot do without": (
        lambda c: c.register(
            9,
            ["x"],
            features=[(METADATA_VERSION_FEATURE, 1, 22), (DIRECTORY_NUMBERING_FEATURE, 0, 1), ("group.version", 1, 1)],
        ),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "an Apache broker": (
        lambda c: c.register(9, ["x"], features=[(METADATA_VERSION_FEATURE, 1, 25)]),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
}


@pytest.mark.parametrize("name", list(REFUSALS))
def test_refused_registrations_write_nothing(name: str) -> None:
    """Each reason to refuse has its own error code, and the state does not change."""
    controller = ControllerContext()
    controller.start(1, ["one-a", "one-b"])
    controller.heartbeat(1, offline=["one-b"])
    written = len(controller.log)
    attempt, code = REFUSALS[name]
    with pytest.raises(ApiError) as caught:
        attempt(controller)
    assert caught.value.code is code
    assert len(controller.log) == written


def test_features_that_are_not_finalized_need_not_be_supported() -> None:
    """The broker may list features that are not finalized in the cluster, such as kraft.version or group.version."""
    controller = ControllerContext()
    features = [(METADATA_VERSION_FEATURE, 21, 21), (DIRECTORY_NUMBERING_FEATURE, 1, 1), ("kraft.version", 0, 1)]
    assert controller.register(1, ["a"], features=[*features, ("group.version", 0, 1)]).broker_epoch > 0


def test_a_refused_feature_is_named_with_level_and_range() -> None:
    """The operator reads this text in the broker's log."""
    controller = ControllerContext()
    with pytest.raises(ApiError, match=r"feature metadata\.version is finalized at level 21, the broker supports 1 to 20"):
        controller.register(1, ["a"], features=[(METADATA_VERSION_FEATURE, 1, 20), (DIRECTORY_NUMBERING_FEATURE, 0, 1)])


def test_a_fenced_predecessor_never_blocks() -> None:
    """A fenced broker may return at once as a new incarnation, with a higher epoch."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    first = controller.epoch(1)
    controller.fence(1)
    assert controller.register(1, ["a"], incarnation_name="second").broker_epoch > first


def test_a_new_incarnation_while_the_old_one_is_not_fenced_takes_everything_from_it() -> None:
    """The predecessor's session has expired, but it is not fenced yet. It loses its leaderships and ISR entries in the same
    batch, before the registration."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.start(2, ["b"])
    led = controller.topic("led", [[1, 2]])
    followed = controller.topic("followed", [[2, 1]])
    alone = controller.topic("alone", [[1]])
    controller.advance(8)
    controller.heartbeat(2)
    controller.advance(2)
    controller.register(1, ["a"], incarnation_name="second")
    assert controller.records[:-1] == [
        PartitionChangeRecord(partition_id=0, topic_id=led, isr=[2], leader=2),
        PartitionChangeRecord(partition_id=0, topic_id=followed, isr=[2]),
        PartitionChangeRecord(partition_id=0, topic_id=alone, leader=NO_LEADER),
    ]
    assert isinstance(controller.records[-1], RegisterBrokerRecord)
    controller.heartbeat(1)
    assert controller.leader_and_isr(alone) == (1, [1])
    assert controller.leader_and_isr(led) == (2, [2])


def test_a_clean_restart_is_told_apart_from_an_unclean_one() -> None:
    """The restart is clean if the epoch in the clean-shutdown marker is the registered one."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.fence(1)
    controller.register(1, ["a"], incarnation_name="second", previous_epoch=controller.epoch(1))
    assert controller.event("broker_registered")["is_clean_restart"] is True
    controller.register(1, ["a"], incarnation_name="third", previous_epoch=7)
    assert controller.event("broker_registered")["is_clean_restart"] is False


def test_a_new_incarnation_forgets_the_lost_directories() -> None:
    """Only a new incarnation of the broker may register a lost directory as online again."""
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    controller.heartbeat(1, offline=["b"])
    assert controller.state.brokers[ONE].lost_directories == (directory("b"),)
    controller.fence(1)
    controller.register(1, ["a", "b"], incarnation_name="second")
    assert controller.state.brokers[ONE].directories == (directory("a"), directory("b"))
    assert controller.state.brokers[ONE].lost_directories == ()


def test_the_same_incarnation_keeps_epoch_fencing_and_shutdown() -> None:
    """KAFKA-16757 and KAFKA-16952: registering again is not a restart."""
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    controller.start(2, ["c"])
    controller.topic("t", [[1, 2]])
    controller.heartbeat(1, want_shut_down=True)
    before = controller.state.brokers[ONE]
    assert before.in_controlled_shutdown
    response = controller.register(1, ["a", "b"])
    assert response.broker_epoch == before.epoch
    assert controller.state.brokers[ONE] == before


def test_the_same_incarnation_cannot_revive_a_lost_directory() -> None:
    """The record has the directories of the request except the lost ones."""
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    controller.heartbeat(1, offline=["b"])
    controller.register(1, ["a", "b"])
    registration = controller.state.brokers[ONE]
    assert registration.directories == (directory("a"),)
    assert registration.lost_directories == (directory("b"),)


def test_a_directory_left_out_by_the_same_incarnation_is_a_reported_failure() -> None:
    """The batch first removes leaders and ISR entries from the missing directory, then registers the other directories."""
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    controller.start(2, ["c"])
    on_a = controller.topic("on-a", [[1, 2]], {1: "a"})
    on_b = controller.topic("on-b", [[1, 2]], {1: "b"})
    controller.register(1, ["a"])
    assert controller.records[:-1] == [PartitionChangeRecord(partition_id=0, topic_id=on_b, isr=[2], leader=2)]
    assert controller.leader_and_isr(on_a) == (1, [1, 2])
    assert controller.state.brokers[ONE].lost_directories == (directory("b"),)
    assert controller.event("leaders_moved")["directory_id"] == directory("b")


def test_a_directory_left_out_by_the_first_registration_with_directories_is_a_reported_failure() -> None:
    """The level has risen, and an assignment is recorded before the broker has registered its directories. Then the
    directory fails, and the broker registers only the other one: no heartbeat will name the one that failed."""
    controller = ControllerContext(level=16)
    controller.start(1)
    controller.start(2)
    topic = controller.topic("t", [[1, 2], [1, 2], [1, 2]])
    level = FeatureUpdateKey(feature=METADATA_VERSION_FEATURE, max_version_level=21, upgrade_type=1)
    controller.apply(update_features(controller.turn(), UpdateFeaturesRequest(feature_updates=[level])))
    controller.register(2, ["c"])
    controller.assign(1, {"a": [TopicIdPartition(topic, 0)], "b": [TopicIdPartition(topic, 1)]})
    controller.register(1, ["b"])
    assert controller.leader_and_isr(topic, 0) == (2, [2])
    # The second is in the directory that is left. Where the third is will be told later.
    assert controller.leader_and_isr(topic, 1) == controller.leader_and_isr(topic, 2) == (1, [1, 2])
    assert controller.event("leaders_moved")["directory_id"] == directory("a")


def test_a_late_registration_brings_in_no_directory_that_a_later_one_left_out() -> None:
    """The first request names both directories and is late; then one directory fails. The second request names the other one
    only, and with it this failure counts as reported: no heartbeat will name it. Then the first one arrives."""
    controller = ControllerContext()
    controller.register(1, ["a"])
    before = controller.state.brokers[ONE]
    assert controller.register(1, ["a", "b"]).broker_epoch == before.epoch
    assert controller.state.brokers[ONE] == before


def test_the_same_incarnation_may_not_register_lost_directories_only() -> None:
    """A record without directories would make every directory count as online."""
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    controller.heartbeat(1, offline=["b"])
    with pytest.raises(ApiError) as caught:
        controller.register(1, ["b"])
    assert caught.value.code is ErrorCode.INVALID_REGISTRATION


def test_below_17_one_directory_is_normal_and_not_recorded() -> None:
    """Below metadata.version 17 the registration record has no field for directories, and partitions are MIGRATING."""
    controller = ControllerContext(level=16)
    controller.register(1, ["a"])
    controller.register(2, [])
    assert [written.version for written in controller.last_records] == [2]
    assert controller.state.brokers[ONE].directories == ()


def test_below_17_more_than_one_directory_is_refused() -> None:
    """Nothing is written: below 17, a cluster cannot tell which of the directories failed."""
    controller = ControllerContext(level=16)
    with pytest.raises(ApiError) as caught:
        controller.register(1, ["a", "b"])
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_that_starts_with_a_dead_directory_leads_nothing_on_it() -> None:
    """The new incarnation registers the online directories. A partition of which it is the last ISR member stays leaderless
    while its directory is missing, and gets a leader when the directory is back."""
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    on_a = controller.topic("on-a", [[1]], {1: "a"})
    on_b = controller.topic("on-b", [[1]], {1: "b"})
    controller.fence(1)
    controller.register(1, ["a"], incarnation_name="second")
    controller.heartbeat(1)
    assert controller.leader_and_isr(on_a) == (1, [1])
    assert controller.leader_and_isr(on_b) == (NO_LEADER, [1])
    controller.fence(1)
    controller.register(1, ["a", "b"], incarnation_name="third")
    controller.heartbeat(1)
    assert controller.leader_and_isr(on_b) == (1, [1])
