"""The periodic sweeps (leaderless partitions, preferred leaders) and unregistration of brokers."""

import pytest

from common.ids import NO_LEADER, BrokerId, TopicIdPartition
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.protocol.errors import ApiError, ErrorCode
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from controller.core import leaderless
from tests.unit.controller.core.context import ControllerContext, directory


def two_brokers() -> ControllerContext:
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    controller.start(2, ["c", "d"])
    return controller


def test_the_sweep_finds_what_nobody_reported() -> None:
    """The records of an older controller unfenced a broker without holding elections. The sweep repairs that."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2]])
    controller.fence(2)
    controller.fence(1)
    unfence = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=-1)
    controller.state.replay(unfence, offset=controller.next_write_offset)
    controller.log.append(unfence)
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [1])
    assert controller.sweep() == 1
    assert controller.records == [PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)]
    assert controller.sweep() == 0


def test_the_sweep_leaves_alone_what_cannot_be_led() -> None:
    """The only ISR member is fenced, so the partition stays leaderless and nothing is written."""
    controller = two_brokers()
    controller.topic("t", [[1]])
    controller.fence(1)
    assert controller.sweep() == 0
    assert controller.records == []


def test_the_sweep_elects_uncleanly_once_that_is_allowed() -> None:
    """Unclean elections are allowed after the partition lost its leader, once by the topic's configuration and once by the
    cluster's default."""
    for resource_type, name in ((2, "t"), (4, "")):
        controller = two_brokers()
        topic_id = controller.topic("t", [[1, 2]])
        controller.fence(2)
        controller.heartbeat(2)
        controller.fence(1)
        assert controller.sweep() == 0
        config = ConfigRecord(
            resource_type=resource_type, resource_name=name, name="unclean.leader.election.enable", value="true"
        )
        controller.state.replay(config, offset=controller.next_write_offset)
        controller.log.append(config)
        assert controller.sweep() == 1
        assert controller.leader_and_isr(topic_id) == (2, [2])


def test_a_lost_replica_is_revived_by_the_sweep() -> None:
    """Every replica is offline, one of them LOST on an active broker, and unclean elections are allowed. The LOST replica
    becomes the leader and starts empty."""
    controller = ControllerContext(unclean=True)
    controller.start(1, ["a", "b"])
    controller.start(2, ["c", "d"])
    topic_id = controller.topic("t", [[1, 2]], {1: "a"})
    controller.fence(2)
    controller.assign(2, {}, ids={LOST: [TopicIdPartition(topic_id, 0)]})
    controller.heartbeat(1, offline=["a"])
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [1])
    controller.heartbeat(2)
    assert controller.records[-1] == PartitionChangeRecord(
        partition_id=0,
        topic_id=topic_id,
        isr=[2],
        leader=2,
        leader_recovery_state=1,
        directories=[directory("a"), UNASSIGNED],
    )


def test_one_sweep_takes_a_limited_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining partitions wait for the next sweep."""
    monkeypatch.setattr(leaderless, "ELECTIONS_PER_SWEEP_MAX", 2)
    controller = two_brokers()
    controller.topic("t", [[1], [1], [1]])
    controller.fence(1)
    unfence = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=-1)
    controller.state.replay(unfence, offset=controller.next_write_offset)
    controller.log.append(unfence)
    assert [controller.sweep(), controller.sweep(), controller.sweep()] == [2, 1, 0]


def test_preferred_leaders_are_restored_where_that_is_clean() -> None:
    """The leader moves only if the first replica is back in the ISR and the partition has a leader."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2], [1, 2], [2, 1]])
    controller.fence(1)
    controller.heartbeat(1)
    controller.alter(topic_id, 0, [2, 1])
    assert controller.leader_and_isr(topic_id, 0) == (2, [2, 1])
    assert controller.prefer() == 1
    assert controller.records == [PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)]
    assert controller.leader_and_isr(topic_id, 1) == (2, [2])
    assert controller.prefer() == 0


def test_an_unregistered_broker_leaves_everything_but_the_replica_lists() -> None:
    """The partition changes come first, the removal last."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2], [2, 1]])
    alone = controller.topic("alone", [[1]])
    epoch = controller.epoch(1)
    controller.unregister(1)
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2], leader=2),
        PartitionChangeRecord(partition_id=1, topic_id=topic_id, isr=[2]),
        PartitionChangeRecord(partition_id=0, topic_id=alone, leader=NO_LEADER),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch),
    ]
    assert controller.partition(topic_id).replicas == (1, 2)
    assert BrokerId(1) not in controller.state.brokers
    assert not controller.sessions.is_valid(BrokerId(1), controller.now_ns)


def test_an_unregistered_brokers_directories_are_free() -> None:
    """After a disk was moved to another broker, that broker may register the disk's directory."""
    controller = two_brokers()
    controller.unregister(1)
    assert controller.register(3, ["a"]).error_code == ErrorCode.NONE


def test_only_a_registered_broker_can_be_unregistered() -> None:
    """The response is BROKER_ID_NOT_REGISTERED, and nothing is written."""
    controller = two_brokers()
    written = len(controller.log)
    with pytest.raises(ApiError) as caught:
        controller.unregister(7)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert len(controller.log) == written
