"""Long decisions in slices (core).

An operation that concerns all replicas of a broker or of a directory may have to decide about 100,000 partitions. It is a
generator: it yields after each slice of partitions and finally returns its result. It decides by one version of the state,
because the shell replays nothing between two slices (`QuorumController`). Between them the event loop runs other tasks.
"""

from collections.abc import Generator
from typing import Final, TypeVar

Result = TypeVar("Result")

# A slice of this many partitions blocks the event loop for a few milliseconds.
PARTITIONS_PER_SLICE: Final = 500
# What it costs to validate or describe the configuration of a topic or of another resource, in partitions.
RESOURCE_COST: Final = 10

Sliced = Generator[None, None, Result]


def ends_slice(number: int) -> bool:
    """Whether a slice ends after the item with this number, counted from 0."""
    return number % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1


class SliceMeter:
    """Counts the work since the last slice of an operation on things of different cost."""

    def __init__(self) -> None:
        self._done = 0

    def ends_slice(self, cost: int) -> bool:
        """Whether a slice ends after this work. `cost` is counted in partitions."""
        self._done += cost
        if self._done < PARTITIONS_PER_SLICE:
            return False
        self._done = 0
        return True


def slices_of(work: Generator[None, None, Result], cost: int) -> Sliced[Result]:
    """Turns work that yields after each item into slices. `cost` is that of an item, counted in partitions."""
    meter = SliceMeter()
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
        if meter.ends_slice(cost):
            yield
