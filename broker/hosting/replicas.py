"""The replicas that this broker hosts, on all its log directories (shell).

Answers to Kafka's ReplicaManager and LogManager. `apply` brings them in line with the newest metadata: for each replica the
core decides (`reconcile`), here the decision is carried out. Everything that touches a disk runs in a lane of that disk's
directory, so `apply` never waits and a hung disk holds up its own replicas only.

Easy to get wrong: a replica whose directory failed is remembered (`_failed`), never looked for elsewhere. Its topic id
decides: the same topic is not created again while a directory is offline, one that was deleted and created again is. And
the wishes (`wished_assignments`) are recomputed with each decision, so that a lost or refused assignment is asked for again.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.core.partition_replica import AlterPartitionResult, IsrProposal, PartitionReplica, Role
from broker.core.placement import DirectoryLoad, choose_directory, replica_kind
from broker.core.reconcile import Action, Decision, ReplicaSituation, decide
from broker.hosting.directory_logs import LoadedLog, ReplicaDescription, close_directory, create_log
from broker.hosting.fetchers import Fetchers
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.log_deletion import LogDeletion
from broker.hosting.log_reload import LogReload
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import IsrCounts, Partition
from broker.hosting.replica_fetcher import Channel, FetcherSettings
from broker.hosting.replica_loading import ReplicaLoading
from broker.hosting.traffic import Traffic
from broker.hosting.upkeep import Upkeep
from common.configuration.server import ServerConfig
from common.configuration.topic import TopicConfig, default_topic_config, topic_config
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDir, LogDirError, SpaceStat
from common.ids import BrokerEpoch, BrokerId, DirectoryId, Offset, TopicId, TopicIdPartition, uuid_text
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST
from common.metadata.registrations import BrokerRegistration, LeaderRecoveryState, PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.records.metadata_records import ConfigResourceType
from common.storage.log import Log
from common.storage.names import PartitionFolder, partition_folder
from common.time_units import NS_PER_MS, NS_PER_S

_CREATION_RETRY_NS = NS_PER_S
_WISHES_DELAY_NS = 10_000_000
_FREE_INODES_MIN = 100
# Before the first look at a file system nothing speaks against it.
_UNKNOWN_SPACE = SpaceStat(total_bytes=0, usable_bytes=1 << 62, free_inodes=0)


class OpenDirectories(Protocol):
    """The log directories, as far as replicas are concerned. `online` is in the order of the configuration."""

    @property
    def online(self) -> Mapping[DirectoryId, LogDir]: ...

    @property
    def any_offline(self) -> bool: ...

    @property
    def space(self) -> Mapping[DirectoryId, SpaceStat]: ...


class IsrProposals(Protocol):
    """Where ISR changes are sent (`AlterPartitionSender`)."""

    def submit(
        self, partition: TopicIdPartition, proposal: IsrProposal, on_result: Callable[[AlterPartitionResult], None]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ReplicaGauges:
    """Kafka's gauges of kafka.server:type=ReplicaManager."""

    partition_count: int
    leader_count: int
    offline_replica_count: int
    under_replicated_partitions: int
    under_min_isr_partition_count: int
    at_min_isr_partition_count: int
    unplaceable_replica_count: int


class Replicas:
    """See the module's docstring. `load` once, then `apply` after every change of `state`."""

    def __init__(
        self,
        env: Environment,
        config: ServerConfig,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        state: MetadataState,
        directories: OpenDirectories,
        task_group: asyncio.TaskGroup,
        proposals: IsrProposals,
        connect: Callable[[str, int], Channel],
        wishes_changed: Callable[[], None],
    ) -> None:
        self.state = state
        self.isr_counts = IsrCounts()
        self.traffic = Traffic()
        # The directories of this broker's registration before this incarnation, lost ones included; None: not known.
        self.previous_directories: Collection[DirectoryId] | None = None
        self._env = env
        self._config = config
        self._topic_defaults = default_topic_config(config)
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._open = directories
        self._task_group = task_group
        self._proposals = proposals
        self._wishes_changed = wishes_changed
        self._hosted = Hosted()
        self._directories = self._hosted.directories
        self._partitions = self._hosted.partitions
        # Hosted until its directory went offline in this incarnation.
        self._failed: dict[TopicIdPartition, DirectoryId] = {}
        self._creating: dict[TopicIdPartition, DirectoryId] = {}
        # Where a creation was begun that the process was too short of something to end, and its folder there.
        self._unfinished: dict[TopicIdPartition, tuple[DirectoryId, str]] = {}
        # Created in the metadata after this incarnation registered, and not yet on a disk here: certainly empty.
        self._newer: dict[TopicIdPartition, None] = {}
        # The offset of this incarnation's registration, or, learnt from a snapshot, of an offset behind it.
        self._registered_at: Offset | None = None
        self._unplaceable: dict[TopicIdPartition, None] = {}
        self._wishes: dict[TopicIdPartition, DirectoryId] = {}
        self._is_loaded = False
        self._has_applied = False
        self._is_shut_down = False
        self._timers = NamedTimers(env)
        self._upkeep = Upkeep(env, config, self._hosted, self._timers)
        self._reload = LogReload(env, self._hosted, self._timers)
        self._deletion = LogDeletion(
            env, self._hosted, self._timers, default_delay_ms=self._topic_defaults.file_delete_delay_ms
        )
        self._fetchers = Fetchers(
            env,
            state,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            listener_name=config.inter_broker_listener_name or "",
            connect=connect,
            settings=_fetcher_settings(config),
            task_group=task_group,
            lower_checkpoints=self._upkeep.lower_checkpoints,
            raise_log_start=self._upkeep.raise_log_start,
        )

    # --- start and end -------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Loads the logs of all online directories, each directory by itself, and starts the upkeep.

        `state` must be an image recent enough to tell which logs belong to this broker. Raises DuplicateLog and
        ReplicasNotLoaded.
        """
        for directory_id, log_dir in self._open.online.items():
            self._directories[directory_id] = HostedDirectory(directory_id, log_dir)
        loading = ReplicaLoading(
            self._env,
            self._hosted,
            broker_id=self._broker_id,
            placed_here=self._placed_here,
            config_of=self._topic_config,
        )
        for directory, content in await loading.load():
            directory.files.loaded(content.checkpoints)
            for loaded in content.logs:
                self._host(loaded, directory)
            for folder in content.deleted_folders:
                self._deletion.remove_later(directory, folder)
            self._task_group.create_task(directory.work.run())
            self._task_group.create_task(directory.upkeep.run())
        self._is_loaded = True
        self._upkeep.start()

    def _host(self, loaded: LoadedLog, directory: HostedDirectory) -> None:
        partition = self._new_partition(loaded.topic, loaded.topic_id, loaded.index, directory, loaded.log)
        partition.load_high_watermark(loaded.high_watermark)
        self._partitions[partition.key] = partition
        self._note_kind(partition.key)

    async def shutdown(self) -> None:
        """The orderly end: stops serving, syncs and closes every log, and leaves the clean-shutdown markers in the
        directories that stayed online."""
        self._is_shut_down = True
        self._timers.stop()
        self._fetchers.stop_all()
        for partition in self._partitions.values():
            partition.leave(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self._is_loaded:
            # A marker would vouch for logs that nobody has looked at.
            return
        async with asyncio.TaskGroup() as group:
            for directory in self._directories.values():
                group.create_task(self._close_directory(directory))

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
                BrokerEpoch(-1) if epoch is None else epoch,
            )
        except LogDirError as error:
            # No marker: what is on this disk must be recovered at the next start.
            self._env.log.warning("log_dir_not_closed", log_dir=directory.log_dir.path, reason=str(error))

    async def settled(self) -> None:
        """Returns when nothing that the replicas asked of the disks so far is under way."""
        for directory in list(self._directories.values()):
            await directory.work.drained()

    # --- looking up ----------------------------------------------------------------------------------------------

    def find(self, topic_id: TopicId, index: int) -> Partition | ErrorCode:
        """The partition, or what to answer for one that is not here."""
        key = TopicIdPartition(topic_id, index)
        partition = self._partitions.get(key)
        if partition is not None:
            return partition
        if topic_id not in self.state.topics:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._absent_error(key)

    def find_named(self, topic: str, index: int) -> Partition | ErrorCode:
        """The same by the topic's name."""
        topic_id = self.state.topic_ids.get(topic)
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        key = TopicIdPartition(topic_id, index)
        return self._partitions.get(key) or self._absent_error(key)

    def _absent_error(self, key: TopicIdPartition) -> ErrorCode:
        registration = self.state.partition(*key)
        if registration is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key in self._failed or (registration.leader == self._broker_id and key not in self._creating):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def hosted_directories(self) -> dict[TopicIdPartition, DirectoryId]:
        """Where the current log of each replica is; replicas in failed directories are not among them."""
        return {key: partition.directory_id for key, partition in self._partitions.items()}

    def wished_assignments(self) -> dict[TopicIdPartition, DirectoryId]:
        """What the controller should be told: the true directory, the failed one, or LOST."""
        return dict(self._wishes)

    def is_being_created(self, key: TopicIdPartition) -> bool:
        """Whether the log of this replica is about to be there, and what there is to tell about it with it."""
        return key in self._creating

    def is_unplaceable(self, key: TopicIdPartition) -> bool:
        """Whether no directory has room for this replica."""
        return key in self._unplaceable

    def describe(self, directory_id: DirectoryId) -> list[ReplicaDescription]:
        """The replicas in an online directory."""
        return [
            ReplicaDescription(
                partition.topic,
                partition.index,
                directory_id,
                partition.log.size_bytes,
                max(partition.high_watermark - partition.log.log_end_offset, 0),
            )
            for partition in self._hosted.in_directory(directory_id)
        ]

    def gauges(self) -> ReplicaGauges:
        """Counts of this moment."""
        leaders = [partition for partition in self._partitions.values() if partition.is_leader]
        # How many more in-sync replicas there are than acks=all needs.
        spare = [len(each.replica.committed_isr) - each.replica.min_isr for each in leaders]
        return ReplicaGauges(
            partition_count=len(self._partitions),
            leader_count=len(leaders),
            offline_replica_count=len(self._failed),
            under_replicated_partitions=sum(each.replica.is_under_replicated for each in leaders),
            under_min_isr_partition_count=sum(count < 0 for count in spare),
            at_min_isr_partition_count=sum(count == 0 for count in spare),
            unplaceable_replica_count=len(self._unplaceable),
        )

    # --- metadata ------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """Brings the replicas in line with `state`; `delta` says what has changed in it since the last time."""
        self._note_newer(delta)
        for resource_type, name in delta.changed_configs:
            if resource_type == ConfigResourceType.TOPIC:
                self._topic_config_changed(name)
        for topic_id, topic in delta.removed_topics.items():
            for index in topic.partitions:
                self.reconcile(TopicIdPartition(topic_id, index))
        for key in delta.changed_partitions:
            self.reconcile(key)
        if delta.changed_brokers:
            self._brokers_changed(delta)
        if not self._has_applied:
            self._has_applied = True
            self._forget_topics_that_went_during_the_start()

    def _forget_topics_that_went_during_the_start(self) -> None:
        """A topic that was created and deleted within the first delta is not in it, and its logs were loaded in between."""
        for key in [key for key in self._partitions if self._placed_here(key) is None]:
            self.reconcile(key)

    def reconcile(self, key: TopicIdPartition) -> None:
        """Decides about one replica and carries the decision out. Harmless at any time."""
        registration = self._placed_here(key)
        self._note_kind(key)
        if self._is_shut_down or key in self._creating:
            return
        if registration is None:
            self._forget(key)
        elif self._failed.get(key) is not None and registration.directory(self._broker_id) == LOST:
            # From here on an unclean election may start it anew.
            del self._failed[key]
        decision = decide(self._situation(key, registration))
        directory = None
        if decision.action is Action.CREATE and registration is not None:
            directory = self._directory_for(key, registration, decision.directory)
            if directory is None:
                decision = self._unplaceable_decision(registration)
        self._note_wish(key, decision)
        partition = self._partitions.get(key)
        if decision.action is Action.DELETE:
            if partition is not None:
                self._delete(partition)
        elif partition is not None and registration is not None:
            partition.apply(registration)
        elif directory is not None:
            self._create(key, directory)

    def _situation(self, key: TopicIdPartition, registration: PartitionRegistration | None) -> ReplicaSituation:
        partition = self._partitions.get(key)
        online = self._online()
        is_leader = registration is not None and registration.leader == self._broker_id
        previous = self.previous_directories
        return ReplicaSituation(
            metadata_directory=None if registration is None else registration.directory(self._broker_id),
            hosted_directory=None if partition is None else partition.directory_id,
            failed_directory=self._failed.get(key),
            online_directories=online,
            any_offline=self._open.any_offline or len(online) < len(self._open.online),
            in_isr=registration is not None and (is_leader or self._broker_id in registration.isr),
            leads_while_recovering=is_leader
            and registration is not None
            and registration.leader_recovery_state == LeaderRecoveryState.RECOVERING,
            newer_than_incarnation=key in self._newer,
            previous_directories_online=bool(previous) and all(each in online for each in previous or ()),
        )

    def _online(self) -> Collection[DirectoryId]:
        # A directory that failed a moment ago may still be among the open ones, until the failure channel has run.
        return [each for each in self._open.online if each in self._directories]

    def _placed_here(self, key: TopicIdPartition) -> PartitionRegistration | None:
        registration = self.state.partition(*key)
        return registration if registration is not None and self._broker_id in registration.replicas else None

    def _note_newer(self, delta: MetadataDelta) -> None:
        registration = self.state.brokers.get(self._broker_id)
        if registration is None or registration.epoch != self._broker_epoch():
            return
        if self._registered_at is None:
            # Kept: after a snapshot the state no longer knows it, and would call everything old that the snapshot brought.
            self._registered_at = self.state.registration_offsets[self._broker_id]
        for key, created_at in delta.created_partitions.items():
            if created_at > self._registered_at and key not in self._partitions and self._placed_here(key) is not None:
                self._newer[key] = None

    def _note_wish(self, key: TopicIdPartition, decision: Decision) -> None:
        wish = LOST if decision.action is Action.ASSIGN_LOST else None
        if decision.action is Action.ASSIGN:
            wish = decision.directory
        if self._wishes.get(key) == wish:
            return
        if wish is None:
            del self._wishes[key]
        else:
            self._wishes[key] = wish
            self._env.log.info("assignment_queued", partition=self._name(key), directory_id=uuid_text(wish))
        if "wishes" not in self._timers:
            # Wishes come in bunches, one for each log that is created.
            self._timers.after("wishes", _WISHES_DELAY_NS, self._wishes_changed)

    def _forget(self, key: TopicIdPartition) -> None:
        for remembered in (self._failed, self._newer, self._unplaceable):
            remembered.pop(key, None)
        directory_id, folder = self._unfinished.pop(key, (None, ""))
        directory = None if directory_id is None else self._directories.get(directory_id)
        if directory is not None:
            self._deletion.remove_unfinished(directory, folder)

    def _brokers_changed(self, delta: MetadataDelta) -> None:
        for partition in list(self._partitions.values()):
            partition.brokers_changed()
            if partition.replica.role is Role.FOLLOWER and partition.replica.leader in delta.changed_brokers:
                self._fetchers.follow(partition)

    def _topic_config(self, topic: str) -> TopicConfig:
        return topic_config(self._topic_defaults, self.state.config(ConfigResourceType.TOPIC, topic))

    def _topic_config_changed(self, topic: str) -> None:
        topic_id = self.state.topic_ids.get(topic)
        config = self._topic_config(topic)
        for partition in self._partitions.values():
            if partition.topic_id == topic_id:
                partition.set_config(config)

    def _name(self, key: TopicIdPartition) -> str:
        topic = self.state.topics.get(key.topic_id)
        return f"{uuid_text(key.topic_id) if topic is None else topic.name}-{key.partition}"

    # --- creating ------------------------------------------------------------------------------------------------

    def _directory_for(
        self, key: TopicIdPartition, registration: PartitionRegistration, wanted: DirectoryId | None
    ) -> HostedDirectory | None:
        unfinished = self._unfinished.get(key)
        directory_id = wanted if wanted is not None else self._choose_directory(registration)
        if unfinished is not None and unfinished[0] in self._directories:
            # What is there would count as a second log of the same replica.
            directory_id = unfinished[0]
        directory = None if directory_id is None else self._directories.get(directory_id)
        if directory is not None:
            self._unplaceable.pop(key, None)
            return directory
        if key not in self._unplaceable:
            self._unplaceable[key] = None
            self._env.log.error("replica_not_placeable", partition=self._name(key))
            self._wishes_changed()
        self._retry_later(key)
        return None

    def _unplaceable_decision(self, registration: PartitionRegistration) -> Decision:
        """A member of the ISR that has no place says so, or it would be waited for."""
        in_isr = self._broker_id in registration.isr
        if in_isr and registration.directory(self._broker_id) != LOST:
            return Decision(Action.ASSIGN_LOST)
        return Decision(Action.SKIP)

    def _create(self, key: TopicIdPartition, directory: HostedDirectory) -> None:
        topic = self.state.topics[key.topic_id].name
        self._creating[key] = directory.directory_id
        self._note_kind(key)
        directory.work.submit(lambda: self._create_log(key, topic, directory))

    def _note_kind(self, key: TopicIdPartition) -> None:
        """Counts the replica where its log is, or is being created, as what the metadata makes it now."""
        partition = self._partitions.get(key)
        directory_id = self._creating.get(key) if partition is None else partition.directory_id
        directory = None if directory_id is None else self._directories.get(directory_id)
        if directory is not None:
            registration = self._placed_here(key)
            directory.replicas.place(
                key, replica_kind(self._broker_id, () if registration is None else registration.replicas)
            )

    def _choose_directory(self, registration: PartitionRegistration) -> DirectoryId | None:
        loads = []
        for directory_id in self._online():
            space = self._open.space.get(directory_id, _UNKNOWN_SPACE)
            loads.append(
                DirectoryLoad(
                    directory_id=directory_id,
                    replicas=self._directories[directory_id].replicas,
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

    async def _create_log(self, key: TopicIdPartition, topic: str, directory: HostedDirectory) -> None:
        if self._placed_here(key) is None:
            # Its turn came late, and nobody wants it any more.
            if self._was_creating(key, directory):
                directory.replicas.remove(key)
                self.reconcile(key)
            return
        folder = PartitionFolder(topic, key.partition)
        try:
            await directory.files.forget((topic, key.partition), self._hosted.in_directory(directory.directory_id))
            log = await create_log(self._env, directory.log_dir, folder, self._topic_config(topic), key.topic_id)
        except LogDirError as error:
            if self._was_creating(key, directory):
                directory.replicas.remove(key)
                self._creation_failed(key, directory, partition_folder(topic, key.partition), error)
            return
        self._unfinished.pop(key, None)
        if not self._was_creating(key, directory):
            # The directory went offline at this moment, which has settled everything.
            return
        if self._placed_here(key) is None:
            # In this job: the next may create the log of a later topic of this name, and the folder is that one's then.
            directory.replicas.remove(key)
            self.reconcile(key)
            await self._deletion.delete(log, self._topic_config(topic).file_delete_delay_ms, directory)
            return
        partition = self._new_partition(topic, key.topic_id, key.partition, directory, log)
        self._partitions[key] = partition
        self._newer.pop(key, None)
        self._env.log.info(
            "log_created",
            partition=partition.name,
            topic_id=key.topic_id.hex(),
            log_dir=directory.log_dir.path,
            directory_id=uuid_text(directory.directory_id),
        )
        self.reconcile(key)
        # Where nothing has to be told, the unfence gate may wait for this place all the same.
        self._wishes_changed()

    def _was_creating(self, key: TopicIdPartition, directory: HostedDirectory) -> bool:
        """Ends the creation. False when it was given up meanwhile: the replica may be on its way to another directory."""
        if self._creating.get(key) != directory.directory_id:
            return False
        del self._creating[key]
        return True

    def _creation_failed(self, key: TopicIdPartition, directory: HostedDirectory, folder: str, error: LogDirError) -> None:
        if classify(error) in (Verdict.DIRECTORY_FAILED, Verdict.DIRECTORY_FULL):
            # The next directory is tried at once; this one is on its way offline (KAFKA-8526). So it is for the creations
            # that waited in its lane: `handle_directory_offline` will find them neither hosted nor being created.
            for affected in (key, *self._leave_directory(directory.directory_id)):
                self.reconcile(affected)
        else:
            self._unfinished[key] = directory.directory_id, folder
            self._retry_later(key)

    def _retry_later(self, key: TopicIdPartition) -> None:
        timer = f"create {key.topic_id.hex()}-{key.partition}"
        if timer not in self._timers:
            self._timers.after(timer, _CREATION_RETRY_NS, lambda: self.reconcile(key))

    def _registration_of(self, broker_id: BrokerId) -> BrokerRegistration | None:
        # The dictionary is looked up each time: a snapshot that replaces the image brings others.
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
            config=self._topic_config(topic),
            propose=self._proposals.submit,
            on_role=self._fetchers.follow,
            on_log_failed=self._reload.log_failed,
            isr_counts=self.isr_counts,
        )

    # --- deleting ------------------------------------------------------------------------------------------------

    def _delete(self, partition: Partition) -> None:
        del self._partitions[partition.key]
        self._fetchers.unfollow(partition)
        partition.leave(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        directory = self._directories.get(partition.directory_id)
        if directory is not None:
            directory.replicas.remove(partition.key)
            delay_ms = partition.config.file_delete_delay_ms
            directory.work.submit(lambda: self._deletion.delete(partition.log, delay_ms, directory))

    # --- failing directories -------------------------------------------------------------------------------------

    def handle_directory_offline(self, directory_id: DirectoryId) -> None:
        """The directory is gone for this incarnation: its replicas answer KAFKA_STORAGE_ERROR, its disk is not touched."""
        affected = self._leave_directory(directory_id)
        self._env.log.warning(
            "replicas_offline", directory_id=uuid_text(directory_id), replicas=sum(key in self._failed for key in affected)
        )
        for key in affected:
            self.reconcile(key)

    def _leave_directory(self, directory_id: DirectoryId) -> list[TopicIdPartition]:
        """Drops everything of a directory from memory; returns the replicas that were there or on their way there."""
        directory = self._directories.pop(directory_id, None)
        if directory is not None:
            directory.stop()
        self._fetchers.stop_directory(directory_id)
        affected = dict.fromkeys(key for key, creating_in in self._creating.items() if creating_in == directory_id)
        for key in affected:
            # Nothing was ever appended there, so it is as absent as before.
            del self._creating[key]
        for partition in self._hosted.in_directory(directory_id):
            del self._partitions[partition.key]
            self._failed[partition.key] = directory_id
            self._fetchers.unfollow(partition)
            partition.leave(ErrorCode.KAFKA_STORAGE_ERROR)
        affected.update(dict.fromkeys(key for key, failed_in in self._failed.items() if failed_in == directory_id))
        return list(affected)


def _fetcher_settings(config: ServerConfig) -> FetcherSettings:
    return FetcherSettings(
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        backoff_max_ns=config.replica_fetch_backoff_ms * NS_PER_MS,
        request_timeout_ns=config.replica_socket_timeout_ms * NS_PER_MS,
    )
