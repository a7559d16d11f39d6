"""Long work in slices: what it returns, and how often it yields."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def counted(work: Generator[None, None, Result]) -> tuple[Result, int]:
    """Carries out the work. Returns its result, and how often it yielded."""
    yields = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, yields
        yields += 1
