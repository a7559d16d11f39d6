"""Rolling a log's segments, and syncing what was appended (shell).

Counterpart of Kafka's LocalLog.roll and UnifiedLog.flush. A roll is a plain call in the middle of an append: the new segment
takes appends at once and holds them until its file is open, and the old one is synced in the background. The recovery point
follows in order: it passes a segment once that and all older ones, their indexes and the leader epochs are durable.
"""

import asyncio

from common.environment.interface import LogDirError
from common.ids import Offset
from common.storage.log_state import LogState
from common.storage.names import LEADER_EPOCH_CHECKPOINT_FILE
from common.storage.outstanding import Steps
from common.storage.segment import Segment, SegmentFile

# The most rolled segments of a log that may await their syncs while records are copied into it that no client waits for.
ROLLED_AHEAD_MAX = 2
# The most that may await them at all. Each holds its indexes in memory and has an operation in the directory's queue. Kafka
# leaves this to the kernel, which lets no process write while too many pages are dirty. But the pages of small segments are
# written back long before their syncs come, so that limit does not bound the queue.
ROLLED_MAX = 100


class LogSyncs(LogState):
    """See the module docstring."""

    # --- rolling -------------------------------------------------------------------------------------------------
    async def roll(self) -> Offset:
        """Starts a new segment at the log end, unless the newest one is empty. Returns the newest base offset."""
        async with self._lock:
            self._check_usable()
            if self._segments.newest.size:
                self._roll(self._segments.newest.next_offset)
            await self._background.wait()
            self._check_not_failed()
        return Offset(self._segments.newest.base_offset)

    def _roll(self, base_offset: int) -> Segment:
        """Adds a segment. It starts where the last batch of the old one ends, even if the log ends later or the next batches
        follow a gap: recovery treats a gap between two segments as lost records. If there has to be a gap all the same, the
        new segment waits until the old one is durable (`_open_after_gap_steps`)."""
        old = self._segments.newest
        new = Segment(self.log_dir, self.name, base_offset)
        new.is_held = True
        new.undone = 1
        old.seal()
        old.undone += 1
        self._undurable.append(old)
        self._segments.add(new)
        if not old.is_held and not _has_gap_between(old, new):
            self._open_when_syncs_allow(new)
        self._start(self.producers.store_steps(self.name, base_offset))
        if not old.is_held:
            self._start(self._finish_rolled_steps(old, new))
        return new

    def _open_when_syncs_allow(self, segment: Segment) -> None:
        """Opens the file of a new segment, whose predecessor has one. Until then the segment holds its appends: while too
        many rolled segments await their syncs, clients wait as they do for a disk that can take no more dirty pages."""
        if self._rolled_count > ROLLED_MAX:
            self._unopened = segment
        else:
            self._start(self._open_steps(segment))

    @property
    def _rolled_count(self) -> int:
        """The number of rolled segments with a file that may not survive a power cut yet."""
        return sum(not segment.is_held for segment in self._undurable)

    def _open_steps(self, segment: Segment) -> Steps:
        handle = yield self.log_dir.open(segment.path(), create=True)
        segment.file = SegmentFile(self.log_dir, handle)
        self._release(segment)
        # Without this sync, a power cut could lose the directory entry of a file whose content was synced.
        yield self.log_dir.fsync_dir(self.name)
        segment.undone -= 1
        self._advance_recovery_point()

    def _release(self, segment: Segment) -> None:
        """Starts the held appends of a segment whose file can now be written."""
        self._appends.release(segment)
        # A segment that was held for a truncation has its name already. What waits in a new one waits for its name, too.
        self._maybe_sync_appends()
        if segment is not self._segments.newest:
            # The segment was rolled while it was held, so `_roll` has left the rest to this method. If the segment was held
            # for a truncation, a file of the next one's name may have been there until now: that of a removed segment.
            following = self._segments[self._segments.number_of(segment.base_offset) + 1]
            if not _has_gap_between(segment, following):
                self._open_when_syncs_allow(following)
            self._start(self._finish_rolled_steps(segment, following))

    def _finish_rolled_steps(self, segment: Segment, following: Segment) -> Steps:
        has_gap = _has_gap_between(segment, following)
        assert segment.file is not None
        yield self.log_dir.fsync(segment.file.handle)
        yield from segment.index_file_steps()
        if has_gap and not segment.size:
            yield from segment.first_index_file_steps()
        segment.undone -= 1
        segment.forget_indexes()
        self._advance_recovery_point()
        if has_gap:
            yield from self._open_after_gap_steps(following)

    def _open_after_gap_steps(self, segment: Segment) -> Steps:
        """Opens the file of a segment that begins after a gap. All older segments are durable, with their indexes. The new
        one gets its index files before its first batch: they tell recovery that no record is missing in the gap."""
        yield from segment.first_index_file_steps()
        yield from self._open_steps(segment)

    @property
    def outruns_syncs(self) -> bool:
        """Whether more than ROLLED_AHEAD_MAX rolled segments await their syncs. All logs of the directory share one queue of
        syncs, so a caller that copies records for which no client waits then awaits `wait_for_rolled` first."""
        is_syncing = self._background.count > 0 and self.failure is None and not self.is_closed
        return is_syncing and len(self._undurable) > ROLLED_AHEAD_MAX

    async def wait_for_rolled(self) -> None:
        """Returns once the log no longer outruns its syncs, which is also when it has failed or was closed."""
        while self.outruns_syncs:
            await self._background.wait_for_an_end()

    # --- syncing -------------------------------------------------------------------------------------------------
    async def flush(self, up_to: Offset | None = None) -> Offset:
        """Syncs all appends so far and returns the recovery point. Skips the sync if that point already reaches `up_to`."""
        if up_to is not None and up_to <= self.recovery_point:
            return self.recovery_point
        async with self._lock:
            await self._sync()
        return self.recovery_point

    async def _sync(self) -> None:
        self._check_usable()
        target = self.log_end_offset
        await self._wait_until_finished_below(target)
        while target > self.recovery_point:
            segment = self._segments.newest
            assert segment.file is not None
            try:
                # The sync covers all appends queued so far, because operations on one file keep their order.
                await self.log_dir.fsync(segment.file.handle)
            except LogDirError as error:
                self._fail(error)
                raise
            self._check_not_failed()
            if not segment.undone:
                self._appends.note_synced(target)
                self.recovery_point = max(self.recovery_point, target)
                self._note_offsets_changed()
                return
            # The kernel reports a failed write to only one sync. If a write-back began meanwhile, it may be that one. If the
            # segment was rolled, the end of that moves the recovery point.
            await self._wait_until_finished_below(target)

    async def _wait_until_finished_below(self, target: Offset) -> None:
        while self._is_unfinished_below(target):
            if self._epochs_changed:
                self._store_epochs()
            await self._background.wait_for_an_end()
            self._check_usable()

    def _is_unfinished_below(self, target: Offset) -> bool:
        """Whether background steps must end before a sync of the newest segment makes everything below `target` durable.

        What is appended meanwhile does not count: a log may roll again before the last roll is durable, all the time."""
        newest = self._segments.newest
        return (
            self._epochs_changed
            or self._is_storing_epochs
            or (bool(self._undurable) and self._undurable[0].base_offset < target)
            or (newest.base_offset <= target and (newest.undone > 0 or newest.is_held))
        )

    def write_back(self, *, forget: bool = False) -> asyncio.Future[None]:
        """Starts syncing the written part of the newest segment, without holding up appends to the directory.

        The recovery point does not move; a later `flush` moves it and has little left to sync. The returned future completes
        when the sync has ended, even if it failed; a failed sync fails the log. `forget` then drops the segment's pages from
        the cache. Raises LogClosed, and LogDirError if the log has already failed.
        """
        self._check_usable()
        return self._start_watched(self._write_back_steps(forget=forget))

    def _write_back_steps(self, *, forget: bool) -> Steps:
        segment = self._segments.newest
        # A segment that was just added has no file yet, and nothing in it.
        if segment.file is not None:
            # The kernel reports a failed write to only one sync. If it is reported to this one, the recovery point must not
            # pass the segment, even if the segment has been rolled and the sync of the roll succeeds.
            segment.undone += 1
            yield self.log_dir.write_back(segment.file.handle, forget=forget)
            segment.undone -= 1
            self._advance_recovery_point()

    # --- syncing appends before they count as written ------------------------------------------------------------
    def _is_sync_due(self) -> bool:
        """Whether the append that has just moved the log end has to be synced before it counts as written (flush.messages).
        If so, it will be."""
        # Something else may have synced the log since `_flush_offset` was set.
        self._flush_offset = max(self._flush_offset, self.recovery_point)
        if self.log_end_offset - self._flush_offset < self.config.flush_messages:
            return False
        self._flush_offset = self.log_end_offset
        if not self._is_sync_scheduled:
            self._is_sync_scheduled = True
            # All appends of this turn of the event loop share a sync. Until it begins, the log is not settled.
            self._background.begin()
            asyncio.get_running_loop().call_soon(self._sync_scheduled_appends)
        return True

    def _sync_scheduled_appends(self) -> None:
        self._is_sync_scheduled = False
        self._maybe_sync_appends()
        self._background.end()

    def _maybe_sync_appends(self) -> None:
        """Starts to sync the newest segment if appends wait for that, unless a sync is under way that will look for them at
        its end.

        The sync must make everything below the log end durable, as in UnifiedLog.flush: an append is worth nothing after a
        hole. So it does not begin before the rolled segments are durable, nor before the newest one has a file with a
        durable name. What they wait for calls this method at its end. Appends in a segment that was rolled meanwhile get no
        sync of their own: they count as written when the segment is durable.
        """
        if self._appends.has_unsynced and not self._is_syncing_appends and self._is_newest_alone():
            self._is_syncing_appends = True
            self._start(self._sync_appends_steps())

    def _is_newest_alone(self) -> bool:
        newest = self._segments.newest
        return not self._undurable and not newest.undone and not newest.is_held

    def _sync_appends_steps(self) -> Steps:
        """Syncs the newest segment as long as appends wait for it. What is appended during a sync shares the next one.

        The recovery point stays. Leader epochs would have to be stored before it moves, and the checkpoint has nothing
        beyond the start of the newest segment anyway (`recovery_start`): a load after a crash looks at all of its batches.
        """
        while self._appends.has_unsynced and self._is_newest_alone():
            segment, target = self._segments.newest, self.log_end_offset
            assert segment.file is not None
            yield self.log_dir.fsync(segment.file.handle, is_awaited=True)
            # The kernel reports a failed write to only one sync. If a write-back began meanwhile, it may be that one.
            if not segment.undone:
                self._synced_offset = target
                self._appends.note_synced(target)
        self._is_syncing_appends = False

    # --- the recovery point --------------------------------------------------------------------------------------
    def _advance_recovery_point(self) -> None:
        """Moves the recovery point as far as segments are durable, and syncs appends that waited for that."""
        self._pass_rolled_segments()
        self._maybe_sync_appends()

    def _pass_rolled_segments(self) -> None:
        """Moves the recovery point past the oldest rolled segments, as far as they are durable.

        Stores leader-epoch-checkpoint first if the epochs have changed: recovery trusts that file below the recovery point
        and rebuilds the epochs above it from the batches. So a new epoch is not stored until the recovery point moves, and
        no append waits for the file. When a disk dies, a broker becomes leader of many partitions at once; one sync for
        each of them would delay their first records.
        """
        if self.failure is not None:
            # The append that failed may be missing from a rolled segment, even if later syncs of that segment succeed.
            return
        if self._is_storing_epochs or not self._undurable or self._undurable[0].undone:
            return
        if self._epochs_changed:
            # `_store_epochs_steps` calls this method again when it is done.
            self._store_epochs()
            return
        while self._undurable and self._undurable[0].undone == 0:
            segment = self._undurable.popleft()
            self._appends.note_synced(Offset(segment.next_offset))
            self.recovery_point = Offset(max(self.recovery_point, segment.next_offset))
        assert self.recovery_point <= self.written_offset
        self._note_offsets_changed()
        if self._unopened is not None and self._rolled_count <= ROLLED_MAX:
            segment, self._unopened = self._unopened, None
            self._start(self._open_steps(segment))

    # --- leader epochs -------------------------------------------------------------------------------------------
    def _store_epochs(self) -> None:
        """Replaces leader-epoch-checkpoint, and does so again if the epochs change in the meantime."""
        self._epochs_changed = True
        if not self._is_storing_epochs:
            self._is_storing_epochs = True
            self._start(self._store_epochs_steps())

    def _store_epochs_steps(self) -> Steps:
        while self._epochs_changed:
            self._epochs_changed = False
            name = f"{self.name}/{LEADER_EPOCH_CHECKPOINT_FILE}"
            yield self.log_dir.replace_file(name, self.leader_epochs.format())
        self._is_storing_epochs = False
        self._advance_recovery_point()


def _has_gap_between(old: Segment, new: Segment) -> bool:
    return old.next_offset < new.base_offset
