"""One life of a node as its kernel sees it: everything that runs for it, so that it can be stopped, let go on, or killed.

Shell of the tests. The process travels in the context variable `PROCESS`: tasks, callbacks and timers inherit it from the
code that made them, so the loop knows to whom each of them belongs. Those of a stopped process (SIGSTOP) are held back in
order, those of a dead one never run again: no call of it returns, no `finally` of it does anything. The easy thing to get
wrong: what the network and the disks do by themselves goes on, so they schedule in `NO_PROCESS`.
"""

import asyncio
from contextlib import suppress
from contextvars import Context, ContextVar
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from typing import Any

# A coroutine may catch its end and wait again; one that does so this often is reported.
CLOSE_ATTEMPTS = 20


class SimulatedProcess:
    """Invariant: while it is paused or dead nothing in its context runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_dead = False
        self.context = Context()
        self.context.run(PROCESS.set, self)
        # Only of the living ones; a dead process keeps what it left, or the collector would end it at any time.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._held: list[asyncio.Handle] = []

    @property
    def is_stopped(self) -> bool:
        return self.is_paused or self.is_dead

    def hold(self, handle: asyncio.Handle) -> None:
        """The loop came to a callback of a stopped process."""
        if not self.is_dead:
            self._held.append(handle)

    def take_held(self) -> tuple[list[asyncio.Handle], list[asyncio.TimerHandle]]:
        """What was held back: first what had been called for, then the timers that ran out."""
        held, self._held = self._held, []
        timers = [handle for handle in held if isinstance(handle, asyncio.TimerHandle)]
        return [handle for handle in held if not isinstance(handle, asyncio.TimerHandle)], timers

    def kill(self) -> None:
        self.is_dead = True
        self._held.clear()

    def bury(self) -> None:
        """Lets go of what a dead process left, at the end of its world. Its environment does nothing any more."""
        for task in self.tasks:
            # Destroyed while pending is what it is meant to be.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
        self.tasks.clear()


def _close(coroutine: Any) -> None:
    if getcoroutinestate(coroutine) == CORO_CREATED:
        # It was never begun, and neither were those that it was given to await.
        for inner in filter(iscoroutine, coroutine.cr_frame.f_locals.values()):
            _close(inner)
    for _ in range(CLOSE_ATTEMPTS):
        # Whatever its last words are, nobody is there to hear them.
        with suppress(BaseException):
            coroutine.close()
            return
    raise AssertionError(f"{coroutine} does not end")


PROCESS: ContextVar[SimulatedProcess] = ContextVar("PROCESS")

NO_PROCESS = Context()
"""The context of what belongs to no process: wires, disks, the scenario."""
