"""The probe of an idle directory: the free space that it reports, and when it ends."""

import asyncio
import errno

from common.environment.interface import LogDir, SpaceStat
from common.log_dirs.probe import probe_log_dir
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld

INTERVAL_NS = NS_PER_S


async def attached(world: SimulatedWorld) -> LogDir:
    world.disk("/d")
    log_dir = world.node("n").log_dir("/d", operation_timeout_ns=10 * INTERVAL_NS)
    await log_dir.attach()
    return log_dir


def test_a_full_disk_is_probed_on_and_its_space_stays_known() -> None:
    """The disk becomes full and later has free space again. Each probe reports the current free space."""

    async def scenario(world: SimulatedWorld) -> None:
        seen: list[SpaceStat] = []
        log_dir = await attached(world)
        probing = probe_log_dir(
            world.node("n"), log_dir, interval_ns=INTERVAL_NS, is_online=lambda: True, on_space=seen.append
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(probing)
            disk = world.disk("/d")
            disk.write("ballast", bytes(1000))
            for capacity in (10_000, disk.used_bytes(), 10_000):
                disk.capacity_bytes = capacity
                await world.sleep(1.1)
            task.cancel()
        assert [space.usable_bytes > 0 for space in seen] == [True, False, True]

    SimulatedWorld(seed=1).run(scenario)


def test_a_dead_disk_is_probed_until_it_is_offline() -> None:
    """Each probe reports an error, and `on_space` is not called. The task ends when the directory is offline."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        errors: list[int] = []
        log_dir.on_error = lambda error: errors.append(error.errno_code)
        world.disk("/d").fail_with(errno.EIO)
        seen: list[SpaceStat] = []
        await probe_log_dir(
            world.node("n"),
            log_dir,
            interval_ns=INTERVAL_NS,
            is_online=lambda: len(errors) < 3,
            on_space=seen.append,
        )
        assert errors == [errno.EIO] * 3
        assert seen == []

    SimulatedWorld(seed=1).run(scenario)
