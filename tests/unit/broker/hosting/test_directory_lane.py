"""The lane of one directory runs its jobs in order and one at a time. No job can end the lane."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

from broker.hosting.directory_lane import DirectoryLane
from common.environment.interface import LogDirError
from tests.simulation.environment import SimulatedWorld


def recording(world: SimulatedWorld, done: list[str], name: str, seconds: float = 0.01) -> Callable[[], Awaitable[None]]:
    async def job() -> None:
        await world.sleep(seconds)
        done.append(name)

    return job


def test_jobs_run_in_order_and_named_kinds_are_not_piled_up() -> None:
    """At most one job of each named kind is queued, however often its timer fires while the disk is slow."""

    async def scenario(world: SimulatedWorld) -> None:
        done: list[str] = []
        lane = DirectoryLane()
        async with asyncio.TaskGroup() as group:
            group.create_task(lane.run())
            lane.submit(recording(world, done, "first", 1))
            await world.sleep(0.1)
            for _ in range(3):
                lane.submit(recording(world, done, "checkpoint"), kind="checkpoint")
            lane.submit(recording(world, done, "last"))
            await lane.drained()
            assert done == ["first", "checkpoint", "last"]
            lane.stop()

    SimulatedWorld(1).run(scenario)


def test_a_kind_whose_job_has_begun_may_be_queued_again() -> None:
    """The running job may have looked before the latest change. Each kind has a place of its own in the queue."""

    async def scenario(world: SimulatedWorld) -> None:
        done: list[str] = []
        lane = DirectoryLane()
        async with asyncio.TaskGroup() as group:
            group.create_task(lane.run())
            for kind in ("a", "b", "a"):
                lane.submit(recording(world, done, kind, 1), kind=kind)
            await world.sleep(0.1)
            for kind in ("a", "b", "a"):
                lane.submit(recording(world, done, kind, 1), kind=kind)
            await lane.drained()
            lane.submit(recording(world, done, "b"), kind="b")
            await lane.drained()
            assert done == ["a", "b", "a", "b"]
            lane.stop()

    SimulatedWorld(1).run(scenario)


def test_a_failing_job_does_not_end_the_lane() -> None:
    """If a job fails, the failure channel handles the error, and the lane runs the next job."""

    async def fails() -> None:
        raise LogDirError("/disks/1/a", "append", errno.EIO)

    async def scenario(world: SimulatedWorld) -> None:
        done: list[str] = []
        lane = DirectoryLane()
        async with asyncio.TaskGroup() as group:
            group.create_task(lane.run())
            lane.submit(fails)
            lane.submit(recording(world, done, "next"))
            await lane.drained()
            lane.stop()
        assert done == ["next"]

    SimulatedWorld(1).run(scenario)


def test_a_stopped_lane_drops_what_has_not_begun() -> None:
    """When the lane is stopped, the running job still completes and the queued jobs are dropped. Callers waiting for the
    lane are woken, and new jobs are not accepted."""

    async def scenario(world: SimulatedWorld) -> None:
        done: list[str] = []
        lane = DirectoryLane()
        async with asyncio.TaskGroup() as group:
            group.create_task(lane.run())
            lane.submit(recording(world, done, "begun", 1))
            lane.submit(recording(world, done, "dropped"))
            await world.sleep(0.1)
            lane.stop()
            lane.submit(recording(world, done, "too late"))
            await lane.drained()
        assert done == ["begun"]

    SimulatedWorld(1).run(scenario)
