"""The replicas that this broker hosts, on all its log directories (shell).

Answers to Kafka's ReplicaManager and LogManager. `apply` brings them in line with the newest metadata: for each replica the
core decides (`reconcile`), here the decision is carried out. Everything that touches a disk runs in a lane of that disk's
directory, so `apply` never waits and a hung disk holds up its own replicas only.

Easy to get wrong: a replica whose directory failed is remembered (`_failed`), never looked for elsewhere. Its topic id
decides: the same topic is not created again while a directory is offline, one that was deleted and created again is. And
the wishes (`wished_assignments`) are recomputed with each decision, so that a lost or refused assignment is asked for again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from broker.core.partition_replica import AlterPartitionResult, IsrProposal, PartitionReplica, Role
from broker.core.placement import DirectoryLoad, choose_directory
from broker.core.reconcile import Action, Decision, ReplicaSituation, decide
from broker.directory_lane import DirectoryLane
from broker.directory_logs import (
    CheckpointFiles,
    DirectoryContent,
    LoadedLog,
    ReplicaDescription,
    close_directory,
    find_superfluous,
    load_directory,
    put_aside,
)
from broker.fetchers import Fetchers
from broker.partition import IsrCounts, Partition
from broker.replica_fetcher import Channel, FetcherSettings
from broker.traffic import Traffic
from common.configuration.server import ServerConfig
from common.configuration.topic import TopicConfig, default_topic_config, topic_config
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDir, LogDirError, SpaceStat
from common.ids import BrokerEpoch, BrokerId, DirectoryId, Offset, TopicId, uuid_text
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import LOST
from common.metadata.registrations import BrokerRegistration, LeaderRecoveryState, PartitionRegistration, TopicIdPartition
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.records.batch import BatchError
from common.records.metadata_records import ConfigResourceType
from common.storage.errors import LogClosed, LogExists
from common.storage.log import Log
from common.storage.names import FolderKind, marked_partition_folder, partition_folder
from common.storage.partition_metadata import MalformedPartitionMetadata

_MILLISECOND = 1_000_000
_CREATION_RETRY_NS = 1_000_000_000
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


class ReplicasNotLoaded(Exception):
    """The logs of a healthy directory could not be loaded; the text says why."""


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


class _Directory:
    """An online directory: its lanes and checkpoint files."""

    def __init__(self, directory_id: DirectoryId, log_dir: LogDir) -> None:
        self.directory_id = directory_id
        self.log_dir = log_dir
        self.files = CheckpointFiles(log_dir)
        # Logs there, those being created included: what placement counts.
        self.log_count = 0
        # What replicas wait for, and what only time asks for: a long sync must not hold up a creation.
        self.work = DirectoryLane()
        self.upkeep = DirectoryLane()

    def stop(self) -> None:
        self.work.stop()
        self.upkeep.stop()


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
        self._directories: dict[DirectoryId, _Directory] = {}
        self._partitions: dict[TopicIdPartition, Partition] = {}
        # Hosted until its directory went offline in this incarnation.
        self._failed: dict[TopicIdPartition, DirectoryId] = {}
        self._creating: dict[TopicIdPartition, DirectoryId] = {}
        # There, and being loaded again after the process ran short of something.
        self._reloading: dict[TopicIdPartition, Partition] = {}
        # Created in the metadata after this incarnation registered, and not yet on a disk here: certainly empty.
        self._newer: dict[TopicIdPartition, None] = {}
        # The offset of this incarnation's registration, or, learnt from a snapshot, of an offset behind it.
        self._registered_at: Offset | None = None
        self._unplaceable: dict[TopicIdPartition, None] = {}
        self._wishes: dict[TopicIdPartition, DirectoryId] = {}
        self._timers: dict[str, Callable[[], None]] = {}
        self._is_loaded = False
        self._has_applied = False
        self._is_shut_down = False
        self._fetchers = Fetchers(
            env,
            state,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            listener_name=config.inter_broker_listener_name or "",
            connect=connect,
            settings=_fetcher_settings(config),
            task_group=task_group,
            store_recovery_points=self._store_recovery_points,
            raise_log_start=self._raise_log_start,
        )

    # --- start and end -------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Loads the logs of all online directories, each directory by itself, and starts the upkeep.

        `state` must be an image recent enough to tell which logs belong to this broker. Raises DuplicateLog and
        ReplicasNotLoaded.
        """
        contents: dict[DirectoryId, DirectoryContent] = {}
        unloadable: list[str] = []
        for directory_id, log_dir in self._open.online.items():
            self._directories[directory_id] = _Directory(directory_id, log_dir)
        async with asyncio.TaskGroup() as group:
            for directory in list(self._directories.values()):
                group.create_task(self._load_directory(directory, contents, unloadable))
        if unloadable:
            raise ReplicasNotLoaded("; ".join(unloadable))
        await self._put_superfluous_aside(contents, unloadable)
        if unloadable:
            raise ReplicasNotLoaded("; ".join(unloadable))
        for directory in list(self._directories.values()):
            content = contents.get(directory.directory_id, DirectoryContent())
            directory.files.loaded(content.checkpoints)
            for loaded in content.logs:
                self._host(loaded, directory)
            for folder in content.deleted_folders:
                self._remove_later(directory, folder)
            self._task_group.create_task(directory.work.run())
            self._task_group.create_task(directory.upkeep.run())
        self._is_loaded = True
        self._start_timers()

    async def _load_directory(
        self, directory: _Directory, contents: dict[DirectoryId, DirectoryContent], unloadable: list[str]
    ) -> None:
        try:
            content = await load_directory(
                self._env, directory.log_dir, is_placed_here=self._is_placed_here, config_of=self._topic_config
            )
        except LogDirError as error:
            self._give_up_loading(directory, error, unloadable)
            return
        if directory.directory_id in self._directories:
            contents[directory.directory_id] = content
        self._env.log.info("logs_loaded", log_dir=directory.log_dir.path, logs=len(content.logs))

    def _give_up_loading(self, directory: _Directory, error: LogDirError, unloadable: list[str]) -> None:
        if classify(error) not in (Verdict.DIRECTORY_FAILED, Verdict.DIRECTORY_FULL):
            # Serving without these logs would look like a disk that lost them.
            unloadable.append(f"the logs of {directory.log_dir.path} cannot be loaded: {error}")
        self._directories.pop(directory.directory_id, None)

    async def _put_superfluous_aside(self, contents: dict[DirectoryId, DirectoryContent], unloadable: list[str]) -> None:
        for directory_id, loaded in find_superfluous(
            {directory_id: contents[directory_id].logs for directory_id in self._directories if directory_id in contents},
            named_by_metadata=self._directory_named_by_metadata,
            is_in_isr=self._is_in_isr,
        ):
            directory = self._directories.get(directory_id)
            if directory is None:
                continue
            try:
                await put_aside(self._env, loaded)
            except LogDirError as error:
                self._give_up_loading(directory, error, unloadable)
            contents[directory_id].logs.remove(loaded)

    def _directory_named_by_metadata(self, key: TopicIdPartition) -> DirectoryId | None:
        registration = self._placed_here(key)
        return None if registration is None else registration.directory(self._broker_id)

    def _is_in_isr(self, key: TopicIdPartition) -> bool:
        registration = self._placed_here(key)
        return registration is not None and self._broker_id in (registration.leader, *registration.isr)

    def _host(self, loaded: LoadedLog, directory: _Directory) -> None:
        partition = self._new_partition(loaded.topic, loaded.topic_id, loaded.index, directory, loaded.log)
        partition.load_high_watermark(loaded.high_watermark)
        self._partitions[partition.key] = partition
        directory.log_count += 1

    async def shutdown(self) -> None:
        """The orderly end: stops serving, syncs and closes every log, and leaves the clean-shutdown markers in the
        directories that stayed online."""
        self._is_shut_down = True
        for cancel in self._timers.values():
            cancel()
        self._timers.clear()
        self._fetchers.stop_all()
        for partition in self._partitions.values():
            partition.leave(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self._is_loaded:
            # A marker would vouch for logs that nobody has looked at.
            return
        async with asyncio.TaskGroup() as group:
            for directory in self._directories.values():
                group.create_task(self._close_directory(directory))

    async def _close_directory(self, directory: _Directory) -> None:
        await directory.work.drained()
        await directory.upkeep.drained()
        directory.stop()
        epoch = self._broker_epoch()
        try:
            await close_directory(
                directory.log_dir,
                directory.files,
                self._hosted_in(directory.directory_id),
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
        partition = self._partitions.get((topic_id, index))
        if partition is not None:
            return partition
        if topic_id not in self.state.topics:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._absent_error(topic_id, index)

    def find_named(self, topic: str, index: int) -> Partition | ErrorCode:
        """The same by the topic's name."""
        topic_id = self.state.topic_ids.get(topic)
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._partitions.get((topic_id, index)) or self._absent_error(topic_id, index)

    def _absent_error(self, topic_id: TopicId, index: int) -> ErrorCode:
        registration = self.state.partition(topic_id, index)
        if registration is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        key = (topic_id, index)
        if (
            key in self._failed
            or key in self._reloading
            or (registration.leader == self._broker_id and key not in self._creating)
        ):
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
            for partition in self._hosted_in(directory_id)
        ]

    def gauges(self) -> ReplicaGauges:
        """Counts of this moment."""
        leaders = [partition for partition in self._partitions.values() if partition.is_leader]
        # How many more in-sync replicas there are than acks=all needs.
        spare = [len(each.replica.committed_isr) - each.replica.min_isr(each.config.min_insync_replicas) for each in leaders]
        return ReplicaGauges(
            partition_count=len(self._partitions),
            leader_count=len(leaders),
            offline_replica_count=len(self._failed),
            under_replicated_partitions=sum(each.replica.is_under_replicated for each in leaders),
            under_min_isr_partition_count=sum(count < 0 for count in spare),
            at_min_isr_partition_count=sum(count == 0 for count in spare),
            unplaceable_replica_count=len(self._unplaceable),
        )

    def _hosted_in(self, directory_id: DirectoryId) -> list[Partition]:
        return [partition for partition in self._partitions.values() if partition.directory_id == directory_id]

    # --- metadata ------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """Brings the replicas in line with `state`; `delta` says what has changed in it since the last time."""
        self._note_newer(delta)
        for resource_type, name in delta.changed_configs:
            if resource_type == ConfigResourceType.TOPIC:
                self._topic_config_changed(name)
        for topic_id, topic in delta.removed_topics.items():
            for index in topic.partitions:
                self.reconcile((topic_id, index))
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
        if registration is None and not self._is_shut_down:
            self._give_up_reload(key)
        if self._is_shut_down or key in self._creating or key in self._reloading:
            return
        if registration is None:
            self._forget(key)
        elif self._failed.get(key) is not None and registration.directory(self._broker_id) == LOST:
            # From here on an unclean election may start it anew.
            del self._failed[key]
        decision = decide(self._situation(key, registration))
        directory = None
        if decision.action is Action.CREATE and registration is not None:
            directory = self._directory_for(key, decision.directory)
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

    def _is_placed_here(self, topic_id: TopicId, index: int) -> bool:
        return self._placed_here((topic_id, index)) is not None

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
            self._env.log.info("assignment_wished", partition=self._name(key), directory_id=uuid_text(wish))
        if "wishes" not in self._timers:
            # Wishes come in bunches, one for each log that is created.
            self._after("wishes", _WISHES_DELAY_NS, self._wishes_changed)

    def _forget(self, key: TopicIdPartition) -> None:
        for remembered in (self._failed, self._newer, self._unplaceable):
            remembered.pop(key, None)

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
        topic = self.state.topics.get(key[0])
        return f"{uuid_text(key[0]) if topic is None else topic.name}-{key[1]}"

    # --- creating ------------------------------------------------------------------------------------------------

    def _directory_for(self, key: TopicIdPartition, wanted: DirectoryId | None) -> _Directory | None:
        directory_id = wanted if wanted is not None else self._choose_directory()
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

    def _create(self, key: TopicIdPartition, directory: _Directory) -> None:
        topic = self.state.topics[key[0]].name
        self._creating[key] = directory.directory_id
        directory.log_count += 1
        directory.work.submit(lambda: self._create_log(key, topic, directory))

    def _choose_directory(self) -> DirectoryId | None:
        loads = []
        for directory_id in self._online():
            space = self._open.space.get(directory_id, _UNKNOWN_SPACE)
            loads.append(
                DirectoryLoad(
                    directory_id=directory_id,
                    logs=self._directories[directory_id].log_count,
                    usable_bytes=space.usable_bytes,
                    free_inodes=space.free_inodes,
                )
            )
        return choose_directory(
            loads,
            usable_bytes_min=self._config.diskraft_log_dir_free_bytes_floor,
            free_inodes_min=_FREE_INODES_MIN,
        )

    async def _create_log(self, key: TopicIdPartition, topic: str, directory: _Directory) -> None:
        if self._placed_here(key) is None:
            # Its turn came late, and nobody wants it any more.
            if self._was_creating(key, directory):
                directory.log_count -= 1
                self.reconcile(key)
            return
        name = partition_folder(topic, key[1])
        try:
            await directory.files.forget((topic, key[1]), self._hosted_in(directory.directory_id))
            log = await self._create_or_put_aside(directory.log_dir, name, topic, key)
        except LogDirError as error:
            if self._was_creating(key, directory):
                directory.log_count -= 1
                self._creation_failed(key, directory, error)
            return
        if not self._was_creating(key, directory):
            # The directory went offline at this moment, which has settled everything.
            return
        if self._placed_here(key) is None:
            # In this job: the next may create the log of a later topic of this name, and the folder is that one's then.
            directory.log_count -= 1
            self.reconcile(key)
            await self._delete_log(log, self._topic_config(topic).file_delete_delay_ms, directory)
            return
        partition = self._new_partition(topic, key[0], key[1], directory, log)
        self._partitions[key] = partition
        self._newer.pop(key, None)
        self._env.log.info(
            "log_created",
            partition=partition.name,
            topic_id=key[0].hex(),
            log_dir=directory.log_dir.path,
            directory_id=uuid_text(directory.directory_id),
        )
        self.reconcile(key)
        # Where nothing has to be told, the unfence gate may wait for this place all the same.
        self._wishes_changed()

    def _was_creating(self, key: TopicIdPartition, directory: _Directory) -> bool:
        """Ends the creation. False when it was given up meanwhile: the replica may be on its way to another directory."""
        if self._creating.get(key) != directory.directory_id:
            return False
        del self._creating[key]
        return True

    async def _create_or_put_aside(self, log_dir: LogDir, name: str, topic: str, key: TopicIdPartition) -> Log:
        try:
            return await Log.create(log_dir, name, self._topic_config(topic), key[0])
        except LogExists:
            # Nobody here knows this folder, so it is not ours to take; it may hold somebody's data.
            stray = marked_partition_folder(topic, key[1], FolderKind.STRAY, self._env.uuid())
            await log_dir.rename(name, stray)
            # Before the name is given to another folder, which would take this one's place if the rename were lost.
            await log_dir.fsync_dir()
            self._env.log.warning("stray_log_put_aside", log_dir=log_dir.path, folder=name, renamed_to=stray)
            return await Log.create(log_dir, name, self._topic_config(topic), key[0])

    def _creation_failed(self, key: TopicIdPartition, directory: _Directory, error: LogDirError) -> None:
        if classify(error) in (Verdict.DIRECTORY_FAILED, Verdict.DIRECTORY_FULL):
            # The next directory is tried at once; this one is on its way offline (KAFKA-8526).
            self._leave_directory(directory.directory_id)
            self.reconcile(key)
        else:
            self._retry_later(key)

    def _retry_later(self, key: TopicIdPartition) -> None:
        timer = f"create {key[0].hex()}-{key[1]}"
        if timer not in self._timers:
            self._after(timer, _CREATION_RETRY_NS, lambda: self.reconcile(key))

    def _registration_of(self, broker_id: BrokerId) -> BrokerRegistration | None:
        # The dictionary is looked up each time: a snapshot that replaces the image brings others.
        return self.state.brokers.get(broker_id)

    def _new_partition(self, topic: str, topic_id: TopicId, index: int, directory: _Directory, log: Log) -> Partition:
        replica = PartitionReplica(
            self._broker_id,
            self._registration_of,
            self._config.replica_lag_time_max_ms * _MILLISECOND,
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
            on_log_failed=self._log_failed,
            isr_counts=self.isr_counts,
        )

    # --- deleting ------------------------------------------------------------------------------------------------

    def _delete(self, partition: Partition) -> None:
        del self._partitions[partition.key]
        self._fetchers.unfollow(partition)
        partition.leave(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        directory = self._directories.get(partition.directory_id)
        if directory is not None:
            directory.log_count -= 1
            directory.work.submit(lambda: self._delete_log(partition.log, partition.config.file_delete_delay_ms, directory))

    async def _delete_log(self, log: Log, delay_ms: int, directory: _Directory) -> None:
        name = log.name
        folder = await log.delete_rename(self._env.uuid())
        self._env.log.info("log_deleted", partition=name, log_dir=directory.log_dir.path, folder=folder)
        self._remove_later(directory, folder, delay_ms)

    async def _delete_closed_log(self, former: Partition, directory: _Directory) -> None:
        """As `_delete_log`, of a log that failed and was to be loaded again."""
        folder = marked_partition_folder(former.topic, former.index, FolderKind.DELETE, self._env.uuid())
        await directory.log_dir.rename(former.log.name, folder)
        await directory.log_dir.fsync_dir()
        self._env.log.info("log_deleted", partition=former.name, log_dir=directory.log_dir.path, folder=folder)
        self._remove_later(directory, folder, former.config.file_delete_delay_ms)

    def _remove_later(self, directory: _Directory, folder: str, delay_ms: int | None = None) -> None:
        async def remove() -> None:
            if await directory.log_dir.stat(folder) is None:
                return
            # File by file: a terabyte in one operation would meet its deadline, and appends would wait for all of it.
            for entry in await directory.log_dir.list(folder):
                await directory.log_dir.remove(f"{folder}/{entry.name}")
            await directory.log_dir.remove(folder)

        if delay_ms is None:
            delay_ms = self._topic_defaults.file_delete_delay_ms
        timer = f"remove {uuid_text(directory.directory_id)}/{folder}"
        self._after(timer, delay_ms * _MILLISECOND, lambda: directory.upkeep.submit(remove))

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
        for key in [key for key, former in self._reloading.items() if former.directory_id == directory_id]:
            del self._reloading[key]
            self._failed[key] = directory_id
        for partition in self._hosted_in(directory_id):
            del self._partitions[partition.key]
            self._failed[partition.key] = directory_id
            self._fetchers.unfollow(partition)
            partition.leave(ErrorCode.KAFKA_STORAGE_ERROR)
        affected.update(dict.fromkeys(key for key, failed_in in self._failed.items() if failed_in == directory_id))
        return list(affected)

    # --- logs that fail without their directory ------------------------------------------------------------------

    def _log_failed(self, partition: Partition) -> None:
        """An append failed. Where the process was short of files or memory the disk is well, and the log is loaded again."""
        failure = partition.log.failure
        if failure is None or classify(failure) is not Verdict.PROCESS_TROUBLE or partition.gone is not ErrorCode.NONE:
            return
        timer = f"reload {partition.topic_id.hex()}-{partition.index}"
        if timer not in self._timers:
            self._after(timer, _CREATION_RETRY_NS, lambda: self._begin_reload(partition))

    def _begin_reload(self, partition: Partition) -> None:
        directory = self._directories.get(partition.directory_id)
        if directory is None or self._partitions.get(partition.key) is not partition:
            return
        if partition.is_restructuring:
            self._log_failed(partition)
            return
        del self._partitions[partition.key]
        self._fetchers.unfollow(partition)
        partition.leave(ErrorCode.KAFKA_STORAGE_ERROR)
        partition.log.abandon()
        self._reloading[partition.key] = partition
        directory.work.submit(lambda: self._reload(partition, directory))

    async def _reload(self, former: Partition, directory: _Directory) -> None:
        key = former.key
        if self._reloading.get(key) is not former:
            return
        try:
            log = await Log.load(
                directory.log_dir,
                former.log.name,
                former.config,
                recovery_point=former.log.recovery_point,
                log_start_offset=former.log.log_start_offset,
            )
        except LogDirError as error:
            if self._reloading.get(key) is former and classify(error) is Verdict.PROCESS_TROUBLE:
                again = partial(directory.work.submit, lambda: self._reload(former, directory))
                self._after(f"reload {key[0].hex()}-{key[1]}", _CREATION_RETRY_NS, again)
            return
        except MalformedPartitionMetadata as error:
            self._env.log.error(
                "partition_metadata_unreadable",
                log_dir=directory.log_dir.path,
                folder=former.log.name,
                reason=str(error),
            )
            return
        if self._reloading.get(key) is not former:
            return
        del self._reloading[key]
        self._env.log.warning("log_reloaded", partition=former.name, log_dir=directory.log_dir.path)
        self._host(LoadedLog(former.topic, key[0], key[1], log, former.high_watermark), directory)
        directory.log_count -= 1  # It was counted all the time.
        self.reconcile(key)

    def _give_up_reload(self, key: TopicIdPartition) -> None:
        """Nobody wants the log any more. It goes before its name is given to the log of a topic that comes after."""
        former = self._reloading.pop(key, None)
        directory = None if former is None else self._directories.get(former.directory_id)
        if former is not None and directory is not None:
            directory.log_count -= 1
            directory.work.submit(partial(self._delete_closed_log, former, directory))

    # --- upkeep --------------------------------------------------------------------------------------------------

    def _start_timers(self) -> None:
        config = self._config
        self._every(
            "high watermarks",
            config.replica_high_watermark_checkpoint_interval_ms,
            lambda: self._in_upkeep("high watermarks", self._store_high_watermarks),
        )
        self._every(
            "recovery points",
            config.log_flush_offset_checkpoint_interval_ms,
            lambda: self._in_upkeep(
                "recovery points", lambda directory: self._store_recovery_points(directory.directory_id)
            ),
        )
        self._every(
            "log starts",
            config.log_flush_start_offset_checkpoint_interval_ms,
            lambda: self._in_upkeep("log starts", self._store_log_starts),
        )
        self._every(
            "retention",
            config.log_retention_check_interval_ms,
            lambda: self._in_upkeep("retention", self._delete_expired),
        )
        self._every("isr", max(config.replica_lag_time_max_ms // 2, 1), self._shrink_isrs)

    def _every(self, name: str, interval_ms: int, act: Callable[[], None]) -> None:
        def tick() -> None:
            act()
            self._after(name, interval_ms * _MILLISECOND, tick)

        # An interval of 0 would be a busy loop; Kafka allows the value and means "as often as possible".
        interval_ms = max(interval_ms, 1000) if interval_ms == 0 else interval_ms
        self._after(name, interval_ms * _MILLISECOND, tick)

    def _after(self, name: str, delay_ns: int, act: Callable[[], None]) -> None:
        def fire() -> None:
            self._timers.pop(name, None)
            act()

        if not self._is_shut_down:
            self._timers[name] = self._env.call_at(self._env.now_ns() + delay_ns, fire)

    def _in_upkeep(self, kind: str, act: Callable[[_Directory], Awaitable[None]]) -> None:
        for directory in self._directories.values():
            directory.upkeep.submit(partial(act, directory), kind=kind)

    async def _store_high_watermarks(self, directory: _Directory) -> None:
        await directory.files.store_high_watermarks(self._hosted_in(directory.directory_id))

    async def _store_log_starts(self, directory: _Directory) -> None:
        await directory.files.store_log_starts(self._hosted_in(directory.directory_id))

    async def _store_recovery_points(self, directory_id: DirectoryId) -> None:
        directory = self._directories.get(directory_id)
        if directory is not None:
            await directory.files.store_recovery_points(self._hosted_in(directory_id))

    async def _delete_expired(self, directory: _Directory) -> None:
        for partition in self._hosted_in(directory.directory_id):
            if partition.gone is not ErrorCode.NONE or partition.is_restructuring:
                continue
            try:
                await partition.delete_expired()
            except (LogDirError, LogClosed):
                # Deleted or failed meanwhile; the others are looked at all the same.
                continue
            except BatchError as error:
                # Without its time index only the batches tell how old a segment is. Readers are told of the damage, too.
                self._env.log.error("segment_damaged", partition=partition.name, error=str(error))

    def _raise_log_start(self, partition: Partition, offset: Offset) -> None:
        """As follower: the leader has deleted everything below `offset`."""
        directory = self._directories.get(partition.directory_id)
        if directory is not None:
            directory.upkeep.submit(lambda: partition.delete_before(offset), kind=f"log start of {partition.name}")

    def _shrink_isrs(self) -> None:
        for partition in list(self._partitions.values()):
            partition.maybe_shrink_isr()


def _fetcher_settings(config: ServerConfig) -> FetcherSettings:
    return FetcherSettings(
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        backoff_max_ns=config.replica_fetch_backoff_ms * _MILLISECOND,
        request_timeout_ns=config.replica_socket_timeout_ms * _MILLISECOND,
    )
