"""How an I/O error takes a directory offline: its state changes before the operation raises, the effects follow later."""

import asyncio
import errno

import pytest

from common.environment.interface import LogDirError, SpaceStat
from common.log_dirs.failure_channel import WARNING_INTERVAL_NS, FailureChannel
from common.log_dirs.log_directories import WentOffline
from common.log_dirs.probe import probe_log_dir
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.log_dirs.test_log_directories import D1, directories


def test_an_idle_disk_that_dies_is_found_by_the_probe() -> None:
    """The disk of an idle directory fails. The next probe reports the error, and the channel takes the directory
    offline."""
    world = SimulatedWorld(seed=1)
    world.disk("/d1")
    interval_ns = 10**9

    async def scenario(_: SimulatedWorld) -> None:
        env = world.node("n1")
        log_dir = env.log_dir("/d1", operation_timeout_ns=10**10)
        await log_dir.attach()
        known = directories()
        offline: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        channel = FailureChannel(
            env,
            known,
            on_offline=lambda went: offline.set_result((went.log_dir, env.now_ns())),
            halt=pytest.fail,
        )
        channel.watch([log_dir])
        assert channel.io_errors[("/d1", "probe")] == 0, "Prometheus must see the first error as an increase"
        spaces: list[SpaceStat] = []
        async with asyncio.TaskGroup() as group:
            consumer = group.create_task(channel.run())
            group.create_task(
                probe_log_dir(
                    env,
                    log_dir,
                    interval_ns=interval_ns,
                    is_online=lambda: known.is_online(D1),
                    on_space=spaces.append,
                )
            )
            await env.sleep_until(env.now_ns() + 3 * interval_ns)
            assert len(spaces) >= 2
            failed_ns = env.now_ns()
            world.disk("/d1").fail_with(errno.EIO)
            path, noticed_ns = await offline
            assert path == "/d1"
            assert noticed_ns - failed_ns <= 2 * interval_ns
            with pytest.raises(LogDirError):
                await log_dir.stat("x")
            consumer.cancel()
        assert channel.io_errors[("/d1", "probe")] == 1

    world.run(scenario)


def test_whoever_awaits_a_failed_operation_finds_the_directory_offline() -> None:
    """The directory's state changes as soon as the error arrives, before the channel's consumer has run. The effects are
    carried out once, when the consumer runs."""
    world = SimulatedWorld(seed=1)
    world.disk("/d1").fail_with(errno.EIO)

    async def scenario(_: SimulatedWorld) -> None:
        env = world.node("n1")
        log_dir = env.log_dir("/d1", operation_timeout_ns=10**10)
        await log_dir.attach()
        known = directories()
        carried_out: list[WentOffline] = []
        channel = FailureChannel(env, known, on_offline=carried_out.append, halt=pytest.fail)
        channel.watch([log_dir])
        for _attempt in range(2):
            with pytest.raises(LogDirError):
                await log_dir.open("x")
            assert not known.at("/d1").is_online
        assert carried_out == []
        async with asyncio.TaskGroup() as group:
            consumer = group.create_task(channel.run())
            await env.sleep_until(env.now_ns() + 1)
            consumer.cancel()
        assert [(went.log_dir, went.directory_id) for went in carried_out] == [("/d1", D1)]

    world.run(scenario)


def test_a_process_that_is_short_of_files_does_not_flood_its_log() -> None:
    """Of a hundred failed operations a second only one line in WARNING_INTERVAL_NS tells, and each line how many it stands
    for. Another kind of error has lines of its own."""
    world = SimulatedWorld(seed=1)
    world.disk("/d1")

    async def scenario(_: SimulatedWorld) -> None:
        env = world.node("n1")
        offline: list[WentOffline] = []
        channel = FailureChannel(env, directories(), on_offline=offline.append, halt=pytest.fail)
        async with asyncio.TaskGroup() as group:
            consumer = group.create_task(channel.run())
            for number in range(2000):
                channel.report(LogDirError("/d1", "open", errno.EMFILE, f"t-{number}"))
                if number == 500:
                    channel.report(LogDirError("/d1", "probe", errno.ENOSPC))
                await env.sleep_until(env.now_ns() + WARNING_INTERVAL_NS // 1000)
            consumer.cancel()
        assert not offline
        lines = [(event.fields["cause"], event.fields["errors"]) for event in world.events_named("log_dir_warning")]
        assert [("ENOSPC" in cause, errors) for cause, errors in lines] == [(False, 1), (True, 1), (False, 1000)]
        assert channel.io_errors == {("/d1", "open"): 2000, ("/d1", "probe"): 1}

    world.run(scenario)
