"""Loads the segments of a log at start and repairs them after a crash (shell).

Counterpart of Kafka's LogLoader. After a clean shutdown the files are trusted. Otherwise every batch from the recovery
point's segment on is checked (header, checksum, ascending offsets and leader epochs). The first bad byte ends the log, and
indexes, leader epochs and producers are rebuilt from the batches. Where compaction has removed the batches with which an
epoch began, the stored leader epochs tell where that was. A damaged transaction index is rebuilt as well, because unlike the
other indexes it cannot be rebuilt when it is needed. A power cut may lose the end of an older segment and keep a newer one.
Such a hole also ends the log: a replica that skipped over it would claim to have the records that it lost.

A broker of Apache Kafka leaves gaps that are no holes: a compaction leaves out the last batch of a segment if nothing of it
is left, and a follower's segment begins with its first batch, wherever the leader's compaction has left that. Below the
first dirty offset every gap counts as one of these. So does one between two segments with index files, unless those of the
first name records that it no longer has. Our segments get these files after their sync, hence after the sync of all before
them. A segment that begins after a gap gets them once all before it are synced. Kafka's have them from the beginning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from common.environment.interface import LogDir
from common.ids import LeaderEpoch, Offset
from common.records.batch import NO_PRODUCER_ID, BatchError, BatchHeader
from common.records.end_transaction import decode_end_transaction
from common.storage.batch_scan import BatchScan
from common.storage.compaction.swap import finish_swaps
from common.storage.leader_epochs import LeaderEpochs
from common.storage.log_config import LogSettings
from common.storage.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from common.storage.producers.log_producers import LogProducers, snapshot_offsets_in
from common.storage.producers.state import ProducerState
from common.storage.segment import RELATIVE_OFFSET_MAX, Segment, SegmentFile
from common.storage.text_checkpoint import MalformedCheckpoint
from common.storage.transaction_index import CorruptTransactionIndex, TransactionIndex

_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, ".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The repairs made while loading. If `lost_anything`, the owner logs the loss and fetches the records from the
    leader."""

    validated_segments: int = 0
    truncated_bytes: int = 0
    removed_segments: int = 0
    reason: str | None = None

    @property
    def lost_anything(self) -> bool:
        return self.reason is not None


@dataclass(frozen=True, slots=True)
class LoadedSegments:
    """The result of loading. There is at least one segment, and the last one is ready for appends."""

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    leader_epochs_changed: bool
    producers: LogProducers
    recovery: Recovery


async def load_segments(
    log_dir: LogDir,
    folder: str,
    config: LogSettings,
    *,
    recovery_point: int,
    log_start_offset: int,
    first_dirty_offset: int,
    clean: bool,
) -> LoadedSegments:
    """Loads everything in the folder and repairs it where needed. Raises only LogDirError."""
    stored_epochs = await _load_epochs(log_dir, folder)
    loading = _Loading(log_dir, folder, config, first_dirty_offset, stored_epochs)
    await loading.open_all()
    if not loading.segments:
        await loading.add_empty(log_start_offset)
        await loading.producers.clear(folder)
        return loading.result(stored_epochs, LeaderEpochs())
    first = len(loading.segments) - 1 if clean else loading.number_of(recovery_point)
    if not (clean and await loading.trust_newest()):
        epochs = await loading.epochs_below(first)
        await loading.note_producers_below(first)
        await loading.validate_from(first, epochs)
    else:
        epochs = await loading.epochs_below(first + 1)
    if loading.end_offset < log_start_offset:
        await loading.start_over(log_start_offset)
    else:
        await loading.load_producers(is_clean=clean)
        await loading.rebuild_transaction_indexes()
    epochs.truncate_from_end(Offset(loading.end_offset))
    epochs.truncate_from_start(Offset(max(log_start_offset, loading.segments[0].base_offset)))
    return loading.result(stored_epochs, epochs)


async def _load_epochs(log_dir: LogDir, folder: str) -> LeaderEpochs | None:
    """Returns the epochs from leader-epoch-checkpoint, None if the file is missing or malformed."""
    content = await log_dir.read_file(f"{folder}/{LEADER_EPOCH_CHECKPOINT_FILE}")
    if content is None:
        return None
    try:
        return LeaderEpochs.parse(content)
    except MalformedCheckpoint:
        return None


class _Loading:
    """The state of loading one log."""

    def __init__(
        self,
        log_dir: LogDir,
        folder: str,
        config: LogSettings,
        first_dirty_offset: int,
        stored_epochs: LeaderEpochs | None,
    ) -> None:
        self.log_dir = log_dir
        self.folder = folder
        self.config = config
        # Below it the log was compacted, so between two segments there nothing is missing.
        self.first_dirty_offset = first_dirty_offset
        # From leader-epoch-checkpoint. None if the file is missing or malformed.
        self.stored_epochs = stored_epochs
        # All segments, ascending. `open_all` fills the list; validation replaces segments one by one, and removes those past
        # the log's end.
        self.segments: list[Segment] = []
        # The repairs so far. `reason` is that of the first loss.
        self.recovery = Recovery()
        # `open_all` sets the snapshots, `load_producers` the state.
        self.producers = LogProducers(log_dir)
        # The producers of all batches that were validated and of those before. None if nothing was validated, or if the
        # segments are other ones now.
        self._noted: ProducerState | None = None
        # The segments whose transaction index is damaged. Those that are validated are rebuilt anyway.
        self._without_transactions: list[Segment] = []

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset

    def number_of(self, offset: int) -> int:
        """Returns the number of the last segment that starts at or below `offset`, 0 if there is none."""
        below = [number for number, segment in enumerate(self.segments) if segment.base_offset <= offset]
        return below[-1] if below else 0

    def result(self, stored: LeaderEpochs | None, epochs: LeaderEpochs) -> LoadedSegments:
        changed = epochs.entries != (stored.entries if stored is not None else [])
        return LoadedSegments(self.segments, epochs, changed, self.producers, self.recovery)

    # --- opening -------------------------------------------------------------------------------------------------
    async def open_all(self) -> None:
        """Opens every segment, oldest first, and removes leftover files of an earlier run."""
        names = await self._file_names()
        if await finish_swaps(self.log_dir, self.folder, names):
            names = await self._file_names()
        bases = sorted(parsed[0] for name in names if (parsed := parse_segment_file(name)) and parsed[1] == LOG_SUFFIX)
        for name in self._leftovers(names, bases):
            await self.log_dir.remove(f"{self.folder}/{name}")
        self.producers = LogProducers(self.log_dir, snapshot_offsets_in(names))
        self.segments = [Segment(self.log_dir, self.folder, base) for base in bases]
        # Open the files one by one, because a directory loads many logs at the same time and its queue is bounded.
        for number, segment in enumerate(self.segments):
            segment.file = SegmentFile(self.log_dir, await self.log_dir.open(segment.path()))
            stat = await self.log_dir.stat(segment.path())
            segment.size = segment.written_size = stat.size if stat is not None else 0
            if segment_file(segment.base_offset, TRANSACTION_INDEX_SUFFIX) in names:
                await self._load_transactions(segment)
            if number + 1 < len(bases):
                segment.next_offset = bases[number + 1]
                segment.max_timestamp = None
                segment.forget_indexes()

    async def _load_transactions(self, segment: Segment) -> None:
        content = await self.log_dir.read_file(segment.path(TRANSACTION_INDEX_SUFFIX))
        transactions = TransactionIndex()
        try:
            transactions = TransactionIndex.from_bytes(content or b"", base_offset=segment.base_offset)
        except CorruptTransactionIndex:
            self._without_transactions.append(segment)
        segment.take_transactions(transactions, has_file=True)

    async def _file_names(self) -> list[str]:
        return [entry.name for entry in await self.log_dir.list(self.folder) if not entry.is_directory]

    def _leftovers(self, names: Sequence[str], bases: Sequence[int]) -> Iterator[str]:
        logs = {segment_file(base) for base in bases}
        for name in names:
            parsed = parse_segment_file(name)
            is_orphan_index = parsed is not None and parsed[1] != LOG_SUFFIX and segment_file(parsed[0]) not in logs
            if is_orphan_index or name.endswith(_LEFTOVER_SUFFIXES):
                yield name

    async def add_empty(self, base_offset: int) -> None:
        """Adds an empty segment to a log that has none."""
        segment = Segment(self.log_dir, self.folder, base_offset)
        segment.file = SegmentFile(self.log_dir, await self.log_dir.open(segment.path(), create=True))
        await self.log_dir.fsync_dir(self.folder)
        self.segments.append(segment)

    async def start_over(self, offset: int) -> None:
        """Replaces all segments by an empty one at the log start.

        The remaining records end below the log start, so none of them may be served.
        """
        self._note_loss(0, len(self.segments), f"the log ended at {self.end_offset}, below its start {offset}")
        await self.producers.clear(self.folder)
        await self._remove(0)
        await self.add_empty(offset)

    # --- trusting ------------------------------------------------------------------------------------------------
    async def trust_newest(self) -> bool:
        """Loads the newest segment without validating it. Returns False if the segment does not end with a whole batch."""
        old = self.segments[-1]
        newest = Segment(self.log_dir, self.folder, old.base_offset)
        newest.file = old.file
        newest.take_transactions(await old.load_transactions(), has_file=old.has_transaction_file)
        try:
            await newest.load_as_newest(size=old.size, index_interval=self.config.index_interval_bytes)
        except BatchError:
            return False
        self.segments[-1] = newest
        self._without_transactions = [newest if each is old else each for each in self._without_transactions]
        return True

    async def epochs_below(self, number: int) -> LeaderEpochs:
        """Returns the leader epochs of the segments before `number`: the stored ones, else those of the batches."""
        if self.stored_epochs is not None:
            epochs = LeaderEpochs(self.stored_epochs.entries)
            if number < len(self.segments):
                epochs.truncate_from_end(Offset(self.segments[number].base_offset))
            return epochs
        epochs = LeaderEpochs()
        expected = self.segments[0].base_offset
        for segment in self.segments[:number]:
            scan = segment.scan(0)
            try:
                while (found := await scan.next()) is not None:
                    header, _ = found
                    self._note_epoch(header, expected, epochs)
                    expected = header.next_offset
            except BatchError:
                # A batch below the recovery point is damaged, so the epochs end here. Readers of the batch get the error.
                break
        return epochs

    def _note_epoch(self, header: BatchHeader, expected: int, epochs: LeaderEpochs) -> None:
        """Notes the leader epoch of a batch, and where that epoch began if there is a gap before the batch.

        Compaction may have removed the first batches of the epoch, and all batches of others. The epoch before must not seem
        to end later than it did: a follower that asks for its end would keep records that were never committed. Without the
        stored epochs, it counts as ended where the gap begins.
        """
        epoch = header.partition_leader_epoch
        if self.stored_epochs is None:
            if epoch > epochs.latest_epoch:
                epochs.assign(LeaderEpoch(epoch), Offset(expected))
            return
        if expected < header.base_offset and epoch > epochs.latest_epoch:
            for stored, start in self.stored_epochs.entries:
                if epochs.latest_epoch < stored <= epoch and expected <= start <= header.base_offset:
                    epochs.assign(LeaderEpoch(stored), Offset(start))
        epochs.assign(LeaderEpoch(epoch), Offset(header.base_offset))

    # --- producers -----------------------------------------------------------------------------------------------
    async def note_producers_below(self, number: int) -> None:
        """Collects the producers of the segments before `number`. Validation adds those of the others."""
        base_offset = self.segments[number].base_offset
        self._noted = await self.producers.state_at(self.folder, self.segments[:number], base_offset)

    async def load_producers(self, *, is_clean: bool) -> None:
        """Sets the producers as of the log's end, and removes the snapshots that do not belong to this log."""
        await self.producers.load(self.folder, self.segments, self.end_offset, is_clean=is_clean, noted=self._noted)

    async def rebuild_transaction_indexes(self) -> None:
        """Rebuilds the damaged transaction indexes of segments that were not validated, and writes their files."""
        for segment in self._without_transactions:
            if segment in self.segments:
                transactions = await self.producers.aborted_in(self.folder, self.segments, segment)
                segment.take_transactions(transactions, has_file=True)
                await self.log_dir.replace_file(segment.path(TRANSACTION_INDEX_SUFFIX), transactions.to_bytes())

    # --- validating ----------------------------------------------------------------------------------------------
    async def validate_from(self, first: int, epochs: LeaderEpochs) -> None:
        """Checks every batch of the segments from `first` on and ends the log at the first bad one."""
        number = first
        while number < len(self.segments):
            old = self.segments[number]
            expected = self.segments[number - 1].next_offset if number > first else old.base_offset
            if expected < old.base_offset and await self._is_compacted_before(number):
                self.segments[number - 1].next_offset = expected = old.base_offset
            if old.base_offset > expected:
                await self._end_before(number, f"the records from {expected} to {old.base_offset} are missing")
                break
            if old.base_offset < expected:
                # The two segments overlap: the log would have two batches for the same offsets.
                await self._end_before(
                    number, f"a segment begins at {old.base_offset}, and the one before it ends at {expected}"
                )
                break
            segment, reason = await self._validate(old, expected, epochs)
            self.segments[number] = segment
            self.recovery = replace(self.recovery, validated_segments=self.recovery.validated_segments + 1)
            if reason is not None:
                await self._end_within(number, old.size, f"{segment.path()} at {segment.size}: {reason}")
                break
            number += 1
        await self._make_durable(first)

    async def _is_compacted_before(self, number: int) -> bool:
        """Whether the gap before the segment comes from a compaction. The segment before it has been validated."""
        segment = self.segments[number]
        if segment.base_offset <= self.first_dirty_offset:
            return True
        has_index = await self.log_dir.stat(segment.path(INDEX_SUFFIX)) is not None
        return has_index and await self.segments[number - 1].ends_as_indexed()

    async def _validate(self, old: Segment, expected: int, epochs: LeaderEpochs) -> tuple[Segment, str | None]:
        """Returns a new segment with the valid batches of `old`, and the reason why they end early (None if all are
        valid)."""
        segment = Segment(self.log_dir, self.folder, old.base_offset)
        segment.file = old.file
        segment.has_transaction_file = old.has_transaction_file
        assert old.file is not None
        # Validate what the disk really holds. If an fsync failed in an earlier run, the page cache may show records that
        # never reached the disk, and no later fsync would report the loss.
        await self.log_dir.sync_and_forget(old.file.handle)
        scan = BatchScan(self.log_dir, old.file.handle, end=old.size)
        reason = None
        try:
            while (found := await scan.next()) is not None:
                header, view, _ = found
                reason = _contradiction(header, expected, segment, epochs)
                if reason is not None:
                    break
                if header.producer_id > NO_PRODUCER_ID:
                    self._note_producer(header, view, segment)
                self._note_epoch(header, expected, epochs)
                segment.note_batch(
                    first_offset=header.base_offset,
                    last_offset=header.last_offset,
                    size=header.size,
                    max_timestamp=header.max_timestamp,
                    index_interval=self.config.index_interval_bytes,
                )
                expected = header.next_offset
        except BatchError as error:
            reason = str(error)
        segment.written_size = segment.size
        return segment, reason

    def _note_producer(self, header: BatchHeader, view: memoryview, segment: Segment) -> None:
        """Takes up a valid batch of a producer. Raises InvalidRecordBatch for a malformed marker."""
        assert self._noted is not None
        marker = decode_end_transaction(view) if header.is_control else None
        completed = self._noted.note(header, header.base_offset, marker)
        if completed is not None and not completed.is_commit:
            segment.note_aborted(completed)

    async def _end_within(self, number: int, old_size: int, reason: str) -> None:
        segment = self.segments[number]
        self._note_loss(old_size - segment.size, len(self.segments) - number - 1, reason)
        await self._remove(number + 1)
        if segment.size == 0 and number > 0:
            # Remove the empty segment: no batch confirms its base offset, which may differ from the end of the previous one.
            self.recovery = replace(self.recovery, removed_segments=self.recovery.removed_segments + 1)
            await self._remove(number)
            # The log may now end before the first segment that was validated.
            self._noted = None
            await self._reopen_newest()
            return
        assert segment.file is not None
        await self.log_dir.truncate(segment.file.handle, segment.size)

    async def _end_before(self, number: int, reason: str) -> None:
        self._note_loss(0, len(self.segments) - number, reason)
        await self._remove(number)

    async def _reopen_newest(self) -> None:
        """Prepares the last remaining segment for appends. It may be older than all validated segments, so load it first."""
        if self.segments[-1].tail is None and not await self.trust_newest():
            await self.note_producers_below(len(self.segments) - 1)
            await self.validate_from(len(self.segments) - 1, LeaderEpochs())

    def _note_loss(self, truncated_bytes: int, removed_segments: int, reason: str) -> None:
        removed_bytes = sum(segment.size for segment in self.segments[len(self.segments) - removed_segments :])
        self.recovery = replace(
            self.recovery,
            truncated_bytes=self.recovery.truncated_bytes + truncated_bytes + removed_bytes,
            removed_segments=self.recovery.removed_segments + removed_segments,
            reason=self.recovery.reason or reason,
        )

    async def _remove(self, number: int) -> None:
        """Removes the segments from `number` on, newest first, so that a crash in between leaves no hole."""
        while len(self.segments) > number:
            segment = self.segments.pop()
            assert segment.file is not None
            segment.file.retire()
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                await self.log_dir.remove(segment.path(suffix))

    async def _make_durable(self, first: int) -> None:
        """Makes the names and indexes of the validated segments durable; `_validate` has synced the segments themselves.

        The next flush cannot do this: it moves the recovery point past all of them but syncs only the newest segment.
        """
        for segment in self.segments[first:-1]:
            segment.seal()
            for writing in segment.index_file_steps():
                await writing
            segment.forget_indexes()
        if self.recovery.lost_anything:
            await self._make_cut_durable(self.segments[-1])
        # An earlier run may have been killed after it created a segment and before it synced the directory entry.
        await self.log_dir.fsync_dir(self.folder)

    async def _make_cut_durable(self, newest: Segment) -> None:
        assert newest.file is not None
        await self.log_dir.fsync(newest.file.handle)
        # Index files of an earlier run may reach past the new end, so remove them.
        for removing in newest.index_removal_steps():
            await removing
        # If there is a gap before the segment, the next start must also see that it has an index.
        for writing in newest.index_file_steps():
            await writing


def _contradiction(header: BatchHeader, expected: int, segment: Segment, epochs: LeaderEpochs) -> str | None:
    """Returns why a batch with a valid checksum cannot be the next one, None if it can."""
    if header.base_offset < expected or header.last_offset_delta < 0:
        return f"offsets {header.base_offset} to {header.last_offset} follow {expected - 1}"
    if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return f"offset {header.last_offset} is too far from the segment's first"
    if 0 <= header.partition_leader_epoch < epochs.latest_epoch:
        return f"leader epoch {header.partition_leader_epoch} follows {epochs.latest_epoch}"
    return None
