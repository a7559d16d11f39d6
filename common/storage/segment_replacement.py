"""Putting a compacted segment into the place of the segments that it was made of (shell).

Counterpart of UnifiedLog.replaceSegments in Kafka. `LogCompaction` writes the new segment while the log is in use, and
`compaction.swap` has the order of the renames; here the log's own bookkeeping changes with them.
"""

from collections.abc import Sequence
from itertools import dropwhile, zip_longest

from common.storage.compaction.swap import open_cleaned, swap_steps
from common.storage.outstanding import Steps
from common.storage.segment import Segment
from common.storage.segment_deletion import SegmentDeletion


class SegmentReplacement(SegmentDeletion):
    """See the module docstring."""

    def durable_segments(self) -> list[Segment]:
        """Returns the segments that take no more appends and survive a power cut, oldest first."""
        self._check_usable()
        return [each for each in [*self._segments][:-1] if each.next_offset <= self.recovery_point and not each.undone]

    def left_by_retention(self, segments: Sequence[Segment]) -> list[Segment]:
        """Returns those of these segments that are still in the log, if only oldest ones have gone. Returns none if the log
        was truncated below their end. They must have followed each other from the start of the log on."""
        present = [*self._segments]
        left = [*dropwhile(lambda each: each is not present[0], segments)]
        return left if all(a is b for a, b in zip_longest(left, present[: len(left)])) else []

    async def create_cleaned(self, base_offset: int) -> Segment:
        """Creates the file of a segment that is to replace others. Raises LogClosed and LogDirError."""
        async with self._lock:
            self._check_usable()
            return await open_cleaned(self.log_dir, self.name, base_offset)

    async def discard_cleaned(self, cleaned: Segment) -> None:
        """Removes the file of a segment that will not replace any."""
        assert cleaned.file is not None
        cleaned.file.retire()
        async with self._lock:
            if not self.is_closed:
                await self.log_dir.remove(cleaned.cleaned_path(self.name))

    async def swap_in(self, cleaned: Segment, replaced: Sequence[Segment]) -> bool:
        """Durably puts a written and synced segment into the place of others that follow each other. Returns False, and
        changes nothing, if any of them is no longer in the log. Raises LogClosed and LogDirError."""
        async with self._lock:
            self._check_usable()
            # A segment cannot be renamed safely while it or its index files are being written to disk.
            while any(segment.undone for segment in replaced):
                await self._background.wait_for_an_end()
                self._check_usable()
            segments = [*self._segments]
            number = self._segments.number_of(replaced[0].base_offset)
            after = number + len(replaced)
            if after >= len(segments) or any(a is not b for a, b in zip(segments[number:after], replaced, strict=True)):
                return False
            cleaned.folder = self.name
            cleaned.undone = 1
            self._segments.replace([*segments[:number], cleaned, *segments[after:]], [*replaced])
            await self._run(self._swap_steps(cleaned, replaced))
        return True

    def _swap_steps(self, cleaned: Segment, replaced: Sequence[Segment]) -> Steps:
        yield from self.producers.drop_below_steps(self.name, replaced[-1].next_offset)
        yield from swap_steps(cleaned, replaced)
        yield from self._dispose_steps(replaced)
