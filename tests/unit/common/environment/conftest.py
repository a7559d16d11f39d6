"""Runs every async test on both event loops, and checks that each test leaves no socket or lock in the process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from common.environment.disk_operations import HeldDirectory
from common.environment.interface import LogDirError
from common.environment.process import PROCESS
from common.environment.real import RealEnvironment
from common.environment.real_log_dir import RealLogDir


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def env() -> AsyncIterator[RealEnvironment]:
    yield RealEnvironment("test")
    # The test may have closed connections in its last step. Let their callbacks run first.
    await asyncio.sleep(0)
    leftover_sockets, leftover_locks = list(PROCESS.sockets), list(PROCESS.held_locks)
    for sock in leftover_sockets:
        PROCESS.sockets.pop(sock)
        sock.close()
    PROCESS.held_locks.clear()
    assert leftover_sockets == []
    assert leftover_locks == []


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acts as if the kernel counted no writes of the device: the machine's other programs write to it, too, and deadlines
    would not be met."""
    monkeypatch.setattr(HeldDirectory, "count_device_writes", lambda _: None)


MakeLogDir = Callable[..., Awaitable[RealLogDir]]


@pytest.fixture
async def make_log_dir(env: RealEnvironment, tmp_path: Path) -> AsyncIterator[MakeLogDir]:
    """Yields a function that creates and attaches a log directory. All of them are closed after the test.

    `timeout_ms` is the deadline of each disk operation, `sync_timeout_ms` that of syncs and removals.
    """
    made: list[RealLogDir] = []

    async def make(name: str = "disk", *, timeout_ms: int = 10_000, sync_timeout_ms: int = 60_000) -> RealLogDir:
        log_dir = env.log_dir(
            str(tmp_path / name),
            operation_timeout_ns=timeout_ms * 1_000_000,
            sync_timeout_ns=sync_timeout_ms * 1_000_000,
        )
        assert isinstance(log_dir, RealLogDir)
        await log_dir.attach(create=True)
        made.append(log_dir)
        return log_dir

    yield make
    for log_dir in made:
        await log_dir.close()
        await log_dir.released


@pytest.fixture
async def log_dir(make_log_dir: MakeLogDir) -> RealLogDir:
    return await make_log_dir()


class Reports:
    """Collects the errors that a LogDir reports to its owner. With `offline`, an error also takes the directory offline."""

    def __init__(self, log_dir: RealLogDir, *, offline: bool = False) -> None:
        self.errors: list[LogDirError] = []
        self._log_dir = log_dir
        self._offline = offline
        log_dir.on_error = self._on_error

    def _on_error(self, error: LogDirError) -> None:
        self.errors.append(error)
        if self._offline:
            self._log_dir.take_offline(error)

    @property
    def codes(self) -> list[tuple[str, int]]:
        return [(error.operation, error.errno_code) for error in self.errors]
