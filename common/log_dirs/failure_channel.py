"""Receives the I/O errors of all directories, decides at once, and lets one consumer carry out the effects (shell).

Counterpart of Kafka's LogDirFailureChannel and its handler thread. LogDir calls `report` on the event loop before the task
that awaits the operation sees the error. `report` steps the core in the same call, so the directory is already offline when
that task or any other checks its state. The effects (closing files, stopping replicas, notifying the controller) are queued
for a single consumer, because `report` may be called in the middle of an append or a send.

Handling a failure may make other operations on the same directory fail. The core ignores those reports, because the
directory is already offline.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from common.environment.disk_errors import OPERATIONS
from common.environment.interface import Environment, LogDir, LogDirError
from common.log_dirs.log_directories import CameOnline, Effect, HaltNode, LogDirectories, Trouble, WentOffline
from common.time_units import NS_PER_S

# A process that is short of files fails thousands of operations a second. One line is logged in this time, with the number.
WARNING_INTERVAL_NS: Final = 10 * NS_PER_S


class FailureChannel:
    """Passes each error to `directories.step`. Calls `on_offline` once per failed directory, and `halt(reason)` if the node
    must stop."""

    def __init__(
        self,
        env: Environment,
        directories: LogDirectories,
        *,
        on_offline: Callable[[WentOffline], None],
        halt: Callable[[str], None],
    ) -> None:
        self._env = env
        self._directories = directories
        self._on_offline = on_offline
        self._halt = halt
        # The current LogDir of each path. `watch` adds or replaces entries; none is removed.
        self._log_dirs: dict[str, LogDir] = {}
        # Effects that the core decided and the consumer has not carried out yet, each with the error that caused them.
        self._decided: asyncio.Queue[tuple[LogDirError, list[Effect]]] = asyncio.Queue()
        # By (path, errno): when the last warning was logged, and how many errors there have been since.
        self._warned: dict[tuple[str, int], tuple[int, int]] = {}
        self.io_errors: dict[tuple[str, str], int] = {}
        """The number of errors by (path, operation), for the metrics. A dead disk often has one error only, and Prometheus
        sees no increase in a series that begins with it, so every directory begins with zeros."""

    def watch(self, log_dirs: Iterable[LogDir]) -> None:
        """Makes these directories report their errors to this channel."""
        for log_dir in log_dirs:
            self._log_dirs[log_dir.path] = log_dir
            for operation in OPERATIONS:
                self.io_errors.setdefault((log_dir.path, operation), 0)
            log_dir.on_error = self.report

    def report(self, error: LogDirError) -> None:
        """Processes one error. Called on the event loop."""
        counted = (error.log_dir, error.operation)
        self.io_errors[counted] = self.io_errors.get(counted, 0) + 1
        effects = self._directories.step(error)
        if effects:
            self._decided.put_nowait((error, effects))

    async def run(self) -> None:
        """Carries out the queued effects, in order. The only consumer; runs until cancelled."""
        while True:
            error, effects = await self._decided.get()
            for effect in effects:
                self._carry_out(effect, error)

    def _carry_out(self, effect: Effect, error: LogDirError) -> None:
        match effect:
            case WentOffline(log_dir, directory_id, cause, is_full):
                self._log_dirs[log_dir].take_offline(error)
                self._env.log.error(
                    "log_dir_failed", log_dir=log_dir, directory_id=directory_id, cause=cause, is_full=is_full
                )
                self._on_offline(effect)
            case Trouble():
                self._warn(effect, error)
            case HaltNode(reason):
                self._halt(reason)
            case CameOnline():
                raise AssertionError("no error brings a directory online")

    def _warn(self, trouble: Trouble, error: LogDirError) -> None:
        """Logs the error and how many of its kind it stands for, unless the last such line is fresh."""
        key, now_ns = (error.log_dir, error.errno_code), self._env.now_ns()
        logged_ns, unlogged = self._warned.get(key, (now_ns - WARNING_INTERVAL_NS, 0))
        if now_ns - logged_ns < WARNING_INTERVAL_NS:
            self._warned[key] = logged_ns, unlogged + 1
            return
        self._warned[key] = now_ns, 0
        self._env.log.warning(
            "log_dir_warning",
            log_dir=trouble.log_dir,
            directory_id=trouble.directory_id,
            cause=trouble.cause,
            errors=unlogged + 1,
        )
