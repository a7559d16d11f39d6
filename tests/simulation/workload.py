"""The clients of a simulated cluster. They produce, consume, change topics, and move replicas between disks and brokers.

Shell of the tests. The clients speak Kafka's protocol over the simulated network and know only what the responses contain.
As in real clients, leaders come from Metadata responses, and an older leader epoch never replaces a newer one. Each client
is a node of its own (`client-producer-1`, ...), so that its network can be cut. A value is sent at most once: a record that
was not acknowledged may be in the log, so it is not sent again.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from common.ids import TopicId, TopicIdPartition
from common.net.node_channel import ChannelError, NodeChannel
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from common.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from common.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.records.batch import CorruptBatch, Record, encode_batch, iterate_records, split_batches, validate_integrity
from common.time_units import NS_PER_S
from tests.simulation.cluster import BROKER_PORT, SimulatedCluster
from tests.simulation.history import (
    CERTAIN_REFUSALS,
    History,
    LatestOffset,
    Operation,
    Outcome,
    PartitionChange,
    Poll,
    Produce,
    TopicChange,
)

REQUEST_SECONDS = 3
ADMIN_SECONDS = 10
LATEST = -1
ALL = -1
# This share of the requests cancels a move instead of starting one.
CANCEL_SHARE = 0.2
ANY_DIRECTORY = "any"
# Besides starting reassignments, the client elects preferred leaders (ELECTION_SHARE), and reverts reassignments that it has
# just started (REVERT_SHARE).
ELECTION_SHARE = 0.2
REVERT_SHARE = 0.2
# Sequences of changes to one topic: True is a creation, False a deletion. When a change begins, a slow disk may still be
# busy with the previous change.
TOPIC_CHANGES = ((True,), (False,), (False, True), (True, False, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """How much the clients do. Pauses are means in seconds; each pause is drawn."""

    producers: int = 2
    consumers: int = 1
    # The number of topics that stay, and of topics that are deleted and created again.
    topics: int = 2
    passing_topics: int = 1
    partitions: int = 3
    replication_factor: int = 3
    min_insync_replicas: int = 2
    produce_pause: float = 0.05
    poll_pause: float = 0.05
    topic_pause: float = 5.0
    # The pause between two requests to move a replica to another directory. If None, no such requests are sent.
    move_pause: float | None = None
    # The pause between two reassignments or elections of preferred leaders. If None, there are none.
    reassignment_pause: float | None = None
    # The share of batches that are sent with acks=1 instead of acks=all.
    acks_one_share: float = 0.25
    records_max: int = 4
    value_bytes_max: int = 600


@dataclass(slots=True)
class KnownPartition:
    """What a client knows about one partition."""

    leader: int
    leader_epoch: int


@dataclass(slots=True)
class KnownTopic:
    """What a client knows about one topic."""

    topic_id: TopicId
    partitions: dict[int, KnownPartition]


class WorkloadClient:
    """One client. It records every operation in the history. It records errors of the cluster there too, and never raises
    them."""

    def __init__(self, cluster: SimulatedCluster, history: History, name: str, task_group: asyncio.TaskGroup) -> None:
        self.name = name
        self.topics: dict[str, KnownTopic] = {}
        self._cluster = cluster
        self._history = history
        self._env = cluster.world.node(name)
        self._rng = random.Random(f"{cluster.world.seed}/{name}")
        self._task_group = task_group
        self._channels: dict[int, NodeChannel] = {}
        self._written = 0

    def close(self) -> None:
        """Closes every connection."""
        for channel in self._channels.values():
            channel.close()

    async def pause(self, mean_seconds: float) -> None:
        """Waits for a drawn time with this mean."""
        await self._cluster.world.sleep(self._rng.uniform(0, 2 * mean_seconds))

    # --- metadata ------------------------------------------------------------------------------------------------

    async def refresh(self, *names: str) -> None:
        """Asks any broker about these topics. Without a response nothing changes."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        try:
            response = await self._send(self._rng.choice(self._cluster.broker_ids), request)
        except ChannelError:
            return
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                self._learn(topic)
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topics.pop(topic.name, None)

    def _learn(self, topic: Any) -> None:
        known = self.topics.get(topic.name)
        if known is None or known.topic_id != topic.topic_id:
            known = self.topics[topic.name] = KnownTopic(TopicId(topic.topic_id), {})
        for part in topic.partitions:
            newest = known.partitions.get(part.partition_index)
            if newest is None or part.leader_epoch >= newest.leader_epoch:
                known.partitions[part.partition_index] = KnownPartition(part.leader_id, part.leader_epoch)

    # --- produce -------------------------------------------------------------------------------------------------

    async def produce(
        self, topic: str, index: int, *, acks: int = ALL, records: int = 1, value_bytes: int = 0
    ) -> Produce | None:
        """Sends one batch, once. Returns None if no leader is known."""
        found = self._leader(topic, index)
        if found is None:
            await self.refresh(topic)
            return None
        known, part = found
        values = tuple(self._new_value(value_bytes) for _ in range(records))
        operation = Produce(
            client=self.name,
            begin_ns=self._env.now_ns(),
            topic=topic,
            topic_id=known.topic_id,
            index=index,
            acks=acks,
            values=values,
        )
        self._history.produces.append(operation)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=2_000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=self._batch(values))])
            ],
        )
        response = await self._carried_out(operation, part.leader, request)
        if response is None:
            await self.refresh(topic)
            return operation
        answer = response.responses[0].partition_responses[0]
        self._note_result(operation, answer.error_code)
        if operation.outcome is Outcome.OK:
            operation.offset = answer.base_offset
        else:
            await self.refresh(topic)
        return operation

    def _new_value(self, size: int) -> bytes:
        self._written += 1
        value = f"{self.name}/{self._written}".encode()
        return value + b"." * max(size - len(value), 0)

    def _batch(self, values: tuple[bytes, ...]) -> bytes:
        now_ms = self._env.wall_ms()
        return bytes(encode_batch([Record(key=None, value=value, timestamp_ms=now_ms) for value in values]))

    # --- consume -------------------------------------------------------------------------------------------------

    async def poll(self, topic: str, index: int, offset: int, *, topic_id: TopicId) -> Poll | None:
        """Sends one fetch at `offset` for the topic with this id. Returns None if no leader of it is known."""
        found = self._leader(topic, index)
        if found is None or found[0].topic_id != topic_id:
            await self.refresh(topic)
            return None
        part = found[1]
        operation = Poll(
            client=self.name,
            begin_ns=self._env.now_ns(),
            topic=topic,
            topic_id=topic_id,
            index=index,
            offset=offset,
            leader_epoch=part.leader_epoch,
        )
        self._history.polls.append(operation)
        wanted = FetchPartition(
            partition=index,
            fetch_offset=offset,
            current_leader_epoch=part.leader_epoch,
            partition_max_bytes=self._rng.choice((1, 1_000, 1 << 20)),
        )
        request = FetchRequest(max_wait_ms=200, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])])
        response = await self._carried_out(operation, part.leader, request)
        if response is None or response.error_code != ErrorCode.NONE:
            await self.refresh(topic)
            return operation
        data = response.responses[0].partitions[0]
        self._note_result(operation, data.error_code)
        if operation.outcome is Outcome.OK:
            operation.high_watermark = data.high_watermark
            operation.log_start_offset = data.log_start_offset
            try:
                operation.records = _records_from(data.records or b"", offset)
            except CorruptBatch as error:
                # A real client returns none of these records to its caller, and fetches again.
                operation.outcome, operation.error = Outcome.UNKNOWN, str(error)
        else:
            await self.refresh(topic)
        return operation

    async def latest_offset(self, topic: str, index: int) -> LatestOffset | None:
        """Asks for the end offset of a partition. Returns None if no leader is known."""
        found = self._leader(topic, index)
        if found is None:
            await self.refresh(topic)
            return None
        known, part = found
        operation = LatestOffset(
            client=self.name,
            begin_ns=self._env.now_ns(),
            topic=topic,
            topic_id=known.topic_id,
            index=index,
            leader_epoch=part.leader_epoch,
        )
        self._history.latest_offsets.append(operation)
        wanted = ListOffsetsPartition(partition_index=index, timestamp=LATEST, current_leader_epoch=part.leader_epoch)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        response = await self._carried_out(operation, part.leader, request)
        if response is None:
            await self.refresh(topic)
            return operation
        answer = response.topics[0].partitions[0]
        self._note_result(operation, answer.error_code)
        if operation.outcome is Outcome.OK:
            operation.offset = answer.offset
        else:
            await self.refresh(topic)
        return operation

    # --- topics --------------------------------------------------------------------------------------------------

    async def create_topic(self, name: str, *, partitions: int, replication_factor: int = 3, **configs: str) -> TopicChange:
        """Sends one CreateTopics to any broker. Write '_' for '.' in configuration keys."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        operation = TopicChange(
            client=self.name,
            begin_ns=self._env.now_ns(),
            topic=name,
            is_creation=True,
            min_insync_replicas=int(configs.get("min_insync_replicas", "1")),
        )
        self._history.topic_changes.append(operation)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=ADMIN_SECONDS * 1000)
        response = await self._carried_out(operation, self._any_broker(), request, seconds=ADMIN_SECONDS)
        if response is not None:
            result = response.topics[0]
            self._note_result(operation, result.error_code)
            if operation.outcome is Outcome.OK:
                operation.topic_id = TopicId(result.topic_id)
        return operation

    async def delete_topic(self, name: str) -> TopicChange:
        """Sends one DeleteTopics to any broker."""
        operation = TopicChange(client=self.name, begin_ns=self._env.now_ns(), topic=name, is_creation=False)
        self._history.topic_changes.append(operation)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=ADMIN_SECONDS * 1000)
        response = await self._carried_out(operation, self._any_broker(), request, seconds=ADMIN_SECONDS)
        if response is not None:
            self._note_result(operation, response.responses[0].error_code)
        return operation

    # --- moves ---------------------------------------------------------------------------------------------------

    async def move(self, topic: str, index: int, broker_id: int, destination: str) -> None:
        """Sends one AlterReplicaLogDirs. Every response is acceptable, because the topic or the directory may not exist any
        more."""
        replica = AlterReplicaLogDirTopic(name=topic, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=destination, topics=[replica])])
        with contextlib.suppress(ChannelError):
            await self._send(broker_id, request)

    # --- partitions ----------------------------------------------------------------------------------------------

    async def reassign(self, topic: str, index: int, target: Sequence[int] | None) -> PartitionChange:
        """Sends one AlterPartitionReassignments to any broker. Without a target, it cancels the reassignment."""
        operation = PartitionChange(
            client=self.name,
            begin_ns=self._env.now_ns(),
            topic=topic,
            index=index,
            target=None if target is None else tuple(target),
        )
        self._history.partition_changes.append(operation)
        wanted = ReassignablePartition(partition_index=index, replicas=None if target is None else list(target))
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[wanted])], timeout_ms=ADMIN_SECONDS * 1000
        )
        response = await self._carried_out(operation, self._any_broker(), request, seconds=ADMIN_SECONDS)
        if response is not None and response.responses:
            self._note_result(operation, response.responses[0].partitions[0].error_code)
        return operation

    async def elect_preferred(self, topic: str, index: int) -> PartitionChange:
        """Sends one ElectLeaders, which requests a preferred election, to any broker."""
        operation = PartitionChange(
            client=self.name, begin_ns=self._env.now_ns(), topic=topic, index=index, is_election=True
        )
        self._history.partition_changes.append(operation)
        request = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=topic, partitions=[index])], timeout_ms=ADMIN_SECONDS * 1000
        )
        response = await self._carried_out(operation, self._any_broker(), request, seconds=ADMIN_SECONDS)
        if response is not None and response.replica_election_results:
            self._note_result(operation, response.replica_election_results[0].partition_result[0].error_code)
        return operation

    # --- requests ------------------------------------------------------------------------------------------------

    def _any_broker(self) -> int:
        return self._rng.choice(self._cluster.broker_ids)

    def _leader(self, topic: str, index: int) -> tuple[KnownTopic, KnownPartition] | None:
        known = self.topics.get(topic)
        part = None if known is None else known.partitions.get(index)
        return None if known is None or part is None or part.leader < 0 else (known, part)

    async def _carried_out(
        self, operation: Operation, broker_id: int, request: Any, *, seconds: float = REQUEST_SECONDS
    ) -> Any | None:
        """Returns the response, or None if there was none. In that case the operation's outcome stays unknown."""
        try:
            response = await self._send(broker_id, request, seconds=seconds)
        except ChannelError as error:
            operation.end_ns = self._env.now_ns()
            operation.error = str(error)
            return None
        operation.end_ns = self._env.now_ns()
        return response

    def _note_result(self, operation: Operation, error_code: int) -> None:
        if error_code == ErrorCode.NONE:
            operation.outcome = Outcome.OK
            return
        operation.error = ErrorCode(error_code).name
        # A read that ended with an error has read nothing. A write may be in the log after most errors.
        if not isinstance(operation, Produce | TopicChange) or error_code in CERTAIN_REFUSALS:
            operation.outcome = Outcome.FAILED

    async def _send(self, broker_id: int, request: Any, *, seconds: float = REQUEST_SECONDS) -> Any:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = NodeChannel(
                self._env,
                host=f"broker-{broker_id}",
                port=BROKER_PORT,
                client_id=self.name,
                task_group=self._task_group,
            )
        return await channel.send(request, deadline_ns=self._env.now_ns() + round(seconds * NS_PER_S))


def _records_from(records: Any, offset: int) -> tuple[tuple[int, bytes], ...]:
    """Returns the records that a consumer would return: those at or after `offset`, although the first batch may begin
    before it. Raises CorruptBatch."""
    found: list[tuple[int, bytes]] = []
    for header, view in split_batches(memoryview(records)):
        validate_integrity(header, view)
        found += [
            (record.offset, bytes(record.value))
            for record in iterate_records(view)
            if record.offset >= offset and record.value is not None
        ]
    return tuple(found)


class ReplicaGuard(Protocol):
    """Knows which replicas may have lost their data (`UntouchedReplicas`)."""

    def may_move(self, broker_id: int) -> bool: ...

    def begin_reassignment(self, topic: str, index: int, target: Sequence[int] | None) -> bool: ...

    def end_reassignment(self, topic: str, index: int, *, is_certain: bool) -> None: ...


class Workload:
    """All clients of one run. They work between `start` and `stop`, and record every operation in the history."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        settings: WorkloadSettings,
        task_group: asyncio.TaskGroup,
        guard: ReplicaGuard | None = None,
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._settings = settings
        self._guard = guard
        self._task_group = task_group
        self._clients: list[WorkloadClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self.lasting_topics = [f"lasting-{number}" for number in range(1, settings.topics + 1)]
        self.passing_topics = [f"passing-{number}" for number in range(1, settings.passing_topics + 1)]

    @property
    def topics(self) -> list[str]:
        """The names of all topics."""
        return self.lasting_topics + self.passing_topics

    async def start(self) -> None:
        """Creates the topics and starts all clients. The cluster must be healthy."""
        admin = self._new_client("client-topics")
        for name in self.topics:
            created = await self._create(admin, name)
            assert created.outcome is Outcome.OK, f"{name}: {created.error}"
        settings = self._settings
        for number in range(1, settings.producers + 1):
            self._spawn(self._produce_on, self._new_client(f"client-producer-{number}"))
        for number in range(1, settings.consumers + 1):
            self._spawn(self._consume_on, self._new_client(f"client-consumer-{number}"))
        if self.passing_topics:
            self._spawn(self._change_topics, admin)
        if settings.move_pause is not None:
            self._spawn(self._move_on, self._new_client("client-mover"))
        if settings.reassignment_pause is not None:
            self._spawn(self._change_partitions, self._new_client("client-partitions"))

    async def stop(self) -> None:
        """Waits for the running operations to end. No new ones begin."""
        self._is_over = True
        for task in self._tasks:
            await task
        for client in self._clients:
            client.close()

    def _new_client(self, name: str) -> WorkloadClient:
        client = WorkloadClient(self._cluster, self._history, name, self._task_group)
        self._clients.append(client)
        return client

    def _spawn(self, work: Callable[[WorkloadClient], Awaitable[None]], client: WorkloadClient) -> None:
        async def run() -> None:
            await work(client)

        self._tasks.append(self._task_group.create_task(run(), name=client.name))

    def _create(self, client: WorkloadClient, name: str) -> Awaitable[TopicChange]:
        settings = self._settings
        return client.create_topic(
            name,
            partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            min_insync_replicas=str(settings.min_insync_replicas),
        )

    async def _produce_on(self, client: WorkloadClient) -> None:
        settings = self._settings
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        while not self._is_over:
            await client.produce(
                rng.choice(self.topics),
                rng.randrange(settings.partitions),
                acks=1 if rng.random() < settings.acks_one_share else ALL,
                records=rng.randint(1, settings.records_max),
                value_bytes=rng.randint(0, settings.value_bytes_max),
            )
            await client.pause(settings.produce_pause)

    async def _consume_on(self, client: WorkloadClient) -> None:
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        positions: dict[TopicIdPartition, int] = {}
        while not self._is_over:
            topic, index = rng.choice(self.topics), rng.randrange(self._settings.partitions)
            known = client.topics.get(topic)
            if known is None:
                await client.refresh(topic)
            elif rng.random() < 0.1:
                await client.latest_offset(topic, index)
            else:
                await self._poll_next(client, topic, index, known.topic_id, positions)
            await client.pause(self._settings.poll_pause)

    async def _poll_next(
        self,
        client: WorkloadClient,
        topic: str,
        index: int,
        topic_id: TopicId,
        positions: dict[TopicIdPartition, int],
    ) -> None:
        poll = await client.poll(topic, index, positions.get(TopicIdPartition(topic_id, index), 0), topic_id=topic_id)
        if poll is not None and poll.records:
            positions[TopicIdPartition(topic_id, index)] = poll.records[-1][0] + 1

    async def _move_on(self, client: WorkloadClient) -> None:
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        assert self._settings.move_pause is not None
        while not self._is_over:
            await client.pause(self._settings.move_pause)
            broker_id = rng.choice(self._cluster.broker_ids)
            destination = self._cluster.disk(broker_id, rng.randint(1, self._cluster.disks)).path
            if rng.random() < CANCEL_SHARE:
                destination = ANY_DIRECTORY
            if self._guard is not None and not self._guard.may_move(broker_id):
                continue
            await client.move(rng.choice(self.topics), rng.randrange(self._settings.partitions), broker_id, destination)

    async def _change_topics(self, client: WorkloadClient) -> None:
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        while not self._is_over:
            await client.pause(self._settings.topic_pause)
            name = rng.choice(self.passing_topics)
            for is_creation in rng.choice(TOPIC_CHANGES):
                await (self._create(client, name) if is_creation else client.delete_topic(name))

    async def _change_partitions(self, client: WorkloadClient) -> None:
        assert self._settings.reassignment_pause is not None
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        while not self._is_over:
            await client.pause(self._settings.reassignment_pause)
            topic, index = rng.choice(self.topics), rng.randrange(self._settings.partitions)
            if rng.random() < ELECTION_SHARE:
                await client.elect_preferred(topic, index)
                continue
            brokers = self._cluster.broker_ids
            target = rng.sample(brokers, rng.randint(self._settings.min_insync_replicas, len(brokers)))
            await self._reassign(client, topic, index, target)
            if rng.random() < REVERT_SHARE:
                await self._reassign(client, topic, index, None)

    async def _reassign(self, client: WorkloadClient, topic: str, index: int, target: Sequence[int] | None) -> None:
        if self._guard is not None and not self._guard.begin_reassignment(topic, index, target):
            return
        change = await client.reassign(topic, index, target)
        if self._guard is not None:
            self._guard.end_reassignment(topic, index, is_certain=change.outcome is Outcome.OK)
