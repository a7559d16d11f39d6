"""What clients read from disks that may hang (shell).

A read in the kernel cannot be cancelled. So once its directory is suspected of hanging, the client is answered without it,
and its result is ignored. Otherwise the later responses on the same connection would wait for this disk, too.
`LogDir.give_up_regions` does the same for what a connection reads while it sends a response.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from common.environment.interface import LogDirError
from common.ids import DirectoryId
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.records.batch import BatchError
from common.storage.errors import LogClosed, OffsetOutOfRange

ResultT = TypeVar("ResultT")


class DirectorySuspected(Exception):
    """The directory is suspected of hanging, so no client waits for it."""


class ClientReads:
    """See the module docstring."""

    def __init__(self, suspected: SuspectedDirectories) -> None:
        self._suspected = suspected
        # The reads that clients wait for. Each future is completed if the read is given up.
        self._waiting: dict[asyncio.Future[None], DirectoryId] = {}
        suspected.subscribe(self._give_up)

    async def read(self, directory_id: DirectoryId, begin: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Returns the result of what `begin` begins to read in this directory. Raises DirectorySuspected, and the errors of
        the read."""
        if directory_id in self._suspected:
            raise DirectorySuspected
        loop = asyncio.get_running_loop()
        given_up: asyncio.Future[None] = loop.create_future()
        self._waiting[given_up] = directory_id
        reading = loop.create_task(begin(), name="client-read")
        try:
            await asyncio.wait((reading, given_up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[given_up]
            if not reading.done():
                reading.add_done_callback(_drop)
        if not reading.done():
            raise DirectorySuspected
        return reading.result()

    def _give_up(self, suspected: DirectoryId) -> None:
        for given_up, directory_id in self._waiting.items():
            if directory_id == suspected and not given_up.done():
                given_up.set_result(None)


def _drop(reading: "asyncio.Task[Any]") -> None:
    """Ignores the errors of a disk or of a log. Any other error reaches the event loop and ends the daemon."""
    with suppress(LogDirError, LogClosed, OffsetOutOfRange, BatchError, asyncio.CancelledError):
        reading.result()
