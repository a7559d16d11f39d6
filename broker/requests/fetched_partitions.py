"""One Fetch request, until it is answered: looks its partitions up, reads them, and builds the answer (shell).

`fetch.py` calls the steps and waits in between. A fetch of a session looks only at the partitions that its request names and
at those that have changed (`Partition.fetch_watchers`). All others would be answered with what the client already knows.

1. A fetch cut short by a limit or by the end of a segment must not wait. The missing bytes are already there, and waiting
   would not add them to this response.
2. A partition whose answer held records, an error, or less than there is has to be looked at again with the next fetch of
   the session, even if nothing changes: the client may ask for the same once more. Those that got nothing come first then.
3. A consumer that names its rack may be sent to a follower (KIP-392, `broker/core/replica_selector.py`). The follower serves
   it up to the high watermark that the follower knows, so with such a selector followers must learn it soon: the leader
   answers the fetch of an ISR member as soon as the high watermark is above the one it sent before (KAFKA-9731). A follower
   whose directory is suspected of hanging sends its consumers back to the leader.
4. A read may wait for its disk, and thousands of partitions are looked up, read and answered in slices. Leaders may change
   meanwhile. What was looked up before counts only while the partition is what it was then: a deposed leader must not answer
   with records that it has since got from its successor.
5. A follower outside the ISR gets no records of a throttled partition while the leader's replication quota is exceeded
   (KIP-73). Such a fetch waits until the quota allows more, and new bytes of that partition do not end the wait.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from broker.core.fetch_session_cache import FINAL_EPOCH
from broker.core.partition_replica import SessionClock
from broker.core.replica_selector import ReplicaSelector, preferred_read_replica
from broker.hosting.client_reads import DirectorySuspected
from broker.hosting.partition import Partition
from broker.hosting.purgatory import PartitionWatcher, WatchedPartitions
from broker.hosting.readable_bytes import ReadIsolation
from broker.hosting.replicas import Replicas
from broker.requests.current_leader import LEADER_MOVED, name_leaders
from common.environment.interface import LogDirError
from common.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicIdPartition, Uuid
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
    SnapshotId,
)
from common.records.batch import BatchError
from common.slices import ELEMENTS_PER_SLICE, pause
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.log import Log
from common.storage.log_segments import LogRead
from common.storage.read_limits import ReadLimits
from common.storage.transaction_index import AbortedTransaction as IndexedTransaction

TOPIC_ID_FIRST_VERSION = 13
_CURRENT_LEADER_FIRST_VERSION = 16
# From this version on, a client names its rack and understands that it may be sent to a follower.
_FOLLOWER_READS_FIRST_VERSION = 11
# Clients of earlier versions need not know KAFKA_STORAGE_ERROR.
_STORAGE_ERROR_FIRST_VERSION = 6
_NO_PREFERENCE = -1
# The data of a partition between two fetches of its session. The answers must not stay in memory.
_NO_DATA = PartitionData()
# What most answers say. Never changed: another epoch or leader is a new object.
_NO_EPOCH = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()

_BeginReading = Callable[[], Coroutine[Any, Any, tuple[LogRead, Sequence[IndexedTransaction] | None]]]


class FetchedPartition(PartitionWatcher):
    """One partition of a fetch or of a fetch session. `partition` is None if `data` holds an error."""

    __slots__ = (
        "data",
        "is_cut",
        "is_left_out",
        "is_paced",
        "is_sent_away",
        "key",
        "partition",
        "size",
        "told",
        "topic",
        "topic_id",
        "view",
        "wanted",
    )

    def __init__(
        self, watched: "WatchedPartitions[FetchedPartition]", topic: str, topic_id: Uuid, wanted: FetchPartition
    ) -> None:
        super().__init__(watched, ReadIsolation.HIGH_WATERMARK)
        self.topic = topic
        self.topic_id = topic_id
        self.key = TopicIdPartition(TopicId(topic_id), wanted.partition)
        # What the client asks for. Always the same partition.
        self.wanted = wanted
        self.data = _NO_DATA
        self.partition: Partition | None = None
        # What the partition was for its readers when it was looked up (rule 4).
        self.view: tuple[object, ...] = ()
        self.size = 0
        # Whether a limit or the end of a segment stopped the read before the end of the readable records.
        self.is_cut = False
        # Whether the partition was not read because its directory is suspected of hanging.
        self.is_left_out = False
        # Whether the client is a follower that has to wait for the replication quota.
        self.is_paced = False
        # Whether the answer has no records, because the client must truncate its log or should read from a follower.
        self.is_sent_away = False
        # The high watermark, the last stable offset and the log start in the last answer. None if the client has to be told
        # again.
        self.told: tuple[int, int, int] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the answer has no records, and stays the same until the partition changes."""
        is_whole = not (self.size or self.is_cut or self.is_left_out or self.is_held_back)
        return self.partition is not None and is_whole and not self.is_sent_away

    @property
    def is_outdated(self) -> bool:
        """Whether the partition has another role or leader than when it was looked up (rule 4)."""
        return self.partition is not None and self.partition.readers_view() != self.view

    @property
    def marks(self) -> tuple[int, int, int]:
        return self.data.high_watermark, self.data.last_stable_offset, self.data.log_start_offset

    @property
    def has_news(self) -> bool:
        """Whether the answer tells the client anything that it does not know from the answer before."""
        return self.partition is None or self.size > 0 or self.is_sent_away or self.told != self.marks

    def watch(self, partition: Partition) -> None:
        """Watches this partition, and no other one."""
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition
        partition.fetch_watchers.add(self)

    def unwatch(self) -> None:
        if self.partition is not None:
            self.partition.fetch_watchers.discard(self)
            self.partition = None

    def fail(self, error: ErrorCode) -> None:
        """Replaces the data with an error."""
        self.unwatch()
        self.is_sent_away = False
        self.data = _data(self.wanted.partition, self.data.aborted_transactions)
        self.data.error_code = error

    def take(self, read: LogRead, upper_offset: Offset) -> None:
        """Puts what was read into the answer."""
        self.data.records = read.parts
        self.size = read.size
        self.is_cut = read.next_offset < upper_offset

    def answered(self) -> None:
        """Notes that the client gets the answer."""
        self.told = None if self.partition is None or self.is_sent_away else self.marks
        self.is_sent_away = False
        self.data = _NO_DATA


class Fetch:
    """See the module docstring."""

    def __init__(
        self,
        replicas: Replicas,
        context: RequestContext,
        request: FetchRequest,
        watched: WatchedPartitions[FetchedPartition],
        *,
        clock: SessionClock | None,
        names_all: bool,
        response_bytes_max: int,
        selector: ReplicaSelector | None,
    ) -> None:
        """`watched.changed` holds the partitions to look at. `clock` belongs to the session of a follower. If `names_all`,
        the answer names every partition, even without news."""
        self.watched = watched
        self._replicas = replicas
        self._selector = selector
        self._quota = replicas.leader_quota
        self._context = context
        self._request = request
        self._clock = clock
        self._names_all = names_all
        self._bytes_max = min(request.max_bytes, response_bytes_max)
        self._replica_id, self._replica_epoch = fetching_replica(request)
        self.is_follower = self._replica_id >= 0
        self._isolation = ReadIsolation.LOG_END if self.is_follower else _consumer_isolation(request)
        # The partitions that were looked at. Those that were not read since are in `_unread`, too.
        self._seen: dict[FetchedPartition, None] = {}
        self._unread: list[FetchedPartition] = []
        # Those that a follower has not confirmed since they changed.
        self._unconfirmed: dict[FetchedPartition, None] = {}
        # Invariant: the sum of `size` over `_seen`, and over those of them that are paced.
        self._size = 0
        self._paced_size = 0
        # Whether a partition's answer may have an error.
        self._has_failures = False
        # Whether anything else may have happened since the unread partitions were looked up (rule 4).
        self._has_paused = False

    # --- looking up ----------------------------------------------------------------------------------------------

    async def look_up(self, *, confirms: bool) -> None:
        """Finds and checks the partitions that have changed. Errors and diverging epochs are final answers. If the client is
        a follower and the fetch `confirms`, notes that it has written everything below the offsets it asks for."""
        self._has_paused = False
        changed, self.watched.changed = self.watched.changed, {}
        for number, item in enumerate(changed):
            if number and number % ELEMENTS_PER_SLICE == 0:
                await self._pause()
            self._look_up_one(item, confirms=confirms and self.is_follower)
            self._seen[item] = None
            self._unread.append(item)
            if self.is_follower and not confirms:
                self._unconfirmed[item] = None

    async def _pause(self) -> None:
        self._has_paused = True
        await pause()

    def note_time(self, now_ns: int) -> None:
        """Notes that the follower confirmed all partitions of its session, also those that were not looked at: they are
        where they were, with nothing new."""
        if self._clock is not None:
            self._clock.last_fetch_ns = now_ns

    def note_wait(self) -> None:
        """Notes that the client begins to wait."""
        if not self.is_follower:
            for _, partition in self._readable():
                partition.note_wait()

    def stop_watching(self) -> None:
        for item in self._seen:
            item.unwatch()
        self.watched.changed.clear()

    def look_again(self) -> None:
        """Marks the partitions as changed that might be answered differently now even if they have not changed."""
        for item in self._seen:
            if not item.is_settled:
                item.note_change()

    def _look_up_one(self, item: FetchedPartition, *, confirms: bool) -> None:
        self._forget_read(item)
        wanted = item.wanted
        item.is_sent_away = False
        item.data = data = _data(wanted.partition, [] if self._request.isolation_level == READ_COMMITTED else None)
        if self._context.api_version >= TOPIC_ID_FIRST_VERSION:
            found = self._replicas.find(item.key)
        else:
            found = self._replicas.find_named(item.topic, wanted.partition)
        if isinstance(found, ErrorCode):
            self._fail(item, found)
            return
        diverging_epoch = _diverging_epoch(found, wanted)
        error = self._error_of(found, wanted, diverging_epoch)
        is_other_log = error is ErrorCode.OFFSET_OUT_OF_RANGE or diverging_epoch.epoch >= 0
        if confirms and is_other_log and self._is_halt_notice(wanted):
            # The follower cannot cut its log while its disk hangs, and the producers must not wait for it.
            found.follower_halted(self._replica_id)
        if error is not ErrorCode.NONE:
            self._fail(item, error)
            return
        if confirms and diverging_epoch.epoch < 0 and not (self._clock is not None and self._clock.is_over):
            self._confirm(found, wanted)
        data.high_watermark = found.high_watermark
        data.last_stable_offset = found.last_stable_offset
        data.log_start_offset = found.log.log_start_offset
        data.diverging_epoch = diverging_epoch
        item.is_sent_away = diverging_epoch.epoch >= 0
        if self._selector is not None:
            data.preferred_read_replica = self._preferred_read_replica(found, wanted, self._selector)
            item.is_sent_away = item.is_sent_away or data.preferred_read_replica != _NO_PREFERENCE
            # Whether consumers may read from the client.
            item.ends_with_high_watermark = self.is_follower and self._replica_id in found.replica.committed_isr
        item.watch(found)
        item.view = found.readers_view()
        item.isolation = self._isolation
        item.seen_bytes = found.readable_bytes(self._isolation)
        # The confirmation itself may have advanced the high watermark. The answer has the new one.
        self.watched.changed.pop(item, None)

    def _fail(self, item: FetchedPartition, error: ErrorCode) -> None:
        self._has_failures = True
        if self._clock is not None and item.partition is not None:
            # A session does not confirm the offset of a partition with an error.
            item.partition.replica.left_session(self._clock)
        item.fail(error)

    def _forget_read(self, item: FetchedPartition) -> None:
        if item in self._seen:
            self._size -= item.size
            self._paced_size -= item.size if item.is_paced else 0
        item.size = 0
        item.is_cut = item.is_left_out = item.is_paced = item.is_held_back = False

    def _error_of(self, partition: Partition, wanted: FetchPartition, diverging_epoch: EpochEndOffset) -> ErrorCode:
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
        if wanted.last_fetched_epoch >= 0 and wanted.last_fetched_epoch > log.leader_epochs.latest_epoch:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if diverging_epoch.epoch >= 0:
            # A follower whose log has diverged may ask for an offset beyond our log end. The diverging epoch helps it more
            # than OFFSET_OUT_OF_RANGE would.
            return ErrorCode.NONE
        # A new leader may have appends of the former one still on their way to its disk. A follower that has written them
        # already must wait here and not truncate.
        return ErrorCode.NONE if wanted.fetch_offset <= log.log_end_offset else ErrorCode.OFFSET_OUT_OF_RANGE

    def _role_error(self, partition: Partition, wanted: FetchPartition) -> ErrorCode:
        if self.is_follower or self._context.api_version < _FOLLOWER_READS_FIRST_VERSION:
            return partition.leader_error(wanted.current_leader_epoch)
        error = partition.read_error(wanted.current_leader_epoch)
        if error is ErrorCode.NONE and not partition.is_leader and partition.directory_id in self._replicas.suspected:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def _preferred_read_replica(self, partition: Partition, wanted: FetchPartition, selector: ReplicaSelector) -> int:
        """Returns the follower from which the client should read, or -1."""
        if self.is_follower or not self._request.rack_id or not partition.is_leader:
            return _NO_PREFERENCE
        chosen = preferred_read_replica(
            partition.replica,
            selector,
            client_rack=self._request.rack_id,
            listener_name=self._context.listener_name,
            fetch_offset=Offset(wanted.fetch_offset),
        )
        return _NO_PREFERENCE if chosen is None else chosen

    def _confirm(self, partition: Partition, wanted: FetchPartition) -> None:
        partition.follower_fetched(
            self._replica_id,
            fetch_offset=Offset(wanted.fetch_offset),
            log_start_offset=Offset(wanted.log_start_offset),
            broker_epoch=self._replica_epoch,
            clock=self._clock,
            is_halted=self._is_halt_notice(wanted),
        )

    def _is_halt_notice(self, wanted: FetchPartition) -> bool:
        """Whether a follower says that its disk may hang (`broker/hosting/halt_notices.py`). In a session, 0 bytes are the
        follower's replica.fetch.max.bytes."""
        return self.is_follower and self._request.session_epoch == FINAL_EPOCH and wanted.partition_max_bytes == 0

    # --- reading -------------------------------------------------------------------------------------------------

    def _readable(self) -> Iterator[tuple[FetchedPartition, Partition]]:
        """Yields the partitions that can be read."""
        for item in self._seen:
            if item.partition is not None and not item.is_sent_away:
                yield item, item.partition

    async def read(self, now_ns: int) -> None:
        """Looks up where the records are, in the partitions that were looked up since the last call. Stays within the limits
        of each partition, of the whole response and of the quota."""
        unread, self._unread = self._unread, []
        paced_bytes_max: int | None = None
        for number, item in enumerate(unread):
            if number and number % ELEMENTS_PER_SLICE == 0:
                await self._pause()
            if self._has_paused and item.is_outdated:
                self._look_up_late(item)
            partition = item.partition
            if partition is None or item.is_sent_away:
                continue
            upper_offset = partition.readable_end(self._isolation)
            if item.wanted.fetch_offset >= upper_offset:
                continue
            if self._is_halt_notice(item.wanted) or partition.directory_id in self._replicas.suspected:
                # Reading from a disk that hangs would hold up the records of all others.
                item.is_left_out = True
                continue
            limit = min(item.wanted.partition_max_bytes, self._bytes_max - self._size)
            item.is_paced = self.is_follower and partition.replica.is_paced_to(self._replica_id)
            if item.is_paced:
                if paced_bytes_max is None:
                    paced_bytes_max = self._quota.allowed_bytes(now_ns)
                paced_left = paced_bytes_max - self._paced_size
                item.is_held_back = paced_left <= 0
                if item.is_held_back:
                    continue
                limit = min(limit, paced_left)
            if limit <= 0 and self._size:
                item.is_cut = True
                continue
            # The first batch of a response is sent whole even if it exceeds the limits. Otherwise a client could never get
            # past it.
            reading = self._begin_to_read(
                item, partition.log, upper_offset=upper_offset, limit=limit, whole_batch=not self._size
            )
            if reading is not None:
                self._has_paused = True
                await self._read(item, partition, reading, upper_offset)
            self._size += item.size
            self._paced_size += item.size if item.is_paced else 0
            if reading is not None and item.is_outdated:
                self._look_up_late(item)
                # This fetch reads it again before it waits, or the next one of the session does. What is readable already
                # would not end a wait.
                item.note_change()

    def _look_up_late(self, item: FetchedPartition) -> None:
        """Looks a partition up again during `read`. The offset of a follower is confirmed with its next fetch."""
        self._look_up_one(item, confirms=False)
        if self.is_follower:
            self._unconfirmed[item] = None

    def _begin_to_read(
        self, item: FetchedPartition, log: Log, *, upper_offset: Offset, limit: int, whole_batch: bool
    ) -> _BeginReading | None:
        """Reads what is known in memory or in the page cache. Returns None if that is all; otherwise what reads the log, and
        the aborted transactions if the client asks for them and there may be any."""
        offset = item.wanted.fetch_offset
        is_committed = self._isolation is ReadIsolation.TXN_COMMITTED
        # A follower's log gets the batches without records as well.
        limits = ReadLimits(limit, upper_offset, min_one_batch=whole_batch, skips_empty=not self.is_follower)
        read: LogRead | None = None
        if not is_committed or not log.may_have_aborted(offset):
            try:
                read = log.read_at_once(offset, limits)
            except (OffsetOutOfRange, LogDirError, LogClosed) as error:
                self._fail(item, _code_of(error))
                return None
        if read is not None:
            item.take(read, upper_offset)
            return None
        if is_committed:
            return partial(log.read_with_aborted, offset, limits)
        return partial(_without_aborted, partial(log.read, offset, limits))

    async def _read(
        self, item: FetchedPartition, partition: Partition, begin_reading: _BeginReading, upper_offset: Offset
    ) -> None:
        try:
            read, aborted = await self._replicas.client_reads.read(partition.directory_id, begin_reading)
        except DirectorySuspected:
            item.is_left_out = True
        except (OffsetOutOfRange, LogDirError, LogClosed, BatchError) as error:
            # A deposed leader may have truncated its log meanwhile (rule 4). The client must not reset its offset for that.
            if not item.is_outdated:
                self._fail(item, _code_of(error))
        else:
            item.take(read, upper_offset)
            if aborted is not None:
                item.data.aborted_transactions = [
                    AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
                ]

    def resume_times(self, now_ns: int) -> list[int]:
        """Returns when the quota may allow more, if it holds back a partition of this fetch."""
        for item in self._seen:
            if item.is_held_back:
                return [self._quota.resume_ns(now_ns)]
        return []

    # --- answering -----------------------------------------------------------------------------------------------

    def is_answered(self) -> bool:
        """Whether there are enough bytes, or anything else to report to the client at once."""
        for item in self._seen:
            if item.partition is None or item.is_sent_away:
                return True
        return self._is_cut() or self.missing_bytes() <= 0 or self._owes_high_watermark()

    def _owes_high_watermark(self) -> bool:
        return self._selector is not None and any(
            item.ends_with_high_watermark
            and partition.replica.owes_high_watermark(self._replica_id, Offset(item.data.high_watermark))
            for item, partition in self._readable()
        )

    def _is_cut(self) -> bool:
        """Whether waiting is useless, because a second read would stop at the same place."""
        # A read is also cut if the high watermark lies inside a batch, and such a read may be empty. If all reads are empty,
        # do wait: after an empty answer the client would fetch again at once, in a busy loop.
        return self._size > 0 and any(item.is_cut for item in self._seen)

    def missing_bytes(self) -> int:
        """Returns how many more bytes the client waits for, as far as they fit in one response."""
        return min(self._request.min_bytes, self._bytes_max) - self._size

    async def response(self, now_ns: int) -> FetchResponse:
        """Returns the answer. The fetch must not be used any more."""
        topics: list[FetchableTopicResponse] = []
        # What the next fetch of the session looks at, in this order (rule 2).
        without_records: list[FetchedPartition] = []
        with_records: list[FetchedPartition] = []
        for number, item in enumerate(self._seen):
            if number and number % ELEMENTS_PER_SLICE == 0:
                await pause()
            self._count(item, now_ns)
            if self._names_all or item.has_news:
                # The order is that of the reads, and clients take the records in it: a topic may stand there more than once.
                if not topics or (topics[-1].topic, topics[-1].topic_id) != (item.topic, item.topic_id):
                    topics.append(FetchableTopicResponse(topic=item.topic, topic_id=item.topic_id))
                topics[-1].partitions.append(item.data)
                self._note_told(item)
            if item.size:
                with_records.append(item)
            elif not item.is_settled:
                without_records.append(item)
            item.answered()
        self._put_off(without_records, with_records)
        response = FetchResponse(responses=topics)
        if self._has_failures and self._context.api_version < _STORAGE_ERROR_FIRST_VERSION:
            _replace_storage_errors(response)
        if self._has_failures and self._context.api_version >= _CURRENT_LEADER_FIRST_VERSION:
            response.node_endpoints = self._name_leaders(response)
        return response

    def _count(self, item: FetchedPartition, now_ns: int) -> None:
        partition = item.partition
        if partition is not None:
            if self.is_follower and partition.replica.is_leader_throttled:
                self._quota.count(item.size, now_ns, is_paced=item.is_paced)
            self._replicas.traffic.fetched(partition.topic, size=item.size, is_follower=self.is_follower)

    def _note_told(self, item: FetchedPartition) -> None:
        if self.is_follower and item.partition is not None:
            item.partition.replica.note_high_watermark_sent(self._replica_id, Offset(item.data.high_watermark))

    def _put_off(self, without_records: list[FetchedPartition], with_records: list[FetchedPartition]) -> None:
        """Leaves to the next fetch of the session what is not settled, and what it has to confirm."""
        changed = dict.fromkeys(without_records)
        changed.update(self.watched.changed)
        changed.update(self._unconfirmed)
        changed.update(dict.fromkeys(with_records))
        self.watched.changed = changed

    def _name_leaders(self, response: FetchResponse) -> list[NodeEndpoint]:
        state = self._replicas.state
        moved = (
            (data, state.partition(TopicId(topic.topic_id), data.partition_index))
            for topic in response.responses
            for data in topic.partitions
            if data.error_code in LEADER_MOVED
        )
        return name_leaders(state, self._context.listener_name, moved, LeaderIdAndEpoch, NodeEndpoint)


def _data(index: int, aborted_transactions: list[AbortedTransaction] | None) -> PartitionData:
    """Returns an answer without records, whose high watermark is unknown."""
    return PartitionData(
        partition_index=index,
        high_watermark=-1,
        diverging_epoch=_NO_EPOCH,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=aborted_transactions,
        records=b"",
    )


async def _without_aborted(read_log: Callable[[], Awaitable[LogRead]]) -> tuple[LogRead, None]:
    return await read_log(), None


def _code_of(error: Exception) -> ErrorCode:
    """Returns what a client gets if a read fails with this error."""
    if isinstance(error, OffsetOutOfRange):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.CORRUPT_MESSAGE if isinstance(error, BatchError) else ErrorCode.KAFKA_STORAGE_ERROR


def fetching_replica(request: FetchRequest) -> tuple[BrokerId, BrokerEpoch]:
    """Returns the id and the epoch of the broker that sent the request; -1 for a consumer, or if it has none."""
    # Depending on the version, a follower's id is in one of the two fields; the other has its default.
    state = request.replica_state
    return BrokerId(state.replica_id if state.replica_id >= 0 else request.replica_id), BrokerEpoch(state.replica_epoch)


def _consumer_isolation(request: FetchRequest) -> ReadIsolation:
    return ReadIsolation.TXN_COMMITTED if request.isolation_level == READ_COMMITTED else ReadIsolation.HIGH_WATERMARK


def _replace_storage_errors(response: FetchResponse) -> None:
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


def _diverging_epoch(partition: Partition, wanted: FetchPartition) -> EpochEndOffset:
    """Returns where the client's last epoch ended in this log if the client has records beyond that (KIP-595). Otherwise
    returns the default, with epoch -1."""
    log = partition.log
    if wanted.last_fetched_epoch < 0:
        return _NO_EPOCH
    known = log.leader_epochs.end_offset_for(LeaderEpoch(wanted.last_fetched_epoch), log.written_offset)
    if known.epoch < wanted.last_fetched_epoch or known.end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=known.epoch, end_offset=known.end_offset)
    return _NO_EPOCH
