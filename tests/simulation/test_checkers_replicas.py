"""Tests the checkers that inspect a running cluster: a healthy one passes, and each planted state breaks its invariant."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from broker.core.lifecycle import BrokerState, _Failure
from broker.core.partition_replica import Role
from common.environment.interface import LogDirError
from common.ids import BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, Offset, PartitionEpoch, TopicIdPartition, Uuid
from common.protocol.errors import ErrorCode
from common.records.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord
from common.time_units import NS_PER_S
from tests.simulation.checkers import Checkers
from tests.simulation.checkers.quiescence import problems
from tests.simulation.checkers.undisturbed import UndisturbedChecker
from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.history import History
from tests.simulation.test_checkers_raw_logs import batch
from tests.simulation.violations import InvariantViolated

ELSEWHERE = DirectoryId(Uuid(b"e" * 16))


class Planted:
    """A settled cluster with one topic. It has one partition with three records."""

    def __init__(self, cluster: SimulatedCluster, checkers: Checkers) -> None:
        self.cluster = cluster
        self.checkers = checkers
        self.brokers = checkers.brokers()
        self.key: TopicIdPartition = next(iter(checkers.image.image.partitions))
        self.part = checkers.image.image.partitions[self.key]
        self.leader = self.brokers[self.part.leader].replicas._partitions[self.key]
        self.follower_id = next(id_ for id_ in self.part.isr if id_ != self.part.leader)
        self.follower = self.brokers[self.follower_id].replicas._partitions[self.key]

    def look(self) -> None:
        self.checkers.replicas.look(self.brokers)

    def invariants_open(self) -> set[str]:
        return {invariant for invariant, _ in problems(self.checkers.controller(), self.brokers, self.checkers.image.image)}


def run_planted(plant: Callable[[Planted], Coroutine[Any, Any, None]]) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic("t", partitions=1, min_insync_replicas="2")
            for value in (b"a", b"b", b"c"):
                await client.produce("t", 0, value)
            await checkers.at_quiescence()
            client.close()
        checkers.stop()
        planted = Planted(cluster, checkers)
        planted.look()
        assert planted.invariants_open() == set()
        await plant(planted)

    SimulatedWorld(seed=1).run(scenario)


def test_high_watermark_and_epochs() -> None:
    """I3: a high watermark falls or is beyond the log end. I8: an ISR member lacks committed records, or a leader counts on
    a wrong ISR. I4: a replica leads without being elected, or its epoch goes back."""

    async def plant(planted: Planted) -> None:
        leader, follower = planted.leader, planted.follower
        follower.replica.high_watermark = Offset(1)
        with pytest.raises(InvariantViolated, match=r"I3.*fell from 3 to 1"):
            planted.look()
        follower.replica.high_watermark = Offset(9)
        with pytest.raises(InvariantViolated, match=r"I3.*high watermark 9"):
            planted.look()
        follower.replica.high_watermark = Offset(9)
        follower.log._appends.written_offset = follower.log.log_end_offset = Offset(2)
        planted.checkers.replicas._seen.clear()
        follower.replica.high_watermark = Offset(2)
        with pytest.raises(InvariantViolated, match=r"I8.*member"):
            planted.look()
        follower.log._appends.written_offset = follower.log.log_end_offset = follower.replica.high_watermark = Offset(3)
        follower.replica.role = Role.LEADER
        with pytest.raises(InvariantViolated, match="I4"):
            planted.look()
        follower.replica.role = Role.FOLLOWER
        leader.replica.committed_isr = (BrokerId(planted.part.leader),)
        planted.checkers.replicas._seen_offset = -1
        # The ISR may have shrunk by a record that the checkers have not seen.
        planted.checkers.replicas.look(planted.brokers, is_image_complete=False)
        with pytest.raises(InvariantViolated, match=r"I8.*counts on ISR"):
            planted.look()
        leader.replica.leader_epoch = LeaderEpoch(-1)
        with pytest.raises(InvariantViolated, match=r"I4.*went back"):
            planted.look()

    run_planted(plant)


@pytest.mark.parametrize("log_start_offset", [2, 3])
@pytest.mark.parametrize(("role", "is_lawful"), [(Role.FOLLOWER, True), (Role.NONE, True), (Role.LEADER, False)])
def test_a_follower_without_records_may_begin_again_at_a_lower_offset(
    role: Role, log_start_offset: int, *, is_lawful: bool
) -> None:
    """The leader's log start is in the middle of a batch. A follower begins there, and again at the start of the batch. I3:
    the high watermark of a leader does not fall in this way."""

    async def plant(planted: Planted) -> None:
        seen = planted.checkers.replicas._seen[planted.follower_id, planted.key]
        empty = seen.facts._replace(role=role, log_start_offset=log_start_offset, base_offset=3, written_offset=3)
        again = empty._replace(high_watermark=2, log_start_offset=2, base_offset=2, written_offset=2)
        with nullcontext() if is_lawful else pytest.raises(InvariantViolated, match=r"I3.*fell from 3 to 2"):
            planted.checkers.replicas._check_progress("t-0", planted.key, empty, again)

    run_planted(plant)


def test_a_follower_that_knows_more_than_its_leader() -> None:
    """I3: a follower's high watermark rises above that of its leader, so that consumers could read too much."""

    async def plant(planted: Planted) -> None:
        leader, follower = planted.leader, planted.follower
        planted.checkers.replicas._seen.clear()
        leader.replica.high_watermark = follower.replica.high_watermark = Offset(1)
        planted.look()
        leader.replica.high_watermark = follower.replica.high_watermark = Offset(2)
        planted.look()
        follower.replica.high_watermark = Offset(3)
        with pytest.raises(InvariantViolated, match=r"I3.*rose to 3, that of leader \d is 2"):
            planted.look()

    run_planted(plant)


def test_a_high_watermark_that_rises_below_min_isr() -> None:
    """I8: min.insync.replicas is 2. The high watermark may rise between two looks if the ISR shrinks to one between them,
    but not after that."""

    async def plant(planted: Planted) -> None:
        replica, image = planted.leader.replica, planted.checkers.image.image
        planted.checkers.replicas._seen.clear()
        replica.high_watermark = Offset(1)
        planted.look()
        alone = (BrokerId(planted.part.leader),)
        image.partitions[planted.key] = replace(planted.part, isr=alone)
        replica.committed_isr, replica.partition_epoch = alone, PartitionEpoch(replica.partition_epoch + 1)
        replica.high_watermark = Offset(2)
        planted.look()
        replica.high_watermark = Offset(3)
        with pytest.raises(InvariantViolated, match=r"I8.*rose from 2 to 3"):
            planted.look()

    run_planted(plant)


def test_a_broker_that_could_not_tell_must_end() -> None:
    """I13: a broker leads in a failed directory, and the controller has not acknowledged the failure: the broker must end
    when log.dir.failure.timeout.ms is over. If the failure was acknowledged, the broker gets some more time, until the
    metadata has moved the leaders. A broker that could not register yet leads nothing (seed 162), and one that is shutting
    down serves nothing any more (seed 15336)."""

    async def plant(planted: Planted) -> None:
        checker, broker = planted.checkers.replicas, planted.brokers[planted.part.leader]
        directory_id = planted.leader.directory_id
        broker._directories.known.step(LogDirError(planted.leader.log.log_dir.path, "planted", errno.EIO))
        failure = broker.lifecycle._failures[directory_id] = _Failure(deadline_ns=0)
        began_ns = planted.cluster.world.now_ns()
        late_ns = began_ns + 32 * NS_PER_S
        checker.look_at_offline_directories(planted.brokers, began_ns)
        with pytest.raises(InvariantViolated, match="I13"):
            checker.look_at_offline_directories(planted.brokers, late_ns)
        failure.acknowledged = True
        checker.look_at_offline_directories(planted.brokers, late_ns)
        failure.acknowledged = False
        broker.lifecycle.state = BrokerState.SHUTTING_DOWN
        checker.look_at_offline_directories(planted.brokers, late_ns)
        checker.look_at_offline_directories(planted.brokers, late_ns + 32 * NS_PER_S)
        broker.lifecycle.state = BrokerState.STARTING
        broker.lifecycle.broker_epoch = BrokerEpoch(-1)
        checker.look_at_offline_directories(planted.brokers, late_ns)
        checker.look_at_offline_directories(planted.brokers, late_ns + 32 * NS_PER_S)

    run_planted(plant)


def test_a_broker_that_only_speaks_of_its_failed_directory_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13: a broker that knows of another leader must send clients there."""

    async def plant(planted: Planted) -> None:
        checker, replicas = planted.checkers.replicas, planted.brokers[planted.follower_id].replicas
        replicas._known.log_went_offline(planted.key, planted.follower.directory_id)
        replicas._hosted.remove_partition(replicas._partitions[planted.key])
        checker.look_at_offline_directories(planted.brokers, planted.cluster.world.now_ns())
        monkeypatch.setattr(replicas, "_absent_error", lambda _key: ErrorCode.KAFKA_STORAGE_ERROR)
        with pytest.raises(InvariantViolated, match="I13"):
            checker.look_at_offline_directories(planted.brokers, planted.cluster.world.now_ns())

    run_planted(plant)


def test_wrong_assignments_dead_leaders_and_empty_replicas_are_found() -> None:
    """I11: a broker is unfenced while the metadata names a wrong directory for its replica. I13: a leader stays in a dead
    directory. I16: the controller does not record the failure. I14: the log of an ISR member is created again, empty."""

    async def plant(planted: Planted) -> None:
        checker, image = planted.checkers.replicas, planted.checkers.image.image
        leader_id, part = planted.part.leader, planted.part
        image.brokers[leader_id] = replace(image.brokers[leader_id], registered_at=part.created_at + 1)
        epoch = planted.brokers[leader_id].lifecycle.broker_epoch
        unfence = BrokerRegistrationChangeRecord(broker_id=leader_id, broker_epoch=epoch, fenced=-1)
        checker.committed_batch([unfence], planted.brokers)
        moved = tuple(ELSEWHERE if id_ == leader_id else part.directory(id_) for id_ in part.replicas)
        image.partitions[planted.key] = replace(part, directories=moved)
        with pytest.raises(InvariantViolated, match="I11"):
            checker.committed_batch([unfence], planted.brokers)
        # The wrong directory was assigned after the registration, for example for a move that was cancelled then (seed 58).
        image.partitions[planted.key] = part
        checker.committed_batch([RegisterBrokerRecord(broker_id=leader_id)], planted.brokers)
        image.partitions[planted.key] = replace(part, directories=moved)
        checker.committed_batch([unfence], planted.brokers)
        # It is the directory of the registration, but the replica has been elsewhere since then (seed 14443).
        checker.committed_batch([RegisterBrokerRecord(broker_id=leader_id)], planted.brokers)
        with pytest.raises(InvariantViolated, match="I11"):
            checker.committed_batch([unfence], planted.brokers)
        change = PartitionChangeRecord(topic_id=planted.key.topic_id, partition_id=planted.key.partition)
        for there in (part, replace(part, directories=moved)):
            image.partitions[planted.key] = there
            checker.committed_batch([change], planted.brokers)
        checker.committed_batch([unfence], planted.brokers)
        image.partitions[planted.key] = part
        known = planted.brokers[leader_id]._directories.known
        known.step(LogDirError(planted.leader.log.log_dir.path, "planted", errno.EIO))
        now_ns = planted.cluster.world.now_ns()
        checker.look_at_offline_directories(planted.brokers, now_ns)
        with pytest.raises(InvariantViolated, match="I13"):
            checker.look_at_offline_directories(planted.brokers, now_ns + 60 * NS_PER_S)
        undisturbed = UndisturbedChecker(planted.cluster.world.disk)
        undisturbed.look_at_failures(planted.brokers, image, now_ns, is_controller_well=True)
        undisturbed.look_at_failures(planted.brokers, image, now_ns + 60 * NS_PER_S, is_controller_well=False)
        undisturbed.look_at_failures(planted.brokers, image, now_ns, is_controller_well=True)
        with pytest.raises(InvariantViolated, match="I16"):
            undisturbed.look_at_failures(planted.brokers, image, now_ns + 60 * NS_PER_S, is_controller_well=True)
        fields = {"partition": "t-0", "topic_id": planted.key.topic_id.hex()}
        created = SimulatedEvent(0, f"broker-{planted.follower_id}", "info", "log_created", fields)
        with pytest.raises(InvariantViolated, match="I14"):
            checker.happened(created)

    run_planted(plant)


def test_the_time_in_which_a_leader_cannot_learn_of_its_isr_is_noted() -> None:
    """The link between the controller and one broker is cut, in either direction (seeds 15034 and 16023)."""

    async def plant(planted: Planted) -> None:
        checkers, network = planted.checkers, planted.cluster.world.network
        controller, leader = map(planted.cluster.name, (CONTROLLER_ID, planted.part.leader))
        before = list(checkers._without_controller)
        checkers._look_at_bounds()
        assert checkers._without_controller == before
        for way in ((controller, leader), (leader, controller)):
            network.cut(*way)
            checkers._look_at_bounds()
            network.mend(*way)
        checkers._look_at_bounds()
        assert checkers._without_controller == [*before, *[planted.cluster.world.now_ns()] * 2]

    run_planted(plant)


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_slow_metadata_disk_excuses_the_controller(is_slow: bool) -> None:
    """I16: a failed directory must leave the registration in time, unless the metadata disk is slow (seed 14420)."""

    async def plant(planted: Planted) -> None:
        checkers, world = planted.checkers, planted.cluster.world
        if is_slow:
            world.disk(checkers._metadata_dir).slow_down(1000)
        known = planted.brokers[planted.part.leader]._directories.known
        known.step(LogDirError(planted.leader.log.log_dir.path, "planted", errno.EIO))
        checkers._look_at_bounds()
        untold = checkers._undisturbed._untold_since
        assert bool(untold) is not is_slow
        checkers._undisturbed._untold_since = {place: at_ns - 60 * NS_PER_S for place, at_ns in untold.items()}
        # So that only the rule that is tested here can be broken.
        checkers.replicas._led_offline_since.clear()
        with nullcontext() if is_slow else pytest.raises(InvariantViolated, match="I16"):
            checkers._look_at_bounds()

    run_planted(plant)


def test_files_that_differ_from_what_is_committed_are_found() -> None:
    """I1: a committed record is missing on a follower's disk. I3: a committed record differs there."""

    async def plant(planted: Planted) -> None:
        log = planted.follower.log
        disk = planted.cluster.world.disk(log.log_dir.path)
        name = f"{log.name}/00000000000000000000.log"
        planted.checkers._look_at_logs()
        disk.write(name, batch(0, "a") + batch(1, "b"))
        with pytest.raises(InvariantViolated, match=r"I1: t-0 on broker \d ends at 2; committed is 3"):
            planted.checkers._look_at_logs()
        disk.write(name, batch(0, "a") + batch(1, "b") + batch(2, "x"))
        with pytest.raises(InvariantViolated, match="I3: t-0: offset 0 is not the same"):
            planted.checkers._look_at_logs()

    run_planted(plant)


def test_a_creation_that_does_not_end() -> None:
    """I12: a replica on a healthy disk must be created within the time limit. On a hanging disk it may take longer."""

    async def plant(planted: Planted) -> None:
        checker = UndisturbedChecker(planted.cluster.world.disk)
        broker = planted.brokers[planted.follower_id]
        broker.replicas._creation._creating[TopicIdPartition(planted.key.topic_id, 7)] = planted.follower.directory_id
        checker.look_at_creations(planted.brokers, 0)
        disk = planted.cluster.world.disk(planted.follower.log.log_dir.path)
        disk.hang()
        checker.look_at_creations(planted.brokers, 60 * NS_PER_S)
        disk.thaw()
        checker.look_at_creations(planted.brokers, 60 * NS_PER_S)
        with pytest.raises(InvariantViolated, match="I12"):
            checker.look_at_creations(planted.brokers, 62 * NS_PER_S)

    run_planted(plant)


def test_what_has_not_settled() -> None:
    """I5, I11, I16 and I19: each difference between the nodes and the metadata is reported under its invariant."""

    async def plant(planted: Planted) -> None:
        image, key, part = planted.checkers.image.image, planted.key, planted.part
        broker = planted.brokers[planted.follower_id]
        registered = image.brokers[planted.follower_id]
        image.partitions[key] = replace(part, leader=-1)
        assert planted.invariants_open() == {"I5", "I19"}
        image.partitions[key] = replace(part, isr=(part.leader,))
        assert planted.invariants_open() == {"I5", "I19"}
        image.partitions[key] = replace(part, removing=(part.leader,))
        assert planted.invariants_open() == {"I5", "I19"}
        image.partitions[key] = replace(part, directories=(ELSEWHERE,) * 3)
        assert "I11" in planted.invariants_open()
        image.partitions[key] = part
        image.brokers[planted.follower_id] = replace(registered, fenced=True)
        assert planted.invariants_open() == {"I5", "I19"}
        image.brokers[planted.follower_id] = replace(registered, lost=frozenset([ELSEWHERE]))
        assert planted.invariants_open() == {"I16"}
        image.brokers[planted.follower_id] = replace(registered, directories=registered.directories | {ELSEWHERE})
        assert planted.invariants_open() == {"I5", "I16"}
        image.brokers[planted.follower_id] = registered
        broker.directory_assignments.wish({key: ELSEWHERE}, 0)
        assert planted.invariants_open() == {"I11"}
        broker.directory_assignments.settle([key])
        planted.follower.replica.high_watermark = Offset(0)
        assert planted.invariants_open() == {"I19"}
        planted.follower.replica.high_watermark = Offset(3)
        del broker.state.brokers[BrokerId(planted.follower_id)]
        assert planted.invariants_open() == {"I5"}

    run_planted(plant)


def test_a_violation_ends_the_run_from_within() -> None:
    """The world's run raises the violation itself. It is not reported as an error of the daemon in whose step it was
    found."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=1)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        await world.sleep(1)
        broker = checkers.image.image.brokers[1]
        checkers.image.image.brokers[1] = replace(broker, epoch=BrokerEpoch(broker.epoch + 1))
        cluster.crash(1)
        await world.sleep(30)

    with pytest.raises(InvariantViolated, match="I17"):
        SimulatedWorld(seed=1).run(scenario)
