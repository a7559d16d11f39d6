"""Decides which segments of a log become one when it is compacted (core).

Counterpart of Kafka's Cleaner.groupSegmentsBySize. Without merging, a log that is compacted again and again would be left
with many segments of a few records each.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

RELATIVE_OFFSET_MAX = 2**31 - 1


class Sized(Protocol):
    """What counts of a segment."""

    base_offset: int
    next_offset: int
    size: int


AnySized = TypeVar("AnySized", bound=Sized)


def group_segments(segments: Sequence[AnySized], segment_bytes: int) -> list[list[AnySized]]:
    """Splits consecutive segments into groups. Each group fits into one segment by its present size, and by the range of
    offsets that an index can hold; a segment that is too large already is a group of its own."""
    groups: list[list[AnySized]] = []
    size = 0
    for segment in segments:
        fits = (
            bool(groups)
            and size + segment.size <= segment_bytes
            and segment.next_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups
