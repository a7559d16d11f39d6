"""One fetch session: the partitions that a client fetches, kept from request to request (shell). See KIP-227.

Counterpart of Kafka's FetchSession. The first request of a session names all partitions. Each later one names only those
that are new or are to be fetched differently, and those that are no longer to be fetched. Requests are numbered by epochs:
after a request with an unexpected epoch, the client starts over.
"""

import asyncio
from collections.abc import Callable, Iterable

from broker.core.fetch_session_cache import INITIAL_EPOCH, FetchSessionCache, next_epoch
from broker.core.partition_replica import SessionClock
from broker.hosting.purgatory import WatchedPartitions
from broker.requests.fetched_partitions import FetchedPartition, fetching_replica
from common.ids import Uuid
from common.metrics_exposition import Sample, counter, gauge
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from common.slices import ELEMENTS_PER_SLICE, pause

# A topic's name and id, one of which has its default depending on the version, and the index of a partition.
_Key = tuple[str, Uuid, int]


class FetchSession:
    """See the module docstring. `len` is the number of partitions."""

    def __init__(
        self,
        session_id: int,
        request: FetchRequest,
        *,
        by_id: bool,
        asked_as: tuple[object, ...],
        now_ns: int,
        on_closed: Callable[[], object],
    ) -> None:
        """Begins without partitions. `by_id` is whether requests name topics by their ids. For `asked_as` see `take_over`.
        Calls `on_closed` when the session has left the cache."""
        self.session_id = session_id
        self._by_id = by_id
        self.is_follower = fetching_replica(request)[0] >= 0
        self.created_ns = self.used_ns = now_ns
        self.watched: WatchedPartitions[FetchedPartition] = WatchedPartitions()
        self.clock = SessionClock(now_ns)
        # Held by the request that is being handled. At most one of a session is, in the order of their arrival.
        self.lock = asyncio.Lock()
        # The number of requests that wait for the lock.
        self.queued = 0
        self.is_closed = False
        self._epoch = next_epoch(INITIAL_EPOCH)
        self._items: dict[_Key, FetchedPartition] = {}
        # What the answers depend on apart from the partitions, as of the last request.
        self._asked_as = asked_as
        self._on_closed = on_closed

    def __len__(self) -> int:
        return len(self._items)

    def advance(self, epoch: int, *, by_id: bool, now_ns: int) -> ErrorCode:
        """Notes the arrival of a request, unless it does not have the epoch that comes next, or names topics in another way
        than the session. Then returns the error, and the session stays as it was."""
        if epoch != self._epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if by_id != self._by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._epoch = next_epoch(epoch)
        self.used_ns = now_ns
        return ErrorCode.NONE

    async def take_over(self, request: FetchRequest, *, asked_as: tuple[object, ...]) -> None:
        """Applies the changes that a later request makes. If `asked_as` differs from that of the last request, every
        partition has to be looked at again."""
        self._forget(request.forgotten_topics_data)
        if asked_as != self._asked_as:
            for item in self._items.values():
                item.note_change()
        self._asked_as = asked_as
        await self.want(request.topics)

    async def want(self, topics: Iterable[FetchTopic]) -> None:
        """Fetches these partitions from now on, in this way. All others stay as they are."""
        number = 0
        for topic in topics:
            for wanted in topic.partitions:
                self._want_one(topic, wanted)
                number += 1
                if number % ELEMENTS_PER_SLICE == 0:
                    await pause()

    def _want_one(self, topic: FetchTopic, wanted: FetchPartition) -> None:
        key = (topic.topic, topic.topic_id, wanted.partition)
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = FetchedPartition(self.watched, topic.topic, topic.topic_id, wanted)
        elif wanted.current_leader_epoch != item.wanted.current_leader_epoch:
            # The client may have ignored an answer of the old epoch. Send the high watermark again, even if it is unchanged.
            item.told = None
        item.wanted = wanted
        item.note_change()

    def _forget(self, topics: Iterable[ForgottenTopic]) -> None:
        for topic in topics:
            for index in topic.partitions:
                item = self._items.pop((topic.topic, topic.topic_id, index), None)
                if item is not None:
                    self._stop_fetching(item)

    def _stop_fetching(self, item: FetchedPartition) -> None:
        if item.partition is not None:
            item.partition.replica.left_session(self.clock)
        item.unwatch()
        self.watched.changed.pop(item, None)

    def close(self) -> None:
        """Stops watching the partitions. A request that is being handled ends soon."""
        self.is_closed = self.clock.is_over = True
        for item in self._items.values():
            item.unwatch()
        self._items.clear()
        self.watched.changed.clear()
        self.watched.end_wait()
        self._on_closed()


FetchSessions = FetchSessionCache[FetchSession]


def fetch_sessions(slots: int) -> FetchSessions:
    """Returns the place for at most `slots` sessions (max.incremental.fetch.session.cache.slots)."""
    return FetchSessionCache(slots, on_removed=FetchSession.close)


def fetch_session_samples(sessions: FetchSessions) -> list[Sample]:
    """Returns Kafka's metrics of the FetchSessionCache."""
    name = "kafka_server_fetchsessioncache_"
    return [
        gauge(f"{name}numincrementalfetchsessions", "Fetch sessions.", len(sessions)),
        gauge(f"{name}numincrementalfetchpartitionscached", "Partitions in all fetch sessions.", sessions.partitions),
        counter(
            f"{name}incrementalfetchsessionevictions", "Fetch sessions that had to leave for others.", sessions.evictions
        ),
    ]
