"""Up to where a log may be deleted, by age and by size (core).

Answers to UnifiedLog.deleteOldSegments. Whole segments go, oldest first, and none that reaches above the high watermark: a
follower may still need it. Easy to get wrong: the newest segment counts too. A topic that nobody writes to any more would
otherwise keep its last segment for ever, so an expired one is rolled and then deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.ids import Offset

UNLIMITED = -1
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What retention looks at. `max_timestamp` is NO_TIMESTAMP where no record has one."""

    base_offset: Offset
    next_offset: Offset
    size: int
    max_timestamp: int


def calculate_deletion_point(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    high_watermark: Offset,
) -> Offset | None:
    """The offset below which every segment may go; None when all stay. `segments` are in order, the newest last."""
    deletable = max(
        _expired(segments, now_ms=now_ms, retention_ms=retention_ms),
        _exceeding(segments, retention_bytes=retention_bytes),
    )
    while deletable and segments[deletable - 1].next_offset > high_watermark:
        deletable -= 1
    return segments[deletable - 1].next_offset if deletable else None


def _expired(segments: Sequence[SegmentFacts], *, now_ms: int, retention_ms: int) -> int:
    if retention_ms == UNLIMITED:
        return 0
    count = 0
    for segment in segments:
        if segment.size == 0 or segment.max_timestamp == NO_TIMESTAMP or now_ms - segment.max_timestamp <= retention_ms:
            break
        count += 1
    return count


def _exceeding(segments: Sequence[SegmentFacts], *, retention_bytes: int) -> int:
    if retention_bytes == UNLIMITED:
        return 0
    excess = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    # The newest segment stays: what is being written is never too much.
    for segment in segments[:-1]:
        if excess < segment.size:
            break
        excess -= segment.size
        count += 1
    return count
