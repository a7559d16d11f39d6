"""Breaks one disk of a settled cluster for a while, and checks that clients wait only for what needs this disk (I31).

Shell of the tests. A producer and a consumer use one connection to each broker for all partitions of a topic, like every
Kafka client. Answers leave in the order of the requests, so a request that waits for the broken disk holds up all behind
it. The producer writes with acks=all to every partition, whether the broken disk has its leader, a follower, or no replica.
The consumer reads what it has read before, so that its fetches need the disks. If the cluster has `__consumer_offsets`, a
third client commits offsets for one group in each of its partitions, and if it has `__transaction_state`, a fourth one
commits a transaction in each partition of the topic, over and over. Meanwhile operators move replicas, change topics and
delete records (`disk_trial_changes.py`).

A partition without a replica on the broken disk is healthy. How long it may be silent is measured first: its longest silence
before the fault. During the fault, one silence may also last until the directory is suspected. A transaction waits for
several answers, one after the other, but it can be held up only once.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from enum import Enum
from itertools import count
from typing import Any

from broker.coordinator.core.group_partition import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, group_partition
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from common.protocol.messages.end_txn import EndTxnRequest
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.init_producer_id import InitProducerIdRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.records.record import Record, encode_batch
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.disk_trial_changes import NEED_CONTROLLER, NEED_NO_PARTITION, Stream, TrialChanges, Work
from tests.simulation.faults import METADATA, Fault, Lab
from tests.simulation.group_member import NAMED_OFFSETS_VERSION
from tests.simulation.history import History, Outcome, Produce
from tests.simulation.transactional_producer import (
    CLIENTS_VERSION,
    END_VERSIONS,
    PRODUCE_VERSIONS,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL_BIT,
)
from tests.simulation.violations import InvariantViolated
from tests.simulation.workload import ALL, WorkloadClient


class Where(Enum):
    """Which disk a trial breaks."""

    DATA = "data disk"
    BROKERS_METADATA = "metadata disk of a broker"
    CONTROLLERS_METADATA = "metadata disk of the controller"


USUAL_SECONDS = 1.5
# How long the disk is broken. A disk that hangs for the first of these times is not given up.
HANG_SECONDS = 1.6
BROKEN_SECONDS = 4.0
VANISHES = "mount vanishes"
TROUBLES = (
    ("disk hangs", Where.DATA, HANG_SECONDS),
    ("disk hangs", Where.DATA, BROKEN_SECONDS),
    ("disk dies and comes back", Where.DATA, BROKEN_SECONDS),
    ("disk read-only", Where.DATA, BROKEN_SECONDS),
    ("disk full", Where.DATA, BROKEN_SECONDS),
    (VANISHES, Where.DATA, BROKEN_SECONDS),
    # A broker without its metadata log ends.
    ("disk hangs", Where.BROKERS_METADATA, HANG_SECONDS),
    ("disk hangs", Where.CONTROLLERS_METADATA, HANG_SECONDS),
    ("disk hangs", Where.CONTROLLERS_METADATA, BROKEN_SECONDS),
)
PAUSE_SECONDS = 0.15
RETRY_SECONDS = 0.02
# A directory is looked at ten times in `diskraft.log.dir.suspect.ms`.
LOOKS = 1.1
# What is left for telling other brokers, and for sending again what was refused.
SLACK_NS = 250 * NS_PER_MS
# Enough for the first batch of each partition, which is small.
READ_BYTES = 200


def draw_trouble(cluster: SimulatedCluster) -> Fault:
    """Draws a fault of one disk. Its duration counts from the moment at which the fault is applied."""
    rng = random.Random(f"{cluster.world.seed}/disk trial")
    kind, where, seconds = rng.choice(TROUBLES)
    node = CONTROLLER_ID if where is Where.CONTROLLERS_METADATA else rng.choice(cluster.broker_ids)
    disk = f"d{rng.choice(cluster.disk_numbers(node))}" if where is Where.DATA else METADATA
    return Fault(at_ns=0, kind=kind, node=node, disk=disk, duration_ns=round(seconds * NS_PER_S), amount=1)


def _group_in(index: int, partitions: int) -> str:
    """Returns a group whose coordinator is the leader of this partition."""
    return next(name for name in map("trial-group-{}".format, count()) if group_partition(name, partitions) == index)


class _Refused(Exception):
    """A step of a transaction got an error."""


def _require(error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise _Refused(ErrorCode(error_code).name)


class DiskTrial:
    """One trial. The cluster must be in sync, and nothing else may disturb it."""

    def __init__(
        self, cluster: SimulatedCluster, lab: Lab, history: History, topic: str, works: Sequence[Work] = ()
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._lab = lab
        self._history = history
        self._topic = topic
        self._works = works
        self._suspect_ns = cluster.config(cluster.broker_ids[0]).diskraft_log_dir_suspect_ms * NS_PER_MS
        self._topic_id = cluster.topic_id(topic)
        self._partitions = sorted(cluster.partitions(topic))
        coordinated = cluster.partitions(OFFSETS_TOPIC)
        self._groups = {index: _group_in(index, len(coordinated)) for index in coordinated}
        self._transaction_partitions = len(cluster.partitions(TRANSACTION_STATE_TOPIC))
        self._succeeded_ns: dict[Stream, int] = {}
        self._longest_ns: dict[Stream, int] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._is_over = False

    async def run(self, fault: Fault) -> None:
        """Applies and mends this fault. Raises InvariantViolated if something waited too long for the disk."""
        async with asyncio.TaskGroup() as group:
            clients = [
                WorkloadClient(self._cluster, self._history, f"client-trial-{name}", group)
                for name in ("producer", "consumer", "committer", "transactor")
            ]
            changes = TrialChanges(
                self._cluster,
                self._lab,
                self._history,
                topics=(self._topic, OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC),
                fault=fault,
                producer=clients[0],
                group=group,
                note=self._note_success,
            )
            await self._start(group, clients, changes)
            if Work.MOVES_OF_THE_DISK in self._works:
                changes.move_from_and_to_the_disk(self._world.now_ns() + round(USUAL_SECONDS * NS_PER_S))
            usual_ns = await self._longest_silences(USUAL_SECONDS)
            healthy = changes.healthy()
            self._lab.apply(fault)
            broken_ns = await self._longest_silences(fault.duration_ns / NS_PER_S)
            self._is_over = changes.is_over = True
        if fault.kind == VANISHES:
            # Until the next probe finds it, open files can be written, and a replica may still move there (seed 100229).
            healthy &= changes.healthy()
        await self._lab.mend(fault)
        for client in clients + changes.clients:
            client.close()
        for violation in changes.violations:
            raise InvariantViolated("I31", violation)
        self._judge(fault, healthy, usual_ns, broken_ns)

    # --- the clients ---------------------------------------------------------------------------------------------

    async def _start(self, group: asyncio.TaskGroup, clients: Sequence[WorkloadClient], changes: TrialChanges) -> None:
        """Starts all work, and waits until all of it has succeeded once."""
        producer, consumer, committer, transactor = clients
        await producer.refresh(self._topic)
        for index in self._partitions:
            group.create_task(self._produce_on(producer, index, changes))
        for broker_id in self._cluster.broker_ids:
            group.create_task(self._fetch_on(consumer, broker_id, changes))
        for index, name in self._groups.items():
            group.create_task(self._commit_on(committer, index, name))
        transacted = self._partitions if self._transaction_partitions else []
        for index in transacted:
            group.create_task(self._transact_on(transactor, index))
        streams = 2 * len(self._partitions) + len(self._groups) + len(transacted) + len(changes.start(self._works))
        await self._world.until(lambda: len(self._succeeded_ns) == streams)

    async def _produce_on(self, client: WorkloadClient, index: int, changes: TrialChanges) -> None:
        while not self._is_over:
            produce = await client.produce(self._topic, index)
            if produce is not None and produce.outcome is Outcome.OK:
                changes.written[index] = produce.offset
                self._note_success([("produce", self._topic, index)])
            await self._world.sleep(PAUSE_SECONDS)

    async def _fetch_on(self, client: WorkloadClient, broker_id: int, changes: TrialChanges) -> None:
        """Reads the first records of each partition that this broker leads, over and over."""
        led = [index for index in self._partitions if self._cluster.partition(self._topic, index).leader == broker_id]
        while not self._is_over and led:
            wanted = [
                FetchPartition(partition=index, fetch_offset=changes.starts.get(index, 0), partition_max_bytes=READ_BYTES)
                for index in led
            ]
            topic = FetchTopic(topic_id=self._topic_id, partitions=wanted)
            request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])
            with suppress(ChannelError):
                response = await client.send(broker_id, request)
                self._note_success(
                    ("fetch", self._topic, part.partition_index)
                    for answer in response.responses
                    for part in answer.partitions
                    if part.error_code == ErrorCode.NONE and part.records
                )
            await self._world.sleep(PAUSE_SECONDS)

    async def _commit_on(self, client: WorkloadClient, index: int, group: str) -> None:
        """Commits offsets for a group without members, over and over."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name=self._topic, partitions=[partition])
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        while not self._is_over:
            with suppress(ChannelError):
                response = await client.send(self._leader(OFFSETS_TOPIC, index), request, version=NAMED_OFFSETS_VERSION)
                if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    self._note_success([("commit", OFFSETS_TOPIC, index)])
            await self._world.sleep(PAUSE_SECONDS)

    async def _transact_on(self, client: WorkloadClient, index: int) -> None:
        """Commits one transaction after the other in this partition."""
        while not self._is_over:
            with suppress(ChannelError, _Refused):
                await self._transact_as_one_producer(client, index)
            await self._world.sleep(PAUSE_SECONDS)

    async def _transact_as_one_producer(self, client: WorkloadClient, index: int) -> None:
        """Gets a producer epoch and commits transactions until one of them fails. Raises _Refused and ChannelError."""
        id_ = self._transactional_id(index)
        init = InitProducerIdRequest(transactional_id=id_, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        producer = await self._ask_coordinator(client, index, init)
        _require(producer.error_code)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=id_,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[index])],
        )
        end = EndTxnRequest(
            transactional_id=id_, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
        )
        for sequence in count():
            # If the trial is over by now, the client ends like one whose transaction is refused.
            error: int = ErrorCode.CONCURRENT_TRANSACTIONS
            while not self._is_over:
                added = await self._ask_coordinator(client, index, add, version=CLIENTS_VERSION)
                error = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                # The markers of the last transaction are not written yet.
                await self._world.sleep(RETRY_SECONDS)
            _require(error)
            await self._produce_in_transaction(client, index, producer, sequence)
            # Most transactions are open when the fault comes. Their markers are due while nobody suspects the directory yet.
            await self._world.sleep(PAUSE_SECONDS)
            _require((await self._ask_coordinator(client, index, end, version=END_VERSIONS[False])).error_code)
            self._note_success([("transact", self._topic, index)])
            if self._is_over:
                return

    async def _produce_in_transaction(self, client: WorkloadClient, index: int, producer: Any, sequence: int) -> None:
        id_ = self._transactional_id(index)
        value = f"{id_}/{producer.producer_epoch}/{sequence}".encode()
        operation = Produce(
            client=client.name,
            begin_ns=self._world.now_ns(),
            topic=self._topic,
            topic_id=self._topic_id,
            index=index,
            acks=ALL,
            values=(value,),
        )
        self._history.produces.append(operation)
        batch = encode_batch(
            [Record(None, value)],
            attributes=TRANSACTIONAL_BIT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        data = [PartitionProduceData(index=index, records=bytes(batch))]
        topic = TopicProduceData(name=self._topic, partition_data=data)
        request = ProduceRequest(transactional_id=id_, acks=ALL, timeout_ms=2_000, topic_data=[topic])
        response = await client.send(self._leader(self._topic, index), request, version=PRODUCE_VERSIONS[False])
        operation.end_ns = self._world.now_ns()
        [answer] = response.responses[0].partition_responses
        _require(answer.error_code)
        operation.outcome, operation.offset = Outcome.OK, answer.base_offset

    def _transactional_id(self, index: int) -> str:
        return f"trial-{index}"

    def _state_partition(self, index: int) -> int:
        """Returns the partition of `__transaction_state` that has the transactions in this partition of the topic."""
        return group_partition(self._transactional_id(index), self._transaction_partitions)

    async def _ask_coordinator(self, client: WorkloadClient, index: int, request: Any, *, version: int | None = None) -> Any:
        coordinator = self._leader(TRANSACTION_STATE_TOPIC, self._state_partition(index))
        return await client.send(coordinator, request, version=version)

    def _leader(self, topic: str, index: int) -> int:
        """Returns the leader, or the last known one while no controller is active."""
        if self._cluster.is_controller_active():
            self._leaders[topic, index] = self._cluster.partition(topic, index).leader
        return self._leaders[topic, index]

    # --- silences ------------------------------------------------------------------------------------------------

    def _note_success(self, streams: Iterable[Stream]) -> None:
        now_ns = self._world.now_ns()
        for stream in streams:
            silent_ns = now_ns - self._succeeded_ns.get(stream, now_ns)
            self._longest_ns[stream] = max(self._longest_ns.get(stream, 0), silent_ns)
            self._succeeded_ns[stream] = now_ns

    async def _longest_silences(self, seconds: float) -> dict[Stream, int]:
        """Waits for so long. Returns the longest silence of each stream that touches this time, in nanoseconds."""
        self._longest_ns = {}
        await self._world.sleep(seconds)
        now_ns = self._world.now_ns()
        return {
            stream: max(self._longest_ns.get(stream, 0), now_ns - succeeded_ns)
            for stream, succeeded_ns in self._succeeded_ns.items()
        }

    def _needs(self, stream: Stream) -> set[tuple[str, int]]:
        """Returns the partitions without which a client cannot go on."""
        what, topic, index = stream
        needed = set() if what in NEED_NO_PARTITION else {(topic, index)}
        return needed | {(TRANSACTION_STATE_TOPIC, self._state_partition(index))} if what == "transact" else needed

    def _judge(
        self, fault: Fault, healthy: AbstractSet[tuple[str, int]], usual_ns: dict[Stream, int], broken_ns: dict[Stream, int]
    ) -> None:
        for stream, silent_ns in broken_ns.items():
            bound_ns = usual_ns[stream] + round(self._suspect_ns * LOOKS) + SLACK_NS
            has_all = self._needs(stream) <= healthy and not (fault.node == CONTROLLER_ID and stream[0] in NEED_CONTROLLER)
            if has_all and silent_ns > bound_ns:
                raise InvariantViolated(
                    "I31",
                    f"a client could not {stream[0]} for {silent_ns / NS_PER_S:.2f} s ({usual_ns[stream] / NS_PER_S:.2f} s "
                    f"before the fault) in {stream[1]}-{stream[2]}, which needs no replica on the disk of: {fault}",
                )
