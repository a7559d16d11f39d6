"""Compacts one log (shell).

Counterpart of Kafka's Cleaner. The first pass reads the dirty part of the log and notes the offset of each key's latest
record. The second one goes through all segments from the start of the log, in groups: it copies what survives into a new
segment and swaps that in for the group.

1. The log is in use meanwhile. If it is truncated or closed, what was read means nothing, and the compaction ends; what has
   been swapped in until then stays. No group is ever left out: a tombstone may only go if all older records of its key went
   before. So the compaction goes on when retention removes the oldest segments, unless it is at work on one of them.
   Otherwise a log that loses a segment at every check of retention would never be compacted to its end.
2. It reads and writes in small pieces through the directory's lanes, waits for `pace` before each, and lets the event loop
   run after a few records. Syncs happen aside while the file grows (`LogDir.write_back`), as for a replica that moves.
3. The last batch of each producer survives, if need be without records, until the producer expires. Otherwise a broker that
   rebuilds the state of the producers would not know its sequence. If a marker has ended the sequence with a higher epoch,
   the marker's batch survives in its place.
4. A new segment gets a new transaction index, with the aborted transactions that still have batches (`CleanedTransactions`).
5. A segment that would stay as it is, is left alone.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from common.environment.interface import LogDirError
from common.ids import Offset
from common.parts import Buffer
from common.records.batch import NO_PRODUCER_ID, BatchError, BatchHeader, CorruptBatch, read_header
from common.records.end_transaction import decode_end_transaction
from common.slices import result_in_slices
from common.storage.batch_scan import BatchScan, HeaderScan
from common.storage.compaction.batch_filter import SLICE_RECORDS, filter_aborted, filter_batch, filter_marker, note_keys
from common.storage.compaction.cleaned_transactions import CleanedTransactions
from common.storage.compaction.offset_map import OffsetMap
from common.storage.compaction.segment_groups import group_bytes_max, group_segments
from common.storage.errors import LogClosed
from common.storage.log import Log
from common.storage.segment import Segment

T = TypeVar("T")

WRITE_BACK_BYTES = 16 << 20
# The positions in an index have 32 bits, and Apache Kafka opens no larger segment.
SEGMENT_BYTES_MAX = 2**31 - 1

Pace = Callable[[int], Awaitable[None]]
"""Waits until this many bytes may be read or written."""


class CompactionEnded(Exception):
    """The compaction cannot go on; the text says why. A later one will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """The settings of one compaction. Durations are in milliseconds, sizes in bytes."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    producer_expiration_ms: int
    # How many keys the map may have, and the size of reads and writes.
    keys_max: int
    io_buffer_bytes: int


@dataclass(slots=True)
class Compacted:
    """What a compaction did. Everything below `end_offset` is clean now."""

    end_offset: Offset
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_removed: int = 0
    segments_replaced: int = 0


class LogCompaction:
    """One compaction of one log. `is_wanted` returns whether to go on, `has_room` whether the directory has this much
    room."""

    def __init__(
        self,
        log: Log,
        settings: CompactionSettings,
        *,
        now_ms: int,
        pace: Pace,
        is_wanted: Callable[[], bool],
        has_room: Callable[[int], bool],
    ) -> None:
        self._log = log
        self._log_dir = log.log_dir
        self._settings = settings
        self._group_bytes = group_bytes_max(
            settings.segment_bytes,
            segment_index_bytes=settings.segment_index_bytes,
            index_interval_bytes=settings.index_interval_bytes,
        )
        self._now_ms = now_ms
        self._pace = pace
        self._is_wanted = is_wanted
        self._has_room = has_room
        # The segments that this compaction goes through, or has swapped in, and the generation of the log in which they
        # were all there. Changes when: a group is swapped in, or retention has removed the first ones.
        self._segments: list[Segment] = []
        self._generation = log.generation
        # The last batch of each producer, as far as the log has been read: its last offset and its epoch. The marker of a
        # higher epoch counts, other markers do not.
        self._last_batches: dict[int, tuple[int, int]] = {}
        # Where the last batch ends that was noted there. The map may be full within a segment.
        self._noted_end = 0
        self._records_since_pause = 0
        self._result = Compacted(Offset(0))

    async def run(self, first_dirty_offset: int, end_offset: int) -> Compacted:
        """Compacts the whole segments below `end_offset`, which may not be beyond the last stable offset. Everything below
        `first_dirty_offset` must be clean.

        Raises CompactionEnded, LogClosed, LogDirError, and BatchError if the log is damaged.
        """
        segments = [each for each in self._log.durable_segments() if each.next_offset <= end_offset]
        self._segments, self._generation = [*segments], self._log.generation
        for group in group_segments(segments, self._group_bytes)[:1]:
            # Otherwise a full disk would be read in vain, again and again.
            self._require_room(group)
        offsets = OffsetMap(first_dirty_offset, self._settings.keys_max)
        transactions = CleanedTransactions()
        for segment in segments:
            if segment not in self._segments:
                continue
            if segment.next_offset <= first_dirty_offset:
                await self._note_producers(segment)
            elif await self._note_segment(segment, offsets, transactions):
                offsets.end_offset = segment.next_offset
            else:
                break
        below = [each for each in self._segments if each.base_offset < offsets.end_offset]
        transactions = CleanedTransactions()
        for group in group_segments(below, self._group_bytes):
            await self._compact_group(group, offsets, transactions)
        # The log may have been truncated since the last read, and what was appended then is not clean.
        self._check()
        self._result.end_offset = Offset(offsets.end_offset)
        self._result.keys = len(offsets)
        return self._result

    # --- first pass ----------------------------------------------------------------------------------------------
    async def _note_producers(self, segment: Segment) -> None:
        assert segment.file is not None
        with segment.file.in_use():
            scan = HeaderScan(self._log_dir, segment.file.handle, position=0, end=segment.written_size)
            while (found := await self._next(scan.next)) is not None:
                self._note_producer(found[0])
                await self._pause_after(1)

    async def _note_segment(self, segment: Segment, offsets: OffsetMap, transactions: CleanedTransactions) -> bool:
        """Notes the keys of a dirty segment. Returns False if the map is full."""
        assert segment.file is not None
        await self._note_aborted(segment, transactions)
        if segment not in self._segments:
            # Its file is closed, and so are those of all older ones.
            return True
        with segment.file.in_use():
            scan = self._scan(segment)
            expected = segment.base_offset
            while (found := await self._next(scan.next)) is not None:
                header, view, _ = found
                expected = _following(header, expected, segment)
                await self._note_read(header)
                self._note_producer(header)
                if header.is_control:
                    transactions.may_go(header, decode_end_transaction(view), lambda _: None)
                elif transactions.is_aborted(header):
                    offsets.end_offset = max(offsets.end_offset, header.next_offset)
                    continue
                if not await result_in_slices(note_keys(header, view, offsets), items=1):
                    return False
        return True

    def _note_producer(self, header: BatchHeader) -> None:
        self._noted_end = header.next_offset
        if header.producer_id == NO_PRODUCER_ID:
            return
        last = self._last_batches.get(header.producer_id)
        if not header.is_control or last is None or last[1] != header.producer_epoch:
            self._last_batches[header.producer_id] = header.last_offset, header.producer_epoch

    async def _note_aborted(self, segment: Segment, transactions: CleanedTransactions) -> None:
        """Adds the aborted transactions that have batches or markers in the segment."""
        found = self._next(partial(self._log.aborted_transactions, segment.base_offset, segment.next_offset))
        transactions.add(await found)

    # --- second pass ---------------------------------------------------------------------------------------------
    async def _compact_group(self, group: Sequence[Segment], offsets: OffsetMap, transactions: CleanedTransactions) -> None:
        self._check()
        present = {*self._segments}
        group = [each for each in group if each in present]
        if not group:
            return
        self._require_room(group)
        cleaned = await self._log.create_cleaned(group[0].base_offset)
        is_discarded = True
        try:
            if await self._write(cleaned, group, offsets, transactions):
                self._check()
                # Whether it fails or not: from here on the file belongs to the log.
                is_discarded = False
                if not await self._log.swap_in(cleaned, group):
                    is_discarded = True
                    raise CompactionEnded("the log has changed")
                number = self._segments.index(group[0])
                self._segments[number : number + len(group)] = [cleaned]
                self._result.segments_replaced += len(group)
        finally:
            if is_discarded:
                with contextlib.suppress(LogDirError, LogClosed):
                    await self._log.discard_cleaned(cleaned)

    def _require_room(self, group: Sequence[Segment]) -> None:
        if not self._has_room(sum(segment.size for segment in group)):
            raise CompactionEnded("the directory has no room for another segment")

    async def _write(
        self, cleaned: Segment, group: Sequence[Segment], offsets: OffsetMap, transactions: CleanedTransactions
    ) -> bool:
        """Writes what survives of the group, and syncs it. Returns False if that is everything."""
        output = _Output(cleaned, self._settings, self._pace)
        is_changed = len(group) > 1
        for segment in group:
            assert segment.file is not None
            await self._note_aborted(segment, transactions)
            if segment not in self._segments:
                raise CompactionEnded("the log has changed")
            with segment.file.in_use():
                scan = self._scan(segment)
                expected = segment.base_offset
                while (found := await self._next(scan.next)) is not None:
                    header, view, position = found
                    expected = _following(header, expected, segment)
                    await self._note_read(header)
                    is_last = segment is group[-1] and position + header.size >= segment.written_size
                    kept = await self._filter(header, view, cleaned, offsets, transactions, is_last=is_last)
                    is_changed |= kept is not view
                    self._result.records_removed += header.record_count
                    if kept is not None:
                        self._result.records_removed -= read_header(kept).record_count
                        await output.add(kept)
        if not is_changed:
            return False
        await output.finish()
        self._result.bytes_written += cleaned.size
        cleaned.next_offset = group[-1].next_offset
        return True

    async def _filter(
        self,
        header: BatchHeader,
        view: memoryview,
        cleaned: Segment,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        *,
        is_last: bool,
    ) -> Buffer | None:
        """Returns what survives of a batch, None if nothing does. Something of the last batch of a group always does."""
        is_kept_empty = is_last or self._is_needed_for_its_producer(header)
        if header.is_control:
            return self._filter_control(header, view, cleaned, transactions, is_kept_empty=is_kept_empty)
        if transactions.is_aborted(header):
            return filter_aborted(header, view, is_kept_empty=is_kept_empty)
        work = filter_batch(
            header,
            view,
            offsets,
            is_kept_empty=is_kept_empty,
            now_ms=self._now_ms,
            delete_retention_ms=self._settings.delete_retention_ms,
        )
        return await result_in_slices(work, items=1)

    def _filter_control(
        self,
        header: BatchHeader,
        view: memoryview,
        cleaned: Segment,
        transactions: CleanedTransactions,
        *,
        is_kept_empty: bool,
    ) -> Buffer | None:
        return filter_marker(
            header,
            view,
            may_go=transactions.may_go(header, decode_end_transaction(view), cleaned.note_aborted),
            is_kept_empty=is_kept_empty,
            now_ms=self._now_ms,
            delete_retention_ms=self._settings.delete_retention_ms,
        )

    def _is_needed_for_its_producer(self, header: BatchHeader) -> bool:
        last = self._last_batches.get(header.producer_id)
        may_be_last = header.base_offset >= self._noted_end or last == (header.last_offset, header.producer_epoch)
        return (
            header.producer_id != NO_PRODUCER_ID
            and may_be_last
            and self._now_ms - header.max_timestamp < self._settings.producer_expiration_ms
        )

    # --- reading -------------------------------------------------------------------------------------------------
    def _scan(self, segment: Segment) -> BatchScan:
        assert segment.file is not None
        piece = self._settings.io_buffer_bytes
        return BatchScan(self._log_dir, segment.file.handle, end=segment.written_size, piece=piece)

    async def _next(self, following: Callable[[], Awaitable[T]]) -> T:
        self._check()
        try:
            found = await following()
        except BatchError:
            self._check()
            raise
        self._check()
        return found

    async def _note_read(self, header: BatchHeader) -> None:
        self._result.bytes_read += header.size
        await self._pause_after(header.record_count + 1)
        await self._pace(header.size)
        self._check()

    async def _pause_after(self, records: int) -> None:
        self._records_since_pause += records
        if self._records_since_pause >= SLICE_RECORDS:
            self._records_since_pause = 0
            await asyncio.sleep(0)

    def _check(self) -> None:
        if self._log.is_closed or self._log.failure is not None:
            raise LogClosed(f"{self._log.name} is closed")
        if self._log.generation != self._generation:
            self._segments, self._generation = self._log.left_by_retention(self._segments), self._log.generation
            if not self._segments:
                raise CompactionEnded("the log has changed")
        if not self._is_wanted():
            raise CompactionEnded("it is no longer wanted")


def _following(header: BatchHeader, expected: int, segment: Segment) -> int:
    """Returns the offset after the batch. Raises CorruptBatch if it cannot follow the one before: no checksum covers its
    base offset, and a wrong one would make an older record of a key count as the latest."""
    if not expected <= header.base_offset <= header.last_offset < segment.next_offset:
        raise CorruptBatch(f"offsets {header.base_offset} to {header.last_offset} cannot follow {expected - 1}")
    return header.next_offset


class _Output:
    """Writes the new segment in pieces."""

    def __init__(self, segment: Segment, settings: CompactionSettings, pace: Pace) -> None:
        self._segment = segment
        self._settings = settings
        self._pace = pace
        self._buffers: list[Buffer] = []
        self._unsynced_bytes = 0

    async def add(self, batch: Buffer) -> None:
        header = read_header(batch)
        if self._segment.size + header.size > SEGMENT_BYTES_MAX:
            # A batch can grow: a delete horizon makes the timestamps of its records longer, and its producer may have
            # compressed it better.
            raise CompactionEnded("a compacted segment would be larger than 2 GiB")
        self._segment.note_batch(
            first_offset=header.base_offset,
            last_offset=header.last_offset,
            size=header.size,
            max_timestamp=header.max_timestamp,
            index_interval=self._settings.index_interval_bytes,
        )
        self._buffers.append(batch)
        if self._segment.size - self._segment.written_size >= self._settings.io_buffer_bytes:
            await self._flush()

    async def _flush(self) -> None:
        segment = self._segment
        assert segment.file is not None
        buffers, self._buffers = self._buffers, []
        size = segment.size - segment.written_size
        await self._pace(size)
        await segment.log_dir.append(segment.file.handle, segment.written_size, buffers)
        segment.written_size += size
        self._unsynced_bytes += size
        if self._unsynced_bytes >= WRITE_BACK_BYTES:
            self._unsynced_bytes = 0
            await segment.log_dir.write_back(segment.file.handle)

    async def finish(self) -> None:
        segment = self._segment
        assert segment.file is not None
        if self._buffers:
            await self._flush()
        await segment.log_dir.write_back(segment.file.handle)
        await segment.log_dir.fsync(segment.file.handle)
        segment.seal()
