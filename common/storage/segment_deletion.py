"""Deleting a log's oldest segments, by retention or because the log start was raised (shell).

Counterpart of UnifiedLog.deleteOldSegments and maybeIncrementLogStartOffset in Kafka. The files of a removed segment are
renamed to *.deleted at once and removed later, because readers may still have them open.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.ids import Offset
from common.storage.errors import OffsetOutOfRange
from common.storage.log_syncs import LogSyncs
from common.storage.outstanding import Steps
from common.storage.retention import Expiry, expired_segments
from common.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    """A segment that was removed by retention or by raising the log start."""

    base_offset: Offset
    size: int


class SegmentDeletion(LogSyncs):
    """See the module docstring."""

    def raise_log_start_offset(self, offset: Offset) -> bool:
        """Makes everything below `offset` unreadable. The next deletion removes segments below it. Never lowers the start.

        Returns whether anything changed. Raises OffsetOutOfRange if `offset` is beyond the log end.
        """
        if offset <= self.log_start_offset:
            return False
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        self.log_start_offset = offset
        self._note_offsets_changed()
        if self.leader_epochs.truncate_from_start(offset):
            self._store_epochs()
        return True

    async def delete_segments_before(self, offset: Offset) -> list[DeletedSegment]:
        """Raises the log start to `offset` and removes the segments entirely below it, except the newest segment.

        The owner makes sure that `offset` is not above the high watermark or, in the metadata log, the end of the latest
        snapshot.
        """
        async with self._lock:
            self._check_usable()
            self.raise_log_start_offset(offset)
            return await self._delete_below_start()

    async def delete_expired(self, expiry: Expiry, *, now_ms: int, high_watermark: Offset) -> list[DeletedSegment]:
        """Removes segments that exceed retention by time or size, and segments below the log start.

        First rolls the newest segment if its records have no timestamps and segment.ms is over. Without timestamps a segment
        is as old as its file, so with an append now and then its records would never expire."""
        async with self._lock:
            self._check_usable()
            newest = self._segments.newest
            if newest.outlasts_roll_time(now_ms=now_ms, config=self.config):
                self._roll(newest.next_offset)
            segments = list(self._segments)
            count = await expired_segments(segments, expiry, now_ms=now_ms, high_watermark=high_watermark)
            # The newest segment may have grown while `expired_segments` waited for the disk.
            while count and self._segments[count - 1].next_offset > high_watermark:
                count -= 1
            if count:
                if count == len(self._segments):
                    # All segments have expired. The newest segment can only be removed once there is a newer one.
                    self._roll(self._segments.newest.next_offset)
                self.raise_log_start_offset(Offset(self._segments[count].base_offset))
            return await self._delete_below_start()

    async def _delete_below_start(self) -> list[DeletedSegment]:
        # A segment cannot be renamed safely while it or its index files are being written to disk. Do not wait for the
        # other segments: on a busy disk the log may roll again before the last roll is durable, all the time.
        while any(segment.undone for segment in self._below_start()):
            await self._background.wait_for_an_end()
            self._check_usable()
        removed = self._below_start()
        if not removed:
            return []
        self._segments.replace([*self._segments][len(removed) :], removed)
        await self._run(self._delete_steps(removed))
        return [DeletedSegment(Offset(segment.base_offset), segment.size) for segment in removed]

    def _below_start(self) -> list[Segment]:
        return [*self._segments][: self._segments.number_of(self.log_start_offset)]

    def _delete_steps(self, removed: list[Segment]) -> Steps:
        for segment in removed:
            yield from segment.removal_steps()
            yield from self.producers.drop_steps(self.name, segment.base_offset)
            # Sync each removal: if a power cut brought back an older segment but not the next, the log would have a hole.
            yield self.log_dir.fsync_dir(self.name)
        yield from self._dispose_steps(removed)

    def _dispose_steps(self, removed: Sequence[Segment]) -> Steps:
        names = [segment.deleted_name for segment in removed]
        if self.on_deleted is None:
            yield from self._remove_steps(names)
        else:
            self.on_deleted(names)

    def remove_deleted(self, names: Sequence[str]) -> bool:
        """Starts removing files that `on_deleted` was called with. Returns False while the folder is being renamed, so that
        the owner tries again. Files that are left when the log is closed are removed at the next start."""
        if self._is_changing:
            return False
        if not self.is_closed and self.failure is None:
            # A failure does no harm to the log.
            self._background.run(self._remove_steps(names), on_failure=lambda _: None)
        return True

    def _remove_steps(self, names: Sequence[str]) -> Steps:
        for name in names:
            yield self.log_dir.remove(f"{self.name}/{name}")
