"""Periodic work: checkpoints, retention, syncs, expired producers, and the check for lagging ISR members (shell).

Counterpart of the schedulers of Kafka's LogManager and ReplicaManager. Everything that touches a disk runs in the
directory's upkeep lane, with at most one job of each kind waiting. A checkpoint must never claim more than the log has, so a
truncation lowers the checkpoints right away instead of waiting for the next round (`lower_checkpoints_before_appends`). What
looks at every replica does so in slices.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import Partition
from common.configuration.server import ServerConfig
from common.configuration.settings import LONG_MAX
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDirError
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.protocol.errors import ErrorCode
from common.records.batch import BatchError
from common.slices import in_slices, pause_before
from common.storage.errors import LogClosed
from common.time_units import NS_PER_MS, NS_PER_S

_RETRY_NS = NS_PER_S


class Upkeep:
    """See the module docstring. Call `start` once, when the logs are loaded."""

    def __init__(
        self,
        env: Environment,
        config: ServerConfig,
        hosted: Hosted,
        timers: NamedTimers,
        *,
        producer_expiration_ms: Callable[[], int],
        suspected: SuspectedDirectories,
        task_group: asyncio.TaskGroup,
    ) -> None:
        self._env = env
        self._config = config
        self._hosted = hosted
        self._timers = timers
        self._producer_expiration_ms = producer_expiration_ms
        self._suspected = suspected
        self._task_group = task_group

    def start(self) -> None:
        """Sets the timers. Each fires for the first time after its interval."""
        config = self._config
        for kind, interval_ms, act in (
            ("high watermarks", config.replica_high_watermark_checkpoint_interval_ms, self._store_high_watermarks),
            ("recovery points", config.log_flush_offset_checkpoint_interval_ms, self._store_recovery_points),
            ("log starts", config.log_flush_start_offset_checkpoint_interval_ms, self._store_log_starts),
            ("retention", config.log_retention_check_interval_ms, self._delete_expired),
        ):
            self._timers.every(kind, interval_ms, partial(self._in_each_directory, kind, act))
        if config.log_flush_scheduler_interval_ms < LONG_MAX:
            flush = partial(self._in_each_directory, "periodic syncs", self._flush_due)
            self._timers.every("periodic syncs", config.log_flush_scheduler_interval_ms, flush)
        self._timers.every("silence", self._suspected.look_interval_ns // NS_PER_MS, self._suspected.look)
        for kind, interval_ms, walk in (
            ("producers", config.producer_id_expiration_check_interval_ms, self._expire_producers),
            ("isr", max(config.replica_lag_time_max_ms // 2, 1), self._shrink_isrs),
        ):
            self._timers.every(kind, interval_ms, partial(self._walk, walk))

    async def lower_checkpoints(self, partition: Partition) -> None:
        """Lowers the checkpoints that claim more than the partition's log has. Called before a truncation, which must not
        begin if this fails. Raises LogDirError."""
        directory = self._hosted.directory_of(partition)
        if directory is not None:
            await directory.files.lower(partition)

    async def lower_checkpoints_before_appends(self, partition: Partition) -> None:
        """Lowers the checkpoints after the log was truncated, emptied or loaded again. Returns when that is durable, or when
        the partition has left.

        Invariant: while a log takes records, no checkpoint claims more than it has. A segment roll that ended during the
        truncation may have raised the recovery point: then recovery would trust the new records without checking them. A log
        start beyond the new end would make the next startup drop them. So while the process lacks file descriptors or
        memory, this tries again, and the caller, which is restructuring the partition, lets nothing be appended. Any other
        LogDirError has taken the directory offline, and is raised."""
        while partition.gone is ErrorCode.NONE:
            try:
                await self.lower_checkpoints(partition)
                return
            except LogDirError as error:
                if classify(error) is not Verdict.PROCESS_TROUBLE:
                    raise
            await self._env.sleep_until(self._env.now_ns() + _RETRY_NS)

    def _in_each_directory(self, kind: str, act: Callable[[HostedDirectory], Awaitable[None]]) -> None:
        for directory in self._hosted.online_directories():
            directory.upkeep.submit(partial(act, directory), kind=kind)

    async def _store_high_watermarks(self, directory: HostedDirectory) -> None:
        await directory.files.store_high_watermarks()

    async def _store_log_starts(self, directory: HostedDirectory) -> None:
        await directory.files.store_log_starts()

    async def _store_recovery_points(self, directory: HostedDirectory) -> None:
        await directory.files.store_recovery_points()

    async def _flush_due(self, directory: HostedDirectory) -> None:
        await self._for_each_log(directory, Partition.flush_if_due)

    async def _delete_expired(self, directory: HostedDirectory) -> None:
        async def delete_expired(partition: Partition) -> None:
            try:
                await partition.delete_expired()
            except BatchError as error:
                # The age of a segment without a time index is read from its batches, and one of them is damaged. Go on with
                # the other logs: readers of the damaged batch get the error as well.
                self._env.log.error("segment_damaged", partition=partition.name, error=str(error))

        await self._for_each_log(directory, delete_expired)

    async def _for_each_log(self, directory: HostedDirectory, act: Callable[[Partition], Awaitable[None]]) -> None:
        """Does this to one partition after the other, except to those whose log is being restructured, or is in another
        directory by now, which may hang."""
        for number, partition in enumerate(self._hosted.in_directory(directory.directory_id)):
            await pause_before(number)
            is_here = partition.gone is ErrorCode.NONE and partition.directory_id == directory.directory_id
            if not is_here or partition.is_restructuring:
                continue
            try:
                await act(partition)
            except (LogDirError, LogClosed):
                # The log was deleted or failed meanwhile. Go on with the other logs.
                continue

    def _walk(self, walk: Callable[[], Iterator[None]]) -> None:
        self._task_group.create_task(in_slices(walk()))

    def _expire_producers(self) -> Iterator[None]:
        now_ms, expiration_ms = self._env.wall_ms(), self._producer_expiration_ms()
        for partition in list(self._hosted.partitions.values()):
            partition.log.producers.state.remove_expired(now_ms=now_ms, expiration_ms=expiration_ms)
            partition.verification_guards.remove_expired(now_ns=self._env.now_ns(), expiration_ns=expiration_ms * NS_PER_MS)
            yield

    def _shrink_isrs(self) -> Iterator[None]:
        for partition in list(self._hosted.partitions.values()):
            # While nothing can be read from a directory, its followers lag through no fault of theirs.
            if partition.directory_id not in self._suspected.unsteady:
                partition.maybe_shrink_isr()
            yield
