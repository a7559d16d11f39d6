"""A broker crashes at every point of a move between its directories, and starts again (I15).

There are twelve crash points. At each point the broker is killed, loses power, or is killed and then starts without its
source or its target disk: 48 cases. The crash interrupts the move of a replicated partition (acks=all), or the move of a
partition with a single replica (acks=1), in turn, so that each point meets both and each ending meets both. The other
partition moves and takes records at the same time. In every case the broker must recover without manual intervention.
"""

import asyncio
import errno
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import pytest

from broker.daemon import BrokerDaemon
from broker.hosting.partition import Partition
from common.ids import BrokerId, DirectoryId, TopicIdPartition
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from common.storage.names import MOVE_ORIGIN_FILE
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import NotAcknowledged, SimulatedClient, SimulatedCluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.history import History
from tests.simulation.process import NO_PROCESS

pytestmark = pytest.mark.slow

REPLICATED = "replicated"
SINGLE = "single"
ACKS = {REPLICATED: -1, SINGLE: 1}
VALUE_BYTES = 5_000
SEGMENT_BYTES = "120000"
# With this many records, the copy takes several chunks.
RECORDS_BEFORE = 60
RECORDS_MEANWHILE = 20
OVERRIDES = {
    # One chunk of the copy is a tenth of this.
    "replica.alter.log.dirs.io.max.bytes.per.second": "655360",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.segment.delete.delay.ms": "300",
}


class Ending(Enum):
    """How the broker ends, and which disk is missing when it starts again."""

    KILL = auto()
    POWER_CUT = auto()
    SOURCE_GONE = auto()
    TARGET_GONE = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """An operation that has taken effect on a disk of any node, or an event in the broker's log. For an event, `kind` is
    empty."""

    path: str
    kind: str
    name: str

    @property
    def is_in_future(self) -> bool:
        return "-future" in self.name

    @property
    def is_in_deleted(self) -> bool:
        return "-delete" in self.name


class Replica:
    """The moving replica of one topic on one broker."""

    def __init__(self, cluster: SimulatedCluster, broker_id: BrokerId, topic: str) -> None:
        self.topic = topic
        self.key = TopicIdPartition(cluster.topic_id(topic), 0)
        self._cluster = cluster
        self._broker_id = broker_id
        disks = [cluster.disk(broker_id, number) for number in cluster.disk_numbers(broker_id)]
        self.source = cluster.disk_of(broker_id, self.partition.directory_id)
        self.target = next(disk for disk in disks if disk is not self.source)
        self.target_id = _directory_id(self.broker, self.target)

    @property
    def broker(self) -> BrokerDaemon:
        broker = self._cluster.nodes[self._broker_id].broker
        assert broker is not None
        return broker

    @property
    def partition(self) -> Partition:
        return self.broker.replicas._partitions[self.key]

    @property
    def is_sent(self) -> bool:
        """Whether a request that assigns the replica to the target is in flight."""
        wish = self.broker.directory_assignments._in_flight.get(self.key)
        return wish is not None and wish.directory_id == self.target_id

    @property
    def is_acknowledged(self) -> bool:
        """Whether the metadata that the broker has applied names the target."""
        registration = self.broker.state.partition(*self.key)
        return registration is not None and registration.directory(self._broker_id) == self.target_id

    def folders(self, disk: SimulatedDisk, mark: str = "") -> list[str]:
        """Returns the partition's folders with this mark on a disk. An empty mark stands for current logs."""
        found = [name for name in disk.folders() if name.startswith(f"{self.topic}-0") and "/" not in name]
        return [name for name in found if (name.endswith(mark) if mark else name == f"{self.topic}-0")]

    def is_operation(self, step: Step, disk: SimulatedDisk, kind: str) -> bool:
        is_of_replica = not step.name or step.name.startswith(f"{self.topic}-0")
        return step.path == disk.path and step.kind == kind and is_of_replica


def _directory_id(broker: BrokerDaemon, disk: SimulatedDisk) -> DirectoryId:
    return next(id_ for id_, path in broker._directories.known.online.items() if path == disk.path)


POINTS: Mapping[str, Callable[[Replica, Step], bool]] = {
    "future folder created": lambda it, step: it.is_operation(step, it.target, "create_folders") and step.is_in_future,
    "in the middle of the copy": lambda it, step: it.is_operation(step, it.target, "append") and step.is_in_future,
    "caught up": lambda it, step: step == Step("", "", f"move_caught_up {it.topic}-0"),
    "assignment sent": lambda it, step: it.is_sent,
    "assignment acknowledged": lambda it, step: it.is_acknowledged and not it.partition.is_swapping,
    "appends held back": lambda it, step: it.partition.is_swapping and step.kind != "",
    "source renamed": lambda it, step: it.is_operation(step, it.source, "rename"),
    "source synced": lambda it, step: (
        it.is_operation(step, it.source, "fsync_dir") and step.name == "" and bool(it.folders(it.source, "-delete"))
    ),
    "target renamed": lambda it, step: it.is_operation(step, it.target, "rename"),
    "target synced": lambda it, step: (
        it.is_operation(step, it.target, "fsync_dir") and step.name == "" and bool(it.folders(it.target))
    ),
    "switched in memory": lambda it, step: step == Step("", "", f"move_finished {it.topic}-0"),
    "source half deleted": lambda it, step: it.is_operation(step, it.source, "remove") and step.is_in_deleted,
}


class AtPoint:
    """Calls `strike` when the move reaches the point."""

    def __init__(
        self, cluster: SimulatedCluster, broker_id: BrokerId, replica: Replica, point: str, strike: Callable[[], object]
    ) -> None:
        self.is_over = False
        self._cluster = cluster
        self._broker_id = broker_id
        self._replica = replica
        self._is_reached = POINTS[point]
        self._strike = strike
        cluster.world.operation_watchers.append(self._operation)
        cluster.world.event_watchers.append(self._event)

    def _operation(self, path: str, kind: str, name: str) -> None:
        self._step(Step(path, kind, name), self._strike)

    def _event(self, event: SimulatedEvent) -> None:
        if event.node == self._cluster.name(self._broker_id):
            # Events are logged in the middle of a step of the broker. Let the step finish first.
            strike = partial(self._cluster.world.loop.call_soon, self._strike, context=NO_PROCESS.copy())
            self._step(Step("", "", f"{event.name} {event.fields.get('partition', '')}"), strike)

    def _step(self, step: Step, strike: Callable[[], object]) -> None:
        if not self.is_over and self._is_reached(self._replica, step):
            self.is_over = True
            strike()


class Crash(AtPoint):
    """Ends the broker when the move reaches the crash point."""

    def __init__(self, cluster: SimulatedCluster, broker_id: BrokerId, replica: Replica, point: str, end: Ending) -> None:
        super().__init__(cluster, broker_id, replica, point, self._end_broker)
        self.promised = 0
        """The offset below which the only replica was synced when the broker ended."""
        self._end = end

    def _end_broker(self) -> None:
        single = next(each for each in self._replica.broker.replicas._partitions.values() if each.topic == SINGLE)
        self.promised = single.log.recovery_point
        if self._end is Ending.POWER_CUT:
            self._cluster.power_cut(self._broker_id)
        else:
            self._cluster.crash(self._broker_id)


class Writers:
    """Two tasks that write to both partitions until `stop` is called. `stop` may be called more than once."""

    def __init__(self, cluster: SimulatedCluster, client: SimulatedClient, group: asyncio.TaskGroup) -> None:
        self._cluster = cluster
        self._client = client
        self._is_over = False
        self._tasks = [group.create_task(self._write(topic)) for topic in ACKS]

    async def _write(self, topic: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            try:
                await self._client.produce_once(topic, 0, b"%d" % number + bytes(VALUE_BYTES), acks=ACKS[topic])
            except NotAcknowledged:
                await self._cluster.world.sleep(0.05)
            await self._cluster.world.sleep(0.03)

    async def stop(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)


async def _case(world: SimulatedWorld, topic: str, point: str, end: Ending) -> None:
    cluster = SimulatedCluster(world, brokers=3, disks=2, overrides=OVERRIDES)
    await cluster.start()
    checkers = Checkers(cluster, History())
    checkers.install()
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)
        await client.create_topic(REPLICATED, partitions=1, min_insync_replicas="2", segment_bytes=SEGMENT_BYTES)
        await client.create_topic(SINGLE, partitions=1, replication_factor=1, segment_bytes=SEGMENT_BYTES)
        broker_id = cluster.partition(SINGLE, 0).leader
        replicas = {name: Replica(cluster, broker_id, name) for name in ACKS}
        for number in range(RECORDS_BEFORE):
            for name, acks in ACKS.items():
                await client.produce(name, 0, b"before %d" % number + bytes(VALUE_BYTES), acks=acks)
        writers = Writers(cluster, client, group)
        crash = Crash(cluster, broker_id, replicas[topic], point, end)
        await move(client, broker_id, replicas.values())
        await world.until(lambda: crash.is_over and cluster.env(broker_id).is_dead)
        if end is Ending.POWER_CUT:
            # Records at or above the recovery point were only in the page cache, so the power cut may have lost them.
            written = client.acknowledged[SINGLE, 0]
            client.acknowledged[SINGLE, 0] = {at: value for at, value in written.items() if at < crash.promised}
        missing = {Ending.SOURCE_GONE: replicas[topic].source, Ending.TARGET_GONE: replicas[topic].target}.get(end)
        if missing is None:
            # Stop the writers. The moves must finish even without new records.
            await writers.stop()
        else:
            await _live_without(cluster, broker_id, missing, client)
            assert all(current_logs(cluster, broker_id, each) <= 1 for each in replicas.values())
        await start(cluster, broker_id)
        for name in ACKS:
            await cluster.until_in_sync(name)
        await writers.stop()
        await checkers.at_quiescence()
        for name, acks in ACKS.items():
            await client.produce(name, 0, b"after", acks=acks)
        checkers.stop()
        await client.assert_nothing_lost()
        client.close()
    assert not world.events_named("node_not_started")
    for replica in replicas.values():
        assert current_logs(cluster, broker_id, replica) == 1
        disks = (replica.source, replica.target)
        await world.until(lambda: not any(replica.folders(disk, "-delete") for disk in disks))  # noqa: B023
        assert not any(replica.folders(disk, mark) for disk in disks for mark in ("-future", "-stray"))
        await world.until(lambda: not any(name.endswith(MOVE_ORIGIN_FILE) for disk in disks for name in disk.files()))  # noqa: B023


async def move(client: SimulatedClient, broker_id: BrokerId, replicas: Collection[Replica]) -> None:
    dirs = [
        AlterReplicaLogDir(path=each.target.path, topics=[AlterReplicaLogDirTopic(name=each.topic, partitions=[0])])
        for each in replicas
    ]
    try:
        response = await client.ask(broker_id, AlterReplicaLogDirsRequest(dirs=dirs))
    except ChannelError:
        # The broker crashed before it could answer. The crash point was reached, so the moves had begun.
        return
    codes = [part.error_code for result in response.results for part in result.partitions]
    assert codes == [ErrorCode.NONE] * len(dirs), response


async def start(cluster: SimulatedCluster, broker_id: BrokerId) -> None:
    cluster.start_node(broker_id)
    await cluster.until_registered_again(broker_id)
    await cluster.until_running()


async def _live_without(
    cluster: SimulatedCluster, broker_id: BrokerId, missing: SimulatedDisk, client: SimulatedClient
) -> None:
    """Runs the broker without one of its disks while clients write. Then kills it again."""
    missing.fail_with(errno.EIO)
    await start(cluster, broker_id)
    written = len(client.acknowledged[REPLICATED, 0])
    await cluster.world.until(lambda: len(client.acknowledged[REPLICATED, 0]) >= written + RECORDS_MEANWHILE)
    assert not cluster.env(broker_id).is_dead
    cluster.crash(broker_id)
    missing.heal()


def current_logs(cluster: SimulatedCluster, broker_id: BrokerId, replica: Replica) -> int:
    return len([folder for disk in (replica.source, replica.target) for folder in replica.folders(disk)])


CASES = [
    pytest.param(point, end, topic, id=f"{point}-{end.name.lower()}-{topic}")
    for number, point in enumerate(POINTS)
    for turn, end in enumerate(Ending, start=number)
    for topic in [(REPLICATED, SINGLE)[turn % 2]]
]


@pytest.mark.parametrize(("point", "end", "topic"), CASES)
def test_one_replica_is_current_after_a_crash(point: str, end: Ending, topic: str) -> None:
    """The broker starts and serves the replica from one of the two directories, with every acknowledged record. The move
    finishes, and no -future, -delete or -stray folder remains, nor a note of the move's origin."""
    SimulatedWorld(seed=1).run(lambda world: _case(world, topic, point, end))
