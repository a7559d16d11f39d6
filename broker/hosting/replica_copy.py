"""Copies one replica into its future log in another directory, and swaps the two (shell, KIP-113).

Counterpart of Kafka's ReplicaAlterLogDirsThread for a single partition. The copy is read from the current log up to what is
written there, committed or not, so it can have records that the current log truncates later.

1. `align` runs before the first chunk and after every restructuring of the current log. It truncates the copy where the two
   logs diverge, by leader epochs as a follower does.
2. What was read before a restructuring is thrown away (`Partition.log_generation`).
3. A swap holds the partition's appends back, completes and syncs the copy, renames the old folder to -delete, and then the
   copy's folder to the partition's name. Each rename is durable before the next step. Until the first rename the swap can be
   given up at any time, so `complete` has a short deadline. If the second rename fails, the first one is taken back. What
   need not wait for the last records happens before, in `prepare`.
4. The renames do not pass through the directories' lanes, because a swap must not wait for one directory while it holds up
   the other. The lock of the log is enough: a log that was deleted meanwhile cannot be renamed.
5. The copy is synced while it grows, and not in the lane that the clients' appends wait in. Otherwise one sync of the whole
   copy would hold up all appends to the target directory.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

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
from common.storage.names import FolderKind, marked_partition_folder, partition_folder
from common.time_units import NS_PER_MS, NS_PER_S

# Large enough to read and write at the disk's speed, small enough to hold up a client's append for a few milliseconds only.
CHUNK_BYTES_MAX = 1 << 20
CHUNK_BYTES_MIN = 1 << 16
# How much is copied before the next sync of rule 5 begins. Copying waits while that sync takes longer than copying as much
# again, so at most twice as much is unsynced.
WRITE_BACK_BYTES = 16 << 20
# How long a swap may hold appends back before anything is renamed. So a slow target costs the clients no more than a pause.
COMPLETION_MAX_NS = 500 * NS_PER_MS
_RETRY_NS = NS_PER_S

Pace = Callable[[int], Awaitable[None]]
"""Waits until this many bytes may be copied."""


class MoveEnded(Exception):
    """The partition or its copy has gone while a step of the move waited. There is nothing left to do."""


class ReplicaCopy:
    """The copy of one replica. `unique` is the 16 bytes in the names of its folders."""

    def __init__(
        self, env: Environment, partition: Partition, source: HostedDirectory, target: HostedDirectory, unique: bytes
    ) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.unique = unique
        # The generation of the current log that the copy was aligned with; None before the first alignment.
        self._aligned_with: int | None = None
        # The chunk that is being written while the next one is read; None before the first chunk. Only the last chunk of a
        # turn is awaited at once.
        self._in_flight: AwaitedAppend | None = None
        # The bytes copied since the last sync of rule 5 began, and the end of that sync; None before the first one.
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
        """Whether the current log was not restructured since `align`, so that the two logs still agree."""
        return self._aligned_with == self.partition.log_generation

    # --- creating ------------------------------------------------------------------------------------------------

    async def create(self) -> Log:
        """Creates the empty future log, beginning where the current log begins. Raises LogDirError and LogClosed."""
        partition = self.partition
        name = marked_partition_folder(partition.topic, partition.index, FolderKind.FUTURE, self.unique)
        start_offset = await _first_batch_offset(partition.log)
        return await Log.create(self.target.log_dir, name, partition.config, partition.topic_id, start_offset=start_offset)

    # --- copying -------------------------------------------------------------------------------------------------

    async def align(self) -> None:
        """Truncates the copy where it differs from the current log (rule 1). Raises LogDirError and LogClosed."""
        generation = self.partition.log_generation
        if generation == self._aligned_with:
            return
        current = self.partition.log
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
        """Copies the next batches, at least one and at most `max_bytes` in all. Returns False if everything is copied.
        Raises LogDirError, LogClosed, and BatchError if the current log is damaged."""
        current, future = self.partition.log, self._future
        await self._follow_log_start()
        generation = self.partition.log_generation
        offset = future.log_end_offset
        if offset >= current.written_offset:
            await self._wait_until_written()
            return False
        try:
            data = await current.read_bytes(offset, max_bytes=max_bytes)
        except OffsetOutOfRange:
            # The start of the log moved, or the log was truncated. The next turn looks again.
            return True
        await pace(len(data))
        if self._was_overtaken(generation):
            return True
        view = memoryview(data)
        for header, batch in split_batches(view):
            # A damaged batch must not get a second home: the disk that it comes from may still be able to read it later.
            validate_integrity(header, batch)
        # One chunk is written while the next one is read, and no more: the clients' appends wait behind them.
        await self._wait_until_written()
        if self._was_overtaken(generation):
            return True
        append = self._in_flight = AwaitedAppend()
        future.append_as_follower(view, on_written=append.written, on_failed=append.failed)
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
            self._write_back = future.write_back()

    def _was_overtaken(self, generation: int) -> bool:
        """Whether what was read no longer counts: the log was restructured since (rule 2), or the move has ended."""
        is_other_log = self.partition.log_generation != generation
        is_truncating = self.partition.is_restructuring and not self.partition.is_swapping
        return is_other_log or is_truncating or not self.is_usable

    async def _follow_log_start(self) -> None:
        current, future = self.partition.log, self._future
        if current.log_start_offset <= future.log_start_offset:
            return
        if current.log_start_offset > future.log_end_offset:
            await future.truncate_fully_and_start_at(await _first_batch_offset(current))
        else:
            await future.delete_segments_before(current.log_start_offset)

    async def flush(self) -> None:
        """Syncs both logs, so that a swap has little left to sync while it holds appends back."""
        await _flush_aside(self._future)
        await _flush_aside(self.partition.log)

    # --- swapping ------------------------------------------------------------------------------------------------

    async def prepare(self, placed_in_target: Sequence[Partition]) -> None:
        """Syncs both logs and stores the checkpoints of the target directory, so that a swap has little left to do while it
        holds appends back. `placed_in_target` are the partitions whose current log is in the target directory.

        The offsets in the checkpoints may be behind when the swap comes, as they always may; after a crash the log is
        recovered from there. They must not be beyond what the copy then has, so the swap needs `is_aligned` afterwards."""
        await self.flush()
        partition = self.partition
        await self.target.files.expect(
            (partition.topic, partition.index),
            placed_in_target,
            recovery_point=self._future.recovery_point,
            log_start_offset=self._future.log_start_offset,
            high_watermark=partition.high_watermark,
        )

    async def complete(self, *, log_changed: Callable[[], Awaitable[None]]) -> bool:
        """Copies the rest of the current log and makes the copy its equal, durably. Call it while the partition is swapping,
        after `prepare`. `log_changed` returns after the current log has changed. Returns False if it took too long or the
        move has ended. Raises like `copy_chunk`."""
        current, future = self.partition.log, self._future
        try:
            async with self._env.timeout_at(self._env.now_ns() + COMPLETION_MAX_NS):
                while future.log_end_offset < current.log_end_offset:
                    if not await self.copy_chunk(CHUNK_BYTES_MAX, _at_once):
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
        `complete`. Raises LogDirError and LogClosed; the old log is then the current one if its directory is online."""
        partition, old, placed = self.partition, self.partition.log, self.partition.future
        assert placed is not None and placed.log.log_end_offset == old.log_end_offset
        assert placed.log.recovery_point == placed.log.log_end_offset, "what is not synced could be lost by a power cut"
        folder = partition_folder(partition.topic, partition.index)
        deleted = marked_partition_folder(partition.topic, partition.index, FolderKind.DELETE, self.unique)
        await self._rename(old, deleted)
        try:
            await self._rename(placed.log, folder)
        except (LogDirError, LogClosed):
            with contextlib.suppress(LogDirError, LogClosed):
                await self._rename(old, folder)
            raise
        partition.replace_log(placed)
        return deleted

    async def _rename(self, log: Log, folder: str) -> None:
        """Renames until it succeeds or the directory is offline. Between two renames there is no state to stop in."""
        while True:
            try:
                if log.name != folder:
                    return await log.rename(folder)
                # An earlier attempt renamed the folder, and only the sync failed.
                return await log.log_dir.fsync_dir()
            except LogDirError as error:
                if classify(error) is not Verdict.PROCESS_TROUBLE:
                    raise
            await self._env.sleep_until(self._env.now_ns() + _RETRY_NS)


async def _first_batch_offset(log: Log) -> Offset:
    """Returns the first offset of the batch that holds the log start; the log end if the log is empty."""
    while True:
        try:
            return (await log.read(log.log_start_offset, max_bytes=1)).first_offset
        except OffsetOutOfRange:
            continue


async def _flush_aside(log: Log) -> None:
    """Flushes the log while holding up appends to its directory as little as possible (rule 5)."""
    if log.size_bytes > CHUNK_BYTES_MAX and log.recovery_point < log.log_end_offset:
        await log.write_back()
    await log.flush()


async def _at_once(_size: int) -> None:
    return None
