"""Where every I/O error of every directory arrives: one queue, one consumer, the first report of a directory wins (shell).

Answers to Kafka's LogDirFailureChannel and its handler thread. LogDir calls `report` on the loop before the task that
awaits the operation sees the error, so the directory is known to be failing when that task answers its client. Easy to get
wrong: what is done about a failure may itself fail operations of the same directory; those reports must change nothing.
"""

import asyncio
from collections.abc import Callable, Mapping

from common.environment.interface import Environment, LogDir, LogDirError
from common.ids import DirectoryId
from common.log_dirs.log_directories import HaltNode, LogDirectories, Trouble, WentOffline


class FailureChannel:
    """Consumes errors; calls `on_offline(path, cause)` once per directory, and `halt(reason)` when the node must end.

    `id_of_path` is for the events, so that one query by directory.id tells a failure from its first error on."""

    def __init__(
        self,
        env: Environment,
        directories: LogDirectories,
        *,
        id_of_path: Callable[[str], DirectoryId | None],
        on_offline: Callable[[str, str], None],
        halt: Callable[[str], None],
    ) -> None:
        self._env = env
        self._directories = directories
        self._id_of_path = id_of_path
        self._on_offline = on_offline
        self._halt = halt
        self._log_dirs: dict[str, LogDir] = {}
        self._errors: asyncio.Queue[LogDirError] = asyncio.Queue()
        self.io_errors: dict[tuple[str, str], int] = {}
        """Errors seen, by (path, operation), for the metrics."""

    def watch(self, log_dirs: Mapping[str, LogDir]) -> None:
        """Takes over the errors of these directories, by path."""
        for path, log_dir in log_dirs.items():
            self._log_dirs[path] = log_dir
            log_dir.on_error = self.report

    def report(self, error: LogDirError) -> None:
        """Takes in one error. Called on the loop; never raises."""
        counted = (error.log_dir, error.operation)
        self.io_errors[counted] = self.io_errors.get(counted, 0) + 1
        self._errors.put_nowait(error)

    async def run(self) -> None:
        """The one consumer. Never returns."""
        while True:
            error = await self._errors.get()
            for effect in self._directories.step(error):
                match effect:
                    case WentOffline(log_dir, cause, is_full):
                        self._log_dirs[log_dir].take_offline(error)
                        self._env.log.error(
                            "log_dir_failed",
                            log_dir=log_dir,
                            directory_id=self._id_of_path(log_dir),
                            cause=cause,
                            is_full=is_full,
                        )
                        self._on_offline(log_dir, cause)
                    case Trouble(log_dir, cause):
                        directory_id = self._id_of_path(log_dir)
                        self._env.log.warning("log_dir_warning", log_dir=log_dir, directory_id=directory_id, cause=cause)
                    case HaltNode(reason):
                        self._halt(reason)
