"""The points of a move between two directories of a broker, and what the tests that strike there have in common.

There is a replicated partition (acks=all) and one with a single replica (acks=1). A test moves one or both of them while
`Writers` write, and `AtPoint` calls it when the move reaches a point.
"""

import asyncio
import errno
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

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
from tests.simulation.cluster import NotAcknowledged, SimulatedClient, SimulatedCluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.process import NO_PROCESS

REPLICATED = "replicated"
SINGLE = "single"
ACKS = {REPLICATED: -1, SINGLE: 1}
VALUE_BYTES = 5_000
SEGMENT_BYTES = "120000"
# With these records, the copy takes several chunks.
RECORDS_BEFORE = 30
BYTES_BEFORE = 10_000
RECORDS_MEANWHILE = 20
OVERRIDES = {
    # One chunk of the copy is a tenth of this.
    "replica.alter.log.dirs.io.max.bytes.per.second": "655360",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.segment.delete.delay.ms": "300",
    # A broker that was killed registers again when its session has expired, so a short one makes the tests short.
    "broker.session.timeout.ms": "1500",
}


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


async def create_topics(client: SimulatedClient) -> None:
    await client.create_topic(REPLICATED, partitions=1, min_insync_replicas="2", segment_bytes=SEGMENT_BYTES)
    await client.create_topic(SINGLE, partitions=1, replication_factor=1, segment_bytes=SEGMENT_BYTES)


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
    name = cluster.name(broker_id)
    runs = len(cluster.world.events_named("broker_running", name))
    cluster.start_node(broker_id)
    await cluster.world.until(lambda: len(cluster.world.events_named("broker_running", name)) > runs)


async def live_without(
    cluster: SimulatedCluster, broker_id: BrokerId, missing: SimulatedDisk, client: SimulatedClient
) -> None:
    """Runs the broker without one of its disks while clients write. Then kills it again."""
    missing.fail_with(errno.EIO)
    await start(cluster, broker_id)
    await until_more_is_written(cluster.world, client, REPLICATED)
    assert not cluster.env(broker_id).is_dead
    cluster.crash(broker_id)
    missing.heal()


async def until_more_is_written(world: SimulatedWorld, client: SimulatedClient, topic: str) -> None:
    """Waits until further records of the clients are acknowledged."""
    written = len(client.acknowledged[topic, 0])
    await world.until(lambda: len(client.acknowledged[topic, 0]) >= written + RECORDS_MEANWHILE)


def current_logs(cluster: SimulatedCluster, broker_id: BrokerId, replica: Replica) -> int:
    return len([folder for disk in (replica.source, replica.target) for folder in replica.folders(disk)])
