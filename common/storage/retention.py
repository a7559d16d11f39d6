"""Selects the segments that retention deletes (shell: it reads from disk the times that are not in memory).

Counterpart of Kafka's deletion by retention.ms and retention.bytes, with these rules:

1. Segments are deleted from the oldest on, up to the first one that must stay.
2. A segment with records at or beyond the high watermark stays.
3. Retention by size deletes a segment only if the remaining ones still reach the limit.
4. If no record of a segment has a timestamp, the segment is as old as its file. So is one that a compaction by a broker of
   Apache Kafka has left without records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.storage.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """Retention settings; a negative number means no limit."""

    retention_ms: int
    retention_bytes: int


async def expired_segments(segments: Sequence[Segment], expiry: Expiry, *, now_ms: int, high_watermark: int) -> int:
    """Returns how many segments, counted from the oldest, may be deleted. Raises LogDirError and BatchError."""
    by_size = _beyond_size(segments, expiry.retention_bytes)
    count = 0
    for segment in segments:
        is_empty_newest = segment is segments[-1] and segment.size == 0
        if segment.next_offset > high_watermark or is_empty_newest:
            break
        if count >= by_size and not await _is_too_old(segment, expiry.retention_ms, now_ms):
            break
        count += 1
    return count


def _beyond_size(segments: Sequence[Segment], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


async def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0 or segment.file is None:
        return False
    with segment.file.in_use():
        newest = await segment.load_max_timestamp()
    if newest < 0:
        stat = await segment.log_dir.stat(segment.path())
        if stat is None:
            return False
        newest = stat.modified_ms
    return now_ms - newest > retention_ms
