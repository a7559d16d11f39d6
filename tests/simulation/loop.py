"""An asyncio event loop on virtual time: waiting costs nothing, and every run of a seed is identical.

Shell of the tests. It is asyncio's BaseEventLoop with its own `_run_once`: when no callback is ready, the clock jumps to the
next timer. With no timer either, the program would wait forever, which raises `SimulationDeadlock` with the waiting tasks.
Threads, executors, sockets and signals are refused. TaskGroup and `asyncio.wait` keep tasks and futures in *sets*. Tasks and
futures hash by sequence number here, because with hashes by address the iteration order of a set would differ from run to
run.
"""

import asyncio
import contextvars
import gc
import heapq
import math
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack
from unittest import mock

from common.time_units import NS_PER_S
from tests.simulation.process import NO_PROCESS, PROCESS

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


# A program that runs this many rounds of the event loop without the clock moving is considered a busy loop.
ROUNDS_AT_ONE_INSTANT_MAX = 1_000_000

# How many failed futures may pile up before those whose exception was retrieved are dropped.
FAILED_KEPT = 1024

# How many cancelled timers may stay in the heap before they are removed.
CANCELLED_TIMERS_KEPT = 100


class SimulationDeadlock(Exception):
    """Nothing is scheduled and the scenario is not done, so its tasks would wait forever."""


class SimulationLivelock(Exception):
    """The program keeps running without the clock moving."""


class SimulationTooLong(Exception):
    """The scenario passed its limit of virtual time."""


def wake(future: asyncio.Future[Any]) -> None:
    """Completes a future unless it is already done."""
    if not future.done():
        future.set_result(None)


class SimulatedFuture(asyncio.Future[Any]):
    """A future that hashes by sequence number and reports its failure to the loop, which creates it."""

    __slots__ = ("sequence",)

    sequence: int

    def __hash__(self) -> int:
        return self.sequence

    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        loop = self.get_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.note_failed(self)


class SimulatedTask(asyncio.Task[Any]):
    """A task that hashes by sequence number and reports its failure to the loop."""

    def __init__(self, coro: Any, *, loop: "SimulatedLoop", name: object, context: contextvars.Context | None) -> None:
        # asyncio hashes a task when it registers it, so set the number first.
        self.sequence = loop.next_sequence()
        text = f"task-{self.sequence}" if name is None else str(name)
        own_context = contextvars.copy_context() if context is None else context
        self.process = own_context.get(PROCESS)
        super().__init__(coro, loop=loop, name=text, context=own_context)
        if self.process is not None:
            self.process.tasks[self] = None
        self.add_done_callback(loop.note_done, context=NO_PROCESS)

    def __hash__(self) -> int:
        return self.sequence


class SimulatedHandle(asyncio.Handle):
    """asyncio's Handle without its debug mode, which costs two calls for each callback."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "SimulatedLoop",
        context: contextvars.Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._loop = loop
        self._context = contextvars.copy_context() if context is None else context
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class SimulatedTimer(asyncio.TimerHandle):
    """asyncio's TimerHandle without its debug mode. Reports to the loop when it is cancelled."""

    __slots__ = ()

    def __init__(
        self,
        deadline_ns: int,
        callback: Callable[[], object],
        loop: "SimulatedLoop",
        context: contextvars.Context | None,
    ) -> None:
        self._callback = callback
        self._args = ()
        self._cancelled = False
        self._loop = loop
        self._context = contextvars.copy_context() if context is None else context
        self._repr = None
        self._source_traceback = None
        self._when = deadline_ns / NS_PER_S
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]


class SimulatedLoop(asyncio.BaseEventLoop):
    """A deterministic single-threaded event loop. `now_ns` is its virtual clock. It starts at one second, because a real
    clock never shows 0."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = NS_PER_S
        self.limit_ns: int | None = None
        self.failed: list[asyncio.Future[Any]] = []
        # How many processes are paused or dead. While it is 0, callbacks run without a check of the process they belong to.
        self.stopped_processes = 0
        # SimulatedHandles, and SimulatedTimers that have expired.
        self._callbacks: deque[Any] = deque()
        self._timers: list[tuple[int, int, SimulatedTimer]] = []
        self._cancelled_timers = 0
        self._sequence = 0
        self._rounds_at_this_instant = 0
        self.set_task_factory(self._make_task)

    # asyncio asks for every future. A call of a built-in type costs less than one of a method.
    get_debug = bool

    def __del__(self) -> None:
        """Skips BaseEventLoop's warning: a loop that never ran has nothing to close."""

    def time(self) -> float:
        return self.now_ns / NS_PER_S

    # --- callbacks and timers ------------------------------------------------------------------------------------
    def call_soon(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = SimulatedHandle(callback, args, self, context)
        self._callbacks.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at_ns(self.now_ns + math.ceil(delay * NS_PER_S), _bound(callback, args), context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at_ns(round(when * NS_PER_S), _bound(callback, args), context=context)

    def call_at_ns(
        self, deadline_ns: int, callback: Callable[[], object], *, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """`call_at` in integer nanoseconds: the callback never runs before `now_ns >= deadline_ns`."""
        timer = SimulatedTimer(deadline_ns, callback, self, context)
        self._sequence += 1
        heapq.heappush(self._timers, (deadline_ns, self._sequence, timer))
        return timer

    def next_ns(self) -> float:
        """Returns when the next callback runs: at once, when the next timer expires, or never (infinity)."""
        if self._callbacks:
            return self.now_ns
        return self._timers[0][0] if self._timers else math.inf

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > CANCELLED_TIMERS_KEPT and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            # This timer is marked as cancelled only after this call, so it is still in the heap.
            self._cancelled_timers = 1

    def _run_once(self) -> None:
        """Runs rounds until the loop is stopped: the ready callbacks and the expired timers. If no callback is ready, the
        clock jumps to the next timer. Everything that a round does stands here, because nothing runs more often."""
        callbacks = self._callbacks
        while True:
            timers = self._timers
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
                self._cancelled_timers -= 1
            if callbacks or self._stopping:  # type: ignore[attr-defined]
                self._count_round()
            elif not timers:
                raise SimulationDeadlock(self._describe_waiting())
            else:
                self._move_clock(timers[0][0])
            while timers and timers[0][0] <= self.now_ns:
                timer = heapq.heappop(timers)[2]
                if timer._cancelled:
                    self._cancelled_timers -= 1
                else:
                    timer._scheduled = False
                    callbacks.append(timer)
            for _ in range(len(callbacks)):
                handle = callbacks.popleft()
                if handle._cancelled:
                    continue
                if self.stopped_processes:
                    process = handle._context.get(PROCESS)
                    if process is not None and process.is_stopped:
                        process.hold(handle)
                        continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 (the world's handler gets it, as from asyncio's loop)
                    self.call_exception_handler({"message": f"exception in {handle}", "exception": error, "handle": handle})
            if self._stopping:  # type: ignore[attr-defined]
                return

    def close(self) -> None:
        super().close()
        self._callbacks.clear()
        self._timers.clear()

    def run_again(self, handles: Iterable[asyncio.Handle]) -> None:
        """Queues callbacks that were held back."""
        self._callbacks.extend(handles)

    def _move_clock(self, to_ns: int) -> None:
        if to_ns > self.now_ns:
            self._rounds_at_this_instant = 0
            self.now_ns = to_ns
        if self.limit_ns is not None and self.now_ns > self.limit_ns:
            raise SimulationTooLong(f"the clock passed {self.limit_ns} ns: {self._describe_waiting()}")

    def _count_round(self) -> None:
        self._rounds_at_this_instant += 1
        if self._rounds_at_this_instant > ROUNDS_AT_ONE_INSTANT_MAX:
            raise SimulationLivelock(f"the clock stands at {self.now_ns} ns: {self._describe_waiting()}")

    async def sleep_until(self, deadline_ns: int) -> None:
        woken = self.create_future()
        timer = self.call_at_ns(deadline_ns, lambda: wake(woken))
        try:
            await woken
        finally:
            timer.cancel()

    # --- tasks and futures ---------------------------------------------------------------------------------------
    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def create_future(self) -> SimulatedFuture:
        self._sequence += 1
        future = SimulatedFuture(loop=self)
        future.sequence = self._sequence
        return future

    def note_done(self, task: asyncio.Future[Any]) -> None:
        assert isinstance(task, SimulatedTask)
        if task.process is not None:
            task.process.tasks.pop(task, None)
        if not task.cancelled() and task._log_traceback:
            self.note_failed(task)

    def note_failed(self, future: asyncio.Future[Any]) -> None:
        self.failed.append(future)
        if len(self.failed) > FAILED_KEPT:
            self.failed = [failed for failed in self.failed if failed._log_traceback]

    def unretrieved(self) -> list[BaseException]:
        """Returns the exceptions of tasks and futures that were never retrieved, and marks them as retrieved."""
        found = [future for future in self.failed if future._log_traceback]
        self.failed.clear()
        return [error for future in found if (error := future.exception()) is not None]

    def waiting_tasks(self) -> list[asyncio.Task[Any]]:
        """Returns all unfinished tasks except those of dead processes, oldest first."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        return sorted((task for task in tasks if task.process is None or not task.process.is_dead), key=hash)

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

    async def create_connection(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("there are no sockets in the simulation: use env.connect")

    async def create_server(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("there are no sockets in the simulation: use env.listen")

    async def create_datagram_endpoint(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("there are no sockets in the simulation")


def _bound(callback: Callable[..., object], args: tuple[Any, ...]) -> Callable[[], object]:
    return partial(callback, *args) if args else callback


@contextmanager
def nothing_from_outside() -> Iterator[None]:
    """Makes starting a thread or opening a socket an error inside the context, with or without the event loop."""

    def refuse_thread(thread: threading.Thread) -> NoReturn:
        raise RuntimeError(f"there are no threads in the simulation: {thread} cannot start")

    def refuse_socket(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("there are no sockets in the simulation")

    with mock.patch.object(threading.Thread, "start", refuse_thread), mock.patch.object(socket, "socket", refuse_socket):
        yield


@contextmanager
def rare_collections() -> Iterator[None]:
    """Makes the garbage collector run rarely. A run leaves few cycles but allocates so much that the collector would take a
    tenth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
