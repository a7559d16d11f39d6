"""A whole world in one process: nodes, disks and a network on virtual time, all driven by one seed.

Shell of the tests. `SimulatedWorld(seed).run(scenario)` runs `await scenario(world)` and fails if any exception was left
unhandled. `world.node(name)` returns a node's Environment for its present life; after `crash` or `exit` the same name
returns a new life. A node that was started with `start` runs as a process: when it dies or is paused, all of its code stops.
Scenario code that uses an environment directly keeps running after that node died, but its calls do nothing and its waits
are cancelled.
"""

import hashlib
import logging
import math
import random
import zlib
from asyncio import CancelledError, Future, Task, TimerHandle, timeout_at
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack, cast

import structlog
from prometheus_client.registry import Collector
from structlog.typing import EventDict, FilteringBoundLogger

from common.environment.interface import (
    SYNC_TIMEOUT_NS,
    Connection,
    Environment,
    Listener,
    ListenFailed,
    LogDir,
    Receiver,
)
from common.ids import Uuid, uuid_text
from common.time_units import NS_PER_S
from tests.simulation.disk import SimulatedDisk
from tests.simulation.log_dir import SimulatedLogDir
from tests.simulation.loop import SimulatedLoop, nothing_from_outside, rare_collections, wake
from tests.simulation.network import SimulatedNetwork
from tests.simulation.process import NO_PROCESS, SimulatedProcess
from tests.simulation.violations import InvariantViolated

T = TypeVar("T")
_Arguments = TypeVarTuple("_Arguments")

# 2023-11-14T22:13:20Z at virtual time 0.
WALL_BASE_MS = 1_700_000_000_000

# A scenario that runs for more virtual time than this is considered endless.
LIMIT_SECONDS = 3600

POLL_NS = 1_000_000


class NodeExited(BaseException):
    """A node ended itself with `env.exit`. Not an Exception, so that `except Exception` in a daemon does not catch it."""

    def __init__(self, node: str, code: int) -> None:
        super().__init__(node, code)
        self.node = node
        self.code = code


def _is_of_exits(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_of_exits(each) for each in error.exceptions)
    return isinstance(error, NodeExited | CancelledError)


class SimulationFailed(Exception):
    """Some exceptions in callbacks, tasks or futures were never retrieved. The first one is the cause."""


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """One line of a node's log."""

    at_ns: int
    node: str
    level: str
    name: str
    fields: dict[str, Any]


class SimulatedEnvironment(Environment):
    """One life of one node."""

    def __init__(self, world: "SimulatedWorld", name: str, life: int) -> None:
        self.world = world
        self.name = name
        self.life = life
        self.loop = world.loop
        self.trace = partial(world.trace, name)
        self.rng = random.Random(f"{world.seed}/node/{name}/{life}")
        self.log = self._make_log()
        self.exit_code: int | None = None
        self.paused_ns = 0
        """How long this life has been paused in total, not counting a pause that is not over yet."""
        self._paused_at_ns = 0
        self.collectors: dict[tuple[str, int], Collector] = {}
        # Plain attributes, because nothing is asked more often.
        self.is_dead = False
        self.is_paused = False
        self._process: SimulatedProcess | None = None
        self._ended: Future[None] = world.loop.create_future()
        self._log_dirs: list[SimulatedLogDir] = []
        self._timers: dict[int, TimerHandle] = {}
        self._sleepers: dict[Future[None], None] = {}

    @property
    def context(self) -> Context:
        """The context that marks code as belonging to this node. Each call on behalf of the node runs in a copy of it."""
        return NO_PROCESS if self._process is None else self._process.context

    def enter(self, function: Callable[[Unpack[_Arguments]], T], *arguments: *_Arguments) -> T:
        """Calls a function as part of this node's process: the tasks it starts are paused and die with the process."""
        return self.context.copy().run(function, *arguments)

    def note_operation(self, path: str, kind: str, name: str) -> None:
        """Notifies the watchers that an operation on one of this node's disks has taken effect."""
        for watcher in self.world.operation_watchers:
            watcher(path, kind, name)

    # --- time ----------------------------------------------------------------------------------------------------
    def now_ns(self) -> int:
        return self.loop.now_ns

    def wall_ms(self) -> int:
        return WALL_BASE_MS + self.loop.now_ns // 1_000_000 + self.world.clock_errors_ms.get(self.name, 0)

    async def sleep_until(self, deadline_ns: int) -> None:
        self._die_here_if_dead()
        woken = self.loop.create_future()
        self._sleepers[woken] = None
        cancel = self.call_at(deadline_ns, lambda: wake(woken))
        try:
            await woken
        finally:
            cancel()
            self._sleepers.pop(woken, None)

    def timeout_at(self, deadline_ns: int) -> AbstractAsyncContextManager[None]:
        return cast(AbstractAsyncContextManager[None], timeout_at(deadline_ns / NS_PER_S))

    def call_at(self, deadline_ns: int, callback: Callable[[], object]) -> Callable[[], None]:
        number = self.loop.next_sequence()

        def cancel() -> None:
            timer = self._timers.pop(number, None)
            if timer is not None:
                timer.cancel()

        def fire() -> None:
            self._timers.pop(number, None)
            callback()

        if not self.is_dead:
            self._timers[number] = self.loop.call_at_ns(deadline_ns, fire)
        return cancel

    # --- network -------------------------------------------------------------------------------------------------
    def listen(self, host: str, port: int, accept: Callable[[Connection], Receiver]) -> Listener:
        if self.is_dead:
            raise ListenFailed(f"{host}:{port}: the node is gone")
        return self.world.network.listen(self, host, port, accept)

    async def connect(
        self, host: str, port: int, accept: Callable[[Connection], Receiver], *, deadline_ns: int
    ) -> Connection:
        self._die_here_if_dead()
        return await self.world.network.connect(self, host, port, accept, deadline_ns)

    def serve_metrics(self, host: str, port: int, collector: Collector) -> Callable[[], None]:
        if (host, port) in self.collectors:
            raise ListenFailed(f"{host}:{port}: address already in use")
        self.collectors[host, port] = collector

        def stop() -> None:
            self.collectors.pop((host, port), None)

        return stop

    # --- disks ---------------------------------------------------------------------------------------------------
    def log_dir(self, path: str, *, operation_timeout_ns: int, sync_timeout_ns: int = SYNC_TIMEOUT_NS) -> LogDir:
        self.world.note_disk_of(self.name, path)
        log_dir = SimulatedLogDir(
            self,
            path,
            self.world.find_disk,
            operation_timeout_ns=operation_timeout_ns,
            sync_timeout_ns=sync_timeout_ns,
        )
        self._log_dirs.append(log_dir)
        return log_dir

    # --- the rest ------------------------------------------------------------------------------------------------
    def uuid(self) -> Uuid:
        while True:
            uuid = Uuid(self.rng.randbytes(16))
            if int.from_bytes(uuid, "big") >= 100 and not uuid_text(uuid).startswith("-"):
                return uuid

    def exit(self, code: int) -> NoReturn:
        self.exit_code = code
        self.trace("exit", code)
        self.die()
        raise NodeExited(self.name, code)

    # --- life and death ------------------------------------------------------------------------------------------
    def start(self, main: Callable[["SimulatedEnvironment"], Coroutine[Any, Any, None]]) -> Future[None]:
        """Runs a daemon on this node: `await main(env)`. The future completes when the daemon ends, with the exception it
        raised. An exit or a crash completes it without an error."""
        self._process = SimulatedProcess(f"{self.name}-{self.life}")
        self.world.processes.append(self._process)
        self.loop.create_task(self._run_main(main), name=self._process.name, context=self._process.context.copy())
        return self._ended

    async def _run_main(self, main: Callable[["SimulatedEnvironment"], Coroutine[Any, Any, None]]) -> None:
        try:
            await main(self)
            wake(self._ended)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self.is_dead:
                if _is_of_exits(error):
                    return
                raise
            # The exception has escaped the daemon's main function, so it ends the process.
            self._ended.set_exception(error)
            self.die()

    def die(self, *, silently: bool = False) -> None:
        """Ends the process: its code stops, its connections end, its locks are released, and operations that are queued
        for a disk are lost. With `silently` the whole machine fails, so its peers are not notified."""
        if self.is_dead:
            return
        self.is_dead = True
        if self._process is not None:
            self.loop.stopped_processes += not self._process.is_stopped
            self._process.kill()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for sleeper in list(self._sleepers):
            sleeper.cancel(f"{self.name} is gone")
        self.world.network.drop_node(self, silently=silently)
        for log_dir in self._log_dirs:
            log_dir.die()
        self.collectors.clear()
        wake(self._ended)

    def pause(self) -> None:
        """SIGSTOP: the process does not run until `resume`. Its kernel still receives bytes and accepts connections."""
        assert self._process is not None, f"{self.name} was not started"
        assert not self._process.is_stopped, f"{self.name} is stopped already"
        self.trace("pause")
        self._process.pause()
        self.is_paused = True
        self._paused_at_ns = self.now_ns()
        self.loop.stopped_processes += 1

    def resume(self, *, timers_first: bool) -> None:
        """SIGCONT: runs the callbacks that were held back, then delivers the bytes the kernel has received, then runs the
        expired timers. With `timers_first` the timers run before the bytes, as in an event loop that was stopped in the
        middle of a round. Does nothing if the node has died."""
        if self._process is None or not self._process.is_paused or self._process.is_dead:
            return
        self.trace("resume")
        self._process.resume()
        self.is_paused = False
        self.paused_ns += self.now_ns() - self._paused_at_ns
        self.loop.stopped_processes -= 1
        called, timers = self._process.take_held()
        self.loop.run_again(called)
        if timers_first:
            self.loop.run_again(timers)
        self.world.network.resume_node(self)
        if not timers_first:
            self.loop.run_again(timers)

    def _die_here_if_dead(self) -> None:
        if self.is_dead:
            raise CancelledError(f"{self.name} is gone")

    def _make_log(self) -> FilteringBoundLogger:
        logger = structlog.wrap_logger(
            None, processors=[self._capture], wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG)
        )
        return cast(FilteringBoundLogger, logger)

    def _capture(self, _: object, level: str, event: EventDict) -> NoReturn:
        if self.is_dead:
            raise structlog.DropEvent
        fields = dict(event)
        name = str(fields.pop("event", ""))
        self.world.note_event(SimulatedEvent(self.loop.now_ns, self.name, level, name, fields))
        self.trace("log", level, name, *sorted(fields))
        raise structlog.DropEvent


class SimulatedWorld:
    """Nodes, disks and network of one seed. One world runs one scenario."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimulatedLoop()
        self.loop.set_exception_handler(self._note_exception)
        self.network = SimulatedNetwork(self.loop, seed)
        self.events: list[SimulatedEvent] = []
        self.event_watchers: list[Callable[[SimulatedEvent], None]] = []
        """Called when an event is logged, in the middle of the daemon's step. They must not raise."""
        self.clock_errors_ms: dict[str, int] = {}
        """How far the wall clock of each node is ahead of the true time. Negative: behind it."""
        self.answers_cached_reads = False
        """Whether the disks that nobody has asked for yet will answer reads of cached pages at once."""
        self.operation_watchers: list[Callable[[str, str, str], None]] = []
        """Called with the directory, the operation and the name when an operation of a disk has taken effect, before the
        process notices. They may end the process; they must not raise."""
        self.processes: list[SimulatedProcess] = []
        """The processes of all lives that were started."""
        self._rng = random.Random(f"{seed}/world")
        self._nodes: dict[str, SimulatedEnvironment] = {}
        self._lives: dict[str, int] = {}
        self._disks: dict[str, SimulatedDisk] = {}
        # The paths that each node has ever opened, in order.
        self._paths_of: dict[str, dict[str, None]] = {}
        self._power_rng = random.Random(f"{seed}/power")
        self._leaked: list[BaseException] = []
        self._hash = hashlib.blake2b(digest_size=16)

    # --- nodes ---------------------------------------------------------------------------------------------------
    def node(self, name: str) -> SimulatedEnvironment:
        """Returns the environment of the node's present life. Begins a new life if the last one has ended."""
        node = self._nodes.get(name)
        if node is None or node.is_dead:
            self._lives[name] = self._lives.get(name, 0) + 1
            self.network.power_on(name)
            node = self._nodes[name] = SimulatedEnvironment(self, name, self._lives[name])
        return node

    def start(self, name: str, main: Callable[[SimulatedEnvironment], Coroutine[Any, Any, None]]) -> SimulatedEnvironment:
        """Starts `await main(env)` on a node as a process."""
        node = self.node(name)
        node.start(main)
        return node

    def crash(self, name: str) -> None:
        """kill -9: data in the page cache survives, everything in the process is lost."""
        self.trace(name, "crash")
        self.node(name).die()

    def pause(self, name: str) -> None:
        """SIGSTOP: holds back the node's timers, disk completions and received bytes. Its kernel still accepts
        connections."""
        self._nodes[name].pause()

    def resume(self, name: str) -> None:
        """SIGCONT: runs everything that was held back, in order, now. Does nothing if the node has died."""
        self._nodes[name].resume(timers_first=self._rng.random() < 0.5)

    def power_cut(self, name: str) -> None:
        """Ends the node. Any part of the data that its disks had not synced may be lost."""
        self.trace(name, "power cut")
        self.node(name).die(silently=True)
        for path in self._paths_of.get(name, ()):
            disk = self._disks.get(path)
            if disk is not None:
                disk.lose_unsynced(self._power_rng)
                for file, content in disk.files().items():
                    self.trace("left", path, file, len(content), zlib.crc32(content))

    # --- disks ---------------------------------------------------------------------------------------------------
    def disk(self, path: str) -> SimulatedDisk:
        """Returns the disk at a path. If there is none, puts an empty disk there."""
        disk = self._disks.get(path)
        if disk is None:
            disk = self._disks[path] = SimulatedDisk(path, self.loop, self.seed)
            disk.answers_cached_reads = self.answers_cached_reads
        return disk

    def paths_under(self, home: str) -> list[str]:
        """Returns the paths of a node's disks."""
        return [path for path in self._disks if path.startswith(f"{home}/")]

    def find_disk(self, path: str, create: bool) -> SimulatedDisk | None:
        """Returns the disk that a node finds at the path, or None. With `create`, first puts an empty disk there if there is
        none."""
        disk = self.disk(path) if create else self._disks.get(path)
        return None if disk is None else disk.at_path()

    def swap_disks(self, one: str, other: str) -> None:
        """Exchanges the paths of two disks, as if an operator had mixed up their cables."""
        first, second = self.disk(one), self.disk(other)
        self._disks[one], self._disks[other] = second, first
        first.path, second.path = other, one

    def note_disk_of(self, node: str, path: str) -> None:
        self._paths_of.setdefault(node, {})[path] = None

    # --- time ----------------------------------------------------------------------------------------------------
    def now_ns(self) -> int:
        return self.loop.now_ns

    async def sleep(self, seconds: float) -> None:
        """Lets virtual time pass."""
        await self.loop.sleep_until(self.loop.now_ns + round(seconds * NS_PER_S))

    async def until(self, condition: Callable[[], object], *, within_seconds: float = 60) -> None:
        """Waits, in virtual time, until `condition()` is true. Raises AssertionError when it takes too long.

        It looks every POLL_NS, but not while nothing happens: a condition on the clock alone may be found true late.
        """
        deadline_ns = self.loop.now_ns + round(within_seconds * NS_PER_S)
        while not condition():
            assert self.loop.now_ns < deadline_ns, f"not so within {within_seconds} s of virtual time"
            quiet_ns = min(self.loop.next_ns(), deadline_ns) - self.loop.now_ns
            await self.loop.sleep_until(self.loop.now_ns + max(math.ceil(quiet_ns / POLL_NS), 1) * POLL_NS)

    # --- what happened -------------------------------------------------------------------------------------------
    def note_event(self, event: SimulatedEvent) -> None:
        """Records an event that a node has logged, and calls the watchers."""
        self.events.append(event)
        for watcher in self.event_watchers:
            watcher(event)

    def events_named(self, name: str, node: str | None = None) -> list[SimulatedEvent]:
        return [event for event in self.events if event.name == name and node in (None, event.node)]

    async def event(self, name: str, *, node: str | None = None, within_seconds: float = 60) -> SimulatedEvent:
        """Waits for the first event of this name in the log of a node, or of any node, and returns it."""
        await self.until(lambda: self.events_named(name, node), within_seconds=within_seconds)
        return self.events_named(name, node)[0]

    def trace(self, *facts: object) -> None:
        """Adds to the fingerprint of the run. Pass only numbers and texts: the repr of other objects may contain a memory
        address."""
        self._hash.update(f"{self.loop.now_ns} {facts!r}\n".encode())

    def trace_hash(self) -> str:
        """Returns the fingerprint of everything that has happened so far. Equal seeds have equal fingerprints."""
        return self._hash.hexdigest()

    # --- running -------------------------------------------------------------------------------------------------
    def run(
        self, scenario: Callable[["SimulatedWorld"], Coroutine[Any, Any, T]], *, limit_seconds: int = LIMIT_SECONDS
    ) -> T:
        """Runs the scenario to its end and returns its result.

        Raises what the scenario raises, SimulationDeadlock if it waits forever, and SimulationFailed if any exceptions were
        left unhandled.
        """
        self.loop.limit_ns = self.loop.now_ns + limit_seconds * NS_PER_S
        main = self.loop.create_task(scenario(self), name="scenario")
        try:
            result = self._run_to_the_end(main)
        except BaseException as error:
            self._end()
            for leaked in self._leaked:
                error.add_note(f"also lost: {leaked!r}")
            raise
        self._end()
        self._raise_leaked()
        return result

    def _run_to_the_end(self, main: Task[T]) -> T:
        try:
            with nothing_from_outside(), rare_collections():
                return self.loop.run_until_complete(main)
        except RuntimeError:
            # An exception in a callback stops the loop, just as it would end a real daemon.
            if not main.done() and self._leaked:
                self._raise_leaked()
            raise

    def _end(self) -> None:
        """Ends all nodes and tasks of this world and collects the exceptions that were never retrieved."""
        for node in list(self._nodes.values()):
            node.die()
        self.loop.limit_ns = self.loop.now_ns + LIMIT_SECONDS * NS_PER_S
        waiting = self.loop.waiting_tasks()
        for task in waiting:
            if not task.done():
                task.cancel()
        for task in waiting:
            while not task.done():
                self._step(task)
        for process in self.processes:
            process.bury()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self._leaked += [error for error in self.loop.unretrieved() if not isinstance(error, NodeExited)]
        self.loop.close()

    def _step(self, task: Task[Any]) -> None:
        done = self.loop.create_future()
        task.add_done_callback(lambda _: wake(done))
        try:
            self.loop.run_until_complete(done)
        except RuntimeError:
            # An exception in a callback stopped the loop. It is in `_leaked` already.
            if done.done() or not self._leaked:
                raise

    def _note_exception(self, loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception") or SimulationFailed(str(context.get("message")))
        if isinstance(error, NodeExited):
            return
        self._leaked.append(error)
        self.loop.stop()

    def _raise_leaked(self) -> None:
        if self._leaked:
            leaked, self._leaked = self._leaked, []
            for error in leaked:
                if isinstance(error, InvariantViolated):
                    # A checker raised this on purpose. The other exceptions are consequences of the abrupt end.
                    raise error
            raise SimulationFailed("; ".join(repr(error) for error in leaked)) from leaked[0]
