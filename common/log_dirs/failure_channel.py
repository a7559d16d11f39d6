"""Where every I/O error of every directory arrives: judged at once, carried out by one consumer (shell).

Counterpart of Kafka's LogDirFailureChannel and its handler thread. LogDir calls `report` on the loop before the task that
awaits the operation sees the error. `report` steps the core in that same call, so that the directory is offline for everyone
who asks, whatever the task does next. What follows (files closed, replicas stopped, the controller informed) is queued for
the one consumer, because `report` may be called from the middle of an append or a send.

What is done about a failure may itself fail operations of the same directory; those reports must change nothing.
"""

import asyncio
from collections.abc import Callable, Iterable

from common.environment.interface import Environment, LogDir, LogDirError
from common.log_dirs.log_directories import CameOnline, Effect, HaltNode, LogDirectories, Trouble, WentOffline


class FailureChannel:
    """Steps `directories` with each error; calls `on_offline` once per directory, and `halt(reason)` when the node must
    end."""

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
        self._log_dirs: dict[str, LogDir] = {}
        # What the core decided and the consumer has not carried out yet, each with the error that it comes from.
        self._decided: asyncio.Queue[tuple[LogDirError, list[Effect]]] = asyncio.Queue()
        self.io_errors: dict[tuple[str, str], int] = {}
        """Errors seen, by (path, operation), for the metrics."""

    def watch(self, log_dirs: Iterable[LogDir]) -> None:
        """Takes over the errors of these directories."""
        for log_dir in log_dirs:
            self._log_dirs[log_dir.path] = log_dir
            log_dir.on_error = self.report

    def report(self, error: LogDirError) -> None:
        """Takes in one error. Called on the loop."""
        counted = (error.log_dir, error.operation)
        self.io_errors[counted] = self.io_errors.get(counted, 0) + 1
        effects = self._directories.step(error)
        if effects:
            self._decided.put_nowait((error, effects))

    async def run(self) -> None:
        """The one consumer. Never returns."""
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
            case Trouble(log_dir, directory_id, cause):
                self._env.log.warning("log_dir_warning", log_dir=log_dir, directory_id=directory_id, cause=cause)
            case HaltNode(reason):
                self._halt(reason)
            case CameOnline():
                raise AssertionError("no error brings a directory online")
