"""The simulated world itself: virtual time, life and death of nodes, lost exceptions, and the same run for the same seed."""

import asyncio

import pytest

from common.environment.interface import ListenFailed
from common.time_units import NS_PER_S
from tests.simulation.environment import (
    POLL_NS,
    NodeExited,
    SimulatedEnvironment,
    SimulatedWorld,
    SimulationFailed,
)
from tests.simulation.hash_seeds import printed_under
from tests.simulation.loop import SimulationDeadlock, SimulationTooLong

# A program that uses cancelled task groups, disks, connections and random choices, and prints the fingerprint of its run.
FINGERPRINT = """
import asyncio
from tests.simulation.environment import SimulatedWorld

class Echo:
    def __init__(self, connection):
        self.connection = connection
    def data_received(self, view):
        self.connection.send([bytes(view)])
    def connection_lost(self, reason):
        pass
    def writable(self):
        pass

async def scenario(world):
    a, b = world.node("a"), world.node("b")
    a.listen("", 9092, Echo)
    log_dir = b.log_dir("/b/1", operation_timeout_ns=10**10)
    await log_dir.attach(create=True)
    order = []

    async def worker(number):
        try:
            await b.sleep_until(b.now_ns() + b.rng.randint(1, 1000))
            file = await log_dir.open(f"f{number % 7}", create=True)
            await log_dir.append(file, 0, [b"x" * number])
            connection = await b.connect("a", 9092, Echo, deadline_ns=b.now_ns() + 10**9)
            connection.send([b"ping" * number])
            await b.sleep_until(b.now_ns() + 10**12)
        finally:
            order.append(number)
            b.log.info("worker_ended", number=number)

    async with asyncio.TaskGroup() as tasks:
        group = tasks.create_task(many(tasks, worker))
        await b.sleep_until(b.now_ns() + 10**7)
        group.cancel()
    world.trace(order)

async def many(outer, worker):
    async with asyncio.TaskGroup() as tasks:
        for number in range(40):
            tasks.create_task(worker(number))

world = SimulatedWorld(7)
world.run(scenario)
print(world.trace_hash(), len(world.events))
"""


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_under_any_hash_seed() -> None:
    # Three processes with two different hash seeds must print the same fingerprint, although the run cancels a group of 40
    # tasks, which asyncio keeps in a set.
    printed = printed_under(("0", "12345", "12345"), FINGERPRINT)
    assert printed[0].split()[1] == "40"
    assert len(set(printed)) == 1


def test_waiting_moves_the_clock_and_takes_no_time() -> None:
    # A sleep of an hour ends exactly at its deadline.
    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        deadline_ns = env.now_ns() + 3_599 * NS_PER_S + 1
        await env.sleep_until(deadline_ns)
        assert env.now_ns() == deadline_ns
        assert env.wall_ms() == 1_700_000_000_000 + deadline_ns // 1_000_000

    SimulatedWorld(1).run(scenario)


def test_a_wall_clock_may_be_wrong() -> None:
    # Only the wall clock of the node jumps, not its other clock, and not that of another node.
    async def scenario(world: SimulatedWorld) -> None:
        one, other = world.node("a"), world.node("b")
        before_ns = one.now_ns()
        world.clock_errors_ms["a"] = -5_000
        assert one.wall_ms() == other.wall_ms() - 5_000
        assert one.now_ns() == other.now_ns() == before_ns

    SimulatedWorld(1).run(scenario)


def test_timeout_cancels_its_body_at_the_deadline() -> None:
    # `timeout_at` ends an endless wait exactly at its deadline. A `call_at` callback runs at its time, unless it was
    # cancelled before.
    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        called: list[int] = []
        start_ns = env.now_ns()
        env.call_at(start_ns + 5, lambda: called.append(env.now_ns() - start_ns))
        env.call_at(start_ns + 6, lambda: called.append(-1))()
        with pytest.raises(TimeoutError):
            async with env.timeout_at(start_ns + 1000):
                await asyncio.Event().wait()
        assert env.now_ns() == start_ns + 1000
        assert called == [5]

    SimulatedWorld(1).run(scenario)


def test_waiting_for_nothing_is_a_deadlock() -> None:
    # When no timer is left and the scenario still waits, the run fails and names the task instead of hanging.
    async def scenario(world: SimulatedWorld) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationDeadlock, match="scenario"):
        SimulatedWorld(1).run(scenario)


def test_going_on_for_ever_is_too_long() -> None:
    # A loop of timers never ends by itself; the limit of virtual time ends it.
    async def scenario(world: SimulatedWorld) -> None:
        while True:
            await world.sleep(1)

    with pytest.raises(SimulationTooLong):
        SimulatedWorld(1).run(scenario, limit_seconds=10)


def test_a_wait_looks_only_after_something_happened() -> None:
    # It looks at the first full millisecond after the callback, and not a thousand times before.
    async def scenario(world: SimulatedWorld) -> None:
        looks: list[int] = []
        happened: list[int] = []
        begun_ns = world.now_ns()
        world.node("a").call_at(begun_ns + NS_PER_S + 1, lambda: happened.append(world.now_ns()))

        def has_happened() -> bool:
            looks.append(world.now_ns() - begun_ns)
            return bool(happened)

        await world.until(has_happened)
        assert looks == [0, NS_PER_S + POLL_NS]

        with pytest.raises(AssertionError, match="not so within 3 s"):
            await world.until(lambda: False, within_seconds=3)
        assert world.now_ns() - begun_ns == 4 * NS_PER_S + POLL_NS

    SimulatedWorld(1).run(scenario)


def test_lost_exceptions_fail_the_run() -> None:
    # An exception in a callback, in a task that is not awaited, or in a future whose result is not read fails the run.
    async def in_a_callback(world: SimulatedWorld) -> None:
        world.node("a").call_at(world.now_ns() + 1, lambda: 1 // 0)
        await asyncio.Event().wait()

    async def in_a_task(world: SimulatedWorld) -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        task = world.loop.create_task(fail())
        await world.sleep(1)
        assert task.done()

    async def in_a_future(world: SimulatedWorld) -> None:
        world.loop.create_future().set_exception(ZeroDivisionError())

    for scenario in (in_a_callback, in_a_task, in_a_future):
        with pytest.raises(SimulationFailed) as failed:
            SimulatedWorld(1).run(scenario)
        assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_exit_ends_the_node_and_only_the_node() -> None:
    # After a daemon exits none of its code runs any more, its port and its locks are free, and the next life starts fresh.
    async def scenario(world: SimulatedWorld) -> None:
        ended: list[str] = []

        async def sleeper(env: SimulatedEnvironment) -> None:
            try:
                await env.sleep_until(env.now_ns() + 3600 * NS_PER_S)
            finally:
                ended.append("sleeper")

        async def main(env: SimulatedEnvironment) -> None:
            env.listen("", 9092, lambda connection: (_ for _ in ()).throw(AssertionError))
            log_dir = env.log_dir("/a/1", operation_timeout_ns=NS_PER_S)
            await log_dir.attach(create=True)
            await log_dir.lock()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sleeper(env))
                await env.sleep_until(env.now_ns() + 1)
                env.log.error("going", why="test")
                env.exit(3)

        first = world.start("a", main)
        await world.until(lambda: first.is_dead)
        await world.sleep(7200)
        assert ended == []
        assert first.exit_code == 3
        assert first.is_dead
        assert [(event.node, event.level, event.fields) for event in world.events_named("going")] == [
            ("a", "error", {"why": "test"})
        ]
        with pytest.raises(ListenFailed):
            first.listen("", 9092, lambda connection: (_ for _ in ()).throw(AssertionError))
        second = world.start("a", main)
        assert second is not first
        await world.until(lambda: second.exit_code == 3)

    SimulatedWorld(1).run(scenario, limit_seconds=8000)


def test_exit_from_a_callback_is_an_exit() -> None:
    # Daemons call exit from on_error and from timers too. No task runs there that could raise the exception.
    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        env.call_at(env.now_ns() + 1, lambda: env.exit(1))
        await world.until(lambda: env.is_dead)
        assert env.exit_code == 1

    SimulatedWorld(1).run(scenario)


def test_exit_without_a_daemon_reaches_the_test() -> None:
    # If a test runs a daemon's code directly and not through `world.start`, the exit is raised to the test as an exception.
    async def scenario(world: SimulatedWorld) -> None:
        with pytest.raises(NodeExited):
            world.node("a").exit(1)

    SimulatedWorld(1).run(scenario)


def test_a_failing_daemon_fails_the_run() -> None:
    # An exception that would end a real daemon with a traceback fails the run.
    async def scenario(world: SimulatedWorld) -> None:
        async def main(env: SimulatedEnvironment) -> None:
            raise ZeroDivisionError

        world.start("a", main)
        await world.sleep(1)

    with pytest.raises(SimulationFailed):
        SimulatedWorld(1).run(scenario)


def test_a_crash_cancels_the_daemon_at_once() -> None:
    # After a crash, no more code of the node runs, not even its finally blocks.
    async def scenario(world: SimulatedWorld) -> None:
        world.disk("/a/1")

        async def main(env: SimulatedEnvironment) -> None:
            log_dir = env.log_dir("/a/1", operation_timeout_ns=NS_PER_S)
            await log_dir.attach()
            try:
                await env.sleep_until(env.now_ns() + NS_PER_S)
            finally:
                await log_dir.replace_file("last-words", b"never")

        world.start("a", main)
        await world.sleep(0.5)
        world.crash("a")
        await world.sleep(10)
        assert world.disk("/a/1").files() == {}

    SimulatedWorld(1).run(scenario)


def test_uuids_come_from_the_seed() -> None:
    # Equal seeds give equal ids. Different nodes, and different lives of one node, give different ids.
    first, again = (SimulatedWorld(5).node("a").uuid() for _ in range(2))
    other = SimulatedWorld(5).node("b").uuid()
    assert first == again != other
