"""One life of a node as a process that can be paused, resumed and killed as a whole.

Shell of the tests. The process travels in the context variable `PROCESS`: tasks, callbacks and timers inherit it from the
code that created them, so the event loop knows the owner of each. Callbacks of a paused process (SIGSTOP) are held back in
order. Callbacks of a dead process never run again: its calls do not return, and its `finally` blocks do not run. The network
and the disks keep working without the process, so they schedule their callbacks in `NO_PROCESS`.
"""

import asyncio
from contextlib import suppress
from contextvars import Context, ContextVar
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from typing import Any

# A coroutine may catch GeneratorExit and await again. A coroutine that does so this many times is reported.
CLOSE_ATTEMPTS = 20


class SimulatedProcess:
    """Invariant: while the process is paused or dead, nothing runs in its context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_dead = False
        # Whether it is paused or dead. The loop asks before each callback.
        self.is_stopped = False
        self.context = Context()
        self.context.run(PROCESS.set, self)
        # The unfinished tasks. A dead process keeps its tasks here. Otherwise the garbage collector would run their
        # `finally` blocks at an arbitrary time.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._held: list[asyncio.Handle] = []

    def pause(self) -> None:
        self.is_paused = self.is_stopped = True

    def resume(self) -> None:
        self.is_paused = False
        self.is_stopped = self.is_dead

    def hold(self, handle: asyncio.Handle) -> None:
        """Keeps a callback that became ready while the process was stopped. A dead process drops it."""
        if not self.is_dead:
            self._held.append(handle)

    def take_held(self) -> tuple[list[asyncio.Handle], list[asyncio.TimerHandle]]:
        """Returns what was held back: the callbacks, and the expired timers."""
        held, self._held = self._held, []
        timers = [handle for handle in held if isinstance(handle, asyncio.TimerHandle)]
        return [handle for handle in held if not isinstance(handle, asyncio.TimerHandle)], timers

    def kill(self) -> None:
        self.is_dead = self.is_stopped = True
        self._held.clear()

    def bury(self) -> None:
        """Closes the tasks that a dead process left. The world calls this at its end, when calls to the dead node's
        environment do nothing."""
        for task in self.tasks:
            # Keep asyncio from complaining that the task was destroyed while pending: that is intended.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self.tasks.clear()


def _close(coroutine: Any) -> None:
    if getcoroutinestate(coroutine) == CORO_CREATED:
        # The coroutine never started, so neither did the coroutines it got as arguments. Close those as well.
        for inner in filter(iscoroutine, coroutine.cr_frame.f_locals.values()):
            _close(inner)
    for _ in range(CLOSE_ATTEMPTS):
        # The process is dead, so an exception that its code raises now does not matter.
        with suppress(BaseException):
            coroutine.close()
            return
    raise AssertionError(f"{coroutine} does not end")


PROCESS: ContextVar[SimulatedProcess] = ContextVar("PROCESS")

NO_PROCESS = Context()
"""The context of everything that belongs to no process: the network, the disks, the scenario."""
