"""One partition's log: an ordered sequence of record batches in segments, in one folder of a log directory (shell).

Counterpart of Kafka's UnifiedLog and LocalLog; the metadata log is a `Log` too. Here is the life of a log, from its creation
to the deletion of its folder. Each kind of operation has a module of its own; `log_state` has the map, and the rules that
they all keep.
"""

from collections.abc import Sequence

from common.environment.interface import LogDir, LogDirError
from common.ids import Offset, TopicId
from common.storage.errors import LogClosed
from common.storage.leader_epochs import LeaderEpochs
from common.storage.log_appends import LogAppends
from common.storage.log_config import LogSettings
from common.storage.log_reads import LogReads
from common.storage.log_truncation import LogTruncation
from common.storage.names import FolderKind, marked_partition_folder, parse_partition_folder
from common.storage.new_log import FIRST_OFFSET, NewLog, create_first_segments
from common.storage.outstanding import Steps
from common.storage.partition_metadata import load_partition_metadata
from common.storage.producers.log_producers import LogProducers
from common.storage.recovery import Recovery, load_segments
from common.storage.segment import Segment
from common.storage.segment_replacement import SegmentReplacement


class Log(LogAppends, LogReads, LogTruncation, SegmentReplacement):
    """Created by `create` or `load`."""

    # --- creating and loading ------------------------------------------------------------------------------------
    @classmethod
    async def create(
        cls, log_dir: LogDir, name: str, config: LogSettings, topic_id: TopicId, *, start_offset: Offset = FIRST_OFFSET
    ) -> "Log":
        """Creates one log. See `create_all`."""
        (log,) = await cls.create_all(log_dir, [NewLog(name, config, topic_id, start_offset)])
        return log

    @classmethod
    async def create_all(cls, log_dir: LogDir, new: Sequence[NewLog]) -> list["Log"]:
        """Creates logs in new folders, durable when this returns. They share their syncs. Raises LogExists, then without
        creating any, and LogDirError."""
        segments = await create_first_segments(log_dir, new)
        return [cls._created(log_dir, each, segment) for each, segment in zip(new, segments, strict=True)]

    @classmethod
    def _created(cls, log_dir: LogDir, new: NewLog, segment: Segment) -> "Log":
        return cls(
            log_dir,
            new.name,
            new.config,
            new.topic_id,
            segments=[segment],
            leader_epochs=LeaderEpochs(),
            producers=LogProducers(log_dir),
            log_start_offset=new.start_offset,
            recovery_point=new.start_offset,
            recovery=Recovery(),
        )

    @classmethod
    async def load(
        cls,
        log_dir: LogDir,
        name: str,
        config: LogSettings,
        *,
        recovery_point: Offset = FIRST_OFFSET,
        log_start_offset: Offset = FIRST_OFFSET,
        first_dirty_offset: Offset = FIRST_OFFSET,
        clean: bool = False,
    ) -> "Log":
        """Loads the log from an existing folder. The offsets come from the checkpoints.

        `clean` means that the clean shutdown marker was there. Without it, everything from the recovery point on is
        validated and the log is truncated at the first bad byte; `recovery` reports the loss. A torn tail never fails the
        load. Raises MalformedPartitionMetadata and LogDirError.
        """
        topic_id = await load_partition_metadata(log_dir, name)
        loaded = await load_segments(
            log_dir,
            name,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            first_dirty_offset=first_dirty_offset,
            clean=clean,
        )
        end = loaded.segments[-1].next_offset
        intact = clean and not loaded.recovery.lost_anything
        log = cls(
            log_dir,
            name,
            config,
            topic_id,
            segments=loaded.segments,
            leader_epochs=loaded.leader_epochs,
            producers=loaded.producers,
            log_start_offset=Offset(max(log_start_offset, loaded.segments[0].base_offset)),
            recovery_point=Offset(end if intact else min(recovery_point, end)),
            recovery=loaded.recovery,
        )
        if loaded.leader_epochs_changed:
            log._store_epochs()
        return log

    # --- closing -------------------------------------------------------------------------------------------------
    async def close(self) -> None:
        """Flushes everything, writes the index files and closes the files, for a clean shutdown."""
        async with self._lock:
            # Check for a failure first: a log that failed and was abandoned is closed as well, but was never flushed.
            self._check_not_failed()
            if self.is_closed:
                return
            with self._changing():
                await self._settle()
                await self._sync()
                self.is_closed = True
                self._start(self._close_steps())
                await self._background.wait()
            self._retire()
            self._check_not_failed()

    def _close_steps(self) -> Steps:
        newest_segment = self._segments.newest
        newest_segment.seal()
        yield from newest_segment.index_file_steps()
        yield from self.producers.close_steps(self.name, newest_segment.next_offset)

    async def abandon(self) -> None:
        """Closes the files of a log that failed while its directory did not, so that the log can be loaded again."""
        assert self.failure is not None, "only a failed log is abandoned"
        async with self._lock:
            self.is_closed = True
            # Let all Steps end first: after a reload they could miss files that it removed, or remove files that it opened.
            await self._settle()
            self._retire()

    # --- renaming ------------------------------------------------------------------------------------------------
    async def delete_rename(self, unique: bytes) -> str:
        """Closes the log and renames its folder durably to `<topic>-<p>.<32 hex>-delete`. Returns the new name.

        `unique` is 16 bytes long. The owner removes the folder after file.delete.delay.ms.
        """
        parsed = parse_partition_folder(self.name)
        assert parsed is not None
        name = marked_partition_folder(parsed.topic, parsed.partition, FolderKind.DELETE, unique)
        async with self._lock:
            self.is_closed = True
            # Let queued operations end first: they use the old name, and would not find the folder after the rename.
            await self._settle()
            self._retire()
            # A failed log is deleted like any other. From here on only a failure of the rename counts.
            self.failure = None
            self._start(self._rename_steps(name))
            await self._background.wait()
            self._check_not_failed()
        return name

    async def rename(self, name: str) -> None:
        """Renames the folder durably while the log stays open, as when a future log becomes the current one.

        The owner must not append meanwhile. An error does not fail the log, because `name` still says which folder the log
        is in: the old one, or the new one if only the sync of the directory failed. Raises LogClosed and LogDirError.
        """
        async with self._lock:
            self._check_usable()
            with self._changing():
                # Let queued operations end first: they use the old name, and would not find the folder after the rename.
                await self._settle()
                self._check_usable()
                failures: list[LogDirError | None] = []
                self._background.run(self._rename_steps(name), on_failure=failures.append)
                await self._background.wait()
            if failures:
                raise failures[0] or LogClosed(f"{self.log_dir.path}/{self.name} was given up")

    def _rename_steps(self, name: str) -> Steps:
        self._segments.begin_move_to(name)
        yield self.log_dir.rename(self.name, name)
        self.name = name
        # A search that has just asked for an index file by the old name finds none, and rebuilds the index from the batches.
        self._segments.move_to(name)
        yield self.log_dir.fsync_dir()

    # --- taking over another log ---------------------------------------------------------------------------------
    async def skip_to(self, offset: Offset) -> None:
        """Moves the log end up to `offset`, without a batch below it, because the log of which this is a copy ends in a gap.
        Only logs that Apache Kafka's brokers have compacted do. Raises LogClosed and LogDirError."""
        async with self._lock:
            self._check_usable()
            assert offset >= self.log_end_offset, "this is no truncation"
            with self._changing():
                await self._settle()
                self._check_usable()
                self.log_end_offset = offset
                self._appends.restart_at(offset)
                if offset > self._segments.newest.next_offset:
                    # A load takes the end of a log from its newest segment.
                    self._roll(offset)

    async def take_over(self, other: "Log") -> None:
        """Adopts the leader epochs, producers and log start of `other`, of which this log is a full copy, and syncs
        everything.

        Both logs end at the same offset, and the owner appends to neither. The epochs are adopted because copied batches
        show only the epochs that have records, and a leader must also know where an epoch without records ended. In the same
        way `other` may know producers whose batches were deleted before the copy began. When this returns, the recovery
        point is the log end. Raises LogClosed and LogDirError.
        """
        async with self._lock:
            self._check_usable()
            assert self.log_end_offset == other.log_end_offset, "the copy is not complete"
            with self._changing():
                self._adopt_epochs(other.leader_epochs)
                self.producers.state = other.producers.state.copy()
                self.raise_log_start_offset(other.log_start_offset)
                await self._delete_below_start()
                await self._sync()
        assert self.recovery_point == self.log_end_offset

    def _adopt_epochs(self, epochs: LeaderEpochs) -> None:
        adopted = LeaderEpochs(epochs.entries)
        # This log may start later than the other one.
        adopted.truncate_from_start(self.log_start_offset)
        if adopted.entries != self.leader_epochs.entries:
            self.leader_epochs = adopted
            self._store_epochs()
