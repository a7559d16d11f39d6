"""Writes the markers of ended transactions into all of their partitions (shell).

Counterpart of Kafka's TransactionMarkerChannelManager.

1. A marker goes to the leader of its partition. What is due to one broker while a request to it is under way goes with the
   next request. This broker's own partitions are written without a connection.
2. After a transient error a marker is sent again, a backoff later, to whichever broker leads the partition then. A partition
   that has been deleted needs no marker.
3. When no partition is left, the transaction's shard is notified, and writes the Complete record.
4. The markers of a coordinator that no longer leads are dropped. Its successor finds the transaction prepared and sends
   them. If this broker loads the same partition again in the same leader epoch, the markers under way go on: one that was
   sent twice might arrive after the next transaction has begun, and end that one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from broker.coordinator.broker_channels import BrokerChannels
from broker.coordinator.coordinator_partition import CoordinatorPartition
from broker.coordinator.core.result import MarkersDue
from broker.coordinator.core.transactions.shard import TransactionShard
from common.environment.interface import Environment
from common.ids import NO_LEADER, BrokerId, TopicIdPartition
from common.metadata.state import MetadataState
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode, error_name, is_known_error
from common.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from common.time_units import NS_PER_MS, NS_PER_S

RETRY_BACKOFF_NS = 100 * NS_PER_MS
REQUEST_TIMEOUT_NS = 30 * NS_PER_S

# A newer producer epoch or a newer coordinator has already ended this transaction.
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

Owner = CoordinatorPartition[TransactionShard]
TopicPartition = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Pending:
    """The markers of one transaction that are not written yet."""

    owner: Owner
    due: MarkersDue
    left: set[TopicPartition]
    since_ns: int
    is_dropped: bool = False


@dataclass(slots=True, eq=False)
class _Target:
    """One broker: the markers that wait for the next request, and whether a task sends them."""

    waiting: dict[tuple[_Pending, TopicPartition], None] = field(default_factory=dict)
    is_sending: bool = False


class MarkerSender:
    """See the module docstring. `write_here` writes the markers of partitions that this broker leads."""

    def __init__(
        self,
        env: Environment,
        state: MetadataState,
        *,
        broker_id: BrokerId,
        channels: BrokerChannels,
        write_here: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]],
        task_group: asyncio.TaskGroup,
    ) -> None:
        self._env = env
        self._state = state
        self._broker_id = broker_id
        self._channels = channels
        self._write_here = write_here
        self._task_group = task_group
        # By the transaction's partition of __transaction_state and its transactional id.
        self._pending: dict[tuple[TopicIdPartition, str], _Pending] = {}
        self._targets: dict[BrokerId, _Target] = {}
        # Why a broker did not answer, as last logged, so that retries do not log it again. An answer removes the entry.
        self._troubles: dict[BrokerId, str] = {}
        # Markers whose partitions have no leader, or whose last attempt failed. One timer retries them all.
        self._retries: dict[tuple[_Pending, TopicPartition], None] = {}
        self._cancel_retry: Callable[[], None] | None = None

    def __len__(self) -> int:
        """How many transactions wait for markers."""
        return len(self._pending)

    @property
    def retries(self) -> int:
        """How many markers wait for another attempt."""
        return len(self._retries)

    @property
    def oldest_age_ns(self) -> int:
        """How long the transaction has waited that has waited longest. 0 if none waits."""
        now_ns = self._env.now_ns()
        return max((now_ns - pending.since_ns for pending in self._pending.values()), default=0)

    def send(self, owner: Owner, due: MarkersDue) -> None:
        """Starts to write the markers. Calls `markers_written` of the owner's shard once they all are."""
        key = (owner.partition.key, due.transactional_id)
        known = self._pending.get(key)
        if known is not None and known.due == due and known.owner.leader_epoch == owner.leader_epoch:
            # Rule 4: loaded again.
            known.owner = owner
            return
        if known is not None:
            known.is_dropped = True
        pending = self._pending[key] = _Pending(owner, due, set(due.partitions), self._env.now_ns())
        self._place((pending, each) for each in sorted(due.partitions))
        self._maybe_complete(pending)

    def drop(self, owner: Owner) -> None:
        """Drops the markers of a partition of `__transaction_state` that this broker no longer leads."""
        for key, pending in list(self._pending.items()):
            if pending.owner is owner:
                pending.is_dropped = True
                del self._pending[key]

    def close(self) -> None:
        """Ends the connections."""
        if self._cancel_retry is not None:
            self._cancel_retry()
        self._channels.close()

    # --- placing -------------------------------------------------------------------------------------------------

    def _place(self, markers: Iterable[tuple[_Pending, TopicPartition]]) -> None:
        for pending, partition in markers:
            if pending.is_dropped:
                continue
            leader = self._leader(partition)
            if leader is None:
                pending.left.discard(partition)
            elif leader == NO_LEADER:
                self._retry_later(pending, partition)
            else:
                target = self._targets.setdefault(leader, _Target())
                target.waiting[pending, partition] = None
                self._begin_sending(leader, target)

    def _leader(self, partition: TopicPartition) -> BrokerId | None:
        """Returns the leader, NO_LEADER if there is none now, or None if the partition does not exist any more."""
        name, index = partition
        topic = self._state.topic_named(name)
        registration = None if topic is None else topic.partitions.get(index)
        return None if registration is None else registration.leader

    def _retry_later(self, pending: _Pending, partition: TopicPartition) -> None:
        self._retries[pending, partition] = None
        if self._cancel_retry is None:
            self._cancel_retry = self._env.call_at(self._env.now_ns() + RETRY_BACKOFF_NS, self._retry)

    def _retry(self) -> None:
        self._cancel_retry = None
        retries, self._retries = self._retries, {}
        self._place(retries)
        for pending in dict.fromkeys(pending for pending, _ in retries):
            self._maybe_complete(pending)

    # --- sending -------------------------------------------------------------------------------------------------

    def _begin_sending(self, broker_id: BrokerId, target: _Target) -> None:
        if not target.is_sending:
            target.is_sending = True
            self._task_group.create_task(self._send_waiting(broker_id, target), name=f"txn-markers-{broker_id}")

    async def _send_waiting(self, broker_id: BrokerId, target: _Target) -> None:
        try:
            while target.waiting:
                markers = [(pending, each) for pending, each in target.waiting if not pending.is_dropped]
                target.waiting.clear()
                if markers:
                    await self._send_once(broker_id, markers)
        finally:
            target.is_sending = False

    async def _send_once(self, broker_id: BrokerId, markers: list[tuple[_Pending, TopicPartition]]) -> None:
        try:
            response = await self._request(broker_id, _request(markers))
            self._troubles.pop(broker_id, None)
        except ChannelError as error:
            if self._troubles.get(broker_id) != str(error):
                self._troubles[broker_id] = str(error)
                self._env.log.warning("transaction_markers_not_sent", broker_id=broker_id, reason=str(error))
            response = WriteTxnMarkersResponse()
        results = {
            (marker.producer_id, topic.name, each.partition_index): ErrorCode(each.error_code)
            if is_known_error(each.error_code)
            else ErrorCode.UNKNOWN_SERVER_ERROR
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        for pending, partition in markers:
            result = results.get((pending.due.producer_id, *partition), ErrorCode.REQUEST_TIMED_OUT)
            self._answered(pending, partition, result)

    async def _request(self, broker_id: BrokerId, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if broker_id == self._broker_id:
            return await self._write_here(request)
        deadline_ns = self._env.now_ns() + REQUEST_TIMEOUT_NS
        response: WriteTxnMarkersResponse = await self._channels.send(broker_id, request, deadline_ns=deadline_ns)
        return response

    def _answered(self, pending: _Pending, partition: TopicPartition, error: ErrorCode) -> None:
        if pending.is_dropped:
            return
        if error is ErrorCode.NONE:
            pending.left.discard(partition)
            self._maybe_complete(pending)
        elif error in _FENCED:
            self._env.log.warning(
                "transaction_markers_fenced",
                transactional_id=pending.due.transactional_id,
                partition=f"{partition[0]}-{partition[1]}",
                error=error_name(error),
            )
            pending.is_dropped = True
            self._forget(pending)
        else:
            self._retry_later(pending, partition)

    def _maybe_complete(self, pending: _Pending) -> None:
        if pending.left or pending.is_dropped:
            return
        pending.is_dropped = True
        self._forget(pending)
        pending.owner.perform_unasked(lambda shard, now: [shard.markers_written(now, pending.due)])

    def _forget(self, pending: _Pending) -> None:
        key = (pending.owner.partition.key, pending.due.transactional_id)
        if self._pending.get(key) is pending:
            del self._pending[key]


def _request(markers: list[tuple[_Pending, TopicPartition]]) -> WriteTxnMarkersRequest:
    by_transaction: dict[_Pending, dict[str, list[int]]] = {}
    for pending, (topic, index) in markers:
        by_transaction.setdefault(pending, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=pending.due.producer_id,
                producer_epoch=pending.due.producer_epoch,
                transaction_result=pending.due.is_commit,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
                coordinator_epoch=pending.owner.leader_epoch,
                transaction_version=pending.due.transaction_version,
            )
            for pending, topics in by_transaction.items()
        ]
    )
