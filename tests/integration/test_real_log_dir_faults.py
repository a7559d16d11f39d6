"""RealLogDir on loop-mounted ext4 disks that really die, hang, fill up and vanish (root and loop devices)."""

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Connection, LogDirError, Receiver
from common.environment.real import RealEnvironment
from common.environment.real_log_dir import RealLogDir
from common.time_units import NS_PER_S
from tests.hanging_disks import frozen
from tests.integration.loop_disks import unmount_lazily
from tests.integration.standstills import Standstills
from tools.lab.disk_lab import Disk, kill_disk, make_disk, remove_disk, revive_disk

pytestmark = [pytest.mark.root, pytest.mark.slow]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def disk(loop_disks: None, tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MiB. Its mount and loop device are always removed afterwards."""
    path = tmp_path / "disk"
    make_disk(path, size_mib=32)
    yield path
    if Disk(path).is_mounted:
        unmount_lazily(path)
    remove_disk(path)


class Owner:
    """A log directory and the errors it reported."""

    def __init__(self, env: RealEnvironment, path: Path, *, timeout_ms: int = 10_000) -> None:
        log_dir = env.log_dir(str(path), operation_timeout_ns=timeout_ms * 1_000_000)
        assert isinstance(log_dir, RealLogDir)
        self.log_dir = log_dir
        self.errors: list[LogDirError] = []
        log_dir.on_error = self.errors.append

    @property
    def codes(self) -> set[int]:
        return {error.errno_code for error in self.errors}


@pytest.fixture
async def env() -> RealEnvironment:
    return RealEnvironment("test")


async def failing_code(pending: object) -> int:
    with pytest.raises(LogDirError) as caught:
        await pending  # type: ignore[misc]
    return caught.value.errno_code


async def test_a_disk_that_dies_under_open_files(env: RealEnvironment, disk: Path) -> None:
    """After the shutdown ioctl every kind of operation fails with EIO, including those on open files. Once the directory is
    offline, the disk can be unmounted, and the synced data is there when it comes back."""
    owner = Owner(env, disk)
    log_dir = owner.log_dir
    await log_dir.attach()
    await log_dir.lock()
    await log_dir.probe()
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"synced"])
    await log_dir.fsync(file)
    await log_dir.fsync_dir()
    await log_dir.append(file, 6, [b"not synced"])
    kill_disk(disk)
    operations = [
        log_dir.probe(),
        log_dir.append(file, 16, [b"x"]),
        log_dir.read(file, 0, 6),
        log_dir.fsync(file),
        log_dir.replace_file("checkpoint", b"x"),
        log_dir.mkdir("t-0"),
    ]
    assert [await failing_code(operation) for operation in operations] == [errno.EIO] * len(operations)
    assert {classify(error) for error in owner.errors} == {Verdict.DIRECTORY_FAILED}
    log_dir.take_offline(owner.errors[0])
    await log_dir.released
    revive_disk(disk)
    assert (disk / "a").read_bytes()[:6] == b"synced"


async def test_an_idle_disk_that_died_is_found_by_the_probe_alone(env: RealEnvironment, disk: Path) -> None:
    """list, stat and statvfs still succeed on the dead disk. The probe fails."""
    owner = Owner(env, disk)
    await owner.log_dir.attach()
    kill_disk(disk)
    await owner.log_dir.list()
    await owner.log_dir.stat("lost+found")
    await owner.log_dir.statvfs()
    assert owner.errors == []
    assert await failing_code(owner.log_dir.probe()) == errno.EIO
    await owner.log_dir.close()


async def test_sendfile_from_a_dead_disk_ends_the_connection(env: RealEnvironment, disk: Path) -> None:
    """The pages are still cached, but the file system refuses to read them. sendfile raises the error on the event loop."""
    owner = Owner(env, disk)
    await owner.log_dir.attach()
    file = await owner.log_dir.open("a", create=True)
    await owner.log_dir.append(file, 0, [bytes(1 << 20)])
    region = owner.log_dir.region(file, 0, 1 << 20)
    kill_disk(disk)
    lost: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    class Sender:
        def __init__(self, connection: Connection) -> None:
            connection.send([b"header", region])

        def data_received(self, view: memoryview) -> None:
            raise AssertionError("nothing was sent")

        def connection_lost(self, reason: str | None) -> None:
            lost.set_result(reason)

        def writable(self) -> None:
            raise AssertionError("nothing can have left")

    def accept(connection: Connection) -> Receiver:
        return Sender(connection)

    listener = env.listen("127.0.0.1", 0, accept)
    with socket.create_connection((listener.host, listener.port)):
        async with asyncio.timeout(60):
            assert await lost is not None
    listener.close()
    assert [(error.operation, error.errno_code) for error in owner.errors] == [("region", errno.EIO)]
    owner.log_dir.take_offline(owner.errors[0])
    await owner.log_dir.released


async def test_a_disk_that_hangs(env: RealEnvironment, disk: Path, tmp_path: Path) -> None:
    """On a frozen disk a write blocks in the kernel where no signal reaches it. Once its deadline has passed, the directory
    goes offline and its lock is released. Another directory and the event loop are not delayed. After the thaw the blocked
    threads close all files."""
    owner, other = Owner(env, disk, timeout_ms=1000), Owner(env, tmp_path / "other")
    log_dir, healthy = owner.log_dir, other.log_dir
    await log_dir.attach()
    await log_dir.lock()
    await healthy.attach(create=True)
    file, healthy_file = await log_dir.open("a", create=True), await healthy.open("a", create=True)
    await log_dir.append(file, 0, [b"x"])
    slowest_ns = 0
    with Standstills(tmp_path) as standstills, frozen(disk):
        stuck, probe = log_dir.append(file, 1, [b"y"]), log_dir.probe()
        began = time.monotonic()
        for i in range(200):
            start_ns = env.now_ns()
            await healthy.append(healthy_file, i, [b"z"])
            slowest_ns = max(slowest_ns, env.now_ns() - start_ns)
        stood_still_ns = round(standstills.seconds_since(began) * NS_PER_S)
        assert await failing_code(stuck) == errno.ETIMEDOUT
        assert await failing_code(probe) == errno.ETIMEDOUT
        assert log_dir.oldest_operation_age_ns >= NS_PER_S
        log_dir.take_offline(owner.errors[0])
        assert await failing_code(log_dir.stat("a")) == errno.ETIMEDOUT
        log_dir.release_lock_now()
        assert not log_dir.released.done()
    async with asyncio.timeout(60):
        await log_dir.released
    assert slowest_ns < NS_PER_S + stood_still_ns, f"an append on the healthy directory took {slowest_ns / 1e6:.1f} ms"
    assert other.errors == []
    await healthy.close()


async def test_a_disk_that_fills_up(env: RealEnvironment, disk: Path) -> None:
    """Appends succeed until one fails. The file holds the successful appends and nothing of the failed one. The error is
    classified as DIRECTORY_FULL, not as DIRECTORY_FAILED."""
    owner = Owner(env, disk)
    await owner.log_dir.attach()
    file = await owner.log_dir.open("a", create=True)
    chunk = os.urandom(700_000)
    written = 0
    while owner.errors == []:
        with contextlib.suppress(LogDirError):
            await owner.log_dir.append(file, written, [chunk])
            written += len(chunk)
    assert [error.errno_code for error in owner.errors] == [errno.ENOSPC]
    assert classify(owner.errors[0]) is Verdict.DIRECTORY_FULL
    found = await owner.log_dir.stat("a")
    assert found is not None
    assert found.size == written
    assert await owner.log_dir.read(file, written - len(chunk), len(chunk)) == chunk
    await owner.log_dir.close()


async def test_a_mount_that_vanishes(env: RealEnvironment, disk: Path) -> None:
    """After a lazy unmount the path is an empty folder of the parent file system, where writes would succeed. All operations
    still reach the directory that was opened, and the probe reports that the path now leads elsewhere."""
    owner = Owner(env, disk)
    await owner.log_dir.attach()
    unmount_lazily(disk)
    await owner.log_dir.replace_file("a", b"x")
    assert await failing_code(owner.log_dir.probe()) == errno.ESTALE
    assert os.listdir(disk) == []
    owner.log_dir.take_offline(owner.errors[0])
    await owner.log_dir.released
