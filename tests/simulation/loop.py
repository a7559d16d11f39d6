"""An asyncio event loop whose clock is a number: waiting costs nothing and every run of a seed is the same run.

Shell of the tests. asyncio's own BaseEventLoop runs the callbacks; only its selector is ours: where a real selector would
sleep, this one moves the clock to the next timer. Nothing to wait for means that the program waits for ever, which is
reported as `SimulationDeadlock` with the waiting tasks. Threads are refused. The easy thing to get wrong: TaskGroup and
`asyncio.wait` keep *sets*, so tasks and futures hash by sequence number here, never by address.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

NANOSECONDS = 1_000_000_000

# A program that goes on at one instant for this many rounds of the loop is taken to be spinning.
ROUNDS_AT_ONE_INSTANT_MAX = 1_000_000

# How many failed futures may be held before the ones that somebody looked at are forgotten.
FAILED_KEPT = 1024


class SimulationDeadlock(Exception):
    """Nothing is scheduled and the scenario is not done: whoever waits, waits for ever."""


class SimulationLivelock(Exception):
    """The program runs on and on without the clock moving."""


class SimulationTooLong(Exception):
    """The scenario passed its limit of virtual time."""


def wake(future: asyncio.Future[Any]) -> None:
    """Completes a future that somebody may have cancelled or completed already."""
    if not future.done():
        future.set_result(None)


class SimulatedFuture(asyncio.Future[Any]):
    """A future that hashes by sequence number, and is remembered when it fails."""

    def __init__(self, *, loop: "SimulatedLoop") -> None:
        self.sequence = loop.next_sequence()
        self._simulated_loop = loop
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.sequence

    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        self._simulated_loop.note_failed(self)


class SimulatedTask(asyncio.Task[Any]):
    """A task that hashes by sequence number, and is remembered when it fails."""

    def __init__(self, coro: Any, *, loop: "SimulatedLoop", name: object, context: contextvars.Context | None) -> None:
        # Registering a task hashes it, so the number comes first.
        self.sequence = loop.next_sequence()
        text = f"task-{self.sequence}" if name is None else str(name)
        super().__init__(coro, loop=loop, name=text, context=context)
        self.add_done_callback(loop.note_done)

    def __hash__(self) -> int:
        return self.sequence


class _ClockSelector:
    """Stands where BaseEventLoop wants a selector: there are no files to watch, only the next timer to jump to."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        self._loop.wait(timeout)
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Virtual time, one thread, deterministic. `now_ns` is the clock; it starts at one second, because no clock shows 0."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = NANOSECONDS
        self.limit_ns: int | None = None
        self.failed: list[asyncio.Future[Any]] = []
        self._sequence = 0
        self._rounds_at_this_instant = 0
        self._selector = _ClockSelector(self)
        self._clock_resolution = 1e-9
        self.set_task_factory(self._make_task)

    def __del__(self) -> None:
        """There is nothing to close in a loop that was never run."""

    def time(self) -> float:
        return self.now_ns / NANOSECONDS

    def call_at_ns(self, deadline_ns: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """`call_at` on the clock's own integers: the callback never runs before `now_ns >= deadline_ns`."""
        return self.call_at(deadline_ns / NANOSECONDS, callback)

    async def sleep_until(self, deadline_ns: int) -> None:
        woken = self.create_future()
        timer = self.call_at_ns(deadline_ns, lambda: wake(woken))
        try:
            await woken
        finally:
            timer.cancel()

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def create_future(self) -> SimulatedFuture:
        return SimulatedFuture(loop=self)

    def note_done(self, task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and task._log_traceback:
            self.note_failed(task)

    def note_failed(self, future: asyncio.Future[Any]) -> None:
        self.failed.append(future)
        if len(self.failed) > FAILED_KEPT:
            self.failed = [failed for failed in self.failed if failed._log_traceback]

    def unretrieved(self) -> list[BaseException]:
        """The exceptions of tasks and futures that nobody has looked at. Looks at them, so that they are told once."""
        found = [future for future in self.failed if future._log_traceback]
        self.failed.clear()
        return [error for future in found if (error := future.exception()) is not None]

    def waiting_tasks(self) -> list[asyncio.Task[Any]]:
        """All unfinished tasks, oldest first."""
        return sorted(asyncio.all_tasks(self), key=hash)

    def wait(self, timeout: float | None) -> None:
        """What the selector does instead of sleeping."""
        if timeout is None:
            raise SimulationDeadlock(self._describe_waiting())
        if timeout == 0:
            self._rounds_at_this_instant += 1
            if self._rounds_at_this_instant > ROUNDS_AT_ONE_INSTANT_MAX:
                raise SimulationLivelock(f"the clock stands at {self.now_ns} ns: {self._describe_waiting()}")
            return
        self._rounds_at_this_instant = 0
        self.now_ns += max(1, round(timeout * NANOSECONDS))
        if self.limit_ns is not None and self.now_ns > self.limit_ns:
            raise SimulationTooLong(f"the clock passed {self.limit_ns} ns: {self._describe_waiting()}")

    def _describe_waiting(self) -> str:
        lines = []
        for task in self.waiting_tasks():
            frames = task.get_stack(limit=1)
            where = f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "not started"
            lines.append(f"  {task.get_name()} at {where}")
        return f"{len(lines)} task(s) wait and nothing is scheduled\n" + "\n".join(lines)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        /,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **_: object,
    ) -> SimulatedTask:
        return SimulatedTask(coro, loop=self, name=name, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        raise RuntimeError(f"there are no threads in the simulation: {callback} cannot come from one")

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Arguments]], _Result], *args: *_Arguments
    ) -> asyncio.Future[_Result]:
        raise RuntimeError(f"there are no threads in the simulation: {func} cannot run in one")

    def _process_events(self, event_list: list[object]) -> None:
        """Nothing but timers ever happens."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody has to be woken."""
