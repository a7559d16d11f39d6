"""What is hosted: the directories that are online, and the replicas in them (shell).

Plain tables. `Replicas` changes them; loading, upkeep, deletion and reload look things up. Easy to get wrong: a directory
that went offline is taken out at once, with its replicas, while jobs that began in it still hold the object.
"""

from broker.core.placement import PlacedReplicas
from broker.hosting.directory_lane import DirectoryLane
from broker.hosting.directory_logs import CheckpointFiles
from broker.hosting.partition import Partition
from common.environment.interface import LogDir
from common.ids import DirectoryId, TopicIdPartition


class HostedDirectory:
    """An online directory: what is placed there, its lanes and its checkpoint files."""

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

    def __init__(self) -> None:
        self.directories: dict[DirectoryId, HostedDirectory] = {}
        self.partitions: dict[TopicIdPartition, Partition] = {}

    def in_directory(self, directory_id: DirectoryId) -> list[Partition]:
        """The replicas whose current log is there."""
        return [partition for partition in self.partitions.values() if partition.directory_id == directory_id]

    def directory_of(self, partition: Partition) -> HostedDirectory | None:
        """None when it went offline."""
        return self.directories.get(partition.directory_id)
