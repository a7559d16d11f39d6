"""What is hosted: the lanes of each log directory, and the replicas in them (shell).

Plain tables. `Replicas` changes them; loading, upkeep, deletion and reload look things up. They hold no opinion about which
directories are online: that is asked of `LogDirectories` at each look. Jobs that began in a directory still hold its object
after it went offline.
"""

from broker.core.placement import PlacedReplicas
from broker.hosting.directory_lane import DirectoryLane
from broker.hosting.directory_logs import CheckpointFiles
from broker.hosting.partition import Partition
from common.environment.interface import LogDir
from common.ids import DirectoryId, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories


class HostedDirectory:
    """One directory since it was first loaded: what is placed there, its lanes and its checkpoint files."""

    def __init__(self, directory_id: DirectoryId, log_dir: LogDir) -> None:
        self.directory_id = directory_id
        self.log_dir = log_dir
        self.files = CheckpointFiles(log_dir)
        self.replicas = PlacedReplicas()
        # What replicas wait for, and what only time asks for: a long sync must not hold up a creation.
        self.work = DirectoryLane()
        self.upkeep = DirectoryLane()

    def stop(self) -> None:
        """Drops what has not begun."""
        self.work.stop()
        self.upkeep.stop()


class Hosted:
    """The tables, by id."""

    def __init__(self, log_directories: LogDirectories) -> None:
        self._log_directories = log_directories
        # Every directory that was loaded in this life. Invariant: never shrinks; those that are offline have been stopped,
        # or are when the failure channel has had its turn.
        self._directories: dict[DirectoryId, HostedDirectory] = {}
        # The replicas whose logs are loaded. Changes when a log is loaded, created or deleted, or goes offline.
        self.partitions: dict[TopicIdPartition, Partition] = {}

    def add(self, directory: HostedDirectory) -> None:
        """A directory is about to be loaded."""
        self._directories[directory.directory_id] = directory

    def stop(self, directory_id: DirectoryId) -> None:
        """Drops what has not begun in a directory that went offline."""
        directory = self._directories.get(directory_id)
        if directory is not None:
            directory.stop()

    def online_directory(self, directory_id: DirectoryId) -> HostedDirectory | None:
        """None when it is offline."""
        return self._directories.get(directory_id) if self._log_directories.is_online(directory_id) else None

    def online_directories(self) -> list[HostedDirectory]:
        """Those that are online, in the order of the configuration."""
        online = self._log_directories.online
        return [self._directories[directory_id] for directory_id in online if directory_id in self._directories]

    def in_directory(self, directory_id: DirectoryId) -> list[Partition]:
        """The replicas whose current log is there."""
        return [partition for partition in self.partitions.values() if partition.directory_id == directory_id]

    def directory_of(self, partition: Partition) -> HostedDirectory | None:
        """None when it is offline."""
        return self.online_directory(partition.directory_id)
