"""Runs coroutines without asyncio's tasks (shell).

Most fetches find all that they need in memory and end without a wait, and the others wait once. A task would cost more than
such a handler's own work: the task and its entries in asyncio's and the TaskGroup's sets, its first step in a later turn of
the event loop, and its end in another one. Here the first step is a plain call, and whatever the coroutine waits for resumes
it. There is never a current task, so a coroutine that runs here cannot use timeouts or TaskGroups. No caller handles an
error after the first wait: it reaches the event loop, like that of any callback, and ends the daemon.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")


class LightTasks:
    """The coroutines that wait. They are ended when the task of `run_until_cancelled` is cancelled."""

    def __init__(self) -> None:
        # A dict used as an ordered set.
        self._waiting: dict[LightTask[Any], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, ResultT]) -> "ResultT | LightTask[ResultT]":
        """Runs the coroutine up to its first wait. Returns its result or raises its error if it ends without one, else
        returns what is left of it."""
        try:
            waits_for = coroutine.send(None)
        except StopIteration as ended:
            result: ResultT = ended.value
            return result
        light_task = LightTask(coroutine, self._waiting)
        light_task.wait_for(waits_for)
        return light_task

    async def run_until_cancelled(self) -> None:
        """Waits until it is cancelled, and then ends the coroutines."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for light_task in [*self._waiting]:
                light_task.close()


class LightTask(Generic[ResultT]):
    """A coroutine that has begun to wait. In the turn of the event loop in which it was started, one caller may ask it for a
    call, await it, or take its future."""

    __slots__ = ("_coroutine", "_on_result", "_others")

    def __init__(self, coroutine: Coroutine[Any, Any, ResultT], others: "dict[LightTask[Any], None]") -> None:
        # None once it has ended. What it waited for may call back later.
        self._coroutine: Coroutine[Any, Any, ResultT] | None = coroutine
        self._on_result: Callable[[ResultT], object] | None = None
        self._others = others
        others[self] = None

    def when_ended(self, on_result: Callable[[ResultT], object]) -> None:
        """Calls `on_result` with the result, in the turn of the event loop in which the coroutine ends, but not if the
        coroutine is closed before."""
        assert self._coroutine is not None, "it ended before anyone asked for the result"
        assert self._on_result is None, "there is one caller"
        self._on_result = on_result

    def future(self) -> "asyncio.Future[ResultT]":
        """Returns a future of the result, which stays open if the coroutine is closed."""
        ended: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self.when_ended(lambda result: None if ended.done() else ended.set_result(result))
        return ended

    def __await__(self) -> Generator[Any, Any, ResultT]:
        return self.future().__await__()

    def wait_for(self, waits_for: Any) -> None:
        """Goes on when this is done, which the coroutine has yielded."""
        if waits_for is None:
            # A bare yield, as in asyncio.sleep(0).
            asyncio.get_running_loop().call_soon(self._go_on, None)
        else:
            # A future sets this when it is awaited. Like asyncio's tasks, we reset it when we begin to wait.
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self._go_on)

    def _go_on(self, _: object) -> None:
        if self._coroutine is None:
            return
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as ended:
            on_result = self._on_result
            self._forget()
            if on_result is not None:
                on_result(ended.value)
        except asyncio.CancelledError:
            # What it waited for was given up, because the process is shutting down.
            self._forget()
        else:
            self.wait_for(waits_for)

    def close(self) -> None:
        """Ends the coroutine where it waits, without a result."""
        coroutine = self._coroutine
        if coroutine is not None:
            self._forget()
            coroutine.close()

    def _forget(self) -> None:
        self._coroutine = self._on_result = None
        del self._others[self]
