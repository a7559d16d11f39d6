"""The replicas that this broker hosts, in all its log directories (shell).

Counterpart of Kafka's ReplicaManager and LogManager. This module puts the parts together, starts and stops them, and finds
the replicas. The core (`HostedReplicas`) decides about each replica, and the parts carry out the decision. Everything that
touches a disk runs in a lane of that disk's directory. So `apply` never waits, and a hung disk delays only its own replicas.

    Hosted               hosted.py                the tables of directories and replicas, which all parts share
    ReplicaLoading       replica_loading.py       the logs of all directories, at startup
    MetadataApplication  metadata_application.py  which replicas a change of the metadata concerns
    Reconciliation       reconciliation.py        what is decided about each replica, and carrying it out
    ReplicaCreation      replica_creation.py      the directory and the log of a new replica
    Partition            partition.py             one replica while it is here
    Fetchers             fetchers.py              replication from the leaders
    Moves                moves.py                 moves between directories, which LogDirAlteration begins and cancels
    LogReload            log_reload.py            a log that failed although its disk is healthy
    LogDeletion          log_deletion.py          the log of a replica that has left
    Upkeep, Cleaner      upkeep.py, cleaner.py    checkpoints, retention, lagging ISR members; compaction
    ReplicaDescriptions  replica_descriptions.py  what tools and metrics show

`LogDirectories` knows which directories are online; the failure channel updates it before a failed operation raises. So what
fails or ends in a directory that has gone offline does nothing further. Instead `handle_directory_offline` decides again,
exactly once, about each replica of the directory.

What goes through many replicas is a generator that yields after each, and is carried out in slices (`common/slices.py`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from broker.core.cordoned_directories import is_cordoned
from broker.core.current_configuration import CurrentConfiguration
from broker.core.directory_reports import DirectoryReports
from broker.core.hosted_replicas import HostedReplicas
from broker.core.partition_replica import AlterPartitionResult, IsrProposal, PartitionReplica
from broker.core.replica_counts import ReplicaCounts
from broker.core.replication_quota import ReplicationQuota
from broker.hosting.cleaner import Cleaner
from broker.hosting.client_reads import ClientReads
from broker.hosting.directory_logs import LoadedLog, close_directory
from broker.hosting.fetchers import Fetchers
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.leader_connection import Channel, FetcherSettings
from broker.hosting.loading_progress import LoadingProgress
from broker.hosting.log_deletion import LogDeletion
from broker.hosting.log_dir_alteration import LogDirAlteration
from broker.hosting.log_reload import LogReload
from broker.hosting.metadata_application import MetadataApplication
from broker.hosting.moves import Moves, MoveSettings
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import IsrCounts, Partition, PlacedLog
from broker.hosting.reconciliation import Reconciliation
from broker.hosting.replica_creation import ReplicaCreation
from broker.hosting.replica_descriptions import ReplicaDescriptions
from broker.hosting.replica_loading import ReplicaLoading
from broker.hosting.traffic import Traffic
from broker.hosting.upkeep import Upkeep
from common.configuration.server import ServerConfig
from common.environment.interface import Environment, LogDir, LogDirError
from common.ids import BrokerEpoch, BrokerId, DirectoryId, TopicId, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.metadata.delta import MetadataDelta
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.slices import in_slices
from common.storage.log import Log
from common.storage.names import parse_partition_folder
from common.time_units import NS_PER_MS


class IsrProposals(Protocol):
    """Takes the ISR changes to be sent to the controller (`AlterPartitionSender`)."""

    def submit(
        self, partition: TopicIdPartition, proposal: IsrProposal, on_result: Callable[[AlterPartitionResult], None]
    ) -> None: ...


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
        reports: DirectoryReports,
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
        self._known = HostedReplicas(broker_id, state, directories, reports)
        self._hosted = Hosted(directories)
        # The replicas with a loaded log, as in `_hosted`. Invariant: each replica is in an online directory, or in one that
        # `handle_directory_offline` has yet to handle. Changes when: a log is loaded, created or deleted, or goes offline.
        self._partitions = self._hosted.partitions
        self._counts = ReplicaCounts()
        # Whether all logs are loaded. Set once, at the end of `load`; until then a shutdown must not leave clean-shutdown
        # markers.
        self._is_loaded = False
        self._timers = NamedTimers(env)
        # The parts, each after those that it needs.
        self.suspected = self._make_suspected()
        self.suspected.subscribe(self._directory_suspected)
        self.client_reads = ClientReads(self.suspected)
        self._upkeep = self._make_upkeep()
        self.cleaner = self._make_cleaner()
        self._reload = LogReload(env, self._hosted, self._timers, self._upkeep)
        self._deletion = self._make_deletion()
        self._fetchers = self._make_fetchers(connect)
        self.moves = self._make_moves()
        self._creation = self._make_creation()
        self._reconciliation = self._make_reconciliation()
        self._metadata = self._make_metadata_application()
        self.log_dir_alteration = self._make_log_dir_alteration()
        self.descriptions = ReplicaDescriptions(self._hosted, self._known, self._counts)

    # --- start and end -------------------------------------------------------------------------------------------

    async def load(self, previous_directories: Collection[DirectoryId] | None = None) -> None:
        """Loads the logs of all online directories in parallel, and starts the upkeep.

        `state` must be recent enough to decide which logs belong to this broker. `previous_directories` are those
        that `PreviousDirectories` found; None if unknown. Raises DuplicateLog and ReplicasNotLoaded.
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
            self._creation.add_directory(directory)
            self._task_group.create_task(directory.work.run())
            self._task_group.create_task(directory.upkeep.run())
        self._metadata.logs_loaded()
        self._is_loaded = True
        self._resume_moves()
        self._upkeep.start()
        self.cleaner.start()

    def _host_all(self, logs: Iterable[LoadedLog], directory: HostedDirectory) -> Iterator[None]:
        for loaded in logs:
            self._host(loaded, directory)
            yield

    def _host(self, loaded: LoadedLog, directory: HostedDirectory) -> None:
        if not self._log_directories.is_online(directory.directory_id):
            # The directory has failed since its logs were loaded, and `handle_directory_offline` may be done with it.
            self._known.log_went_offline(loaded.key, directory.directory_id)
            self._close_at_the_end(loaded.future)
            return
        partition = self._new_partition(loaded.topic, loaded.topic_id, loaded.index, directory, loaded.log)
        partition.load_high_watermark(loaded.high_watermark)
        # After recovery, or a truncation that a kill interrupted, the log may end before the cleaner's checkpoint. Records
        # that are appended from there on have not been cleaned.
        partition.first_dirty_offset = min(loaded.first_dirty_offset, loaded.log.log_end_offset)
        partition.future = loaded.future
        self._hosted.add_partition(partition)
        self._creation.note_kind(partition.key)

    def _resume_moves(self) -> None:
        for partition in self._partitions.values():
            if partition.future is None:
                continue
            source = self._hosted.directory_of(partition)
            target = self._hosted.online_directory(partition.future.directory_id)
            if source is None or target is None:
                # One of the two has failed since the logs were loaded, when there was no move yet to be ended.
                self._close_at_the_end(partition.future)
                partition.future = None
                continue
            folder = parse_partition_folder(partition.future.log.name)
            assert folder is not None
            self.moves.resume(partition, source, target, bytes.fromhex(folder.unique))
            self._creation.note_kind(partition.key)

    def _close_at_the_end(self, future: PlacedLog | None) -> None:
        """Notes the copy of a move that does not go on, unless its directory has failed: the clean-shutdown marker of the
        directory will vouch for it."""
        target = None if future is None else self._hosted.online_directory(future.directory_id)
        if future is not None and target is not None:
            target.unclosed.append(future.log)

    async def shutdown(self) -> None:
        """Shuts down cleanly: stops serving, syncs and closes every log, and writes the clean-shutdown marker in each
        directory that is still online. Directories do not wait for each other, except for those of a move under way."""
        self._reconciliation.stop()
        self._timers.stop()
        self.moves.stop()
        self.cleaner.stop()
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
        await self.moves.uses.ended_in(directory.directory_id)
        await self.cleaner.uses.ended_in(directory.directory_id)
        await directory.work.drained()
        await directory.upkeep.drained()
        directory.stop()
        epoch = self._broker_epoch()
        try:
            await close_directory(
                directory.log_dir,
                directory.files,
                self._hosted.in_directory(directory.directory_id),
                [*self._hosted.futures_in(directory.directory_id), *directory.unclosed],
                BrokerEpoch(-1) if epoch is None else epoch,
            )
        except LogDirError as error:
            # This directory has no clean-shutdown marker, so the next start recovers its logs.
            self._env.log.warning("log_dir_not_closed", log_dir=directory.log_dir.path, reason=str(error))

    # --- looking up ----------------------------------------------------------------------------------------------

    def find(self, key: TopicIdPartition) -> Partition | ErrorCode:
        """Returns the partition, or the error to answer if it is not here."""
        partition = self._hosted.served(key)
        if partition is not None:
            return partition
        if key.topic_id not in self.state.topics:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._absent_error(key)

    def find_named(self, topic: str, index: int) -> Partition | ErrorCode:
        """Like `find`, by the topic's name."""
        topic_id = self.state.topic_ids.get(topic)
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        key = TopicIdPartition(topic_id, index)
        return self._hosted.served(key) or self._absent_error(key)

    def _absent_error(self, key: TopicIdPartition) -> ErrorCode:
        return self._known.absent_error(
            key, is_closing=key in self._partitions, is_being_created=self._creation.is_under_way(key)
        )

    def hosted_directories(self) -> dict[TopicIdPartition, DirectoryId]:
        """Returns the directory of each replica's current log. Replicas in failed directories are left out."""
        online = self._log_directories.online
        return {key: each.directory_id for key, each in self._partitions.items() if each.directory_id in online}

    def is_cordoned(self, path: str) -> bool:
        """Whether the directory at this path gets no new replicas (KIP-1066)."""
        return is_cordoned(path, self._configuration, self.state)

    def wished_assignments(self) -> dict[TopicIdPartition, DirectoryId]:
        """Returns the directory to report to the controller for each replica that needs a report: the directory of its log,
        the failed directory that held its log, or LOST."""
        return self._known.wishes

    def is_being_created(self, key: TopicIdPartition) -> bool:
        """Whether the log of this replica is being created. Once the log exists, there may be an assignment to report."""
        return self._creation.is_under_way(key)

    def is_unplaceable(self, key: TopicIdPartition) -> bool:
        """Whether no directory has room for this replica."""
        return self._known.is_unplaceable(key)

    def reported_copy(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory of the replica's copy if that is reported instead of the directory of its log; else None."""
        return self._known.reported_copy(key)

    def is_missing(self, key: TopicIdPartition) -> bool:
        """Whether the log of this ISR member is in a directory that has been taken out of log.dirs."""
        return self._known.is_missing(key)

    def leads_in(self, directory_id: DirectoryId) -> bool:
        """Whether this broker leads a partition whose replica is in that directory, according to the newest applied
        metadata."""
        return self._known.leads_in(directory_id)

    # --- metadata ------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> Iterator[None]:
        """Brings the replicas in line with `state`, and yields after each. `delta` holds what has changed since the last
        call. `state` may change further before the end; a later delta holds that."""
        return self._metadata.apply(delta)

    def reconcile(self, key: TopicIdPartition) -> None:
        """Decides about one replica and carries out the decision. Idempotent; may be called at any time."""
        self._reconciliation.reconcile(key)

    def handle_directory_offline(self, directory_id: DirectoryId) -> Iterator[None]:
        """Handles a directory that went offline. Ends at once what is under way there, and returns the rest of the work,
        which grows with the number of replicas and yields after each."""
        return self._reconciliation.handle_directory_offline(directory_id)

    def _directory_suspected(self, directory_id: DirectoryId) -> None:
        self._task_group.create_task(in_slices(self._send_readers_away(directory_id)))

    def _send_readers_away(self, directory_id: DirectoryId) -> Iterator[None]:
        """Ends the waits of consumers at followers whose directory may hang: their leaders serve them (KIP-392)."""
        for partition in self._hosted.in_directory(directory_id):
            if not partition.is_leader:
                partition.fetch_watchers.end_waits()
            yield

    # --- hosting -------------------------------------------------------------------------------------------------

    def _host_created(self, topic: str, key: TopicIdPartition, directory: HostedDirectory, log: Log) -> Partition:
        partition = self._new_partition(topic, key.topic_id, key.partition, directory, log)
        self._hosted.add_partition(partition)
        return partition

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
        self.cleaner.note(partition)
        self._fetchers.follow(partition)
        self._on_role(partition)

    # --- parts -------------------------------------------------------------------------------------------------------

    def _make_suspected(self) -> SuspectedDirectories:
        return SuspectedDirectories(
            self._env,
            suspect_after_ns=self._config.diskraft_log_dir_suspect_ms * NS_PER_MS,
            directories=self._log_directories,
            log_dirs=self._log_dirs,
        )

    def _make_upkeep(self) -> Upkeep:
        return Upkeep(
            self._env,
            self._config,
            self._hosted,
            self._timers,
            producer_expiration_ms=lambda: self._configuration.server.producer_id_expiration_ms,
            suspected=self.suspected,
            task_group=self._task_group,
        )

    def _make_cleaner(self) -> Cleaner:
        return Cleaner(
            self._env,
            lambda: self._configuration.server,
            hosted=self._hosted,
            timers=self._timers,
            task_group=self._task_group,
            space=self._log_directories.space,
        )

    def _make_deletion(self) -> LogDeletion:
        return LogDeletion(
            self._env,
            self._hosted,
            self._timers,
            default_delay_ms=lambda: self._configuration.server.log_segment_delete_delay_ms,
            is_placed_here=lambda key: self._known.placed_here(key) is not None,
        )

    def _make_fetchers(self, connect: Callable[[str, int], Channel]) -> Fetchers:
        return Fetchers(
            self._env,
            self.state,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            listener_name=self._config.inter_broker_listener_name or "",
            connect=connect,
            settings=_fetcher_settings(self._config),
            quota=self.follower_quota,
            traffic=self.traffic,
            task_group=self._task_group,
            upkeep=self._upkeep,
            suspected=self.suspected,
        )

    def _make_moves(self) -> Moves:
        return Moves(
            self._env,
            _move_settings(self._config, self._configuration),
            known=self._known,
            hosted=self._hosted,
            suspected=self.suspected,
            deletion=self._deletion,
            timers=self._timers,
            task_group=self._task_group,
            space=self._log_directories.space,
            traffic=self.traffic,
            reconcile=self.reconcile,
            follow=self._fetchers.follow,
            held_back=self.suspected.held_back,
        )

    def _make_creation(self) -> ReplicaCreation:
        return ReplicaCreation(
            self._env,
            broker_id=self._broker_id,
            state=self.state,
            configuration=self._configuration,
            directories=self._log_directories,
            free_bytes_min=self._config.diskraft_log_dir_free_bytes_floor,
            known=self._known,
            hosted=self._hosted,
            deletion=self._deletion,
            timers=self._timers,
            unsteady=self.suspected.unsteady,
            host=self._host_created,
            reconcile=self.reconcile,
            logs_created=self._wishes_changed,
        )

    def _make_reconciliation(self) -> Reconciliation:
        return Reconciliation(
            self._env,
            state=self.state,
            directories=self._log_directories,
            known=self._known,
            hosted=self._hosted,
            creation=self._creation,
            deletion=self._deletion,
            moves=self.moves,
            fetchers=self._fetchers,
            timers=self._timers,
            wishes_changed=self._wishes_changed,
        )

    def _make_metadata_application(self) -> MetadataApplication:
        return MetadataApplication(
            self.state,
            self._configuration,
            broker_epoch=self._broker_epoch,
            known=self._known,
            hosted=self._hosted,
            reconcile=self.reconcile,
            follow=self._fetchers.follow,
        )

    def _make_log_dir_alteration(self) -> LogDirAlteration:
        return LogDirAlteration(
            state=self.state,
            directories=self._log_directories,
            known=self._known,
            hosted=self._hosted,
            creation=self._creation,
            moves=self.moves,
            configuration=self._configuration,
        )


def _move_settings(config: ServerConfig, configuration: CurrentConfiguration) -> MoveSettings:
    return MoveSettings(
        threads=lambda: configuration.server.replica_alter_log_dirs_threads,
        bytes_per_s=lambda: configuration.server.replica_alter_log_dirs_io_max_bytes_per_second,
        free_bytes_min=config.diskraft_log_dir_free_bytes_floor,
        hold_max_ns=config.diskraft_log_dir_suspect_ms * NS_PER_MS,
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
