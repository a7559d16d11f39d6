"""Metadata histories made by hypothesis: invariants after every record, and snapshots that rebuild the state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import BrokerId, DirectoryId, Offset, TopicId, Uuid
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState
from common.protocol.numbering import Numbering
from common.records.metadata_frame import encode_record
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    KnownRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tests.property.profiles import examples
from tests.unit.common.metadata.builders import directory, topic_id, uuid
from tests.unit.common.metadata.invariants import check_indexes

BROKERS = range(1, 5)
DIRECTORIES_PER_BROKER = 3
NUMBERING_FEATURE = "diskraft.directory.numbering"


def directories_of(broker_id: int) -> list[DirectoryId]:
    return [directory(broker_id * 10 + number) for number in range(DIRECTORIES_PER_BROKER)]


class History:
    """Draws records that a correct controller could have written after those before."""

    def __init__(self, data: st.DataObject, first: list[KnownRecord]) -> None:
        self.draw = data.draw
        self.state = MetadataState()
        self.records: list[KnownRecord] = []
        self.topics_made = 0
        for record in first:
            self.add(record)

    def add(self, record: KnownRecord, delta: MetadataDelta | None = None) -> None:
        self.state.replay(record, offset=Offset(len(self.records)), delta=delta)
        self.records.append(record)

    def next_record(self) -> KnownRecord:
        choices = [self.registration, self.topic, self.config, self.feature]
        if self.state.brokers:
            choices += [self.registration_change, self.unregistration]
        if self.state.topics:
            choices += [self.partition, self.partition, self.removal]
        if self.state.partition_count:
            choices += [self.partition_change] * 4
        return self.draw(st.sampled_from(choices))()

    def registration(self) -> KnownRecord:
        broker_id = self.draw(st.sampled_from(BROKERS))
        before = self.state.brokers.get(BrokerId(broker_id))
        same_incarnation = before is not None and self.draw(st.booleans())
        return RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=before.incarnation_id if before and same_incarnation else uuid(5000 + len(self.records)),
            broker_epoch=before.epoch if before and same_incarnation else len(self.records) + 1,
            rack=self.draw(st.none() | st.just("r")),
            fenced=self.draw(st.booleans()),
            in_controlled_shutdown=self.draw(st.booleans()),
            log_dirs=list(self.draw(st.lists(st.sampled_from(directories_of(broker_id)), unique=True))),
        )

    def registration_change(self) -> KnownRecord:
        broker = self.draw(st.sampled_from(list(self.state.brokers.values())))
        remaining = self.draw(st.lists(st.sampled_from(broker.directories), unique=True)) if broker.directories else []
        return BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            fenced=self.draw(st.sampled_from([-1, 0, 1])),
            in_controlled_shutdown=self.draw(st.sampled_from([0, 1])),
            log_dirs=list(remaining),
        )

    def unregistration(self) -> KnownRecord:
        broker = self.draw(st.sampled_from(list(self.state.brokers.values())))
        return UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)

    def topic(self) -> KnownRecord:
        self.topics_made += 1
        return TopicRecord(name=f"t{self.topics_made}", topic_id=topic_id(self.topics_made))

    def removal(self) -> KnownRecord:
        return RemoveTopicRecord(topic_id=self.drawn_topic())

    def partition(self) -> KnownRecord:
        topic = self.state.topics[self.drawn_topic()]
        replicas = self.drawn_replicas()
        isr = self.draw(st.lists(st.sampled_from(replicas), unique=True, min_size=1))
        return PartitionRecord(
            partition_id=max(topic.partitions, default=-1) + 1,
            topic_id=topic.id,
            replicas=replicas,
            isr=isr,
            leader=self.draw(st.sampled_from([*isr, -1])),
            leader_epoch=0,
            partition_epoch=0,
            directories=self.draw(st.just([]) | st.just([self.drawn_directory(each) for each in replicas])),
        )

    def partition_change(self) -> KnownRecord:
        topics = [topic for topic in self.state.topics.values() if topic.partitions]
        topic = self.draw(st.sampled_from(topics))
        index = self.draw(st.sampled_from(list(topic.partitions)))
        before = topic.partitions[index]
        replicas = self.drawn_replicas() if self.draw(st.booleans()) else None
        members = list(before.replicas) if replicas is None else replicas
        isr = self.draw(st.lists(st.sampled_from(members), unique=True, min_size=1))
        # A leader that leaves the ISR has to be replaced in the same record.
        keeps_leader = before.leader == -1 or before.leader in isr
        leader = self.draw(st.sampled_from([*isr, -1, -2] if keeps_leader else [*isr, -1]))
        return PartitionChangeRecord(
            partition_id=index,
            topic_id=topic.id,
            isr=isr,
            leader=leader,
            replicas=replicas,
            leader_recovery_state=self.draw(st.sampled_from([-1, 0, 1])),
            directories=self.draw(st.none() | st.just(list[Uuid](map(self.drawn_directory, members)))),
        )

    def config(self) -> KnownRecord:
        return ConfigRecord(
            resource_type=self.draw(st.sampled_from([2, 4])),
            resource_name=self.draw(st.sampled_from(["t1", "t2", ""])),
            name=self.draw(st.sampled_from(["a", "b"])),
            value=self.draw(st.none() | st.sampled_from(["", "1"])),
        )

    def feature(self) -> KnownRecord:
        return FeatureLevelRecord(name="f", feature_level=self.draw(st.integers(0, 2)))

    def drawn_topic(self) -> TopicId:
        return self.draw(st.sampled_from(list(self.state.topics)))

    def drawn_replicas(self) -> list[int]:
        return self.draw(st.lists(st.sampled_from(BROKERS), unique=True, min_size=1, max_size=3))

    def drawn_directory(self, broker_id: int) -> DirectoryId:
        return self.draw(st.sampled_from([UNASSIGNED, LOST, MIGRATING, *directories_of(broker_id)]))


def reloaded(state: MetadataState, numbering: Numbering) -> MetadataState:
    """The state after a snapshot went through bytes."""
    reader = MetadataRecordReader()
    loaded = MetadataState()
    for each in generate_snapshot_records(state):
        loaded.replay(reader.decode(encode_record(each.record, each.version, numbering)), offset=state.last_offset)
    return loaded


@pytest.mark.slow
@examples(100)
@given(st.data(), st.sampled_from(list(Numbering)))
def test_snapshots_rebuild_any_state(data: st.DataObject, numbering: Numbering) -> None:
    """After any history: the invariants hold, the snapshot gives an equal state, and both go on alike."""
    first: list[KnownRecord] = [FeatureLevelRecord(name="metadata.version", feature_level=21)]
    if numbering is Numbering.KIP858:
        first.append(FeatureLevelRecord(name=NUMBERING_FEATURE, feature_level=1))
    history = History(data, first)
    for _ in range(data.draw(st.integers(0, 25))):
        history.add(history.next_record())
    check_indexes(history.state)
    loaded = reloaded(history.state, numbering)
    assert loaded == history.state
    check_indexes(loaded)
    for _ in range(data.draw(st.integers(0, 5))):
        record = history.next_record()
        history.add(record)
        loaded.replay(record, offset=history.state.last_offset)
        assert loaded == history.state
    check_indexes(loaded)


@pytest.mark.slow
@examples(100)
@given(st.data())
def test_a_delta_says_what_changed(data: st.DataObject) -> None:
    """The delta filled by replay names exactly what differs between the states, or was touched and put back."""
    history = History(data, [FeatureLevelRecord(name="metadata.version", feature_level=21)])
    for _ in range(data.draw(st.integers(0, 15))):
        history.add(history.next_record())
    before = MetadataState()
    for offset, record in enumerate(history.records):
        before.replay(record, offset=Offset(offset))
    delta = MetadataDelta()
    for _ in range(data.draw(st.integers(0, 10))):
        history.add(history.next_record(), delta)
    between = history.state.delta_since(before)
    assert delta.created_topics == between.created_topics
    assert delta.removed_topics.keys() == between.removed_topics.keys()
    assert between.changed_partitions.items() <= delta.changed_partitions.items()
    assert delta.created_partitions.keys() == between.created_partitions.keys()
    assert between.changed_brokers.items() <= delta.changed_brokers.items()
    assert between.changed_features.items() <= delta.changed_features.items()
    assert between.changed_configs.keys() <= delta.changed_configs.keys()
    for resource, former in delta.changed_configs.items():
        assert before.config(*resource) == former
    for (topic, index), registration in delta.changed_partitions.items():
        assert before.partition(topic, index) == registration
