"""Tests the checker of moves (I15) on a running cluster: a correct move passes, and planted bugs are found."""

import asyncio
import errno
import re
from collections.abc import Awaitable, Callable

import pytest

from common.ids import BrokerId
from common.time_units import NS_PER_MS
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld, SimulationFailed
from tests.simulation.history import History
from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.violations import InvariantViolated

pytestmark = pytest.mark.slow

# Whether an append is in flight at the moment of a swap depends on the seed.
SEEDS_MAX = 8

Course = Callable[[SimulatedCluster, str], Awaitable[None]]


async def undisturbed(cluster: SimulatedCluster, _: str) -> None:
    """Waits until the move has finished, without a fault."""
    await cluster.world.event("move_finished")


async def written_by_several(cluster: SimulatedCluster, _: str) -> None:
    """Several clients write until the move has finished."""
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)

        async def write() -> None:
            while not cluster.world.events_named("move_finished"):
                await client.produce("t", 0, b"meanwhile")
                await cluster.world.sleep(0.005)

        await asyncio.gather(*(write() for _ in range(5)))
        client.close()


async def written_on_a_busy_disk(cluster: SimulatedCluster, target: str) -> None:
    """The same. The disk of the old log is so busy that an append is nearly always on its way to it."""
    for number in (1, 2):
        if cluster.disk(1, number).path != target:
            cluster.disk(1, number).append_ns_max = 30 * NS_PER_MS
    await written_by_several(cluster, target)


async def killed_before_the_swap(cluster: SimulatedCluster, _: str) -> None:
    """Kills the broker just after the metadata has named the target."""
    await cluster.world.event("assignments_acknowledged")
    assert not cluster.world.events_named("move_finished")
    await restart(cluster)
    await cluster.world.event("move_finished")


async def target_lost_before_the_swap(cluster: SimulatedCluster, target: str) -> None:
    """Fails the target disk before the metadata names it."""
    await cluster.world.event("move_caught_up")
    cluster.world.disk(target).fail_with(errno.EIO)
    await cluster.world.sleep(5)


async def target_lost_after_the_swap(cluster: SimulatedCluster, target: str) -> None:
    """Fails the target disk after the move and restarts the broker while the old log is still there, marked for deletion."""
    await undisturbed(cluster, target)
    cluster.world.disk(target).fail_with(errno.EIO)
    await restart(cluster)
    await cluster.world.sleep(5)


async def target_lost_while_the_old_log_waits(cluster: SimulatedCluster, target: str) -> None:
    """Fails the target disk after the move, while the old log is still there, marked for deletion. A probe finds the failure
    before the old log is due."""
    await undisturbed(cluster, target)
    cluster.world.disk(target).fail_with(errno.EIO)
    await cluster.world.sleep(5)


async def restart(cluster: SimulatedCluster) -> None:
    cluster.crash(1)
    cluster.start_node(1)
    await cluster.until_registered_again(1)
    await cluster.until_running()


@pytest.mark.parametrize(
    ("course", "bug", "found"),
    [
        (undisturbed, "the copy takes over before the controller knows", "before the metadata named its directory"),
        (undisturbed, "the old log goes before the copy's name is durable", "a power cut would take its name away"),
        (undisturbed, "the copy gets its name before the old log loses it", "on the platter"),
        (undisturbed, "a copy without the history of leader epochs", "lacks the leader epochs"),
        (written_by_several, "appends go on during the swap", "the new log ends at"),
        (written_on_a_busy_disk, "a swap forgets appends on their way to the disk", "the new log ends at"),
        (killed_before_the_swap, "an assignment of an earlier attempt acknowledges", "an older assignment names the target"),
        (
            target_lost_before_the_swap,
            "a move that failed keeps its assignment",
            "reports it in a directory that is offline",
        ),
        (target_lost_while_the_old_log_waits, "the only copy is deleted as planned", "has no other log of t-0"),
        (target_lost_after_the_swap, "the only copy is deleted as planned", "has no other log of t-0"),
    ],
)
@pytest.mark.parametrize("is_planted", [False, True])
def test_a_mistake_in_a_move_is_found(*, course: Course, bug: str, found: str, is_planted: bool) -> None:
    """Moves the only replica of a partition on a broker with two disks: without the planted bug, or with it and several
    seeds until it is found."""
    if not is_planted:
        SimulatedWorld(seed=1).run(lambda world: move(world, course))
        return
    with next(each for each in PLANTED_BUGS if each.name == bug).planted():
        violations = (_violation(seed, course) for seed in range(1, SEEDS_MAX + 1))
        violation = next((each for each in violations if each is not None), None)
    assert violation is not None, f"not found by {SEEDS_MAX} seeds"
    assert re.match(f"I15: .*{found}", violation)


def _violation(seed: int, course: Course) -> str | None:
    try:
        SimulatedWorld(seed=seed).run(lambda world: move(world, course))
    except InvariantViolated as violation:
        return str(violation)
    except SimulationFailed:
        # The bug has run into an assertion of the daemon before the checker could find it.
        return None
    return None


async def move(world: SimulatedWorld, course: Course) -> None:
    cluster = SimulatedCluster(world, brokers=1, disks=2, overrides={"log.segment.delete.delay.ms": "3000"})
    await cluster.start()
    checkers = Checkers(cluster, History())
    checkers.install()
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)
        await client.create_topic("t", partitions=1, replication_factor=1)
        for value in (b"before", b"after"):
            await client.produce("t", 0, value)
            # The restart begins a new leader epoch at an offset above the log start.
            await restart(cluster)
        target = cluster.other_disk(BrokerId(1), "t")
        await client.move(BrokerId(1), "t", 0, target)
        await course(cluster, target.path)
        client.close()
    checkers.stop()
