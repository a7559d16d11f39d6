"""What an I/O error means for the directory it came from, and for the node (core).

Answers to the decisions in Kafka's LogManager.handleLogDirFailure. The first error that fails a directory wins and later
ones of it change nothing; the last data directory, or the metadata directory, takes the node with it. Easy to get wrong: an
error can be the process's trouble or our own bug, and then no directory may pay for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import LogDirError


@dataclass(frozen=True, slots=True)
class WentOffline:
    """The directory at this path is gone for this incarnation; `cause` is the error in words."""

    log_dir: str
    cause: str
    is_full: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """Worth a loud line, but no directory failed."""

    log_dir: str
    cause: str


@dataclass(frozen=True, slots=True)
class HaltNode:
    reason: str


Effect = WentOffline | Trouble | HaltNode


class LogDirectories:
    """Which paths are online. `data_dirs` hold partitions; the metadata directory may be one of them."""

    def __init__(self, *, online_data_dirs: Sequence[str], metadata_log_dir: str) -> None:
        self._online = dict.fromkeys(online_data_dirs)
        self._metadata_log_dir = metadata_log_dir
        self._metadata_is_online = True

    def is_online(self, log_dir: str) -> bool:
        """Whether the directory at this path has not failed."""
        return log_dir in self._online or (log_dir == self._metadata_log_dir and self._metadata_is_online)

    def step(self, error: LogDirError) -> list[Effect]:
        """One I/O error came in; returns what follows from it, in order."""
        verdict = classify(error)
        if verdict is Verdict.OUR_BUG:
            return [HaltNode(f"internal error: {error}")]
        if verdict is Verdict.PROCESS_TROUBLE:
            return [Trouble(error.log_dir, f"{error}; the process is short of files or memory, the directory stays online")]
        if verdict is Verdict.DIRECTORY_FULL and error.operation in ("probe", "statvfs"):
            # The probe's small file does not fit: the directory is full, not dead. What is on it can still be read.
            return [Trouble(error.log_dir, f"{error}; the directory is full, free some space")]
        return self._take_offline(error, is_full=verdict is Verdict.DIRECTORY_FULL)

    def _take_offline(self, error: LogDirError, *, is_full: bool) -> list[Effect]:
        is_metadata = error.log_dir == self._metadata_log_dir and self._metadata_is_online
        if error.log_dir not in self._online and not is_metadata:
            return []
        had_data = error.log_dir in self._online
        self._online.pop(error.log_dir, None)
        effects: list[Effect] = [WentOffline(error.log_dir, str(error), is_full)]
        if is_metadata:
            self._metadata_is_online = False
            effects.append(HaltNode(f"the metadata directory {error.log_dir} failed: {error}"))
        elif had_data and not self._online:
            effects.append(HaltNode(f"the last log directory {error.log_dir} failed: {error}"))
        return effects
