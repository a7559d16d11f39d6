"""Long work in slices: what it returns, and how often it yields."""

import asyncio
from collections.abc import Awaitable, Generator
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


async def result_and_turns(asking: Awaitable[Result]) -> tuple[Result, int]:
    """Returns the result, and how many turns of the event loop it took."""
    answering, turns = asyncio.ensure_future(asking), 0
    while not answering.done():
        await asyncio.sleep(0)
        turns += 1
    return answering.result(), turns
