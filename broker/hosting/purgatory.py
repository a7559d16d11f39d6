"""Requests that wait for something to happen in partitions: replication for produce, new bytes for fetch (shell).

Answers to Kafka's DelayedOperationPurgatory with DelayedProduce and DelayedFetch. Nothing polls: a partition tells its
waiters when its high watermark or its written end moves, and each request has one timer for its deadline.

Easy to get wrong: a waiting request must hear of everything that can end the wait, a lost leadership and a failed directory
included, or its client waits for the whole timeout; and a request that is done must leave every partition it waited at.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from common.environment.interface import Environment
from common.ids import Offset
from common.protocol.errors import ErrorCode


class ReplicationWaiters:
    """Appends of one partition that wait until the high watermark has reached their end."""

    def __init__(self) -> None:
        # Ascending, because appends of one partition are written in their order.
        self._waiting: deque[tuple[Offset, Callable[[ErrorCode], None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, required_offset: Offset, on_done: Callable[[ErrorCode], None]) -> Callable[[], None]:
        """Calls `on_done` once, when the high watermark is there or the wait has become pointless. What is returned ends the
        wait before that."""
        waiting = (required_offset, on_done)
        self._waiting.append(waiting)
        # Those that give up have mostly waited longest and stand in front, where they are found at once.
        return lambda: self._waiting.remove(waiting)

    def complete_up_to(self, high_watermark: Offset, error: ErrorCode) -> None:
        """Everything that ends at or below the high watermark is answered with `error`."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._waiting.popleft()[1](error)

    def complete_beyond(self, end_offset: Offset, error: ErrorCode) -> None:
        """What ends past `end_offset` is no longer in the log and is answered with `error`."""
        lost = [each for each in self._waiting if each[0] > end_offset]
        self._waiting = deque(each for each in self._waiting if each[0] <= end_offset)
        for _, on_done in lost:
            on_done(error)

    def complete_all(self, error: ErrorCode) -> None:
        """Nothing of this can be acknowledged here any more."""
        waiting, self._waiting = self._waiting, deque()
        for _, on_done in waiting:
            on_done(error)


class FetchWaiter:
    """One fetch that waits until its partitions have `min_bytes` more than it has read."""

    def __init__(self, env: Environment, *, min_bytes: int, deadline_ns: int, wants_uncommitted: bool) -> None:
        self.wants_uncommitted = wants_uncommitted
        """A follower reads what is written, a consumer what is committed."""
        self._missing_bytes = min_bytes
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancel_deadline = env.call_at(deadline_ns, self.complete)

    @property
    def is_complete(self) -> bool:
        return self._answered.done()

    def more_bytes(self, count: int) -> None:
        """A partition of the fetch has this much more to read."""
        self._missing_bytes -= count
        if self._missing_bytes <= 0:
            self.complete()

    def complete(self) -> None:
        """Enough, too late, or a partition changed in another way: the fetch reads again and answers."""
        self._cancel_deadline()
        if not self._answered.done():
            self._answered.set_result(None)

    async def wait(self) -> None:
        await self._answered


class FetchWaiters:
    """The fetches that wait at one partition. `seen_bytes` is the partition's count of readable bytes at their read."""

    def __init__(self) -> None:
        self._waiting: dict[FetchWaiter, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiter: FetchWaiter, *, seen_bytes: int, readable_bytes: int) -> None:
        """Begins to wait; what became readable between the read and now counts at once."""
        self._waiting[waiter] = readable_bytes
        if readable_bytes > seen_bytes:
            waiter.more_bytes(readable_bytes - seen_bytes)

    def discard(self, waiter: FetchWaiter) -> None:
        self._waiting.pop(waiter, None)

    def readable(self, *, written_bytes: int, committed_bytes: int) -> None:
        """The partition's counts of readable bytes have moved."""
        # A list, because a completed fetch leaves only later, but nothing here may depend on that.
        for waiter, seen_bytes in list(self._waiting.items()):
            now_bytes = written_bytes if waiter.wants_uncommitted else committed_bytes
            if now_bytes > seen_bytes:
                self._waiting[waiter] = now_bytes
                waiter.more_bytes(now_bytes - seen_bytes)

    def complete_all(self) -> None:
        """The partition changed: every waiting fetch has something to tell its client."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.complete()
