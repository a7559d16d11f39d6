"""Tables of the log directories with their lanes, and of the replicas in them (shell).

`Replicas` changes the tables; loading, upkeep, deletion and reload read them. The tables do not record which directories
are online: every lookup asks `LogDirectories`. A job that began before its directory went offline may still hold the
directory's object.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from broker.core.placement import PlacedReplicas
from broker.hosting.checkpoint_files import CheckpointFiles
from broker.hosting.directory_lane import DirectoryLane
from broker.hosting.partition import Partition
from common.environment.interface import LogDir
from common.ids import DirectoryId, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories
from common.storage.log import Log


class HostedDirectory:
    """One directory with its replicas, its lanes and its checkpoint files. Exists once the directory is first loaded."""

    def __init__(self, directory_id: DirectoryId, log_dir: LogDir) -> None:
        self.directory_id = directory_id
        self.log_dir = log_dir
        self.files = CheckpointFiles(log_dir)
        self.replicas = PlacedReplicas()
        # Copies of interrupted moves that are still open. An orderly end closes them, and leaves no clean-shutdown marker if
        # one of them cannot be closed.
        self.unclosed: list[Log] = []
        # `work` is for jobs that a replica waits for, such as its creation. `upkeep` is for periodic jobs and other jobs
        # that can wait. With a single lane, a long sync would delay creations.
        self.work = DirectoryLane()
        self.upkeep = DirectoryLane()

    def stop(self) -> None:
        """Drops the jobs that have not begun."""
        self.work.stop()
        self.upkeep.stop()


class Hosted:
    """The tables: all directories and replicas, by id."""

    def __init__(self, log_directories: LogDirectories) -> None:
        self._log_directories = log_directories
        # Every directory loaded by this process. Invariant: never shrinks. The offline directories have been stopped, or
        # will be stopped once the failure channel has handled the error.
        self._directories: dict[DirectoryId, HostedDirectory] = {}
        # The replicas whose logs are loaded. Changes when: a log is loaded, created or deleted, or goes offline.
        self._partitions: dict[TopicIdPartition, Partition] = {}
        # The same replicas by the directory of their current log, so that work on one directory need not look at all of
        # them. Invariant: `_partitions` and these dictionaries have the same members, and so have the checkpoint files.
        self._in_directory: dict[DirectoryId, dict[TopicIdPartition, Partition]] = {}
        # How many of the replicas each topic has. Invariant: no zeros.
        self._of_topic: dict[str, int] = {}
        # The replicas whose logs came, went or may have changed in size since the metrics looked last. A dict used as an
        # ordered set.
        self.resized: dict[TopicIdPartition, None] = {}
        # Whether the metrics look at all. Set once. Until then nothing is noted about a replica that has left.
        self.are_sizes_read = False

    def add(self, directory: HostedDirectory) -> None:
        """Adds a directory that is about to be loaded."""
        self._directories[directory.directory_id] = directory

    @property
    def partitions(self) -> Mapping[TopicIdPartition, Partition]:
        """The replicas whose logs are loaded."""
        return self._partitions

    @property
    def topics(self) -> Collection[str]:
        """The names of the topics of these replicas."""
        return self._of_topic.keys()

    def add_partition(self, partition: Partition) -> None:
        """Adds a replica whose log was loaded or created."""
        assert partition.key not in self._partitions
        self._partitions[partition.key] = partition
        self._in_directory.setdefault(partition.directory_id, {})[partition.key] = partition
        self._of_topic[partition.topic] = self._of_topic.get(partition.topic, 0) + 1
        self._directories[partition.directory_id].files.add(partition)
        self.resized[partition.key] = None

    def remove_partition(self, partition: Partition) -> None:
        """Removes a replica that is no longer placed here or whose directory is offline."""
        del self._partitions[partition.key]
        del self._in_directory[partition.directory_id][partition.key]
        left = self._of_topic.pop(partition.topic) - 1
        if left:
            self._of_topic[partition.topic] = left
        self._directories[partition.directory_id].files.remove(partition)
        if self.are_sizes_read:
            self.resized[partition.key] = None
        else:
            self.resized.pop(partition.key, None)

    def moved(self, partition: Partition, source: DirectoryId) -> None:
        """Notes that the current log of this replica is in another directory than `source` now. Does nothing if the replica
        has left meanwhile."""
        if self._partitions.get(partition.key) is partition:
            del self._in_directory[source][partition.key]
            self._directories[source].files.remove(partition)
            self._in_directory.setdefault(partition.directory_id, {})[partition.key] = partition
            self._directories[partition.directory_id].files.add(partition)

    def stop(self, directory_id: DirectoryId) -> None:
        """Drops the jobs that have not begun in a directory that went offline."""
        directory = self._directories.get(directory_id)
        if directory is not None:
            directory.stop()

    def online_directory(self, directory_id: DirectoryId) -> HostedDirectory | None:
        """Returns the directory, or None if it is offline."""
        return self._directories.get(directory_id) if self._log_directories.is_online(directory_id) else None

    def online_directories(self) -> list[HostedDirectory]:
        """Returns the online directories in configuration order."""
        online = self._log_directories.online
        return [self._directories[directory_id] for directory_id in online if directory_id in self._directories]

    @property
    def any_offline(self) -> bool:
        """Whether any configured directory is offline."""
        return self._log_directories.any_offline

    def served(self, key: TopicIdPartition) -> Partition | None:
        """Returns the replica, unless its directory has failed a moment ago and the replica is still to be closed."""
        partition = self._partitions.get(key)
        return partition if partition is not None and self._log_directories.is_online(partition.directory_id) else None

    def each_served(self, partitions: Iterable[Partition]) -> Iterator[Partition]:
        """Yields those that are served when their turn comes. One that has left must not act any more: the same replica may
        be here again as another object."""
        for partition in partitions:
            if self.served(partition.key) is partition:
                yield partition

    def in_directory(self, directory_id: DirectoryId) -> list[Partition]:
        """Returns the replicas whose current log is in this directory."""
        return list(self._in_directory.get(directory_id, {}).values())

    def count_in(self, directory_id: DirectoryId) -> int:
        """Returns the number of replicas whose current log is in this directory."""
        return len(self._in_directory.get(directory_id, ()))

    def futures_in(self, directory_id: DirectoryId) -> list[Log]:
        """Returns the future logs in this directory."""
        futures = [partition.future for partition in self._partitions.values()]
        return [each.log for each in futures if each is not None and each.directory_id == directory_id]

    def directory_of(self, partition: Partition) -> HostedDirectory | None:
        """Returns the directory of the current log, or None if it is offline."""
        return self.online_directory(partition.directory_id)
