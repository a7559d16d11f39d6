"""Finds the range of whole batches that a read returns (shell).

Counterpart of Kafka's LocalLog.read. Consumers that keep up are served from memory: the newest segment knows the positions
of its latest batches, and every segment remembers where its sequential readers will continue. Any other read searches in the
page cache, if the index is in memory and the few batches that the search looks at are cached, and else on disk. A read ends
at the end of a batch and within its limits. Its first batch may start below the requested offset.
"""

from typing import NamedTuple

from common.records.batch import BATCH_OVERHEAD
from common.storage.cached_headers import PIECE, NotCached, cached_headers
from common.storage.index_entries import CorruptIndex
from common.storage.log_segments import LogSegments
from common.storage.read_limits import ReadLimits
from common.storage.segment import Segment


class Span(NamedTuple):
    """A range of whole batches in one segment."""

    segment: Segment
    position: int
    size: int
    first_offset: int
    next_offset: int


def nothing_at(segment: Segment, offset: int) -> Span:
    """Returns the empty span for a read that finds nothing at `offset`."""
    return Span(segment, 0, 0, offset, offset)


def locate_in_memory(segment: Segment, offset: int, limits: ReadLimits) -> Span | None:
    """Returns the span to read, None if only a search on disk can find it. `segment` must be the one that holds `offset`."""
    if offset >= limits.upper_offset:
        return nothing_at(segment, offset)
    if segment.tail is not None and segment.tail.covers(offset):
        return _locate_in_tail(segment, offset, limits)
    position = segment.resume_point(offset)
    if position is not None and segment.next_offset <= limits.upper_offset:
        size = segment.written_size - position
        if 0 < size <= limits.max_bytes:
            return Span(segment, position, size, offset, segment.next_offset)
    return None


def _locate_in_tail(segment: Segment, offset: int, limits: ReadLimits) -> Span:
    tail, upper_offset = segment.tail, limits.upper_offset
    assert tail is not None
    found = tail.batch_for(offset)
    if found is None:
        return nothing_at(segment, offset)
    first_offset, start = found
    end = tail.end_of_whole_batches(
        size_limit=start + limits.max_bytes, upper_offset=upper_offset, segment_size=segment.size
    )
    if end <= start and limits.min_one_batch:
        first_end = tail.first_end(start, segment.size)
        end = tail.end_of_whole_batches(size_limit=first_end, upper_offset=upper_offset, segment_size=segment.size)
    if end <= start:
        return nothing_at(segment, offset)
    next_offset = tail.next_offset_at(end)
    return Span(segment, start, end - start, first_offset, segment.next_offset if next_offset is None else next_offset)


def locate_in_page_cache(segments: LogSegments, offset: int, limits: ReadLimits) -> Span | None:
    """Like `locate_on_disk`, but never waits. Returns None if only a search on disk can find the span."""
    segment = segments.holding(offset)
    if segment.index is None or segment.file is None:
        return None
    try:
        span = _search_page_cache(segment, offset, limits)
    except (NotCached, CorruptIndex):
        return None
    segments.note_index_use(segment)
    return span


def _search_page_cache(segment: Segment, offset: int, limits: ReadLimits) -> Span | None:
    end, upper_offset = segment.written_size, limits.upper_offset
    headers = segment.cached_headers_for(offset)
    batch = next(headers, None)
    if batch is None:
        return None
    first_offset, start = batch.base_offset, batch.position
    size_limit = start + limits.max_bytes
    if end <= size_limit and segment.next_offset <= upper_offset:
        return Span(segment, start, end - start, first_offset, segment.next_offset)
    if limits.max_bytes > PIECE:
        near = segment.indexed_before_end(size_limit=size_limit, upper_offset=upper_offset)
        if near is not None and near.position > start:
            headers = segment.cached_headers_from(near, offset)
            batch = next(headers)
    while True:
        position, next_offset = batch.position, batch.base_offset
        fits = position + batch.size <= size_limit or (limits.min_one_batch and position == start)
        if not fits or batch.last_offset >= upper_offset:
            break
        position, next_offset = position + batch.size, batch.last_offset + 1
        following = next(headers, None)
        if following is None:
            break
        batch = following
    if position == start:
        return None
    if position < end:
        segment.note_resume_point(next_offset, position)
    return Span(segment, start, position - start, first_offset, next_offset)


async def locate_on_disk(segments: LogSegments, offset: int, limits: ReadLimits) -> Span:
    """Like `locate_in_memory`, but searches on disk. Raises LogDirError and BatchError."""
    for segment in segments.while_unchanged(offset):
        segments.note_index_use(segment)
        found = await segment.find_batch(offset)
        if found is None:
            # The offset falls into a gap at the segment's end. The next batch is in the next segment.
            continue
        first_offset, start = found
        end, next_offset = await segment.find_end(start, limits)
        if end == start:
            break
        return Span(segment, start, end - start, first_offset, next_offset)
    return nothing_at(segments.newest, offset)


def after_empty_batches_in_page_cache(span: Span, upper_offset: int) -> int:
    """Returns the offset after all batches without records that lead the span: its first offset if there are none. Goes on
    beyond the span's end, up to the last batch that ends below `upper_offset`. Raises NotCached."""
    if span.size == BATCH_OVERHEAD:
        return span.next_offset
    segment, next_offset = span.segment, span.first_offset
    assert segment.file is not None
    for batch in cached_headers(
        segment.log_dir,
        segment.file.handle,
        span.position,
        segment.written_size,
        offset=next_offset,
        first_ends_at=None,
    ):
        if batch.size != BATCH_OVERHEAD or batch.last_offset + 1 >= upper_offset:
            break
        next_offset = batch.last_offset + 1
    return next_offset


async def after_empty_batches(span: Span, upper_offset: int) -> int:
    """Like `after_empty_batches_in_page_cache`, but reads the disk. Raises LogDirError and BatchError."""
    segment, next_offset = span.segment, span.first_offset
    assert segment.file is not None
    with segment.file.in_use():
        scan = segment.scan(span.position)
        while (found := await scan.next()) is not None:
            header, _ = found
            if header.size != BATCH_OVERHEAD or header.next_offset >= upper_offset:
                break
            next_offset = header.next_offset
    return next_offset
