"""Long work on the event loop in slices, between which everything else has its turn (shell).

Work for each replica of a broker, or for each one that changed, takes the loop a tenth of a second and more when there are
thousands. Meanwhile no request is answered and no heartbeat leaves. So such work is a generator that yields after each item
(`in_slices`), or the loop of a coroutine that calls `pause_before` for each. As with every `await`, anything may happen
between two items.
"""

import asyncio
from collections.abc import Iterable

# A slice of this many items takes a few milliseconds.
ITEMS_PER_SLICE = 50


async def in_slices(work: Iterable[None]) -> None:
    """Carries out the work, which yields after each item."""
    for number, _ in enumerate(work, start=1):
        await pause_before(number)


async def pause_before(number: int) -> None:
    """Runs the event loop once if the item of this number, counted from 0, begins another slice."""
    if number and number % ITEMS_PER_SLICE == 0:
        await asyncio.sleep(0)
