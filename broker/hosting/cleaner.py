"""Compacts the logs of topics with cleanup.policy=compact in the background (shell).

Counterpart of Kafka's LogCleaner. The core (`broker.core.compaction`) decides which log is due; `LogCompaction` does the
work. This module runs up to log.cleaner.threads compactions at the same time, limits their I/O, and keeps each partition's
first dirty offset.

1. A log is compacted by one task at a time. While the log is restructured, or while it moves to another directory, it is
   left alone: the copy would have to be compacted again.
2. Before segments are swapped, the recovery point on the disk covers them. Otherwise a crash would make the next start build
   the leader epochs of these segments from batches that are no longer all there.
3. A log with a damaged segment is left alone from then on, until it is loaded again. Its readers get the error.
4. Nothing is compacted in a directory that has no room for another segment. Such a log may stay the dirtiest one for long,
   so after a compaction that has got nowhere the next dirtiest log has its turn.
"""

import asyncio
from collections.abc import Callable

from broker.core.compaction import (
    Cleanable,
    CompactionRules,
    SegmentAge,
    choose_next,
    cleanable_part,
    first_dirty_offset,
)
from broker.core.rate_limit import RateLimit
from broker.hosting.cleaner_metrics import CleanerCounts
from broker.hosting.directory_uses import DirectoryUses
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import Partition
from common.configuration.server import ServerConfig
from common.configuration.settings import LONG_MAX
from common.environment.interface import Environment, LogDirError, SpaceStat
from common.ids import DirectoryId, TopicIdPartition
from common.protocol.errors import ErrorCode
from common.records.batch import BatchError
from common.slices import pause_before
from common.storage.compaction.log_compaction import Compacted, CompactionEnded, CompactionSettings, LogCompaction
from common.storage.compaction.offset_map import entries_max
from common.storage.errors import LogClosed
from common.storage.log import Log
from common.storage.segment import Segment
from common.time_units import NS_PER_MS, NS_PER_S

# A compaction that waits for the rate limit checks the rate again after at most this time.
_PACE_STEP_NS = NS_PER_S
_BACKOFF_OF_ZERO_MS = 1000


class Cleaner:
    """See the module docstring. Call `start` once, when the logs are loaded."""

    def __init__(
        self,
        env: Environment,
        config: Callable[[], ServerConfig],
        *,
        hosted: Hosted,
        timers: NamedTimers,
        task_group: asyncio.TaskGroup,
        space: Callable[[DirectoryId], SpaceStat | None],
    ) -> None:
        self._env = env
        self._config = config
        self._hosted = hosted
        self._timers = timers
        self._task_group = task_group
        self._space = space
        self._limit = RateLimit()
        # The replicas of compacted topics. A dict used as an ordered set. Changes when: a replica comes or goes, or its
        # configuration changes.
        self._candidates: dict[TopicIdPartition, None] = {}
        # The replicas that are being compacted.
        self._busy: set[TopicIdPartition] = set()
        # The replicas whose compaction has got nowhere since the last look (rule 4). A turn may outlast many looks.
        self._tried: set[TopicIdPartition] = set()
        # The replicas whose log is damaged, each with that log. A log that was loaded again is another one.
        self._damaged: dict[TopicIdPartition, Log] = {}
        # Why the last compaction of a replica ended early, so that a disk without room is not logged at every look.
        self._reasons: dict[TopicIdPartition, str] = {}
        # The number of tasks under way. Invariant: at most log.cleaner.threads, unless that was lowered meanwhile.
        self._turns = 0
        self.counts = CleanerCounts()
        self._is_stopped = False
        self.uses = DirectoryUses()
        """The directories in which a log is being looked at or compacted at this moment."""

    @property
    def uncleanable(self) -> dict[DirectoryId, int]:
        """The number of partitions in each directory that are left alone, because their log is damaged (rule 3)."""
        counts: dict[DirectoryId, int] = {}
        for key, log in self._damaged.items():
            partition = self._hosted.partitions.get(key)
            if partition is not None and partition.log is log:
                counts[partition.directory_id] = counts.get(partition.directory_id, 0) + 1
        return counts

    def note(self, partition: Partition) -> None:
        """Notes a replica that may have become one to compact, or no longer be one."""
        if partition.gone is ErrorCode.NONE and partition.config.is_compacted:
            self._candidates[partition.key] = None
        else:
            self._candidates.pop(partition.key, None)
            self._reasons.pop(partition.key, None)

    def start(self) -> None:
        """Sets the timer, unless log.cleaner.enable is false."""
        if self._config().log_cleaner_enable:
            self._wait()

    def stop(self) -> None:
        """Prevents further compactions, and makes those under way end early. One that waits for a hung disk takes longer
        (`uses`)."""
        self._is_stopped = True

    def _wait(self) -> None:
        backoff_ms = self._config().log_cleaner_backoff_ms or _BACKOFF_OF_ZERO_MS
        self._timers.after("compaction", backoff_ms * NS_PER_MS, self._look)

    def _look(self) -> None:
        self._tried.clear()
        if not self._is_stopped and self._candidates:
            while self._turns < self._config().log_cleaner_threads:
                self._turns += 1
                self._task_group.create_task(self._turn())
        self._wait()

    async def _turn(self) -> None:
        """Compacts one log after the other until none is due but those that it has just tried in vain."""
        try:
            while not self._is_stopped and self._turns <= self._config().log_cleaner_threads:
                chosen = await self._choose()
                if chosen is None:
                    return
                with self.uses.of(chosen[0].directory_id):
                    is_cleaner = await self._compact(*chosen)
                if not is_cleaner:
                    self._tried.add(chosen[0].key)
        finally:
            self._turns -= 1

    # --- choosing ------------------------------------------------------------------------------------------------
    async def _choose(self) -> tuple[Partition, Cleanable] | None:
        found: dict[TopicIdPartition, Cleanable] = {}
        for number, candidate in enumerate(list(self._candidates)):
            await pause_before(number)
            partition = self._hosted.served(candidate)
            if partition is not None and self._may_compact(partition, partition.log) and candidate not in self._busy:
                with self.uses.of(partition.directory_id):
                    cleanable = await self._cleanable(partition, partition.log)
                if cleanable is not None:
                    found[candidate] = cleanable
        found = {key: each for key, each in found.items() if key not in self._busy and self._hosted.served(key) is not None}
        self.counts.looked(self._env.now_ns(), [each.ratio for each in found.values()])
        key = choose_next({key: each for key, each in found.items() if key not in self._tried})
        return None if key is None else (self._hosted.partitions[key], found[key])

    def _may_compact(self, partition: Partition, log: Log) -> bool:
        return (
            not self._is_stopped
            and partition.gone is ErrorCode.NONE
            and partition.log is log
            and partition.config.is_compacted
            and partition.future is None
            and not partition.is_restructuring
            and self._damaged.get(partition.key) is not log
        )

    async def _cleanable(self, partition: Partition, log: Log) -> Cleanable | None:
        config = partition.config
        dirty_from = _dirty_from(partition, log)
        needs_ages = config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < LONG_MAX
        try:
            ages = [
                await _age(segment) if needs_ages and segment.next_offset > dirty_from else _size(segment)
                for segment in log.durable_segments()
            ]
        except (LogDirError, LogClosed):
            return None
        except BatchError as error:
            self._note_damage(partition, log, error)
            return None
        return cleanable_part(
            ages,
            first_dirty_offset=dirty_from,
            last_stable_offset=partition.last_stable_offset,
            now_ms=self._env.wall_ms(),
            rules=CompactionRules(
                min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
                min_compaction_lag_ms=config.min_compaction_lag_ms,
                max_compaction_lag_ms=config.max_compaction_lag_ms,
            ),
        )

    # --- compacting ----------------------------------------------------------------------------------------------
    async def _compact(self, partition: Partition, part: Cleanable) -> bool:
        """Compacts one log. Returns False if it is no cleaner than before and would be chosen again."""
        log, directory = partition.log, self._hosted.directory_of(partition)
        if directory is None or not self._may_compact(partition, log):
            return True
        self._busy.add(partition.key)
        start_ns = self._env.now_ns()
        try:
            await directory.files.store_recovery_points()
            if not _is_still_cleanable(partition, log, part):
                return False
            compaction = LogCompaction(
                log,
                self._settings(partition),
                now_ms=self._env.wall_ms(),
                pace=self._pace,
                is_wanted=lambda: self._may_compact(partition, log),
                has_room=lambda size: self._has_room(directory, size),
            )
            result = await compaction.run(part.first_dirty_offset, part.end_offset)
            if not self._may_compact(partition, log):
                return False
            partition.compacted(result.end_offset)
            await directory.files.store_first_dirty_offsets()
        except (LogDirError, LogClosed):
            return False
        except CompactionEnded as ended:
            self._note_end(partition, str(ended))
            return False
        except BatchError as error:
            self._note_damage(partition, log, error)
            return True
        finally:
            self._busy.discard(partition.key)
        self._reasons.pop(partition.key, None)
        self._report(partition, result, start_ns)
        return result.end_offset > part.first_dirty_offset

    def _settings(self, partition: Partition) -> CompactionSettings:
        server, config = self._config(), partition.config
        return CompactionSettings(
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
            producer_expiration_ms=server.producer_id_expiration_ms,
            keys_max=entries_max(
                buffer_bytes=server.log_cleaner_dedupe_buffer_size,
                load_factor=server.log_cleaner_io_buffer_load_factor,
                cleaners=server.log_cleaner_threads,
            ),
            io_buffer_bytes=server.log_cleaner_io_buffer_size,
        )

    def _has_room(self, directory: HostedDirectory, size: int) -> bool:
        space = self._space(directory.directory_id)
        return space is None or space.usable_bytes >= size + self._config().diskraft_log_dir_free_bytes_floor

    async def _pace(self, size: int) -> None:
        """Waits until log.cleaner.io.max.bytes.per.second allows another chunk, and counts the chunk."""
        while not self._is_stopped:
            rate = self._config().log_cleaner_io_max_bytes_per_second
            if rate >= LONG_MAX:
                return
            now_ns = self._env.now_ns()
            delay_ns = self._limit.delay_ns(int(rate), now_ns) or 0
            if not delay_ns:
                break
            await self._env.sleep_until(now_ns + min(delay_ns, _PACE_STEP_NS))
        self._limit.take(size)

    def _note_damage(self, partition: Partition, log: Log, error: BatchError) -> None:
        if self._damaged.get(partition.key) is not log:
            self._damaged[partition.key] = log
            self._env.log.error("segment_damaged", partition=partition.name, error=str(error))

    def _note_end(self, partition: Partition, reason: str) -> None:
        if self._reasons.get(partition.key) != reason:
            self._reasons[partition.key] = reason
            self._env.log.info("log_compaction_ended", partition=partition.name, reason=reason)

    def _report(self, partition: Partition, result: Compacted, start_ns: int) -> None:
        self.counts.compacted(
            bytes_read=result.bytes_read,
            bytes_written=result.bytes_written,
            duration_ns=self._env.now_ns() - start_ns,
            threads=self._config().log_cleaner_threads,
        )
        self._env.log.info(
            "log_compacted",
            partition=partition.name,
            first_dirty_offset=result.end_offset,
            keys=result.keys,
            records_removed=result.records_removed,
            bytes_read=result.bytes_read,
            bytes_written=result.bytes_written,
            segments_replaced=result.segments_replaced,
            duration_ms=round((self._env.now_ns() - start_ns) / NS_PER_MS),
        )


def _dirty_from(partition: Partition, log: Log) -> int:
    return first_dirty_offset(
        partition.first_dirty_offset, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
    )


def _is_still_cleanable(partition: Partition, log: Log, part: Cleanable) -> bool:
    """Whether the part is still dirty from its start on and stable up to its end. The log may have been truncated since the
    part was looked up: what was appended then need not be either."""
    return _dirty_from(partition, log) == part.first_dirty_offset and part.end_offset <= partition.last_stable_offset


def _size(segment: Segment) -> SegmentAge:
    return SegmentAge(segment.base_offset, segment.next_offset, segment.size)


async def _age(segment: Segment) -> SegmentAge:
    """Reads the times of a segment. Raises LogDirError and BatchError."""
    assert segment.file is not None
    with segment.file.in_use():
        first = await segment.scan(0).next()
        newest = await segment.load_max_timestamp()
    oldest = -1 if first is None else first[0].max_timestamp
    return SegmentAge(segment.base_offset, segment.next_offset, segment.size, oldest, newest)
