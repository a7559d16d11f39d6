"""Replay of broker and controller records: epochs, fencing, directories and lost directories."""

import pytest

from common.ids import BrokerId, DirectoryId, Uuid
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.metadata_version import LATEST_LEVEL
from common.metadata.registrations import BrokerEndpoint, SupportedFeature
from common.metadata.state import MetadataState, ReplayError
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    KnownRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    ZkMigrationRecord,
    ZkMigrationState,
)
from tests.unit.common.metadata.builders import directory, register, replay, uuid

A, B, C, D = (directory(number) for number in range(1, 5))
ONE = BrokerId(1)


def change(
    *log_dirs: Uuid, fenced: int = 0, in_controlled_shutdown: int = 0, epoch: int = 100
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=1,
        broker_epoch=epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=list(log_dirs),
    )


def test_a_registration_is_kept_whole() -> None:
    """Every field of the record is kept, directories are sorted, and the offset is recorded."""
    state = replay(register(1, directories=[B, A], rack="r", fenced=True, epoch=55))
    broker = state.brokers[ONE]
    assert broker.epoch == 55
    assert broker.endpoints == (BrokerEndpoint("PLAINTEXT", "host1", 9092, 0),)
    assert broker.features == (SupportedFeature("metadata.version", 1, LATEST_LEVEL),)
    assert (broker.rack, broker.fenced, broker.in_controlled_shutdown) == ("r", True, False)
    assert broker.directories == (A, B)
    assert broker.lost_directories == ()
    assert state.registration_offsets == {ONE: 0}


@pytest.mark.parametrize(
    ("records", "online", "lost"),
    [
        # A new incarnation starts without lost directories.
        ([register(1, directories=[A, B])], (A, B), ()),
        (
            [register(1, directories=[A, B]), change(A), register(1, directories=[A, B], incarnation=2, epoch=101)],
            (A, B),
            (),
        ),
        ([register(1, directories=[A, B]), change(A), register(1, directories=[A], incarnation=2, epoch=101)], (A,), ()),
        # A change record marks registered directories that it no longer names as lost, in addition to those lost before.
        ([register(1, directories=[A, B, C]), change(A, C)], (A, C), (B,)),
        ([register(1, directories=[A, B, C]), change(A, C), change(C)], (C,), (A, B)),
        # An empty list changes nothing.
        ([register(1, directories=[A, B]), change(fenced=1)], (A, B), ()),
        ([register(1, directories=[A, B]), change(A), change(fenced=1)], (A,), (B,)),
        # The same incarnation registers again. Lost directories stay lost, those left out become lost, new ones are online.
        ([register(1, directories=[A, B]), change(A), register(1, directories=[A])], (A,), (B,)),
        ([register(1, directories=[A, B]), register(1, directories=[B])], (B,), (A,)),
        ([register(1, directories=[A, B]), change(A), register(1, directories=[C])], (C,), (A, B)),
        ([register(1, directories=[A]), register(1, directories=[A, D])], (A, D), ()),
        # The lost directories are (lost + previous) minus new. So a lost directory would be online again if a record named
        # it, but the controller never writes such a record.
        ([register(1, directories=[A, B]), change(A), register(1, directories=[A, B])], (A, B), ()),
        # A registration from a snapshot lists the lost directories.
        ([register(1, directories=[A], lost=[C, B])], (A,), (B, C)),
        ([register(1, directories=[A], lost=[C]), change(fenced=-1), register(1, directories=[A])], (A,), (C,)),
        # A registration without directories (metadata.version below level 17) is followed by one with directories.
        ([register(1), register(1, directories=[A, B])], (A, B), ()),
    ],
)
def test_lost_directories(
    records: list[KnownRecord], online: tuple[DirectoryId, ...], lost: tuple[DirectoryId, ...]
) -> None:
    """Checks how each record changes the online and lost directories: docs/DESIGN.md, "Registration and fencing"."""
    broker = replay(*records).brokers[ONE]
    assert broker.directories == online
    assert broker.lost_directories == lost


def test_fencing_and_controlled_shutdown() -> None:
    """A change record changes only the fields that it sets. Controlled shutdown lasts until a new incarnation registers."""
    state = replay(register(1, fenced=True), change(fenced=-1))
    assert not state.brokers[ONE].fenced
    replay(change(in_controlled_shutdown=1), into=state)
    assert (state.brokers[ONE].fenced, state.brokers[ONE].in_controlled_shutdown) == (False, True)
    replay(change(fenced=1), into=state)
    assert (state.brokers[ONE].fenced, state.brokers[ONE].in_controlled_shutdown) == (True, True)
    replay(register(1, incarnation=2, epoch=200), into=state)
    assert (state.brokers[ONE].fenced, state.brokers[ONE].in_controlled_shutdown) == (False, False)


def test_old_fencing_records() -> None:
    """The fencing records of old clusters have the same effect as the change record."""
    state = replay(register(1, directories=[A]), FenceBrokerRecord(id=1, epoch=100))
    assert state.brokers[ONE].fenced
    replay(UnfenceBrokerRecord(id=1, epoch=100), into=state)
    assert not state.brokers[ONE].fenced
    assert state.brokers[ONE].directories == (A,)


def test_a_broker_migrates_until_it_registers_otherwise() -> None:
    """Nothing but a registration changes whether the broker runs in ZooKeeper mode."""
    state = replay(register(1, directories=[A, B], is_migrating=True))
    replay(change(fenced=1), change(A), into=state)
    assert state.brokers[ONE].is_migrating_zk_broker
    replay(register(1, directories=[A], incarnation=2), into=state)
    assert not state.brokers[ONE].is_migrating_zk_broker


def test_every_state_of_a_migration_is_replayed() -> None:
    """Apache's controllers may have written them. Without a record there is no state."""
    state = replay(register(1))
    assert state.zk_migration_state is None
    for each in ZkMigrationState:
        replay(ZkMigrationRecord(zk_migration_state=each), into=state)
        assert state.zk_migration_state is each


@pytest.mark.parametrize(
    "record",
    [
        register(1, epoch=99),
        register(1, epoch=99, incarnation=2),
        change(epoch=101),
        change(epoch=99),
        change(fenced=2),
        change(in_controlled_shutdown=-1),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=99),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=100),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=100, fenced=1),
        FenceBrokerRecord(id=1, epoch=1),
        UnfenceBrokerRecord(id=3, epoch=100),
        ZkMigrationRecord(zk_migration_state=4),
        ZkMigrationRecord(zk_migration_state=-1),
    ],
)
def test_contradictions(record: KnownRecord) -> None:
    """An epoch that decreases or does not match, an unknown broker or an unknown value raises and changes nothing."""
    state = replay(register(1, directories=[A]))
    with pytest.raises(ReplayError):
        replay(record, into=state)
    assert state == replay(register(1, directories=[A]))
    assert state.last_offset == 0


def test_unregistering_forgets_the_broker() -> None:
    """After an unregistration nothing of the broker remains in the state."""
    state = replay(register(1, directories=[A]), UnregisterBrokerRecord(broker_id=1, broker_epoch=100))
    assert state == MetadataState()
    assert state.registration_offsets == {}
    assert state.directory_owners() == {}


def test_directory_owners() -> None:
    """Online and lost directories belong to the broker that registered them."""
    state = replay(register(1, directories=[A, B]), change(A), register(2, directories=[C]))
    assert state.directory_owners() == {A: 1, B: 1, C: 2}


@pytest.mark.parametrize(
    ("directory_id", "online"), [(A, True), (B, False), (UNASSIGNED, True), (MIGRATING, True), (LOST, False)]
)
def test_replica_online(directory_id: DirectoryId, online: bool) -> None:
    """Fencing and controlled shutdown do not make a replica offline. A replica on an unknown broker is offline."""
    state = replay(register(1, directories=[A]))
    assert state.is_replica_online(ONE, directory_id) is online
    for flag in (change(fenced=1), change(fenced=-1, in_controlled_shutdown=1)):
        replay(flag, into=state)
        assert state.is_replica_online(ONE, directory_id) is online
    assert not state.is_replica_online(BrokerId(2), directory_id)


def test_controllers_are_kept() -> None:
    """The last registration of a controller wins."""
    record = RegisterControllerRecord(
        controller_id=3000,
        incarnation_id=uuid(5),
        end_points=[ControllerEndpoint(name="CONTROLLER", host="c", port=9093, security_protocol=0)],
        features=[ControllerFeature(name="metadata.version", min_supported_version=1, max_supported_version=22)],
    )
    controller = replay(RegisterControllerRecord(controller_id=3000), record).controllers[3000]
    assert controller.endpoints == (BrokerEndpoint("CONTROLLER", "c", 9093, 0),)
    assert controller.features == (SupportedFeature("metadata.version", 1, 22),)


def test_an_unregistered_controller_is_gone() -> None:
    """Only a registered controller can be unregistered."""
    state = replay(RegisterControllerRecord(controller_id=3000), RegisterControllerRecord(controller_id=3001))
    replay(UnregisterControllerRecord(controller_id=3000), into=state)
    assert list(state.controllers) == [3001]
    with pytest.raises(ReplayError):
        replay(UnregisterControllerRecord(controller_id=3000), into=state)


def test_delta_keeps_the_first_registration() -> None:
    """The delta holds each changed broker's registration as it was before the first change, or None for a new broker."""
    state = replay(register(1, directories=[A, B]))
    before = state.brokers[ONE]
    delta = MetadataDelta()
    assert delta.is_empty
    replay(change(A), change(fenced=1), register(2), into=state, delta=delta)
    assert delta.changed_brokers == {1: before, 2: None}
    replay(UnregisterBrokerRecord(broker_id=1, broker_epoch=100), into=state, delta=delta)
    assert delta.changed_brokers == {1: before, 2: None}
    assert not delta.is_empty
