"""Logs of deleted topics: renamed at once, removed later (shell).

Answers to Kafka's LogManager.asyncDelete: the folder becomes <name>.<unique>-delete, and file.delete.delay.ms later it goes.
Easy to get wrong: the rename takes place in the lane in which the next topic's log of the same name would be created, and it
does not give up while the process is short of something, or it would take that one's folder away.
"""

from broker.hosting.directory_logs import remove_empty_log, remove_folder
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.named_timers import NamedTimers
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDirError
from common.ids import uuid_text
from common.storage.log import Log
from common.time_units import NS_PER_MS, NS_PER_S

_RETRY_NS = NS_PER_S


class LogDeletion:
    """See the module's docstring. `default_delay_ms` is the broker's own file.delete.delay.ms."""

    def __init__(self, env: Environment, hosted: Hosted, timers: NamedTimers, *, default_delay_ms: int) -> None:
        self._env = env
        self._hosted = hosted
        self._timers = timers
        self._default_delay_ms = default_delay_ms

    async def delete(self, log: Log, delay_ms: int, directory: HostedDirectory) -> None:
        """A job of the directory's work. Raises LogDirError and LogClosed."""
        name = log.name
        # In this job however long it takes: the next may create the log of a later topic of this name.
        while (folder := await self._rename(log)) is None:
            await self._env.sleep_until(self._env.now_ns() + _RETRY_NS)
            if self._timers.is_stopped or self._hosted.online_directory(directory.directory_id) is None:
                return
        self._env.log.info("log_deleted", partition=name, log_dir=directory.log_dir.path, folder=folder)
        self.remove_later(directory, folder, delay_ms)

    async def _rename(self, log: Log) -> str | None:
        """The folder's new name; None while the process is short of something."""
        try:
            return await log.delete_rename(self._env.uuid())
        except LogDirError as error:
            if classify(error) is not Verdict.PROCESS_TROUBLE:
                raise
            return None

    def remove_later(self, directory: HostedDirectory, folder: str, delay_ms: int | None = None) -> None:
        """Removes a folder that nobody serves any more, after its topic's delay or the broker's."""

        async def remove() -> None:
            try:
                await remove_folder(directory.log_dir, folder)
            except LogDirError as error:
                if classify(error) is Verdict.PROCESS_TROUBLE:
                    self.remove_later(directory, folder)
                raise

        if delay_ms is None:
            delay_ms = self._default_delay_ms
        timer = f"remove {uuid_text(directory.directory_id)}/{folder}"
        self._timers.after(timer, delay_ms * NS_PER_MS, lambda: directory.upkeep.submit(remove))

    def remove_unfinished(self, directory: HostedDirectory, folder: str) -> None:
        """Removes what a creation left that did not come to its end."""

        async def remove() -> None:
            await remove_empty_log(directory.log_dir, folder)

        directory.work.submit(remove)
