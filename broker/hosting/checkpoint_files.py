"""The four offset files of a log directory, kept in line with the replicas in it (shell).

Counterpart of Kafka's LogManager.checkpointLogRecoveryOffsets and checkpointLogStartOffsets, and of
ReplicaManager.checkpointHighWatermarks. Kafka looks at every replica each time. Here a store looks at the replicas that
changed (`ChangedOffsets`), a file whose entries stayed the same is not written, and the directory's thread encodes it.

1. An entry is read from its replica when the file is stored, and after that only a note makes the next store read it again.
   So whatever changes an offset notes the replica, and whatever replaces the replica of a name notes the name.
2. While a write is in flight or has failed, the file may hold an older entry than the one that was set. Who relies on an
   entry being lowered or gone (`lower`, `forget`) then stores the file once more and waits: the directory keeps the order of
   the writes. A write that does not concern the entry is not waited for.
3. A name has an entry in the files if a current log in this directory has it, or if one is about to get it (`expect`).
"""

from collections.abc import Callable, Collection, Mapping

from broker.core.changed_offsets import ChangedOffsets
from broker.hosting.partition import Partition
from common.environment.interface import LogDir
from common.ids import Offset
from common.slices import pause
from common.storage.checkpoints import OffsetCheckpointFile
from common.storage.names import (
    CLEANER_CHECKPOINT_FILE,
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
)
from common.storage.text_checkpoint import TopicPartition

# A slice of this many entries takes a few milliseconds.
ENTRIES_PER_SLICE = 1_000


class CheckpointFiles:
    """See the module docstring. Every method that waits raises LogDirError; what it was to store then comes with the next
    store of the file."""

    def __init__(self, log_dir: LogDir) -> None:
        self._changed = ChangedOffsets()
        # The replicas whose current log is in this directory. Changes when: `Hosted` adds, moves or removes a replica.
        self._replicas: dict[TopicPartition, Partition] = {}
        # The offsets of logs that are about to become current here, by file. Invariants: no name is in `_replicas` as well;
        # when they are set, the folder of the log does not have the partition's name yet.
        self._expected: dict[TopicPartition, Mapping[str, Offset]] = {}
        changed = self._changed
        self._recovery_points = _File(log_dir, RECOVERY_POINT_CHECKPOINT_FILE, changed.recovery_points, _recovery_point)
        self._log_starts = _File(log_dir, LOG_START_OFFSET_CHECKPOINT_FILE, changed.log_starts, _log_start_offset)
        self._high_watermarks = _File(log_dir, HIGH_WATERMARK_CHECKPOINT_FILE, changed.high_watermarks, _high_watermark)
        self._first_dirty_offsets = _File(log_dir, CLEANER_CHECKPOINT_FILE, changed.first_dirty_offsets, _first_dirty_offset)
        self._files = (self._recovery_points, self._log_starts, self._high_watermarks, self._first_dirty_offsets)

    # --- what the directory holds --------------------------------------------------------------------------------

    def loaded(self, checkpoints: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Takes over what loading found in the files, before the replicas are added. The next store of a file removes the
        entries that have no replica."""
        for file in self._files:
            offsets = checkpoints.get(file.name, {})
            file.stored.loaded(offsets)
            file.changed.update(offsets)

    def add(self, partition: Partition) -> None:
        """Adds a replica whose current log is in this directory now. If that log was expected, its own offsets count from
        here on."""
        self._replicas[partition.topic_partition] = partition
        self._expected.pop(partition.topic_partition, None)
        partition.changed_offsets = self._changed
        self.note(partition.topic_partition)

    def remove(self, partition: Partition) -> None:
        """Removes a replica that has left the directory."""
        if self._replicas.get(partition.topic_partition) is partition:
            del self._replicas[partition.topic_partition]
            self.note(partition.topic_partition)
        if partition.changed_offsets is self._changed:
            partition.changed_offsets = ChangedOffsets()

    def note(self, name: TopicPartition) -> None:
        """Makes the next store of each file read this entry again."""
        has_log = name in self._replicas or name in self._expected
        for file in self._files:
            if has_log or file.stored.may_exceed(name, -1):
                file.changed.add(name)
            else:
                # The first dirty offsets are stored only after a compaction. Without this, a directory in which no log is
                # compacted would keep the name of every replica that it ever had.
                file.changed.discard(name)

    # --- storing -------------------------------------------------------------------------------------------------

    async def store_recovery_points(self) -> None:
        await self._store(self._recovery_points)

    async def store_log_starts(self) -> None:
        await self._store(self._log_starts)

    async def store_high_watermarks(self) -> None:
        await self._store(self._high_watermarks)

    async def store_first_dirty_offsets(self) -> None:
        """As in Kafka, the file has only logs that have been compacted."""
        await self._store(self._first_dirty_offsets)

    async def store_all(self) -> None:
        for file in self._files:
            await self._store(file)

    async def _store(self, file: "_File") -> None:
        # What changes during a pause is noted, and read below.
        for _ in range(len(file.changed) // ENTRIES_PER_SLICE):
            self._read_entries(file, ENTRIES_PER_SLICE)
            await pause()
        # From here on nothing may come in between: an entry that is lowered now must not be stored as it was before.
        self._read_entries(file, len(file.changed))
        if not file.stored.is_stored:
            await file.stored.store()

    def _read_entries(self, file: "_File", count: int) -> None:
        for _ in range(min(count, len(file.changed))):
            name = file.changed.pop()
            file.stored.set(name, self._offset(file, name))

    def _offset(self, file: "_File", name: TopicPartition) -> int | None:
        """Returns what the file is to hold for this name, None if it is to have no entry."""
        if name in self._expected:
            offset: int = self._expected[name][file.name]
        elif name in self._replicas:
            offset = file.offset_of(self._replicas[name])
        else:
            return None
        return offset if offset or file is not self._first_dirty_offsets else None

    # --- logs that come and go -----------------------------------------------------------------------------------

    async def expect(
        self,
        name: TopicPartition,
        *,
        recovery_point: Offset,
        log_start_offset: Offset,
        high_watermark: Offset,
        first_dirty_offset: Offset,
    ) -> None:
        """Stores the offsets of a log that is about to get the partition's name in this directory, so that they are used if
        there is a crash right after the rename. They stay in the files until the replica is added, or `expect_no_more` is
        called."""
        self._expected[name] = {
            RECOVERY_POINT_CHECKPOINT_FILE: recovery_point,
            LOG_START_OFFSET_CHECKPOINT_FILE: log_start_offset,
            HIGH_WATERMARK_CHECKPOINT_FILE: high_watermark,
            CLEANER_CHECKPOINT_FILE: first_dirty_offset,
        }
        self.note(name)
        await self.store_all()

    def expect_no_more(self, name: TopicPartition) -> None:
        """Ends `expect` for a log whose move has ended. Does nothing if the replica was added."""
        if self._expected.pop(name, None) is not None:
            self.note(name)

    async def forget(self, names: Collection[TopicPartition]) -> None:
        """Removes the entries of earlier logs before new logs take their names. Otherwise, after a crash, the old offsets
        would be applied to the new logs."""
        for file in self._files:
            if any(file.stored.may_exceed(name, -1) for name in names):
                file.changed.update(names)
                await self._store(file)

    async def lower(self, partition: Partition) -> None:
        """Stores the recovery points, the log starts and the first dirty offsets if the file may name a higher offset for
        `partition` than its log has, as around a truncation."""
        name = partition.topic_partition
        for file in (self._recovery_points, self._log_starts, self._first_dirty_offsets):
            if file.stored.may_exceed(name, file.offset_of(partition)):
                file.changed.add(name)
                await self._store(file)


class _File:
    """One of the files, with the names whose entries are to be read again, and the offset that it holds of a replica."""

    def __init__(
        self, log_dir: LogDir, name: str, changed: set[TopicPartition], offset_of: Callable[[Partition], Offset]
    ) -> None:
        self.name = name
        self.stored = OffsetCheckpointFile(log_dir, name)
        self.changed = changed
        self.offset_of = offset_of


def _recovery_point(partition: Partition) -> Offset:
    return partition.log.recovery_start


def _log_start_offset(partition: Partition) -> Offset:
    return partition.log.log_start_offset


def _high_watermark(partition: Partition) -> Offset:
    return partition.high_watermark


def _first_dirty_offset(partition: Partition) -> Offset:
    return min(partition.first_dirty_offset, partition.log.log_end_offset)
