"""From an I/O error to a directory that is offline, or a node that ends: decisions first, then the channel itself."""

import asyncio
import errno

import pytest

from common.environment.interface import LogDirError, SpaceStat
from common.log_dirs.failure_channel import FailureChannel
from common.log_dirs.log_directories import HaltNode, LogDirectories, Trouble, WentOffline
from common.log_dirs.probe import probe_log_dir
from tests.simulation.environment import SimulatedWorld


def directories() -> LogDirectories:
    return LogDirectories(online_data_dirs=["/d1", "/d2"], metadata_log_dir="/m")


def test_the_first_report_of_a_directory_wins() -> None:
    """Everything that still fails in it afterwards changes nothing."""
    core = directories()
    error = LogDirError("/d1", "append", errno.EIO)
    assert core.step(error) == [WentOffline("/d1", str(error), is_full=False)]
    assert core.step(LogDirError("/d1", "fsync", errno.EROFS)) == []
    assert not core.is_online("/d1")
    assert core.is_online("/d2")


def test_the_last_data_directory_takes_the_node_with_it() -> None:
    """So does the metadata directory, whatever else is online."""
    core = directories()
    core.step(LogDirError("/d1", "append", errno.EIO))
    assert [type(effect) for effect in core.step(LogDirError("/d2", "read", errno.EIO))] == [WentOffline, HaltNode]
    assert [type(effect) for effect in directories().step(LogDirError("/m", "fsync", errno.ENOSPC))] == [
        WentOffline,
        HaltNode,
    ]


def test_a_metadata_directory_that_holds_data_too_halts_once() -> None:
    """metadata.log.dir is the first of log.dirs by default."""
    core = LogDirectories(online_data_dirs=["/d1", "/d2"], metadata_log_dir="/d1")
    assert [type(effect) for effect in core.step(LogDirError("/d1", "append", errno.EIO))] == [WentOffline, HaltNode]
    assert core.step(LogDirError("/d1", "append", errno.EIO)) == []


@pytest.mark.parametrize(
    ("operation", "code", "kinds"),
    [
        ("append", errno.EMFILE, [Trouble]),
        ("open", errno.ENOMEM, [Trouble]),
        ("append", errno.EBADF, [HaltNode]),
        ("append", errno.ENOSPC, [WentOffline]),
        ("fsync", errno.ENOSPC, [WentOffline]),
        ("probe", errno.ENOSPC, [Trouble]),
        ("probe", errno.ESTALE, [WentOffline]),
        ("read", errno.ETIMEDOUT, [WentOffline]),
        ("read", errno.EUCLEAN, [WentOffline]),
    ],
)
def test_whose_fault_an_error_is(operation: str, code: int, kinds: list[type]) -> None:
    """One row for each class of errno and operation."""
    assert [type(effect) for effect in directories().step(LogDirError("/d1", operation, code))] == kinds


def test_an_idle_disk_that_dies_is_found_by_the_probe() -> None:
    """Nobody writes; the disk fails; the channel hears of it within one interval and takes the directory offline."""
    world = SimulatedWorld(seed=1)
    world.disk("/d1")
    interval_ns = 10**9

    async def scenario(_: SimulatedWorld) -> None:
        env = world.node("n1")
        log_dir = env.log_dir("/d1", operation_timeout_ns=10**10)
        await log_dir.attach()
        core = LogDirectories(online_data_dirs=["/d1", "/d2"], metadata_log_dir="/m")
        offline: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        channel = FailureChannel(
            env,
            core,
            id_of_path=lambda path: None,
            on_offline=lambda path, _cause: offline.set_result((path, env.now_ns())),
            halt=pytest.fail,
        )
        channel.watch({"/d1": log_dir})
        spaces: list[SpaceStat] = []
        async with asyncio.TaskGroup() as group:
            consumer = group.create_task(channel.run())
            group.create_task(
                probe_log_dir(
                    env, log_dir, interval_ns=interval_ns, is_online=lambda: core.is_online("/d1"), on_space=spaces.append
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
