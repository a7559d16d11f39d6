"""The segments of one log in offset order, and searches that survive the removal of segments (shell).

Counterpart of Kafka's LogSegments. A search suspends while it waits for the disk. Meanwhile a truncation, a deletion or the
closing of the log can remove segments. The search's result is then worthless, and so is a BatchError that it raised. Every
such change increments `generation`, and a search that sees a new generation starts over.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from common.ids import Offset
from common.parts import FileRegion
from common.records.batch import BatchError
from common.storage.producers.transactions import CompletedTransaction
from common.storage.read_limits import ReadLimits
from common.storage.segment import Segment
from common.storage.transaction_index import AbortedTransaction

T = TypeVar("T")

# The number of older segments that keep their offset index in memory.
LOADED_INDEXES_MAX = 2


class LogRead(NamedTuple):
    """Whole batches of one segment. `parts` is empty if there is nothing to read.

    `first_offset` is that of the first batch and may be below the requested offset. The next read starts at `next_offset`.
    """

    parts: Sequence[FileRegion]
    size: int
    first_offset: Offset
    next_offset: Offset


class LogSegments:
    """The segments of one log. Invariant: never empty, in ascending order of base offset."""

    def __init__(self, segments: list[Segment]) -> None:
        # Counts the changes that take away segments or their files. `add` does not count.
        self.generation = 0
        self._segments = segments
        # Invariant: the base offsets of `_segments`, in the same order.
        self._bases = [segment.base_offset for segment in segments]
        # Invariant: the base offsets of the segments with aborted transactions, ascending. Most logs have none, so a reader
        # does not look at each segment for them.
        self._aborted_bases = [segment.base_offset for segment in segments if segment.aborted is not None]
        # The last read that was found at once: what was asked for, and the answer. All replicas and consumers at the end of
        # the log ask for the same. Emptied when segments go, because it keeps a file open.
        self.last_read: tuple[tuple[int, ReadLimits], LogRead] | None = None
        # Older segments that may have their offset index in memory, in the order of loading. `replace` empties it.
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
        """The base offsets of all segments, ascending."""
        return [Offset(base) for base in self._bases]

    def number_of(self, offset: int) -> int:
        """Returns the number of the segment that holds `offset`, 0 for an offset below all segments."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def holding(self, offset: int) -> Segment:
        """Returns the segment that holds `offset`, the first one for an offset below all segments."""
        return self._segments[self.number_of(offset)]

    # --- changing ------------------------------------------------------------------------------------------------
    def add(self, segment: Segment) -> None:
        """Adds a new newest segment. Searches under way stay valid, so the generation does not change."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def note_aborted(self, completed: CompletedTransaction) -> None:
        """Adds an aborted transaction, whose marker is the last batch of the newest segment."""
        if self.newest.aborted is None:
            self._aborted_bases.append(self.newest.base_offset)
        self.newest.note_aborted(completed)

    def replace(self, segments: list[Segment], removed: list[Segment]) -> None:
        """Sets the segments. The files of the `removed` ones close when the last search in them has ended."""
        for segment in removed:
            if segment.file is not None:
                segment.file.retire()
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._aborted_bases = [segment.base_offset for segment in segments if segment.aborted is not None]
        self._loaded_indexes.clear()
        self.last_read = None
        self.generation += 1

    def begin_move_to(self, folder: str) -> None:
        """Notes that the folder is about to be renamed. Searches find its files under either name until `move_to`."""
        for segment in self._segments:
            segment.moving_to = folder

    def move_to(self, folder: str) -> None:
        """Notes the new name of the folder. Files that are open stay open, so searches under way stay valid."""
        for segment in self._segments:
            segment.folder = folder
            segment.moving_to = None

    def retire_files(self) -> None:
        """Closes each file when the last search in it has ended. Called when the log is closed, abandoned or deleted."""
        self.last_read = None
        self.generation += 1
        for segment in self._segments:
            if segment.file is not None:
                segment.file.retire()

    # --- searching -----------------------------------------------------------------------------------------------
    async def in_one_generation(self, search: Callable[[], Awaitable[T]]) -> T:
        """Repeats `search` until no segment is removed during a run, and returns the result of that run."""
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
        """Iterates over the segments from the one that holds `offset`, and keeps each file open while the caller uses it.

        Ends early if segments were removed in the meantime, as their files may be closed.
        """
        generation = self.generation
        for segment in self._segments[self.number_of(offset) :]:
            if segment.file is None or generation != self.generation:
                return
            with segment.file.in_use():
                yield segment

    def may_have_aborted(self, offset: int) -> bool:
        """Whether the segment that holds `offset`, or a later one, has aborted transactions."""
        bases = self._aborted_bases
        return bool(bases) and bases[-1] >= self.holding(offset).base_offset

    async def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that end at or after `start_offset` and begin below `upper_offset`.

        Does not suspend if none of the segments has any, or if they are in memory. Raises CorruptTransactionIndex."""
        found: list[AbortedTransaction] = []
        first = bisect_left(self._aborted_bases, self.holding(start_offset).base_offset)
        for base_offset in self._aborted_bases[first:]:
            segment = self.holding(base_offset)
            if segment.aborted is None:
                # The segments have changed, and the search will start over.
                break
            if segment.aborted.first_offset < upper_offset:
                found += (await segment.load_transactions()).overlapping(start_offset, upper_offset)
                self.note_index_use(segment)
            if segment.aborted.last_stable_offset >= upper_offset:
                break
        return found

    def note_index_use(self, segment: Segment) -> None:
        """Notes that a search uses this segment's index. Keeps the indexes of a few older segments and drops the others."""
        if segment.tail is not None or segment in self._loaded_indexes:
            return
        self._loaded_indexes.append(segment)
        if len(self._loaded_indexes) > LOADED_INDEXES_MAX:
            oldest = self._loaded_indexes.popleft()
            # Until the index files of a rolled segment are written, its indexes are only in memory and must be kept.
            if oldest.undone == 0 and oldest.tail is None:
                oldest.forget_indexes()
