"""Requests that wait at partitions: produce for replication, fetch for new bytes (shell).

Counterpart of Kafka's DelayedOperationPurgatory with DelayedProduce and DelayedFetch. Nothing polls: a partition notifies
its waiters when its high watermark, its last stable offset or its written end moves, and each request has one timer for its
deadline.

1. A waiting request must be notified of everything that can end the wait, including a lost leadership and a failed
   directory. Otherwise its client waits for the whole timeout.
2. A fetch is also notified of everything that its answer would tell. A fetch session looks only at the partitions that
   changed (KIP-227); a change that it is not notified of would never reach its client.
3. Between two requests of a session, a partition notifies it of the first change only. What has changed is looked at again
   anyway, and the sessions of clients that went away must not make later appends slower.
4. New records end the waits of followers at once if a producer or a consumer waits for the high watermark, or if the last
   records came FOLLOWERS_DELAY_NS ago or earlier. Otherwise, in a stream of acks=1 without a consumer that keeps up, they
   end the waits FOLLOWERS_DELAY_NS later, and what has come by then is sent together: a round of replication costs the
   brokers several times as much as an append.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from broker.hosting.readable_bytes import ReadableBytes, ReadIsolation
from common.environment.interface import Environment
from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS

FOLLOWERS_DELAY_NS = 3 * NS_PER_MS


class ReplicationWaiters:
    """The appends to one partition that are waiting for the high watermark to reach their end."""

    def __init__(self) -> None:
        # The end offset and the callback of each waiting append, and whether it waits for a hung follower, too. Invariant:
        # the offsets ascend.
        self._waiting: deque[tuple[Offset, Callable[[ErrorCode], None], bool]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, required_offset: Offset, on_done: Callable[[ErrorCode], None], *, is_patient: bool = False
    ) -> Callable[[], None]:
        """Calls `on_done` once, when the high watermark has reached the offset or can no longer do so, or in
        `complete_impatient`. Returns a function that cancels the wait."""
        waiting = (required_offset, on_done, is_patient)
        index = len(self._waiting)
        # Appends are written in order, but the duplicate of an earlier batch ends before appends that already wait.
        while index and self._waiting[index - 1][0] > required_offset:
            index -= 1
        self._waiting.insert(index, waiting)
        # `remove` does not search long: a request that gives up has usually waited longest and is at the front.
        return lambda: self._waiting.remove(waiting)

    def complete_up_to(self, high_watermark: Offset, error: ErrorCode) -> None:
        """Answers all appends that end at or below the high watermark with `error`."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._waiting.popleft()[1](error)

    def complete_beyond(self, end_offset: Offset, error: ErrorCode) -> None:
        """Answers all appends that end beyond `end_offset` with `error`: the log no longer holds them."""
        lost = [each for each in self._waiting if each[0] > end_offset]
        self._waiting = deque(each for each in self._waiting if each[0] <= end_offset)
        for _, on_done, _ in lost:
            on_done(error)

    def complete_impatient(self, error: ErrorCode) -> None:
        """Answers the appends that are not patient with `error`: their records stay, but may take long to be replicated."""
        ended = [each for each in self._waiting if not each[2]]
        self._waiting = deque(each for each in self._waiting if each[2])
        for _, on_done, _ in ended:
            on_done(error)

    def complete_all(self, error: ErrorCode) -> None:
        """Answers all appends with `error`: this broker can no longer acknowledge them."""
        waiting, self._waiting = self._waiting, deque()
        for _, on_done, _ in waiting:
            on_done(error)


class FetchWait:
    """The wait of one fetch until `min_bytes` more have become readable in its partitions."""

    def __init__(self, env: Environment, *, min_bytes: int, deadline_ns: int) -> None:
        self._missing_bytes = min_bytes
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancel_deadline = env.call_at(deadline_ns, self.end)

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    def more_bytes(self, count: int) -> None:
        """Notes that a partition of the fetch has `count` more bytes to read."""
        self._missing_bytes -= count
        if self._missing_bytes <= 0:
            self.end()

    def end(self) -> None:
        """Ends the wait, because there are enough bytes, the deadline passed, or a partition changed. The fetch then reads
        again and answers."""
        self._cancel_deadline()
        if not self._ended.done():
            self._ended.set_result(None)

    async def until_over(self) -> None:
        await self._ended


WatcherT = TypeVar("WatcherT", bound="PartitionWatcher")


class WatchedPartitions(Generic[WatcherT]):
    """The partitions of one fetch, or of one fetch session."""

    __slots__ = ("changed", "wait")

    def __init__(self) -> None:
        # The partitions that have changed since they were looked at, in the order in which they are to be read.
        self.changed: dict[WatcherT, None] = {}
        # The fetch that waits for these partitions. None while no fetch waits.
        self.wait: FetchWait | None = None

    def end_wait(self) -> None:
        if self.wait is not None:
            self.wait.end()


class PartitionWatcher:
    """Watches one partition for a fetch or a fetch session, from `FetchWatchers.add` on."""

    __slots__ = ("ends_with_high_watermark", "is_held_back", "isolation", "seen_bytes", "watched")

    def __init__(self, watched: WatchedPartitions[Any], isolation: ReadIsolation) -> None:
        self.watched = watched
        # Which bytes end a wait.
        self.isolation = isolation
        # The partition's count of readable bytes as of the last look or notification.
        self.seen_bytes = 0
        # Whether the client gets no records of this partition for now, so that new bytes must not end a wait.
        self.is_held_back = False
        # Whether a wait ends as soon as the high watermark advances (KIP-392).
        self.ends_with_high_watermark = False

    def note_change(self) -> None:
        """Notes that the partition has to be looked at again."""
        self.watched.changed[self] = None

    def note_readable(self, counts: ReadableBytes) -> None:
        """Notes that one of the counts may have changed, or the high watermark or the log start."""
        self.note_change()
        if self.isolation is not ReadIsolation.LOG_END:
            self.count_readable(counts)

    def count_readable(self, counts: ReadableBytes) -> None:
        """Counts what has become readable towards the bytes for which the fetch waits."""
        if self.is_held_back or self.watched.wait is None:
            return
        now_bytes = counts.of(self.isolation)
        if now_bytes > self.seen_bytes:
            more, self.seen_bytes = now_bytes - self.seen_bytes, now_bytes
            self.watched.wait.more_bytes(more)

    def end_wait(self) -> None:
        """Notes a change that the client has to learn at once."""
        self.note_change()
        self.watched.end_wait()


class FetchWatchers:
    """The watchers of one partition. Each leaves when it was notified while no fetch waits for its partitions."""

    def __init__(self) -> None:
        # A dict used as an ordered set.
        self._watchers: dict[PartitionWatcher, None] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, watcher: PartitionWatcher) -> None:
        self._watchers[watcher] = None

    def discard(self, watcher: PartitionWatcher) -> None:
        self._watchers.pop(watcher, None)

    def changed(self) -> None:
        """Notes that a fetch may have something to do at the partition, which it may learn with its next request."""
        self._notify(PartitionWatcher.note_change)

    def readable(self, counts: ReadableBytes) -> None:
        """Notes that one of the counts may have changed, or the high watermark or the log start."""
        if self._watchers:
            self._notify(lambda watcher: watcher.note_readable(counts))

    @property
    def has_waiting_follower(self) -> bool:
        return any(
            watcher.watched.wait is not None and watcher.isolation is ReadIsolation.LOG_END for watcher in self._watchers
        )

    @property
    def has_waiting_consumer(self) -> bool:
        """Whether a consumer waits here, or perhaps at a follower that waits here (KIP-392)."""
        return any(
            watcher.watched.wait is not None
            and (watcher.isolation is not ReadIsolation.LOG_END or watcher.ends_with_high_watermark)
            for watcher in self._watchers
        )

    def wake_followers(self, counts: ReadableBytes) -> None:
        """Ends the waits of the followers that have enough to read."""
        for watcher in self._watchers:
            if watcher.isolation is ReadIsolation.LOG_END:
                watcher.count_readable(counts)

    def high_watermark_advanced(self) -> None:
        """Ends the waits of the followers that are to learn the high watermark at once."""
        for watcher in list(self._watchers):
            if watcher.ends_with_high_watermark:
                watcher.end_wait()

    def end_waits_of_followers(self) -> None:
        """Ends the waits of the followers, which have something else than records to learn. Consumers go on waiting."""
        for watcher in list(self._watchers):
            if watcher.isolation is ReadIsolation.LOG_END:
                watcher.end_wait()

    def end_waits(self) -> None:
        """Ends all waits, because the partition changed and every waiting fetch can be answered."""
        self._notify(PartitionWatcher.end_wait)

    def _notify(self, notify: Callable[[PartitionWatcher], None]) -> None:
        for watcher in list(self._watchers):
            notify(watcher)
            if watcher.watched.wait is None:
                del self._watchers[watcher]


class FollowersWake:
    """Ends the waits of the followers of one partition when there are new records (rule 4)."""

    __slots__ = ("_counts", "_env", "_is_due", "_noted_ns", "_watchers")

    def __init__(self, env: Environment, watchers: FetchWatchers, counts: ReadableBytes) -> None:
        self._env = env
        self._watchers = watchers
        self._counts = counts
        # Whether the waits are to end within FOLLOWERS_DELAY_NS.
        self._is_due = False
        # When there were last records for which no producer waited.
        self._noted_ns = 0

    def note_records(self, *, is_awaited: bool) -> None:
        """Notes that records were written. `is_awaited` is whether a producer waits for the high watermark."""
        if is_awaited:
            self._wake()
            return
        now_ns = self._env.now_ns()
        is_stream = now_ns - self._noted_ns < FOLLOWERS_DELAY_NS
        self._noted_ns = now_ns
        if not is_stream or self._watchers.has_waiting_consumer:
            self._wake()
        elif not self._is_due and self._watchers.has_waiting_follower:
            self._is_due = True
            self._env.call_at(now_ns + FOLLOWERS_DELAY_NS, self._wake)

    def hurry(self) -> None:
        """Notes that a producer or a consumer begins to wait for the high watermark."""
        if self._is_due:
            self._wake()

    def _wake(self) -> None:
        self._is_due = False
        self._watchers.wake_followers(self._counts)
