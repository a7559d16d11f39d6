"""Answers Fetch for consumers and followers (shell).

Counterpart of KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages and DelayedFetch. A follower's request confirms
what the follower has written. A follower reads up to the written end of the log, a consumer up to the high watermark. With
isolation.level=read_committed, a consumer reads up to the last stable offset, and also gets the aborted transactions of what
it reads, to skip their records. There are no fetch sessions: every request is a full fetch and is answered with session id
0, as KIP-227 allows. Records are sent as regions of the log's files; a read here only looks up where they are.

1. A fetch that has waited must check everything again, because the leader may have changed meanwhile. But it must not
   confirm the follower's offset again: that confirmation would carry the time after the wait, not that of the request.
2. A fetch cut short by a limit or by the end of a segment must not wait. The missing bytes are already there, and waiting
   would not add them to this response.
3. A consumer that names its rack may be sent to a follower (KIP-392, `broker/core/replica_selector.py`). The follower serves
   it up to the high watermark that the follower knows, so with such a selector followers must learn it soon: the leader
   answers the fetch of an ISR member as soon as the high watermark is above the one it sent before (KAFKA-9731).
4. A follower outside the ISR gets no records of a throttled partition while the leader's replication quota is exceeded
   (KIP-73). Such a fetch waits until the quota allows more, and new bytes of that partition do not end the wait.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from broker.core.replica_selector import ReplicaSelector, preferred_read_replica
from broker.hosting.partition import Partition
from broker.hosting.purgatory import FetchWaiter
from broker.hosting.readable_bytes import ReadIsolation
from broker.hosting.replicas import Replicas
from broker.requests.current_leader import LEADER_MOVED, name_leaders
from common.environment.interface import Environment, LogDirError
from common.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import (
    READ_COMMITTED,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from common.records.batch import BatchError
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.leader_epochs import UNDEFINED_EPOCH
from common.storage.log import Log, LogRead
from common.storage.transaction_index import AbortedTransaction as IndexedTransaction
from common.time_units import NS_PER_MS

_TOPIC_ID_FIRST_VERSION = 13
_CURRENT_LEADER_FIRST_VERSION = 16
# From this version on, a client names its rack and understands that it may be sent to a follower.
_FOLLOWER_READS_FIRST_VERSION = 11
# Clients of earlier versions need not know KAFKA_STORAGE_ERROR.
_STORAGE_ERROR_FIRST_VERSION = 6
_NO_PREFERENCE = -1
# A limit for max_wait_ms; answering early is always allowed. Without the limit, the fetch of a client that asked to wait for
# weeks and then disappeared would stay here for weeks.
_WAIT_MAX_MS = 60_000


class FetchHandler:
    """Handles Fetch; the request server calls `handle`."""

    def __init__(
        self,
        env: Environment,
        replicas: Replicas,
        *,
        response_bytes_max: int,
        selector: ReplicaSelector | None = None,
    ) -> None:
        """Without `selector`, no consumer is sent to a follower."""
        self._env = env
        self._replicas = replicas
        self._response_bytes_max = response_bytes_max
        self._selector = selector

    async def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Answers at once if there are enough bytes or something else to report; otherwise waits and reads again."""
        if request.session_id != 0:
            # We never hand out sessions. After this error the client starts over without one.
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        fetch = _Fetch(self._replicas, context, request, self._response_bytes_max, self._selector)
        deadline_ns = self._env.now_ns() + min(max(request.max_wait_ms, 0), _WAIT_MAX_MS) * NS_PER_MS
        fetch.look_up()
        fetch.confirm_follower_offsets()
        await fetch.read_all(self._env.now_ns())
        if not fetch.is_answered() and self._env.now_ns() < deadline_ns:
            await self._wait(fetch, deadline_ns)
            fetch.look_up()
            await fetch.read_all(self._env.now_ns())
        return fetch.response(self._env.now_ns())

    async def _wait(self, fetch: "_Fetch", deadline_ns: int) -> None:
        waiter = FetchWaiter(
            self._env,
            min_bytes=fetch.missing_bytes(),
            deadline_ns=min([deadline_ns, *fetch.resume_times(self._env.now_ns())]),
            isolation=fetch.isolation,
        )
        waited_at = list(fetch.readable())
        for item, partition in waited_at:
            if item.is_held_back:
                partition.fetch_waiters.add_held_back(waiter)
            else:
                readable = partition.readable_bytes(fetch.isolation)
                partition.fetch_waiters.add(waiter, seen_bytes=item.seen_bytes, readable_bytes=readable)
            if fetch.tells_high_watermark_of(partition):
                partition.fetch_waiters.end_with_high_watermark(waiter)
            if fetch.has_changed(item, partition):
                # The partition changed before this waiter was added, while other partitions were read. Nothing else would
                # wake the waiter.
                waiter.complete()
        try:
            await waiter.wait()
        finally:
            for _, partition in waited_at:
                partition.fetch_waiters.discard(waiter)


@dataclass(slots=True, eq=False)
class _Item:
    """One partition of a request. `partition` is None if `data` holds an error."""

    wanted: FetchPartition
    data: PartitionData
    partition: Partition | None
    seen_bytes: int = 0
    size: int = 0
    # Whether a limit or the end of a segment stopped the read before the end of the readable records.
    is_cut: bool = False
    # Whether the client is a follower that has to wait for the replication quota, and whether it got nothing because of it.
    is_paced: bool = False
    is_held_back: bool = False


class _Fetch:
    """One Fetch request, until it is answered."""

    def __init__(
        self,
        replicas: Replicas,
        context: RequestContext,
        request: FetchRequest,
        response_bytes_max: int,
        selector: ReplicaSelector | None,
    ) -> None:
        self._replicas = replicas
        self._selector = selector
        self._quota = replicas.leader_quota
        self._context = context
        self._request = request
        self._bytes_max = min(request.max_bytes, response_bytes_max)
        # Depending on the version, a follower's id is in one of the two fields; the other has its default.
        state = request.replica_state
        self._replica_id = BrokerId(state.replica_id if state.replica_id >= 0 else request.replica_id)
        self._replica_epoch = BrokerEpoch(state.replica_epoch)
        self._topics: list[FetchableTopicResponse] = []
        self._items: list[_Item] = []

    @property
    def is_follower(self) -> bool:
        return self._replica_id >= 0

    @property
    def isolation(self) -> ReadIsolation:
        if self.is_follower:
            return ReadIsolation.LOG_END
        if self._request.isolation_level == READ_COMMITTED:
            return ReadIsolation.TXN_COMMITTED
        return ReadIsolation.HIGH_WATERMARK

    def tells_high_watermark_of(self, partition: Partition) -> bool:
        """Whether the client is a follower from which consumers may read."""
        return self.is_follower and self._selector is not None and self._replica_id in partition.replica.committed_isr

    # --- looking up ----------------------------------------------------------------------------------------------

    def look_up(self) -> None:
        """Finds and checks every partition. Errors and diverging epochs are final answers."""
        self._topics = []
        self._items = []
        by_id = self._context.api_version >= _TOPIC_ID_FIRST_VERSION
        for topic in self._request.topics:
            # Depending on the version, the request has the topic's name or its id; the other field has its default.
            answers = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            self._topics.append(answers)
            for wanted in topic.partitions:
                if by_id:
                    found = self._replicas.find(TopicId(topic.topic_id), wanted.partition)
                else:
                    found = self._replicas.find_named(topic.topic, wanted.partition)
                item = self._look_up_one(wanted, found)
                answers.partitions.append(item.data)
                self._items.append(item)

    def _look_up_one(self, wanted: FetchPartition, found: Partition | ErrorCode) -> _Item:
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=-1,
            aborted_transactions=[] if self._request.isolation_level == READ_COMMITTED else None,
            records=b"",
        )
        if isinstance(found, ErrorCode):
            data.error_code = found
            return _Item(wanted, data, None)
        error = self._error_of(found, wanted)
        if error is not ErrorCode.NONE:
            data.error_code = error
            return _Item(wanted, data, None)
        self._fill(data, found)
        data.diverging_epoch = _diverging_epoch(found, wanted)
        data.preferred_read_replica = self._preferred_read_replica(found, wanted)
        return _Item(wanted, data, found, seen_bytes=found.readable_bytes(self.isolation))

    def _error_of(self, partition: Partition, wanted: FetchPartition) -> ErrorCode:
        error = self._role_error(partition, wanted)
        if error is not ErrorCode.NONE:
            return error
        if self.is_follower and (
            self._replica_id not in partition.replica.followers
            or partition.replica.is_stale_fetch(self._replica_id, self._replica_epoch)
        ):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log = partition.log
        if wanted.fetch_offset < log.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if wanted.last_fetched_epoch >= 0:
            known = log.leader_epochs.end_offset_for(LeaderEpoch(wanted.last_fetched_epoch), log.written_offset)
            if known.epoch == UNDEFINED_EPOCH:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            if _diverging_epoch(partition, wanted).epoch >= 0:
                # A follower whose log has diverged may ask for an offset beyond our log end. The diverging epoch helps it
                # more than OFFSET_OUT_OF_RANGE would.
                return ErrorCode.NONE
        # A new leader may have appends of the former one still on their way to its disk. A follower that has written them
        # already must wait here and not truncate.
        return ErrorCode.NONE if wanted.fetch_offset <= log.log_end_offset else ErrorCode.OFFSET_OUT_OF_RANGE

    def _role_error(self, partition: Partition, wanted: FetchPartition) -> ErrorCode:
        if self.is_follower or self._context.api_version < _FOLLOWER_READS_FIRST_VERSION:
            return partition.leader_error(wanted.current_leader_epoch)
        return partition.read_error(wanted.current_leader_epoch)

    def _preferred_read_replica(self, partition: Partition, wanted: FetchPartition) -> int:
        """Returns the follower from which the client should read, or -1."""
        if self._selector is None or self.is_follower or not self._request.rack_id or not partition.is_leader:
            return _NO_PREFERENCE
        chosen = preferred_read_replica(
            partition.replica,
            self._selector,
            client_rack=self._request.rack_id,
            listener_name=self._context.listener_name,
            fetch_offset=Offset(wanted.fetch_offset),
        )
        return _NO_PREFERENCE if chosen is None else chosen

    def has_changed(self, item: "_Item", partition: Partition) -> bool:
        """Whether a fetch that was looked up before would be answered differently now, apart from new bytes."""
        if self._role_error(partition, item.wanted) is not ErrorCode.NONE:
            return True
        return self.tells_high_watermark_of(partition) and partition.high_watermark > item.data.high_watermark

    def _fill(self, data: PartitionData, partition: Partition) -> None:
        data.high_watermark = partition.high_watermark
        data.last_stable_offset = partition.last_stable_offset
        data.log_start_offset = partition.log.log_start_offset

    def confirm_follower_offsets(self) -> None:
        """If the client is a follower, notes that it has written everything below the offsets it asks for."""
        if not self.is_follower:
            return
        for item in self._items:
            if item.partition is None or item.data.diverging_epoch.epoch >= 0:
                continue
            item.partition.follower_fetched(
                self._replica_id,
                fetch_offset=Offset(item.wanted.fetch_offset),
                log_start_offset=Offset(item.wanted.log_start_offset),
                broker_epoch=self._replica_epoch,
            )
            self._fill(item.data, item.partition)

    # --- reading -------------------------------------------------------------------------------------------------

    def readable(self) -> Iterator[tuple[_Item, Partition]]:
        """Yields the partitions that can be read."""
        for item in self._items:
            if item.partition is not None and not _is_sent_away(item):
                yield item, item.partition

    async def read_all(self, now_ns: int) -> None:
        """Looks up where the records are, within the limits of each partition, of the whole response and of the quota."""
        left = self._bytes_max
        paced_left = self._quota.allowed_bytes(now_ns)
        is_empty = True
        for item, partition in self.readable():
            if partition.directory_id in self._replicas.suspected:
                # Reading from a disk that hangs would hold up the records of all others.
                continue
            upper_offset = partition.readable_end(self.isolation)
            if item.wanted.fetch_offset >= upper_offset:
                continue
            item.is_paced = self.is_follower and partition.replica.is_paced_to(self._replica_id)
            item.is_held_back = item.is_paced and paced_left <= 0
            if item.is_held_back:
                continue
            limit = min(item.wanted.partition_max_bytes, left, paced_left if item.is_paced else left)
            if limit <= 0 and not is_empty:
                item.is_cut = True
                continue
            # The first batch of a response is sent whole even if it exceeds the limits. Otherwise a client could never get
            # past it.
            await self._read(item, partition, upper_offset=upper_offset, limit=limit, whole_batch=is_empty)
            left -= item.size
            paced_left -= item.size if item.is_paced else 0
            is_empty = is_empty and item.size == 0

    async def _read(self, item: _Item, partition: Partition, *, upper_offset: Offset, limit: int, whole_batch: bool) -> None:
        try:
            read, aborted = await self._read_log(
                partition.log, item.wanted.fetch_offset, limit=limit, upper_offset=upper_offset, whole_batch=whole_batch
            )
        except OffsetOutOfRange:
            _fail(item, ErrorCode.OFFSET_OUT_OF_RANGE)
        except (LogDirError, LogClosed):
            _fail(item, ErrorCode.KAFKA_STORAGE_ERROR)
        except BatchError:
            _fail(item, ErrorCode.CORRUPT_MESSAGE)
        else:
            item.data.records = read.parts
            if aborted is not None:
                item.data.aborted_transactions = [
                    AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
                ]
            item.size = read.size
            item.is_cut = read.next_offset < upper_offset

    async def _read_log(
        self, log: Log, offset: int, *, limit: int, upper_offset: Offset, whole_batch: bool
    ) -> tuple[LogRead, Sequence[IndexedTransaction] | None]:
        """Reads, and returns also the aborted transactions if the client asks for them."""
        if self.isolation is ReadIsolation.TXN_COMMITTED:
            return await log.read_with_aborted(offset, max_bytes=limit, upper_offset=upper_offset, min_one_batch=whole_batch)
        return await log.read(offset, max_bytes=limit, upper_offset=upper_offset, min_one_batch=whole_batch), None

    def resume_times(self, now_ns: int) -> list[int]:
        """Returns when the quota may allow more, if it holds back a partition of this fetch."""
        return [self._quota.resume_ns(now_ns)] if any(item.is_held_back for item in self._items) else []

    # --- answering -----------------------------------------------------------------------------------------------

    def is_answered(self) -> bool:
        """Whether there are enough bytes, or anything else to report to the client at once."""
        if not self._items:
            return True
        for item in self._items:
            if item.data.error_code != ErrorCode.NONE or _is_sent_away(item):
                return True
        return self._is_cut() or self.missing_bytes() <= 0 or self._owes_high_watermark()

    def _owes_high_watermark(self) -> bool:
        return any(
            self.tells_high_watermark_of(partition)
            and partition.replica.owes_high_watermark(self._replica_id, Offset(item.data.high_watermark))
            for item, partition in self.readable()
        )

    def _is_cut(self) -> bool:
        """Whether waiting is useless, because a second read would stop at the same place."""
        # A read is also cut if the high watermark lies inside a batch, and such a read may be empty. If all reads are empty,
        # do wait: after an empty answer the client would fetch again at once, in a busy loop.
        return any(item.is_cut for item in self._items) and any(item.size for item in self._items)

    def missing_bytes(self) -> int:
        """Returns how many more bytes the client waits for, as far as they fit in one response."""
        return min(self._request.min_bytes, self._bytes_max) - sum(item.size for item in self._items)

    def response(self, now_ns: int) -> FetchResponse:
        for item in self._items:
            if item.partition is not None:
                if self.is_follower and item.partition.replica.is_leader_throttled:
                    self._quota.count(item.size, now_ns, is_paced=item.is_paced)
                if self.is_follower:
                    item.partition.replica.note_high_watermark_sent(self._replica_id, Offset(item.data.high_watermark))
                self._replicas.traffic.fetched(item.partition.topic, size=item.size, is_follower=self.is_follower)
        if self._context.api_version < _STORAGE_ERROR_FIRST_VERSION:
            self._replace_storage_errors()
        response = FetchResponse(responses=self._topics)
        if self._context.api_version >= _CURRENT_LEADER_FIRST_VERSION:
            response.node_endpoints = self._name_leaders()
        return response

    def _replace_storage_errors(self) -> None:
        for item in self._items:
            if item.data.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                item.data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _name_leaders(self) -> list[NodeEndpoint]:
        state = self._replicas.state
        moved = (
            (data, state.partition(TopicId(topic.topic_id), data.partition_index))
            for topic in self._topics
            for data in topic.partitions
            if data.error_code in LEADER_MOVED
        )
        return name_leaders(state, self._context.listener_name, moved, LeaderIdAndEpoch, NodeEndpoint)


def _diverging_epoch(partition: Partition, wanted: FetchPartition) -> EpochEndOffset:
    """Returns where the client's last epoch ended in this log if the client has records beyond that (KIP-595). Otherwise
    returns the default, with epoch -1."""
    log = partition.log
    if wanted.last_fetched_epoch < 0:
        return EpochEndOffset()
    known = log.leader_epochs.end_offset_for(LeaderEpoch(wanted.last_fetched_epoch), log.written_offset)
    if known.epoch < wanted.last_fetched_epoch or known.end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=known.epoch, end_offset=known.end_offset)
    return EpochEndOffset()


def _is_sent_away(item: _Item) -> bool:
    """Whether the answer has no records, because the client must truncate its log or should read from a follower."""
    return item.data.diverging_epoch.epoch >= 0 or item.data.preferred_read_replica != _NO_PREFERENCE


def _fail(item: _Item, error: ErrorCode) -> None:
    """Replaces the item's data with an error that occurred while reading."""
    item.data.error_code = error
    item.data.high_watermark = -1
    item.data.last_stable_offset = -1
    item.data.log_start_offset = -1
    item.data.records = b""
    item.partition = None
