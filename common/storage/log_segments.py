"""The segments of one log, in order, and how to look things up in them while they may be taken away (shell).

Answers to Kafka's LogSegments. A search suspends for the disk, and meanwhile a truncation, a deletion or the log's end may
take segments away. Easy to get wrong: what such a search has found is worthless then, and so is an error that it met. Every
such change counts up `generation`, and whoever sees another one than before asks everything again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from common.ids import Offset
from common.records.batch import BatchError
from common.storage.segment import Segment

T = TypeVar("T")

# How many segments other than the newest keep their offset index in memory.
LOADED_INDEXES_MAX = 2


class LogSegments:
    """Never empty; ascending."""

    def __init__(self, segments: list[Segment]) -> None:
        self.generation = 0
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._loaded_indexes: deque[Segment] = deque()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def newest(self) -> Segment:
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[Offset]:
        """Ascending."""
        return [Offset(base) for base in self._bases]

    def number_of(self, offset: int) -> int:
        """The number of the segment that holds `offset`; the first one's for an offset below them all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def holding(self, offset: int) -> Segment:
        """That segment."""
        return self._segments[self.number_of(offset)]

    # --- changing ------------------------------------------------------------------------------------------------
    def add(self, segment: Segment) -> None:
        """A new newest one. Nothing that was found before becomes wrong by it."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, segments: list[Segment], removed: list[Segment]) -> None:
        """From now on these are the segments. The files of those removed are closed when the last search has ended."""
        for segment in removed:
            if segment.file is not None:
                segment.file.retire()
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._loaded_indexes.clear()
        self.generation += 1

    def retire_files(self) -> None:
        """For the end of the log: closes all files, in the same way."""
        self.generation += 1
        for segment in self._segments:
            if segment.file is not None:
                segment.file.retire()

    # --- searching -----------------------------------------------------------------------------------------------
    async def in_one_generation(self, search: Callable[[], Awaitable[T]]) -> T:
        """What `search` finds, asked as often as segments are taken away meanwhile."""
        while True:
            generation = self.generation
            try:
                found = await search()
            except BatchError:
                if generation == self.generation:
                    raise
                continue
            if generation == self.generation:
                return found

    def while_unchanged(self, offset: int) -> Iterator[Segment]:
        """The segments from the one that holds `offset` on, each held open while the caller looks at it. Ends early when
        segments were taken away meanwhile: their files may be closed."""
        generation = self.generation
        for segment in self._segments[self.number_of(offset) :]:
            if segment.file is None or generation != self.generation:
                return
            with segment.file.in_use():
                yield segment

    def note_index_use(self, segment: Segment) -> None:
        """Keeps the indexes of a few older segments in memory and lets the others go."""
        if segment.tail is not None or segment in self._loaded_indexes:
            return
        self._loaded_indexes.append(segment)
        if len(self._loaded_indexes) > LOADED_INDEXES_MAX:
            oldest = self._loaded_indexes.popleft()
            # Until its files are written, the indexes of a rolled segment are only in memory.
            if oldest.undone == 0 and oldest.tail is None:
                oldest.forget_indexes()
