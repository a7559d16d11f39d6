"""Reloads a log that failed although its disk is healthy (shell).

If the process ran out of file descriptors or memory in the middle of an operation, the state of the log is unknown although
the disk is fine. The log is then recovered from its files as at startup, and the partition continues with the new log. It
keeps its role, its ISR and the produce requests that wait for replication.

Other brokers rely on every record that was written. A leader whose reloaded log lacked such a record would make its
followers truncate that record. A follower that lacked it could be elected leader. So if a record is missing, the directory
goes offline instead.
"""

import errno

from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import Partition, PlacedLog
from broker.hosting.upkeep import Upkeep
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDirError
from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.storage.log import Log
from common.storage.partition_metadata import MalformedPartitionMetadata
from common.time_units import NS_PER_S

_RETRY_NS = NS_PER_S


class LogReload:
    """See the module docstring."""

    def __init__(self, env: Environment, hosted: Hosted, timers: NamedTimers, upkeep: Upkeep) -> None:
        self._env = env
        self._hosted = hosted
        self._timers = timers
        self._upkeep = upkeep

    def log_failed(self, partition: Partition) -> None:
        """Schedules a reload if the log failed because of the process, not the disk. May be called at any time."""
        failure = partition.log.failure
        if failure is None or classify(failure) is not Verdict.PROCESS_TROUBLE or partition.gone is not ErrorCode.NONE:
            return
        timer = f"reload {partition.topic_id.hex()}-{partition.index}"
        if timer not in self._timers:
            self._timers.after(timer, _RETRY_NS, lambda: self._begin(partition))

    def _begin(self, partition: Partition) -> None:
        directory = self._hosted.directory_of(partition)
        if directory is not None and partition.gone is ErrorCode.NONE:
            directory.work.submit(lambda: self._reload(partition, directory))

    async def _reload(self, partition: Partition, directory: HostedDirectory) -> None:
        if partition.gone is not ErrorCode.NONE:
            return
        if partition.is_restructuring:
            # The fetcher is truncating the log. Try again later.
            self.log_failed(partition)
            return
        former = partition.log
        partition.begin_restructuring()
        try:
            await former.abandon()
            log = await _load_again(former, partition.first_dirty_offset)
            if log.log_end_offset < former.written_offset:
                _report_lost_records(log, former.written_offset)
                return
            partition.replace_log(PlacedLog(directory.directory_id, log))
            self._env.log.warning("log_reloaded", partition=partition.name, log_dir=directory.log_dir.path)
            # The log may have failed in the midst of a truncation, before its checkpoints were lowered.
            await self._upkeep.lower_checkpoints_before_appends(partition)
        except LogDirError:
            self.log_failed(partition)
        except MalformedPartitionMetadata as error:
            self._env.log.error(
                "partition_metadata_unreadable",
                log_dir=directory.log_dir.path,
                folder=partition.log.name,
                reason=str(error),
            )
        finally:
            partition.end_restructuring()


async def _load_again(log: Log, first_dirty_offset: Offset) -> Log:
    return await Log.load(
        log.log_dir,
        log.name,
        log.config,
        recovery_point=log.recovery_start,
        log_start_offset=log.log_start_offset,
        first_dirty_offset=first_dirty_offset,
    )


def _report_lost_records(log: Log, written_offset: Offset) -> None:
    detail = f"{log.name} ends at {log.log_end_offset}, and was written up to {written_offset}"
    if log.log_dir.on_error is not None:
        log.log_dir.on_error(LogDirError(log.log_dir.path, "load", errno.EIO, detail=detail))
