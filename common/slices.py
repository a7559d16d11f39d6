"""Long work on the event loop in slices, between which everything else has its turn (shell).

Work for each replica of a broker, or for each one that changed, takes the loop a tenth of a second and more when there are
thousands. Meanwhile no request is answered and no heartbeat leaves. So such work is a generator that yields after each item
(`in_slices`, and `result_in_slices` if it returns something), or the loop of a coroutine that calls `pause_before` for each.
As with every `await`, anything may happen between two items.
"""

import asyncio
from collections.abc import Generator, Iterable
from typing import TypeVar

Result = TypeVar("Result")

# A slice of this many items takes a few milliseconds.
ITEMS_PER_SLICE = 50
# A slice of the encoding or decoding of this many elements of a message takes a few milliseconds.
ELEMENTS_PER_SLICE = 1_000


async def in_slices(work: Iterable[None]) -> None:
    """Carries out the work, which yields after each item."""
    for number, _ in enumerate(work, start=1):
        await pause_before(number)


async def result_in_slices(work: Generator[None, None, Result], *, items: int = ITEMS_PER_SLICE) -> Result:
    """Carries out the work, which yields after each item, `items` of them at a time. Returns its result."""
    number = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
        number += 1
        if number % items == 0:
            await pause()


def at_once(work: Generator[None, None, Result]) -> Result:
    """Carries out the work without a break, because there is little of it. Returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result


async def pause_before(number: int) -> None:
    """Runs the event loop once if the item of this number, counted from 0, begins another slice."""
    if number and number % ITEMS_PER_SLICE == 0:
        await pause()


async def pause() -> None:
    """Runs the event loop once. For work that cannot be interrupted, but follows other work of that kind."""
    await asyncio.sleep(0)
