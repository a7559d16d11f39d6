"""Looks for silent directories among the online ones, the metadata directory included (shell).

`common/log_dirs/directory_suspicion.py` decides.
"""

from collections.abc import Callable, Container, Mapping

from common.environment.interface import Environment, LogDir
from common.ids import DirectoryId
from common.log_dirs.directory_suspicion import DirectorySuspicion
from common.log_dirs.log_directories import LogDirectories
from common.metadata.directory_ids import UNASSIGNED
from common.storage.names import META_PROPERTIES_FILE
from common.time_units import NS_PER_MS


class SuspectedDirectories:
    """The directories in which nothing finishes, or did lately. `look` is to be called every `look_interval_ns`."""

    def __init__(
        self,
        env: Environment,
        *,
        suspect_after_ns: int,
        directories: LogDirectories,
        log_dirs: Mapping[DirectoryId, LogDir],
    ) -> None:
        self._env = env
        self._suspicion = DirectorySuspicion(suspect_after_ns)
        self._directories = directories
        self._log_dirs = log_dirs
        self._on_suspected: list[Callable[[DirectoryId], None]] = []
        self._on_trusted: list[Callable[[DirectoryId], None]] = []

    def __contains__(self, directory_id: object) -> bool:
        return directory_id in self._suspicion.suspected

    @property
    def unsteady(self) -> Container[DirectoryId]:
        """The directories that are suspected, or were a moment ago. Always up to date."""
        return self._suspicion.unsteady

    def subscribe(
        self, on_suspected: Callable[[DirectoryId], None], on_trusted: Callable[[DirectoryId], None] | None = None
    ) -> None:
        """Calls `on_suspected` with each directory that becomes suspected, or with UNASSIGNED after `held_back`, and
        `on_trusted` with each that no longer is suspected, or went offline."""
        self._on_suspected.append(on_suspected)
        if on_trusted is not None:
            self._on_trusted.append(on_trusted)

    def held_back(self) -> None:
        """Notifies the subscribers that requests wait for too long, although no directory is suspected."""
        for on_suspected in self._on_suspected:
            on_suspected(UNASSIGNED)

    @property
    def look_interval_ns(self) -> int:
        return self._suspicion.look_interval_ns

    def look(self) -> None:
        """Finds out which directories are suspected now, and notifies the subscribers of each new one."""
        online = {
            directory.directory_id: directory.path
            for directory in self._directories.configured
            if directory.directory_id is not None and directory.is_online
        }
        changes = self._suspicion.look(
            self._env.now_ns(),
            {directory_id: self._log_dirs[directory_id].silence_ns for directory_id in online},
            {directory_id: self._log_dirs[directory_id].awaited_sync_age_ns for directory_id in online},
        )
        for directory_id in changes.trusted:
            if directory_id in online:
                self._env.log.warning("log_dir_trusted", log_dir=online[directory_id], directory_id=directory_id)
            for on_trusted in self._on_trusted:
                on_trusted(directory_id)
        for directory_id in changes.suspected:
            silent_ms = self._log_dirs[directory_id].silence_ns // NS_PER_MS
            self._env.log.warning(
                "log_dir_suspected", log_dir=online[directory_id], directory_id=directory_id, silent_ms=silent_ms
            )
            for on_suspected in self._on_suspected:
                on_suspected(directory_id)
        for directory_id in self._suspicion.silent:
            # Also those that were begun since the last look.
            self._log_dirs[directory_id].give_up_regions()
        for directory_id in self._suspicion.to_try:
            # The result does not matter. If the disk hangs, this read makes the directory silent from now on.
            self._log_dirs[directory_id].read_around_cache(META_PROPERTIES_FILE)
