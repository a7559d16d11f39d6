"""Requests that wait at partitions: produce for replication, fetch for new bytes (shell).

Counterpart of Kafka's DelayedOperationPurgatory with DelayedProduce and DelayedFetch. Nothing polls: a partition notifies
its waiters when its high watermark, its last stable offset or its written end moves, and each request has one timer for its
deadline.

A waiting request must be notified of everything that can end the wait, including a lost leadership and a failed directory.
Otherwise its client waits for the whole timeout. A finished request must be removed from every partition it waited at.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from broker.hosting.readable_bytes import ReadableBytes, ReadIsolation
from common.environment.interface import Environment
from common.ids import Offset
from common.protocol.errors import ErrorCode


class ReplicationWaiters:
    """The appends to one partition that are waiting for the high watermark to reach their end."""

    def __init__(self) -> None:
        # The end offset and the callback of each waiting append. Invariant: the offsets ascend.
        self._waiting: deque[tuple[Offset, Callable[[ErrorCode], None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, required_offset: Offset, on_done: Callable[[ErrorCode], None]) -> Callable[[], None]:
        """Calls `on_done` once, when the high watermark has reached the offset or can no longer do so. Returns a function
        that cancels the wait."""
        waiting = (required_offset, on_done)
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
        for _, on_done in lost:
            on_done(error)

    def complete_all(self, error: ErrorCode) -> None:
        """Answers all appends with `error`: this broker can no longer acknowledge them."""
        waiting, self._waiting = self._waiting, deque()
        for _, on_done in waiting:
            on_done(error)


class FetchWaiter:
    """A fetch that waits until `min_bytes` more have become readable in its partitions."""

    def __init__(self, env: Environment, *, min_bytes: int, deadline_ns: int, isolation: ReadIsolation) -> None:
        self.isolation = isolation
        """Which bytes end the wait."""
        self._missing_bytes = min_bytes
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancel_deadline = env.call_at(deadline_ns, self.complete)

    @property
    def is_complete(self) -> bool:
        return self._answered.done()

    def more_bytes(self, count: int) -> None:
        """Notes that a partition of the fetch has `count` more bytes to read."""
        self._missing_bytes -= count
        if self._missing_bytes <= 0:
            self.complete()

    def complete(self) -> None:
        """Ends the wait, because there are enough bytes, the deadline passed, or a partition changed. The fetch then reads
        again and answers."""
        self._cancel_deadline()
        if not self._answered.done():
            self._answered.set_result(None)

    async def wait(self) -> None:
        await self._answered


class FetchWaiters:
    """The fetches that wait at one partition. Each is stored with the partition's count of readable bytes as of the fetch's
    last notification."""

    def __init__(self) -> None:
        # None in place of the count: no new bytes end that wait.
        self._waiting: dict[FetchWaiter, int | None] = {}
        # Those that also end when the high watermark advances. Invariant: a subset of `_waiting`.
        self._for_high_watermark: dict[FetchWaiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiter: FetchWaiter, *, seen_bytes: int, readable_bytes: int) -> None:
        """Adds a fetch. `seen_bytes` is the count of readable bytes when the fetch read the partition. Bytes that became
        readable since then count at once."""
        self._waiting[waiter] = readable_bytes
        if readable_bytes > seen_bytes:
            waiter.more_bytes(readable_bytes - seen_bytes)

    def add_held_back(self, waiter: FetchWaiter) -> None:
        """Adds a fetch that gets no records of this partition for now, so that new bytes must not end its wait."""
        self._waiting[waiter] = None

    def end_with_high_watermark(self, waiter: FetchWaiter) -> None:
        """Ends the wait of a fetch that was added before as soon as the high watermark advances (KIP-392)."""
        self._for_high_watermark[waiter] = None

    def discard(self, waiter: FetchWaiter) -> None:
        self._waiting.pop(waiter, None)
        self._for_high_watermark.pop(waiter, None)

    def high_watermark_advanced(self) -> None:
        """Ends the waits of the followers that are to learn the high watermark at once."""
        waiting, self._for_high_watermark = self._for_high_watermark, {}
        for waiter in waiting:
            waiter.complete()

    def readable(self, counts: ReadableBytes) -> None:
        """Notifies the fetches of new readable bytes. Called when one of the counts may have changed."""
        # Iterate over a copy, because a completed fetch is removed from the dictionary. Today that happens only after this
        # loop, but we do not want to depend on that.
        for waiter, seen_bytes in list(self._waiting.items()):
            now_bytes = counts.of(waiter.isolation)
            if seen_bytes is not None and now_bytes > seen_bytes:
                self._waiting[waiter] = now_bytes
                waiter.more_bytes(now_bytes - seen_bytes)

    def complete_followers(self) -> None:
        """Ends the waits of the followers, which have something else than records to learn. Consumers go on waiting."""
        for waiter in list(self._waiting):
            if waiter.isolation is ReadIsolation.LOG_END:
                waiter.complete()

    def complete_all(self) -> None:
        """Ends all waits, because the partition changed and every waiting fetch can be answered."""
        waiting, self._waiting = self._waiting, {}
        self._for_high_watermark.clear()
        for waiter in waiting:
            waiter.complete()
