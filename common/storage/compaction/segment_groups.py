"""Decides which segments of a log become one when it is compacted (core).

Counterpart of Kafka's Cleaner.groupSegmentsBySize. Without merging, a log that is compacted again and again would be left
with many segments of a few records each.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from common.records.batch import BATCH_OVERHEAD
from common.storage.time_index import time_entries_max

RELATIVE_OFFSET_MAX = 2**31 - 1


class Sized(Protocol):
    """What counts of a segment."""

    base_offset: int
    next_offset: int
    size: int


AnySized = TypeVar("AnySized", bound=Sized)


def group_bytes_max(segment_bytes: int, *, segment_index_bytes: int, index_interval_bytes: int) -> int:
    """Returns how large a group may be, so that neither the segment that it becomes nor an index of it is too large.

    Kafka adds up the entries of the indexes. Here they are not in memory; but more than index.interval.bytes, and at least a
    batch, lie between two entries, so as many bytes as this have no more entries than a time index may have."""
    bytes_between_entries = max(index_interval_bytes + 1, BATCH_OVERHEAD)
    return min(segment_bytes, time_entries_max(segment_index_bytes) * bytes_between_entries)


def group_segments(segments: Sequence[AnySized], group_bytes: int) -> list[list[AnySized]]:
    """Splits consecutive segments into groups. Each group fits into one segment by its present size, and by the range of
    offsets that an index can hold; a segment that is too large already is a group of its own."""
    groups: list[list[AnySized]] = []
    size = 0
    for segment in segments:
        fits = (
            bool(groups)
            and size + segment.size <= group_bytes
            and segment.next_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups
