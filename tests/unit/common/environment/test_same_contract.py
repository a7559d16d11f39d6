"""The real and the simulated environment follow the same contract: each scenario runs on both with the same result.

The complete results are compared, so that a daemon tested on the simulator meets no surprises on a real disk.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from common.environment.interface import (
    ConnectFailed,
    Connection,
    Environment,
    LogDir,
    LogDirError,
    LogDirLocked,
    NewFolder,
    Receiver,
)
from common.environment.real import RealEnvironment
from tests.simulation.environment import SimulatedWorld

Scenario = Callable[[Environment, str], Coroutine[Any, Any, Any]]
SECOND = 10**9


async def outcome(pending: Awaitable[Any]) -> Any:
    """Returns the result, or the details of the failure."""
    try:
        return await pending
    except LogDirError as error:
        return (error.operation, errno.errorcode[error.errno_code], error.name, error.detail)
    except LogDirLocked:
        return "locked"


async def attached(env: Environment, path: str) -> tuple[LogDir, list[tuple[str, str]]]:
    """Returns an attached directory, and the list that collects the errors reported to its owner."""
    log_dir = env.log_dir(path, operation_timeout_ns=10 * SECOND)
    told: list[tuple[str, str]] = []
    log_dir.on_error = lambda error: told.append((error.operation, errno.errorcode[error.errno_code]))
    await log_dir.attach(create=True)
    return log_dir, told


async def files_in_order(env: Environment, path: str) -> Any:
    log_dir, told = await attached(env, path)
    file = await log_dir.open("a", create=True)
    pending = [
        log_dir.append(file, 0, [b"0123", bytearray(b"4567"), memoryview(b"89")]),
        log_dir.read(file, 0, 100),
        log_dir.truncate(file, 4),
        log_dir.read(file, 2, 100),
        log_dir.append(file, 4, [b"x"]),
        log_dir.read(file, 0, 5),
        log_dir.read(file, 9, 5),
        log_dir.truncate(file, 8),
        log_dir.read(file, 0, 100),
        log_dir.fsync(file),
        log_dir.stat("a"),
    ]
    results = [await outcome(each) for each in pending]
    results[-1] = (results[-1].size, results[-1].is_directory)
    await log_dir.close()
    return results, told


async def names(env: Environment, path: str) -> Any:
    log_dir, told = await attached(env, path)
    # Each step is awaited before the next one, because what is queued after a sync, a rename or a removal may overtake it.
    steps: list[Callable[[], list[Awaitable[Any]]]] = [
        lambda: [
            log_dir.mkdir("t-0"),
            log_dir.mkdir("t-0"),
            log_dir.mkdir("absent/t-1"),
            log_dir.replace_file("t-0/x", b"one"),
            log_dir.replace_file("t-0/x", lambda: b"two"),
            log_dir.replace_file("absent/x", b"three"),
        ],
        lambda: [
            log_dir.read_file("t-0/x"),
            log_dir.read_file("t-0/x", last=2),
            log_dir.read_file("t-0/x", last=9),
            log_dir.read_file("t-0/y", last=2),
            log_dir.read_file("t-0/y"),
            log_dir.read_file("t-0/x/y"),
            log_dir.read_around_cache("t-0/x"),
            log_dir.read_around_cache("t-0/y"),
            log_dir.list(),
            log_dir.list("t-0"),
            log_dir.list("absent"),
            log_dir.rename("t-0", "t-0.delete"),
            log_dir.rename("absent", "t-9"),
            log_dir.fsync_dir("t-0.delete"),
            log_dir.fsync_dir("absent"),
        ],
        lambda: [
            log_dir.stat("t-0"),
            log_dir.stat("t-0.delete/x/y"),
            log_dir.remove("t-0.delete"),
            log_dir.remove("t-0.delete"),
        ],
        lambda: [log_dir.list()],
    ]
    results = [await outcome(each) for step in steps for each in step()]
    await log_dir.close()
    return results, told


async def new_folders(env: Environment, path: str) -> Any:
    log_dir, told = await attached(env, path)
    one, two = NewFolder("t-1", {"a": b"", "b": b"content"}), NewFolder("t-2", {"a": b"2"})
    results = [
        await outcome(log_dir.create_folders([one, two])),
        await outcome(log_dir.create_folders([NewFolder("t-0", {}), two, one])),
        await outcome(log_dir.list()),
        await outcome(log_dir.list("t-1")),
        await outcome(log_dir.read_file("t-1/b")),
        await outcome(log_dir.fsync_folders(["t-1", "t-2"])),
        await outcome(log_dir.fsync_folders([])),
        await outcome(log_dir.fsync_folders(["t-1", "absent"])),
        await outcome(log_dir.create_folders([NewFolder("absent/t-3", {})])),
        await outcome(log_dir.create_folders([])),
    ]
    await log_dir.close()
    return results, told


async def a_missing_file(env: Environment, path: str) -> Any:
    log_dir, told = await attached(env, path)
    results = [await outcome(log_dir.open("absent")), await outcome(log_dir.open("absent/a", create=True))]
    await log_dir.close()
    return results, told


async def not_attached(env: Environment, path: str) -> Any:
    log_dir = env.log_dir(path, operation_timeout_ns=SECOND)
    results = [await outcome(log_dir.stat("a")), await outcome(log_dir.attach())]
    await log_dir.close()
    return results


async def offline(env: Environment, path: str) -> Any:
    log_dir, told = await attached(env, path)
    await log_dir.lock()
    file = await log_dir.open("a", create=True)
    pending: list[Awaitable[Any]] = [log_dir.append(file, 0, [b"x"]), log_dir.stat("a")]
    log_dir.take_offline(LogDirError(path, "probe", errno.EROFS))
    log_dir.take_offline(LogDirError(path, "probe", errno.EIO))
    pending += [log_dir.append(file, 1, [b"y"]), log_dir.read(file, 0, 1), log_dir.probe(), log_dir.close()]
    return [await outcome(each) for each in pending], told


async def closed(env: Environment, path: str) -> Any:
    log_dir, _told = await attached(env, path)
    file = await log_dir.open("a", create=True)
    pending: list[Awaitable[Any]] = [log_dir.append(file, 0, [b"x"]), log_dir.close(), log_dir.stat("a"), log_dir.close()]
    results = [await outcome(each) for each in pending]
    again, _ = await attached(env, path)
    results.append(await outcome(again.read_file("a")))
    await again.close()
    return results


async def locks(env: Environment, path: str) -> Any:
    first, _ = await attached(env, path)
    second, told = await attached(env, path)
    results = [await outcome(first.lock()), await outcome(first.lock()), await outcome(second.lock())]
    await first.close()
    results.append(await outcome(second.lock()))
    await second.close()
    return results, told


class Side:
    """One end of a connection, which records what happens to it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data = b""
        self.lost: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def data_received(self, view: memoryview) -> None:
        self.data += bytes(view)

    def connection_lost(self, reason: str | None) -> None:
        self.lost.set_result(reason)

    def writable(self) -> None:
        pass


async def connections(env: Environment, path: str) -> Any:
    log_dir, told = await attached(env, path)
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"0123456789"])
    accepted: list[Side] = []
    clients: list[Side] = []

    def accept_on(sides: list[Side]) -> Callable[[Connection], Receiver]:
        def accept(connection: Connection) -> Receiver:
            sides.append(Side(connection))
            return sides[-1]

        return accept

    listener = env.listen("127.0.0.1", 0, accept_on(accepted))
    for _ in range(2):
        await env.connect("127.0.0.1", listener.port, accept_on(clients), deadline_ns=env.now_ns() + SECOND)
    while len(accepted) < 2:
        await env.sleep_until(env.now_ns() + 1_000_000)
    accepted[0].connection.send([b"header", log_dir.region(file, 2, 6), bytearray(b"end")])
    log_dir.close_file(file)
    accepted[0].connection.close()
    accepted[0].connection.send([b"late"])
    accepted[1].connection.abort()
    ends = [await side.lost for side in (accepted[0], clients[0], accepted[1])]
    was_reset = await clients[1].lost is not None
    listener.close()
    with pytest.raises(ConnectFailed):
        await env.connect("127.0.0.1", listener.port, accept_on(clients), deadline_ns=env.now_ns() + SECOND)
    await log_dir.close()
    return ends, was_reset, clients[0].data, accepted[0].connection.queued_bytes, told


SCENARIOS = [files_in_order, names, new_folders, a_missing_file, not_attached, offline, closed, locks, connections]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_environments_do_the_same(scenario: Scenario, tmp_path: Path) -> None:
    """The same calls give the same results, errors and reports."""
    path = str(tmp_path / "disk")

    async def really() -> Any:
        return await scenario(RealEnvironment("node"), path)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        real = runner.run(really())
    simulated = SimulatedWorld(seed=1).run(lambda world: scenario(world.node("node"), path))
    assert simulated == real
