"""The replicas that this broker hosts, in all its log directories (shell).

Counterpart of Kafka's ReplicaManager and LogManager. `apply` brings the replicas in line with the newest metadata: the core
(`HostedReplicas`) decides about each replica, and this module carries out the decision. Everything that touches a disk runs
in a lane of that disk's directory. So `apply` never waits, and a hung disk delays only its own replicas.

`LogDirectories` knows which directories are online; the failure channel updates it before a failed operation raises. A
creation that fails or finishes in a directory that has gone offline therefore does nothing further. Instead
`handle_directory_offline` decides again, exactly once, about this replica and all others in the directory.

What goes through many replicas is a generator that yields after each, and is carried out in slices (`common/slices.py`).
Until `handle_directory_offline` comes to a replica, `find` does not return it any more, and `reconcile` closes it first.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol

from broker.core.alter_log_dir import Alteration, AlterationWanted, decide_alteration
from broker.core.current_configuration import CurrentConfiguration
from broker.core.hosted_replicas import HostedReplicas
from broker.core.partition_replica import AlterPartitionResult, IsrProposal, PartitionReplica, Role
from broker.core.placement import DirectoryLoad, choose_directory, replica_kind
from broker.core.reconcile import Action
from broker.core.replica_counts import ReplicaCounts, Standing
from broker.core.replication_quota import ReplicationQuota
from broker.hosting.cleaner import Cleaner
from broker.hosting.directory_logs import LoadedLog, ReplicaDescription, close_directory, create_logs
from broker.hosting.fetchers import Fetchers
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.loading_progress import LoadingProgress
from broker.hosting.log_creation import LogCreation
from broker.hosting.log_deletion import LogDeletion
from broker.hosting.log_reload import LogReload
from broker.hosting.moves import Moves, MoveSettings
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import IsrCounts, Partition
from broker.hosting.replica_fetcher import Channel, FetcherSettings
from broker.hosting.replica_loading import ReplicaLoading
from broker.hosting.suspected_directories import SuspectedDirectories
from broker.hosting.traffic import Traffic
from broker.hosting.upkeep import Upkeep
from common.configuration.server import ServerConfig
from common.environment.interface import Environment, LogDir, LogDirError, SpaceStat
from common.ids import NO_LEADER, ZERO_UUID, BrokerEpoch, BrokerId, DirectoryId, TopicId, TopicIdPartition, uuid_text
from common.log_dirs.log_directories import LogDirectories
from common.metadata.delta import MetadataDelta
from common.metadata.registrations import BrokerRegistration, PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.records.metadata_records import ConfigResourceType
from common.slices import in_slices
from common.storage.log import Log
from common.storage.names import (
    FILE_NAME_MAX,
    FolderKind,
    marked_partition_folder,
    parse_partition_folder,
    partition_folder,
)
from common.storage.new_log import NewLog
from common.time_units import NS_PER_MS, NS_PER_S

# Describing so many replicas blocks the event loop for a few milliseconds.
RESIZED_PER_CALL_MAX = 1_000
_CREATION_RETRY_NS = NS_PER_S
_WISHES_DELAY_NS = 10_000_000
_FREE_INODES_MIN = 100
# Stands for the id of a topic that the metadata does not contain: no partition has this id.
_UNKNOWN_TOPIC = TopicId(ZERO_UUID)
# Until a file system has been checked for the first time, it counts as having enough space.
_UNKNOWN_SPACE = SpaceStat(total_bytes=0, usable_bytes=1 << 62, free_inodes=0)


class IsrProposals(Protocol):
    """Takes the ISR changes to be sent to the controller (`AlterPartitionSender`)."""

    def submit(
        self, partition: TopicIdPartition, proposal: IsrProposal, on_result: Callable[[AlterPartitionResult], None]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaGauges:
    """The values of Kafka's gauges in kafka.server:type=ReplicaManager, and of one of our own (unplaceable replicas)."""

    partition_count: int
    leader_count: int
    offline_replica_count: int
    under_replicated_partitions: int
    under_min_isr_partition_count: int
    at_min_isr_partition_count: int
    reassigning_partitions: int
    unplaceable_replica_count: int


class Replicas:
    """See the module docstring. Call `load` once, then `apply` after every change of `state`."""

    def __init__(
        self,
        env: Environment,
        config: ServerConfig,
        *,
        configuration: CurrentConfiguration,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        state: MetadataState,
        directories: LogDirectories,
        log_dirs: Mapping[DirectoryId, LogDir],
        task_group: asyncio.TaskGroup,
        proposals: IsrProposals,
        connect: Callable[[str, int], Channel],
        wishes_changed: Callable[[], None],
        on_role: Callable[[Partition], None] = lambda _partition: None,
    ) -> None:
        """`on_role` is called whenever the role of a replica here may have changed, also when the replica leaves."""
        self.state = state
        self.isr_counts = IsrCounts()
        self.traffic = Traffic()
        self.loading_progress = LoadingProgress(env)
        self.leader_quota = ReplicationQuota(lambda: configuration.server.leader_replication_throttled_rate)
        self.follower_quota = ReplicationQuota(lambda: configuration.server.follower_replication_throttled_rate)
        self._env = env
        self._config = config
        self._configuration = configuration
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._log_directories = directories
        self._log_dirs = log_dirs
        self._task_group = task_group
        self._proposals = proposals
        self._wishes_changed = wishes_changed
        self._on_role = on_role
        # The core, which decides about each replica.
        self._known = HostedReplicas(broker_id, state, directories)
        self._hosted = Hosted(directories)
        # The replicas with a loaded log, as in `_hosted`. Invariant: each replica is in an online directory, or in one that
        # `handle_directory_offline` has yet to handle. Changes when: a log is loaded, created or deleted, or goes offline.
        self._partitions = self._hosted.partitions
        self._counts = ReplicaCounts()
        # Maps each replica whose log is being created to the directory of that log. Invariant: no such replica is hosted,
        # and `reconcile` leaves it alone. Changes when: a creation begins or ends, or its directory goes offline.
        self._creating: dict[TopicIdPartition, DirectoryId] = {}
        # Where the logs of each directory are created. Filled by `load`, for the directories that were loaded.
        self._creations: dict[DirectoryId, LogCreation] = {}
        # Half-created logs, left by a creation that failed for lack of file descriptors or memory: replica to (directory,
        # folder).
        # Changes when: a creation fails in this way, a retry succeeds, or the replica is no longer placed here.
        self._unfinished: dict[TopicIdPartition, tuple[DirectoryId, str]] = {}
        # Whether all logs are loaded. Set once, at the end of `load`; until then a shutdown must not leave clean-shutdown
        # markers.
        self._is_loaded = False
        # Whether `apply` has run. Set once.
        self._has_applied = False
        # Whether the defaults of topics have changed since the last `apply`.
        self._have_defaults_changed = False
        # Whether `shutdown` has begun. Set once; from then on `reconcile` decides nothing.
        self._is_shut_down = False
        self._timers = NamedTimers(env)
        self.suspected = SuspectedDirectories(
            env,
            suspect_after_ns=config.diskraft_log_dir_suspect_ms * NS_PER_MS,
            directories=directories,
            log_dirs=log_dirs,
        )
        self._upkeep = Upkeep(env, config, self._hosted, self._timers, suspected=self.suspected, task_group=task_group)
        self._cleaner = Cleaner(
            env,
            lambda: configuration.server,
            hosted=self._hosted,
            timers=self._timers,
            task_group=task_group,
            space=directories.space,
        )
        self._reload = LogReload(env, self._hosted, self._timers, self._upkeep)
        self._deletion = LogDeletion(
            env,
            self._hosted,
            self._timers,
            default_delay_ms=lambda: configuration.server.log_segment_delete_delay_ms,
            is_placed_here=lambda key: self._known.placed_here(key) is not None,
        )
        self._fetchers = Fetchers(
            env,
            state,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            listener_name=config.inter_broker_listener_name or "",
            connect=connect,
            settings=_fetcher_settings(config),
            quota=self.follower_quota,
            traffic=self.traffic,
            task_group=task_group,
            upkeep=self._upkeep,
        )
        configuration.subscribe(self._topic_defaults_changed)
        self.moves = Moves(
            env,
            _move_settings(config, configuration),
            known=self._known,
            hosted=self._hosted,
            deletion=self._deletion,
            timers=self._timers,
            task_group=task_group,
            space=directories.space,
            traffic=self.traffic,
            reconcile=self.reconcile,
            follow=self._fetchers.follow,
        )

    # --- start and end -------------------------------------------------------------------------------------------

    async def load(self, previous_directories: Collection[DirectoryId] | None = None) -> None:
        """Loads the logs of all online directories in parallel, and starts the upkeep.

        `state` must be recent enough to decide which logs belong to this broker. `previous_directories` are those of this
        broker's previous registration, including those it had lost; None if unknown. Raises DuplicateLog and
        ReplicasNotLoaded.
        """
        self._known.previous_directories = previous_directories
        for directory_id in self._log_directories.online:
            self._hosted.add(HostedDirectory(directory_id, self._log_dirs[directory_id]))
        loading = ReplicaLoading(
            self._env,
            self._hosted,
            broker_id=self._broker_id,
            placed_here=self._known.placed_here,
            config_of=self._configuration.topic,
            topic_ids=self.state.topic_ids,
            progress=self.loading_progress,
        )
        found = await loading.load()
        self._known.traces = loading.traces
        for directory, content in found:
            directory.files.loaded(content.checkpoints)
            await in_slices(self._host_all(content.logs, directory))
            for folder in content.deleted_folders:
                self._deletion.remove_later(directory, folder.name, folder.key)
            creation = LogCreation(directory.work, partial(self._create_logs, directory))
            self._creations[directory.directory_id] = creation
            self._task_group.create_task(directory.work.run())
            self._task_group.create_task(directory.upkeep.run())
        # The logs were loaded with the newest configuration.
        self._have_defaults_changed = False
        self._is_loaded = True
        self._resume_moves()
        self._upkeep.start()
        self._cleaner.start()

    def _host_all(self, logs: Iterable[LoadedLog], directory: HostedDirectory) -> Iterator[None]:
        for loaded in logs:
            self._host(loaded, directory)
            yield

    def _host(self, loaded: LoadedLog, directory: HostedDirectory) -> None:
        if not self._log_directories.is_online(directory.directory_id):
            # The directory has failed since its logs were loaded, and `handle_directory_offline` may be done with it.
            self._known.log_went_offline(loaded.key, directory.directory_id)
            return
        partition = self._new_partition(loaded.topic, loaded.topic_id, loaded.index, directory, loaded.log)
        partition.load_high_watermark(loaded.high_watermark)
        partition.first_dirty_offset = loaded.first_dirty_offset
        partition.future = loaded.future
        self._hosted.add_partition(partition)
        self._note_kind(partition.key)

    def _resume_moves(self) -> None:
        for partition in self._partitions.values():
            source = self._hosted.directory_of(partition)
            target = None if partition.future is None else self._hosted.online_directory(partition.future.directory_id)
            if source is not None and target is not None and partition.future is not None:
                folder = parse_partition_folder(partition.future.log.name)
                assert folder is not None
                self.moves.resume(partition, source, target, bytes.fromhex(folder.unique))
                self._note_kind(partition.key)

    async def shutdown(self) -> None:
        """Shuts down in order: stops serving, syncs and closes every log, and writes the clean-shutdown marker in each
        directory that is still online."""
        self._is_shut_down = True
        self._timers.stop()
        await self.moves.stop()
        await self._cleaner.stop()
        self._fetchers.stop_all()
        await in_slices(self._leave_all())
        if not self._is_loaded:
            # A clean-shutdown marker would vouch for logs that were never loaded.
            return
        async with asyncio.TaskGroup() as group:
            for directory in self._hosted.online_directories():
                group.create_task(self._close_directory(directory))

    def _leave_all(self) -> Iterator[None]:
        for partition in list(self._partitions.values()):
            if partition.gone is ErrorCode.NONE:
                partition.leave(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            yield

    async def _close_directory(self, directory: HostedDirectory) -> None:
        await directory.work.drained()
        await directory.upkeep.drained()
        directory.stop()
        epoch = self._broker_epoch()
        try:
            await close_directory(
                directory.log_dir,
                directory.files,
                self._hosted.in_directory(directory.directory_id),
                self._hosted.futures_in(directory.directory_id),
                BrokerEpoch(-1) if epoch is None else epoch,
            )
        except LogDirError as error:
            # This directory has no clean-shutdown marker, so the next start recovers its logs.
            self._env.log.warning("log_dir_not_closed", log_dir=directory.log_dir.path, reason=str(error))

    @property
    def cleaner(self) -> Cleaner:
        """The cleaner of this broker's logs, for its metrics."""
        return self._cleaner

    # --- looking up ----------------------------------------------------------------------------------------------

    def find(self, topic_id: TopicId, index: int) -> Partition | ErrorCode:
        """Returns the partition, or the error to answer if it is not here."""
        key = TopicIdPartition(topic_id, index)
        partition = self._served(key)
        if partition is not None:
            return partition
        if topic_id not in self.state.topics:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._absent_error(key)

    def find_named(self, topic: str, index: int) -> Partition | ErrorCode:
        """Like `find`, by the topic's name."""
        topic_id = self.state.topic_ids.get(topic)
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        key = TopicIdPartition(topic_id, index)
        return self._served(key) or self._absent_error(key)

    def _served(self, key: TopicIdPartition) -> Partition | None:
        """Returns the replica, unless its directory has failed a moment ago and the replica is still to be closed."""
        partition = self._partitions.get(key)
        return partition if partition is not None and self._log_directories.is_online(partition.directory_id) else None

    def _absent_error(self, key: TopicIdPartition) -> ErrorCode:
        """Returns the error to answer for a replica that is not served here."""
        registration = self.state.partition(*key)
        if registration is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if registration.leader not in (self._broker_id, NO_LEADER):
            # Even where the replica here is offline. Kafka keeps answering KAFKA_STORAGE_ERROR then, and clients that do not
            # refresh their metadata after that error, such as aiokafka, never find the new leader.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        has_failed = self._known.is_offline(key) or key in self._partitions
        if has_failed or (registration.leader == self._broker_id and key not in self._creating):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def hosted_directories(self) -> dict[TopicIdPartition, DirectoryId]:
        """Returns the directory of each replica's current log. Replicas in failed directories are left out."""
        online = self._log_directories.online
        return {key: each.directory_id for key, each in self._partitions.items() if each.directory_id in online}

    def wished_assignments(self) -> dict[TopicIdPartition, DirectoryId]:
        """Returns the directory to report to the controller for each replica that needs a report: the directory of its log,
        the failed directory that held its log, or LOST."""
        return self._known.wishes

    def is_being_created(self, key: TopicIdPartition) -> bool:
        """Whether the log of this replica is being created. Once the log exists, there may be an assignment to report."""
        return key in self._creating

    def is_unplaceable(self, key: TopicIdPartition) -> bool:
        """Whether no directory has room for this replica."""
        return self._known.is_unplaceable(key)

    def leads_in(self, directory_id: DirectoryId) -> bool:
        """Whether this broker leads a partition whose replica is in that directory, according to the newest applied
        metadata."""
        return self._known.leads_in(directory_id)

    def count_in(self, directory_id: DirectoryId) -> int:
        """Returns the number of current replicas in a directory."""
        return self._hosted.count_in(directory_id)

    def describe(self, directory_id: DirectoryId) -> list[ReplicaDescription]:
        """Describes the current replicas in an online directory."""
        return [_described(partition) for partition in self._hosted.in_directory(directory_id)]

    def take_resized(self) -> dict[TopicIdPartition, ReplicaDescription | None]:
        """Describes the current replicas whose logs may have changed in size since the last call; None for those that are
        no longer here. Leaves more than RESIZED_PER_CALL_MAX of them to the next calls, those that changed first coming
        first: after a start these are all replicas."""
        self._hosted.are_sizes_read = True
        keys = list(islice(self._hosted.resized, RESIZED_PER_CALL_MAX))
        for key in keys:
            del self._hosted.resized[key]
        found = {key: self._partitions.get(key) for key in keys}
        return {key: None if partition is None else _described(partition) for key, partition in found.items()}

    def describe_future(self, directory_id: DirectoryId) -> list[ReplicaDescription]:
        """Describes the future replicas in an online directory (KIP-113)."""
        return [
            ReplicaDescription(
                partition.topic,
                partition.index,
                directory_id,
                future.log.size_bytes,
                partition.log.log_end_offset - future.log.log_end_offset,
                is_future=True,
            )
            for partition in self._partitions.values()
            if (future := partition.future) is not None and future.directory_id == directory_id
        ]

    def gauges(self) -> ReplicaGauges:
        """Returns the current values of the gauges."""
        counts = self._counts
        return ReplicaGauges(
            partition_count=len(self._partitions),
            leader_count=counts.count(Standing.LEADER),
            offline_replica_count=self._known.offline_count,
            under_replicated_partitions=counts.count(Standing.UNDER_REPLICATED),
            under_min_isr_partition_count=counts.count(Standing.UNDER_MIN_ISR),
            at_min_isr_partition_count=counts.count(Standing.AT_MIN_ISR),
            reassigning_partitions=counts.count(Standing.REASSIGNING),
            unplaceable_replica_count=self._known.unplaceable_count,
        )

    # --- metadata ------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> Iterator[None]:
        """Brings the replicas in line with `state`, and yields after each. `delta` holds what has changed since the last
        call. `state` may change further before the end; a later delta holds that."""
        self._known.metadata_changed(delta, broker_epoch=self._broker_epoch(), hosted=self._partitions)
        if self._have_defaults_changed:
            self._have_defaults_changed = False
            yield from self._take_over_defaults()
        for resource_type, name in delta.changed_configs:
            if resource_type == ConfigResourceType.TOPIC:
                yield from self._topic_config_changed(name)
        for topic_id, topic in delta.removed_topics.items():
            for index in topic.partitions:
                self.reconcile(TopicIdPartition(topic_id, index))
                yield
        for key in delta.changed_partitions:
            self.reconcile(key)
            yield
        if delta.changed_brokers:
            yield from self._brokers_changed(delta)
        if not self._has_applied:
            self._has_applied = True
            yield from self._forget_topics_that_went_during_the_start()

    def _forget_topics_that_went_during_the_start(self) -> Iterator[None]:
        """Deletes the replicas that the metadata no longer places here, even if the first delta does not mention them. A
        topic deleted after its logs were loaded is missing from that delta if the delta also contains its creation."""
        for key in [key for key in self._partitions if self._known.placed_here(key) is None]:
            self.reconcile(key)
            yield

    def reconcile(self, key: TopicIdPartition) -> None:
        """Decides about one replica and carries out the decision. Idempotent; may be called at any time."""
        self._note_kind(key)
        if self._is_shut_down or key in self._creating:
            return
        registration = self._known.placed_here(key)
        if registration is None:
            self._drop_unfinished(key)
        partition = self._partitions.get(key)
        if partition is not None and not self._log_directories.is_online(partition.directory_id):
            self._close_offline(partition)
            partition = None
        decision = self._known.decide(key, None if partition is None else partition.directory_id)
        directory = None
        if decision.action is Action.CREATE and registration is not None:
            directory = self._directory_for(key, registration, decision.directory)
            if directory is None:
                decision = self._known.decide_unplaceable(key)
        self._note_wish(key, decision.wish)
        if decision.action is Action.DELETE:
            if partition is not None:
                self._delete(partition)
        elif partition is not None and registration is not None:
            partition.apply(registration)
            self.moves.assignment_changed(key)
        elif directory is not None:
            self._create(key, directory)

    def _note_wish(self, key: TopicIdPartition, wish: DirectoryId | None) -> None:
        if not self._known.note_wish(key, wish):
            return
        if wish is not None:
            self._env.log.info("assignment_queued", partition=self._name(key), directory_id=uuid_text(wish))
        if "wishes" not in self._timers:
            # Wishes come in bursts, one for each log that is created. Notify once per burst.
            self._timers.after("wishes", _WISHES_DELAY_NS, self._wishes_changed)

    def _drop_unfinished(self, key: TopicIdPartition) -> None:
        directory_id, folder = self._unfinished.pop(key, (None, ""))
        directory = None if directory_id is None else self._hosted.online_directory(directory_id)
        if directory is not None:
            self._deletion.remove_unfinished(directory, folder)

    def _brokers_changed(self, delta: MetadataDelta) -> Iterator[None]:
        for partition in self._each_served(list(self._partitions.values())):
            partition.brokers_changed()
            if partition.replica.role is Role.FOLLOWER and partition.replica.leader in delta.changed_brokers:
                self._fetchers.follow(partition)
            yield

    def _topic_config_changed(self, topic: str) -> Iterator[None]:
        topic_id = self.state.topic_ids.get(topic)
        if topic_id is None:
            return
        # Only the replicas of this topic are looked up: the first delta after a start names all topics.
        keys = [TopicIdPartition(topic_id, index) for index in self.state.topics[topic_id].partitions]
        config = self._configuration.topic(topic)
        for partition in self._each_served([self._partitions[key] for key in keys if key in self._partitions]):
            partition.set_config(config)
            yield

    def _topic_defaults_changed(self) -> None:
        """Notes that every replica needs its configuration again. The change of the metadata is about to be applied."""
        self._have_defaults_changed = True

    def _take_over_defaults(self) -> Iterator[None]:
        partitions = list(self._partitions.values())
        configs = {topic: self._configuration.topic(topic) for topic in {each.topic for each in partitions}}
        for partition in self._each_served(partitions):
            partition.set_config(configs[partition.topic])
            yield

    def _each_served(self, partitions: Iterable[Partition]) -> Iterator[Partition]:
        """Yields those that are served when their turn comes. One that has left must not act any more: the same replica may
        be here again as another object."""
        for partition in partitions:
            if self._served(partition.key) is partition:
                yield partition

    def _name(self, key: TopicIdPartition) -> str:
        topic = self.state.topics.get(key.topic_id)
        return f"{uuid_text(key.topic_id) if topic is None else topic.name}-{key.partition}"

    # --- creating ------------------------------------------------------------------------------------------------

    def _directory_for(
        self, key: TopicIdPartition, registration: PartitionRegistration, wanted: DirectoryId | None
    ) -> HostedDirectory | None:
        unfinished = self._unfinished.get(key)
        directory_id = wanted if wanted is not None else self._preferred_directory(key)
        if directory_id is None:
            directory_id = self._choose_directory(registration)
        if unfinished is not None and self._log_directories.is_online(unfinished[0]):
            # An earlier creation left its remains in that directory. If the log were created elsewhere, the remains would
            # count as a second log of the same replica.
            directory_id = unfinished[0]
        directory = None if directory_id is None else self._hosted.online_directory(directory_id)
        if directory is not None:
            self._known.has_place(key)
            return directory
        if self._known.has_no_place(key):
            self._env.log.error("replica_not_placeable", partition=self._name(key))
            self._wishes_changed()
        self._retry_later(key)
        return None

    def _create(self, key: TopicIdPartition, directory: HostedDirectory) -> None:
        self._creating[key] = directory.directory_id
        self._note_kind(key)
        self._creations[directory.directory_id].add(key)

    def _note_kind(self, key: TopicIdPartition) -> None:
        """Counts the replica in the directory where its log is or is being created, and in the one that it moves to. The
        current metadata gives the kind: preferred leader or follower."""
        partition = self._partitions.get(key)
        registration = self._known.placed_here(key)
        kind = replica_kind(self._broker_id, () if registration is None else registration.replicas)
        current = self._creating.get(key) if partition is None else partition.directory_id
        for directory_id in (current, self._known.movement.target(key)):
            directory = None if directory_id is None else self._hosted.online_directory(directory_id)
            if directory is not None:
                directory.replicas.place(key, kind)

    def _preferred_directory(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory that a client prefers for the replica, if it is online."""
        preferred = self._known.preferred(key)
        return preferred if preferred is not None and self._log_directories.is_online(preferred) else None

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
                )
            )
        return choose_directory(
            loads,
            replica_kind(self._broker_id, registration.replicas),
            usable_bytes_min=self._config.diskraft_log_dir_free_bytes_floor,
            free_inodes_min=_FREE_INODES_MIN,
        )

    async def _create_logs(self, directory: HostedDirectory, keys: Sequence[TopicIdPartition]) -> None:
        """Creates the logs of these replicas in the directory. A replica is hosted, and so can acknowledge anything, only
        once its log is durable."""
        topics: dict[TopicIdPartition, str] = {}
        for key in keys:
            if self._known.placed_here(key) is not None:
                topics[key] = self.state.topics[key.topic_id].name
            elif self._ends_creation(key, directory):
                # The metadata no longer places the replica here.
                directory.replicas.remove(key)
                self.reconcile(key)
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
                    self._retry_later(key)
            return
        unwanted = [
            (key, topic, log)
            for (key, topic), log in zip(topics.items(), logs, strict=True)
            if not self._host_created(key, topic, directory, log)
        ]
        # Notify even if there is no assignment to report: the unfence gate may be waiting for these logs.
        self._wishes_changed()
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
            self.reconcile(key)
            return False
        partition = self._new_partition(topic, key.topic_id, key.partition, directory, log)
        self._hosted.add_partition(partition)
        self._known.log_created(key)
        self._env.log.info(
            "log_created",
            partition=partition.name,
            topic_id=key.topic_id.hex(),
            log_dir=directory.log_dir.path,
            directory_id=uuid_text(directory.directory_id),
        )
        self.reconcile(key)
        return True

    def _ends_creation(self, key: TopicIdPartition, directory: HostedDirectory) -> bool:
        """Notes the end of a creation in this directory. If the directory is offline, does nothing and returns False:
        `handle_directory_offline` ends that creation or already has, and may have begun another one elsewhere."""
        if not self._log_directories.is_online(directory.directory_id):
            return False
        assert self._creating[key] == directory.directory_id, "in an online directory only the creation itself ends it"
        del self._creating[key]
        return True

    def _retry_later(self, key: TopicIdPartition) -> None:
        timer = f"create {key.topic_id.hex()}-{key.partition}"
        if timer not in self._timers:
            self._timers.after(timer, _CREATION_RETRY_NS, lambda: self.reconcile(key))

    def _registration_of(self, broker_id: BrokerId) -> BrokerRegistration | None:
        # Get `brokers` from the state every time: a snapshot replaces the dictionary.
        return self.state.brokers.get(broker_id)

    def _new_partition(self, topic: str, topic_id: TopicId, index: int, directory: HostedDirectory, log: Log) -> Partition:
        replica = PartitionReplica(
            self._broker_id,
            self._registration_of,
            self._config.replica_lag_time_max_ms * NS_PER_MS,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.written_offset,
            high_watermark=log.log_start_offset,
        )
        return Partition(
            self._env,
            topic=topic,
            topic_id=topic_id,
            index=index,
            directory_id=directory.directory_id,
            log=log,
            replica=replica,
            config=self._configuration.topic(topic),
            propose=self._proposals.submit,
            on_role=self._role_changed,
            on_moved=self._hosted.moved,
            on_log_failed=self._reload.log_failed,
            isr_counts=self.isr_counts,
            resized=self._hosted.resized,
        )

    def _role_changed(self, partition: Partition) -> None:
        self._counts.note(partition.key, partition.replica)
        self._cleaner.note(partition)
        self._fetchers.follow(partition)
        self._on_role(partition)

    # --- moving --------------------------------------------------------------------------------------------------

    def alter_log_dir(self, topic: str, index: int, destination: str) -> ErrorCode:
        """Starts moving a replica to the directory at this path, remembers the directory for a replica that is not here yet,
        or cancels a move. Returns the error to answer."""
        topic_id = self.state.topic_ids.get(topic)
        if topic_id is None:
            # Still check the path, because Kafka reports its errors first.
            topic_id = _UNKNOWN_TOPIC
        key = TopicIdPartition(topic_id, index)
        wanted = self._alteration_wanted(key, topic, destination)
        decision = decide_alteration(wanted)
        match decision.alteration:
            case Alteration.PREFER | Alteration.FORGET_PREFERENCE:
                self._known.prefer(key, wanted.directory_id)
            case Alteration.CANCEL:
                self.moves.cancel(key)
            case Alteration.MOVE:
                self._begin_move(key, wanted.directory_id)
            case Alteration.NOTHING:
                pass
        return decision.error

    def _alteration_wanted(self, key: TopicIdPartition, topic: str, destination: str) -> AlterationWanted:
        partition = self._served(key)
        directory = next((each for each in self._log_directories.data_dirs if each.path == destination), None)
        directory_id = None if directory is None else directory.directory_id
        future = marked_partition_folder(topic, key.partition, FolderKind.FUTURE, bytes(16))
        return AlterationWanted(
            destination=destination,
            directory_id=directory_id,
            is_configured=directory is not None,
            is_online=directory is not None and directory.is_online,
            exists=self.state.partition(*key) is not None,
            is_placed_here=self._known.placed_here(key) is not None,
            is_changing_place=key in self._creating or (partition is not None and partition.is_swapping),
            current=None if partition is None else partition.directory_id,
            target=self._known.movement.target(key),
            is_name_too_long=len(future.encode()) > FILE_NAME_MAX,
            has_room=partition is None
            or directory_id is None
            or self.moves.has_room(directory_id, partition.log.size_bytes),
        )

    def _begin_move(self, key: TopicIdPartition, directory_id: DirectoryId | None) -> None:
        partition = self._partitions[key]
        source = self._hosted.directory_of(partition)
        target = None if directory_id is None else self._hosted.online_directory(directory_id)
        assert source is not None and target is not None, "the decision requires both directories to be online"
        self.moves.begin(partition, source, target)
        self._note_kind(key)

    # --- deleting ------------------------------------------------------------------------------------------------

    def _delete(self, partition: Partition) -> None:
        self._hosted.remove_partition(partition)
        self._fetchers.unfollow(partition)
        self.moves.removed(partition)
        # A partition that has moved to other brokers still exists, so its clients must look for the new leader.
        is_moved = self.state.partition(*partition.key) is not None
        partition.leave(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_moved else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        directory = self._hosted.directory_of(partition)
        if directory is not None:
            directory.replicas.remove(partition.key)
            # Capture the log now: if a swap is under way, `partition.log` may be the other log when the job runs.
            log, delay_ms = partition.log, partition.config.file_delete_delay_ms
            directory.work.submit(lambda: self._deletion.delete(log, partition.key, delay_ms, directory))

    # --- failing directories -------------------------------------------------------------------------------------

    def handle_directory_offline(self, directory_id: DirectoryId) -> Iterator[None]:
        """Handles a directory that went offline, without touching its disk. Its replicas answer KAFKA_STORAGE_ERROR. Logs
        that were being created there are created elsewhere (KAFKA-8526).

        Ends at once what is under way in the directory: its jobs, fetchers, creations and moves. The rest of the work,
        which grows with the number of replicas, is returned and yields after each."""
        assert not self._log_directories.is_online(directory_id), "LogDirectories is stepped first"
        self._hosted.stop(directory_id)
        self._fetchers.stop_directory(directory_id)
        homeless = [key for key, creating_in in self._creating.items() if creating_in == directory_id]
        for key in homeless:
            # Nothing was ever appended to the unfinished log, so treat the replica as if its creation had never begun.
            del self._creating[key]
        self.moves.target_offline(directory_id)
        self.moves.source_offline(directory_id)
        return self._close_directory_offline(directory_id, homeless)

    def _close_directory_offline(self, directory_id: DirectoryId, homeless: Sequence[TopicIdPartition]) -> Iterator[None]:
        for partition in self._hosted.in_directory(directory_id):
            # A replica that left meanwhile has been closed, or is in the directory that it was moving to.
            if self._partitions.get(partition.key) is partition and partition.directory_id == directory_id:
                self._close_offline(partition)
                yield
        offline = self._known.offline_in(directory_id)
        self._env.log.warning("replicas_offline", directory_id=uuid_text(directory_id), replicas=len(offline))
        for key in (*homeless, *offline):
            self.reconcile(key)
            yield

    def _close_offline(self, partition: Partition) -> None:
        self._hosted.remove_partition(partition)
        self._known.log_went_offline(partition.key, partition.directory_id)
        self._fetchers.unfollow(partition)
        partition.leave(ErrorCode.KAFKA_STORAGE_ERROR)
        partition.log.lose_directory()


def _described(partition: Partition) -> ReplicaDescription:
    return ReplicaDescription(
        partition.topic,
        partition.index,
        partition.directory_id,
        partition.log.size_bytes,
        max(partition.high_watermark - partition.log.log_end_offset, 0),
    )


def _move_settings(config: ServerConfig, configuration: CurrentConfiguration) -> MoveSettings:
    return MoveSettings(
        threads=lambda: configuration.server.replica_alter_log_dirs_threads,
        bytes_per_s=lambda: configuration.server.replica_alter_log_dirs_io_max_bytes_per_second,
        free_bytes_min=config.diskraft_log_dir_free_bytes_floor,
    )


def _fetcher_settings(config: ServerConfig) -> FetcherSettings:
    return FetcherSettings(
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        backoff_max_ns=config.replica_fetch_backoff_ms * NS_PER_MS,
        request_timeout_ns=config.replica_socket_timeout_ms * NS_PER_MS,
    )
