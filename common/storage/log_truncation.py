"""Truncating a log that does not match its leader's (shell).

Counterpart of UnifiedLog.truncateTo and truncateFullyAndStartAt in Kafka. Only followers truncate, and never while they
append. Memory changes at once and the files follow as Steps, newest first, so that a crash in between leaves a log that is
too long but has no hole.
"""

from common.ids import Offset
from common.records.batch import BatchError, BatchHeader
from common.storage.outstanding import Steps
from common.storage.producers.state import ProducerState
from common.storage.segment import Segment
from common.storage.segment_deletion import SegmentDeletion


class LogTruncation(SegmentDeletion):
    """See the module docstring."""

    def lower_recovery_point(self, offset: Offset) -> None:
        """Lowers the recovery point so that it is not above the log end that `truncate_to(offset)` will leave.

        The owner calls this and stores the recovery point before it truncates.
        """
        if offset < self.recovery_point:
            # If `offset` is inside a batch, truncation ends the log at the start of that batch. The start is not known here,
            # so lower the recovery point to the start of the segment.
            self.recovery_point = Offset(min(offset, self._segments.holding(offset).base_offset))
            self._note_offsets_changed()

    def lower_log_start(self, offset: Offset) -> None:
        """Lowers the log start to what a truncation to `offset` will leave, or a new start there.

        The owner calls this and stores the log start before. Otherwise, after a crash in between, the next start would take
        the old log's start for that of the new one.
        """
        if offset < self.log_start_offset:
            self.log_start_offset = offset
            self._note_offsets_changed()

    async def truncate_to(self, offset: Offset) -> Offset:
        """Removes all batches that end after `offset`. Returns the new log end offset: the end of the last batch, or the log
        start if no batch is left above it.

        If compaction has left a gap at `offset` or right before it, the log ends before the gap, with its last batch. With a
        later end, a new follower of this log could not reach that end before the next append.

        The owner must first lower the recovery point and store it. Otherwise, after a crash, the old, higher recovery point
        would vouch for bytes that were never synced.
        """
        async with self._lock:
            self._check_usable()
            if offset >= self.log_end_offset:
                # A leader that was deposed before its first append has left an epoch that starts at the log end. If we kept
                # that entry, it would conflict with the new leader's epochs, and every fetch would report the divergence.
                if self.leader_epochs.truncate_from_end(offset):
                    self._store_epochs()
                return self.log_end_offset
            with self._changing():
                await self._settle()
                self._check_usable()
                if offset < self._segments[0].base_offset:
                    await self._start_over(offset)
                else:
                    await self._cut(offset)
            self._check_not_failed()
        return self.log_end_offset

    def starts_within(self, header: BatchHeader) -> bool:
        """Whether the log is empty and starts inside of this batch, because DeleteRecords has moved the start of the log
        that it replicates. A log has whole batches only, so it then has to start over at the base offset of the batch."""
        return header.base_offset < self.log_start_offset == self.log_end_offset <= header.last_offset

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drops everything and continues at `offset`, as a follower does if its log ends before the leader's starts."""
        async with self._lock:
            self._check_usable()
            with self._changing():
                await self._settle()
                self._check_usable()
                await self._start_over(offset)
            self._check_not_failed()

    async def _cut(self, offset: Offset) -> None:
        segments = [*self._segments]
        number = self._segments.number_of(offset)
        kept, position = await self._first_part(segments[number], offset)
        while not position and number:
            # Nothing of this segment is left. Where a broker of Apache Kafka has left a gap before it, that goes as well.
            try:
                before, size = await self._first_part(segments[number - 1], offset)
            except BatchError:
                # That segment is damaged, which its readers get to know. It must not stop the truncation.
                break
            if before.next_offset == kept.base_offset:
                break
            number, kept, position = number - 1, before, size
        end = Offset(kept.next_offset)
        if end < self.log_start_offset <= offset:
            # No batch is left that may be read. As after a load, the log is empty, and its start stays where it is.
            await self._start_over(self.log_start_offset)
            return
        if end < self.producers.state.end_offset:
            producers = await self.producers.state_at(self.name, segments, end)
        else:
            producers = self.producers.state
        # Do not suspend from here until `_cut_steps` is queued: only then do memory and the disk's queue agree again.
        removed = segments[number + 1 :]
        kept.is_held = True
        self._segments.replace([*segments[:number], kept], removed)
        self.producers.state = producers
        self._end_at(end)
        if self.leader_epochs.truncate_from_end(end):
            self._store_epochs()
        self._start(self._cut_steps(kept, position, removed))
        await self._background.wait()

    async def _first_part(self, segment: Segment, offset: Offset) -> tuple[Segment, int]:
        """Returns the part of a segment that ends at or before `offset`, and its size."""
        assert segment.file is not None
        with segment.file.in_use():
            first_offset, position = await segment.find_batch(offset) or (offset, segment.written_size)
            part = await segment.first_part(
                position, end_offset=min(offset, first_offset), index_interval=self.config.index_interval_bytes
            )
        return part, position

    def _cut_steps(self, kept: Segment, position: int, removed: list[Segment]) -> Steps:
        yield from self.producers.drop_beyond_steps(self.name, self.log_end_offset)
        # Remove the newest segment first and sync each removal, so that a crash leaves a log too long but without a hole.
        for segment in reversed(removed):
            yield from segment.removal_steps()
            yield self.log_dir.fsync_dir(self.name)
        # Remove index files that reach past the new end: a later start would take them for indexes of newer records.
        yield from kept.index_removal_steps()
        assert kept.file is not None
        yield self.log_dir.truncate(kept.file.handle, position)
        # Without a sync, a power cut could bring the truncated bytes back, below a later recovery point or before a newer
        # segment.
        yield self.log_dir.fsync(kept.file.handle)
        self._release(kept)
        yield from self._dispose_steps(removed)

    async def _start_over(self, offset: Offset) -> None:
        removed = [*self._segments]
        new = Segment(self.log_dir, self.name, offset)
        new.is_held = True
        # From the start: appends may roll the new segment before the steps come to open it, if the caller is cancelled.
        new.undone = 1
        self._segments.replace([new], removed)
        self._end_at(offset)
        self.producers.state = ProducerState()
        self.log_start_offset = offset
        self._note_offsets_changed()
        if self.leader_epochs.clear():
            self._store_epochs()
        self._start(self._start_over_steps(new, removed))
        await self._background.wait()

    def _start_over_steps(self, new: Segment, removed: list[Segment]) -> Steps:
        yield from self.producers.drop_all_steps(self.name)
        # Rename the old segments away first: one of them may have the same name as the new one.
        for segment in reversed(removed):
            yield from segment.removal_steps()
        yield from self._open_steps(new)
        yield from self._dispose_steps(removed)

    def _end_at(self, offset: Offset) -> None:
        self.log_end_offset = offset
        self._appends.restart_at(offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._flush_offset = min(self._flush_offset, offset)
        self._synced_offset = min(self._synced_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._note_offsets_changed()
