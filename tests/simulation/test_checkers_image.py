"""Tests the checker of the committed metadata: valid records pass, and each invalid one breaks its invariant."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from common.ids import TopicId, TopicIdPartition, Uuid
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    KnownRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.simulation.checkers.image import ImageChecker, ImageModel, check_partition, compare_images
from tests.simulation.violations import InvariantViolated

TOPIC = TopicId(Uuid(b"t" * 16))
RESERVED = Uuid(bytes(15) + b"\x63")


def directory(broker_id: int, number: int = 1) -> Uuid:
    return Uuid(bytes([broker_id, number]) * 8)


def register(broker_id: int, *directories: Uuid, life: int = 1) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(bytes([broker_id, life]) * 8),
        broker_epoch=100 * life + broker_id,
        fenced=False,
        log_dirs=list(directories or (directory(broker_id), directory(broker_id, 2))),
    )


def broker_change(broker_id: int, *log_dirs: Uuid, fenced: int = 0) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=100 + broker_id, fenced=fenced, log_dirs=list(log_dirs)
    )


def cordons(broker_id: int, *directories: Uuid) -> BrokerRegistrationChangeRecord:
    return replace(broker_change(broker_id), cordoned_log_dirs=list(directories))


def change(*, isr: Sequence[int] | None = None, leader: int = -2) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=None if isr is None else list(isr), leader=leader)


def reassigned(
    *replicas: int, adding: Sequence[int] = (), removing: Sequence[int] = (), **other: Any
) -> PartitionChangeRecord:
    """Returns a record that changes the replicas. Each replica is in the first directory of its broker."""
    return PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=list(replicas),
        directories=[directory(broker_id) for broker_id in replicas],
        adding_replicas=list(adding),
        removing_replicas=list(removing),
        **other,
    )


def placed(where: Uuid, *, leader: int = -2, leader_recovery_state: int = -1) -> PartitionChangeRecord:
    """Returns a change that moves the first replica to the directory `where`."""
    return PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        directories=[where, directory(2), directory(3)],
        leader=leader,
        leader_recovery_state=leader_recovery_state,
    )


class Log:
    """Feeds a metadata log to the checker. Each call of `commit` is one batch."""

    def __init__(self) -> None:
        self.checker = ImageChecker()
        self.commit(*(register(broker_id) for broker_id in (1, 2, 3)))
        self.commit(
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=[1, 2, 3],
                isr=[1, 2, 3],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory(1), directory(2), directory(3)],
            ),
        )

    def commit(self, *records: KnownRecord) -> None:
        base_offset = self.checker.next_offset
        self.checker.committed("node", base_offset, base_offset + len(records) - 1, 1, records)


def test_a_lawful_directory_failure_passes() -> None:
    """A directory is lost, the leadership moves, and the broker leaves the ISR. Then the broker registers a new incarnation
    and rejoins the ISR."""
    log = Log()
    log.commit(change(isr=[2, 3], leader=2), broker_change(1, directory(1, 2)))
    log.commit(register(1, life=2))
    log.commit(change(isr=[2, 3, 1]))
    assert log.checker.image.partitions[TopicIdPartition(TOPIC, 0)].leader_epoch == 1


@pytest.mark.parametrize(
    ("invariant", "records"),
    [
        ("I1", [change(isr=[1, 2]), change(isr=[1, 3], leader=3)]),
        ("I4", [change(isr=[1]), placed(UNASSIGNED, leader_recovery_state=1)]),
        (
            "I4",
            [
                change(isr=[1]),
                placed(UNASSIGNED, leader=1, leader_recovery_state=1),
                placed(directory(1)),
                placed(UNASSIGNED),
            ],
        ),
        ("I6", [change(isr=[1, 2, 2])]),
        ("I6", [change(isr=[1, 4])]),
        ("I6", [change(isr=[2, 3])]),
        ("I6", [broker_change(2, fenced=1)]),
        ("I7", [broker_change(2, directory(2, 2))]),
        ("I7", [broker_change(1, directory(1, 2))]),
        ("I9", [register(2, directory(2), RESERVED, life=2)]),
        ("I9", [register(2, directory(2), directory(1), life=2)]),
        ("I10", [PartitionChangeRecord(partition_id=0, topic_id=TOPIC, directories=[directory(1), directory(2)])]),
        ("I12", [change(leader=2)]),
        ("I16", [broker_change(1, directory(1), directory(1, 2), directory(1, 3))]),
        ("I17", [register(1, life=0)]),
        ("I17", [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1)]),
        ("I5", [PartitionChangeRecord(partition_id=9, topic_id=TOPIC, leader=2)]),
        ("I5", [TopicRecord(name="t", topic_id=TopicId(Uuid(b"u" * 16)))]),
        ("I5", [ProducerIdsRecord(next_producer_id=1000), ProducerIdsRecord(next_producer_id=1000)]),
    ],
)
def test_unlawful_records_are_found(invariant: str, records: list[KnownRecord]) -> None:
    """Each case is a list of batches with one record each. The last batch breaks the invariant, the others are valid."""
    log = Log()
    for record in records[:-1]:
        log.commit(record)
    with pytest.raises(InvariantViolated) as caught:
        log.commit(records[-1])
    assert caught.value.invariant == invariant


def test_lawful_reassignments_pass() -> None:
    """An ISR change completes the first reassignment: the added replica joins the ISR and leads. The second reassignment is
    reverted although a replica that stays is not in sync. The third one removes a replica at once. The fourth one is
    completed although a replica that stays is not in sync."""
    log = Log()
    log.commit(register(4))
    log.commit(reassigned(4, 2, 3, 1, adding=[4], removing=[1]))
    log.commit(reassigned(4, 2, 3, isr=[2, 3, 4], leader=4))
    log.commit(change(isr=[4, 2]))
    log.commit(reassigned(1, 2, 3, 4, adding=[1], removing=[4]))
    log.commit(reassigned(2, 3, 4, leader=4))
    log.commit(reassigned(4, 2, leader=4))
    log.commit(change(isr=[4]))
    log.commit(reassigned(2, 1, 4, adding=[1], removing=[4]))
    log.commit(reassigned(2, 1, isr=[1], leader=1))


@pytest.mark.parametrize(
    "records",
    [
        [change(isr=[1, 3]), reassigned(1, 2, leader=1, isr=[1])],
        [reassigned(2, 3, 1, removing=[1]), change(isr=[1, 3]), reassigned(2, 3, isr=[3], leader=3)],
        [register(4), reassigned(4, 2, 3, 1, adding=[4], removing=[1]), reassigned(4, 2, 3, isr=[2, 3], leader=2)],
        [reassigned(1, 2, 3, removing=[4])],
        [reassigned(1, 2, 3, removing=[1, 2, 3])],
    ],
)
def test_unlawful_reassignments_are_found(records: list[KnownRecord]) -> None:
    """I21: the number of replicas is reduced while one that stays is not in sync, a replica is removed while one that is
    added is not in sync, a broker that has no replica is to be removed, or all replicas are to be removed."""
    log = Log()
    for record in records[:-1]:
        log.commit(record)
    with pytest.raises(InvariantViolated, match="I21"):
        log.commit(records[-1])


def test_a_replica_on_a_cordoned_broker_is_found() -> None:
    """I29: while one directory of the broker is not cordoned, it may get replicas."""
    log = Log()
    log.commit(register(4))
    log.commit(cordons(4, directory(4)))
    log.commit(reassigned(1, 2, 3, 4, adding=[4]))
    log.commit(reassigned(1, 2, 3))
    log.commit(cordons(4, directory(4), directory(4, 2)))
    with pytest.raises(InvariantViolated, match=r"I29.*broker 4"):
        log.commit(reassigned(1, 2, 3, 4, adding=[4]))


def test_below_the_level_of_assignment_nothing_has_a_directory() -> None:
    """Brokers register no directories, and records name none, also those that change the replicas. A replica that a broker
    has reported before a downgrade keeps its directory, a LOST one stays offline."""
    model = ImageModel()
    new, old = TopicId(Uuid(b"n" * 16)), TopicId(Uuid(b"o" * 16))
    records: list[KnownRecord] = [
        *(replace(register(broker_id), log_dirs=[]) for broker_id in (1, 2, 3)),
        FeatureLevelRecord(name="metadata.version", feature_level=16),
        PartitionRecord(partition_id=0, topic_id=new, replicas=[1, 2], isr=[1, 2], leader=1),
        PartitionRecord(partition_id=0, topic_id=old, replicas=[1, 2], directories=[directory(1), LOST], isr=[1], leader=1),
        *(PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[3, 1, 2]) for topic_id in (new, old)),
    ]
    for offset, record in enumerate(records):
        model.replay(record, offset)
    parts = {topic_id: model.partitions[TopicIdPartition(topic_id, 0)] for topic_id in (new, old)}
    assert parts[new].directories == (MIGRATING, MIGRATING, MIGRATING)
    assert parts[old].directories == (MIGRATING, directory(1), LOST)
    for part in parts.values():
        check_partition(model, TopicIdPartition(new, 0), part, 9)
    assert not model.is_assigned(MIGRATING)
    assert model.is_assigned(directory(1))
    assert [model.brokers[2].has_online(where) for where in (MIGRATING, directory(7), LOST)] == [True, True, False]


def test_a_replica_in_a_healthy_directory_must_not_be_hit() -> None:
    """I12: a directory fails, and the broker is removed from the ISR of a partition whose replica is in another
    directory."""
    log = Log()
    with pytest.raises(InvariantViolated, match="I12"):
        log.commit(change(isr=[1, 3]), broker_change(2, directory(2)))


def test_a_lost_directory_stays_lost_within_an_incarnation() -> None:
    """I16: the same incarnation registers again and names a directory that it lost."""
    log = Log()
    log.commit(change(isr=[2, 3], leader=2), broker_change(1, directory(1, 2)))
    again = register(1)
    with pytest.raises(InvariantViolated, match="I16"):
        log.commit(again)


def test_nodes_must_agree_on_what_is_committed() -> None:
    """I5: two nodes deliver different records at the same offset."""
    log = Log()
    with pytest.raises(InvariantViolated, match="I5"):
        log.checker.committed("other", 0, 0, 1, [register(1)])


def test_an_image_that_differs_in_one_entry_is_found() -> None:
    """I5: an equal image passes. An image with a different partition and an image without brokers are violations."""
    log = Log()
    compare_images(log.checker.image, log.checker.image.copy(), "a copy")
    other = log.checker.image.copy()
    other.replay(change(isr=[1, 2]), 9)
    with pytest.raises(InvariantViolated, match="t-0 is"):
        compare_images(log.checker.image, other, "a node")
    with pytest.raises(InvariantViolated, match="broker 1"):
        compare_images(log.checker.image, ImageModel(topics=log.checker.image.topics), "a node")


def test_a_snapshot_must_be_the_image_of_its_offset() -> None:
    """I5: a snapshot that ends where the checker's image ends must equal it. A snapshot that ends later replaces the
    image."""
    log = Log()
    whole = [record for batch in log.checker.batches.values() for record in batch.records]
    log.checker.loaded("node", log.checker.next_offset, whole)
    with pytest.raises(InvariantViolated, match="I5: the snapshot of node"):
        log.checker.loaded("node", log.checker.next_offset, [*whole, change(isr=[1, 2])])
    log.checker.loaded("node", 50, [*whole, change(isr=[1, 2])])
    assert log.checker.next_offset == 50
    log.commit(change(isr=[1, 2, 3]))


def test_a_snapshot_does_not_say_at_which_level_an_incarnation_registered_first() -> None:
    """A broker registers below the level of assignment, and again when the level has risen. The image of a snapshot has only
    the second registration. It is no other image, and the checker still knows that the incarnation is an older one."""
    second = register(1, directory(1))
    first = replace(second, log_dirs=[])
    risen = FeatureLevelRecord(name="metadata.version", feature_level=17)
    records: list[KnownRecord] = [FeatureLevelRecord(name="metadata.version", feature_level=16), first, risen, second]
    checker = ImageChecker()
    for offset, record in enumerate(records):
        checker.committed("node", offset, offset, 1, [record])
    checker.loaded("node", checker.next_offset, [risen, second])
    checker.loaded("node", 50, [risen, second])
    assert checker.image.brokers[1].registered_at == 1
    assert not checker.image.brokers[1].knows_assignments


def test_the_epoch_of_the_metadata_log_never_goes_back() -> None:
    """I5: a batch with an older epoch follows one with a newer epoch."""
    log = Log()
    offset = log.checker.next_offset
    log.checker.committed("node", offset, offset, 5, [])
    with pytest.raises(InvariantViolated, match=r"I5: node: .* epoch 4"):
        log.checker.committed("node", offset + 1, offset + 1, 4, [])
