"""What runs without a task: a coroutine up to its first wait."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from common.first_step import run_first_step


async def add(*waits: "asyncio.Future[int]") -> int:
    """Adds up what it waits for. Counts a future that fails as 100."""
    total = 0
    for wait in waits:
        try:
            total += await wait
        except ValueError:
            total += 100
    return total


def started(*waits: "asyncio.Future[int]") -> Coroutine[Any, Any, int]:
    """Starts `add`, which must have something to wait for."""
    rest = run_first_step(add(*waits))
    assert asyncio.iscoroutine(rest)
    return rest


def test_a_coroutine_that_waits_for_nothing_needs_no_event_loop() -> None:
    assert run_first_step(add()) == 0


def test_an_error_before_the_first_wait_reaches_the_caller() -> None:
    async def fail() -> int:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        run_first_step(fail())


def test_a_coroutine_that_waits_goes_on_in_a_task() -> None:
    """Its results and the errors of what it waits for reach it, even if they come before the task has begun."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        first, second, third = (loop.create_future() for _ in range(3))
        rest = started(first, second, third)
        first.set_result(1)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(rest)
            loop.call_soon(second.set_exception, ValueError())
            loop.call_later(0, third.set_result, 20)
        assert task.result() == 121

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_cancelled_coroutine_ends_whether_its_task_has_begun_or_not(turns: int) -> None:
    async def scenario() -> None:
        ended = False

        async def wait() -> None:
            nonlocal ended
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended = True

        rest = run_first_step(wait())
        assert asyncio.iscoroutine(rest)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(rest)
            del rest
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        del task
        assert ended

    asyncio.run(scenario())


def test_a_coroutine_that_is_closed_while_it_waits_ends() -> None:
    async def scenario() -> None:
        ended = False

        async def wait() -> None:
            nonlocal ended
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended = True

        rest = run_first_step(wait())
        assert asyncio.iscoroutine(rest)
        rest.send(None)
        rest.close()
        assert ended

    asyncio.run(scenario())
