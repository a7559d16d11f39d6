"""Notes which directories a background task is using (shell).

A shutdown closes each directory once nothing uses it any more. It must not wait for all tasks of the broker: one of them may
wait for a hung disk, and the other directories would get no clean-shutdown markers before the process is killed.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from common.ids import DirectoryId


class DirectoryUses:
    """The uses under way, counted by directory."""

    def __init__(self) -> None:
        # Invariant: every count is above 0.
        self._counts: Counter[DirectoryId] = Counter()
        self._waiters: list[asyncio.Future[None]] = []

    @contextmanager
    def of(self, *directories: DirectoryId) -> Iterator[None]:
        """Counts as a use of each of these directories until the `with` block ends."""
        self._counts.update(directories)
        try:
            yield
        finally:
            self._counts.subtract(directories)
            self._counts = +self._counts
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def ended_in(self, directory_id: DirectoryId) -> None:
        """Waits until nothing uses the directory."""
        while directory_id in self._counts:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
