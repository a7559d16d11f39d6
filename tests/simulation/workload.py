"""The clients of a simulated cluster. They produce, consume, change topics, and move replicas between disks and brokers.

Shell of the tests. The clients speak Kafka's protocol over the simulated network and know only what the responses contain.
As in real clients, leaders come from Metadata responses, and an older leader epoch never replaces a newer one. Each client
is a node of its own (`client-producer-1`, ...), so that its network can be cut. Only an idempotent producer sends a value
again: a record that was not acknowledged may be in the log.
"""

import asyncio
import contextlib
import random
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from common.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    CorruptBatch,
    split_batches,
    validate_integrity,
)
from common.records.record import Record, encode_batch, iterate_records
from common.time_units import NS_PER_S
from tests.simulation.cluster import BROKER_PORT, SimulatedCluster, rack_of
from tests.simulation.consumer_group_member import ConsumerGroupMember
from tests.simulation.cordon_changes import CordonChanges
from tests.simulation.group_member import GroupMember
from tests.simulation.history import (
    AGING,
    CARELESS,
    CERTAIN_REFUSALS,
    COMPACTED,
    TRANSACTIONAL,
    TRIMMED,
    History,
    LatestOffset,
    Operation,
    Outcome,
    PartitionChange,
    Poll,
    Produce,
    TopicChange,
    is_careless,
    is_compacted,
    key_of,
)
from tests.simulation.mixed_group_member import MixedGroupMember
from tests.simulation.transactional_producer import TransactionalProducer, read_committed
from tests.simulation.trims import Trims

REQUEST_SECONDS = 3
ADMIN_SECONDS = 10
LATEST = -1
EARLIEST = -2
ALL = -1
# This share of the requests cancels a move instead of starting one.
CANCEL_SHARE = 0.2
# The clients that write to moving partitions start such a move after this pause. They write for this long, each with this
# pause between two batches. Undisturbed, a move takes about 0.12 s.
WRITERS_TO_MOVING = 4
WRITTEN_MOVE_PAUSE = 3.0
WRITTEN_MOVE_SECONDS = 0.4
WRITTEN_MOVE_BATCH_PAUSE = 0.005
ANY_DIRECTORY = "any"
# After these answers an idempotent producer does not send the batch again.
_FINAL = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
# In this share of its polls a consumer that reads from a follower goes back to the leader.
LEADER_AGAIN_SHARE = 0.05
# Of so many seeds one has a group whose members change their protocol.
MIXED_GROUP_SEEDS = 3
# The pause between two changes of a coordinator, if there are groups.
COORDINATOR_PAUSE = 3.0
# Besides starting reassignments, the client elects preferred leaders (ELECTION_SHARE), and reverts reassignments that it has
# just started (REVERT_SHARE).
ELECTION_SHARE = 0.2
REVERT_SHARE = 0.2
# An idempotent producer makes up to this many attempts, and after this share of the acknowledgements one more.
ATTEMPTS_MAX = 6
REPEAT_SHARE = 0.1
RETRY_PAUSE = 0.3
# Values of compacted topics are small, so that a segment of a few hundred bytes takes any batch.
COMPACTED_VALUE_BYTES_MAX = 30
# The replication factors of the topics with unclean elections, which are the numbers in their names.
CARELESS_FACTORS = (2, 3)
# A batch of these topics fits into their smallest segments.
TRIMMED_VALUE_BYTES_MAX = 300
# Sequences of changes to one topic: True is a creation, False a deletion. When a change begins, a slow disk may still be
# busy with the previous change.
TOPIC_CHANGES = ((True,), (False,), (False, True), (True, False, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """How much the clients do. Pauses are means in seconds; each pause is drawn."""

    producers: int = 2
    consumers: int = 1
    # Whether the consumers are in racks and read from the followers there (KIP-392). The brokers must have racks.
    has_racks: bool = False
    # The number of topics that stay, and of topics that are deleted and created again.
    topics: int = 2
    passing_topics: int = 1
    # The number of topics that stay and are compacted, and how large their segments get.
    compacted_topics: int = 0
    compacted_segment_bytes: int = 2_000
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
    # The pause between two changes of a broker's cordons. If None, nothing is ever cordoned.
    cordon_pause: float | None = None
    # The pause between two deletions of records or changes of retention and segments. If None, no topic has such changes.
    trim_pause: float | None = None
    # Whether there are topics with unclean elections.
    is_careless: bool = False
    # The number of groups, and of members in each. The members commit positions in the first lasting topic.
    groups: int = 0
    group_members: int = 3
    # The pause between two steps of a member: a heartbeat, and often a commit.
    member_pause: float = 0.3
    # The number of transactional producers. They have a topic of their own.
    transactional_producers: int = 0
    # Whether these producers may use transaction.version 2.
    bumps_epochs: bool = False
    # The pause between two transactions of a producer, and between two reads of their topic.
    transaction_pause: float = 0.3
    # The share of batches that are sent with acks=1 instead of acks=all.
    acks_one_share: float = 0.25
    # Whether the producers are idempotent and retry. They always use acks=all.
    is_idempotent: bool = False
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
        # The newest leader epoch of each partition. Kept when a topic is unknown to some broker: another, cut off from the
        # controller, may name an older leader of a topic that is deleted (KIP-320).
        self._newest_epochs: dict[TopicIdPartition, int] = {}
        self.history = history
        self.admin_seconds: float = ADMIN_SECONDS
        """How long a request to create or delete a topic may take."""
        self._cluster = cluster
        self._history = history
        self._env = cluster.world.node(name)
        self._rng = random.Random(f"{cluster.world.seed}/{name}")
        self._task_group = task_group
        self._channels: dict[int, NodeChannel] = {}
        self._written = 0
        # The identity of an idempotent producer, and its next sequence number in each partition.
        self._producer_id = zlib.crc32(name.encode())
        self._producer_epoch = 0
        self._sequences: dict[TopicIdPartition, int] = {}
        # The rack of a consumer, and the followers that leaders have named for it, each with the leader epoch.
        self.rack = ""
        self._preferred: dict[TopicIdPartition, tuple[int, int]] = {}

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
            key = TopicIdPartition(known.topic_id, part.partition_index)
            if part.leader_epoch >= self._newest_epochs.get(key, -1):
                self._newest_epochs[key] = part.leader_epoch
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
                TopicProduceData(
                    name=topic,
                    topic_id=known.topic_id,
                    partition_data=[PartitionProduceData(index=index, records=self._batch(values, is_compacted(topic)))],
                )
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

    async def produce_idempotently(
        self, topic: str, index: int, *, records: int = 1, value_bytes: int = 0
    ) -> Produce | None:
        """Sends one batch until it is acknowledged or refused for good. Returns None if no leader is known.

        When the client gives up, the batch may or may not be in the log, so that its sequence numbers are spent and not
        spent. The client then goes on with a higher epoch (KIP-360)."""
        found = self._leader(topic, index)
        if found is None:
            await self.refresh(topic)
            return None
        key = TopicIdPartition(found[0].topic_id, index)
        values = tuple(self._new_value(value_bytes) for _ in range(records))
        operation = Produce(
            client=self.name,
            begin_ns=self._env.now_ns(),
            topic=topic,
            topic_id=key.topic_id,
            index=index,
            acks=ALL,
            values=values,
        )
        self._history.produces.append(operation)
        batch = self._batch(values, False, self._producer_id, self._producer_epoch, self._sequences.get(key, 0))
        codes = [await self._attempt(operation, batch)]
        while len(codes) < ATTEMPTS_MAX and codes[-1] not in _FINAL:
            await self.refresh(topic)
            await self.pause(RETRY_PAUSE)
            if topic not in self.topics or self.topics[topic].topic_id != key.topic_id:
                break
            codes.append(await self._attempt(operation, batch))
        operation.end_ns = self._env.now_ns()
        if codes[-1] is ErrorCode.NONE:
            operation.outcome = Outcome.OK
            self._sequences[key] = self._sequences.get(key, 0) + records
            if self._rng.random() < REPEAT_SHARE:
                await self._repeat(operation, batch)
            return operation
        operation.error = str([code if code is None else code.name for code in codes])
        if all(code in CERTAIN_REFUSALS for code in codes):
            operation.outcome = Outcome.FAILED
        self._producer_epoch += 1
        self._sequences.clear()
        return operation

    async def _attempt(self, operation: Produce, batch: bytes) -> ErrorCode | None:
        """Sends the batch once. Returns the error of the response, None if there was no response."""
        answer = await self._send_batch(operation, batch)
        if answer is None:
            return None
        operation.offset = answer.base_offset
        return ErrorCode(answer.error_code)

    async def _repeat(self, operation: Produce, batch: bytes) -> None:
        """Sends an acknowledged batch once more, as a client does whose answer was lost."""
        answer = await self._send_batch(operation, batch)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            operation.repeated_offset = answer.base_offset

    async def _send_batch(self, operation: Produce, batch: bytes) -> Any | None:
        found = self._leader(operation.topic, operation.index)
        if found is None:
            return None
        data = [PartitionProduceData(index=operation.index, records=batch)]
        topic = TopicProduceData(name=operation.topic, topic_id=operation.topic_id, partition_data=data)
        request = ProduceRequest(acks=ALL, timeout_ms=2_000, topic_data=[topic])
        try:
            response = await self._send(found[1].leader, request)
        except ChannelError:
            return None
        return response.responses[0].partition_responses[0]

    def _new_value(self, size: int) -> bytes:
        self._written += 1
        value = f"{self.name}/{self._written}".encode()
        return value + b"." * max(size - len(value), 0)

    def _batch(
        self,
        values: tuple[bytes, ...],
        has_keys: bool,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        sequence: int = NO_SEQUENCE,
    ) -> bytes:
        now_ms = self._env.wall_ms()
        return bytes(
            encode_batch(
                [Record(key_of(value) if has_keys else None, value, timestamp_ms=now_ms) for value in values],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
            )
        )

    # --- consume -------------------------------------------------------------------------------------------------

    async def poll(self, topic: str, index: int, offset: int, *, topic_id: TopicId) -> Poll | None:
        """Sends one fetch at `offset` for the topic with this id. Returns None if no leader of it is known."""
        found = self._leader(topic, index)
        if found is None or found[0].topic_id != topic_id:
            await self.refresh(topic)
            return None
        part = found[1]
        key = TopicIdPartition(topic_id, index)
        follower = self._preferred_follower(key, part)
        operation = Poll(
            client=self.name,
            begin_ns=self._env.now_ns(),
            topic=topic,
            topic_id=topic_id,
            index=index,
            offset=offset,
            leader_epoch=part.leader_epoch,
            follower=-1 if follower is None else follower,
        )
        self._history.polls.append(operation)
        wanted = FetchPartition(
            partition=index,
            fetch_offset=offset,
            current_leader_epoch=part.leader_epoch,
            partition_max_bytes=self._rng.choice((1, 1_000, 1 << 20)),
        )
        request = FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            rack_id=self.rack,
            topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
        )
        response = await self._carried_out(operation, part.leader if follower is None else follower, request)
        if response is None or response.error_code != ErrorCode.NONE:
            self._preferred.pop(key, None)
            await self.refresh(topic)
            return operation
        data = response.responses[0].partitions[0]
        self._note_result(operation, data.error_code)
        if operation.outcome is Outcome.OK:
            operation.high_watermark = data.high_watermark
            operation.log_start_offset = data.log_start_offset
            if data.preferred_read_replica >= 0:
                self._preferred[key] = (data.preferred_read_replica, part.leader_epoch)
            try:
                operation.records = _records_from(data.records or b"", offset)
            except CorruptBatch as error:
                # A real client returns none of these records to its caller, and fetches again.
                operation.outcome, operation.error = Outcome.UNKNOWN, str(error)
        else:
            self._preferred.pop(key, None)
            await self.refresh(topic)
        return operation

    def _preferred_follower(self, key: TopicIdPartition, part: KnownPartition) -> int | None:
        """Returns the follower that the leader of this epoch has named. Like a real client, it asks the leader again now and
        then."""
        broker_id, leader_epoch = self._preferred.get(key, (-1, -1))
        if broker_id < 0 or leader_epoch != part.leader_epoch or self._rng.random() < LEADER_AGAIN_SHARE:
            self._preferred.pop(key, None)
            return None
        return broker_id

    async def earliest_offset(self, topic: str, index: int) -> int | None:
        """Asks for the log start of a partition. Returns None without an answer."""
        found = self._leader(topic, index)
        if found is not None:
            wanted = ListOffsetsPartition(partition_index=index, timestamp=EARLIEST)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
            with contextlib.suppress(ChannelError):
                answer = (await self._send(found[1].leader, request)).topics[0].partitions[0]
                if answer.error_code == ErrorCode.NONE:
                    return int(answer.offset)
        await self.refresh(topic)
        return None

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
        request = CreateTopicsRequest(topics=[topic], timeout_ms=round(self.admin_seconds * 1000))
        response = await self._carried_out(operation, self._any_broker(), request, seconds=self.admin_seconds)
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
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=round(self.admin_seconds * 1000))
        response = await self._carried_out(operation, self._any_broker(), request, seconds=self.admin_seconds)
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

    def leader(self, topic: str, index: int) -> int | None:
        """Returns the broker that leads the partition as far as this client knows, or None."""
        found = self._leader(topic, index)
        return None if found is None else found[1].leader

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

    async def send(
        self, broker_id: int, request: Any, *, version: int | None = None, seconds: float = REQUEST_SECONDS
    ) -> Any:
        """Sends a request that is not an operation of the history. Raises ChannelError."""
        return await self._send(broker_id, request, version=version, seconds=seconds)

    async def _send(
        self, broker_id: int, request: Any, *, version: int | None = None, seconds: float = REQUEST_SECONDS
    ) -> Any:
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = NodeChannel(
                self._env,
                host=f"broker-{broker_id}",
                port=BROKER_PORT,
                client_id=self.name,
                task_group=self._task_group,
            )
        deadline_ns = self._env.now_ns() + round(seconds * NS_PER_S)
        return await channel.send(request, version=version, deadline_ns=deadline_ns)


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
        transactional = f"{COMPACTED}{TRANSACTIONAL}1" if settings.compacted_topics else f"{TRANSACTIONAL}1"
        self.transactional_topic = transactional if settings.transactional_producers else None
        self.transactional_producers: list[TransactionalProducer] = []
        self.trimmed_topics = [] if settings.trim_pause is None else [f"{TRIMMED}1", f"{AGING}1"]
        self.careless_topics = [f"{CARELESS}{factor}" for factor in CARELESS_FACTORS] if settings.is_careless else []
        self.compacted_topics = [f"{COMPACTED}{number}" for number in range(1, settings.compacted_topics + 1)]

    @property
    def topics(self) -> list[str]:
        """The names of all topics."""
        return self.lasting_topics + self.passing_topics + self.compacted_topics

    @property
    def led_topics(self) -> list[str]:
        """The names of all topics whose replicas may be moved, also of those with the coordinators' states."""
        return self.topics + self.trimmed_topics + self.careless_topics + self.coordinated_topics

    @property
    def coordinated_topics(self) -> list[str]:
        """The names of the internal topics whose leaders are coordinators of the clients."""
        transactions = [TRANSACTION_STATE_TOPIC] if self._settings.transactional_producers else []
        return transactions + ([OFFSETS_TOPIC] if self._settings.groups or transactions else [])

    @property
    def groups(self) -> list[str]:
        """The names of the groups."""
        return [f"group-{number}" for number in range(1, self._settings.groups + 1)]

    def _kind_of_member(self, group: str) -> type[GroupMember] | type[ConsumerGroupMember] | type[MixedGroupMember]:
        """In a part of the seeds the members of the first group change their protocol. Of the others every other group has
        the consumer protocol, and of one group alone every other seed."""
        number, seed = self.groups.index(group), self._cluster.world.seed
        if number == 0 and seed % MIXED_GROUP_SEEDS == 0:
            return MixedGroupMember
        return ConsumerGroupMember if (number + seed) % 2 == 0 else GroupMember

    async def start(self) -> None:
        """Creates the topics and starts all clients. The cluster must be healthy."""
        admin = self._new_client("client-topics")
        for name in self.topics + self.trimmed_topics + self.careless_topics:
            created = await self._create(admin, name)
            assert created.outcome is Outcome.OK, f"{name}: {created.error}"
        settings = self._settings
        for number in range(1, settings.producers + 1):
            self._spawn(self._produce_on, self._new_client(f"client-producer-{number}"))
        for number in range(1, settings.consumers + 1):
            consumer = self._new_client(f"client-consumer-{number}")
            if settings.has_racks:
                draw = random.Random(f"{self._cluster.world.seed}/{consumer.name}/rack")
                consumer.rack = rack_of(draw.choice(self._cluster.broker_ids))
            self._spawn(self._consume_on, consumer)
        for group in self.groups:
            for number in range(1, settings.group_members + 1):
                member = self._kind_of_member(group)(
                    self._new_client(f"client-{group}-{number}"), group, self.lasting_topics[0]
                )
                self._tasks.append(self._task_group.create_task(self._be_member(member), name=member.client.name))
        if self.transactional_topic is not None:
            await self._start_transactions(admin, self.transactional_topic)
        if self.coordinated_topics:
            self._spawn(self._move_coordinators, self._new_client("client-coordinators"))
        if self.passing_topics:
            self._spawn(self._change_topics, admin)
        if settings.move_pause is not None:
            self._spawn(self._move_on, self._new_client("client-mover"))
            writers = [self._new_client(f"client-moving-writer-{number + 1}") for number in range(WRITERS_TO_MOVING)]
            self._tasks.append(self._task_group.create_task(self._write_to_moving(writers), name=writers[0].name))
        if settings.reassignment_pause is not None:
            self._spawn(self._change_partitions, self._new_client("client-partitions"))
        if settings.cordon_pause is not None:
            self._spawn(self._change_cordons, self._new_client("client-cordons"))
        if settings.trim_pause is not None:
            self._spawn(self._trim, self._new_client("client-trims"))
            self._use("trimmed", self.trimmed_topics)
        if self.careless_topics:
            self._use("careless", self.careless_topics)

    def _use(self, kind: str, topics: Sequence[str]) -> None:
        """Starts a producer and a consumer of their own for topics whose records may go."""
        self._spawn(partial(self._produce_to_one_of, topics), self._new_client(f"client-{kind}-producer"))
        self._spawn(partial(self._consume_what_goes, topics), self._new_client(f"client-{kind}-consumer"))

    async def _start_transactions(self, admin: WorkloadClient, topic: str) -> None:
        created = await self._create(admin, topic)
        assert created.outcome is Outcome.OK, f"{topic}: {created.error}"
        settings = self._settings
        for number in range(settings.transactional_producers):
            client = self._new_client(f"client-transactions-{number + 1}")
            producer = TransactionalProducer(
                client, topic, number % settings.partitions, settings.partitions, may_bump=settings.bumps_epochs
            )
            self.transactional_producers.append(producer)
            self._tasks.append(self._task_group.create_task(self._transact_on(producer), name=client.name))
        self._spawn(self._read_committed_on, self._new_client("client-committed"))

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
        factor, configs = settings.replication_factor, {"min_insync_replicas": str(settings.min_insync_replicas)}
        if is_careless(name):
            factor, configs = int(name.removeprefix(CARELESS)), {"unclean_leader_election_enable": "true"}
        if is_compacted(name):
            configs |= {
                "cleanup_policy": "compact",
                "min_cleanable_dirty_ratio": "0.01",
                "segment_bytes": str(settings.compacted_segment_bytes),
            }
        return client.create_topic(name, partitions=settings.partitions, replication_factor=factor, **configs)

    async def _produce_on(self, client: WorkloadClient) -> None:
        settings = self._settings
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        while not self._is_over:
            topic, index = rng.choice(self.topics), rng.randrange(settings.partitions)
            await self._produce_to(client, rng, topic, index)
            await client.pause(settings.produce_pause)

    async def _produce_to(self, client: WorkloadClient, rng: random.Random, topic: str, index: int) -> None:
        """Sends one batch, drawn as the settings say."""
        settings = self._settings
        acks = 1 if rng.random() < settings.acks_one_share else ALL
        records = rng.randint(1, settings.records_max)
        value_bytes = rng.randint(0, settings.value_bytes_max)
        if is_compacted(topic):
            value_bytes = min(value_bytes, COMPACTED_VALUE_BYTES_MAX)
        if topic in self.trimmed_topics:
            value_bytes = min(value_bytes, TRIMMED_VALUE_BYTES_MAX)
        if settings.is_idempotent and not is_compacted(topic):
            await client.produce_idempotently(topic, index, records=records, value_bytes=value_bytes)
        else:
            await client.produce(topic, index, acks=acks, records=records, value_bytes=value_bytes)

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
    ) -> Poll | None:
        poll = await client.poll(topic, index, positions.get(TopicIdPartition(topic_id, index), 0), topic_id=topic_id)
        if poll is not None and poll.records:
            positions[TopicIdPartition(topic_id, index)] = poll.records[-1][0] + 1
        return poll

    async def _transact_on(self, producer: TransactionalProducer) -> None:
        while not self._is_over:
            await producer.step()
            await producer.client.pause(self._settings.transaction_pause)

    async def _read_committed_on(self, client: WorkloadClient) -> None:
        """Reads the topic of the transactions over and over, from its beginning or from where the last read ended."""
        assert self.transactional_topic is not None
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        positions = dict.fromkeys(range(self._settings.partitions), 0)
        while not self._is_over:
            index = rng.choice(sorted(positions))
            with contextlib.suppress(ChannelError):
                read = await read_committed(client, self.transactional_topic, index, positions[index])
                if read is not None:
                    positions[index] = read.next_offset if read.values or rng.random() < 0.9 else 0
            await client.pause(self._settings.transaction_pause)

    async def _be_member(self, member: GroupMember | ConsumerGroupMember | MixedGroupMember) -> None:
        while not self._is_over:
            await member.step()
            await member.client.pause(self._settings.member_pause)

    async def _move_coordinators(self, client: WorkloadClient) -> None:
        """Lets another replica of a coordinators' topic lead, over and over: a broker that has lost the leadership often
        gets it back without a restart."""
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        while not self._is_over:
            await client.pause(COORDINATOR_PAUSE)
            name = rng.choice(self.coordinated_topics)
            topic = self._cluster.state.topic_named(name) if self._cluster.is_controller_active() else None
            if topic is not None:
                index = rng.choice(sorted(topic.partitions))
                replicas = list(topic.partitions[index].replicas)
                rng.shuffle(replicas)
                await self._reassign(client, name, index, replicas)
                await client.elect_preferred(name, index)

    async def _move_on(self, client: WorkloadClient) -> None:
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        assert self._settings.move_pause is not None
        while not self._is_over:
            await client.pause(self._settings.move_pause)
            broker_id = rng.choice(self._cluster.broker_ids)
            destination = self._cluster.disk(broker_id, rng.choice(self._cluster.disk_numbers(broker_id))).path
            if rng.random() < CANCEL_SHARE:
                destination = ANY_DIRECTORY
            if self._guard is not None and not self._guard.may_move(broker_id):
                continue
            await client.move(rng.choice(self.led_topics), rng.randrange(self._settings.partitions), broker_id, destination)

    async def _write_to_moving(self, clients: Sequence[WorkloadClient]) -> None:
        """Moves the replica of a leader while all these clients write to the partition, again and again. The other producers
        write so much less to one partition that hardly any of their batches arrive during a swap."""
        mover = clients[0]
        rng = random.Random(f"{self._cluster.world.seed}/{mover.name}/choices")
        while not self._is_over:
            await mover.pause(WRITTEN_MOVE_PAUSE)
            topic, index = rng.choice(self.topics), rng.randrange(self._settings.partitions)
            await mover.refresh(topic)
            leader = mover.leader(topic, index)
            if leader is None or (self._guard is not None and not self._guard.may_move(leader)):
                continue
            await mover.move(
                topic, index, leader, self._cluster.disk(leader, rng.choice(self._cluster.disk_numbers(leader))).path
            )
            end_ns = self._cluster.world.now_ns() + round(WRITTEN_MOVE_SECONDS * NS_PER_S)
            await asyncio.gather(*(self._write_until(end_ns, client, rng, topic, index) for client in clients))

    async def _write_until(self, end_ns: int, client: WorkloadClient, rng: random.Random, topic: str, index: int) -> None:
        while not self._is_over and self._cluster.world.now_ns() < end_ns:
            await self._produce_to(client, rng, topic, index)
            await client.pause(WRITTEN_MOVE_BATCH_PAUSE)

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
            topic, index = rng.choice(self.led_topics), rng.randrange(self._settings.partitions)
            if rng.random() < ELECTION_SHARE:
                await client.elect_preferred(topic, index)
                continue
            brokers = self._cluster.broker_ids
            target = rng.sample(brokers, rng.randint(self._settings.min_insync_replicas, len(brokers)))
            await self._reassign(client, topic, index, target)
            if rng.random() < REVERT_SHARE:
                await self._reassign(client, topic, index, None)

    async def _change_cordons(self, client: WorkloadClient) -> None:
        assert self._settings.cordon_pause is not None
        cordons = CordonChanges(self._cluster, client)
        while not self._is_over:
            await client.pause(self._settings.cordon_pause)
            await cordons.change()
        await cordons.end()

    async def _trim(self, client: WorkloadClient) -> None:
        assert self._settings.trim_pause is not None
        trims = Trims(client, self.trimmed_topics, self._settings.partitions, self._cluster.world.seed)
        while not self._is_over:
            await client.pause(self._settings.trim_pause)
            await trims.change()

    async def _produce_to_one_of(self, topics: Sequence[str], client: WorkloadClient) -> None:
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        while not self._is_over:
            await self._produce_to(client, rng, rng.choice(topics), rng.randrange(self._settings.partitions))
            await client.pause(self._settings.produce_pause)

    async def _consume_what_goes(self, topics: Sequence[str], client: WorkloadClient) -> None:
        """Like `_consume_on`, but begins again at the log start when its position is gone: deleted, or taken away by an
        unclean election."""
        rng = random.Random(f"{self._cluster.world.seed}/{client.name}/choices")
        positions: dict[TopicIdPartition, int] = {}
        while not self._is_over:
            topic, index = rng.choice(topics), rng.randrange(self._settings.partitions)
            known = client.topics.get(topic)
            if known is None:
                await client.refresh(topic)
            else:
                poll = await self._poll_next(client, topic, index, known.topic_id, positions)
                if poll is not None and poll.error == "OFFSET_OUT_OF_RANGE":
                    start = await client.earliest_offset(topic, index)
                    if start is not None:
                        positions[TopicIdPartition(known.topic_id, index)] = start
            await client.pause(self._settings.poll_pause)

    async def _reassign(self, client: WorkloadClient, topic: str, index: int, target: Sequence[int] | None) -> None:
        if self._guard is not None and not self._guard.begin_reassignment(topic, index, target):
            return
        change = await client.reassign(topic, index, target)
        if self._guard is not None:
            self._guard.end_reassignment(topic, index, is_certain=change.outcome is Outcome.OK)
