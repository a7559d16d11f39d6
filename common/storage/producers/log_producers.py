"""The producers of one log and their snapshot files, through the life of the log (shell).

The log notes every batch with a producer id in `state`. A snapshot `<offset>.snapshot` has the state of all batches below
that offset, so the state at any offset is the newest snapshot at or below it plus the batches in between.

1. A snapshot is written when a segment is rolled, at the new base offset, and at a clean close, at the log end.
2. No snapshot ever reaches beyond the log end. Before a log is cut, the snapshots beyond its new end are removed, and the
   removal is synced: after a power cut, such a file would vouch for batches that other ones have replaced.
3. A segment's snapshot is removed with the segment. Fewer snapshots than segments are harmless: they cost a longer scan.
4. A snapshot that is damaged is removed, and an older one is used.
5. No snapshot lies in a segment that was compacted, or before it, so no replay begins there. A snapshot can know an open
   transaction whose marker compaction has removed since, after all its records. A replay from that snapshot would leave it
   open forever. A snapshot before the segment may have stayed until now, because its own segment never changed.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from common.environment.interface import LogDir
from common.records.batch import NO_PRODUCER_ID, BatchError
from common.records.end_transaction import decode_end_transaction
from common.slices import ELEMENTS_PER_SLICE, pause_before, result_in_slices
from common.storage.batch_scan import HeaderScan
from common.storage.names import parse_producer_snapshot_file, producer_snapshot_file
from common.storage.outstanding import Steps
from common.storage.producers.snapshot import CorruptProducerSnapshot, decode_producer_snapshot, encode_producer_snapshot
from common.storage.producers.state import NO_OFFSET, ProducerEntry, ProducerState
from common.storage.producers.transactions import CompletedTransaction
from common.storage.segment import Segment
from common.storage.transaction_index import TransactionIndex

# Batches are often small, so a piece holds many headers.
_PIECE: Final = 256 * 1024


class LogProducers:
    """See the module docstring. Each method gets the log's folder, because a log can be renamed."""

    def __init__(self, log_dir: LogDir, snapshot_offsets: Iterable[int] = ()) -> None:
        self.state = ProducerState()
        self._log_dir = log_dir
        # The offsets of all snapshot files, ascending.
        self._snapshots = sorted(snapshot_offsets)

    @property
    def snapshot_offsets(self) -> list[int]:
        """The offsets of all snapshots, ascending."""
        return [*self._snapshots]

    # --- writing -------------------------------------------------------------------------------------------------
    def store_steps(self, folder: str, offset: int) -> Steps:
        """Writes a snapshot of the state, in which `offset` is the next one."""
        assert self.state.end_offset <= offset, "a snapshot must not know batches that it does not cover"
        if offset not in self._snapshots:
            insort(self._snapshots, offset)
        # The thread that writes encodes: for 100,000 producers that takes a tenth of a second.
        encode = partial(encode_producer_snapshot, {**self.state.entries})
        yield self._log_dir.replace_file(_path(folder, offset), encode)

    def close_steps(self, folder: str, end_offset: int) -> Steps:
        """Writes a snapshot at the log end, unless it is there already or there has never been a producer."""
        if self._snapshots[-1:] != [end_offset] and (self._snapshots or self.state.entries):
            yield from self.store_steps(folder, end_offset)

    # --- removing ------------------------------------------------------------------------------------------------
    def drop_beyond_steps(self, folder: str, end_offset: int) -> Steps:
        """Removes the snapshots beyond `end_offset`, newest first, and syncs the removal (rule 2)."""
        number = bisect_right(self._snapshots, end_offset)
        beyond = self._snapshots[number:]
        del self._snapshots[number:]
        for offset in reversed(beyond):
            yield self._log_dir.remove(_path(folder, offset))
        if beyond:
            yield self._log_dir.fsync_dir(folder)

    def drop_all_steps(self, folder: str) -> Steps:
        """Removes every snapshot, for a log that starts over, and syncs the removal."""
        return self.drop_beyond_steps(folder, -1)

    def drop_steps(self, folder: str, offset: int) -> Steps:
        """Removes the snapshot at the base offset of a segment that is removed, if there is one (rule 3)."""
        if offset in self._snapshots:
            self._snapshots.remove(offset)
            yield self._log_dir.remove(_path(folder, offset))

    def drop_below_steps(self, folder: str, end_offset: int) -> Steps:
        """Removes the snapshots below `end_offset`, and syncs the removal (rule 5)."""
        below = [offset for offset in self._snapshots if offset < end_offset]
        for offset in below:
            yield from self.drop_steps(folder, offset)
        if below:
            yield self._log_dir.fsync_dir(folder)

    # --- loading -------------------------------------------------------------------------------------------------
    async def state_at(self, folder: str, segments: Sequence[Segment], offset: int) -> ProducerState:
        """Returns the state of the batches below `offset`, a batch boundary. Removes damaged snapshots (rule 4)."""
        state = await self._newest_snapshot(folder, offset)
        covered = state.end_offset
        ends = [*(segment.base_offset for segment in segments), offset][1:]
        for segment, end in zip(segments, ends, strict=True):
            if segment.base_offset < offset and covered < end and segment.file is not None:
                with segment.file.in_use():
                    await _note_batches(self._log_dir, segment, state, covered, offset)
        return state

    async def aborted_in(self, folder: str, segments: Sequence[Segment], segment: Segment) -> TransactionIndex:
        """Rebuilds the transaction index of one of the segments from its batches and those before it."""
        below = [each for each in segments if each.base_offset < segment.base_offset]
        state = await self.state_at(folder, below, segment.base_offset)
        aborted = TransactionIndex()
        assert segment.file is not None
        with segment.file.in_use():
            await _note_batches(
                self._log_dir, segment, state, segment.base_offset, segment.next_offset, note_aborted=aborted.append
            )
        return aborted

    async def _newest_snapshot(self, folder: str, offset: int) -> ProducerState:
        while number := bisect_right(self._snapshots, offset):
            newest = self._snapshots[number - 1]
            content = await self._log_dir.read_file(_path(folder, newest))
            if content is not None:
                try:
                    entries = await result_in_slices(decode_producer_snapshot(content), items=ELEMENTS_PER_SLICE)
                    _validate_transactions(entries, newest)
                    return ProducerState(entries, end_offset=newest)
                except CorruptProducerSnapshot:
                    await self._log_dir.remove(_path(folder, newest))
            if newest in self._snapshots:
                self._snapshots.remove(newest)
        return ProducerState()

    async def clear(self, folder: str) -> None:
        """Forgets all producers of a log that is loaded without any of its batches."""
        self.state = ProducerState()
        for step in self.drop_all_steps(folder):
            await step

    async def load(
        self, folder: str, segments: Sequence[Segment], end_offset: int, *, is_clean: bool, noted: ProducerState | None
    ) -> None:
        """Sets the state at the log end, and removes the snapshots that do not belong to the loaded segments. `noted` is the
        state if recovery has just collected it."""
        for step in self.drop_beyond_steps(folder, end_offset):
            await step
        await self._remove_strays(folder, {segment.base_offset for segment in segments})
        is_first = not self._snapshots
        if noted is not None:
            self.state = noted
        elif is_clean and is_first:
            # The log was closed by a version that knew no producers, or it never had one.
            return
        else:
            self.state = await self.state_at(folder, segments, end_offset)
        if is_first and len(segments) > 1:
            # Without a snapshot, each restart would read the whole log.
            for step in self.store_steps(folder, end_offset):
                await step

    async def _remove_strays(self, folder: str, base_offsets: Collection[int]) -> None:
        # Only the newest of the snapshots that were written at a clean close is of use.
        strays = [offset for offset in self._snapshots[:-1] if offset not in base_offsets]
        for offset in strays:
            self._snapshots.remove(offset)
            await self._log_dir.remove(_path(folder, offset))


async def _note_batches(
    log_dir: LogDir,
    segment: Segment,
    state: ProducerState,
    covered: int,
    offset: int,
    *,
    note_aborted: Callable[[CompletedTransaction], None] | None = None,
) -> None:
    """Takes up the segment's batches from `covered` on and below `offset`."""
    assert segment.file is not None
    handle = segment.file.handle
    try:
        position = 0
        if covered > segment.base_offset:
            found = await segment.find_batch(covered)
            if found is None:
                return
            position = found[1]
        scan = HeaderScan(log_dir, handle, position=position, end=segment.written_size, piece_size=_PIECE)
        expected, markers = segment.base_offset, 0
        while (found_header := await scan.next()) is not None:
            header, position = found_header
            if header.next_offset > offset or header.base_offset < expected:
                # A damaged header can claim offsets beyond those asked for, or earlier ones. The readable part ends there.
                return
            expected = header.next_offset
            if header.producer_id > NO_PRODUCER_ID:
                marker = None
                if header.is_control:
                    await pause_before(markers)
                    markers += 1
                    marker = decode_end_transaction(await scan.batch(header, position))
                completed = state.note(header, header.base_offset, marker)
                if completed is not None and not completed.is_commit and note_aborted is not None:
                    note_aborted(completed)
    except BatchError:
        # A trusted batch is damaged, and the rest of the segment cannot be read. Its readers get the error. Later segments
        # matter more, because they have the producers' last batches.
        return


def _validate_transactions(entries: Mapping[int, ProducerEntry], end_offset: int) -> None:
    """Raises CorruptProducerSnapshot if two transactions begin at the same offset, or one beyond the snapshot."""
    begun = [each.transaction_first_offset for each in entries.values() if each.transaction_first_offset != NO_OFFSET]
    if len({*begun}) != len(begun) or max(begun, default=NO_OFFSET) >= end_offset:
        raise CorruptProducerSnapshot(f"the producer snapshot at {end_offset} has transactions from {sorted(begun)}")


def snapshot_offsets_in(names: Iterable[str]) -> list[int]:
    """Returns the offsets of the producer snapshots among the names of a folder's files."""
    return [offset for name in names if (offset := parse_producer_snapshot_file(name)) is not None]


def _path(folder: str, offset: int) -> str:
    return f"{folder}/{producer_snapshot_file(offset)}"
