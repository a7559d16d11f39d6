"""Syncs of RealLogDir have a thread and a deadline of their own. System calls are replaced to make a healthy disk slow."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count, repeat
from typing import Any

import pytest

from common.environment import disk_operations
from common.environment.disk_operations import HeldDirectory
from common.environment.interface import LogDirError, LogFile
from common.environment.real import RealEnvironment
from common.environment.real_log_dir import RealLogDir, RealLogFile
from tests.unit.common.environment.conftest import MakeLogDir, Reports

# Before a fixture replaces it.
count_device_writes = HeldDirectory.count_device_writes


class Held:
    """Replaces a system call with one that waits for `release`. Sets `entered` when it is called."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.entered.set()
        assert self.release.wait(30)
        return self._call(*arguments)


def held(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[Held]:
    call = Held(getattr(os, name.removeprefix("_")))
    monkeypatch.setattr(disk_operations, name, call)
    yield call
    call.release.set()


@pytest.fixture
def held_sync(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Holds every fdatasync, as a disk does that writes a full segment."""
    yield from held(monkeypatch, "_fdatasync")


@pytest.fixture
def held_write(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    yield from held(monkeypatch, "_pwritev")


@pytest.fixture
def held_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Held]]:
    """Yields a function that holds every call of this name from now on."""
    calls: list[Held] = []

    def hold(name: str) -> Held:
        calls.append(Held(getattr(os, name.removeprefix("_"))))
        monkeypatch.setattr(disk_operations, name, calls[-1])
        return calls[-1]

    yield hold
    for call in calls:
        call.release.set()


@pytest.fixture
def held_probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Holds every fsync, and so every probe."""
    yield from held(monkeypatch, "_fsync")


# --- what goes on during a sync --------------------------------------------------------------------------------------
async def test_appends_and_reads_go_on_during_a_sync(log_dir: RealLogDir, held_sync: Held) -> None:
    """One file is being synced, which takes long. Appends, reads and new files do not wait for it, not even in that file. No
    client waits for it, so the directory is not silent."""
    full, other = await log_dir.open("full", create=True), await log_dir.open("other", create=True)
    await log_dir.append(full, 0, [b"full"])
    sync = asyncio.ensure_future(log_dir.fsync(full))
    await asyncio.to_thread(held_sync.entered.wait)
    await log_dir.append(full, 4, [b"+"])
    await log_dir.append(other, 0, [b"other"])
    await log_dir.truncate(other, 4)
    assert await log_dir.read(full, 0, 9) == b"full+"
    assert await log_dir.read(other, 0, 9) == b"othe"
    await log_dir.open("next", create=True)
    await log_dir.probe()
    assert not sync.done()
    assert log_dir.silence_ns == 0
    assert log_dir.oldest_operation_age_ns > 0
    held_sync.release.set()
    await sync


async def test_a_sync_that_clients_wait_for_has_an_age_and_is_no_silence(log_dir: RealLogDir, held_sync: Held) -> None:
    """A busy disk may need long for it. The age counts from the first such sync, not from other syncs before it."""
    file = await log_dir.open("a", create=True)
    other = asyncio.ensure_future(log_dir.fsync(file))
    await asyncio.to_thread(held_sync.entered.wait)
    assert log_dir.awaited_sync_age_ns == 0
    before_ns = time.monotonic_ns()
    awaited = [asyncio.ensure_future(log_dir.fsync(file, is_awaited=True)) for _ in range(2)]
    assert 0 < log_dir.awaited_sync_age_ns <= time.monotonic_ns() - before_ns
    assert log_dir.silence_ns == 0
    held_sync.release.set()
    await asyncio.gather(other, *awaited)
    assert log_dir.awaited_sync_age_ns == 0


async def test_changes_of_names_hold_up_no_appends(log_dir: RealLogDir, held_probe: Held) -> None:
    """A checkpoint is replaced, and a file renamed after it. Both wait for the disk, and appends for neither."""
    file = await log_dir.open("a", create=True)
    replaced, renamed = log_dir.replace_file("checkpoint", b"1"), log_dir.rename("checkpoint", "renamed")
    await asyncio.to_thread(held_probe.entered.wait)
    await log_dir.append(file, 0, [b"x"])
    assert await log_dir.stat("renamed") is None
    held_probe.release.set()
    await replaced
    await renamed
    assert await log_dir.read_file("renamed") == b"1"


@pytest.mark.parametrize("method", ["fsync", "sync_and_forget"])
async def test_a_sync_covers_every_append_before_it(
    log_dir: RealLogDir, held_write: Held, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The appends before a sync are still queued. The sync starts only when the kernel has them all, and its result comes
    after theirs."""
    sizes: list[int] = []

    def sync(fd: int) -> None:
        sizes.append(os.fstat(fd).st_size)
        os.fdatasync(fd)

    monkeypatch.setattr(disk_operations, "_fdatasync", sync)
    file, other = await log_dir.open("a", create=True), await log_dir.open("b", create=True)
    ended: list[str] = []

    def note(name: str, _: object) -> None:
        ended.append(name)

    pending = []
    for position in range(3):
        pending.append(asyncio.ensure_future(log_dir.append(file, position, [b"x"])))
        pending.append(asyncio.ensure_future(log_dir.append(other, position, [b"y"])))
    pending.append(asyncio.ensure_future(getattr(log_dir, method)(file)))
    for name, future in zip(["append"] * 6 + ["sync"], pending, strict=True):
        future.add_done_callback(partial(note, name))
    await asyncio.to_thread(held_write.entered.wait)
    assert sizes == []
    held_write.release.set()
    await asyncio.gather(*pending)
    assert sizes == [3]
    assert ended == ["append"] * 6 + ["sync"]


async def test_the_results_of_appends_come_before_that_of_their_sync(log_dir: RealLogDir) -> None:
    """When the event loop learns that a sync has ended, it must already know that the appends covered by it are written: a
    log's recovery point may not pass its written offset. Many rounds, because the threads race."""
    file = await log_dir.open("a", create=True)
    for position in range(200):
        append = asyncio.ensure_future(log_dir.append(file, position, [b"x"]))
        await log_dir.fsync(file)
        assert append.done()


async def test_syncs_keep_their_order(log_dir: RealLogDir, held_sync: Held) -> None:
    """Renames, checkpoints and syncs take effect in the order of the calls, and a removal after all of them."""
    file = await log_dir.open("a", create=True)
    ended: list[str] = []

    def note(name: str, _: object) -> None:
        ended.append(name)

    pending = {
        "fsync": log_dir.fsync(file),
        "rename": log_dir.rename("a", "b"),
        "replace": log_dir.replace_file("c", b"1"),
        "remove": log_dir.remove("b"),
    }
    for name, awaitable in pending.items():
        asyncio.ensure_future(awaitable).add_done_callback(partial(note, name))
    await asyncio.to_thread(held_sync.entered.wait)
    assert await log_dir.stat("a") is not None
    held_sync.release.set()
    await asyncio.gather(*pending.values())
    assert ended == list(pending)
    assert [entry.name for entry in await log_dir.list()] == ["c"]


async def test_a_file_is_encoded_by_the_thread_that_writes_it(log_dir: RealLogDir) -> None:
    """So the encoding of a large file does not keep the event loop busy. Files are encoded in the order of the calls, each
    when its turn has come."""
    encoded: list[tuple[str, str]] = []

    def encode(content: str) -> bytes:
        encoded.append((content, threading.current_thread().name))
        return content.encode()

    await asyncio.gather(*(log_dir.replace_file("x", partial(encode, content)) for content in ("one", "two")))
    assert encoded == [(content, f"syncer of {log_dir.path}") for content in ("one", "two")]
    assert await log_dir.read_file("x") == b"two"


async def test_cached_data_is_sent_during_a_sync(
    log_dir: RealLogDir, held_sync: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old a sync is, sendfile of cached data does not block on it."""
    monkeypatch.setattr("common.environment.real_log_dir._SUSPICIOUS_AGE_NS", 1)
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"x"])
    sync = log_dir.fsync(file)
    await asyncio.to_thread(held_sync.entered.wait)
    assert isinstance(file, RealLogFile)
    assert file.open_file is not None
    assert log_dir._is_responsive(file.open_file)
    held_sync.release.set()
    await sync


# --- deadlines -------------------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_a_sync_has_a_deadline_of_its_own(make_log_dir: MakeLogDir, held_sync: Held) -> None:
    """A sync that outlasts the operation timeout is no failure; one that outlasts the sync timeout is."""
    patient = await make_log_dir("patient", timeout_ms=100)
    strict = await make_log_dir("strict", timeout_ms=100, sync_timeout_ms=500)
    reports = [Reports(patient), Reports(strict)]
    syncs = [log_dir.fsync(await log_dir.open("a", create=True)) for log_dir in (patient, strict)]
    with pytest.raises(LogDirError):
        await syncs[1]
    assert [each.codes for each in reports] == [[], [("fsync", errno.ETIMEDOUT)]]
    held_sync.release.set()
    await syncs[0]


@pytest.mark.slow
async def test_an_append_keeps_its_deadline_during_a_sync(
    make_log_dir: MakeLogDir, held_sync: Held, held_write: Held
) -> None:
    """The timer is armed for the distant deadline of a sync when an append is queued, which has less time."""
    log_dir = await make_log_dir(timeout_ms=300)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    sync = log_dir.fsync(file)
    await asyncio.to_thread(held_sync.entered.wait)
    with pytest.raises(LogDirError):
        await log_dir.append(file, 0, [b"x"])
    assert reports.codes == [("append", errno.ETIMEDOUT)]
    held_write.release.set()
    held_sync.release.set()
    await sync


@pytest.mark.slow
async def test_a_disk_that_writes_something_else_is_busy_and_not_dead(
    env: RealEnvironment, make_log_dir: MakeLogDir, held_probe: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe waits for its fsync longer than the operation timeout, but the device finishes one write after the other."""
    writes = iter(range(1 << 30))
    monkeypatch.setattr(HeldDirectory, "count_device_writes", lambda _: next(writes))
    log_dir = await make_log_dir(timeout_ms=200)
    reports = Reports(log_dir)
    probe = asyncio.ensure_future(log_dir.probe())
    await env.sleep_until(env.now_ns() + 700_000_000)
    assert not probe.done()
    held_probe.release.set()
    await probe
    assert reports.errors == []


@pytest.mark.slow
async def test_an_append_may_wait_for_a_busy_disk(
    env: RealEnvironment, make_log_dir: MakeLogDir, held_write: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append needs a block of the journal that is queued at the device. It expires when the device stands still."""
    writes = 0

    def count(_: HeldDirectory) -> int:
        nonlocal writes
        writes += 1 - stands_still
        return writes

    stands_still = False
    monkeypatch.setattr(HeldDirectory, "count_device_writes", count)
    log_dir = await make_log_dir(timeout_ms=200)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    append = asyncio.ensure_future(log_dir.append(file, 0, [b"x"]))
    await env.sleep_until(env.now_ns() + 700_000_000)
    assert not append.done()
    stands_still = True
    with pytest.raises(LogDirError):
        await append
    assert reports.codes == [("append", errno.ETIMEDOUT)]
    held_write.release.set()


@pytest.mark.slow
async def test_a_busy_disk_may_not_be_busy_without_end(
    make_log_dir: MakeLogDir, held_probe: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe never gets more time than a sync."""
    writes = iter(range(1 << 30))
    monkeypatch.setattr(HeldDirectory, "count_device_writes", lambda _: next(writes))
    log_dir = await make_log_dir(timeout_ms=200, sync_timeout_ms=600)
    reports = Reports(log_dir)
    with pytest.raises(LogDirError):
        await log_dir.probe()
    assert reports.codes == [("probe", errno.ETIMEDOUT)]
    held_probe.release.set()


@pytest.mark.slow
async def test_a_device_that_writes_nothing_is_dead_although_the_page_cache_takes_appends(
    make_log_dir: MakeLogDir, held_probe: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends to a hung disk go on until the memory for dirty pages is used up. They prove nothing."""
    monkeypatch.setattr(HeldDirectory, "count_device_writes", lambda _: 7)
    log_dir = await make_log_dir(timeout_ms=300)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    probe = asyncio.ensure_future(log_dir.probe())
    position = 0
    while not probe.done():
        await log_dir.append(file, position, [b"x"])
        position += 1
    with pytest.raises(LogDirError):
        await probe
    assert reports.codes == [("probe", errno.ETIMEDOUT)]
    held_probe.release.set()


@pytest.mark.parametrize("hung", ["append", "read"])
@pytest.mark.parametrize("stands_still", [True, False])
async def test_a_hung_disk_is_silent_although_the_page_cache_answers(
    hung: str,
    stands_still: bool,
    make_log_dir: MakeLogDir,
    held_calls: Callable[[str], Held],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read waits, and an append is finished, or the other way round. What is finished proves nothing unless the device
    finishes something, too: then the disk is busy."""
    writes = repeat(7) if stands_still else count()
    monkeypatch.setattr(HeldDirectory, "count_device_writes", lambda _: next(writes))
    log_dir = await make_log_dir()
    one, other = await log_dir.open("a", create=True), await log_dir.open("b", create=True)
    for file in (one, other):
        await log_dir.append(file, 0, [b"x"])
    steps: dict[str, Callable[[LogFile], Awaitable[object]]] = {
        "append": lambda file: log_dir.append(file, 1, [b"y"]),
        "read": lambda file: log_dir.read(file, 0, 1),
    }
    held_call = held_calls({"append": "_pwritev", "read": "_pread"}[hung])
    waiting = asyncio.ensure_future(steps.pop(hung)(one))
    await asyncio.to_thread(held_call.entered.wait)
    waits_since_ns = time.monotonic_ns()
    [goes_on] = steps.values()
    await goes_on(other)
    now_ns = time.monotonic_ns()
    silence_ns = log_dir.silence_ns
    if stands_still:
        assert silence_ns > now_ns - waits_since_ns
    else:
        assert silence_ns < time.monotonic_ns() - waits_since_ns
    held_call.release.set()
    await waiting
    assert log_dir.silence_ns == 0


@pytest.mark.slow
async def test_without_a_counter_any_finished_operation_is_progress(
    make_log_dir: MakeLogDir, held_probe: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have no device whose writes the kernel counts. Then appends that go on speak for the disk, and the
    probe expires when they end."""
    monkeypatch.setattr(HeldDirectory, "count_device_writes", lambda _: None)
    log_dir = await make_log_dir(timeout_ms=1000)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    probe = asyncio.ensure_future(log_dir.probe())
    end_ns = time.monotonic_ns() + 1_500_000_000
    position = 0
    while time.monotonic_ns() < end_ns:
        await log_dir.append(file, position, [b"x"])
        position += 1
    assert not probe.done()
    with pytest.raises(LogDirError):
        await probe
    assert reports.codes == [("probe", errno.ETIMEDOUT)]
    held_probe.release.set()


async def test_the_device_of_a_directory_counts_its_writes(log_dir: RealLogDir) -> None:
    """A synced append shows in the counter, unless the file system of the temporary directory has no device."""
    before = count_device_writes(log_dir._directory)
    if before is None:
        pytest.skip("the kernel counts no writes for the file system of the temporary directory")
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [os.urandom(1 << 16)])
    await log_dir.fsync(file)
    after = count_device_writes(log_dir._directory)
    assert after is not None
    assert after > before


# --- the end ---------------------------------------------------------------------------------------------------------
async def test_close_finishes_the_syncs_and_the_removals_after_them(make_log_dir: MakeLogDir, held_sync: Held) -> None:
    """Nothing that was queued is lost when the directory is closed during a sync."""
    log_dir = await make_log_dir()
    file = await log_dir.open("a", create=True)
    pending = [log_dir.fsync(file), log_dir.replace_file("b", b"1"), log_dir.remove("a")]
    closed = asyncio.ensure_future(log_dir.close())
    await asyncio.to_thread(held_sync.entered.wait)
    assert not closed.done()
    held_sync.release.set()
    await closed
    await asyncio.gather(*pending)
    assert os.listdir(log_dir.path) == ["b"]


async def test_offline_abandons_a_sync_that_hangs(make_log_dir: MakeLogDir, held_sync: Held) -> None:
    """What waits for the syncer fails at once. The descriptors are closed when the sync returns; nothing more is done."""
    log_dir = await make_log_dir()
    file = await log_dir.open("a", create=True)
    pending = [log_dir.fsync(file), log_dir.rename("a", "b"), log_dir.remove("a")]
    await asyncio.to_thread(held_sync.entered.wait)
    error = LogDirError(log_dir.path, "probe", errno.EIO)
    log_dir.take_offline(error)
    assert await asyncio.gather(*pending, return_exceptions=True) == [error] * 3
    assert not log_dir.released.done()
    held_sync.release.set()
    await log_dir.released
    assert os.listdir(log_dir.path) == ["a"]


@pytest.mark.slow
async def test_close_does_not_wait_for_a_hung_sync_until_the_deadline_of_syncs(
    make_log_dir: MakeLogDir, held_sync: Held
) -> None:
    """The disk makes no progress, so the process may end after the deadline of the other operations."""
    log_dir = await make_log_dir(timeout_ms=300, sync_timeout_ms=5_000)
    file = await log_dir.open("a", create=True)
    sync = asyncio.ensure_future(log_dir.fsync(file))
    await asyncio.to_thread(held_sync.entered.wait)
    began_ns = time.monotonic_ns()
    with pytest.raises(LogDirError) as caught:
        await log_dir.close()
    assert (caught.value.operation, caught.value.errno_code) == ("close", errno.ETIMEDOUT)
    assert time.monotonic_ns() - began_ns < 2_000_000_000
    held_sync.release.set()
    await sync
