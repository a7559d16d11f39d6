"""Snapshots of the metadata: the order and versions of their records, and state that a level cannot express."""

import pytest

from common.ids import BrokerId, Offset, Uuid
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, numbering_of
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.snapshot import UnwritableMetadata, generate_snapshot_records
from common.metadata.state import MetadataState
from common.protocol.numbering import Numbering
from common.records.metadata_frame import ApiMessageAndVersion, encode_record
from common.records.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    DelegationTokenRecord,
    FeatureLevelRecord,
    KnownRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
    ZkMigrationRecord,
    ZkMigrationState,
)
from tests.unit.common.metadata.builders import directory, level, partition, register, replay, topic, topic_id
from tests.unit.common.metadata.invariants import check_indexes

A, B, C = (directory(number) for number in range(1, 4))
NUMBERED = FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1)


def example() -> MetadataState:
    """Builds a state with at least one of each kind of metadata."""
    return replay(
        NUMBERED,
        level(21),
        ZkMigrationRecord(),
        RegisterControllerRecord(controller_id=9, end_points=[ControllerEndpoint(name="C", host="h", port=1)]),
        register(1, directories=[A, B], rack="r"),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=100, log_dirs=[A], in_controlled_shutdown=1),
        register(2, directories=[C], fenced=True),
        topic(2, "z"),
        topic(1, "a"),
        partition(1, 0, [1, 2], directories=[A, C]),
        partition(1, 1, [2, 1], directories=[C, B], isr=[2]),
        PartitionChangeRecord(partition_id=1, topic_id=topic_id(1), leader=-1, leader_recovery_state=1),
        ConfigRecord(resource_type=2, resource_name="a", name="k", value="v"),
        ConfigRecord(resource_type=4, resource_name="", name="k", value=""),
        ProducerIdsRecord(broker_id=1, broker_epoch=100, next_producer_id=3000),
        ClientQuotaRecord(entity=[QuotaEntity(entity_type="user")], key="producer_byte_rate", value=1.5),
        AccessControlEntryRecord(id=topic_id(8), principal="User:u"),
        UserScramCredentialRecord(name="u", mechanism=1, salt=b"s"),
        DelegationTokenRecord(owner="User:o", token_id="i"),
    )


def load(records: list[ApiMessageAndVersion], numbering: Numbering) -> MetadataState:
    """Encodes each record, decodes it, and replays it into an empty state, like a new follower."""
    reader = MetadataRecordReader()
    state = MetadataState()
    for each in records:
        state.replay(reader.decode(encode_record(each.record, each.version, numbering)), offset=Offset(5))
    return state


def test_a_snapshot_rebuilds_the_state() -> None:
    """A round trip through bytes gives an equal state, including lost directories, with correct indexes."""
    state = example()
    records = list(generate_snapshot_records(state))
    loaded = load(records, Numbering.KIP858)
    assert loaded == state
    assert loaded.brokers[BrokerId(1)].lost_directories == (B,)
    assert loaded.metadata_version == 21
    assert loaded.next_producer_id == 3000
    assert loaded.registration_offsets == {1: 5, 2: 5}
    check_indexes(loaded)
    assert list(generate_snapshot_records(loaded)) == records


def test_features_come_before_everything_that_holds_a_directory_id() -> None:
    """metadata.version comes first, and the numbering comes before every record that holds a directory id."""
    state = example()
    # Set directly, because replay refuses features that this release does not support.
    state.features["a.feature"] = 3
    records: list[KnownRecord] = [each.record for each in generate_snapshot_records(state)]
    assert records[:4] == [
        level(21),
        NUMBERED,
        FeatureLevelRecord(name="a.feature", feature_level=3),
        ZkMigrationRecord(),
    ]
    assert numbering_of(records) is Numbering.KIP858
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["z", "a"]


def test_a_cluster_without_the_feature_is_numbered_as_apaches() -> None:
    """Without the numbering feature, directory ids are written with Apache's numbers and must be read with them."""
    state = replay(
        level(21), register(1, directories=[A]), topic(1), partition(1, 0, [1, 2, 3], directories=[A, *reserved()])
    )
    records = list(generate_snapshot_records(state))
    assert load(records, Numbering.APACHE) == state
    assert load(records, Numbering.KIP858) != state


def reserved() -> list[Uuid]:
    return [Uuid(bytes(16)), Uuid(bytes(15) + b"\x01")]


def test_the_state_may_move_on_while_records_are_taken() -> None:
    """A snapshot has the state at the time of the call, even if the state changes while the snapshot is written."""
    state = example()
    expected = list(generate_snapshot_records(state))
    taken = generate_snapshot_records(state)
    records = [next(taken)]
    replay(
        level(22),
        register(3, directories=[directory(9)]),
        topic(3),
        partition(1, 2, [1], directories=[A]),
        ConfigRecord(resource_type=2, resource_name="a", name="k", value=None),
        ProducerIdsRecord(broker_id=2, broker_epoch=100, next_producer_id=4000),
        UserScramCredentialRecord(name="u", mechanism=1, salt=b"another"),
        DelegationTokenRecord(owner="User:o", token_id="j"),
        into=state,
    )
    records.extend(taken)
    assert records == expected


def test_a_zk_migration_state_stays_in_snapshots() -> None:
    """Apache Kafka's nodes expect the record once. A snapshot has it if the log has it, and so has the next snapshot."""
    without = replay(level(21))
    assert [each.record for each in generate_snapshot_records(without)] == [level(21)]
    for migration in ZkMigrationState:
        state = replay(level(21), ZkMigrationRecord(zk_migration_state=migration))
        records = list(generate_snapshot_records(state))
        assert [each.record for each in records] == [level(21), ZkMigrationRecord(zk_migration_state=migration)]
        assert list(generate_snapshot_records(load(records, Numbering.APACHE))) == records
        assert state != without


def test_eligible_leader_replicas_stay_in_snapshots() -> None:
    state = replay(
        level(23),
        topic(1),
        partition(1, 0, [1, 2, 3]),
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id(1), isr=[1], eligible_leader_replicas=[2], last_known_elr=[3]
        ),
    )
    copy = load(list(generate_snapshot_records(state)), Numbering.APACHE)
    assert copy == state
    (copied,) = copy.topics[topic_id(1)].partitions.values()
    assert (copied.eligible_leader_replicas, copied.last_known_elr) == ((2,), (3,))


def test_a_migrating_broker_stays_one_in_snapshots() -> None:
    """The flag is written from level 8 on. Below, there is no field for it, so the writer refuses."""
    state = replay(level(8), register(1, is_migrating=True), register(2))
    records = list(generate_snapshot_records(state))
    assert load(records, Numbering.APACHE) == state
    assert [broker.is_migrating_zk_broker for broker in load(records, Numbering.APACHE).brokers.values()] == [True, False]
    state.metadata_version = 7
    with pytest.raises(UnwritableMetadata, match="broker 1 is migrating"):
        list(generate_snapshot_records(state))


@pytest.mark.parametrize(("number", "versions"), [(21, {3, 1}), (17, {3, 1}), (16, {2, 0}), (4, {0})])
def test_versions_follow_the_level(number: int, versions: set[int]) -> None:
    """Registrations and partitions are written in the record versions of the state's metadata.version."""
    state = replay(level(number), register(1), topic(1), partition(1, 0, [1]))
    records = [each for each in generate_snapshot_records(state) if not isinstance(each.record, FeatureLevelRecord)]
    written = {each.version for each in records if not isinstance(each.record, TopicRecord)}
    assert written == versions
    assert load(list(generate_snapshot_records(state)), Numbering.APACHE) == state


@pytest.mark.parametrize(
    "records",
    [
        (level(16), register(1, directories=[A])),
        (level(16), topic(1), partition(1, 0, [1], directories=[A])),
        (level(6), register(1, in_controlled_shutdown=True)),
    ],
)
def test_what_a_level_cannot_say_is_an_error(records: tuple[KnownRecord, ...]) -> None:
    """Writing raises if the level's records have no field for directories or controlled shutdown. State would be lost."""
    with pytest.raises(UnwritableMetadata):
        list(generate_snapshot_records(replay(*records)))
