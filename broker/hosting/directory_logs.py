"""The logs of one directory: loading them at startup, and closing them cleanly (shell).

Counterpart of Kafka's LogManager.loadLogs and shutdown.

1. Logs that the metadata does not place on this broker, current or future, are renamed to -stray and kept. Folders that are
   not logs, such as lost+found, are left alone.
2. The clean-shutdown marker is removed *before* anything is loaded or written, so that it is gone if we crash later.
3. An unreadable checkpoint file is treated like a missing one. The recovery may then take longer, but the directory stays
   online.
4. The checkpoint files have no entries for future logs. After a crash such a log is recovered from its first record on.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from broker.hosting.checkpoint_files import CheckpointFiles
from broker.hosting.loading_progress import DirectoryProgress
from broker.hosting.partition import Partition, PlacedLog
from common.configuration.topic import TopicConfig
from common.environment.interface import Environment, LogDir, LogDirError
from common.ids import METADATA_TOPIC_NAME, BrokerEpoch, DirectoryId, Offset, TopicId, TopicIdPartition
from common.slices import pause_before
from common.storage.checkpoints import load_offset_checkpoint, store_offset_checkpoint
from common.storage.clean_shutdown import load_clean_shutdown, remove_clean_shutdown, store_clean_shutdown
from common.storage.copy_divergence import end_of_agreement
from common.storage.empty_log import remove_empty_log
from common.storage.errors import LogExists
from common.storage.log import Log
from common.storage.move_origin import load_move_origin, remove_move_origin
from common.storage.names import (
    CLEANER_CHECKPOINT_FILE,
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    FolderKind,
    PartitionFolder,
    marked_partition_folder,
    parse_partition_folder,
    partition_folder,
)
from common.storage.new_log import NewLog, make_durable
from common.storage.partition_metadata import MalformedPartitionMetadata, load_partition_metadata
from common.storage.text_checkpoint import MalformedCheckpoint, TopicPartition

_CHECKPOINT_FILES = (
    RECOVERY_POINT_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    HIGH_WATERMARK_CHECKPOINT_FILE,
    CLEANER_CHECKPOINT_FILE,
)


class DuplicateLog(Exception):
    """Two directories hold a current log of the same partition. The text names both and says what to do."""


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """A current log of a replica that the metadata places on this broker."""

    topic: str
    topic_id: TopicId
    index: int
    log: Log
    high_watermark: Offset
    # Where compaction goes on, as far as the checkpoint knows.
    first_dirty_offset: Offset
    # The directory that the log was moving from, if nothing has shown yet that the move ended.
    moved_from: DirectoryId | None = None
    # The copy in another directory, if an earlier run was moving the replica.
    future: PlacedLog | None = None

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.index)


@dataclass(frozen=True, slots=True)
class LoadedFuture:
    """A future log of a replica that the metadata places on this broker. `unique` identifies the move."""

    topic: str
    topic_id: TopicId
    index: int
    unique: str
    log: Log

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.index)


@dataclass(frozen=True, slots=True)
class DeletedFolder:
    """A folder that an earlier run marked for deletion. `key` is None if partition.metadata is gone or unreadable."""

    name: str
    unique: str
    key: TopicIdPartition | None


@dataclass(slots=True)
class DirectoryContent:
    """What was found when one directory was loaded."""

    logs: list[LoadedLog] = field(default_factory=list)
    futures: list[LoadedFuture] = field(default_factory=list)
    deleted_folders: list[DeletedFolder] = field(default_factory=list)
    # The partitions of the logs that were put aside, now or earlier.
    strays: list[TopicPartition] = field(default_factory=list)
    # The contents of the checkpoint files, including entries of logs that no longer exist.
    checkpoints: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)

    def collect_traces(self, topic_ids: Mapping[str, TopicId], traces: set[TopicIdPartition]) -> Generator[None, None, None]:
        """Adds the replicas to `traces` that a checkpoint file, a future log, a -delete folder or a stray names, and yields
        after each entry. The checkpoint of the high watermarks names a log within seconds of its creation."""
        for topic, index in set[TopicPartition](self.strays).union(*self.checkpoints.values()):
            if topic in topic_ids:
                traces.add(TopicIdPartition(topic_ids[topic], index))
            yield
        traces.update(future.key for future in self.futures)
        traces.update(folder.key for folder in self.deleted_folders if folder.key is not None)


async def load_directory(
    env: Environment,
    log_dir: LogDir,
    *,
    is_placed_here: Callable[[TopicId, int], bool],
    config_of: Callable[[str], TopicConfig],
    progress: DirectoryProgress,
) -> DirectoryContent:
    """Loads every log of the directory, with recovery unless the last shutdown was clean. Raises LogDirError."""
    is_clean = await load_clean_shutdown(log_dir) is not None
    content = DirectoryContent(checkpoints={name: await _load_checkpoint(env, log_dir, name) for name in _CHECKPOINT_FILES})
    await remove_clean_shutdown(log_dir)
    loading = _Loading(env, log_dir, is_placed_here, config_of, is_clean, content)
    entries = [entry for entry in await log_dir.list() if entry.is_directory]
    for number, entry in enumerate(entries):
        progress.remaining_logs, progress.folder = len(entries) - number, entry.name
        await loading.load_folder(entry.name)
    if not is_clean:
        await _make_names_durable(log_dir, content)
    await _lower_checkpoints(log_dir, content)
    return content


@dataclass(frozen=True, slots=True)
class _Loading:
    """Loads one folder after the other into `content`."""

    env: Environment
    log_dir: LogDir
    is_placed_here: Callable[[TopicId, int], bool]
    config_of: Callable[[str], TopicConfig]
    is_clean: bool
    content: DirectoryContent

    async def load_folder(self, name: str) -> None:
        folder = parse_partition_folder(name)
        if folder is None:
            self.env.log.info("foreign_folder_ignored", log_dir=self.log_dir.path, folder=name)
            return
        if folder.topic == METADATA_TOPIC_NAME:
            return
        if folder.kind is FolderKind.STRAY:
            self.content.strays.append((folder.topic, folder.partition))
            return
        topic_id = await _topic_id(self.env, self.log_dir, name)
        if folder.kind is FolderKind.DELETE:
            # Do not take the topic from the folder's name, which may be cut.
            deleted = None if topic_id is None else TopicIdPartition(topic_id, folder.partition)
            self.content.deleted_folders.append(DeletedFolder(name, folder.unique, deleted))
            return
        if topic_id is None and await remove_empty_log(self.log_dir, name):
            # The creation of this log was never finished, so there was nothing to keep.
            return
        if topic_id is None or not self.is_placed_here(topic_id, folder.partition):
            await _rename_stray(self.env, self.log_dir, name, folder)
            self.content.strays.append((folder.topic, folder.partition))
        elif folder.kind is FolderKind.FUTURE:
            await self._load_future(name, folder, topic_id)
        else:
            await self._load_current(name, folder, topic_id)

    async def _load_future(self, name: str, folder: PartitionFolder, topic_id: TopicId) -> None:
        log = await Log.load(self.log_dir, name, self.config_of(folder.topic), clean=self.is_clean)
        _report_recovery(self.env, log)
        self.content.futures.append(LoadedFuture(folder.topic, topic_id, folder.partition, folder.unique, log))

    async def _load_current(self, name: str, folder: PartitionFolder, topic_id: TopicId) -> None:
        checkpoints, key = self.content.checkpoints, (folder.topic, folder.partition)
        first_dirty = Offset(checkpoints[CLEANER_CHECKPOINT_FILE].get(key, 0))
        log = await Log.load(
            self.log_dir,
            name,
            self.config_of(folder.topic),
            recovery_point=Offset(checkpoints[RECOVERY_POINT_CHECKPOINT_FILE].get(key, 0)),
            log_start_offset=Offset(checkpoints[LOG_START_OFFSET_CHECKPOINT_FILE].get(key, 0)),
            first_dirty_offset=first_dirty,
            clean=self.is_clean,
        )
        _report_recovery(self.env, log)
        high_watermark = Offset(checkpoints[HIGH_WATERMARK_CHECKPOINT_FILE].get(key, 0))
        moved_from = await load_move_origin(self.log_dir, name)
        loaded = LoadedLog(folder.topic, topic_id, folder.partition, log, high_watermark, first_dirty, moved_from)
        self.content.logs.append(loaded)


async def _lower_checkpoints(log_dir: LogDir, content: DirectoryContent) -> None:
    """Stores the checkpoints again that are beyond what was loaded. Raises LogDirError."""
    recovery_points = content.checkpoints[RECOVERY_POINT_CHECKPOINT_FILE]
    loaded = {(each.topic, each.index): each.log.recovery_start for each in content.logs}
    if any(recovery_point < recovery_points.get(key, 0) for key, recovery_point in loaded.items()):
        # A log ends below its checkpointed recovery point, for example because we were killed during a truncation. Replace
        # the checkpoint now: the old one would vouch for records that are appended later.
        await store_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE, loaded)
        content.checkpoints[RECOVERY_POINT_CHECKPOINT_FILE] = {**loaded}
    first_dirty_offsets = content.checkpoints[CLEANER_CHECKPOINT_FILE]
    ends = {(each.topic, each.index): each.log.log_end_offset for each in content.logs}
    if any(first_dirty > ends.get(key, first_dirty) for key, first_dirty in first_dirty_offsets.items()):
        # In the same way, records that are appended later are not clean, also after another kill.
        lowered = {key: min(first_dirty, ends.get(key, first_dirty)) for key, first_dirty in first_dirty_offsets.items()}
        await store_offset_checkpoint(log_dir, CLEANER_CHECKPOINT_FILE, lowered)
        content.checkpoints[CLEANER_CHECKPOINT_FILE] = lowered


async def _make_names_durable(log_dir: LogDir, content: DirectoryContent) -> None:
    """Syncs the logs whose creation an earlier run may not have finished: it was killed before the sync, and the page cache
    still has the log. Such a log is empty, and no checkpoint file names it."""
    named = {name for checkpoint in content.checkpoints.values() for name in checkpoint}
    logs = [each.log for each in content.logs if (each.topic, each.index) not in named]
    logs += [each.log for each in content.futures]
    await make_durable(log_dir, [log.name for log in logs if not log.size_bytes])


async def _load_checkpoint(env: Environment, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
    try:
        return await load_offset_checkpoint(log_dir, name)
    except MalformedCheckpoint as error:
        env.log.warning("checkpoint_ignored", log_dir=log_dir.path, file=name, reason=str(error))
        return {}


async def _topic_id(env: Environment, log_dir: LogDir, name: str) -> TopicId | None:
    try:
        return await load_partition_metadata(log_dir, name)
    except MalformedPartitionMetadata as error:
        env.log.warning("partition_metadata_unreadable", log_dir=log_dir.path, folder=name, reason=str(error))
        return None


async def create_logs(env: Environment, log_dir: LogDir, new: Sequence[NewLog]) -> list[Log]:
    """Creates new, empty logs, durable when this returns. Raises LogDirError."""
    try:
        return await Log.create_all(log_dir, new)
    except LogExists as found:
        # If the log in such a folder is empty, it is most likely left over from a creation that failed for lack of file
        # descriptors or memory. Any other log is unknown to this broker, so put it aside to free the name.
        for name in found.names:
            folder = parse_partition_folder(name)
            if folder is not None and not await remove_empty_log(log_dir, name):
                await _rename_stray(env, log_dir, name, folder)
        return await Log.create_all(log_dir, new)


async def _rename_stray(env: Environment, log_dir: LogDir, name: str, folder: PartitionFolder) -> None:
    """Renames the folder of a log that must not be served to -stray. Only an operator may delete it."""
    stray = marked_partition_folder(folder.topic, folder.partition, FolderKind.STRAY, env.uuid())
    await log_dir.rename(name, stray)
    await log_dir.fsync_dir()
    env.log.warning("stray_log_put_aside", log_dir=log_dir.path, folder=name, renamed_to=stray)


def _report_recovery(env: Environment, log: Log) -> None:
    if log.recovery.lost_anything:
        env.log.warning(
            "log_recovered",
            log_dir=log.log_dir.path,
            folder=log.name,
            log_end_offset=log.log_end_offset,
            recovery=str(log.recovery),
        )


def find_superfluous(
    found: Mapping[DirectoryId, Sequence[LoadedLog]],
    *,
    named_by_metadata: Callable[[TopicIdPartition], DirectoryId | None],
    is_in_isr: Callable[[TopicIdPartition], bool],
) -> list[tuple[DirectoryId, LoadedLog]]:
    """Returns the logs to put aside if several directories hold a log of the same partition, as after a lost disk came back.

    The log in the directory that the metadata names is kept, or another one that continues it: a move was undone when its
    target failed, after the copy had got the partition's name there, and the old log took records before the metadata named
    its directory again. If the metadata names none of these directories, a replica outside the ISR keeps its longest log,
    because replication will bring that log in line with the leader's anyway. For a replica in the ISR no choice would be
    safe: raises DuplicateLog.
    """
    places: dict[TopicIdPartition, list[tuple[DirectoryId, LoadedLog]]] = {}
    for directory_id, logs in found.items():
        for loaded in logs:
            places.setdefault(loaded.key, []).append((directory_id, loaded))
    superfluous: list[tuple[DirectoryId, LoadedLog]] = []
    for key, candidates in places.items():
        if len(candidates) == 1:
            continue
        kept = next((each for each in candidates if each[0] == named_by_metadata(key)), None)
        if kept is None and is_in_isr(key):
            raise _duplicate(candidates)
        eligible = candidates if kept is None else [kept, *(each for each in candidates if _continues(each, kept))]
        # Of several that are equally long the first one.
        kept = max(eligible, key=lambda each: each[1].log.log_end_offset)
        superfluous += [each for each in candidates if each is not kept]
    return superfluous


def _continues(other: tuple[DirectoryId, LoadedLog], named: tuple[DirectoryId, LoadedLog]) -> bool:
    """Whether the other log has all records of the named one, and the named one has any to tell this from."""
    log, copy = other[1].log, named[1].log
    agreement = end_of_agreement(
        current=log.leader_epochs,
        current_start=log.log_start_offset,
        current_end=log.log_end_offset,
        copy=copy.leader_epochs,
        copy_end=copy.log_end_offset,
    )
    return log.log_start_offset < agreement == copy.log_end_offset


def _duplicate(candidates: Sequence[tuple[DirectoryId, LoadedLog]]) -> DuplicateLog:
    paths = " and in ".join(loaded.log.log_dir.path for _, loaded in candidates)
    loaded = candidates[0][1]
    return DuplicateLog(
        f"{loaded.topic}-{loaded.index} has a log in {paths}, and the metadata names neither; move the one that is out of "
        "date out of its directory, then start again"
    )


async def put_aside(env: Environment, loaded: LoadedLog | LoadedFuture) -> None:
    """Closes a log that must not be served and renames its folder to -stray. Raises LogDirError."""
    await loaded.log.close()
    folder = PartitionFolder(loaded.topic, loaded.index)
    await _rename_stray(env, loaded.log.log_dir, loaded.log.name, folder)


async def promote(content: DirectoryContent, future: LoadedFuture, *, source: DirectoryContent | None) -> LoadedLog:
    """Durably makes a future log the current log. `content` is the content of the future log's directory, `source` that of
    the directory with the move's -delete folder, if there is one. Raises LogDirError."""
    key: TopicPartition = (future.topic, future.index)
    log = future.log
    checkpoints = {} if source is None else source.checkpoints
    log_start = checkpoints.get(LOG_START_OFFSET_CHECKPOINT_FILE, {}).get(key, 0)
    log.raise_log_start_offset(Offset(min(log_start, log.log_end_offset)))
    high_watermark = Offset(checkpoints.get(HIGH_WATERMARK_CHECKPOINT_FILE, {}).get(key, 0))
    first_dirty = Offset(checkpoints.get(CLEANER_CHECKPOINT_FILE, {}).get(key, 0))
    await log.flush()
    # Store the checkpoints before the rename. Otherwise, after a crash, the entries of an earlier log of the same name would
    # be applied to this log.
    for name, offset in (
        (RECOVERY_POINT_CHECKPOINT_FILE, log.recovery_start),
        (LOG_START_OFFSET_CHECKPOINT_FILE, log.log_start_offset),
        (HIGH_WATERMARK_CHECKPOINT_FILE, high_watermark),
        (CLEANER_CHECKPOINT_FILE, first_dirty),
    ):
        content.checkpoints[name] = {**content.checkpoints[name], key: offset}
        await store_offset_checkpoint(log.log_dir, name, content.checkpoints[name])
    await remove_move_origin(log.log_dir, log.name)
    await log.rename(partition_folder(future.topic, future.index))
    return LoadedLog(future.topic, future.topic_id, future.index, log, high_watermark, first_dirty)


async def close_directory(
    log_dir: LogDir,
    files: CheckpointFiles,
    partitions: Sequence[Partition],
    futures: Sequence[Log],
    broker_epoch: BrokerEpoch,
) -> None:
    """Syncs and closes every log, current or future, stores the checkpoints, then the clean-shutdown marker. If a log fails,
    raises LogDirError and leaves no marker, so that the next start recovers the logs."""
    failure: LogDirError | None = None
    for log in (*(partition.log for partition in partitions), *futures):
        try:
            await log.close()
        except LogDirError as error:
            failure = failure or error
    for number, partition in enumerate(partitions):
        await pause_before(number)
        # The log no longer notifies its partition, which has left.
        files.note(partition.topic_partition)
    await files.store_all()
    if failure is not None:
        raise failure
    await store_clean_shutdown(log_dir, broker_epoch)
