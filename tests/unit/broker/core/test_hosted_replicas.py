"""What a broker remembers about its replicas: their situations, which partitions are newer than the incarnation, and what to
report."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.core.directory_reports import DirectoryReports
from broker.core.hosted_replicas import HostedReplicas, ReplicaPlace, is_settled
from broker.core.reconcile import Action, Decision, ReplicaSituation
from common.environment.interface import LogDirError
from common.ids import BrokerEpoch, BrokerId, DirectoryId, Offset, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories, LogDirectory
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.state import MetadataState
from common.records.metadata_records import KnownRecord, PartitionChangeRecord, RemoveTopicRecord
from tests.unit.common.metadata.builders import directory, level, partition, register, replay, topic, topic_id

D1, D2, GONE = directory(1), directory(2), directory(7)
P0 = TopicIdPartition(topic_id(1), 0)
Q0 = TopicIdPartition(topic_id(2), 0)
EPOCH = BrokerEpoch(100)


class Broker:
    """Broker 1 with D1 and D2, and a topic with one partition on brokers 1 and 2."""

    def __init__(self, *, assigned: DirectoryId = D1, isr: tuple[int, ...] = (1, 2), leader: int = 1) -> None:
        self.state: MetadataState = replay(
            level(21),
            register(1, directories=[D1, D2], epoch=EPOCH),
            topic(1),
            partition(1, 0, [1, 2], isr=list(isr), leader=leader, directories=[assigned, directory(9)]),
        )
        self.directories = LogDirectories(
            [LogDirectory(path="/d1", directory_id=D1), LogDirectory(path="/d2", directory_id=D2)],
            data_dirs=("/d1", "/d2"),
            metadata_dir="/d1",
        )
        self.reports = DirectoryReports()
        self.known = HostedReplicas(BrokerId(1), self.state, self.directories, self.reports)

    def lose(self, path: str) -> None:
        self.directories.step(LogDirError(path, "append", 5))

    def change(self, *records: KnownRecord) -> None:
        replay(*records, into=self.state)


BASE = ReplicaSituation(
    metadata_directory=D1,
    log_directory=None,
    online_directories=(D1, D2),
    any_offline=False,
    in_isr=True,
    leads_while_recovering=False,
    newer_than_incarnation=False,
    previous_directories_online=False,
)


def nothing(_: Broker) -> None:
    pass


def went_offline(broker: Broker) -> None:
    broker.lose("/d1")
    broker.known.log_went_offline(P0, D1)


def previous(*directories: DirectoryId) -> Callable[[Broker], None]:
    def set_previous(broker: Broker) -> None:
        broker.known.previous_directories = directories

    return set_previous


def with_a_trace(broker: Broker) -> None:
    broker.known.previous_directories = (D1,)
    broker.known.traces = {P0}


def previous_and_a_loss(broker: Broker) -> None:
    broker.known.previous_directories = (D1,)
    broker.lose("/d2")


def recovering(leader: int) -> Callable[[Broker], None]:
    record = PartitionChangeRecord(topic_id=P0.topic_id, partition_id=0, leader=leader, leader_recovery_state=1)
    return lambda broker: broker.change(record)


@pytest.mark.parametrize(
    ("broker", "prepare", "hosted_in", "expected"),
    [
        (Broker(), nothing, D1, replace(BASE, log_directory=D1)),
        (Broker(), nothing, None, BASE),
        (Broker(isr=(2,), leader=2), nothing, None, replace(BASE, in_isr=False)),
        (Broker(assigned=UNASSIGNED, leader=2), nothing, D2, replace(BASE, metadata_directory=UNASSIGNED, log_directory=D2)),
        # The log went offline with its directory. The broker remembers that it was there, whatever the metadata says.
        (Broker(), went_offline, None, replace(BASE, log_directory=D1, online_directories=(D2,), any_offline=True)),
        # The log's directory failed a moment ago, and the broker still lists the log as hosted there.
        (
            Broker(),
            lambda broker: broker.lose("/d1"),
            D1,
            replace(BASE, log_directory=D1, online_directories=(D2,), any_offline=True),
        ),
        (Broker(), recovering(1), None, replace(BASE, leads_while_recovering=True)),
        (Broker(), recovering(2), None, BASE),
        # An unknown previous registration, or one without directories, proves nothing.
        (Broker(), previous(D1, D2), None, replace(BASE, previous_directories_online=True)),
        (Broker(), previous(D2), None, replace(BASE, previous_directories_online=True)),
        (Broker(), previous(D1, GONE), None, BASE),
        (Broker(), previous(), None, BASE),
        # The controller assigns the only directory of a broker before there is a log. A trace of a log, an offline directory
        # or another assignment means that the log may have been there.
        (Broker(), previous(D1), None, replace(BASE, previous_directories_online=True, has_left_no_trace=True)),
        (Broker(), with_a_trace, None, replace(BASE, previous_directories_online=True)),
        (Broker(assigned=D2), previous(D1), None, replace(BASE, metadata_directory=D2, previous_directories_online=True)),
        (
            Broker(),
            previous_and_a_loss,
            None,
            replace(BASE, previous_directories_online=True, online_directories=(D1,), any_offline=True),
        ),
    ],
)
def test_situation(
    broker: Broker, prepare: Callable[[Broker], None], hosted_in: DirectoryId | None, expected: ReplicaSituation
) -> None:
    """The metadata, the state of the directories and the broker's memory each determine a part of the situation."""
    prepare(broker)
    assert broker.known.situation(P0, hosted_in) == expected


def test_a_partition_of_others_has_no_place_here() -> None:
    """A partition that is on other brokers, or does not exist, is not created here. If it has a log here, the log is
    deleted."""
    broker = Broker()
    moved = PartitionChangeRecord(
        topic_id=P0.topic_id, partition_id=0, replicas=[2], isr=[2], leader=2, directories=[directory(9)]
    )
    broker.change(moved)
    for key in (P0, Q0):
        assert broker.known.situation(key, None) == replace(BASE, metadata_directory=None, in_isr=False)
        assert broker.known.decide(key, None) == Decision(Action.SKIP)
        assert broker.known.decide(key, D1) == Decision(Action.DELETE)


def test_what_went_offline_is_forgotten_when_it_is_lost_or_gone() -> None:
    """Once the metadata says LOST, an unclean election may start the replica empty, so the broker forgets the offline log.
    Until then, nothing replaces that log. The broker also forgets it when the topic is deleted."""
    broker = Broker(assigned=UNASSIGNED)
    went_offline(broker)
    assert broker.known.decide(P0, None) == Decision(Action.ASSIGN, D1)
    assert broker.known.is_offline(P0)
    assert broker.known.offline_in(D1) == [P0]
    assert broker.known.offline_in(D2) == []
    broker.change(PartitionChangeRecord(topic_id=P0.topic_id, partition_id=0, directories=[LOST, directory(9)]))
    assert broker.known.decide(P0, None) == Decision(Action.SKIP)
    assert not broker.known.is_offline(P0)
    went_offline(broker)
    broker.change(RemoveTopicRecord(topic_id=P0.topic_id))
    assert broker.known.decide(P0, None) == Decision(Action.SKIP)
    assert broker.known.offline_count == 0


@pytest.mark.parametrize(
    ("broker_epoch", "is_hosted", "is_newer"),
    [(EPOCH, False, True), (EPOCH, True, False), (BrokerEpoch(99), False, False), (None, False, False)],
)
def test_what_is_newer_than_the_incarnation(broker_epoch: BrokerEpoch | None, is_hosted: bool, is_newer: bool) -> None:
    """A partition is newer if it was created after this incarnation's registration and has no log here. If the image has
    another incarnation's registration, the order is unknown, and the partition does not count as newer."""
    broker, delta, key = Broker(), MetadataDelta(), Q0
    replay(topic(2), partition(2, 0, [1], directories=[UNASSIGNED]), into=broker.state, delta=delta)
    broker.known.metadata_changed(delta, broker_epoch=broker_epoch, hosted=(key,) if is_hosted else ())
    assert broker.known.situation(key, None).newer_than_incarnation is is_newer
    broker.known.log_created(key)
    assert not broker.known.situation(key, None).newer_than_incarnation


def test_what_was_created_before_the_registration_is_not_newer() -> None:
    """The offsets of the two records decide. A later registration record of the same incarnation does not count."""
    broker, delta = Broker(), MetadataDelta()
    delta.created_partitions[P0] = Offset(0)
    broker.known.metadata_changed(delta, broker_epoch=EPOCH, hosted=())
    assert not broker.known.situation(P0, None).newer_than_incarnation
    later, key = MetadataDelta(), Q0
    replay(topic(2), partition(2, 0, [1], directories=[UNASSIGNED]), into=broker.state, delta=later)
    broker.state.registration_offsets[BrokerId(1)] = Offset(broker.state.last_offset + 1)
    broker.known.metadata_changed(later, broker_epoch=EPOCH, hosted=())
    assert broker.known.situation(key, None).newer_than_incarnation


def test_a_replica_that_a_reassignment_adds_is_newer() -> None:
    """A "newer" replica was added after this incarnation of the broker started. The broker creates such a replica even while
    one of its directories is offline (KAFKA-10314). A replica that existed before the reassignment is not newer. No replica
    in the first delta counts as newer, because that delta may contain older changes."""
    broker, key = Broker(), Q0
    broker.change(topic(2), partition(2, 0, [2], directories=[directory(9)]))
    added = PartitionChangeRecord(
        topic_id=Q0.topic_id, partition_id=0, replicas=[1, 2], directories=[D2, directory(9)], adding_replicas=[1]
    )
    delta = MetadataDelta()
    broker.known.metadata_changed(delta, broker_epoch=EPOCH, hosted=())
    replay(added, PartitionChangeRecord(topic_id=P0.topic_id, partition_id=0, isr=[1]), into=broker.state, delta=delta)
    broker.lose("/d1")
    assert broker.known.decide(key, None) == Decision(Action.ASSIGN_LOST)
    broker.known.metadata_changed(delta, broker_epoch=EPOCH, hosted=())
    assert broker.known.decide(key, None) == Decision(Action.CREATE, D2)
    assert not broker.known.situation(P0, None).newer_than_incarnation
    late = Broker()
    late.change(topic(2), partition(2, 0, [2], directories=[directory(9)]), added)
    late.known.metadata_changed(delta, broker_epoch=EPOCH, hosted=())
    assert not late.known.situation(key, None).newer_than_incarnation


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        (Broker(), Action.ASSIGN_LOST),
        (Broker(assigned=UNASSIGNED), Action.ASSIGN_LOST),
        (Broker(assigned=LOST), Action.SKIP),
        (Broker(isr=(2,), leader=2), Action.SKIP),
        (Broker(assigned=UNASSIGNED, isr=(2,), leader=2), Action.ASSIGN_LOST),
        (Broker(assigned=MIGRATING, isr=(2,), leader=2), Action.ASSIGN_LOST),
        (Broker(assigned=LOST, isr=(2,), leader=2), Action.SKIP),
    ],
)
def test_a_replica_that_has_no_place(broker: Broker, expected: Action) -> None:
    """An ISR member without a place is reported LOST unless the controller already has that. A replica outside the ISR is
    reported if the controller may be waiting for its directory."""
    assert broker.known.decide_unplaceable(P0) == Decision(expected)


def test_news_is_news_once() -> None:
    """`has_no_place` returns True only the first time, `note_wish` only if the wish changed."""
    known = Broker().known
    assert [known.has_no_place(P0), known.has_no_place(P0)] == [True, False]
    assert (known.is_unplaceable(P0), known.unplaceable_count) == (True, 1)
    known.has_place(P0)
    assert (known.is_unplaceable(P0), known.unplaceable_count) == (False, 0)
    assert [known.note_wish(P0, wish) for wish in (None, D1, D1, D2, None, None)] == [False, True, False, True, True, False]
    known.note_wish(P0, LOST)
    assert known.wishes == {P0: LOST}


@pytest.mark.parametrize(
    ("decision", "wish"),
    [
        (Decision(Action.ASSIGN, D2), D2),
        (Decision(Action.ASSIGN_LOST), LOST),
        (Decision(Action.USE), None),
        (Decision(Action.CREATE, D1), None),
        (Decision(Action.SKIP), None),
        (Decision(Action.DELETE), None),
    ],
)
def test_what_a_decision_has_to_say(decision: Decision, wish: DirectoryId | None) -> None:
    """Only assignments are reported to the controller."""
    assert decision.wish == wish


@pytest.mark.parametrize(
    ("broker", "wish", "led"),
    [
        (Broker(), None, D1),
        (Broker(assigned=UNASSIGNED), None, UNASSIGNED),
        (Broker(assigned=UNASSIGNED), D2, D2),
        (Broker(assigned=D1), D2, D2),
        (Broker(leader=2), None, None),
        (Broker(leader=2), D1, None),
    ],
)
def test_where_a_broker_leads(broker: Broker, wish: DirectoryId | None, led: DirectoryId | None) -> None:
    """A broker leads in the directory that the metadata names for the replica, and in the wished one until the controller
    has confirmed the wish."""
    broker.known.note_wish(P0, wish)
    if led is not None:
        assert broker.known.leads_in(led)
    assert not any(broker.known.leads_in(other) for other in (GONE, directory(9)))
    if led is None:
        assert not broker.known.leads_in(D1)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_replica_without_a_log_is_missing_only_after_a_clean_shutdown(is_clean: bool) -> None:
    """After a crash its log may never have been created. A replica for which there is no room is not missing."""
    found = [LogDirectory(path="/d1", directory_id=D1)]
    epoch = EPOCH if is_clean else None
    directories = LogDirectories(found, data_dirs=("/d1",), metadata_dir="/d1", previous_broker_epoch=epoch)
    known = HostedReplicas(BrokerId(1), Broker(assigned=MIGRATING, isr=(1,)).state, directories, DirectoryReports())
    assert known.decide(P0, None) == Decision(Action.ASSIGN_LOST)
    known.note_wish(P0, LOST)
    assert known.is_missing(P0) is is_clean
    known.has_no_place(P0)
    assert not known.is_missing(P0)
    known.has_place(P0)
    known.note_wish(P0, D1)
    assert not known.is_missing(P0)


def test_the_only_replica_of_a_partition_is_not_missing() -> None:
    """No other replica could be elected, so nothing is won by waiting. There may have been no room for it before the
    shutdown: then the broker would be fenced for ever."""
    broker = Broker(assigned=MIGRATING, isr=(1,))
    broker.directories.previous_broker_epoch = EPOCH
    broker.known.note_wish(P0, LOST)
    assert broker.known.is_missing(P0)
    broker.change(PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, replicas=[1], directories=[MIGRATING]))
    assert not broker.known.is_missing(P0)


# --- the gate to unfencing -----------------------------------------------------------------------------------------

WAITED_FOR = ReplicaPlace(
    assigned=UNASSIGNED,
    assigned_is_online=True,
    hosted=D1,
    has_wish=True,
    is_being_created=False,
    is_unplaceable=False,
)
UNREPORTABLE = replace(WAITED_FOR, assigned=MIGRATING, hosted=None, has_wish=True, is_reportable=False)
OFFLINE = replace(WAITED_FOR, assigned=GONE, assigned_is_online=False, hosted=None, has_wish=False)


@pytest.mark.parametrize(
    ("place", "settled"),
    [
        (WAITED_FOR, False),
        (replace(WAITED_FOR, assigned=MIGRATING), False),
        (replace(WAITED_FOR, assigned=D2), False),
        # The metadata names the replica's directory, or places the replica on other brokers.
        (replace(WAITED_FOR, assigned=D1), True),
        (replace(WAITED_FOR, assigned=None), True),
        # The metadata says LOST. If the log is here again, it can still be led.
        (replace(WAITED_FOR, assigned=LOST, assigned_is_online=False), False),
        (replace(WAITED_FOR, assigned=LOST, assigned_is_online=False, hosted=None), True),
        # The log does not exist yet. It may still be created, and the controller counts its directory as online.
        (replace(WAITED_FOR, hosted=None, has_wish=False), False),
        (replace(WAITED_FOR, hosted=None, has_wish=False, is_unplaceable=True), True),
        # The controller considers the replica's directory offline.
        (OFFLINE, True),
        (replace(OFFLINE, has_wish=True), False),
        (replace(OFFLINE, is_being_created=True), False),
        (replace(OFFLINE, is_being_created=True, is_unplaceable=True), True),
        # Below metadata.version 17 only a replica whose directory was taken out of log.dirs is waited for.
        (UNREPORTABLE, True),
        (replace(UNREPORTABLE, is_missing=True), False),
        (replace(UNREPORTABLE, is_missing=True, is_reportable=True), False),
    ],
)
def test_what_is_settled(place: ReplicaPlace, settled: bool) -> None:
    """Lists the states in which a replica no longer keeps a new incarnation fenced, and the states in which it still
    does."""
    assert is_settled(place) is settled
