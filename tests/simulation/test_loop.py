"""Tests the event loop on virtual time: what it refuses, the order of its callbacks, and that hash seeds do not matter."""

import asyncio
import socket
import threading
from functools import partial

import pytest

from tests.simulation.environment import SimulatedWorld
from tests.simulation.hash_seeds import printed_under

CANCELLED_GROUP = """
import asyncio
from tests.simulation.environment import SimulatedWorld

async def member(world, number):
    try:
        await world.sleep(1000)
    finally:
        world.trace("ended", number)

async def main(env):
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(member(env.world, number))
        waiting = [group.create_task(member(env.world, 100 + number)) for number in range(40)]
        done, _ = await asyncio.wait(waiting, timeout=1)
        for task in waiting:
            task.cancel()
        done, _ = await asyncio.wait(waiting)
        env.trace(*(task.get_name() for task in done))
        raise ZeroDivisionError

async def scenario(world):
    task = world.node("a").start(main)
    await asyncio.wait([task])
    assert task.exception() is not None

world = SimulatedWorld(1)
world.run(scenario)
print(world.trace_hash())
"""


@pytest.mark.slow
def test_a_cancelled_group_ends_in_the_same_order_under_any_hash_seed() -> None:
    """TaskGroup and asyncio.wait keep tasks in sets. Processes with different hash seeds must still end 80 cancelled tasks
    in the same order."""
    traces = set(printed_under(("1", "2", "3"), CANCELLED_GROUP))
    assert len(traces) == 1
    assert len(traces.pop()) == 32


def test_threads_executors_and_sockets_are_refused() -> None:
    """Threads and sockets would make a run depend on the real machine. They are refused, whether or not they go through the
    loop."""

    async def scenario(world: SimulatedWorld) -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(len, "")
        with pytest.raises(RuntimeError, match="no threads"):
            await world.loop.run_in_executor(None, len, "")
        with pytest.raises(RuntimeError, match="no threads"):
            threading.Thread(target=print).start()
        with pytest.raises(RuntimeError, match="no threads"):
            world.loop.call_soon_threadsafe(print)
        for refused in (
            asyncio.open_connection("localhost", 9092),
            asyncio.start_server(lambda reader, writer: None, "localhost", 9092),
            world.loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("localhost", 9092)),
        ):
            with pytest.raises(RuntimeError, match="no sockets"):
                await refused
        with pytest.raises(RuntimeError, match="no sockets"):
            socket.socket()

    SimulatedWorld(1).run(scenario)
    socket.socket().close()


def test_timers_run_in_order_of_time_and_then_of_making() -> None:
    """Timers with equal deadlines run in the order in which they were made. Cancelled timers never run, however many there
    are."""

    async def scenario(world: SimulatedWorld) -> None:
        ran: list[int] = []
        at_ns = world.now_ns() + 1000
        timers = [world.loop.call_at_ns(at_ns - number % 3, partial(ran.append, number)) for number in range(600)]
        for number, timer in enumerate(timers):
            if number >= 6:
                timer.cancel()
        await world.sleep(1)
        assert ran == [2, 5, 1, 4, 0, 3]

    SimulatedWorld(1).run(scenario)
