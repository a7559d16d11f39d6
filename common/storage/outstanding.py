"""Disk operations that a log has started and that no task awaits directly (shell).

A log rolls, syncs and deletes from within plain function calls. Such work is a generator that yields LogDir operations and
is resumed as they complete. It needs no task, and cancelling the request that happened to start it cannot stop it half-way.
A task that awaited the LogDir's own future would cancel that future when the task is cancelled, so every waiter gets a
future of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from common.environment.interface import LogDirError

T = TypeVar("T")

Steps = Generator[Awaitable[Any], Any, None]
"""Operations that run one after the other. Each `yield` returns the operation's result."""

OnFailure = Callable[[LogDirError | None], None]
"""Called with the error of an operation; None if the operation was given up unfinished."""


def watch(awaitable: Awaitable[T], on_success: Callable[[T], None], on_failure: OnFailure) -> None:
    """Calls one of the two callbacks from the event loop when a LogDir operation ends.

    `awaitable` is always a future of the running loop, because calling a LogDir operation already queues it.
    """
    assert isinstance(awaitable, asyncio.Future)

    def done(future: asyncio.Future[T]) -> None:
        if future.cancelled():
            on_failure(None)
            return
        error = future.exception()
        if error is None:
            on_success(future.result())
        elif isinstance(error, LogDirError):
            on_failure(error)
        else:
            raise error

    awaitable.add_done_callback(done)


class Outstanding:
    """Counts the operations under way and lets tasks wait until all of them have ended.

    Only the operations themselves refer to the log, which refers to this object. Otherwise only a garbage collection could
    free the two."""

    def __init__(self) -> None:
        # The number of single operations and sequences of steps that have started and not ended yet.
        self._count = 0
        # One future per waiting task. All of them complete when `_count` drops to 0.
        self._waiters: list[asyncio.Future[None]] = []
        # Those of the tasks that wait until anything ends.
        self._waiters_for_an_end: list[asyncio.Future[None]] = []

    @property
    def count(self) -> int:
        return self._count

    def begin(self) -> None:
        """Notes that an operation has started. `end` follows."""
        self._count += 1

    def end(self) -> None:
        """Notes that an operation has ended, successfully or not."""
        self._count -= 1
        if self._waiters_for_an_end:
            waiters, self._waiters_for_an_end = self._waiters_for_an_end, []
            _wake(waiters)
        if self._count == 0 and self._waiters:
            waiters, self._waiters = self._waiters, []
            _wake(waiters)

    def run(self, steps: Steps, *, on_failure: OnFailure) -> None:
        """Runs the steps. The first one is queued immediately. A step that fails ends the sequence, and its error goes to
        `on_failure`."""
        self._count += 1
        self._continue(steps, None, on_failure)

    def _continue(self, steps: Steps, result: object, on_failure: OnFailure) -> None:
        try:
            awaitable = steps.send(result)
        except StopIteration:
            self.end()
        else:
            watch(
                awaitable,
                lambda following: self._continue(steps, following, on_failure),
                partial(self._fail_one, on_failure),
            )

    def _fail_one(self, on_failure: OnFailure, error: LogDirError | None) -> None:
        on_failure(error)
        self.end()

    async def wait(self) -> None:
        """Returns when all operations have ended, successfully or not."""
        while self._count:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def wait_for_an_end(self) -> None:
        """Returns when one of the operations under way has ended. For callers that need not wait for all: in a log that
        rolls often, there may always be one."""
        assert self._count, "there is nothing to wait for"
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters_for_an_end.append(waiter)
        await waiter


def _wake(waiters: Sequence[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
