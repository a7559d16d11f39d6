"""Disk operations that a log has started and that nobody awaits directly (shell).

A log rolls, syncs and deletes in the middle of plain function calls. Such work is a generator that yields operations of a
LogDir and is driven by their completion: no task is needed, and it cannot be cancelled half-way together with the request
that happened to start it. Easy to get wrong: awaiting a LogDir's own future lets the cancellation of the awaiting task
cancel it; whoever waits here waits on a future of his own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from common.environment.interface import LogDirError

T = TypeVar("T")

Steps = Generator[Awaitable[Any], Any, None]
"""Operations carried out one after the other; each `yield` gives back the result."""


def watch(
    awaitable: Awaitable[T], on_success: Callable[[T], None], on_failure: Callable[[LogDirError | None], None]
) -> None:
    """Calls one of the two on the loop when a LogDir operation has ended; None stands for "given up unfinished".

    Operations of a LogDir are futures of the running loop, because they are queued when they are called.
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
    """Counts what was started; lets others wait until nothing is left."""

    def __init__(self, on_failure: Callable[[LogDirError | None], None]) -> None:
        self._on_failure = on_failure
        self._count = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def count(self) -> int:
        return self._count

    def start(self, awaitable: Awaitable[T], on_success: Callable[[T], None]) -> None:
        """Follows one operation. A failure is reported to the log, and counts as an end."""
        self._count += 1

        def succeed(result: T) -> None:
            on_success(result)
            self._end_one()

        watch(awaitable, succeed, self._fail_one)

    def run(self, steps: Steps) -> None:
        """Carries out the steps; the first is queued at once. A step that fails ends the sequence."""
        self._count += 1
        self._continue(steps, None)

    def _continue(self, steps: Steps, result: object) -> None:
        try:
            awaitable = steps.send(result)
        except StopIteration:
            self._end_one()
        else:
            watch(awaitable, lambda following: self._continue(steps, following), self._fail_one)

    def _fail_one(self, error: LogDirError | None) -> None:
        self._on_failure(error)
        self._end_one()

    def _end_one(self) -> None:
        self._count -= 1
        if self._count == 0:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self) -> None:
        """Returns when nothing is outstanding, failed or not."""
        while self._count:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
