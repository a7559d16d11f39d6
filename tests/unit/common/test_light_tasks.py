"""What runs without a task: a coroutine up to its first wait, and what resumes it then."""

import asyncio
from typing import Any

import pytest

from common.light_tasks import LightTask, LightTasks


async def add(*waits: "asyncio.Future[int]") -> int:
    """Adds up what it waits for. Counts a future that fails as 100."""
    total = 0
    for wait in waits:
        try:
            total += await wait
        except ValueError:
            total += 100
    return total


def started(light_tasks: LightTasks, *waits: "asyncio.Future[int]") -> LightTask[int]:
    """Starts `add`, which must have something to wait for."""
    rest = light_tasks.start(add(*waits))
    assert isinstance(rest, LightTask)
    return rest


def test_a_coroutine_that_waits_for_nothing_needs_no_event_loop() -> None:
    assert LightTasks().start(add()) == 0


def test_an_error_before_the_first_wait_reaches_the_caller() -> None:
    async def fail() -> int:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        LightTasks().start(fail())


def test_a_coroutine_that_waits_goes_on_with_what_it_waited_for() -> None:
    """Results and errors of what it waits for reach it, in a later turn of the event loop."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        first, second, third = (loop.create_future() for _ in range(3))
        rest = started(LightTasks(), first, second, third)
        first.set_result(1)
        second.set_exception(ValueError())
        loop.call_later(0, third.set_result, 20)
        assert await rest == 121

    asyncio.run(scenario())


def test_its_result_comes_in_the_turn_in_which_it_ends() -> None:
    async def scenario() -> None:
        wait: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        results: list[int] = []
        started(LightTasks(), wait).when_ended(results.append)
        wait.set_result(7)
        assert results == []
        await asyncio.sleep(0)
        assert results == [7]

    asyncio.run(scenario())


def test_it_may_use_locks_and_yield() -> None:
    async def scenario() -> None:
        lock, order = asyncio.Lock(), list[str]()

        async def work(name: str) -> None:
            async with lock:
                order.append(f"{name} begins")
                await asyncio.sleep(0)
                order.append(f"{name} ends")

        light_tasks = LightTasks()
        both = [light_tasks.start(work(name)) for name in ("first", "second")]
        await asyncio.wait([each.future() for each in both if isinstance(each, LightTask)])
        assert order == ["first begins", "first ends", "second begins", "second ends"]

    asyncio.run(scenario())


def test_an_error_after_a_wait_reaches_the_event_loop() -> None:
    """There it ends the daemon, like the error of any callback."""

    async def scenario() -> None:
        loop, errors = asyncio.get_running_loop(), list[Any]()
        loop.set_exception_handler(lambda _, failed: errors.append(failed["exception"]))
        wait: asyncio.Future[int] = loop.create_future()

        async def fail() -> None:
            await wait
            raise KeyError("later")

        LightTasks().start(fail())
        wait.set_result(1)
        await asyncio.sleep(0)
        assert [type(each) for each in errors] == [KeyError]

    asyncio.run(scenario())


def test_the_end_of_the_group_ends_those_that_wait() -> None:
    """What they waited for may end later, and they must not notice."""

    async def scenario() -> None:
        loop, light_tasks, ended = asyncio.get_running_loop(), LightTasks(), list[str]()
        waits: list[asyncio.Future[None]] = [loop.create_future() for _ in range(3)]
        results: list[None] = []

        async def work(wait: "asyncio.Future[None]", name: str) -> None:
            try:
                await wait
            finally:
                ended.append(name)

        for number, wait in enumerate(waits):
            rest = light_tasks.start(work(wait, f"{number}"))
            assert isinstance(rest, LightTask)
            rest.when_ended(results.append)
        group = loop.create_task(light_tasks.run_until_cancelled())
        waits[0].set_result(None)
        await asyncio.sleep(0)
        assert ended == ["0"]
        group.cancel()
        await asyncio.wait([group])
        assert ended == ["0", "1", "2"]
        waits[1].set_result(None)
        await asyncio.sleep(0)
        assert ended == ["0", "1", "2"]
        assert results == [None]

    asyncio.run(scenario())


def test_one_ends_without_a_result_if_what_it_waits_for_is_given_up() -> None:
    async def scenario() -> None:
        wait: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ended = started(LightTasks(), wait).future()
        wait.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not ended.done()

    asyncio.run(scenario())
