"""How far the loading of the logs has got, for the operator of a broker that starts (shell).

After a crash a start can take minutes. Until it is over, each directory that is not done logs `logs_loading` every few
seconds, and has the gauge `remainingLogsToRecover` of Kafka's LogManager. In Kafka, too, the gauge counts all logs that are
not loaded yet, whether they need recovery or not.
"""

from collections.abc import Callable
from dataclasses import dataclass

from common.environment.interface import Environment
from common.time_units import NS_PER_S

REPORT_INTERVAL_NS = 5 * NS_PER_S


@dataclass(slots=True)
class DirectoryProgress:
    """The progress in one directory. The code that loads the directory updates it."""

    log_dir: str
    remaining_logs: int = 0
    """The folders that are not loaded yet, the one that is being loaded included. 0 until the directory has been listed."""
    folder: str = ""
    """The folder of the log that is being loaded."""


class LoadingProgress:
    """The directories that are being loaded. Empty before the start and after it."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        # Changes when: the loading of a directory begins or ends.
        self._directories: list[DirectoryProgress] = []
        # Cancels the timer of the next report. Invariant: set while a directory is being loaded.
        self._cancel: Callable[[], None] | None = None

    def begin(self, log_dir: str) -> DirectoryProgress:
        """Adds a directory. `end` must follow."""
        progress = DirectoryProgress(log_dir)
        self._directories.append(progress)
        if self._cancel is None:
            self._report_later()
        return progress

    def end(self, progress: DirectoryProgress) -> None:
        """Removes a directory, loaded or not."""
        self._directories.remove(progress)
        if not self._directories and self._cancel is not None:
            self._cancel()
            self._cancel = None

    def remaining_logs(self) -> dict[str, int]:
        """Returns the number of logs to load by the path of the directory, for the directories that are being loaded."""
        return {each.log_dir: each.remaining_logs for each in self._directories}

    def _report_later(self) -> None:
        self._cancel = self._env.call_at(self._env.now_ns() + REPORT_INTERVAL_NS, self._report)

    def _report(self) -> None:
        for each in self._directories:
            self._env.log.info("logs_loading", log_dir=each.log_dir, remaining_logs=each.remaining_logs, folder=each.folder)
        self._report_later()
