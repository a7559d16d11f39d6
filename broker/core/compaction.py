"""Decides which log is compacted next, and up to where (core).

Counterpart of Kafka's LogCleanerManager. The *clean* part of a log ends at its first dirty offset: the last compaction got
that far. The *cleanable* part follows and ends at the first segment that must stay as it is:

1. the newest segment, which takes appends;
2. a segment that has records at or beyond the last stable offset, because they may still be truncated, or belong to a
   transaction whose outcome is not known;
3. a segment with a record younger than min.compaction.lag.ms.

A log is due when more than min.cleanable.dirty.ratio of its clean and cleanable bytes are cleanable, or when its oldest
dirty record is older than max.compaction.lag.ms. Among those that are due, the dirtiest is next.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """What counts of one durable segment. Both timestamps are -1 if the segment has none, or if no rule asks for them."""

    base_offset: int
    next_offset: int
    size: int
    first_timestamp_ms: int = -1
    max_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRules:
    """The settings of a topic. Durations are in milliseconds."""

    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The cleanable part of a log."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    min_ratio: float

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        return self.cleanable_bytes > 0 and (self.is_overdue or self.ratio > self.min_ratio)


def first_dirty_offset(checkpointed: int, *, log_start_offset: int, log_end_offset: int) -> int:
    """Returns where the dirty part starts. A checkpoint that does not fit the log is worth nothing."""
    return checkpointed if log_start_offset <= checkpointed <= log_end_offset else log_start_offset


def cleanable_part(
    segments: Sequence[SegmentAge], *, first_dirty_offset: int, last_stable_offset: int, now_ms: int, rules: CompactionRules
) -> Cleanable:
    """Returns the cleanable part of a log. `segments` are the durable ones, without the newest."""
    end_offset = first_dirty_offset
    clean_bytes = cleanable_bytes = 0
    is_overdue = False
    for segment in segments:
        if segment.next_offset <= first_dirty_offset:
            clean_bytes += segment.size
            continue
        is_too_young = rules.min_compaction_lag_ms > 0 and segment.max_timestamp_ms > now_ms - rules.min_compaction_lag_ms
        if segment.next_offset > last_stable_offset or is_too_young:
            break
        end_offset = segment.next_offset
        cleanable_bytes += segment.size
        is_overdue |= 0 <= segment.first_timestamp_ms < now_ms - rules.max_compaction_lag_ms
    return Cleanable(
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        is_overdue=is_overdue,
        min_ratio=rules.min_cleanable_dirty_ratio,
    )


def choose_next(logs: Mapping[Key, Cleanable]) -> Key | None:
    """Returns the dirtiest log that is due, None if none is."""
    due = {key: log.ratio for key, log in logs.items() if log.is_due}
    return max(due, key=due.__getitem__) if due else None
