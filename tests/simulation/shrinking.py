"""Shrinks a failing schedule: finds the shortest prefix that still fails, then leaves out every fault that is not needed.

Core of the tests. It knows nothing about simulations; the caller passes a function that returns whether a list still fails.
A shorter schedule may fail in another way, so the caller also decides what counts as the same failure.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], still_fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Returns a short subsequence of `items` that still fails. The whole of `items` is known to fail."""
    kept = _shortest_prefix(items, still_fails)
    size = len(kept) // 2
    while size > 0:
        # The last item of the shortest failing prefix is needed. Try to leave out the others: large pieces before small
        # ones, and late pieces before early ones.
        end = len(kept) - 1
        while end > 0:
            begin = max(0, end - size)
            without = kept[:begin] + kept[end:]
            if still_fails(without):
                kept = without
            end = begin
        size //= 2
    return kept


def _shortest_prefix(items: Sequence[T], still_fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Bisects: assumes that the first `low` items pass, and knows that the first `high` items fail."""
    low, high = -1, len(items)
    while high - low > 1:
        middle = (low + high) // 2
        if still_fails(items[:middle]):
            high = middle
        else:
            low = middle
    return list(items[:high])
