"""One segment of a log: its file, the positions of its batches, and its three indexes (shell).

Counterpart of Kafka's LogSegment. The newest segment keeps its sparse indexes and the positions of its latest batches in
memory, and writes the index files when it is rolled or closed. Older segments load the offset index from disk for a read.
After a crash the index files of the newest segment are missing or short, and are rebuilt from the segment. Most segments
have no transaction index. Only recovery can rebuild one, because that takes the state of the producers before the segment;
so its file must be durable before the segment counts as durable. `size` includes bytes that are still queued; only bytes
below `written_size` may be read. A file is closed only when no search uses it, because reading from a closed descriptor
would be a fatal bug.
"""

import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from common.environment.interface import LogDir, LogFile
from common.records.batch import CorruptBatch
from common.storage.batch_positions import BatchPositions
from common.storage.batch_scan import HeaderScan
from common.storage.cached_headers import CachedBatch, NotCached, cached_headers
from common.storage.index_entries import CorruptIndex
from common.storage.log_config import LogSettings
from common.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from common.storage.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from common.storage.offset_index import IndexedBatch, OffsetIndex
from common.storage.outstanding import Steps
from common.storage.producers.transactions import CompletedTransaction
from common.storage.read_limits import ReadLimits
from common.storage.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from common.storage.time_index import TimeIndex, last_entry, time_entries_max
from common.storage.transaction_index import (
    AbortedRange,
    AbortedTransaction,
    CorruptTransactionIndex,
    TransactionIndex,
)

T = TypeVar("T")

NO_TIMESTAMP = -1
RELATIVE_OFFSET_MAX = 2**31 - 1
RESUME_POINTS_MAX = 16


class SegmentFile:
    """An open file. It is closed once the segment has retired it and the last search in it has ended."""

    __slots__ = ("_is_retired", "_log_dir", "_users", "handle")

    def __init__(self, log_dir: LogDir, handle: LogFile) -> None:
        self._log_dir = log_dir
        self.handle = handle
        # The number of searches under way in the file.
        self._users = 0
        # Set once by `retire`. Invariant: the file is closed if and only if this is set and `_users` is 0.
        self._is_retired = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps the file open for the duration of a search."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._is_retired and self._users == 0:
                self._log_dir.close_file(self.handle)

    def retire(self) -> None:
        """Closes the file, now or when the last search in it has ended."""
        if not self._is_retired:
            self._is_retired = True
            if self._users == 0:
                self._log_dir.close_file(self.handle)


class Segment:
    """One segment; its offsets are absolute. Invariant: batches lie back to back from position 0 to `size`."""

    __slots__ = (
        "_bytes_since_index",
        "_index_entries_max",
        "_resume_points",
        "_stored_indexes",
        "aborted",
        "base_offset",
        "file",
        "first_timestamp",
        "folder",
        "has_transaction_file",
        "index",
        "is_held",
        "log_dir",
        "max_timestamp",
        "max_timestamp_offset",
        "moving_to",
        "next_offset",
        "size",
        "tail",
        "time_index",
        "timeless_since_ms",
        "transactions",
        "undone",
        "written_size",
    )

    def __init__(self, log_dir: LogDir, folder: str, base_offset: int) -> None:
        self.log_dir = log_dir
        self.folder = folder
        # The folder's new name while it is being renamed, else None. A file is missing under the old name before `folder`
        # changes.
        self.moving_to: str | None = None
        self.base_offset = base_offset
        # None until the file is open.
        self.file: SegmentFile | None = None
        # True while the file is being opened or truncated; the pipeline holds appends back meanwhile.
        self.is_held = False
        # The offset after the last batch. Changes with every batch. A log ends where its newest segment does.
        self.next_offset = base_offset
        # The position of the next batch. Moved by `note_batch`, before the write. Invariant: written_size <= size.
        self.size = 0
        # The kernel has every byte below this position. The pipeline moves it to the end of each written append, in order.
        self.written_size = 0
        # The offset and time indexes. None if an index is only on disk; the newest segment has both in memory.
        self.index: OffsetIndex | None = OffsetIndex(base_offset)
        self.time_index: TimeIndex | None = TimeIndex(base_offset)
        # The aborted transactions whose markers are in this segment. None if they are not in memory; the newest segment has
        # them in memory.
        self.transactions: TransactionIndex | None = TransactionIndex()
        # The range of these transactions. None if there are none.
        self.aborted: AbortedRange | None = None
        # Whether there is a .txnindex file, which may be empty or out of date.
        self.has_transaction_file = False
        # The positions of the latest batches. None except in the newest segment.
        self.tail: BatchPositions | None = BatchPositions(base_offset)
        # The largest timestamp. None: not loaded yet from the time index on disk. -1: no batch has a timestamp.
        self.max_timestamp: int | None = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        # The timestamp of the first batch that has one. segment.ms counts from this timestamp.
        self.first_timestamp: int | None = None
        # When `outlasts_roll_time` first saw that no batch has a timestamp, by the wall clock; None if it has not.
        self.timeless_since_ms: int | None = None
        # The number of operations that must end before the segment, its indexes and their directory entries would survive a
        # power cut. Creating the file and rolling add one each.
        self.undone = 0
        # What the index files hold: the number of entries of the offset, time and transaction index. None if they are not
        # known to hold the first entries of the indexes in memory, for example while they are written.
        self._stored_indexes: tuple[int, int, int] | None = None
        # Bytes in batches since the last index entry. The next batch gets an entry once this exceeds the index interval.
        self._bytes_since_index = 0
        # Neither the offset nor the time index has more entries than this. Appends look at this number instead of the
        # lengths.
        self._index_entries_max = 0
        # The points where sequential readers will continue: maps the first offset of a batch to its position. Holds at most
        # RESUME_POINTS_MAX entries; the oldest is dropped first.
        self._resume_points: dict[int, int] = {}

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        """Returns the path of one of the segment's files, relative to the log directory."""
        return f"{self.folder}/{segment_file(self.base_offset, suffix)}"

    def cleaned_path(self, folder: str) -> str:
        """Returns the path of the file while compaction writes it, in a folder that may have been renamed."""
        return f"{folder}/{segment_file(self.base_offset)}{CLEANED_SUFFIX}"

    # --- appending -----------------------------------------------------------------------------------------------
    def note_batch(self, *, first_offset: int, last_offset: int, size: int, max_timestamp: int, index_interval: int) -> None:
        """Accounts for a batch at the end of the newest segment."""
        assert self.index is not None
        assert self.time_index is not None
        assert self.max_timestamp is not None
        position = self.size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.first_timestamp is None and max_timestamp >= 0:
            self.first_timestamp = max_timestamp
        if self._bytes_since_index > index_interval:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._index_entries_max += 1
            self._bytes_since_index = 0
        self._bytes_since_index += size
        if self.tail is not None:
            self.tail.append(first_offset, last_offset, position)
        self.size = position + size
        self.next_offset = last_offset + 1

    def note_aborted(self, aborted: AbortedTransaction | CompletedTransaction) -> None:
        """Adds an aborted transaction whose marker is the last batch of the segment."""
        assert self.transactions is not None
        self.transactions.append(aborted)
        self.aborted = self.transactions.range

    def take_transactions(self, transactions: TransactionIndex, *, has_file: bool) -> None:
        """Sets the transaction index of a segment that is being loaded."""
        self.transactions = transactions
        self.aborted = transactions.range
        self.has_transaction_file = has_file
        self._stored_indexes = None

    def is_full_for(self, *, size: int, max_timestamp: int, last_offset: int, config: LogSettings) -> bool:
        """Whether batches of this size, timestamp and last offset need a new segment."""
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size == 0:
            return False
        if self.size + size > config.segment_bytes:
            return True
        if self.first_timestamp is not None:
            age_ms = max_timestamp - self.first_timestamp
            if age_ms > config.roll_ms - (self._jitter_ms(config.roll_jitter_ms) if config.roll_jitter_ms else 0):
                return True
        if self._index_entries_max < config.segment_index_bytes // TIME_ENTRY_SIZE - 1:
            return False
        assert self.index is not None
        assert self.time_index is not None
        return len(self.index) >= config.segment_index_bytes // INDEX_ENTRY_SIZE or len(self.time_index) >= time_entries_max(
            config.segment_index_bytes
        )

    def outlasts_roll_time(self, *, now_ms: int, config: LogSettings) -> bool:
        """Whether no batch of the newest segment has a timestamp, and segment.ms has passed since a call first found it so.
        With timestamps, `is_full_for` looks at the time."""
        if self.size == 0 or self.first_timestamp is not None:
            return False
        if self.timeless_since_ms is None or now_ms < self.timeless_since_ms:
            self.timeless_since_ms = now_ms
        jitter_ms = self._jitter_ms(config.roll_jitter_ms) if config.roll_jitter_ms else 0
        return now_ms - self.timeless_since_ms > config.roll_ms - jitter_ms

    def _jitter_ms(self, below_ms: int) -> int:
        """How much earlier than segment.ms says this segment is full, so that not all logs of a broker roll at once. Kafka
        draws this; here it follows from the name."""
        return zlib.crc32(self.path(LOG_SUFFIX).encode()) % below_ms

    # --- loading -------------------------------------------------------------------------------------------------
    async def load_as_newest(self, *, size: int, index_interval: int) -> None:
        """Fills this new object for a trusted segment of `size` bytes, from its index files and the batches after them.

        Raises BatchError if the segment does not end with a whole batch.
        """
        index_content = await self.log_dir.read_file(self.path(INDEX_SUFFIX))
        times_content = await self.log_dir.read_file(self.path(TIME_INDEX_SUFFIX))
        assert self.file is not None
        try:
            # The end offset is not known yet, so allow any. The batch of the last entry shows whether the index belongs to
            # this segment.
            end = self.base_offset + RELATIVE_OFFSET_MAX
            index = OffsetIndex.from_bytes(
                index_content or b"", base_offset=self.base_offset, end_offset=end, segment_size=size
            )
            times = TimeIndex.from_bytes(times_content or b"", base_offset=self.base_offset, end_offset=end)
            found = await self._scan(index.last_position, size).next()
            if len(index) and (times_content is None or found is None or found[0].last_offset != index.last_offset):
                raise CorruptIndex("it belongs to other batches")
        except CorruptIndex:
            index, times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        else:
            if index_content is not None and times_content is not None and self.transactions is not None:
                self._stored_indexes = len(index), len(times), len(self.transactions)
        await self.take_up(index, times, size=size, index_interval=index_interval)

    async def take_up(self, index: OffsetIndex, times: TimeIndex, *, size: int, index_interval: int) -> None:
        """Fills this new object: takes over the indexes of its first part, and scans the batches from the last indexed one
        on."""
        self.index, self.time_index = index, times
        self._index_entries_max = max(len(index), len(times))
        self.size = index.last_position
        scan = self._scan(index.last_position, size)
        found = await scan.next()
        if found is None:
            return
        self.tail = BatchPositions(found[0].base_offset)
        if self.size > 0:
            first = await self._scan(0, size).next()
            if first is not None and first[0].max_timestamp >= 0:
                self.first_timestamp = first[0].max_timestamp
            if times.last is not None:
                self.max_timestamp, self.max_timestamp_offset = times.last
        while found is not None:
            header, position = found
            if (
                not self.next_offset <= header.base_offset <= header.last_offset
                or header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            ):
                # Even trusted bytes can be damaged, and the index cannot hold these offsets.
                raise CorruptBatch(
                    f"the batch at {position} has offsets {header.base_offset} to {header.last_offset}, "
                    f"{self.next_offset} is next"
                )
            self.note_batch(
                first_offset=header.base_offset,
                last_offset=header.last_offset,
                size=header.size,
                max_timestamp=header.max_timestamp,
                index_interval=index_interval,
            )
            found = await scan.next()
        self.written_size = self.size

    def forget_indexes(self) -> None:
        """Drops the indexes from memory, because a gigabyte of log has five megabytes of indexes."""
        self.index = self.time_index = self.transactions = self.tail = None

    # --- index files ---------------------------------------------------------------------------------------------
    def seal(self) -> None:
        """Ends appending to this segment. The caller writes the index files next."""
        assert self.time_index is not None
        assert self.max_timestamp is not None
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.tail = None

    def index_file_steps(self) -> Steps:
        """Writes the index files with the current content of the indexes, unless they have it already or the segment is
        empty: a clean shutdown closes all logs, and most have not changed since the broker started."""
        assert self.index is not None
        assert self.time_index is not None
        assert self.transactions is not None
        entries = len(self.index), len(self.time_index), len(self.transactions)
        if entries == self._stored_indexes or not self.size:
            return
        self._stored_indexes = None
        times, transactions = self.time_index.to_bytes(), self.transactions
        if len(transactions):
            self.has_transaction_file = True
            yield self.log_dir.replace_file(self.path(TRANSACTION_INDEX_SUFFIX), transactions.to_bytes())
        else:
            yield from self._transaction_file_removal_steps()
        yield self.log_dir.replace_file(self.path(INDEX_SUFFIX), self.index.to_bytes())
        yield self.log_dir.replace_file(self.path(TIME_INDEX_SUFFIX), times)
        self._stored_indexes = entries

    def first_index_file_steps(self) -> Steps:
        """Writes index files without entries, for a segment without batches that borders on a gap."""
        yield self.log_dir.replace_file(self.path(TIME_INDEX_SUFFIX), b"")
        yield self.log_dir.replace_file(self.path(INDEX_SUFFIX), b"")

    @property
    def deleted_name(self) -> str:
        """The name that `removal_steps` gives to the segment's file."""
        return segment_file(self.base_offset) + DELETED_SUFFIX

    def removal_steps(self) -> Steps:
        """Renames the segment's file to `deleted_name`, so that no start loads it any more, and removes the index files.

        The log removes the file later. A reader that has it open goes on reading.
        """
        yield self.log_dir.rename(self.path(), f"{self.folder}/{self.deleted_name}")
        yield from self.index_removal_steps()

    def index_removal_steps(self) -> Steps:
        """Removes the index files of a segment that is removed or truncated."""
        self._stored_indexes = None
        yield self.log_dir.remove(self.path(INDEX_SUFFIX))
        yield self.log_dir.remove(self.path(TIME_INDEX_SUFFIX))
        yield from self._transaction_file_removal_steps()

    def _transaction_file_removal_steps(self) -> Steps:
        if self.has_transaction_file:
            self.has_transaction_file = False
            yield self.log_dir.remove(self.path(TRANSACTION_INDEX_SUFFIX))

    async def load_index(self) -> OffsetIndex:
        """Returns the offset index and keeps it in memory. Rebuilds it if the file is missing or corrupt."""
        if self.index is not None:
            return self.index
        content = await self.log_dir.read_file(self.path(INDEX_SUFFIX))
        index = None
        if content is not None:
            with suppress(CorruptIndex):
                index = OffsetIndex.from_bytes(
                    content, base_offset=self.base_offset, end_offset=self.next_offset, segment_size=self.size
                )
        if index is None:
            index = (await self._rebuild_indexes())[0]
        # Another task may have loaded the index meanwhile. If so, use that one.
        if self.index is None:
            self.index = index
        return self.index

    async def load_time_index(self) -> TimeIndex:
        """Returns the time index without keeping it in memory. Rebuilds it if the file is missing or corrupt."""
        if self.time_index is not None:
            return self.time_index
        content = await self.log_dir.read_file(self.path(TIME_INDEX_SUFFIX))
        times = None
        # Treat an empty file like a missing one: a sealed segment with timestamps has at least one entry.
        if content:
            with suppress(CorruptIndex):
                times = TimeIndex.from_bytes(content, base_offset=self.base_offset, end_offset=self.next_offset)
        if times is None:
            times = (await self._rebuild_indexes())[1]
        if self.max_timestamp is None:
            self.max_timestamp, self.max_timestamp_offset = times.last or (NO_TIMESTAMP, self.base_offset)
        return times

    async def load_transactions(self) -> TransactionIndex:
        """Returns the transaction index and keeps it in memory. Raises CorruptTransactionIndex."""
        if self.transactions is not None:
            return self.transactions
        content: bytes | None = b""
        if self.aborted is not None:
            name = segment_file(self.base_offset, TRANSACTION_INDEX_SUFFIX)
            folder = self.folder
            content = await self.log_dir.read_file(f"{folder}/{name}")
            # Look again if the folder was renamed meanwhile.
            while content is None and folder != (newest := self.moving_to or self.folder):
                folder = newest
                content = await self.log_dir.read_file(f"{folder}/{name}")
        if content is None:
            raise CorruptTransactionIndex("the file is missing")
        transactions = TransactionIndex.from_bytes(content, base_offset=self.base_offset)
        # Another task may have loaded the index meanwhile. If so, use that one.
        if self.transactions is None:
            self.transactions = transactions
        return self.transactions

    async def load_max_timestamp(self) -> int:
        """Returns the largest timestamp in the segment, -1 if no batch has one."""
        if self.max_timestamp is None:
            last = await self._last_time_entry()
            if last is not None:
                self.max_timestamp, self.max_timestamp_offset = last
            else:
                await self.load_time_index()
        assert self.max_timestamp is not None
        return self.max_timestamp

    async def _last_time_entry(self) -> tuple[int, int] | None:
        """Reads only the last entry of the time index file, because retention asks every segment of a log, and the index of
        a full segment has megabytes. Returns None unless the file ends with a possible entry."""
        path = self.path(TIME_INDEX_SUFFIX)
        stat = await self.log_dir.stat(path)
        if stat is None or stat.size % TIME_ENTRY_SIZE:
            return None
        last = last_entry(await self.log_dir.read_file(path, last=TIME_ENTRY_SIZE) or b"")
        if last is None or not 0 <= last[1] < self.next_offset - self.base_offset:
            return None
        return last[0], self.base_offset + last[1]

    async def ends_as_indexed(self) -> bool:
        """Whether the segment has a time index file, as it was written when the segment was full, and no entry in it names a
        record beyond the segment's end."""
        stat = await self.log_dir.stat(self.path(TIME_INDEX_SUFFIX))
        return stat is not None and (stat.size == 0 or await self._last_time_entry() is not None)

    async def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Rebuilds both indexes from the batches, at Kafka's default interval. Raises BatchError for a damaged segment."""
        rebuilt = Segment(self.log_dir, self.folder, self.base_offset)
        rebuilt.file = self.file
        index, times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        await rebuilt.take_up(index, times, size=self.written_size, index_interval=4096)
        rebuilt.seal()
        return index, times

    # --- searching -----------------------------------------------------------------------------------------------
    def _scan(self, position: int, end: int) -> HeaderScan:
        assert self.file is not None
        return HeaderScan(self.log_dir, self.file.handle, position=position, end=end)

    def scan(self, position: int) -> HeaderScan:
        """Returns a scan of the batch headers from `position`, a batch boundary, to `written_size`."""
        return self._scan(position, self.written_size)

    async def read(self, position: int, size: int) -> bytes:
        """Reads bytes below `written_size`. Returns fewer than `size` only if the segment was truncated meanwhile."""
        assert self.file is not None
        with self.file.in_use():
            return await self.log_dir.read(self.file.handle, position, size)

    def resume_point(self, offset: int) -> int | None:
        """Returns the position of the batch that starts at `offset`, if it is the first batch or a read ended just before
        it."""
        return 0 if offset == self.base_offset else self._resume_points.get(offset)

    async def first_part(self, size: int, *, end_offset: int, index_interval: int) -> "Segment":
        """Returns a copy of this segment that ends at `size`, a batch boundary. Both use the same open file."""
        index, times = await self._checked_indexes()
        transactions = (await self.load_transactions()).truncated_to(end_offset)
        index.truncate_to_position(size)
        times.truncate_to_offset(end_offset)
        part = Segment(self.log_dir, self.folder, self.base_offset)
        part.file = self.file
        part.take_transactions(transactions, has_file=self.has_transaction_file)
        await part.take_up(index, times, size=size, index_interval=index_interval)
        return part

    async def _checked_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Returns copies of both indexes, every entry of which was checked."""
        try:
            index, times = (await self.load_index()).copy(), (await self.load_time_index()).copy()
            index.check_order()
            times.check_order()
        except CorruptIndex:
            index, times = await self._rebuild_indexes()
        return index, times

    async def find_batch(self, offset: int) -> tuple[int, int] | None:
        """Returns (first offset, position) of the first batch that ends at or after `offset`; None past the last batch."""

        async def first_after(index: OffsetIndex) -> tuple[int, int] | None:
            indexed = index.batch_for(offset)
            if indexed is not None and self.written_size <= indexed.position < self.size:
                # The index in memory is right: this batch is still on its way to the disk.
                return None
            return await self._first_ending_at(offset, self._scan_from(indexed, 0, self.written_size))

        position = self.resume_point(offset)
        if position is not None:
            return await self._first_ending_at(offset, self.scan(position))
        return await self._with_index(first_after)

    def cached_headers_for(self, offset: int) -> Iterator[CachedBatch]:
        """Returns the batches in the page cache that end at or after `offset`. Call it only while the index is in memory.
        Raises NotCached and CorruptIndex."""
        position = self.resume_point(offset)
        if position is not None:
            return self._cached_headers(position, offset, None)
        assert self.index is not None
        return self.cached_headers_from(self.index.batch_for(offset), offset)

    def cached_headers_from(self, indexed: IndexedBatch | None, offset: int) -> Iterator[CachedBatch]:
        """Like `cached_headers_for`, but looks for them from an indexed batch on, None means the first one. Raises
        NotCached."""
        return (
            self._cached_headers(0, offset, None)
            if indexed is None
            else self._cached_headers(indexed.position, offset, indexed.last_offset)
        )

    def _cached_headers(self, position: int, offset: int, first_ends_at: int | None) -> Iterator[CachedBatch]:
        assert self.file is not None
        if position >= self.written_size:
            raise NotCached
        end = self.written_size
        return cached_headers(self.log_dir, self.file.handle, position, end, offset=offset, first_ends_at=first_ends_at)

    async def _first_ending_at(self, offset: int, scan: HeaderScan) -> tuple[int, int] | None:
        while (found := await scan.next()) is not None:
            header, position = found
            if header.last_offset >= offset:
                return header.base_offset, position
        return None

    async def offset_for_timestamp(self, timestamp: int) -> int:
        """Returns the offset where a search for `timestamp` can start: all batches that end below that offset are older."""
        try:
            return (await self.load_time_index()).offset_for(timestamp)
        except CorruptIndex:
            return (await self._rebuild_indexes())[1].offset_for(timestamp)

    async def _with_index(self, search: Callable[[OffsetIndex], Awaitable[T]]) -> T:
        """Searches with the offset index. If the index turns out to be corrupt, rebuilds it and searches again."""
        try:
            return await search(await self.load_index())
        except CorruptIndex:
            self.index = (await self._rebuild_indexes())[0]
        try:
            return await search(self.index)
        except CorruptIndex as error:
            raise CorruptBatch(f"the batches changed under the search: {error}") from error

    def _scan_from(self, indexed: IndexedBatch | None, start: int, end: int) -> HeaderScan:
        """Returns a scan from an indexed batch, if that is beyond `start`, else from `start`. The scan raises CorruptIndex
        if the batch is not the indexed one."""
        if indexed is None or indexed.position <= start:
            return self._scan(start, end)
        assert self.file is not None
        return HeaderScan(
            self.log_dir, self.file.handle, position=indexed.position, end=end, first_ends_at=indexed.last_offset
        )

    async def find_end(self, start: int, limits: ReadLimits) -> tuple[int, int]:
        """Returns where a read of whole batches from `start` ends: (position, offset of the next batch).

        If nothing fits, the position is `start`.
        """
        end = self.written_size
        size_limit = start + limits.max_bytes
        if end <= size_limit and self.next_offset <= limits.upper_offset:
            return end, self.next_offset

        async def last_fitting(index: OffsetIndex) -> tuple[int, int]:
            scan = self._scan_from(_indexed_before_end(index, size_limit, limits.upper_offset), start, end)
            return await self._last_fitting(scan, start, limits)

        position, next_offset = await self._with_index(last_fitting)
        if start < position < end:
            self.note_resume_point(next_offset, position)
        return position, next_offset

    async def _last_fitting(self, scan: HeaderScan, start: int, limits: ReadLimits) -> tuple[int, int]:
        size_limit = start + limits.max_bytes
        position, next_offset = start, -1
        while (found := await scan.next()) is not None:
            header, position = found
            fits = position + header.size <= size_limit or (limits.min_one_batch and position == start)
            if not fits or header.last_offset >= limits.upper_offset:
                next_offset = header.base_offset
                break
            position, next_offset = position + header.size, header.next_offset
        return position, next_offset

    def indexed_before_end(self, *, size_limit: int, upper_offset: int) -> IndexedBatch | None:
        """Returns an indexed batch from which to look for the end of a read, None to look from its start. Call it only while
        the index is in memory. Raises CorruptIndex."""
        assert self.index is not None
        return _indexed_before_end(self.index, size_limit, upper_offset)

    def note_resume_point(self, offset: int, position: int) -> None:
        """Notes that a read has ended before the batch that starts at `offset` and `position`."""
        self._resume_points[offset] = position
        if len(self._resume_points) > RESUME_POINTS_MAX:
            del self._resume_points[next(iter(self._resume_points))]


def _indexed_before_end(index: OffsetIndex, size_limit: int, upper_offset: int) -> IndexedBatch | None:
    # Look up `upper_offset - 1`: the batch of `upper_offset` itself may not be written yet, but the one before is.
    by_size, by_offset = index.batch_at_or_before(size_limit), index.batch_for(upper_offset - 1)
    if by_size is None or by_offset is None:
        return None
    return by_size if by_size.position <= by_offset.position else by_offset
