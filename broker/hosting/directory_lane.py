"""Runs the jobs of one log directory one after the other (shell).

Creating a log, renaming it and writing checkpoints need disk operations, which can hang until their deadline. Each directory
has its own lanes, so a job that hangs delays only jobs of the same directory. The lane ignores I/O errors: before an error
reaches the job, the failure channel has already handled it and taken the directory offline if necessary.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from common.environment.interface import LogDirError
from common.storage.errors import LogClosed

Job = Callable[[], Awaitable[None]]


class DirectoryLane:
    """A queue of jobs, and the single task that runs them (`run`)."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[str, Job]] = deque()
        # The kinds of the queued jobs, without those that have none.
        self._kinds: set[str] = set()
        self._wake = asyncio.Event()
        self._is_busy = False
        self._is_stopped = False
        self._idle_waiters: list[asyncio.Future[None]] = []

    def submit(self, job: Job, *, kind: str = "") -> None:
        """Queues a job. A job with a `kind` is dropped if another of that kind is already queued."""
        if self._is_stopped or kind in self._kinds:
            return
        if kind:
            self._kinds.add(kind)
        self._jobs.append((kind, job))
        self._wake.set()

    def is_last(self, job: Job) -> bool:
        """Whether the job is queued and no other job was queued after it."""
        return bool(self._jobs) and self._jobs[-1][1] is job

    def stop(self) -> None:
        """Drops the jobs that have not begun. `run` ends after the current job."""
        self._is_stopped = True
        self._jobs.clear()
        self._kinds.clear()
        self._wake.set()
        if not self._is_busy:
            self._tell_idle()

    async def run(self) -> None:
        """Runs jobs until stopped."""
        while not self._is_stopped:
            if not self._jobs:
                self._wake.clear()
                await self._wake.wait()
                continue
            kind, job = self._jobs.popleft()
            self._kinds.discard(kind)
            self._is_busy = True
            try:
                await job()
            except (LogDirError, LogClosed):
                pass
            finally:
                self._is_busy = False
                # The job may hold a replica that has left, and the next job may come late.
                del job
            if not self._jobs:
                self._tell_idle()

    async def drained(self) -> None:
        """Waits until no job is queued or running."""
        while (self._jobs or self._is_busy) and not (self._is_stopped and not self._is_busy):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def _tell_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
