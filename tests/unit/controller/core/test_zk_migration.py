"""The controller's half of a migration from ZooKeeper (KIP-866): who may register, and what keeps a broker fenced."""

import pytest

from common.ids import BrokerId, TopicIdPartition
from common.metadata.directory_ids import MIGRATING
from common.protocol.errors import ApiError, ErrorCode
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import RegisterBrokerRecord, ZkMigrationRecord, ZkMigrationState
from controller.core.result import ControllerResult
from controller.core.unfencing import AwaitedReplicas
from tests.unit.controller.core.context import ControllerContext, directory

ONE = BrokerId(1)


def migration_at(controller: ControllerContext, state: ZkMigrationState) -> None:
    """Writes the record with which a controller of Apache Kafka says how far the migration has got."""
    record = ZkMigrationRecord(zk_migration_state=state)
    controller.apply(ControllerResult([ApiMessageAndVersion(record, 0)], None))


def test_a_migrating_broker_registers_with_its_directories() -> None:
    """The flag and the directories are recorded, and a registration without the flag ends the migration of the broker."""
    controller = ControllerContext(migration=True)
    controller.register(1, ["a", "b"], is_migrating=True)
    (record,) = controller.records
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.is_migrating_zk_broker, record.fenced) == (True, True)
    assert controller.state.brokers[ONE].directories == (directory("a"), directory("b"))
    assert not controller.heartbeat(1).is_fenced
    assert controller.state.brokers[ONE].is_migrating_zk_broker
    controller.fence(1)
    controller.register(1, ["a", "b"], incarnation_name="second")
    assert not controller.state.brokers[ONE].is_migrating_zk_broker


def test_a_broker_in_zookeeper_mode_needs_the_key_and_a_level_that_can_say_it() -> None:
    """Below metadata.version 8 the record has no field for the flag."""
    with pytest.raises(ApiError, match=r"zookeeper\.metadata\.migration\.enable") as caught:
        ControllerContext().register(1, ["a"], is_migrating=True)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    with pytest.raises(ApiError, match=r"metadata\.version") as caught:
        ControllerContext(level=7, migration=True).register(1, is_migrating=True)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert ControllerContext(level=8, migration=True).register(1, is_migrating=True).error_code == ErrorCode.NONE


@pytest.mark.parametrize("state", ZkMigrationState)
def test_before_the_metadata_is_here_other_brokers_have_to_wait(state: ZkMigrationState) -> None:
    """As in Apache Kafka: a broker that starts without ZooKeeper would find no topics."""
    controller = ControllerContext(migration=True)
    migration_at(controller, state)
    controller.register(1, ["a"], is_migrating=True)
    if state is ZkMigrationState.PRE_MIGRATION:
        with pytest.raises(ApiError, match="still in ZooKeeper") as caught:
            controller.register(2, ["b"])
        assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    else:
        controller.register(2, ["b"])


def test_replicas_are_migrating_and_their_broker_fenced_until_it_has_reported_all_of_them() -> None:
    """KIP-858, "Migrating a cluster in ZK mode running with JBOD". The assignments that a broker in ZooKeeper mode sends are
    kept. However long it asks, it is not unfenced at the price of LOST replicas: it serves in ZooKeeper mode meanwhile.
    After its restart it is a broker like any other."""
    controller = ControllerContext(migration=True)
    controller.start(2, ["c"])
    controller.register(1, ["a", "b"], is_migrating=True)
    topic_id = controller.topic("t", [[2, 1]] * 2)
    keys = [TopicIdPartition(topic_id, index) for index in (0, 1)]
    controller.assign(1, {}, ids={MIGRATING: keys})
    controller.register(1, ["a", "b"], is_migrating=True, incarnation_name="second")
    for _ in range(30):
        assert controller.heartbeat(1).is_fenced
        controller.advance(2)
    controller.assign(1, {"a": [keys[0]]})
    assert controller.partition(topic_id, 0).directory(ONE) == directory("a")
    assert controller.partition(topic_id, 1).directory(ONE) == MIGRATING
    assert AwaitedReplicas(controller.state).of_broker(ONE) == [keys[1]]
    controller.register(1, ["a", "b"], incarnation_name="third")
    assert controller.heartbeat(1).is_fenced
    controller.assign(1, {"b": [keys[1]]})
    assert not controller.heartbeat(1).is_fenced


def test_the_values_are_those_of_kafka_since_3_5() -> None:
    """Kafka 3.5 swapped the first two, so a list of the names does not show the values."""
    values = {"NONE": 0, "MIGRATION": 1, "PRE_MIGRATION": 2, "POST_MIGRATION": 3}
    assert {state.name: state.value for state in ZkMigrationState} == values
