"""The directories of a running node: which LogDir is which id, what is online, what was lost (shell state, no I/O).

Filled by the start-up scan and changed only by `mark_offline`. Easy to get wrong: an offline directory keeps its id here
when it was known, since the controller must hear which directory failed; one that was unreadable at start has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from common.environment.interface import LogDir, SpaceStat
from common.ids import BrokerEpoch, DirectoryId


@dataclass(frozen=True, slots=True)
class OfflineDirectory:
    """A configured directory that is not in use. `directory_id` is None when it could not even be read at start."""

    path: str
    directory_id: DirectoryId | None
    cause: str


class OpenDirectories:
    """Data directories by id in the order of configuration, and the metadata directory, which may be one of them."""

    def __init__(
        self,
        *,
        cluster_id: str,
        metadata: LogDir,
        metadata_directory_id: DirectoryId,
        online: Mapping[DirectoryId, LogDir],
        offline: Mapping[str, OfflineDirectory],
        configured: tuple[str, ...],
        previous_broker_epoch: BrokerEpoch | None,
    ) -> None:
        self.cluster_id = cluster_id
        self.metadata = metadata
        self.metadata_directory_id = metadata_directory_id
        self.online: dict[DirectoryId, LogDir] = dict(online)
        self.offline: dict[str, OfflineDirectory] = dict(offline)
        self.configured = configured
        """Paths of log.dirs, online or not."""
        self.previous_broker_epoch = previous_broker_epoch
        """The epoch that every directory's clean-shutdown marker names; None after anything but a complete clean end."""
        self.space: dict[DirectoryId, SpaceStat] = {}
        """What the last look at each file system said."""
        self._ids = {log_dir.path: directory_id for directory_id, log_dir in online.items()}

    @property
    def any_offline(self) -> bool:
        return bool(self.offline)

    @property
    def all_by_path(self) -> dict[str, LogDir]:
        """Every open directory, the metadata directory included."""
        by_path = {log_dir.path: log_dir for log_dir in self.online.values()}
        by_path.setdefault(self.metadata.path, self.metadata)
        return by_path

    def directory_id(self, log_dir: LogDir) -> DirectoryId:
        """The id of an open data directory, online or lost since. Raises KeyError for any other."""
        return self._ids[log_dir.path]

    def id_of_path(self, path: str) -> DirectoryId | None:
        """The id of a directory that was open once, the metadata directory included."""
        return self.metadata_directory_id if path == self.metadata.path else self._ids.get(path)

    def mark_offline(self, path: str, cause: str) -> DirectoryId | None:
        """Moves a data directory to the offline ones; returns its id, or None when it was not online."""
        directory_id = self._ids.get(path)
        if directory_id is None or directory_id not in self.online:
            return None
        del self.online[directory_id]
        self.offline[path] = OfflineDirectory(path, directory_id, cause)
        return directory_id
