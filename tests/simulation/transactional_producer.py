"""A transactional producer in the simulated workload, and a reader of what is committed.

Shell of the tests. The producer counts. Each transaction writes the next number into some partitions and moves the
producer's position in a group to the number after it. So the numbers that can be read are exactly those below the position,
whatever happened, provided that records and position change together or not at all.

A request without a response may still arrive, at any time. With transaction.version 0 only a new epoch keeps it out. So the
producer starts over then: InitProducerId aborts what it left open, and the position tells how far it came.

A coordinator that is cut off may have been replaced without knowing it, and answers with an old position, as Apache Kafka's
does. A member of a group is then refused, because its generation is old, but this producer is no member. So it asks again if
the broker that answered does not lead the group's partition.

Now and then a producer aborts a transaction while a batch of it is still on its way, as a client does when the time for the
delivery is over. The batch arrives about when the transaction ends, or later, and must have no effect.

A producer of transaction.version 2 adds nothing itself, and gets a new epoch with the end of each transaction. So it need
not start over: it repeats a request for the end until it is answered, aborts what has failed, and goes on. From one start to
the next it may also work as a client does that knows no such version.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.coordinator.core.group_partition import OFFSETS_TOPIC, group_partition
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from common.protocol.messages.end_txn import EndTxnRequest
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.init_producer_id import InitProducerIdRequest
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from common.records.batch import CorruptBatch, split_batches, validate_integrity
from common.records.record import Record, encode_batch, iterate_records
from tests.simulation.history import CommittedRead, Outcome, Transaction, is_compacted

if TYPE_CHECKING:
    from tests.simulation.workload import WorkloadClient

TRANSACTION = 1
GROUP = 0
TRANSACTION_TIMEOUT_MS = 4_000
# The newest versions in which clients send one transaction, and topics have names.
CLIENTS_VERSION = 3
NAMED_OFFSETS_VERSION = 9
# By whether the end of a transaction raises the epoch.
PRODUCE_VERSIONS = {False: 11, True: 12}
COMMIT_VERSIONS = {False: 4, True: 5}
END_VERSIONS = {False: 4, True: 5}
# Of the starts of a producer that may, in this share it uses transaction.version 2; in the others, an older one.
BUMP_SHARE = 0.85
# How often such a producer aborts and goes on after a failure. Otherwise it starts over.
ABORT_SHARE = 0.6
COMMIT_SHARE = 0.7
# How often a producer starts over in the middle of a transaction although nothing failed.
CRASH_SHARE = 0.05
# How often a producer aborts while a batch is on its way, and how much earlier or later the batch is sent, in seconds.
ABANDON_SHARE = 0.15
LATE_SECONDS = (-0.0005, 0.0, 0.02, 0.3)
READ_COMMITTED = 1
TRANSACTIONAL_BIT = 0x10
ATTEMPTS_MAX = 10
RETRY_PAUSE = 0.2
RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
# With these, the coordinator has not decided about the end of a transaction.
END_RETRIED = (*RETRIED, ErrorCode.NOT_COORDINATOR)


class StartOver(Exception):
    """The producer cannot go on with its epoch."""


class TransactionalProducer:
    """One producer. `step` does the next transaction and never raises."""

    def __init__(
        self, client: "WorkloadClient", topic: str, number: int, partitions: int, *, may_bump: bool = False
    ) -> None:
        """With `may_bump`, the producer uses transaction.version 2 at most of its starts."""
        self.client = client
        self._topic = topic
        self._number = number
        self._partitions = partitions
        self._rng = random.Random(f"{client._cluster.world.seed}/{client.name}/transactions")
        # The producer's id and epoch; None until it has them.
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        # The next number to be written.
        self._position = 0
        self._attempts = 0
        self.may_bump = may_bump
        # Whether the end of a transaction raises the epoch.
        self._bumps = False

    @property
    def transactional_id(self) -> str:
        return self.client.name

    @property
    def group(self) -> str:
        return f"{self.client.name}-group"

    async def step(self) -> None:
        try:
            if self._topic not in self.client.topics:
                await self.client.refresh(self._topic)
            elif self._producer is None:
                await self._begin()
            else:
                await self._transact()
        except (ChannelError, StartOver):
            await self._recover()

    async def _recover(self) -> None:
        if self._producer is not None and self._bumps and self._rng.random() < ABORT_SHARE:
            with contextlib.suppress(ChannelError, StartOver):
                await self._end_bumping(await self._coordinator(TRANSACTION, self.transactional_id), is_commit=False)
                return
        self._producer = None

    async def read_position(self, client: "WorkloadClient") -> int | None:
        """Lets this client ask for the position of this producer. Returns None without an answer."""
        return await read_stable_position(client, self.group, self._topic, self._number)

    async def _begin(self) -> None:
        """Gets an epoch, then learns the position, which nobody else can change any more."""
        coordinator = await self._coordinator(TRANSACTION, self.transactional_id)
        response = await self.client.send(
            coordinator,
            InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS),
        )
        if response.error_code != ErrorCode.NONE:
            raise StartOver
        producer = (response.producer_id, response.producer_epoch)
        position = await self.read_position(self.client)
        if position is None:
            raise StartOver
        self._position = max(position, 0)
        self._producer, self._sequences = producer, {}
        self._bumps = self.may_bump and self._rng.random() < BUMP_SHARE

    async def _coordinator(self, key_type: int, key: str) -> int:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        response = await self.client.send(self.client._any_broker(), request)
        [found] = response.coordinators
        if found.error_code != ErrorCode.NONE:
            raise StartOver
        return int(found.node_id)

    async def _transact(self) -> None:
        assert self._producer is not None
        self._attempts += 1
        indexes = sorted(self._rng.sample(range(self._partitions), self._rng.randint(1, self._partitions)))
        operation = Transaction(
            client=self.client.name,
            begin_ns=self.client._env.now_ns(),
            number=self._position,
            value=f"{self.client.name}/{self._position}/{self._attempts}".encode(),
            topic=self._topic,
            indexes=tuple(indexes),
            outcome=Outcome.FAILED,
        )
        self.client.history.transactions.append(operation)
        coordinator = await self._coordinator(TRANSACTION, self.transactional_id)
        if not self._bumps:
            await self._add_partitions(coordinator, indexes)
        is_abandoned = self._rng.random() < ABANDON_SHARE
        late = indexes.pop() if is_abandoned else None
        for index in indexes:
            await self._produce(index, operation.value)
        if late is not None:
            await self._abandon(coordinator, late, operation.value)
            return
        if not self._bumps:
            await self._add_offsets(coordinator)
        await self._commit_position(self._position + 1)
        await self._end(coordinator, operation)

    async def _ask(self, node: int, request: Any, version: int | None = None) -> Any:
        if self._rng.random() < CRASH_SHARE:
            raise StartOver
        return await self.client.send(node, request, version=version)

    async def _add_partitions(self, coordinator: int, indexes: list[int]) -> None:
        assert self._producer is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=indexes)],
        )
        for _ in range(ATTEMPTS_MAX):
            response = await self._ask(coordinator, request, CLIENTS_VERSION)
            [topic] = response.results_by_topic_v3_and_below
            error = ErrorCode(topic.results_by_partition[0].partition_error_code)
            if error not in RETRIED:
                break
            await self.client.pause(RETRY_PAUSE)
        _require(error)

    async def _produce(self, index: int, value: bytes) -> None:
        leader = await self._leader(index)
        for _ in range(ATTEMPTS_MAX):
            response = await self._ask(leader, self._produce_request(index, value), PRODUCE_VERSIONS[self._bumps])
            error = ErrorCode(response.responses[0].partition_responses[0].error_code)
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await self.client.pause(RETRY_PAUSE)
        if error is not ErrorCode.NONE:
            await self.client.refresh(self._topic)
        _require(error)
        self._sequences[index] = self._sequences.get(index, 0) + 1

    async def _leader(self, index: int) -> int:
        found = self.client._leader(self._topic, index)
        if found is None:
            await self.client.refresh(self._topic)
            raise StartOver
        return int(found[1].leader)

    def _produce_request(self, index: int, value: bytes) -> ProduceRequest:
        assert self._producer is not None
        batch = encode_batch(
            # Compaction must not remove what is committed, so each record has a key of its own.
            [Record(value if is_compacted(self._topic) else None, value, timestamp_ms=self.client._env.wall_ms())],
            attributes=TRANSACTIONAL_BIT,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequences.get(index, 0),
        )
        data = [PartitionProduceData(index=index, records=bytes(batch))]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=2_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )

    async def _abandon(self, coordinator: int, index: int, value: bytes) -> None:
        """Aborts the transaction. A batch of it arrives late. Without a new epoch, only starting over makes it harmless."""
        leader, batch = await self._leader(index), self._produce_request(index, value)
        late_seconds = self._rng.choice(LATE_SECONDS)
        version = PRODUCE_VERSIONS[self._bumps]
        goes_on = False
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_later(leader, batch, late_seconds, version), name=f"{self.client.name}-late")
            if not self._bumps:
                await self._send_later(coordinator, self._end_request(is_commit=False), -late_seconds, END_VERSIONS[False])
            else:
                with contextlib.suppress(ChannelError, StartOver):
                    await self.client.pause(max(-late_seconds, 0))
                    await self._end_bumping(coordinator, is_commit=False)
                    goes_on = True
        if not goes_on:
            self._producer = None

    async def _send_later(self, node: int, request: Any, mean_seconds: float, version: int) -> None:
        await self.client.pause(max(mean_seconds, 0))
        with contextlib.suppress(ChannelError):
            await self.client.send(node, request, version=version)

    async def _add_offsets(self, coordinator: int) -> None:
        assert self._producer is not None
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=self.group,
        )
        _require((await self._ask(coordinator, request)).error_code)

    async def _commit_position(self, position: int) -> None:
        assert self._producer is not None
        partition = TxnOffsetCommitRequestPartition(partition_index=self._number, committed_offset=position)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[TxnOffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        coordinator = await self._coordinator(GROUP, self.group)
        for _ in range(ATTEMPTS_MAX):
            response = await self._ask(coordinator, request, COMMIT_VERSIONS[self._bumps])
            error = response.topics[0].partitions[0].error_code
            if not self._bumps or error not in RETRIED:
                break
            await self.client.pause(RETRY_PAUSE)
        _require(error)

    async def _end(self, coordinator: int, operation: Transaction) -> None:
        is_commit = self._rng.random() < COMMIT_SHARE
        if is_commit:
            # From now on the producer does not know, until it is told.
            operation.outcome = Outcome.UNKNOWN
        if self._bumps:
            await self._end_bumping(coordinator, is_commit=is_commit)
            operation.end_ns = self.client._env.now_ns()
        else:
            response = await self._ask(coordinator, self._end_request(is_commit=is_commit), END_VERSIONS[False])
            operation.end_ns = self.client._env.now_ns()
            _require(response.error_code)
        if is_commit:
            operation.outcome = Outcome.OK
            self._position += 1

    async def _end_bumping(self, coordinator: int, *, is_commit: bool) -> None:
        """Ends the transaction and takes the new epoch. Repeats the request until it is answered."""
        request = self._end_request(is_commit=is_commit)
        for _ in range(ATTEMPTS_MAX):
            with contextlib.suppress(ChannelError):
                response = await self.client.send(coordinator, request, version=END_VERSIONS[True])
                if response.error_code not in END_RETRIED:
                    _require(response.error_code)
                    self._producer, self._sequences = (response.producer_id, response.producer_epoch), {}
                    return
            await self.client.pause(RETRY_PAUSE)
            coordinator = await self._coordinator(TRANSACTION, self.transactional_id)
        raise StartOver("the transaction was not ended")

    def _end_request(self, *, is_commit: bool) -> EndTxnRequest:
        assert self._producer is not None
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=is_commit,
        )


def _require(error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise StartOver(ErrorCode(error_code).name)


# --- for any client --------------------------------------------------------------------------------------------------


async def read_stable_position(client: "WorkloadClient", group: str, topic: str, index: int) -> int | None:
    """Asks once for a position that no open transaction may change. Returns None without an answer that can be believed, -1
    without a position."""
    request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group])
    [found] = (await client.send(client._any_broker(), request)).coordinators
    if found.error_code != ErrorCode.NONE:
        return None
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)], require_stable=True)
    [answer] = (await client.send(found.node_id, asked, version=NAMED_OFFSETS_VERSION)).groups
    if answer.error_code != ErrorCode.NONE or not _leads_group(client, found.node_id, group):
        return None
    [partition] = answer.topics[0].partitions
    return int(partition.committed_offset) if partition.error_code == ErrorCode.NONE else None


def _leads_group(client: "WorkloadClient", broker_id: int, group: str) -> bool:
    partitions = client._cluster.partitions(OFFSETS_TOPIC)
    return bool(partitions) and partitions[group_partition(group, len(partitions))].leader == broker_id


async def read_committed(client: "WorkloadClient", topic: str, index: int, offset: int) -> CommittedRead | None:
    """Fetches once with isolation.level=read_committed, leaves out what is aborted as a consumer does, and records the rest
    in the history. Returns None without an answer, and if a batch is damaged: its head may name another producer then."""
    found = client._leader(topic, index)
    if found is None:
        await client.refresh(topic)
        return None
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic_id=found[0].topic_id, partitions=[wanted])],
    )
    response = await client.send(found[1].leader, request)
    if response.error_code != ErrorCode.NONE or not response.responses:
        await client.refresh(topic)
        return None
    data = response.responses[0].partitions[0]
    if data.error_code != ErrorCode.NONE:
        await client.refresh(topic)
        return None
    next_offset = offset
    values = []
    try:
        for at, value, end_offset in _committed(data, offset):
            next_offset = end_offset
            if value is not None:
                values.append((at, value))
    except CorruptBatch:
        return None
    read = CommittedRead(
        client=client.name,
        at_ns=client._env.now_ns(),
        topic=topic,
        index=index,
        offset=offset,
        next_offset=next_offset,
        values=tuple(values),
        last_stable_offset=data.last_stable_offset,
        high_watermark=data.high_watermark,
    )
    client.history.committed_reads.append(read)
    return read


def _committed(data: Any, from_offset: int) -> Iterator[tuple[int, bytes | None, int]]:
    """Yields (offset, value, end of the batch) for each record; the value is None where there is nothing to see. Raises
    CorruptBatch."""
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    being_aborted: set[int] = set()
    for header, view in split_batches(memoryview(data.records or b"")):
        validate_integrity(header, view)
        while aborted and aborted[0][0] <= header.last_offset:
            being_aborted.add(aborted.pop(0)[1])
        if header.is_control:
            being_aborted.discard(header.producer_id)
            yield header.last_offset, None, header.next_offset
            continue
        is_aborted = header.is_transactional and header.producer_id in being_aborted
        for record in iterate_records(view):
            is_seen = not is_aborted and record.offset >= from_offset and record.value is not None
            yield record.offset, bytes(record.value or b"") if is_seen else None, header.next_offset
        if not header.record_count:
            # Compaction has left nothing but the batch's place.
            yield header.last_offset, None, header.next_offset
