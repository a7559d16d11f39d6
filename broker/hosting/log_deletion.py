"""Deletes logs: renames them at once and removes them later (shell).

Counterpart of Kafka's LogManager.asyncDelete. The folder becomes <name>.<unique>-delete and is removed after
file.delete.delay.ms. The rename runs in the same lane as the creation of logs, and is retried within the same job while the
process lacks file descriptors or memory. If another job ran between two attempts, it could create the log of a new topic of
the same name, and the late rename would take away the new log's folder. What a failed creation has left is removed in the
same way.

A folder is removed only if the metadata no longer places its replica here, or the replica has another log. The old log of a
move becomes the only one again if the directory of the new log fails meanwhile. Then it stays, and this is looked at again
from time to time: the replica may get another log, or be placed elsewhere.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.core.future_at_start import is_deletion_due
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.named_timers import NamedTimers
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDirError
from common.ids import TopicIdPartition, uuid_text
from common.storage.empty_log import remove_empty_log, remove_folder
from common.storage.log import Log
from common.time_units import NS_PER_MS, NS_PER_S

ResultT = TypeVar("ResultT")

_RETRY_NS = NS_PER_S
# How often a folder is looked at that is the only log of its replica.
_WITHHELD_MS = 60_000


class LogDeletion:
    """See the module docstring. `default_delay_ms` returns the broker's own file.delete.delay.ms. `is_placed_here`
    returns whether the metadata places a replica on this broker."""

    def __init__(
        self,
        env: Environment,
        hosted: Hosted,
        timers: NamedTimers,
        *,
        default_delay_ms: Callable[[], int],
        is_placed_here: Callable[[TopicIdPartition], bool],
    ) -> None:
        self._env = env
        self._hosted = hosted
        self._timers = timers
        self._default_delay_ms = default_delay_ms
        self._is_placed_here = is_placed_here

    async def delete(self, log: Log, key: TopicIdPartition, delay_ms: int, directory: HostedDirectory) -> None:
        """Deletes a log of this replica. Run it as a job of the directory's work lane. Raises LogDirError and LogClosed."""
        name = log.name
        folder = await self._retried(directory, lambda: log.delete_rename(self._env.uuid()))
        if folder is not None:
            self._env.log.info("log_deleted", partition=name, log_dir=directory.log_dir.path, folder=folder)
            self.remove_later(directory, folder, key, delay_ms)

    async def _retried(self, directory: HostedDirectory, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
        """Repeats `attempt` while the process lacks file descriptors or memory, and returns its result. Returns None if the
        broker stops or the directory goes offline meanwhile. Stays in the job however long that takes."""
        while True:
            try:
                return await attempt()
            except LogDirError as error:
                if classify(error) is not Verdict.PROCESS_TROUBLE:
                    raise
            await self._env.sleep_until(self._env.now_ns() + _RETRY_NS)
            if self._timers.is_stopped or self._hosted.online_directory(directory.directory_id) is None:
                return None

    def remove_later(
        self,
        directory: HostedDirectory,
        folder: str,
        key: TopicIdPartition | None,
        delay_ms: int | None = None,
        *,
        is_withheld: bool = False,
    ) -> None:
        """Removes a folder that is no longer served, after `delay_ms`, or later if it is the only log of this replica then.
        `key` is None if the replica is unknown. If `delay_ms` is None, the broker's default applies. `is_withheld` means
        that the folder has been kept before; only the first time is logged."""

        async def remove() -> None:
            try:
                is_removed = await remove_folder(directory.log_dir, folder, is_due=lambda: self._is_due(key))
            except LogDirError as error:
                if classify(error) is Verdict.PROCESS_TROUBLE:
                    self.remove_later(directory, folder, key)
                raise
            if not is_removed:
                if not is_withheld:
                    self._env.log.warning("log_deletion_withheld", log_dir=directory.log_dir.path, folder=folder)
                self.remove_later(directory, folder, key, _WITHHELD_MS, is_withheld=True)

        if delay_ms is None:
            delay_ms = self._default_delay_ms()
        timer = f"remove {uuid_text(directory.directory_id)}/{folder}"
        self._timers.after(timer, delay_ms * NS_PER_MS, lambda: directory.upkeep.submit(remove))

    def _is_due(self, key: TopicIdPartition | None) -> bool:
        if key is None:
            return True
        partition = self._hosted.partitions.get(key)
        # A partition stays in the table for a moment after its directory has failed.
        has_log = partition is not None and self._hosted.directory_of(partition) is not None
        return is_deletion_due(is_placed_here=self._is_placed_here(key), has_log=has_log)

    def remove_unfinished(self, directory: HostedDirectory, folder: str, *, is_taken: Callable[[], bool]) -> None:
        """Removes what is left of a log whose creation failed, unless the folder `is_taken` when its turn comes: the job
        before may have created the log of a new topic of the same name there."""

        async def remove() -> None:
            if is_taken():
                return
            await self._retried(directory, lambda: remove_empty_log(directory.log_dir, folder))

        directory.work.submit(remove)
