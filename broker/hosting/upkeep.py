"""What only time asks for: checkpoints, retention, and a look at who lags (shell).

Answers to the schedulers of Kafka's LogManager and ReplicaManager. Everything that touches a disk runs in the directory's
second lane, one job of each kind at a time. Easy to get wrong: a checkpoint must never say more of a log than is so, so a
cut writes it before the next round would (`lower_checkpoints`).
"""

from collections.abc import Awaitable, Callable
from functools import partial

from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import Partition
from common.configuration.server import ServerConfig
from common.environment.interface import Environment, LogDirError
from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.records.batch import BatchError
from common.storage.errors import LogClosed


class Upkeep:
    """See the module's docstring. `start` once, when the logs are loaded."""

    def __init__(self, env: Environment, config: ServerConfig, hosted: Hosted, timers: NamedTimers) -> None:
        self._env = env
        self._config = config
        self._hosted = hosted
        self._timers = timers

    def start(self) -> None:
        """Sets the timers; each acts for the first time after its interval."""
        config = self._config
        for kind, interval_ms, act in (
            ("high watermarks", config.replica_high_watermark_checkpoint_interval_ms, self._store_high_watermarks),
            ("recovery points", config.log_flush_offset_checkpoint_interval_ms, self._store_recovery_points),
            ("log starts", config.log_flush_start_offset_checkpoint_interval_ms, self._store_log_starts),
            ("retention", config.log_retention_check_interval_ms, self._delete_expired),
        ):
            self._timers.every(kind, interval_ms, partial(self._in_each_directory, kind, act))
        self._timers.every("isr", max(config.replica_lag_time_max_ms // 2, 1), self._shrink_isrs)

    async def lower_checkpoints(self, partition: Partition) -> None:
        """Around a cut of its log. Raises LogDirError."""
        directory = self._hosted.directory_of(partition)
        if directory is not None:
            await directory.files.lower(partition, lambda: self._hosted.in_directory(partition.directory_id))

    def raise_log_start(self, partition: Partition, offset: Offset) -> None:
        """As follower: the leader has deleted everything below `offset`."""
        directory = self._hosted.directory_of(partition)
        if directory is not None:
            directory.upkeep.submit(lambda: partition.delete_before(offset), kind=f"log start of {partition.name}")

    def _in_each_directory(self, kind: str, act: Callable[[HostedDirectory], Awaitable[None]]) -> None:
        for directory in self._hosted.online_directories():
            directory.upkeep.submit(partial(act, directory), kind=kind)

    async def _store_high_watermarks(self, directory: HostedDirectory) -> None:
        await directory.files.store_high_watermarks(self._hosted.in_directory(directory.directory_id))

    async def _store_log_starts(self, directory: HostedDirectory) -> None:
        await directory.files.store_log_starts(self._hosted.in_directory(directory.directory_id))

    async def _store_recovery_points(self, directory: HostedDirectory) -> None:
        await directory.files.store_recovery_points(self._hosted.in_directory(directory.directory_id))

    async def _delete_expired(self, directory: HostedDirectory) -> None:
        for partition in self._hosted.in_directory(directory.directory_id):
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

    def _shrink_isrs(self) -> None:
        for partition in list(self._hosted.partitions.values()):
            partition.maybe_shrink_isr()
