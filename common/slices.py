"""Long work on the event loop in slices, between which everything else has its turn (shell).

Work for each replica of a broker, or for each one that changed, takes the loop a tenth of a second and more when there are
thousands. Meanwhile no request is answered and no heartbeat leaves. So such work goes through its items with `sliced`, or is
a generator that yields after each item. As with every `await`, anything may happen between two items.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

# A slice of this many items takes a few milliseconds.
ITEMS_PER_SLICE = 50

ItemT = TypeVar("ItemT")


async def sliced(items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
    """Yields the items, and runs the event loop once after every ITEMS_PER_SLICE of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % ITEMS_PER_SLICE == 0:
            await asyncio.sleep(0)


async def in_slices(work: Iterable[None]) -> None:
    """Carries out the work, which yields after each item."""
    async for _ in sliced(work):
        pass
