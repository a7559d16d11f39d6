"""Runs a coroutine up to its first wait without a task (shell).

Most fetches find all that they need in memory and end without a wait. A task for each would cost more than the handler's own
work: the task, its first step in a later turn of the event loop, and its end in another one.
"""

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


def run_first_step(coroutine: Coroutine[Any, Any, ResultT]) -> ResultT | Coroutine[Any, Any, ResultT]:
    """Returns the coroutine's result if it ends without a wait; otherwise a coroutine that waits and goes on. Up to the wait
    there is no current task, so timeouts cannot be used there."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as ended:
        result: ResultT = ended.value
        return result
    return _go_on(coroutine, waits_for)


async def _go_on(coroutine: Coroutine[Any, Any, ResultT], waits_for: object) -> ResultT:
    return await _Rest(coroutine, waits_for)


class _Rest(Generator[Any, Any, ResultT]):
    """What is left of a coroutine that has begun to wait."""

    __slots__ = ("_coroutine", "_has_gone_on", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, ResultT], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for
        self._has_gone_on = False

    def __await__(self) -> Generator[Any, Any, ResultT]:
        return self

    def send(self, value: Any) -> Any:
        if self._has_gone_on:
            return self._coroutine.send(value)
        # The task has to wait for this before the coroutine can go on.
        self._has_gone_on = True
        waits_for, self._waits_for = self._waits_for, None
        return waits_for

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)
