"""Loads the logs of all directories in parallel at startup (shell).

Counterpart of Kafka's LogManager.loadLogs. A directory that fails meanwhile is left out, and its replicas count as offline.
If the logs of a healthy directory cannot be loaded, the broker must stop: serving without them would look as if the disk had
lost them.

What becomes of future logs and -delete folders can only be decided when all directories are loaded, so `FuturesAtStart` does
this last. Each of the looks at all logs has a step of the event loop for itself.
"""

import asyncio
from collections.abc import Callable, Mapping

from broker.core.future_at_start import may_be_outdated
from broker.hosting.directory_logs import DirectoryContent, LoadedLog, find_superfluous, load_directory, put_aside
from broker.hosting.futures_at_start import FuturesAtStart
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.loading_progress import LoadingProgress
from common.configuration.topic import TopicConfig
from common.environment.interface import Environment, LogDirError
from common.ids import BrokerId, DirectoryId, TopicId, TopicIdPartition, uuid_text
from common.metadata.registrations import PartitionRegistration
from common.slices import ELEMENTS_PER_SLICE, pause, result_in_slices
from common.storage.move_origin import remove_move_origin


class ReplicasNotLoaded(Exception):
    """The logs of a healthy directory could not be loaded; the text says why."""


class ReplicaLoading:
    """See the module docstring. `placed_here` returns the registration of a partition that has a replica on this broker,
    else None."""

    def __init__(
        self,
        env: Environment,
        hosted: Hosted,
        *,
        broker_id: BrokerId,
        placed_here: Callable[[TopicIdPartition], PartitionRegistration | None],
        config_of: Callable[[str], TopicConfig],
        topic_ids: Mapping[str, TopicId],
        progress: LoadingProgress,
    ) -> None:
        self._env = env
        self._hosted = hosted
        self._broker_id = broker_id
        self._placed_here = placed_here
        self._config_of = config_of
        self._topic_ids = topic_ids
        self._progress = progress
        self._contents: dict[DirectoryId, DirectoryContent] = {}
        self._unloadable: list[str] = []
        self.traces: set[TopicIdPartition] = set()
        """The replicas that had a log in one of the directories, as far as something there shows it."""

    async def load(self) -> list[tuple[HostedDirectory, DirectoryContent]]:
        """Returns the contents of each directory that has not failed: the current logs, each with its future log if there is
        one, and the folders to delete. Raises DuplicateLog and ReplicasNotLoaded."""
        async with asyncio.TaskGroup() as group:
            for directory in self._hosted.online_directories():
                group.create_task(self._load_directory(directory))
        self._check_all_loaded()
        await self._put_superfluous_aside()
        await pause()
        self._check_all_loaded()
        await self._judge_moved()
        await pause()
        self._check_all_loaded()
        futures = FuturesAtStart(
            self._env,
            self._hosted,
            self._contents,
            is_placed_here=lambda key: self._placed_here(key) is not None,
            is_in_isr=self._is_in_isr,
            on_failure=self._note_failure,
        )
        await futures.carry_out()
        await pause()
        self._check_all_loaded()
        futures.attach()
        return [(directory, self._contents[directory.directory_id]) for directory in self._hosted.online_directories()]

    def _check_all_loaded(self) -> None:
        if self._unloadable:
            raise ReplicasNotLoaded("; ".join(self._unloadable))

    async def _load_directory(self, directory: HostedDirectory) -> None:
        progress = self._progress.begin(directory.log_dir.path)
        try:
            content = await load_directory(
                self._env,
                directory.log_dir,
                is_placed_here=self._is_placed_here,
                config_of=self._config_of,
                progress=progress,
            )
        except LogDirError as error:
            self._note_failure(directory, error)
            return
        finally:
            self._progress.end(progress)
        self._contents[directory.directory_id] = content
        await result_in_slices(content.collect_traces(self._topic_ids, self.traces), items=ELEMENTS_PER_SLICE)
        self._env.log.info("logs_loaded", log_dir=directory.log_dir.path, logs=len(content.logs))

    def _note_failure(self, directory: HostedDirectory, error: LogDirError) -> None:
        # If the error took the directory offline, `load` leaves the directory out. Then there is nothing to note.
        if self._hosted.online_directory(directory.directory_id) is not None:
            self._unloadable.append(f"the logs of {directory.log_dir.path} cannot be loaded: {error}")

    async def _put_superfluous_aside(self) -> None:
        contents = self._contents
        for directory_id, loaded in find_superfluous(
            {each.directory_id: contents[each.directory_id].logs for each in self._hosted.online_directories()},
            named_by_metadata=self._directory_named_by_metadata,
            is_in_isr=self._is_in_isr,
        ):
            directory = self._hosted.online_directory(directory_id)
            if directory is None:
                continue
            try:
                await put_aside(self._env, loaded)
            except LogDirError as error:
                self._note_failure(directory, error)
            contents[directory_id].logs.remove(loaded)

    async def _judge_moved(self) -> None:
        """Leaves alone each log that may be outdated by the log in the directory that it was moving from."""
        for directory in self._hosted.online_directories():
            content = self._contents[directory.directory_id]
            for loaded in [each for each in content.logs if each.moved_from is not None]:
                try:
                    await self._judge(directory, content, loaded)
                except LogDirError as error:
                    self._note_failure(directory, error)

    async def _judge(self, directory: HostedDirectory, content: DirectoryContent, loaded: LoadedLog) -> None:
        assert loaded.moved_from is not None
        is_outdated = may_be_outdated(
            moved_from=loaded.moved_from,
            named_by_metadata=self._directory_named_by_metadata(loaded.key),
            is_origin_online=self._hosted.online_directory(loaded.moved_from) is not None,
            in_isr=self._is_in_isr(loaded.key),
            any_offline=self._hosted.any_offline,
        )
        if is_outdated:
            content.logs.remove(loaded)
            self._env.log.warning(
                "moved_replica_left_alone",
                partition=f"{loaded.topic}-{loaded.index}",
                log_dir=directory.log_dir.path,
                directory_id=uuid_text(directory.directory_id),
                source_directory_id=uuid_text(loaded.moved_from),
                log_end_offset=loaded.log.log_end_offset,
            )
            await loaded.log.close()
        else:
            await remove_move_origin(directory.log_dir, loaded.log.name)

    def _is_placed_here(self, topic_id: TopicId, index: int) -> bool:
        return self._placed_here(TopicIdPartition(topic_id, index)) is not None

    def _directory_named_by_metadata(self, key: TopicIdPartition) -> DirectoryId | None:
        registration = self._placed_here(key)
        return None if registration is None else registration.directory(self._broker_id)

    def _is_in_isr(self, key: TopicIdPartition) -> bool:
        registration = self._placed_here(key)
        return registration is not None and self._broker_id in (registration.leader, *registration.isr)
