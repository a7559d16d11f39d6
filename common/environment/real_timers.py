"""Timers of the real environment, for an event loop with a coarse clock (shell).

uvloop's clock is cached and counts whole milliseconds. A plain `call_later` may fire before the monotonic clock has reached
the deadline, and a caller that waits for its deadline in a loop would spin. These timers round up, check the clock before
they fire and rearm if it is too early. A callback therefore always runs at or after its deadline.
"""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from common.time_units import NS_PER_MS

# Event loops overflow on very long delays, so such a timer rearms once a day.
_DELAY_MAX_MS: Final = 24 * 3600 * 1000


class Timer:
    """Calls `callback` once, from the event loop, when the monotonic clock has reached the deadline.

    Releases the callback once it will not be called any more. Most owners keep their timer and are referenced by its
    callback, and every request has such a timer. If these reference cycles stayed, the garbage collector would free
    thousands of requests at once, which holds up the event loop for up to 100 ms.
    """

    __slots__ = ("_callback", "_deadline_ns", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_ns: int, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._deadline_ns = deadline_ns
        self._callback = callback
        self._handle = self._schedule()

    def cancel(self) -> None:
        """Cancels the callback. Does nothing if it has already been called."""
        self._handle.cancel()
        self._callback = _nothing

    def _schedule(self) -> asyncio.Handle:
        remaining_ns = self._deadline_ns - time.monotonic_ns()
        if remaining_ns <= 0:
            return self._loop.call_soon(self._fire)
        delay_ms = min(-(-remaining_ns // NS_PER_MS), _DELAY_MAX_MS)
        return self._loop.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        if time.monotonic_ns() < self._deadline_ns:
            self._handle = self._schedule()
        else:
            callback, self._callback = self._callback, _nothing
            # A handle keeps what it has called, and so this timer, until it is cancelled; only uvloop's timers do not.
            self._handle.cancel()
            callback()


def _nothing() -> None:
    pass


async def sleep_until(loop: asyncio.AbstractEventLoop, deadline_ns: int) -> None:
    """Waits for the deadline. If it has passed, still yields to the event loop once."""
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    timer = Timer(loop, deadline_ns, wake)
    try:
        await woken
    finally:
        timer.cancel()


class TimeoutAt:
    """Like `asyncio.timeout`, but a `Timer` watches the deadline, so it never expires early."""

    __slots__ = ("_deadline_ns", "_loop", "_timeout", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline_ns: int) -> None:
        self._loop = loop
        self._deadline_ns = deadline_ns
        self._timeout = asyncio.timeout(None)
        self._timer: Timer | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._timer = Timer(self._loop, self._deadline_ns, self._expire)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # The result can be ignored: `asyncio.timeout` never asks to suppress the exception of the body, and it raises
        # TimeoutError itself.
        await self._timeout.__aexit__(kind, value, traceback)

    def _expire(self) -> None:
        self._timeout.reschedule(self._loop.time())
