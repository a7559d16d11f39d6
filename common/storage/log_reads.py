"""Reading from a log: whole batches, aborted transactions, and offsets by time (shell).

Counterpart of Kafka's UnifiedLog.read and fetchOffsetByTimestamp. Readers never see anything beyond `written_offset`. What
is known in memory or in the page cache is found without suspending (`batch_search`). A search that suspends may find that
segments were removed meanwhile, and starts over (`LogSegments.in_one_generation`).
"""

from common.ids import Offset
from common.records.batch import BATCH_OVERHEAD
from common.storage.batch_search import (
    Span,
    after_empty_batches,
    after_empty_batches_in_page_cache,
    locate_in_memory,
    locate_in_page_cache,
    locate_on_disk,
)
from common.storage.cached_headers import NotCached
from common.storage.errors import OffsetOutOfRange
from common.storage.log_segments import LogRead
from common.storage.log_state import LogState
from common.storage.read_limits import ReadLimits
from common.storage.timestamp_search import TimestampOffset, first_at_or_after, newest
from common.storage.transaction_index import AbortedTransaction

# A row of batches without records may be long, and the event loop must not stand still while they are skipped.
_SPANS_AT_ONCE = 10


class LogReads(LogState):
    """See the module docstring."""

    # --- batches -------------------------------------------------------------------------------------------------
    async def read(self, offset: int, limits: ReadLimits) -> LogRead:
        """Returns whole batches, beginning with the one that holds `offset`.

        Does not suspend if the position is known in memory. Raises OffsetOutOfRange, LogDirError, and BatchError if the disk
        holds anything other than batches.
        """
        return self._as_read(await self._locate(offset, limits))

    def may_have_aborted(self, offset: int) -> bool:
        """Whether there may be records of aborted transactions at or after `offset`."""
        return self._segments.may_have_aborted(offset)

    def read_at_once(self, offset: int, limits: ReadLimits) -> LogRead | None:
        """Like `read`, but returns None where that would have to wait. Raises OffsetOutOfRange and LogDirError."""
        self._check_readable(offset)
        limits = self._written_below(limits)
        last = self._segments.last_read
        if last is not None and last[0] == (offset, limits):
            return last[1]
        span = self._find_at_once(offset, limits)
        if span is None:
            return None
        read = self._as_read(span)
        self._segments.last_read = (offset, limits), read
        return read

    async def read_with_aborted(self, offset: int, limits: ReadLimits) -> tuple[LogRead, list[AbortedTransaction]]:
        """Like `read`, and also returns the aborted transactions whose records may be among those read.

        Compaction removes the records of an aborted transaction and then its entry. So both are looked up in the same
        segments: an entry that is missing must mean that its records are."""

        async def find() -> tuple[Span, list[AbortedTransaction]]:
            span = await self._find_span(offset, limits)
            if not span.size:
                return span, []
            return span, await self._segments.aborted_transactions(offset, span.next_offset)

        span, aborted = await self._segments.in_one_generation(find)
        return self._as_read(span), aborted

    async def read_bytes(self, offset: int, limits: ReadLimits) -> bytes:
        """Like `read`, but returns the bytes themselves; empty if there is nothing to read."""
        span = await self._locate(offset, limits)
        return await span.segment.read(span.position, span.size) if span.size else b""

    def _as_read(self, span: Span) -> LogRead:
        first_offset, next_offset = Offset(span.first_offset), Offset(span.next_offset)
        if not span.size:
            return LogRead([], 0, first_offset, next_offset)
        assert span.segment.file is not None
        region = self.log_dir.region(span.segment.file.handle, span.position, span.size)
        return LogRead([region], span.size, first_offset, next_offset)

    def _check_readable(self, offset: int) -> None:
        self._check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)

    def _written_below(self, limits: ReadLimits) -> ReadLimits:
        """Returns these limits, below what is written."""
        written_offset = self._appends.written_offset
        return limits if limits.upper_offset <= written_offset else limits._replace(upper_offset=written_offset)

    def _find_at_once(self, offset: int, limits: ReadLimits) -> Span | None:
        """Returns the span to read if that is known in memory or from the page cache, and soon found."""
        for _ in range(_SPANS_AT_ONCE):
            span = locate_in_memory(self._segments.holding(offset), offset, limits) or locate_in_page_cache(
                self._segments, offset, limits
            )
            if span is None or not _may_be_empty(span, limits):
                return span
            try:
                offset = after_empty_batches_in_page_cache(span, limits.upper_offset)
            except NotCached:
                return None
            if offset == span.first_offset:
                return span
        return None

    async def _locate(self, offset: int, limits: ReadLimits) -> Span:
        return await self._segments.in_one_generation(lambda: self._find_span(offset, limits))

    async def _find_span(self, offset: int, limits: ReadLimits) -> Span:
        generation = self._segments.generation
        while True:
            self._check_readable(offset)
            limits = self._written_below(limits)
            span = self._find_at_once(offset, limits)
            if span is not None:
                return span
            span = await locate_on_disk(self._segments, offset, limits)
            # If the segments have changed, the search starts over, and the files of this span may be closed.
            if not _may_be_empty(span, limits) or self._segments.generation != generation:
                return span
            offset = await after_empty_batches(span, limits.upper_offset)
            if offset == span.first_offset or self._segments.generation != generation:
                return span

    # --- transactions --------------------------------------------------------------------------------------------
    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the first transaction begins that is open, or whose marker is not replicated yet; None if there is none."""
        offset = self.producers.state.transactions.first_unstable_offset
        return None if offset is None else Offset(max(offset, self.log_start_offset))

    def replicated_up_to(self, high_watermark: Offset) -> None:
        """Notes the high watermark, also after a truncation or a load. Transactions that end below it are stable."""
        self.producers.state.replicated_up_to(high_watermark)

    async def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that end at or after `start_offset` and begin below `upper_offset`.

        A reader needs them to skip the records of these transactions between the two offsets. `upper_offset` must not be
        beyond the first unstable offset. Raises LogClosed, LogDirError, and BatchError if an index is damaged."""

        async def collect() -> list[AbortedTransaction]:
            self._check_usable()
            return await self._segments.aborted_transactions(start_offset, upper_offset)

        return await self._segments.in_one_generation(collect)

    # --- offsets by time -----------------------------------------------------------------------------------------
    async def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Returns the first record, in offset order, whose timestamp is at least `timestamp`; None if there is none."""

        async def find() -> TimestampOffset | None:
            self._check_usable()
            return await first_at_or_after(self._segments, timestamp, from_offset=self.log_start_offset)

        return await self._segments.in_one_generation(find)

    async def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp, None if no record has a timestamp."""

        async def find() -> TimestampOffset | None:
            self._check_usable()
            return await newest(self._segments, from_offset=self.log_start_offset)

        return await self._segments.in_one_generation(find)


def _may_be_empty(span: Span, limits: ReadLimits) -> bool:
    """Whether the read has to look if this is nothing but batches without records, which it is to skip: the size allows it,
    and more follows within the limits."""
    return limits.skips_empty and span.size > 0 and not span.size % BATCH_OVERHEAD and span.next_offset < limits.upper_offset
