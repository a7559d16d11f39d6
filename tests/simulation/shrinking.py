"""From a failing schedule to a short one: the shortest prefix that still fails, then every fault left out that can be.

Core of the tests: it knows nothing of simulations but a function that says whether a list still fails. Easy to get wrong: a
shorter schedule may fail in another way, so what counts as "still fails" is the caller's to say.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], still_fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A short part of `items`, in order, that still fails. `items` as a whole is known to fail."""
    kept = _shortest_prefix(items, still_fails)
    size = len(kept) // 2
    while size > 0:
        # The last of a shortest prefix is needed; what comes before it is tried from the latest, first in large pieces.
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
    """By bisection: `low` items are taken to pass, `high` items are known to fail."""
    low, high = -1, len(items)
    while high - low > 1:
        middle = (low + high) // 2
        if still_fails(items[:middle]):
            high = middle
        else:
            low = middle
    return list(items[:high])
