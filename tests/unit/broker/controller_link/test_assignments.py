"""Which replica directories are reported to the controller, when a report is repeated, and when the unfence gate opens.

A wish is the directory that the broker wants the metadata to name for a replica.
"""

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.controller_link.assignments import Assignments
from broker.controller_link.assignments_sender import AssignmentsSender
from broker.core.directory_assignments import DirectoryAssignments
from broker.core.directory_reports import DirectoryReports
from broker.core.unfence_gate import UnfenceGate
from common.ids import BrokerEpoch, BrokerId, DirectoryId, TopicIdPartition
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.records.metadata_records import KnownRecord, PartitionChangeRecord, RemoveTopicRecord
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.fake_controller import ControllerSide
from tests.unit.common.metadata.builders import directory, level, partition, register, replay, topic, topic_id

D1, D2, D3 = directory(1), directory(2), directory(3)
P0, P1 = TopicIdPartition(topic_id(1), 0), TopicIdPartition(topic_id(1), 1)
AGES_NS = 10**15


class Places:
    """Stands in for Replicas: holds the directory and the wish of each replica."""

    def __init__(self) -> None:
        self.hosted: dict[TopicIdPartition, DirectoryId] = {}
        self.wishes: dict[TopicIdPartition, DirectoryId] = {}
        self.creating: list[TopicIdPartition] = []
        self.unplaceable: list[TopicIdPartition] = []
        self.missing: list[TopicIdPartition] = []
        self.copies: dict[TopicIdPartition, DirectoryId] = {}
        self.looks = 0

    def hosted_directories(self) -> dict[TopicIdPartition, DirectoryId]:
        return dict(self.hosted)

    def wished_assignments(self) -> dict[TopicIdPartition, DirectoryId]:
        self.looks += 1
        return dict(self.wishes)

    def is_being_created(self, key: TopicIdPartition) -> bool:
        return key in self.creating

    def is_unplaceable(self, key: TopicIdPartition) -> bool:
        return key in self.unplaceable

    def reported_copy(self, key: TopicIdPartition) -> DirectoryId | None:
        return self.copies.get(key)

    def is_missing(self, key: TopicIdPartition) -> bool:
        return key in self.missing


class Broker:
    """Broker 1 with the directories D1 and D2, one topic with two partitions, and a queue that only the test empties."""

    def __init__(self, side: ControllerSide, metadata_version: int) -> None:
        self.world = side.world
        self.places = Places()
        self.state: MetadataState = replay(
            level(metadata_version),
            register(1, directories=[D1, D2] if metadata_version >= 17 else []),
            topic(1),
            partition(1, 0, [1], directories=[D1] if metadata_version >= 17 else []),
            partition(1, 1, [1], directories=[UNASSIGNED] if metadata_version >= 17 else []),
        )
        self.queue = DirectoryAssignments(rng=random.Random(1), reports=DirectoryReports())
        self.opened: list[int] = []
        self.gate = UnfenceGate()
        self.assignments = Assignments(
            self.state,
            broker_id=BrokerId(1),
            replicas=self.places,
            # The sender has no broker epoch, so it never sends.
            sender=AssignmentsSender(
                side.env,
                self.queue,
                broker_id=BrokerId(1),
                broker_epoch=lambda: BrokerEpoch(-1),
                channel=side.channel,
                task_group=side.group,
                on_final=lambda _replica: None,
            ),
            gate=self.gate,
            on_open=lambda: self.opened.append(1),
        )

    def publish(self, *records: KnownRecord, moved: tuple[TopicIdPartition, ...] = ()) -> None:
        replay(*records, into=self.state)
        self.assignments.published(moved)

    async def look(self) -> None:
        """Notifies the Assignments that wishes changed, and waits while it compares them with the previous wishes."""
        self.assignments.wishes_changed()
        await self.world.sleep(0.2)

    def sent(self, code: int = ErrorCode.NONE) -> dict[TopicIdPartition, DirectoryId]:
        """Empties the queue and answers every assignment with this error code. Returns the assignments."""
        batch = self.queue.next_batch(AGES_NS)
        sent = {replica: directory_id for directory_id, replicas in batch.items() for replica in replicas}
        self.queue.handle_answer({(directory_id, replica): code for replica, directory_id in sent.items()}, AGES_NS)
        return sent

    def assign(self, key: TopicIdPartition, directory_id: DirectoryId) -> None:
        """Simulates that the controller accepts an assignment: ends the wish and publishes the record."""
        self.places.wishes.pop(key, None)
        self.publish(
            PartitionChangeRecord(topic_id=key.topic_id, partition_id=key.partition, directories=[directory_id]),
            moved=(key,),
        )


def run(scenario: Callable[[Broker], Coroutine[Any, Any, None]], *, metadata_version: int = 21) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        async with ControllerSide(world, {}, start=False) as side:
            await scenario(Broker(side, metadata_version))

    SimulatedWorld(seed=1).run(in_world)


def test_a_wish_is_told_once() -> None:
    """A wish that the controller has confirmed is not sent again while the metadata still lacks it, however often the wishes
    are compared with the previous ones."""

    async def scenario(broker: Broker) -> None:
        broker.places.wishes = {P1: D2}
        await broker.look()
        assert broker.sent() == {P1: D2}
        await broker.look()
        broker.publish()
        assert broker.sent() == {}

    run(scenario)


def test_a_wish_is_told_again_when_the_metadata_of_its_replica_moved_and_does_not_agree() -> None:
    """If a replica's metadata changes and still disagrees with its wish, the assignment is sent again. A change of another
    replica does not cause a resend."""

    async def scenario(broker: Broker) -> None:
        broker.places.wishes = {P1: D2}
        await broker.look()
        assert broker.sent(ErrorCode.NOT_LEADER_OR_FOLLOWER) == {P1: D2}
        broker.publish(PartitionChangeRecord(topic_id=P0.topic_id, partition_id=0, leader=-1), moved=(P0,))
        assert broker.sent() == {}
        broker.publish(PartitionChangeRecord(topic_id=P1.topic_id, partition_id=1, leader=-1), moved=(P1,))
        assert broker.sent() == {P1: D2}

    run(scenario)


def test_a_wish_that_is_gone_leaves_the_queue() -> None:
    """Two wishes are dropped from the queue before they are sent: one because the metadata agrees, the other because the
    topic is deleted."""

    async def scenario(broker: Broker) -> None:
        broker.places.wishes = {P0: D2, P1: D2}
        await broker.look()
        broker.assign(P1, D2)
        assert broker.queue.size == 1
        broker.places.wishes.clear()
        broker.publish(RemoveTopicRecord(topic_id=topic_id(1)))
        assert broker.queue.size == 0

    run(scenario)


def test_a_changed_wish_replaces_the_one_before() -> None:
    """If the replica's directory fails, its new wish (LOST, or the id of the failed directory) is sent instead of the old
    one."""

    async def scenario(broker: Broker) -> None:
        broker.places.wishes = {P0: D2, P1: D2}
        await broker.look()
        broker.places.wishes = {P0: D2, P1: LOST}
        await broker.look()
        assert broker.sent() == {P0: D2, P1: LOST}

    run(scenario)


def test_a_stretch_of_changes_is_looked_at_now_and_then() -> None:
    """The first new wish is noticed at once. Then a thousand wishes follow one by one, as when logs are created. They cause
    only a few comparisons of all wishes."""

    async def scenario(broker: Broker) -> None:
        broker.places.wishes = {P0: D2}
        broker.assignments.wishes_changed()
        await broker.world.sleep(0.001)
        assert broker.queue.size == 1
        broker.places.looks = 0
        for number in range(1000):
            broker.places.wishes[TopicIdPartition(topic_id(9), number)] = D1
            broker.assignments.wishes_changed()
            await broker.world.sleep(0.001)
        assert 5 <= broker.places.looks <= 11
        await broker.world.sleep(0.2)
        assert broker.queue.size == 1001

    run(scenario)


def test_below_metadata_version_17_nothing_is_told_and_nothing_withheld() -> None:
    """Older controllers do not know AssignReplicasToDirs, so waiting for its effect would keep the broker fenced forever."""

    async def scenario(broker: Broker) -> None:
        broker.places.wishes = {P0: D1, P1: D2}
        await broker.look()
        assert broker.sent() == {}
        broker.assignments.fix_gate()
        assert broker.opened == [1]

    run(scenario, metadata_version=16)


@pytest.mark.parametrize("end", ["the level rises", "it leaves the ISR"])
def test_below_metadata_version_17_a_missing_replica_keeps_the_broker_fenced(end: str) -> None:
    """Unfenced, the broker would be made leader without the log. Once the level has risen, the replica is reported as lost,
    and the gate opens when the metadata says so."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted, broker.places.wishes, broker.places.missing = {P0: D1}, {P0: D1, P1: LOST}, [P1]
        await broker.look()
        broker.assignments.fix_gate()
        broker.publish()
        assert (broker.gate.waiting, broker.opened, broker.sent()) == ((P1,), [], {})
        if end == "the level rises":
            broker.publish(level(17))
            assert (broker.opened, broker.sent()) == ([], {P0: D1, P1: LOST})
            broker.places.missing = []
            broker.assign(P1, LOST)
        else:
            del broker.places.wishes[P1], broker.places.missing[0]
            broker.publish(moved=(P1,))
        assert broker.opened == [1]

    run(scenario, metadata_version=16)


def test_the_gate_waits_until_the_metadata_agrees() -> None:
    """The metadata names the directory of one replica, but not of the other, so the gate waits for the other. The
    controller's answer does not open the gate. The changed metadata does."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P0: D1, P1: D2}
        broker.places.wishes = {P1: D2}
        broker.assignments.fix_gate()
        assert broker.gate.waiting == (P1,)
        await broker.look()
        broker.sent()
        broker.publish()
        assert broker.opened == []
        broker.assign(P1, D2)
        assert broker.opened == [1]

    run(scenario)


def test_the_gate_opens_when_the_metadata_names_the_copy_that_is_reported() -> None:
    """The copy of a moving replica has caught up, so the broker reports its directory. That is settled before the copy has
    become the log, because the gate is not notified of the swap."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted, broker.places.wishes, broker.places.copies = {P0: D1, P1: D1}, {P1: D2}, {P1: D2}
        broker.assignments.fix_gate()
        broker.publish()
        assert broker.opened == []
        broker.assign(P1, D2)
        assert broker.opened == [1]

    run(scenario)


def test_the_gate_waits_for_a_copy_although_the_log_is_where_the_metadata_has_it() -> None:
    async def scenario(broker: Broker) -> None:
        broker.places.hosted, broker.places.wishes, broker.places.copies = {P0: D1, P1: D1}, {P0: D2, P1: D1}, {P0: D2}
        broker.assignments.fix_gate()
        broker.assign(P1, D1)
        assert (broker.gate.waiting, broker.opened) == ((P0,), [])
        broker.assign(P0, D2)
        assert broker.opened == [1]

    run(scenario)


def test_the_gate_opens_when_the_level_falls() -> None:
    """Below metadata.version 17 no assignment is recorded, so the broker would stay fenced for ever otherwise."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P0: D1, P1: D2}
        broker.places.wishes = {P1: D2}
        broker.assignments.fix_gate()
        assert broker.opened == []
        broker.publish(level(16))
        assert broker.opened == [1]
        broker.publish()
        assert broker.opened == [1]

    run(scenario)


def test_nothing_to_wait_for_opens_the_gate_at_once() -> None:
    """Until the set of replicas to wait for is fixed, the gate stays closed, even if all metadata agrees."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P0: D1, P1: D2}
        replay(PartitionChangeRecord(topic_id=P1.topic_id, partition_id=1, directories=[D2]), into=broker.state)
        await broker.look()
        broker.publish()
        assert broker.opened == []
        broker.assignments.fix_gate()
        assert broker.opened == [1]

    run(scenario)


def test_later_wishes_never_count() -> None:
    """A replica that is created after the set was fixed neither delays the opening nor closes the gate again. `on_open` is
    called only once."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P0: D1, P1: D2}
        broker.places.wishes = {P1: D2}
        broker.assignments.fix_gate()
        broker.publish(topic(2), partition(2, 0, [1], directories=[UNASSIGNED]), moved=(TopicIdPartition(topic_id(2), 0),))
        broker.places.wishes[TopicIdPartition(topic_id(2), 0)] = D1
        await broker.look()
        assert broker.opened == []
        broker.assign(P1, D2)
        assert broker.opened == [1]
        broker.assign(TopicIdPartition(topic_id(2), 0), D1)
        await broker.look()
        assert broker.opened == [1]

    run(scenario)


@pytest.mark.parametrize("end", ["deleted", "moved away", "lost", "unplaceable"])
def test_what_else_settles_a_replica_that_is_waited_for(end: str) -> None:
    """A replica that is gone, LOST, or has no directory with room for it must not keep the broker fenced."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P0: D1}
        broker.assignments.fix_gate()
        assert broker.gate.waiting == (P1,)
        assert broker.opened == []
        match end:
            case "deleted":
                broker.publish(RemoveTopicRecord(topic_id=topic_id(1)))
            case "moved away":
                broker.publish(
                    PartitionChangeRecord(
                        topic_id=P1.topic_id, partition_id=1, replicas=[2], isr=[2], leader=2, directories=[D3]
                    ),
                    moved=(P1,),
                )
            case "lost":
                broker.assign(P1, LOST)
            case _:
                broker.places.unplaceable.append(P1)
                await broker.look()
        assert broker.opened == [1]

    run(scenario)


def test_a_replica_in_a_directory_that_the_controller_holds_for_offline_is_not_waited_for() -> None:
    """A broker that starts with a dead disk registers without that directory. The replicas there cannot come online, so
    their metadata will not change, and the gate must not wait for them."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P1: D2}
        replay(
            register(1, directories=[D2], epoch=200, incarnation=2),
            PartitionChangeRecord(topic_id=P1.topic_id, partition_id=1, directories=[D2]),
            into=broker.state,
        )
        broker.assignments.fix_gate()
        assert broker.opened == [1]

    run(scenario)


def test_a_replica_that_is_created_elsewhere_is_waited_for() -> None:
    """After a disk was replaced, the metadata names a directory that is gone. The broker stays fenced until the metadata
    names the directory in which the new log was created."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P1: D2}
        broker.places.creating = [P0]
        replay(
            register(1, directories=[D2, D3], epoch=200, incarnation=2),
            PartitionChangeRecord(topic_id=P1.topic_id, partition_id=1, directories=[D2]),
            into=broker.state,
        )
        broker.assignments.fix_gate()
        assert broker.gate.waiting == (P0,)
        broker.places.creating, broker.places.hosted[P0], broker.places.wishes = [], D3, {P0: D3}
        await broker.look()
        assert broker.opened == []
        broker.assign(P0, D3)
        assert broker.opened == [1]

    run(scenario)


def test_a_directory_that_goes_offline_while_the_gate_waits_opens_it() -> None:
    """The gate waits for a replica whose log is not created yet. Then the controller learns that the replica's directory is
    gone, so the gate must not wait any longer."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P1: D2}
        replay(PartitionChangeRecord(topic_id=P1.topic_id, partition_id=1, directories=[D2]), into=broker.state)
        broker.assignments.fix_gate()
        assert broker.gate.waiting == (P0,)
        broker.publish(register(1, directories=[D2], epoch=200, incarnation=2))
        assert broker.opened == [1]

    run(scenario)


def test_a_replica_that_is_created_where_it_is_assigned_opens_the_gate() -> None:
    """A replica that is created where the metadata has it causes no report and no record. So the gate must be checked when
    the log has been created."""

    async def scenario(broker: Broker) -> None:
        broker.places.hosted = {P1: D2}
        replay(PartitionChangeRecord(topic_id=P1.topic_id, partition_id=1, directories=[D2]), into=broker.state)
        broker.assignments.fix_gate()
        assert broker.gate.waiting == (P0,)
        broker.places.hosted[P0] = D1
        await broker.look()
        assert broker.opened == [1]

    run(scenario)
