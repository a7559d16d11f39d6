"""Long work lets the event loop run between its slices."""

import asyncio
from collections.abc import Generator, Iterator

from common.slices import ITEMS_PER_SLICE, in_slices, pause_before, result_in_slices
from tests.simulation.environment import SimulatedWorld


def test_the_loop_runs_after_every_slice() -> None:
    """A second task counts how many items were done at each of its turns: the work is never more than one slice ahead."""

    async def scenario(_world: SimulatedWorld) -> None:
        done: list[int] = []
        seen: list[int] = []

        def work() -> Iterator[None]:
            for number in range(3 * ITEMS_PER_SLICE + 1):
                done.append(number)
                yield

        async def look() -> None:
            while len(done) <= 3 * ITEMS_PER_SLICE:
                seen.append(len(done))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(in_slices(work()))
            group.create_task(look())
        assert done == list(range(3 * ITEMS_PER_SLICE + 1))
        assert seen == [ITEMS_PER_SLICE, 2 * ITEMS_PER_SLICE, 3 * ITEMS_PER_SLICE]

    SimulatedWorld(1).run(scenario)


def test_work_with_a_result_lets_the_loop_run_after_every_slice() -> None:
    """As above, for a generator that returns something."""

    async def scenario(_world: SimulatedWorld) -> None:
        done: list[int] = []
        seen: list[int] = []

        def work() -> Generator[None, None, str]:
            for number in range(10):
                done.append(number)
                yield
            return "result"

        async def look() -> None:
            while len(done) < 10:
                seen.append(len(done))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            working = group.create_task(result_in_slices(work(), items=4))
            group.create_task(look())
        assert working.result() == "result"
        assert seen == [4, 8]

    SimulatedWorld(1).run(scenario)


def test_little_work_is_done_at_once() -> None:
    """Work of less than a slice does not let anything in between."""

    async def scenario(_world: SimulatedWorld) -> None:
        has_run: list[bool] = []
        asyncio.get_running_loop().call_soon(has_run.append, True)
        for number in range(ITEMS_PER_SLICE):
            await pause_before(number)
        assert not has_run
        await pause_before(ITEMS_PER_SLICE)
        assert has_run

    SimulatedWorld(1).run(scenario)
