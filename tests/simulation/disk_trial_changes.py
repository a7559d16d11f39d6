"""What operators do in the trial of a broken disk: they move replicas, change topics, and delete records.

Shell of the tests. A seed draws some of these kinds of work (`Work`). Each is done over and over by a client of its own, so
the trial can judge it like the work of its other clients: by how long none of it succeeds.

1. A replica on the broker with the broken disk moves between two other disks, to and fro. It may have to wait for other
   moves until the disk is suspected, because they keep their turns until then.
2. Other replicas begin to move from the broken disk or to it, some of them before it breaks, and some of these moves are
   cancelled. The requests need no disk, so they are answered at once.
3. Topics are created and deleted, and get further partitions, which must take records. The broker may place a replica on the
   broken disk as long as it does not suspect it. Then the partition need not take records. But once the disk is suspected,
   its leader has to answer the producer, because all partitions share its connections.
4. A setting of the topic changes, and every broker must use it.
5. Records of a partition without a replica on the broken disk are deleted.

A controller whose own disk is broken changes nothing, so then only the deletions of records are judged.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum

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
from common.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from common.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from common.records.metadata_records import ConfigResourceType
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.faults import METADATA, Fault, Lab
from tests.simulation.history import History, Outcome, TopicChange
from tests.simulation.trims import delete_records
from tests.simulation.workload import ANY_DIRECTORY, WorkloadClient


class Work(Enum):
    """A kind of work of an operator. The value says what a client of the trial does."""

    MOVES = "move a replica"
    MOVES_OF_THE_DISK = "begin a move"
    TOPICS = "create a topic"
    PARTITIONS = "add partitions"
    SETTINGS = "change a setting"
    DELETIONS = "delete records"


WORK_SHARE = 0.35
# The work that needs the controller.
NEED_CONTROLLER = frozenset({Work.MOVES.value, Work.TOPICS.value, Work.PARTITIONS.value, Work.SETTINGS.value})
# The work that needs no partition of the trial's topics.
NEED_NO_PARTITION = frozenset({Work.TOPICS.value, Work.PARTITIONS.value, Work.SETTINGS.value})
PAUSE_SECONDS = 0.25
LOOK_SECONDS = 0.02
REQUEST_SECONDS = 1.5
REQUEST_MS = round(1_000 * REQUEST_SECONDS)
PASSING_TOPIC = "passing-last"
PASSING_PARTITIONS = 3
GROWING_TOPIC = "growing-last"
PARTITIONS_MAX = 10
# Such segments roll during the trial.
SEGMENT_BYTES = (1_000, 2_000)
# How many replicas begin to move from the broken disk or to it, and when, counted from the fault. Undisturbed, a move takes
# about 0.12 s.
MOVES_MAX = 4
MOVE_FROM_SECONDS, MOVE_UNTIL_SECONDS = -0.12, 0.2
# This share of these moves is cancelled, after a pause with this mean.
CANCEL_SHARE = 0.3
CANCEL_PAUSE = 0.3
ANSWER_BOUND_NS = 250 * NS_PER_MS

Stream = tuple[str, str, int]
"""What a client does with which topic and partition."""


def draw_work(seed: int) -> tuple[Work, ...]:
    """Draws the kinds of work of a trial."""
    rng = random.Random(f"{seed}/disk trial/work")
    return tuple(work for work in Work if rng.random() < WORK_SHARE)


class TrialChanges:
    """The operators of one trial. The first of `topics` is the topic of the trial, to all of whose partitions `producer`
    writes over one connection. `note` is called with the stream of each success. The cluster must be in sync."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        lab: Lab,
        history: History,
        *,
        topics: Sequence[str],
        fault: Fault,
        producer: WorkloadClient,
        group: asyncio.TaskGroup,
        note: Callable[[Iterable[Stream]], None],
    ) -> None:
        self.is_over = False
        self.clients: list[WorkloadClient] = []
        self.violations: list[str] = []
        """What was wrong apart from silences."""
        self.starts: dict[int, int] = {}
        """The offsets before which records of the topic's partitions are deleted or about to be."""
        self.written: dict[int, int] = {}
        """The offset of the last acknowledged record of each partition of the topic."""
        self._cluster = cluster
        self._world = cluster.world
        self._history = history
        self._topics = topics
        self._topic = topics[0]
        self._fault = fault
        self._producer = producer
        self._group = group
        self._note = note
        self._rng = random.Random(f"{cluster.world.seed}/disk trial/changes")
        self._path = lab.path(fault)
        self._broken_broker = BrokerId(fault.node)
        # The broker whose replicas move.
        self._mover = BrokerId(cluster.broker_ids[0] if fault.node == CONTROLLER_ID else fault.node)
        # None if the broken disk has no replicas.
        self._directory_id = None if fault.disk == METADATA else self._directories(fault.node)[self._path]
        # The replica that moves between other disks.
        self._moving: tuple[str, int] | None = None
        self._segment_bytes = SEGMENT_BYTES[0]

    # --- where replicas are --------------------------------------------------------------------------------------

    def healthy(self) -> set[tuple[str, int]]:
        """Returns the partitions that do not need the broken disk."""
        return {
            (topic, index)
            for topic in self._topics
            for index in self._cluster.partitions(topic)
            if not self._needs_disk(topic, index)
        }

    def _needs_disk(self, topic: str, index: int) -> bool:
        """Whether a replica of the partition is on the broken disk, according to the metadata or to the broker, or is about
        to be there."""
        part = self._cluster.partitions(topic).get(index)
        broker = self._broker(self._broken_broker)
        if self._directory_id is None or part is None or self._broken_broker not in part.replicas:
            return False
        if part.directory(self._broken_broker) == self._directory_id or broker is None:
            return True
        replica = broker.replicas.find_named(topic, index)
        if isinstance(replica, Partition):
            moves_to = replica.future if replica.is_swapping else None
            return self._directory_id in {replica.directory_id, None if moves_to is None else moves_to.directory_id}
        key = TopicIdPartition(self._cluster.topic_id(topic), index)
        return broker.replicas._creation.creating_in(key) == self._directory_id

    def _broker(self, broker_id: int) -> BrokerDaemon | None:
        node = self._cluster.nodes.get(broker_id)
        return None if node is None or self._cluster.env(broker_id).is_dead else node.broker

    def _replica(self, broker_id: int, topic: str, index: int) -> Partition | None:
        broker = self._broker(broker_id)
        found = None if broker is None else broker.replicas.find_named(topic, index)
        return found if isinstance(found, Partition) else None

    def _directories(self, broker_id: int) -> dict[str, DirectoryId]:
        """Returns the online data directories of a broker by their paths."""
        broker = self._broker(broker_id)
        assert broker is not None
        online = {path: directory_id for directory_id, path in broker._directories.known.online.items()}
        disks = [self._cluster.disk(broker_id, number) for number in self._cluster.disk_numbers(broker_id)]
        return {disk.path: online[disk.path] for disk in disks if disk.path in online}

    def _gets_no_replicas(self) -> bool:
        """Whether the broker places no more replicas on the broken disk."""
        broker = self._broker(self._broken_broker)
        if broker is None or self._directory_id is None:
            return False
        is_online = self._directory_id in broker._directories.known.online
        return not is_online or self._directory_id in broker.replicas.suspected

    # --- beginning -----------------------------------------------------------------------------------------------

    def start(self, works: Sequence[Work]) -> list[Stream]:
        """Starts the work that is done over and over. Returns its streams."""
        streams = []
        for work, do, where in (
            (Work.MOVES, self._move, self._draw_replica_to_move()),
            (Work.TOPICS, self._create_and_delete, (PASSING_TOPIC, 0)),
            (Work.PARTITIONS, self._add_partition, (GROWING_TOPIC, 0)),
            (Work.SETTINGS, self._change_setting, (self._topic, 0)),
            (Work.DELETIONS, self._delete_records, self._draw_partition_to_trim()),
        ):
            if work in works and where is not None:
                stream = (work.value, *where)
                streams.append(stream)
                self._group.create_task(self._go_on(self._new_client(work), stream, do))
        return streams

    def _new_client(self, work: Work) -> WorkloadClient:
        name = f"client-trial-{work.name.lower().replace('_', '-')}"
        client = WorkloadClient(self._cluster, self._history, name, self._group)
        client.admin_seconds = REQUEST_SECONDS
        self.clients.append(client)
        return client

    def _placed(self, *, needs_disk: bool) -> list[tuple[str, int]]:
        """Returns the partitions of which the moving broker has a replica, and that need the broken disk, or do not."""
        return [
            (topic, index)
            for topic in self._topics
            for index in sorted(self._cluster.partitions(topic))
            if self._replica(self._mover, topic, index) is not None and self._needs_disk(topic, index) == needs_disk
        ]

    def _draw_replica_to_move(self) -> tuple[str, int] | None:
        """Returns a replica beside the broken disk, or None if the broker has only one other disk."""
        if len(self._directories(self._mover).keys() - {self._path}) < 2:
            return None
        self._moving = self._rng.choice(self._placed(needs_disk=False))
        return self._moving

    def _draw_partition_to_trim(self) -> tuple[str, int] | None:
        healthy = sorted((topic, index) for topic, index in self.healthy() if topic == self._topic)
        return self._rng.choice(healthy) if healthy else None

    async def _go_on(
        self, client: WorkloadClient, stream: Stream, do: Callable[[WorkloadClient, str, int], Awaitable[bool]]
    ) -> None:
        _, topic, index = stream
        while not self.is_over:
            with suppress(ChannelError):
                if await do(client, topic, index) and not self.is_over:
                    self._note([stream])
            await self._world.sleep(PAUSE_SECONDS)

    async def _until(self, is_so: Callable[[], bool]) -> bool:
        """Waits until it is so, or the trial is over. Returns whether it is so."""
        while not self.is_over and not is_so():
            await self._world.sleep(LOOK_SECONDS)
        return not self.is_over

    async def _until_changed(self, change: Callable[[], Awaitable[TopicChange]], changed_before: ErrorCode) -> None:
        """Sends the request until it is done. If one was not answered, the next may find it done."""
        while not self.is_over:
            operation = await change()
            if operation.outcome is Outcome.OK or operation.error == changed_before.name:
                return
            await self._world.sleep(LOOK_SECONDS)

    # --- moves ---------------------------------------------------------------------------------------------------

    async def _move(self, client: WorkloadClient, topic: str, index: int) -> bool:
        """Moves the replica to the next directory that is not on the broken disk."""
        replica = self._replica(self._mover, topic, index)
        directories = self._directories(self._mover)
        directories.pop(self._path, None)
        paths = sorted(path for path, each in directories.items() if replica is None or each != replica.directory_id)
        target = directories[paths[0]]
        request = _request_to_move(topic, index, paths[0])
        response = await client.send(self._mover, request, seconds=REQUEST_SECONDS)
        if response.results[0].partitions[0].error_code != ErrorCode.NONE:
            return False

        def has_moved() -> bool:
            moved = self._replica(self._mover, topic, index)
            return moved is not None and moved.directory_id == target

        return await self._until(has_moved)

    def move_from_and_to_the_disk(self, breaks_ns: int) -> None:
        """Lets some replicas begin to move from the disk or to it about the time when it breaks."""
        if self._directory_id is None:
            return
        client = self._new_client(Work.MOVES_OF_THE_DISK)
        others = [path for path in self._directories(self._mover) if path != self._path]
        moves = [(where, self._rng.choice(others)) for where in self._placed(needs_disk=True)]
        moves += [(where, self._path) for where in self._placed(needs_disk=False) if where != self._moving]
        for (topic, index), path in self._rng.sample(moves, min(self._rng.randint(1, MOVES_MAX), len(moves))):
            at_ns = breaks_ns + round(self._rng.uniform(MOVE_FROM_SECONDS, MOVE_UNTIL_SECONDS) * NS_PER_S)
            self._group.create_task(self._begin_move(client, topic, index, path, at_ns))

    async def _begin_move(self, client: WorkloadClient, topic: str, index: int, path: str, at_ns: int) -> None:
        await self._world.loop.sleep_until(at_ns)
        await self._ask_to_move(client, topic, index, path)
        if self._rng.random() < CANCEL_SHARE:
            await client.pause(CANCEL_PAUSE)
            await self._ask_to_move(client, topic, index, ANY_DIRECTORY)

    async def _ask_to_move(self, client: WorkloadClient, topic: str, index: int, path: str) -> None:
        """Sends the request, which must be answered at once."""
        began_ns = self._world.now_ns()
        with suppress(ChannelError):
            await client.send(self._mover, _request_to_move(topic, index, path), seconds=REQUEST_SECONDS)
        took_ns = self._world.now_ns() - began_ns
        if took_ns > ANSWER_BOUND_NS and self._broker(self._mover) is not None:
            what = f"the move of {topic}-{index} to {path}"
            self.violations.append(f"{what} was not answered for {took_ns / NS_PER_S:.2f} s after: {self._fault}")

    # --- topics --------------------------------------------------------------------------------------------------

    async def _create_and_delete(self, client: WorkloadClient, topic: str, _: int) -> bool:
        await self._create(client, topic, PASSING_PARTITIONS)
        await self._delete(client, topic)
        return not self.is_over

    async def _create(self, client: WorkloadClient, topic: str, partitions: int) -> None:
        got_no_replicas = self._gets_no_replicas()
        await self._until_changed(
            lambda: client.create_topic(topic, partitions=partitions),
            ErrorCode.TOPIC_ALREADY_EXISTS,
        )
        await self._until_written(topic, range(partitions), got_no_replicas)

    async def _delete(self, client: WorkloadClient, topic: str) -> None:
        await self._until_changed(lambda: client.delete_topic(topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._until(lambda: all(self._replica(id_, topic, 0) is None for id_ in self._cluster.broker_ids))

    async def _add_partition(self, client: WorkloadClient, topic: str, _: int) -> bool:
        count = len(self._cluster.partitions(topic))
        if count == 0:
            await self._create(client, topic, 1)
        elif count == PARTITIONS_MAX:
            await self._delete(client, topic)
        else:
            got_no_replicas = self._gets_no_replicas()
            wanted = CreatePartitionsTopic(name=topic, count=count + 1, assignments=None)
            request = CreatePartitionsRequest(topics=[wanted], timeout_ms=REQUEST_MS)
            response = await client.send(client._any_broker(), request, seconds=REQUEST_SECONDS)
            if response.results[0].error_code != ErrorCode.NONE:
                return False
            await self._until_written(topic, [count], got_no_replicas)
        return not self.is_over

    async def _until_written(self, topic: str, indexes: Sequence[int], got_no_replicas: bool) -> None:
        """Writes a record to each of these new partitions. `got_no_replicas` says whether the broker placed no more replicas
        on the broken disk when they were created."""
        writers = [self._group.create_task(self._write(topic, index)) for index in indexes]
        if await self._until(lambda: all(each.done() for each in writers)) and got_no_replicas:
            self.violations += [
                f"a replica of {topic}-{index} was placed on a disk that is suspected or offline: {self._fault}"
                for index in indexes
                if self._needs_disk(topic, index)
            ]

    async def _write(self, topic: str, index: int) -> None:
        """Sends a record until it is acknowledged. If the partition needs the broken disk, which is given up by now, any
        answer from the leader will do."""
        while not self.is_over:
            is_given_up = self._gets_no_replicas() and self._needs_disk(topic, index)
            produce = await self._producer.produce(topic, index)
            # The producer may not know this topic yet, but an earlier one of the same name.
            is_about_it = produce is not None and self._cluster.state.topic_ids.get(topic) == produce.topic_id
            if produce is not None and (produce.outcome is Outcome.OK or (is_given_up and is_about_it)):
                return
            await self._world.sleep(LOOK_SECONDS)

    # --- settings and deletions ----------------------------------------------------------------------------------

    async def _change_setting(self, client: WorkloadClient, topic: str, _: int) -> bool:
        self._segment_bytes = next(size for size in SEGMENT_BYTES if size != self._segment_bytes)
        change = AlterableConfig(name="segment.bytes", config_operation=ConfigOperation.SET, value=str(self._segment_bytes))
        resource = AlterConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = await client.send(client._any_broker(), request, seconds=REQUEST_SECONDS)
        if response.responses[0].error_code != ErrorCode.NONE:
            return False
        return await self._until(self._is_setting_used)

    def _is_setting_used(self) -> bool:
        replicas = (
            self._replica(broker_id, self._topic, index)
            for broker_id in self._cluster.broker_ids
            for index in self._cluster.partitions(self._topic)
        )
        return all(each is None or each.config.segment_bytes == self._segment_bytes for each in replicas)

    async def _delete_records(self, client: WorkloadClient, topic: str, index: int) -> bool:
        """Deletes all records but those that were acknowledged last."""
        offset = self.written.get(index, 0)
        if offset <= self.starts.get(index, 0):
            return False
        self.starts[index] = offset
        deletion = await delete_records(client, topic, index, offset)
        return deletion is not None and deletion.outcome is Outcome.OK


def _request_to_move(topic: str, index: int, path: str) -> AlterReplicaLogDirsRequest:
    replica = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[replica])])
