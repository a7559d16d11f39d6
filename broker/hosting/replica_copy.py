"""Copies one replica into its future log in another directory, and swaps the two (shell, KIP-113).

Counterpart of Kafka's ReplicaAlterLogDirsThread for a single partition. The copy gets every record that is written to the
current log, committed or not, so it can contain records that are later truncated from the current log.

1. `align` runs before the first chunk and after every restructuring of the current log. Like a follower, it finds by leader
   epochs where the two logs diverge, and truncates the copy there.
2. Data that was read before a restructuring is discarded (`Partition.log_generation`).
3. A swap holds the partition's appends back, completes and syncs the copy, renames the old folder to -delete, and then the
   copy's folder to the partition's name. Each rename is durable before the next step. Until the first rename the swap can be
   given up at any time, so `complete` has a short deadline. If the second rename fails, the first one is undone. The copy
   may then have the partition's name already, and `moved-from` in its folder shows that it can be outdated. Work that does
   not depend on the last records is done beforehand, in `prepare`.
4. The renames are not jobs of the directories' lanes: such a job would block one directory's lane while it waits for the
   other directory. The lock of each log is enough: a log that was deleted meanwhile cannot be renamed.
5. The copy is synced while it grows, with `Log.write_back`, which does not hold up the clients' appends. Otherwise one sync
   of the whole copy would hold up all appends to the target directory. What is synced leaves the page cache.
6. Copying pauses while many rolled segments of the copy await their syncs (`Log.outruns_syncs`). Otherwise a log
   that is created or deleted in the target directory would wait for the syncs of hundreds of small segments.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from broker.hosting.hosted import HostedDirectory
from broker.hosting.partition import Partition
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDirError
from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.records.batch import split_batches, validate_integrity
from common.storage.append_pipeline import AwaitedAppend
from common.storage.copy_divergence import end_of_agreement
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.log import Log
from common.storage.move_origin import store_move_origin
from common.storage.names import FolderKind, marked_partition_folder, partition_folder
from common.storage.read_limits import ReadLimits
from common.time_units import NS_PER_MS, NS_PER_S

# Large enough to read and write at the disk's speed, small enough to hold up a client's append for a few milliseconds only.
CHUNK_BYTES_MAX = 1 << 21
# The same while clients use the broker. Hardly slower, but the chunk holds up a client for a fraction of a millisecond.
CHUNK_BYTES_BUSY = 1 << 17
CHUNK_BYTES_MIN = 1 << 16
# The number of bytes copied between the starts of two syncs (rule 5). Copying waits before the second sync until the first
# one has ended, so at most twice this much is unsynced.
WRITE_BACK_BYTES = 16 << 20
# How long a swap may hold appends back before it renames anything. After that it is given up for now, so that a slow target
# costs the clients only a short pause.
COMPLETION_MAX_NS = 500 * NS_PER_MS
_RENAME_RETRY_MIN_NS = 10 * NS_PER_MS
_RENAME_RETRY_MAX_NS = NS_PER_S

Pace = Callable[[int], Awaitable[None]]
"""Waits until this many bytes may be copied."""


class MoveEnded(Exception):
    """The partition or its copy has gone while a step of the move waited. There is nothing left to do."""


class ReplicaCopy:
    """The copy of one replica. `unique` is the 16 bytes that the names of its folders contain in hexadecimal."""

    def __init__(
        self, env: Environment, partition: Partition, source: HostedDirectory, target: HostedDirectory, unique: bytes
    ) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.unique = unique
        # The generation of the current log that the copy was aligned with; None before the first alignment.
        self._aligned_with: int | None = None
        # The chunk that is being written while the next one is read; None if no chunk is being written. It is awaited before
        # the next chunk is written, or when nothing is left to copy.
        self._in_flight: AwaitedAppend | None = None
        # The bytes copied since the last sync (rule 5) began, and a future that completes when that sync ends; None before
        # the first sync.
        self._unsynced_bytes = 0
        self._write_back: asyncio.Future[None] | None = None
        self._env = env

    @property
    def _future(self) -> Log:
        if not self.is_usable or self.partition.future is None:
            raise MoveEnded
        return self.partition.future.log

    @property
    def is_usable(self) -> bool:
        """Whether the partition is still served and has this copy."""
        future = self.partition.future
        return (
            self.partition.gone is ErrorCode.NONE
            and future is not None
            and future.directory_id == self.target.directory_id
            and self.partition.directory_id == self.source.directory_id
        )

    @property
    def is_aligned(self) -> bool:
        """Whether the two logs still agree, because the current log has not been restructured since `align`."""
        return self._aligned_with == self.partition.log_generation

    @property
    def _may_have_been_compacted(self) -> bool:
        # A compaction that ended early has left no trace in the first dirty offset.
        return self.partition.config.is_compacted or self.partition.first_dirty_offset > 0

    # --- creating ------------------------------------------------------------------------------------------------

    async def start_offset(self) -> Offset:
        """Returns where the current log starts. Reads from the source. Raises LogDirError, LogClosed and BatchError."""
        return await _first_batch_offset(self.partition.log)

    async def create(self, start_offset: Offset) -> Log:
        """Creates an empty future log that starts there. Does not touch the source. Raises LogDirError and LogClosed."""
        partition = self.partition
        name = marked_partition_folder(partition.topic, partition.index, FolderKind.FUTURE, self.unique)
        return await Log.create(self.target.log_dir, name, partition.config, partition.topic_id, start_offset=start_offset)

    # --- copying -------------------------------------------------------------------------------------------------

    async def align(self) -> None:
        """Truncates the copy where it differs from the current log (rule 1). Raises LogDirError and LogClosed."""
        generation = self.partition.log_generation
        if generation == self._aligned_with:
            return
        current = self.partition.log
        if self._aligned_with is None and self._may_have_been_compacted and self._future.size_bytes:
            # An earlier run has made this part of the copy, and the current log may have been compacted since. Then the part
            # has records that are gone there, and their tombstones go with the next compaction, or have gone.
            await self._future.truncate_fully_and_start_at(await _first_batch_offset(current))
            self._aligned_with = generation
            return
        offset = end_of_agreement(
            current=current.leader_epochs,
            current_start=current.log_start_offset,
            current_end=current.log_end_offset,
            copy=self._future.leader_epochs,
            copy_end=self._future.log_end_offset,
        )
        if offset < self._future.log_end_offset:
            self._future.lower_recovery_point(offset)
            await self._future.truncate_to(offset)
        self._aligned_with = generation

    async def copy_chunk(self, max_bytes: int, pace: Pace) -> bool:
        """Copies the next batches, at least one and at most `max_bytes` in all. Returns False if nothing was left to copy.
        Raises LogDirError, LogClosed, and BatchError if the current log is damaged."""
        await self._future.wait_for_rolled()
        current, future = self.partition.log, self._future
        await self._follow_log_start()
        generation = self.partition.log_generation
        offset, end_offset = future.log_end_offset, current.written_offset
        if offset >= end_offset:
            await self._wait_until_written()
            return False
        try:
            # The log may start within a batch. The copy begins with the whole batch, below the log start.
            data = await current.read_bytes(max(offset, current.log_start_offset), ReadLimits(max_bytes=max_bytes))
        except OffsetOutOfRange:
            # The start of the log moved, or the log was truncated. The next call looks at the log again.
            return True
        await pace(len(data))
        if self._was_overtaken(generation):
            return True
        view = memoryview(data)
        batches = split_batches(view)
        for header, batch in batches:
            # Do not copy a damaged batch: its own disk may be able to read it correctly later.
            validate_integrity(header, batch)
        # At most one chunk is written while the next one is read, because the clients' appends wait behind the chunk.
        await self._wait_until_written()
        if self._was_overtaken(generation):
            return True
        if not batches:
            # A broker of Apache Kafka compacted the end of the current log away before this broker took over the directory.
            await future.skip_to(end_offset)
            return True
        if future.starts_within(batches[0][0]):
            # The current log was as empty when the copy was created, and is that of a follower which has started over since.
            await future.truncate_fully_and_start_at(Offset(batches[0][0].base_offset))
            return True
        append = self._in_flight = AwaitedAppend()
        future.append_as_follower(batches, view, is_copy=True, on_written=append.written, on_failed=append.failed)
        # Nobody reads the copy, so it need not remember which of its transactions are replicated.
        future.replicated_up_to(future.log_end_offset)
        await self._pace_write_back(future, len(data))
        return True

    async def _wait_until_written(self) -> None:
        append, self._in_flight = self._in_flight, None
        if append is not None:
            await append.ended

    async def _pace_write_back(self, future: Log, size: int) -> None:
        self._unsynced_bytes += size
        if self._unsynced_bytes >= WRITE_BACK_BYTES:
            await self._wait_until_written()
            if self._write_back is not None:
                await self._write_back
            self._unsynced_bytes = 0
            # Clients do not read the copy, so it must not push what they read out of the page cache.
            self._write_back = future.write_back(forget=True)

    def _was_overtaken(self, generation: int) -> bool:
        """Whether the data just read must be discarded: the current log has been restructured since (rule 2), or the move
        has ended."""
        is_other_log = self.partition.log_generation != generation
        is_truncating = self.partition.is_restructuring and not self.partition.is_swapping
        return is_other_log or is_truncating or not self.is_usable

    async def _follow_log_start(self) -> None:
        current, future = self.partition.log, self._future
        if current.log_start_offset <= future.log_start_offset:
            return
        if current.log_start_offset > future.log_end_offset:
            first_offset = await _first_batch_offset(current)
            if first_offset > future.log_end_offset:
                await future.truncate_fully_and_start_at(first_offset)
        else:
            await future.delete_segments_before(current.log_start_offset)

    async def flush(self) -> None:
        """Syncs both logs, so that a swap has little left to sync while it holds appends back."""
        await _flush_aside(self._future)
        await _flush_aside(self.partition.log)

    # --- swapping ------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Syncs both logs, and stores the origin of the copy and the checkpoints of the target directory, so that a swap has
        little left to do while it holds appends back.

        When the swap comes, the offsets in the checkpoints may be too low. That is harmless, as for every log: after a
        crash, recovery starts there. They must not be beyond the end of the copy, so the caller must check `is_aligned`
        before the swap."""
        await self.flush()
        await store_move_origin(self.target.log_dir, self._future.name, self.source.directory_id)
        partition = self.partition
        await self.target.files.expect(
            partition.topic_partition,
            recovery_point=self._future.recovery_start,
            log_start_offset=self._future.log_start_offset,
            high_watermark=partition.high_watermark,
            first_dirty_offset=partition.first_dirty_offset,
        )

    async def complete(self, *, log_changed: Callable[[], Awaitable[None]]) -> bool:
        """Copies the rest of the current log, and durably makes the copy equal to it. Call it while the partition is
        swapping, after `prepare`. `log_changed` waits until the current log has changed. Returns False if it took too long
        or the move has ended. Raises the same errors as `copy_chunk`."""
        current, future = self.partition.log, self._future
        try:
            async with self._env.timeout_at(self._env.now_ns() + COMPLETION_MAX_NS):
                while future.log_end_offset < current.log_end_offset:
                    await self.copy_chunk(CHUNK_BYTES_MAX, _at_once)
                    if future.log_end_offset == current.written_offset < current.log_end_offset:
                        # Appends that began before the swap are still on their way to the disk.
                        await log_changed()
                    if not self.is_usable:
                        return False
                await future.take_over(current)
        except TimeoutError:
            return False
        return self.is_usable

    async def exchange(self) -> str:
        """Gives the copy the partition's name and makes it the current log. Returns the old log's folder. Call it after
        `complete`. Raises LogDirError, LogClosed and MoveEnded; the old log then stays the current one."""
        partition, old, placed = self.partition, self.partition.log, self.partition.future
        assert placed is not None and placed.log.log_end_offset == old.log_end_offset
        assert placed.log.recovery_point == placed.log.log_end_offset, "what is not synced could be lost by a power cut"
        folder = partition_folder(partition.topic, partition.index)
        deleted = marked_partition_folder(partition.topic, partition.index, FolderKind.DELETE, self.unique)
        await self._rename(old, deleted)
        try:
            await self._rename(placed.log, folder)
            if partition.future is not placed:
                # Whatever ended the move closes or deletes the copy, or its directory has failed.
                raise MoveEnded
        except (LogDirError, LogClosed, MoveEnded):
            with contextlib.suppress(LogDirError, LogClosed):
                await self._rename(old, folder)
            raise
        assert placed.log.log_end_offset == old.log_end_offset, "an append during the swap would be lost"
        # A deletion that had begun before the swap may have raised it since `complete`.
        placed.log.raise_log_start_offset(old.log_start_offset)
        partition.replace_log(placed)
        return deleted

    async def _rename(self, log: Log, folder: str) -> None:
        """Retries the rename until it succeeds or the directory is offline, because a swap must not end between its two
        renames. Clients wait meanwhile, so it is retried soon, and then less and less often."""
        retry_ns = _RENAME_RETRY_MIN_NS
        while True:
            try:
                if log.name != folder:
                    return await log.rename(folder)
                # An earlier attempt renamed the folder, and only the sync failed.
                return await log.log_dir.fsync_dir()
            except LogDirError as error:
                # A log that has failed refuses every further attempt, until it is loaded again after the swap.
                if classify(error) is not Verdict.PROCESS_TROUBLE or log.failure is not None:
                    raise
            await self._env.sleep_until(self._env.now_ns() + retry_ns)
            retry_ns = min(2 * retry_ns, _RENAME_RETRY_MAX_NS)


async def _first_batch_offset(log: Log) -> Offset:
    """Returns the first offset of the batch that contains the log start offset. If compaction has removed that batch, or the
    log is empty, returns the log start offset itself: consumers may still be at an offset below the next batch."""
    while True:
        try:
            return min((await log.read(log.log_start_offset, ReadLimits(max_bytes=1))).first_offset, log.log_start_offset)
        except OffsetOutOfRange:
            continue


async def _flush_aside(log: Log) -> None:
    """Flushes the log while holding up appends to its directory as little as possible (rule 5)."""
    # Appends of clients that wait for a sync (flush.messages) wait for a write-back as well.
    if log.size_bytes > CHUNK_BYTES_MAX and log.synced_offset < log.written_offset:
        await log.write_back()
    await log.flush()


async def _at_once(_size: int) -> None:
    return None
