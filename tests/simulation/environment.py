"""A whole world in one process: nodes, disks and a network on virtual time, all of it decided by one seed.

Shell of the tests. `SimulatedWorld(seed).run(scenario)` runs `await scenario(world)` and fails when anything went wrong
that nobody looked at. `world.node(name)` is one node's Environment for one life; after `crash` or `exit` the same name gives
a new life. The easy thing to get wrong: a node that was given to `start` stops as a whole when it dies or is paused, because
it is a process; code of the scenario that uses an environment goes on, its calls do nothing and its waits are cancelled.
"""

import hashlib
import logging
import random
import zlib
from asyncio import CancelledError, Future, Task, TimerHandle, timeout_at
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack, cast

import structlog
from prometheus_client.registry import Collector
from structlog.typing import EventDict, FilteringBoundLogger

from common.environment.interface import Connection, Environment, Listener, ListenFailed, LogDir, Receiver
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

# A scenario that needs more virtual time than this is taken to go on for ever.
LIMIT_SECONDS = 3600

POLL_NS = 1_000_000


class NodeExited(BaseException):
    """A node ended itself with `env.exit`. Not an Exception: nothing in a daemon may catch it."""

    def __init__(self, node: str, code: int) -> None:
        super().__init__(node, code)
        self.node = node
        self.code = code


def _is_of_exits(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_of_exits(each) for each in error.exceptions)
    return isinstance(error, NodeExited | CancelledError)


class SimulationFailed(Exception):
    """Exceptions that no code looked at: in callbacks, in tasks, in futures. They are the causes."""


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
        self.rng = random.Random(f"{world.seed}/node/{name}/{life}")
        self.log = self._make_log()
        self.exit_code: int | None = None
        self.paused_ns = 0
        """For how long this life was paused, all its pauses that are over."""
        self._paused_at_ns = 0
        self.collectors: dict[tuple[str, int], Collector] = {}
        self._is_dead = False
        self._process: SimulatedProcess | None = None
        self._ended: Future[None] = world.loop.create_future()
        self._log_dirs: list[SimulatedLogDir] = []
        self._timers: dict[int, TimerHandle] = {}
        self._sleepers: dict[Future[None], None] = {}

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    @property
    def is_paused(self) -> bool:
        return self._process is not None and self._process.is_paused

    @property
    def context(self) -> Context:
        """What is called for this node is called in a copy of this context."""
        return NO_PROCESS if self._process is None else self._process.context

    def enter(self, function: Callable[[Unpack[_Arguments]], T], *arguments: *_Arguments) -> T:
        """Calls a function as this node's process does: what it starts is paused and dies with it."""
        return self.context.copy().run(function, *arguments)

    def trace(self, *facts: object) -> None:
        self.world.trace(self.name, *facts)

    # --- time ----------------------------------------------------------------------------------------------------
    def now_ns(self) -> int:
        return self.loop.now_ns

    def wall_ms(self) -> int:
        return WALL_BASE_MS + self.loop.now_ns // 1_000_000

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

        if not self._is_dead:
            self._timers[number] = self.loop.call_at_ns(deadline_ns, fire)
        return cancel

    # --- network -------------------------------------------------------------------------------------------------
    def listen(self, host: str, port: int, accept: Callable[[Connection], Receiver]) -> Listener:
        if self._is_dead:
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
    def log_dir(self, path: str, *, operation_timeout_ns: int) -> LogDir:
        self.world.note_disk_of(self.name, path)
        log_dir = SimulatedLogDir(self, path, self.world.find_disk, operation_timeout_ns)
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
        """Runs a daemon on this node: `await main(env)`. The future ends with it, with what it raised; an exit or
        a crash is an end without an error."""
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
            if self._is_dead:
                if _is_of_exits(error):
                    return
                raise
            # A daemon that fails ends its process.
            self._ended.set_exception(error)
            self.die()

    def die(self, *, silently: bool = False) -> None:
        """The process is gone: nothing of it runs any more, its connections are reset, its locks released, and what was
        queued for a disk is lost. `silently` when its machine goes with it, so that nobody is told."""
        if self._is_dead:
            return
        self._is_dead = True
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
        """SIGSTOP: its kernel goes on receiving and accepting, the process does not run until `resume`."""
        assert self._process is not None, f"{self.name} was not started"
        assert not self._process.is_stopped, f"{self.name} is stopped already"
        self.trace("pause")
        self._process.is_paused = True
        self._paused_at_ns = self.now_ns()
        self.loop.stopped_processes += 1

    def resume(self, *, timers_first: bool) -> None:
        """SIGCONT: what was called for runs, then what the kernel received meanwhile, then the timers that ran out; or the
        timers before what was received, as a loop that was stopped in the middle of a round does. Nothing when it died."""
        if self._process is None or not self._process.is_paused or self._process.is_dead:
            return
        self.trace("resume")
        self._process.is_paused = False
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
        if self._is_dead:
            raise CancelledError(f"{self.name} is gone")

    def _make_log(self) -> FilteringBoundLogger:
        logger = structlog.wrap_logger(
            None, processors=[self._capture], wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG)
        )
        return cast(FilteringBoundLogger, logger)

    def _capture(self, _: object, level: str, event: EventDict) -> NoReturn:
        if self._is_dead:
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
        """Called in the moment of each event, in the middle of the daemon's step. May not raise."""
        self.processes: list[SimulatedProcess] = []
        """Of all lives that were started."""
        self._rng = random.Random(f"{seed}/world")
        self._nodes: dict[str, SimulatedEnvironment] = {}
        self._lives: dict[str, int] = {}
        self._disks: dict[str, SimulatedDisk] = {}
        # The paths that each node ever opened, in that order.
        self._paths_of: dict[str, dict[str, None]] = {}
        self._power_rng = random.Random(f"{seed}/power")
        self._leaked: list[BaseException] = []
        self._hash = hashlib.blake2b(digest_size=16)

    # --- nodes ---------------------------------------------------------------------------------------------------
    def node(self, name: str) -> SimulatedEnvironment:
        """The environment of the node in its present life; a new life when there is none."""
        node = self._nodes.get(name)
        if node is None or node.is_dead:
            self._lives[name] = self._lives.get(name, 0) + 1
            self.network.power_on(name)
            node = self._nodes[name] = SimulatedEnvironment(self, name, self._lives[name])
        return node

    def start(self, name: str, main: Callable[[SimulatedEnvironment], Coroutine[Any, Any, None]]) -> SimulatedEnvironment:
        """Starts `await main(env)` on a node, as its process would be started."""
        node = self.node(name)
        node.start(main)
        return node

    def crash(self, name: str) -> None:
        """kill -9: what the kernel has stays on the disks, everything else of the node is gone."""
        self.trace(name, "crash")
        self.node(name).die()

    def pause(self, name: str) -> None:
        """SIGSTOP: the node's timers, disk completions and received bytes are held back. It still accepts connections."""
        self._nodes[name].pause()

    def resume(self, name: str) -> None:
        """SIGCONT: all that was held back runs, in order, at the time that it is now. Nothing when the node died."""
        self._nodes[name].resume(timers_first=self._rng.random() < 0.5)

    def power_cut(self, name: str) -> None:
        """The node is gone, and with it any part of what its disks had not synced."""
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
        """The disk at a path; an empty one is put there when there is none."""
        disk = self._disks.get(path)
        if disk is None:
            disk = self._disks[path] = SimulatedDisk(path, self.loop, self.seed)
        return disk

    def find_disk(self, path: str, create: bool) -> SimulatedDisk | None:
        """What a node finds that goes by the path."""
        disk = self.disk(path) if create else self._disks.get(path)
        return None if disk is None else disk.at_path()

    def swap_disks(self, one: str, other: str) -> None:
        """Each of the two disks is at the other's path from now on, as after cables were mixed up."""
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
        """Waits, in virtual time, until `condition()` is true. Raises AssertionError when it takes too long."""
        deadline_ns = self.loop.now_ns + round(within_seconds * NS_PER_S)
        while not condition():
            assert self.loop.now_ns < deadline_ns, f"not so within {within_seconds} s of virtual time"
            await self.sleep(POLL_NS / NS_PER_S)

    # --- what happened -------------------------------------------------------------------------------------------
    def note_event(self, event: SimulatedEvent) -> None:
        """A node has logged something."""
        self.events.append(event)
        for watcher in self.event_watchers:
            watcher(event)

    def events_named(self, name: str, node: str | None = None) -> list[SimulatedEvent]:
        return [event for event in self.events if event.name == name and node in (None, event.node)]

    async def event(self, name: str, *, node: str | None = None, within_seconds: float = 60) -> SimulatedEvent:
        """The first event of this name in the log of a node, or of any; waits for it."""
        await self.until(lambda: self.events_named(name, node), within_seconds=within_seconds)
        return self.events_named(name, node)[0]

    def trace(self, *facts: object) -> None:
        """Adds to the fingerprint of the run. Facts are numbers and texts, nothing whose repr has an address."""
        self._hash.update(f"{self.loop.now_ns} {facts!r}\n".encode())

    def trace_hash(self) -> str:
        """The fingerprint of everything that happened so far: equal for equal seeds."""
        return self._hash.hexdigest()

    # --- running -------------------------------------------------------------------------------------------------
    def run(
        self, scenario: Callable[["SimulatedWorld"], Coroutine[Any, Any, T]], *, limit_seconds: int = LIMIT_SECONDS
    ) -> T:
        """Runs the scenario to its end and returns its result.

        Raises what it raises, SimulationDeadlock when it waits for ever, and SimulationFailed when exceptions were lost.
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
            # An exception in a callback stops the loop, as it would end a real daemon.
            if not main.done() and self._leaked:
                self._raise_leaked()
            raise

    def _end(self) -> None:
        """Ends all nodes and tasks, so that nothing of this world goes on, and collects what nobody looked at."""
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
            # Stopped by an exception in a callback, which is noted already.
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
                    # A verdict, not something lost; what fell with it is of no interest.
                    raise error
            raise SimulationFailed("; ".join(repr(error) for error in leaked)) from leaked[0]
