"""Creates the logs of the replicas that are new here, and chooses their directories (shell).

The decision about a replica may name its directory (`HostedReplicas.decide`). If it does not, the directory is the one that
a client prefers (KIP-113), or else placement chooses one (`choose_directory`).

1. A replica is hosted, and so can acknowledge anything, only once its log is durable.
2. `LogDirectories` knows that a directory is offline before a failed operation raises. A creation that fails or ends in such
   a directory therefore does nothing further: `directory_offline` has ended it or will, and the replica may be created
   elsewhere (KAFKA-8526).
3. A creation that fails in an online directory, for lack of file descriptors or memory, is tried again in that directory. If
   the log were created elsewhere, the remains would count as a second log of the same replica.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial

from broker.core.cordoned_directories import is_cordoned
from broker.core.current_configuration import CurrentConfiguration
from broker.core.hosted_replicas import HostedReplicas
from broker.core.placement import DirectoryLoad, choose_directory, replica_kind
from broker.hosting.directory_logs import create_logs
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.log_creation import LogCreation
from broker.hosting.log_deletion import LogDeletion
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import Partition
from common.environment.interface import Environment, LogDirError, SpaceStat
from common.ids import BrokerId, DirectoryId, TopicIdPartition, uuid_text
from common.log_dirs.log_directories import LogDirectories
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.storage.log import Log
from common.storage.names import partition_folder
from common.storage.new_log import NewLog
from common.time_units import NS_PER_S

_RETRY_NS = NS_PER_S
_FREE_INODES_MIN = 100
# Until a file system has been checked for the first time, it counts as having enough space.
_UNKNOWN_SPACE = SpaceStat(total_bytes=0, usable_bytes=1 << 62, free_inodes=0)


class ReplicaCreation:
    """See the module docstring. `host` hosts a replica whose log was created, `reconcile` decides about a replica again, and
    `logs_created` is called after each creation, because the gate to unfencing may wait for it."""

    def __init__(
        self,
        env: Environment,
        *,
        broker_id: BrokerId,
        state: MetadataState,
        configuration: CurrentConfiguration,
        directories: LogDirectories,
        free_bytes_min: int,
        known: HostedReplicas,
        hosted: Hosted,
        deletion: LogDeletion,
        timers: NamedTimers,
        unsteady: Container[DirectoryId],
        host: Callable[[str, TopicIdPartition, HostedDirectory, Log], Partition],
        reconcile: Callable[[TopicIdPartition], None],
        logs_created: Callable[[], None],
    ) -> None:
        self._env = env
        self._broker_id = broker_id
        self._state = state
        self._configuration = configuration
        self._log_directories = directories
        self._free_bytes_min = free_bytes_min
        self._known = known
        self._hosted = hosted
        self._deletion = deletion
        self._timers = timers
        self._unsteady = unsteady
        self._host = host
        self._reconcile = reconcile
        self._logs_created = logs_created
        # Maps each replica whose log is being created to the directory of that log. Invariant: no such replica is hosted.
        # Changes when: a creation begins or ends, or its directory goes offline.
        self._creating: dict[TopicIdPartition, DirectoryId] = {}
        # Where the logs of each directory are created.
        self._creations: dict[DirectoryId, LogCreation] = {}
        # Rule 3: the half-created logs: replica to (directory, folder). Changes when: a creation fails in this way, a retry
        # succeeds, or the replica is no longer placed here.
        self._unfinished: dict[TopicIdPartition, tuple[DirectoryId, str]] = {}

    def add_directory(self, directory: HostedDirectory) -> None:
        """Adds a directory whose logs are loaded, so that logs can be created there."""
        self._creations[directory.directory_id] = LogCreation(directory.work, partial(self._create_logs, directory))

    def is_under_way(self, key: TopicIdPartition) -> bool:
        """Whether the log of this replica is being created."""
        return key in self._creating

    def creating_in(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory in which the log of this replica is being created, if any."""
        return self._creating.get(key)

    # --- choosing a directory ------------------------------------------------------------------------------------

    def directory_for(
        self, key: TopicIdPartition, registration: PartitionRegistration, wanted: DirectoryId | None
    ) -> HostedDirectory | None:
        """Returns where to create the log of this replica; `wanted` is the directory that the decision names. Returns None
        if no directory has room."""
        unfinished = self._unfinished.get(key)
        directory_id = wanted if wanted is not None else self._preferred_directory(key)
        if directory_id is None:
            directory_id = self._choose_directory(registration)
        if unfinished is not None and self._log_directories.is_online(unfinished[0]):
            directory_id = unfinished[0]
        return None if directory_id is None else self._hosted.online_directory(directory_id)

    @property
    def why_no_room(self) -> str:
        """Says what a directory needs for a replica to be placed there."""
        floor = f"{self._free_bytes_min} bytes (diskraft.log.dir.free.bytes.floor)"
        return f"no online directory has {floor} and {_FREE_INODES_MIN} inodes free"

    def _preferred_directory(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory that a client prefers for the replica, if it is online and not cordoned since."""
        preferred = self._known.preferred.of(key)
        directory = None if preferred is None else self._hosted.online_directory(preferred)
        if directory is None or is_cordoned(directory.log_dir.path, self._configuration, self._state):
            return None
        return preferred

    def _choose_directory(self, registration: PartitionRegistration) -> DirectoryId | None:
        loads = []
        for directory in self._hosted.online_directories():
            space = self._log_directories.space(directory.directory_id) or _UNKNOWN_SPACE
            loads.append(
                DirectoryLoad(
                    directory_id=directory.directory_id,
                    replicas=directory.replicas,
                    usable_bytes=space.usable_bytes,
                    free_inodes=space.free_inodes,
                    is_cordoned=is_cordoned(directory.log_dir.path, self._configuration, self._state),
                    is_unsteady=directory.directory_id in self._unsteady,
                )
            )
        return choose_directory(
            loads,
            replica_kind(self._broker_id, registration.replicas),
            usable_bytes_min=self._free_bytes_min,
            free_inodes_min=_FREE_INODES_MIN,
        )

    def note_kind(self, key: TopicIdPartition) -> None:
        """Counts the replica in the directory where its log is or is being created, and in the one that it moves to. The
        current metadata gives the kind: preferred leader or follower."""
        partition = self._hosted.partitions.get(key)
        registration = self._known.placed_here(key)
        kind = replica_kind(self._broker_id, () if registration is None else registration.replicas)
        current = self._creating.get(key) if partition is None else partition.directory_id
        for directory_id in (current, self._known.movement.target(key)):
            directory = None if directory_id is None else self._hosted.online_directory(directory_id)
            if directory is not None:
                directory.replicas.place(key, kind)

    # --- creating ------------------------------------------------------------------------------------------------

    def begin(self, key: TopicIdPartition, directory: HostedDirectory) -> None:
        """Creates the log of this replica, together with others that wait for the directory. Ends with `host` or, if the
        metadata places the replica elsewhere meanwhile, with `reconcile`."""
        self._creating[key] = directory.directory_id
        self.note_kind(key)
        self._creations[directory.directory_id].add(key)

    def try_again_later(self, key: TopicIdPartition) -> None:
        """Lets the replica be decided about again in a moment."""
        timer = f"create {key.topic_id.hex()}-{key.partition}"
        if timer not in self._timers:
            self._timers.after(timer, _RETRY_NS, lambda: self._reconcile(key))

    def directory_offline(self, directory_id: DirectoryId) -> list[TopicIdPartition]:
        """Ends what is under way in a directory that went offline. Returns the replicas: nothing was ever appended to their
        unfinished logs, so they count as if their creations had never begun."""
        homeless = [key for key, creating_in in self._creating.items() if creating_in == directory_id]
        for key in homeless:
            del self._creating[key]
        return homeless

    def drop_unfinished(self, key: TopicIdPartition) -> None:
        """Removes what a failed creation has left of a replica that the metadata no longer places here (rule 3)."""
        directory_id, folder = self._unfinished.pop(key, (None, ""))
        directory = None if directory_id is None else self._hosted.online_directory(directory_id)
        if directory is not None and directory_id is not None:
            self._deletion.remove_unfinished(directory, folder, is_taken=partial(self._is_hosted_in, folder, directory_id))

    def _is_hosted_in(self, folder: str, directory_id: DirectoryId) -> bool:
        # This looks at all logs of the directory, but only after a creation that failed and whose topic was then deleted.
        return any(partition.log.name == folder for partition in self._hosted.in_directory(directory_id))

    async def _create_logs(self, directory: HostedDirectory, keys: Sequence[TopicIdPartition]) -> None:
        """Creates the logs of these replicas, as one job of the directory's work lane."""
        topics: dict[TopicIdPartition, str] = {}
        for key in keys:
            if self._known.placed_here(key) is not None:
                topics[key] = self._state.topics[key.topic_id].name
            elif self._ends_creation(key, directory):
                # The metadata no longer places the replica here.
                directory.replicas.remove(key)
                self._reconcile(key)
        if not topics:
            return
        names = {key: (topic, key.partition) for key, topic in topics.items()}
        new = [
            NewLog(partition_folder(*names[key]), self._configuration.topic(topic), key.topic_id)
            for key, topic in topics.items()
        ]
        try:
            await directory.files.forget(names.values())
            logs = await create_logs(self._env, directory.log_dir, new)
        except LogDirError:
            for key, name in names.items():
                if self._ends_creation(key, directory):
                    # The directory is still online, so the process lacked file descriptors or memory. Try again later.
                    directory.replicas.remove(key)
                    self._unfinished[key] = directory.directory_id, partition_folder(*name)
                    self.try_again_later(key)
            return
        unwanted = [
            (key, topic, log)
            for (key, topic), log in zip(topics.items(), logs, strict=True)
            if not self._host_created(key, topic, directory, log)
        ]
        # Notify even if there is no assignment to report: the unfence gate may be waiting for these logs.
        self._logs_created()
        for key, topic, log in unwanted:
            # Delete it within this job: the next job may create the log of a new topic of the same name in this folder.
            await self._deletion.delete(log, key, self._configuration.topic(topic).file_delete_delay_ms, directory)

    def _host_created(self, key: TopicIdPartition, topic: str, directory: HostedDirectory, log: Log) -> bool:
        """Hosts the replica whose log was created. Returns False if the log must be deleted, because the metadata no longer
        places the replica here."""
        self._unfinished.pop(key, None)
        if not self._ends_creation(key, directory):
            return True
        if self._known.placed_here(key) is None:
            directory.replicas.remove(key)
            self._reconcile(key)
            return False
        partition = self._host(topic, key, directory, log)
        self._known.log_created(key)
        self._env.log.info(
            "log_created",
            partition=partition.name,
            topic_id=key.topic_id.hex(),
            log_dir=directory.log_dir.path,
            directory_id=uuid_text(directory.directory_id),
        )
        self._reconcile(key)
        return True

    def _ends_creation(self, key: TopicIdPartition, directory: HostedDirectory) -> bool:
        """Notes the end of a creation in this directory. If the directory is offline, does nothing and returns False
        (rule 2)."""
        if not self._log_directories.is_online(directory.directory_id):
            return False
        assert self._creating[key] == directory.directory_id, "in an online directory only the creation itself ends it"
        del self._creating[key]
        return True
