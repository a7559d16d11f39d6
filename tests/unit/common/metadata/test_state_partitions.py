"""Replay of topic and partition records, the indexes over them, configs and features."""

import re

import pytest

from common.ids import BrokerId, DirectoryId, TopicIdPartition, Uuid
from common.metadata import state as state_module
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.metadata_version import BROKER_FEATURES, CONTROLLER_FEATURES, Features
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE as NUMBERING
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState, ReplayError, UnsupportedFeatureLevel
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KnownRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    ZkMigrationRecord,
)
from common.slices import at_once
from tests.unit.common.metadata.builders import directory, level, partition, register, replay, topic, topic_id
from tests.unit.common.metadata.invariants import check_indexes

A, B, C, D = (directory(number) for number in range(1, 5))
T = topic_id(1)


def change(
    index: int = 0,
    *,
    isr: list[int] | None = None,
    leader: int = -2,
    replicas: list[int] | None = None,
    directories: list[DirectoryId] | None = None,
    removing: list[int] | None = None,
    adding: list[int] | None = None,
    recovery: int = -1,
) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=T,
        isr=isr,
        leader=leader,
        replicas=replicas,
        removing_replicas=removing,
        adding_replicas=adding,
        leader_recovery_state=recovery,
        directories=None if directories is None else list(directories),
    )


def after(*changes: KnownRecord) -> PartitionRegistration:
    """Applies the changes to partition 0 on brokers 1 (A), 2 (B), 3 (C), led by broker 1 at epoch 5."""
    state = replay(topic(1), partition(1, 0, [1, 2, 3], directories=[A, B, C], leader_epoch=5, partition_epoch=9), *changes)
    check_indexes(state)
    registration = state.partition(T, 0)
    assert registration is not None
    return registration


def test_a_partition_is_kept_whole() -> None:
    """Every field of the record is kept."""
    record = PartitionRecord(
        partition_id=4,
        topic_id=T,
        replicas=[1, 2, 3],
        isr=[2, 1],
        removing_replicas=[3],
        adding_replicas=[1],
        leader=2,
        leader_recovery_state=1,
        leader_epoch=8,
        partition_epoch=12,
        directories=[A, LOST, UNASSIGNED],
    )
    state = replay(topic(1, "t"), record)
    one, two, three = map(BrokerId, (1, 2, 3))
    registration = state.partition(T, 4)
    assert registration is not None
    assert (registration.replicas, registration.directories) == ((one, two, three), (A, LOST, UNASSIGNED))
    assert (registration.isr, registration.leader, registration.has_leader) == ((two, one), 2, True)
    assert (registration.removing_replicas, registration.adding_replicas) == ((three,), (one,))
    assert (registration.leader_recovery_state, registration.leader_epoch, registration.partition_epoch) == (1, 8, 12)
    found = state.topic_named("t")
    assert found is not None
    assert found.id == T
    assert state.topic_named("u") is None
    assert state.partition(T, 0) is None
    assert state.partition(topic_id(2), 4) is None
    assert state.partition_count == 1
    check_indexes(state)


def test_equal_tuples_are_shared() -> None:
    """Partitions with equal replicas or directories share one tuple, which saves memory with a million partitions."""
    state = replay(
        topic(1),
        partition(1, 0, [1, 2], directories=[A, B]),
        partition(1, 1, [1, 2], directories=[DirectoryId(Uuid(bytes(bytearray(A)))), B]),
    )
    first, second = state.topics[T].partitions.values()
    assert first.replicas is second.replicas is second.isr
    assert first.directories is second.directories


def test_ids_are_not_kept_when_no_replica_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker assigns its replica to one new directory id after the other. The state does not grow with them."""
    monkeypatch.setattr(state_module, "_INTERNED_MAX", 10)
    state = replay(topic(1), partition(1, 0, [1]))
    for number in range(1, 100):
        replay(change(directories=[directory(number)]), into=state)
        assert max(len(state._interned_ids), len(state._interned_directories)) <= 10
    registration = state.partition(T, 0)
    assert registration is not None
    assert registration.directories == (directory(99),)
    check_indexes(state)


def test_absent_directories_are_migrating() -> None:
    """A version 0 record has no directories, so each replica is MIGRATING until its broker reports the directory."""
    state = replay(topic(1), partition(1, 0, [1, 2]))
    registration = state.partition(T, 0)
    assert registration is not None
    assert registration.directories == (MIGRATING, MIGRATING)


@pytest.mark.parametrize(
    ("record", "leader", "leader_epoch"),
    [
        (change(isr=[1, 2]), 1, 5),
        (change(leader=2), 2, 6),
        # Naming the current leader again also bumps the leader epoch.
        (change(leader=1), 1, 6),
        (change(leader=-1), -1, 6),
        (change(directories=[A, B, D]), 1, 5),
    ],
)
def test_leader_epoch_moves_when_a_leader_is_named(record: PartitionChangeRecord, leader: int, leader_epoch: int) -> None:
    """Naming any leader bumps the leader epoch, and every change record bumps the partition epoch."""
    registration = after(record)
    assert (registration.leader, registration.leader_epoch, registration.partition_epoch) == (leader, leader_epoch, 10)


def test_a_change_leaves_the_rest() -> None:
    """Fields that a change does not name are unchanged."""
    registration = after(change(isr=[1, 3], recovery=1), change(removing=[2], adding=[3]), change())
    assert registration.isr == (1, 3)
    assert registration.leader_recovery_state == 1
    assert (registration.removing_replicas, registration.adding_replicas) == ((2,), (3,))
    assert registration.directories == (A, B, C)
    assert registration.partition_epoch == 12
    assert after(change(recovery=1), change(recovery=0)).leader_recovery_state == 0


@pytest.mark.parametrize(
    ("record", "directories"),
    [
        (change(directories=[A, LOST, D]), (A, LOST, D)),
        (change(replicas=[3, 1, 2]), (C, A, B)),
        (change(replicas=[4, 1, 2, 3]), (MIGRATING, A, B, C)),
        (change(replicas=[1, 2], isr=[1]), (A, B)),
        (change(replicas=[1, 4], isr=[1], directories=[A, UNASSIGNED]), (A, UNASSIGNED)),
        (change(directories=[]), (MIGRATING, MIGRATING, MIGRATING)),
    ],
)
def test_directories_of_a_change(record: PartitionChangeRecord, directories: tuple[DirectoryId, ...]) -> None:
    """A record with directories sets them. If it changes only the replicas, existing replicas keep their directories."""
    assert after(record).directories == directories


@pytest.mark.parametrize(
    "record",
    [
        change(directories=[A, B]),
        change(replicas=[1, 2, 3, 4], directories=[A, B, C]),
        change(replicas=[1, 2]),
        change(isr=[1, 4]),
        change(isr=[2, 3]),
        change(leader=4),
        change(isr=[2], leader=3),
        change(isr=[1, 1]),
        change(recovery=2),
        change(index=1),
        PartitionChangeRecord(partition_id=0, topic_id=topic_id(2), leader=1),
        ClearElrRecord(topic_name="no such topic"),
        partition(2, 0, [1]),
        partition(1, 1, [1, 1]),
        partition(1, 1, [1, 2], directories=[A]),
        partition(1, 1, [1, 2], isr=[1, 3]),
        partition(1, 1, [1, 2], isr=[1], leader=2),
        partition(1, 0, [1, 2, 3], leader_epoch=4, partition_epoch=9),
        partition(1, 0, [1, 2, 3], leader_epoch=5, partition_epoch=8),
        topic(1, "other"),
        topic(2, "topic-1"),
        RemoveTopicRecord(topic_id=topic_id(2)),
        FeatureLevelRecord(name="metadata.version", feature_level=-1),
        AbortTransactionRecord(),
    ],
)
def test_contradictions(record: KnownRecord) -> None:
    """A record that breaks an invariant or names something unknown raises, and the state is unchanged."""
    history = (topic(1), partition(1, 0, [1, 2, 3], directories=[A, B, C], leader_epoch=5, partition_epoch=9))
    state = replay(*history)
    with pytest.raises(ReplayError, match="offset 2"):
        replay(record, into=state)
    assert state == replay(*history)
    check_indexes(state)


def test_a_partition_record_may_replace_a_partition() -> None:
    """As in Kafka, a partition may get a second record as long as no epoch decreases. The indexes are updated."""
    state = replay(
        topic(1),
        partition(1, 0, [1, 2], directories=[A, B]),
        partition(1, 0, [2, 3], directories=[B, C], leader_epoch=1, partition_epoch=1),
    )
    assert state.partition_count == 1
    assert state.partitions_of_broker(BrokerId(1)) == []
    assert state.partitions_led_by(BrokerId(2)) == [TopicIdPartition(T, 0)]
    check_indexes(state)


def test_indexes_follow_every_change() -> None:
    """The directory, ISR and leader indexes match the final state. Each index keeps its partitions in insertion order."""
    one, two, three = map(BrokerId, (1, 2, 3))
    state = replay(
        topic(1),
        topic(2),
        partition(1, 0, [1, 2], directories=[A, B]),
        partition(1, 1, [2, 1], directories=[UNASSIGNED, A]),
        partition(2, 0, [3, 2], directories=[C, B], isr=[3]),
    )
    other = topic_id(2)
    assert state.partitions_in_directory(one, A) == [TopicIdPartition(T, 0), TopicIdPartition(T, 1)]
    assert state.partitions_in_directory(two, B) == [TopicIdPartition(T, 0), (other, 0)]
    assert state.partitions_in_directory(two, UNASSIGNED) == [TopicIdPartition(T, 1)]
    assert state.partitions_in_directory(one, B) == []
    assert state.partitions_of_broker(two) == [TopicIdPartition(T, 0), (other, 0), TopicIdPartition(T, 1)]
    assert state.partitions_with_broker_in_isr(two) == [TopicIdPartition(T, 0), TopicIdPartition(T, 1)]
    assert state.partitions_of_broker(BrokerId(9)) == []
    assert state.leads_any(three)
    replay(
        change(0, isr=[1]),
        change(1, isr=[1], leader=1, directories=[LOST, D]),
        PartitionChangeRecord(partition_id=0, topic_id=other, leader=-1),
        into=state,
    )
    assert state.partitions_with_broker_in_isr(two) == []
    assert state.partitions_in_directory(one, A) == [TopicIdPartition(T, 0)]
    assert state.partitions_in_directory(one, D) == [TopicIdPartition(T, 1)]
    assert state.partitions_in_directory(two, LOST) == [TopicIdPartition(T, 1)]
    assert state.partitions_led_by(one) == [TopicIdPartition(T, 0), TopicIdPartition(T, 1)]
    assert state.partitions_led_by(BrokerId(-1)) == [(other, 0)]
    assert not state.leads_any(three)
    check_indexes(state)


def test_reassignments_are_indexed() -> None:
    """A partition enters the index when a record begins a reassignment, or when a snapshot's record contains one. It leaves
    the index when the reassignment completes or the topic is removed."""
    moving = partition(2, 0, [1, 2])
    moving.adding_replicas = [2]
    state = replay(topic(1), topic(2), partition(1, 0, [1, 2]), partition(1, 1, [1, 2]), moving)
    assert state.reassigning_partitions() == [TopicIdPartition(topic_id(2), 0)]
    replay(change(1, removing=[2]), change(0, isr=[1]), into=state)
    assert state.reassigning_partitions() == [TopicIdPartition(topic_id(2), 0), TopicIdPartition(T, 1)]
    check_indexes(state)
    replay(change(1, replicas=[1], isr=[1], removing=[]), RemoveTopicRecord(topic_id=topic_id(2)), into=state)
    assert state.reassigning_partitions() == []
    check_indexes(state)


def test_removing_a_topic_removes_all_of_it() -> None:
    """Partitions, index entries and the topic's configs are gone, and the name can be reused."""
    state = replay(
        topic(1, "t"),
        partition(1, 0, [1, 2], directories=[A, B]),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        RemoveTopicRecord(topic_id=T),
    )
    assert state == MetadataState()
    assert state.partition_count == 0
    assert state.partitions_of_broker(BrokerId(1)) == []
    check_indexes(state)
    replay(TopicRecord(name="t", topic_id=topic_id(7)), into=state)
    assert state.topic_ids == {"t": topic_id(7)}


def test_configs() -> None:
    """A value sets a key, null deletes it, and deleting a missing key is harmless."""
    state = replay(
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
        ConfigRecord(resource_type=2, resource_name="t", name="b", value=""),
        ConfigRecord(resource_type=4, resource_name="", name="a", value="2"),
        ConfigRecord(resource_type=2, resource_name="t", name="a", value=None),
        ConfigRecord(resource_type=2, resource_name="u", name="a", value=None),
    )
    assert state.configs == {(2, "t"): {"b": ""}, (4, ""): {"a": "2"}}
    assert state.config(2, "u") == {}
    replay(ConfigRecord(resource_type=2, resource_name="t", name="b", value=None), into=state)
    assert state.configs == {(4, ""): {"a": "2"}}


def test_features() -> None:
    """metadata.version is a feature like any other and also has its own attribute. Level 0 removes a feature."""
    state = replay(level(21), FeatureLevelRecord(name=NUMBERING, feature_level=1))
    assert (state.metadata_version, state.features) == (21, {"metadata.version": 21, NUMBERING: 1})
    replay(FeatureLevelRecord(name=NUMBERING, feature_level=0), into=state)
    assert state.features == {"metadata.version": 21}
    assert MetadataState().metadata_version == 1


ELR = "eligible.leader.replicas.version"


@pytest.mark.parametrize(
    ("features", "name", "number", "supported"),
    [
        (CONTROLLER_FEATURES, "metadata.version", 34, "1 to 33"),
        (CONTROLLER_FEATURES, NUMBERING, 2, "0 to 1"),
        (CONTROLLER_FEATURES, "kraft.version", 1, "0 to 0"),
        (CONTROLLER_FEATURES, ELR, 1, "0 to 0"),
        (BROKER_FEATURES, ELR, 2, "0 to 1"),
        (BROKER_FEATURES, "group.version", 2, "0 to 1"),
        (BROKER_FEATURES, "share.version", 1, "0 to 0"),
    ],
)
def test_a_level_that_is_not_supported_is_refused(features: Features, name: str, number: int, supported: str) -> None:
    """Brokers support more than controllers. The error names the feature, its level and the supported range. A level that a
    later record takes back is accepted, and so is level 0, which removes a feature."""
    line = f"feature {name} is finalized at level {number}, this node supports {supported}"
    state = replay(level(21), FeatureLevelRecord(name=name, feature_level=number))
    with pytest.raises(UnsupportedFeatureLevel, match=re.escape(line)):
        state.require_supported_levels(features)
    replay(FeatureLevelRecord(name=name, feature_level=0), into=state)
    state.require_supported_levels(features)
    assert name not in state.features


def test_records_without_effect() -> None:
    """No-ops, transaction markers and the end of eligible leader replicas where there are none only advance the offset."""
    state = replay(NoOpRecord(), ClearElrRecord(), BeginTransactionRecord(), EndTransactionRecord())
    assert state == MetadataState()
    assert state.last_offset == 3


def test_eligible_leader_replicas() -> None:
    """KIP-966. A change that does not name them leaves them as they are, one with an empty list ends them. They end for a
    topic, or for all, by a change of each partition that has some. An Apache Kafka controller counts its epoch, and takes
    the leader's ISR changes with that epoch only."""
    state = replay(topic(1), partition(1, 0, [1, 2, 3]), topic(2), partition(2, 0, [1, 2, 3]))

    def found(number: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        registration = state.topics[topic_id(number)].partitions[0]
        return registration.eligible_leader_replicas, registration.last_known_elr, registration.partition_epoch

    def lose(number: int) -> PartitionChangeRecord:
        return PartitionChangeRecord(
            partition_id=0, topic_id=topic_id(number), isr=[1], eligible_leader_replicas=[2, 3], last_known_elr=[3]
        )

    epoch = found(1)[2]
    replay(lose(1), lose(2), change(leader=2, isr=[2]), into=state)
    assert found(1) == ((2, 3), (3,), epoch + 2)
    replay(PartitionChangeRecord(partition_id=0, topic_id=T, eligible_leader_replicas=[]), into=state)
    assert found(1) == ((), (3,), epoch + 3)
    replay(ClearElrRecord(topic_name="topic-1"), into=state)
    assert (found(1), found(2)) == (((), (), epoch + 4), ((2, 3), (3,), epoch + 1))
    delta = MetadataDelta()
    replay(ClearElrRecord(), into=state, delta=delta)
    assert (found(1), found(2)) == (((), (), epoch + 4), ((), (), epoch + 2))
    assert list(delta.changed_partitions) == [TopicIdPartition(topic_id(2), 0)]
    check_indexes(state)


def test_delta_of_partitions() -> None:
    """The delta holds each partition as it was before its first change, and the offset that created a new partition."""
    state = replay(topic(1), partition(1, 0, [1, 2], directories=[A, B]))
    before = state.partition(T, 0)
    delta = MetadataDelta()
    replay(change(0, isr=[1]), change(0, isr=[1, 2]), partition(1, 1, [1]), change(1, leader=-1), into=state, delta=delta)
    assert delta.changed_partitions == {TopicIdPartition(T, 0): before, TopicIdPartition(T, 1): None}
    assert delta.created_partitions == {TopicIdPartition(T, 1): 4}
    assert delta.created_topics == {}


def test_delta_of_topics() -> None:
    """Removing a topic removes its partitions from the delta. A topic created and removed in one delta leaves no trace."""
    state = replay(topic(1), partition(1, 0, [1]))
    delta = MetadataDelta()
    replay(topic(2), partition(2, 0, [1]), topic(3), partition(3, 0, [2]), change(0, leader=-1), into=state, delta=delta)
    assert list(delta.created_topics) == [topic_id(2), topic_id(3)]
    removed = state.topics[T]
    replay(RemoveTopicRecord(topic_id=T), RemoveTopicRecord(topic_id=topic_id(2)), into=state, delta=delta)
    assert delta.removed_topics == {T: removed}
    assert list(delta.created_topics) == [topic_id(3)]
    assert delta.changed_partitions == {TopicIdPartition(topic_id(3), 0): None}
    assert delta.created_partitions == {TopicIdPartition(topic_id(3), 0): 5}


def test_delta_of_configs_and_features() -> None:
    """The delta holds configs and levels as they were before the change. A removed topic's configs count as changed."""
    state = replay(topic(1, "t"), ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"), level(20))
    delta = MetadataDelta()
    replay(
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="2"),
        ConfigRecord(resource_type=2, resource_name="u", name="a", value="2"),
        level(21),
        FeatureLevelRecord(name=NUMBERING, feature_level=1),
        into=state,
        delta=delta,
    )
    assert delta.changed_configs == {(2, "t"): {"a": "1"}, (2, "u"): {}}
    assert delta.changed_features == {"metadata.version": 20, NUMBERING: 0}
    removal = MetadataDelta()
    replay(RemoveTopicRecord(topic_id=T), into=state, delta=removal)
    assert removal.changed_configs == {(2, "t"): {"a": "2"}}


def test_delta_since_an_older_state() -> None:
    """`delta_since` an older state equals the delta of replaying the records in between, except for the creation offsets."""
    history: tuple[KnownRecord, ...] = (
        level(20),
        register(1, directories=[A]),
        topic(1),
        partition(1, 0, [1, 2]),
        topic(2, "gone"),
        partition(2, 0, [1]),
        ConfigRecord(resource_type=2, resource_name="gone", name="a", value="1"),
    )
    later: tuple[KnownRecord, ...] = (
        level(21),
        RemoveTopicRecord(topic_id=topic_id(2)),
        register(2, directories=[B]),
        change(0, leader=2),
        partition(1, 1, [2]),
        topic(3),
        partition(3, 0, [1]),
        ConfigRecord(resource_type=2, resource_name="topic-3", name="a", value="1"),
    )
    old = replay(*history)
    delta = MetadataDelta()
    live = replay(*later, into=replay(*history), delta=delta)
    between = live.delta_since(old)
    assert between.changed_partitions == delta.changed_partitions
    assert between.created_partitions == dict.fromkeys(delta.created_partitions, len(history))
    assert between.created_topics == delta.created_topics
    assert between.removed_topics == delta.removed_topics
    assert between.changed_brokers == delta.changed_brokers
    assert between.changed_configs == delta.changed_configs
    assert between.changed_features == delta.changed_features
    assert live.delta_since(live).is_empty


def test_a_topic_created_anew_is_another_topic() -> None:
    """A topic recreated under its old name has a new id. Replay and `delta_since` report a removal and a creation."""
    history = (topic(1, "t"), partition(1, 0, [1]))
    later = (RemoveTopicRecord(topic_id=T), topic(2, "t"), partition(2, 0, [1]))
    delta = MetadataDelta()
    live = replay(*later, into=replay(*history), delta=delta)
    for each in (delta, live.delta_since(replay(*history))):
        assert list(each.removed_topics) == [T]
        assert list(each.created_topics) == [topic_id(2)]
        assert list(each.changed_partitions) == [TopicIdPartition(topic_id(2), 0)]


def test_replacing_a_state_takes_over_every_field() -> None:
    """`replace_with` takes over every field and returns the old content as a new state. The test compares by identity."""
    state = replay(
        level(20), register(1, directories=[A], lost=[C], in_controlled_shutdown=True), topic(1), partition(1, 0, [1])
    )
    fresh = replay(
        level(21),
        ZkMigrationRecord(),
        register(2, directories=[B], lost=[D], in_controlled_shutdown=True),
        topic(2),
        partition(2, 0, [2]),
        partition(2, 1, [2]),
        ProducerIdsRecord(next_producer_id=1000),
    )
    former, following = dict(vars(state)), dict(vars(fresh))
    before = state.replace_with(fresh)
    assert before is not state
    # The count never decreases, whatever state it comes from.
    assert vars(state).pop("election_changes") > max(former.pop("election_changes"), following.pop("election_changes"))
    for name, value in former.items():
        assert following[name] is not value, f"the two states must differ in {name}, or nothing is shown"
        assert vars(state)[name] is following[name]
        assert vars(before)[name] is value
    check_indexes(state)
    check_indexes(before)


def test_a_copy_in_slices_is_a_state_of_its_own() -> None:
    """The copy equals the state, and replaying into it changes nothing of the state, whatever kind of record. The tables of
    shared tuples and ids are no part of the metadata."""

    def parts(state: MetadataState) -> dict[str, object]:
        left_out = ("_index", "_interned_brokers", "_interned_directories", "_interned_ids", "election_changes")
        return {name: value for name, value in vars(state).items() if name not in left_out}

    def made() -> MetadataState:
        return replay(
            level(21),
            register(1, directories=[A], lost=[B]),
            register(2, directories=[C]),
            RegisterControllerRecord(controller_id=9),
            topic(1),
            partition(1, 0, [1, 2], directories=[A, C]),
            change(0, adding=[3], replicas=[1, 2, 3], directories=[A, C, D]),
            ConfigRecord(resource_type=2, resource_name="topic-1", name="k", value="v"),
            ClientQuotaRecord(entity=[QuotaEntity(entity_type="user")], key="producer_byte_rate", value=1.5),
        )

    state, untouched = made(), made()
    copy = at_once(state.copy_in_slices())
    assert copy == state
    assert parts(copy) == parts(state)
    check_indexes(copy)
    replay(
        level(22),
        register(1, directories=[A], epoch=200, incarnation=2),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=100),
        RegisterControllerRecord(controller_id=8),
        change(0, leader=2, isr=[2]),
        partition(1, 1, [1]),
        topic(2),
        ConfigRecord(resource_type=2, resource_name="topic-1", name="k", value=None),
        ClientQuotaRecord(entity=[QuotaEntity(entity_type="user")], key="consumer_byte_rate", value=1.5),
        into=copy,
    )
    replay(RemoveTopicRecord(topic_id=T), into=copy)
    check_indexes(copy)
    check_indexes(state)
    assert state == untouched
    assert parts(state) == parts(untouched)


@pytest.mark.parametrize(
    ("record", "counts"),
    [
        (change(0, isr=[1]), True),
        (change(1, isr=[1]), False),
        (change(0, isr=[2], leader=2), False),
        (change(2, isr=[2, 4]), True),
        (change(2, isr=[2]), False),
        (change(3, isr=[2]), False),
        (change(3, leader=-1), True),
        (partition(1, 4, [2, 3], directories=[C, D]), False),
        (partition(1, 4, [1, 2], directories=[B, C]), True),
        (partition(1, 4, [3, 4], directories=[D, D]), True),
        (register(5), True),
        (BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=100, fenced=1), True),
        (UnregisterBrokerRecord(broker_id=3, broker_epoch=100), True),
        (ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"), True),
        (level(20), True),
        (topic(2), False),
        (ProducerIdsRecord(next_producer_id=1000), False),
    ],
)
def test_changes_count_that_may_help_a_partition(record: KnownRecord, counts: bool) -> None:
    """Partition 0 has an ISR member in a lost directory of broker 1, partition 2 one on broker 4, which is shutting down;
    partitions 1 and 3 are well. A change that removes such a member leaves nothing to help."""
    state = replay(
        register(1, directories=[A], lost=[B]),
        register(2, directories=[C]),
        register(3, directories=[D]),
        register(4, in_controlled_shutdown=True),
        topic(1),
        partition(1, 0, [1, 2], directories=[B, C]),
        partition(1, 1, [1, 2], directories=[A, C]),
        partition(1, 2, [2, 4], directories=[C, D]),
        partition(1, 3, [2, 3], directories=[C, D]),
    )
    before = state.election_changes
    replay(record, into=state)
    assert (state.election_changes > before) == counts
