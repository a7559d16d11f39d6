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

Sliced = Generator[None, None, Result]


def ends_slice(number: int) -> bool:
    """Whether a slice ends after the item with this number, counted from 0."""
    return number % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1


def decide_at_once(sliced: Sliced[Result]) -> Result:
    """Decides all slices one after the other. Returns the result."""
    while True:
        try:
            next(sliced)
        except StopIteration as end:
            result: Result = end.value
            return result
