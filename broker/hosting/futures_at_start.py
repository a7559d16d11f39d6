"""Carries out what `future_at_start` decides about the future logs and -delete folders found at the start (shell).

Runs once, after the logs of all directories have been loaded and each replica has at most one current log. Loading has
recovered every future log. One that stays as it is gets closed here, so that a later clean-shutdown marker holds for it too.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from broker.core.future_at_start import (
    FutureFound,
    FuturesDecision,
    FuturesSituation,
    decide_futures,
    is_deletion_due,
)
from broker.hosting.directory_logs import DeletedFolder, DirectoryContent, LoadedFuture, promote, put_aside
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.partition import PlacedLog
from common.environment.interface import Environment, LogDirError
from common.ids import DirectoryId, TopicIdPartition, uuid_text
from common.storage.names import FolderKind, marked_partition_folder


class FuturesAtStart:
    """Call `carry_out`, then `attach`. `contents` is what was found in each loaded directory; both methods update it.
    `on_failure` is called with each error, and the directory's other logs are still handled."""

    def __init__(
        self,
        env: Environment,
        hosted: Hosted,
        contents: dict[DirectoryId, DirectoryContent],
        *,
        is_placed_here: Callable[[TopicIdPartition], bool],
        is_in_isr: Callable[[TopicIdPartition], bool],
        on_failure: Callable[[HostedDirectory, LogDirError], None],
    ) -> None:
        self._env = env
        self._hosted = hosted
        self._contents = contents
        self._is_placed_here = is_placed_here
        self._is_in_isr = is_in_isr
        self._on_failure = on_failure
        # What was found for each replica: the directory of its current log, its future logs, and its -delete folders, as a
        # mapping from the unique part of the folder's name to its directory.
        self._current: dict[TopicIdPartition, DirectoryId] = {}
        self._futures: dict[TopicIdPartition, dict[FutureFound, LoadedFuture]] = {}
        self._deleted: dict[TopicIdPartition, dict[str, DirectoryId]] = {}
        # The unique parts of the names of all -delete folders, also of those whose replica is not known.
        self._taken: set[str] = set()
        # The future logs of the unfinished moves that go on.
        self._resumed: dict[TopicIdPartition, PlacedLog] = {}

    async def carry_out(self) -> None:
        """Promotes, closes or puts aside all future logs except those whose moves go on."""
        for directory in self._hosted.online_directories():
            self._collect(directory.directory_id, self._contents[directory.directory_id])
        for key, futures in self._futures.items():
            await self._carry_out(decide_futures(self._situation(key, futures)), futures)

    def _collect(self, directory_id: DirectoryId, content: DirectoryContent) -> None:
        for log in content.logs:
            self._current[log.key] = directory_id
        for future in content.futures:
            found = FutureFound(directory_id, future.unique, future.log.log_end_offset)
            self._futures.setdefault(future.key, {})[found] = future
        for folder in content.deleted_folders:
            self._taken.add(folder.unique)
            if folder.key is not None:
                self._deleted.setdefault(folder.key, {})[folder.unique] = directory_id

    def _situation(self, key: TopicIdPartition, futures: Collection[FutureFound]) -> FuturesSituation:
        return FuturesSituation(
            current=self._current.get(key),
            futures=tuple(futures),
            deleted=self._deleted.get(key, {}),
            in_isr=self._is_in_isr(key),
            any_offline=self._hosted.any_offline,
        )

    def attach(self) -> None:
        """Adds each resumed future log to the entry of its current log, and removes the -delete folders that must be kept
        from the lists of folders to delete. Does not await, so the result agrees with the directories that are online."""
        online = [self._contents[each.directory_id] for each in self._hosted.online_directories()]
        if self._resumed:
            for content in online:
                content.logs = [replace(each, future=self._online_future(each.key)) for each in content.logs]
        served = {loaded.key for content in online for loaded in content.logs}
        for directory in self._hosted.online_directories():
            content = self._contents[directory.directory_id]
            content.deleted_folders = [
                each for each in content.deleted_folders if self._is_due(directory, each, has_log=each.key in served)
            ]

    def _online_future(self, key: TopicIdPartition) -> PlacedLog | None:
        future = self._resumed.get(key)
        if future is None or self._hosted.online_directory(future.directory_id) is None:
            return None
        return future

    def _is_due(self, directory: HostedDirectory, folder: DeletedFolder, *, has_log: bool) -> bool:
        is_placed_here = folder.key is not None and self._is_placed_here(folder.key)
        is_due = is_deletion_due(is_placed_here=is_placed_here, has_log=has_log)
        if not is_due:
            self._env.log.warning("log_deletion_withheld", log_dir=directory.log_dir.path, folder=folder.name)
        return is_due

    # --- carrying out --------------------------------------------------------------------------------------------

    async def _carry_out(self, decision: FuturesDecision, futures: Mapping[FutureFound, LoadedFuture]) -> None:
        if decision.resumed is not None:
            await self._attempt(self._resume, decision.resumed, futures)
        if decision.promoted is not None:
            await self._attempt(self._promote, decision.promoted, futures)
        for found in decision.left:
            await self._attempt(self._leave, found, futures)
        for found in decision.put_aside:
            await self._attempt(self._put_aside, found, futures)

    async def _attempt(
        self,
        act: Callable[[HostedDirectory, LoadedFuture], Awaitable[None]],
        found: FutureFound,
        futures: Mapping[FutureFound, LoadedFuture],
    ) -> None:
        directory = self._hosted.online_directory(found.directory_id)
        if directory is None:
            return
        try:
            await act(directory, futures[found])
        except LogDirError as error:
            self._on_failure(directory, error)

    async def _resume(self, directory: HostedDirectory, future: LoadedFuture) -> None:
        if future.unique in self._taken:
            # A crash between the two renames of the swap has left that folder, and the replica has got a new log since. The
            # next swap would rename the new log to the same name, and ENOTEMPTY would take the directory offline.
            unique = self._env.uuid()
            await future.log.rename(marked_partition_folder(future.topic, future.index, FolderKind.FUTURE, unique))
        self._resumed[future.key] = PlacedLog(directory.directory_id, future.log)
        self._report("future_replica_resumed", directory, future)

    async def _promote(self, directory: HostedDirectory, future: LoadedFuture) -> None:
        source = self._deleted.get(future.key, {}).get(future.unique)
        content = self._contents[directory.directory_id]
        promoted = await promote(content, future, source=None if source is None else self._contents[source])
        content.logs.append(promoted)
        self._report("future_replica_promoted", directory, future)

    async def _leave(self, directory: HostedDirectory, future: LoadedFuture) -> None:
        await future.log.close()
        self._report("future_replica_left_alone", directory, future)

    async def _put_aside(self, _: HostedDirectory, future: LoadedFuture) -> None:
        await put_aside(self._env, future)

    def _report(self, event: str, directory: HostedDirectory, future: LoadedFuture) -> None:
        self._env.log.info(
            event,
            partition=f"{future.topic}-{future.index}",
            log_dir=directory.log_dir.path,
            directory_id=uuid_text(directory.directory_id),
            log_end_offset=future.log.log_end_offset,
        )
