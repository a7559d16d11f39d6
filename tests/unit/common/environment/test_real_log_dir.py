"""RealLogDir on real temporary directories. Faults are injected by replacing the system calls of disk_operations."""

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from common.environment import disk_operations
from common.environment.disk_errors import Verdict, classify
from common.environment.interface import DirectoryEntry, LogDirError, LogDirLocked, LogFile, NewFolder
from common.environment.pending_write import PendingWrite
from common.environment.process import PROCESS
from common.environment.real import RealEnvironment
from common.environment.real_log_dir import RealLogDir
from common.parts import Buffer
from tests.unit.common.environment.conftest import MakeLogDir, Reports

MIB = 1 << 20


class Blocker:
    """Replaces an os call with one that hangs until `release` is set, as on a dead disk. The call itself sets `entered`."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.entered.set()
        assert self.release.wait(30)
        return self._call(*arguments)

    def release_when_all_have_left(self) -> None:
        """Sets `release` once all appends made so far are with the writer: some leave at the end of the loop's turn."""
        asyncio.get_running_loop().call_soon(self.release.set)


@pytest.fixture
def blocked_write(monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocker]:
    blocker = Blocker(os.pwritev)
    monkeypatch.setattr(disk_operations, "_pwritev", blocker)
    yield blocker
    blocker.release.set()


@pytest.fixture
def blocked_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocker]:
    blocker = Blocker(os.pread)
    monkeypatch.setattr(disk_operations, "_pread", blocker)
    yield blocker
    blocker.release.set()


def open_descriptors(folder: Path) -> list[str]:
    """Returns the paths under the folder that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return sorted(found)


# --- files -----------------------------------------------------------------------------------------------------------
async def test_operations_of_a_file_keep_the_order_in_which_they_were_called(log_dir: RealLogDir) -> None:
    """The calls are made without an await between them. A read sees exactly the appends and truncations called before it."""
    file = await log_dir.open("a", create=True)
    first = log_dir.append(file, 0, [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    whole = log_dir.read(file, 0, 100)
    cut = log_dir.truncate(file, 4)
    rest = log_dir.read(file, 0, 100)
    again = log_dir.append(file, 4, [b"XYZ"])
    end = log_dir.read(file, 2, 100)
    synced = log_dir.fsync(file)
    await asyncio.gather(first, cut, again, synced)
    assert await whole == b"abcdefghi"
    assert await rest == b"abcd"
    assert await end == b"cdXYZ"


class Write(PendingWrite):
    """Notes how an append ended: "written" or the error."""

    def __init__(self, ended: list[object]) -> None:
        super().__init__()
        self._ended = ended

    def written(self) -> None:
        self._ended.append("written")

    def failed(self, error: Exception | None) -> None:
        self._ended.append(error)


async def test_appends_of_one_turn_are_in_order_with_everything_else(log_dir: RealLogDir) -> None:
    """The writer gets the first append of a turn at once and the others at its end. What is called between them neither
    overtakes the appends before it nor falls behind those after it."""
    file = await log_dir.open("a", create=True)
    ended: list[object] = []
    for number in range(5):
        log_dir.start_append(file, number, [b"%d" % number], Write(ended))
    before = log_dir.read(file, 0, 100)
    cut = log_dir.truncate(file, 2)
    log_dir.start_append(file, 2, [b"x"], Write(ended))
    synced = log_dir.fsync(file)
    log_dir.start_append(file, 3, [b"y"], Write(ended))
    assert ended == []
    assert await before == b"01234"
    await cut
    await synced
    # The sync covers the appends before it, so these have ended.
    assert ended[:6] == ["written"] * 6
    assert await log_dir.read(file, 0, 100) == b"01xy"
    assert ended == ["written"] * 7
    for number in range(3):
        log_dir.start_append(file, 4 + number, [b"z"], Write(ended))
    await log_dir.close()
    assert ended == ["written"] * 10


async def test_appends_that_nobody_awaits_fail_one_step_later(log_dir: RealLogDir, blocked_write: Blocker) -> None:
    """The owner that takes a directory offline must not meet its own logs in the middle of that call. A refused append
    fails in the same way."""
    file = await log_dir.open("a", create=True)
    ended: list[object] = []
    for number in range(3):
        log_dir.start_append(file, number, [b"x"], Write(ended))
    error = LogDirError(log_dir.path, "probe", errno.EIO)
    log_dir.take_offline(error)
    log_dir.start_append(file, 3, [b"x"], Write(ended))
    assert ended == []
    await asyncio.sleep(0)
    assert ended == [error] * 4
    blocked_write.release.set()
    await log_dir.released
    assert ended == [error] * 4


async def test_offline_frees_the_appends_of_the_same_turn(log_dir: RealLogDir) -> None:
    """A directory that is offline stays in the broker's tables. What was to leave for its writer at the end of the turn must
    not stay with it."""

    class Records(bytearray):
        pass

    file = await log_dir.open("a", create=True)
    kept = []
    for number in range(3):
        records = Records(b"x")
        kept.append(weakref.ref(records))
        log_dir.start_append(file, number, [records], Write([]))
    del records
    log_dir.take_offline(LogDirError(log_dir.path, "probe", errno.EIO))
    for thread in threading.enumerate():
        if thread.name.endswith(log_dir.path):
            # The turn takes longer than the threads need to leave.
            thread.join(60)
    await log_dir.released
    await asyncio.sleep(0)
    assert [each() for each in kept] == [None] * 3


async def test_a_truncation_waits_for_the_reads_before_it(log_dir: RealLogDir, blocked_read: Blocker) -> None:
    """The reader thread is stuck in a read. The writer thread must not start a later truncation before the read is done."""
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"0123456789"])
    read = log_dir.read(file, 0, 10)
    await asyncio.get_running_loop().run_in_executor(None, blocked_read.entered.wait)
    cut = log_dir.truncate(file, 0)
    blocked_read.release.set()
    assert await read == b"0123456789"
    await cut
    assert await log_dir.read(file, 0, 10) == b""


async def test_an_examination_runs_where_the_bytes_are_read(log_dir: RealLogDir) -> None:
    """Checksums of many bytes must not keep the event loop busy."""
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"0123456789"])

    def examined(content: bytes) -> tuple[bytes, int]:
        return content, threading.get_ident()

    content, thread = await log_dir.examine(file, 2, 100, examined)
    assert content == b"23456789"
    assert thread != threading.get_ident()


async def test_reads_do_not_wait_for_appends_behind_them(log_dir: RealLogDir, blocked_write: Blocker) -> None:
    """A consumer of old data is served while an append at a higher position hangs."""
    blocked_write.release.set()
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"old"])
    blocked_write.release.clear()
    append = log_dir.append(file, 3, [b"new"])
    assert await log_dir.read(file, 0, 3) == b"old"
    late = log_dir.read(file, 0, 6)
    blocked_write.release.set()
    await append
    assert await late == b"oldnew"


async def test_a_finished_read_keeps_nothing_while_another_waits_for_the_writer(
    log_dir: RealLogDir, blocked_write: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers of old data are served while an append hangs. Their data must not stay in memory until the append ends."""
    alive = 0

    class Piece(bytes):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal alive
        alive += 1
        return Piece(os.pread(fd, size, position))

    blocked_write.release.set()
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"old"])
    monkeypatch.setattr(disk_operations, "_pread", counted)
    blocked_write.release.clear()
    append = log_dir.append(file, 3, [b"new"])
    late = log_dir.read(file, 0, 6)
    for _ in range(100):
        assert await log_dir.read(file, 0, 3) == b"old"
    # The reader thread may still hold the data of the last read.
    assert alive <= 2
    assert log_dir.oldest_operation_age_ns > 0
    blocked_write.release.set()
    await append
    assert await late == b"oldnew"
    assert log_dir.oldest_operation_age_ns == 0


async def test_queued_appends_are_joined_into_one_write(
    log_dir: RealLogDir, blocked_write: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends that queue up during a slow write are written with one call per file, even if the files alternate."""
    a, b = await log_dir.open("a", create=True), await log_dir.open("b", create=True)
    slow = log_dir.append(a, 0, [b"-"])
    await asyncio.get_running_loop().run_in_executor(None, blocked_write.entered.wait)
    calls: list[tuple[int, int]] = []

    def counted(fd: int, buffers: list[bytes], position: int) -> int:
        calls.append((len(buffers), position))
        return os.pwritev(fd, buffers, position)

    monkeypatch.setattr(disk_operations, "_pwritev", counted)
    appends = [
        log_dir.append(file, start + 2 * i, [b"%d" % i, b"%d" % i]) for i in range(10) for file, start in ((a, 1), (b, 0))
    ]
    blocked_write.release_when_all_have_left()
    await asyncio.gather(slow, *appends)
    assert calls == [(20, 1), (20, 0)]
    assert await log_dir.read(a, 0, 99) == b"-00112233445566778899"
    assert await log_dir.read(b, 0, 99) == b"00112233445566778899"


async def test_groups_are_bounded_and_gaps_are_not_joined(log_dir: RealLogDir, blocked_write: Blocker) -> None:
    """Appends are written correctly even if they have more buffers than one system call accepts, or if they leave gaps in
    the file."""
    file = await log_dir.open("a", create=True)
    slow = log_dir.append(file, 0, [b"x"])
    await asyncio.get_running_loop().run_in_executor(None, blocked_write.entered.wait)
    many = [log_dir.append(file, 1 + i, [b"%d" % (i % 10)]) for i in range(2500)]
    rewritten = log_dir.append(file, 0, [b"y" * 2])
    large = log_dir.append(file, 2501, [b"z"] * 3000)
    blocked_write.release.set()
    await asyncio.gather(slow, *many, rewritten, large)
    content = await log_dir.read(file, 0, 1 << 20)
    assert content == b"yy" + b"".join(b"%d" % (i % 10) for i in range(1, 2500)) + b"z" * 3000


async def test_short_writes_are_continued(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearly full disk accepts part of a write without an error. The rest must follow, across buffer boundaries."""

    def short(fd: int, buffers: list[bytes], position: int) -> int:
        return os.pwrite(fd, b"".join(buffers)[:7], position)

    monkeypatch.setattr(disk_operations, "_pwritev", short)
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"0123", b"", b"456789", memoryview(b"abcdef"), b"g"])
    assert await log_dir.read(file, 0, 99) == b"0123456789abcdefg"


async def test_a_group_that_fails_half_way_is_cut_back_and_fails_as_a_whole(
    log_dir: RealLogDir, blocked_write: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk accepts five bytes of a group and is then full.

    No append of the group is acknowledged, and the file is truncated to the group's start. Appends queued after the group
    fail too, because they would leave a hole. The next append must begin where the file was truncated.
    """
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    slow = log_dir.append(file, 0, [b"base"])
    await asyncio.get_running_loop().run_in_executor(None, blocked_write.entered.wait)

    def nearly_full(fd: int, buffers: list[bytes], position: int) -> int:
        if position > 4:
            raise OSError(errno.ENOSPC, "full")
        return os.pwrite(fd, b"".join(buffers)[:5], position)

    monkeypatch.setattr(disk_operations, "_pwritev", nearly_full)
    group = [log_dir.append(file, 4 + 4 * i, [b"lost"]) for i in range(3)]
    behind = log_dir.append(file, 16, [b"hole"] * 1024)
    blocked_write.release_when_all_have_left()
    await slow
    failures = await asyncio.gather(*group, behind, return_exceptions=True)
    assert [(type(error), getattr(error, "errno_code", None)) for error in failures] == [(LogDirError, errno.ENOSPC)] * 4
    assert reports.codes == [("append", errno.ENOSPC)] * 4
    assert await log_dir.read(file, 0, 99) == b"base"
    monkeypatch.setattr(disk_operations, "_pwritev", os.pwritev)
    with pytest.raises(LogDirError):
        await log_dir.append(file, 8, [b"still a hole"])
    await log_dir.append(file, 4, [b"kept"])
    await log_dir.append(file, 8, [b"more"])
    assert await log_dir.read(file, 0, 99) == b"basekeptmore"


class OneByOne:
    """Replaces pwritev with one that waits for a permit at each call. Notes the size of each call that has begun."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.begun = threading.Semaphore(0)
        self.permits = threading.Semaphore(0)
        self.fails = False

    def __call__(self, fd: int, buffers: list[bytes], position: int) -> int:
        self.sizes.append(sum(len(buffer) for buffer in buffers))
        self.begun.release()
        assert self.permits.acquire(timeout=30)
        if self.fails:
            raise OSError(errno.EIO, "dead")
        return os.pwritev(fd, buffers, position)

    async def next_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=30)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneByOne]:
    pwritev = OneByOne()
    monkeypatch.setattr(disk_operations, "_pwritev", pwritev)
    yield pwritev
    pwritev.permits.release(1000)


async def test_each_mib_of_a_large_append_counts_as_progress(log_dir: RealLogDir, one_by_one: OneByOne) -> None:
    """A slow disk writes one large append for a long time, and finishes nothing meanwhile. It is not silent for longer than
    the current piece takes. The pieces cross the borders of the buffers."""
    content = os.urandom(3 * MIB + 5)
    file = await log_dir.open("a", create=True)
    buffers: list[Buffer] = [content[:7], memoryview(content)[7 : 2 * MIB], content[2 * MIB :]]
    append = asyncio.ensure_future(log_dir.append(file, 0, buffers))
    await one_by_one.next_begun()
    for _ in range(3):
        released_ns = time.monotonic_ns()
        one_by_one.permits.release()
        await one_by_one.next_begun()
        silence_ns = log_dir.silence_ns
        assert 0 <= silence_ns <= time.monotonic_ns() - released_ns
        assert not append.done()
    one_by_one.permits.release()
    await append
    assert one_by_one.sizes == [MIB, MIB, MIB, 5]
    assert log_dir.silence_ns == 0
    assert await log_dir.read(file, 0, 4 * MIB) == content


async def test_a_large_append_that_fails_after_a_part_is_cut_back(log_dir: RealLogDir, one_by_one: OneByOne) -> None:
    """The first MiB of the append is written, the second fails. None of it stays in the file."""
    file = await log_dir.open("a", create=True)
    one_by_one.permits.release()
    await log_dir.append(file, 0, [b"base"])
    await one_by_one.next_begun()
    append = asyncio.ensure_future(log_dir.append(file, 4, [bytes(3 * MIB)]))
    await one_by_one.next_begun()
    one_by_one.permits.release()
    await one_by_one.next_begun()
    one_by_one.fails = True
    one_by_one.permits.release()
    with pytest.raises(LogDirError):
        await append
    assert one_by_one.sizes == [4, MIB, MIB]
    assert await log_dir.read(file, 0, 4 * MIB) == b"base"


async def test_a_closed_file_lives_until_its_last_operation_and_region(log_dir: RealLogDir, tmp_path: Path) -> None:
    """close_file lets queued operations finish, and a region that is still to be sent keeps the descriptor open."""
    file = await log_dir.open("a", create=True)
    append = log_dir.append(file, 0, [b"x"])
    region = log_dir.region(file, 0, 1)
    log_dir.close_file(file)
    await append
    path = str(tmp_path / "disk" / "a")
    await log_dir.stat("a")
    assert path in open_descriptors(tmp_path)
    with pytest.raises(LogDirError) as caught:
        await log_dir.append(file, 1, [b"y"])
    assert caught.value.errno_code == errno.EBADF
    del region, append
    # The stats let the writer drop its last reference. The sweeper runs its queue in order, so it closes the descriptor
    # before it removes this.
    await log_dir.stat("a")
    await log_dir.stat("a")
    await log_dir.remove("absent")
    assert path not in open_descriptors(tmp_path)


# --- names -----------------------------------------------------------------------------------------------------------
async def test_folders_are_listed_renamed_and_replaced_relative_to_the_directory(
    log_dir: RealLogDir, tmp_path: Path
) -> None:
    """Every operation takes names relative to the log directory."""
    await log_dir.mkdir("t-0")
    await log_dir.replace_file("t-0/partition.metadata", b"version: 0\n")
    await log_dir.replace_file("t-0/partition.metadata", b"version: 1\n")
    await log_dir.open("t-0/1.log", create=True)
    await log_dir.rename("t-0", "t-0.delete")
    await log_dir.fsync_dir()
    await log_dir.fsync_dir("t-0.delete")
    assert await log_dir.list() == [DirectoryEntry("t-0.delete", True)]
    assert await log_dir.list("t-0.delete") == [DirectoryEntry("1.log", False), DirectoryEntry("partition.metadata", False)]
    assert await log_dir.read_file("t-0.delete/partition.metadata") == b"version: 1\n"
    assert await log_dir.read_file("absent") is None
    assert await log_dir.stat("absent") is None
    found = await log_dir.stat("t-0.delete/partition.metadata")
    assert found is not None
    assert (found.size, found.is_directory) == (11, False)
    assert found.modified_ms == (tmp_path / "disk/t-0.delete/partition.metadata").stat().st_mtime_ns // 1_000_000
    await log_dir.remove("t-0.delete")
    await log_dir.remove("t-0.delete")
    assert await log_dir.list() == []
    space = await log_dir.statvfs()
    assert 0 < space.usable_bytes <= space.total_bytes


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\0b"])
async def test_names_outside_the_directory_are_refused(log_dir: RealLogDir, name: str) -> None:
    """This is the last line of defence against a topic name that is a path."""
    with pytest.raises(ValueError, match="not a name"):
        log_dir.open(name)


async def test_a_missing_file_is_an_error_that_the_owner_sees_first(log_dir: RealLogDir) -> None:
    """on_error is called before the waiting task continues."""
    reports = Reports(log_dir)
    with pytest.raises(LogDirError) as caught:
        await log_dir.open("absent")
    assert reports.errors == [caught.value]
    assert str(caught.value) == f"open on {log_dir.path}/absent failed with ENOENT"


async def test_a_failed_fsync_inside_replace_file_says_so(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that ENOSPC came from the fsync, because `classify` depends on it. The old content stays."""
    await log_dir.replace_file("checkpoint", b"old")

    def failing(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(disk_operations, "_fsync", failing)
    with pytest.raises(LogDirError) as caught:
        await log_dir.replace_file("checkpoint", b"new")
    assert (caught.value.operation, caught.value.errno_code, caught.value.detail) == ("replace_file", errno.ENOSPC, "fsync")
    assert await log_dir.read_file("checkpoint") == b"old"


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_folder_that_cannot_be_opened_for_its_fsync(
    log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The process lacks descriptors or memory, so no fsync started and no data is lost. The directory is not at fault."""
    await log_dir.mkdir("t-0")
    reports = Reports(log_dir)

    def only_folders_fail(path: str, flags: int, *arguments: Any, **keywords: Any) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(code, "injected")
        return os.open(path, flags, *arguments, **keywords)

    monkeypatch.setattr(disk_operations, "_open", only_folders_fail)
    for operation in (
        log_dir.fsync_dir("t-0"),
        log_dir.fsync_folders(["t-0"]),
        log_dir.replace_file("t-0/checkpoint", b"x"),
    ):
        with pytest.raises(LogDirError):
            await operation
    assert sorted(reports.codes) == [("fsync_dir", code), ("fsync_folders", code), ("replace_file", code)]
    assert [classify(error) for error in reports.errors] == [Verdict.PROCESS_TROUBLE] * 3


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM])
async def test_every_fsync_of_the_kernel_that_fails_is_final(
    log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Even ENOMEM from inside an fsync is final: the kernel may have dropped the pages that it should have written."""

    def failing(_fd: int) -> None:
        raise OSError(code, "injected")

    file = await log_dir.open("a", create=True)
    reports = Reports(log_dir)
    monkeypatch.setattr(disk_operations, "_fsync", failing)
    monkeypatch.setattr(disk_operations, "_fdatasync", failing)
    for operation in (
        log_dir.fsync(file),
        log_dir.sync_and_forget(file),
        log_dir.write_back(file),
        log_dir.fsync_dir(),
        log_dir.fsync_folders([]),
        log_dir.probe(),
    ):
        with pytest.raises(LogDirError):
            await operation
    assert [classify(error) for error in reports.errors] == [Verdict.DIRECTORY_FAILED] * 6


async def test_new_folders_are_synced_after_all_of_them_are_being_written(
    log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system gets all new files before the first sync, so that one commit serves them all. Everything is synced:
    each file that has content, each folder, and last the directory."""
    calls: list[tuple[str, str]] = []

    def path_of(fd: int) -> str:
        return os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), log_dir.path)

    def begin_writing(fd: int, *_: int) -> None:
        calls.append(("write", path_of(fd)))

    def sync(fd: int) -> None:
        calls.append(("sync", path_of(fd)))

    folders = [NewFolder(f"t-{number}", {"a.log": b"", "partition.metadata": b"id"}) for number in range(2)]
    assert await log_dir.create_folders(folders) == []
    monkeypatch.setattr(os, "posix_fadvise", begin_writing)
    monkeypatch.setattr(disk_operations, "_fsync", sync)
    await log_dir.fsync_folders(["t-0", "t-1"])
    assert calls == [
        ("write", "t-0/partition.metadata"),
        ("write", "t-1/partition.metadata"),
        ("sync", "t-0/partition.metadata"),
        ("sync", "t-0"),
        ("sync", "t-1/partition.metadata"),
        ("sync", "t-1"),
        ("sync", "."),
    ]


async def test_nothing_waits_for_new_folders(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """While new folders are synced, appends go on."""
    blocked_sync = Blocker(os.fsync)
    file = await log_dir.open("a", create=True)
    await log_dir.create_folders([NewFolder("t-0", {"partition.metadata": b"id"})])
    monkeypatch.setattr(disk_operations, "_fsync", blocked_sync)
    syncing = asyncio.ensure_future(log_dir.fsync_folders(["t-0"]))
    await log_dir.append(file, 0, [b"x"])
    assert not syncing.done()
    blocked_sync.release.set()
    await syncing


async def test_nothing_waits_for_a_write_back(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the sweeper syncs a file, the other threads append to it, read it and truncate it."""
    blocked_sync = Blocker(os.fdatasync)
    monkeypatch.setattr(disk_operations, "_fdatasync", blocked_sync)
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"old"])
    write_back = asyncio.ensure_future(log_dir.write_back(file))
    await asyncio.to_thread(blocked_sync.entered.wait)
    await log_dir.append(file, 3, [b"new"])
    assert await log_dir.read(file, 0, 9) == b"oldnew"
    await log_dir.truncate(file, 2)
    assert not write_back.done()
    blocked_sync.release.set()
    await write_back
    assert await log_dir.read(file, 0, 9) == b"ol"


async def test_nothing_waits_for_a_removal(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """To free the blocks of a large file takes long. Clients of the same directory are served meanwhile. What was queued
    before the removal runs before it."""
    file = await log_dir.open("a", create=True)
    old = await log_dir.open("old", create=True)
    blocked_removal = Blocker(log_dir._directory.remove)
    monkeypatch.setattr(log_dir._directory, "remove", blocked_removal)
    written = asyncio.ensure_future(log_dir.append(old, 0, [b"late"]))
    removal = asyncio.ensure_future(log_dir.remove("old"))
    await asyncio.to_thread(blocked_removal.entered.wait)
    await asyncio.sleep(0)
    assert written.done()
    await log_dir.append(file, 0, [b"new"])
    assert await log_dir.read(file, 0, 9) == b"new"
    assert not removal.done()
    blocked_removal.release.set()
    await removal
    assert await log_dir.stat("old") is None


async def test_an_fsync_that_was_never_queued(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is full. The fsync is refused before it reaches the disk, and the directory stays online."""
    monkeypatch.setattr("common.environment.disk_lanes._OPERATIONS_MAX", 10)
    file = await log_dir.open("a", create=True)
    reports = Reports(log_dir)
    appends = [log_dir.append(file, position, [b"x"]) for position in range(10)]
    for operation in (log_dir.fsync(file), log_dir.sync_and_forget(file), log_dir.fsync_dir()):
        with pytest.raises(LogDirError):
            await operation
    await asyncio.gather(*appends)
    assert [classify(error) for error in reports.errors] == [Verdict.PROCESS_TROUBLE] * 3


async def test_sync_and_forget_syncs_before_it_drops_the_cache(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel does not drop dirty pages, so the sync comes first. Later reads return the same bytes.

    If the sync fails, the cache is kept and the directory counts as failed.
    """
    calls: list[str] = []

    def sync(fd: int) -> None:
        calls.append("sync")
        os.fdatasync(fd)

    def forget(fd: int, offset: int, size: int, advice: int) -> None:
        assert (offset, size, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        calls.append("forget")

    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"kept"])
    await log_dir.sync_and_forget(file)
    assert await log_dir.read(file, 0, 99) == b"kept"
    monkeypatch.setattr(disk_operations, "_fdatasync", sync)
    monkeypatch.setattr(os, "posix_fadvise", forget)
    await log_dir.sync_and_forget(file)
    await log_dir.write_back(file, forget=True)
    assert calls == ["sync", "forget"] * 2
    await log_dir.write_back(file)
    assert calls[4:] == ["sync"]

    def failing(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(disk_operations, "_fdatasync", failing)
    with pytest.raises(LogDirError) as caught:
        await log_dir.sync_and_forget(file)
    assert classify(caught.value) is Verdict.DIRECTORY_FAILED
    assert calls[5:] == []


# --- deadlines -------------------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_a_hung_write_meets_its_deadline_and_its_late_completion_is_ignored(
    make_log_dir: MakeLogDir, blocked_write: Blocker
) -> None:
    """The append and the operations queued after it fail with ETIMEDOUT while the thread is stuck.

    When the hung call returns at last, nothing more is reported, and the age of the oldest operation falls to 0.
    """
    log_dir = await make_log_dir(timeout_ms=500)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    stuck = log_dir.append(file, 0, [b"x"])
    behind = log_dir.stat("a")
    for pending in (stuck, behind):
        with pytest.raises(LogDirError) as caught:
            await pending
        assert caught.value.errno_code == errno.ETIMEDOUT
    assert reports.codes == [("append", errno.ETIMEDOUT), ("stat", errno.ETIMEDOUT)]
    assert log_dir.oldest_operation_age_ns > 500_000_000
    blocked_write.release.set()
    await log_dir.stat("a")
    assert reports.codes == [("append", errno.ETIMEDOUT), ("stat", errno.ETIMEDOUT)]
    assert log_dir.oldest_operation_age_ns == 0


@pytest.mark.slow
async def test_a_slow_disk_that_works_through_its_queue_is_not_hung(
    make_log_dir: MakeLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover rewrites thousands of small files. Each sync is well within the deadline, but all together far exceed it.

    No sync times out, nor does a read that waits for the writer. If the disk then does hang, the hang is detected.
    """
    log_dir = await make_log_dir(timeout_ms=500, sync_timeout_ms=500)
    reports = Reports(log_dir)
    hang, entered = threading.Event(), threading.Event()

    def slow(_fd: int) -> None:
        """Stands in for a slow sync, so that the speed of the disk under the test does not matter."""
        if entered.is_set():
            assert hang.wait(30)
        time.sleep(0.05)

    monkeypatch.setattr(disk_operations, "_fdatasync", slow)
    file = await log_dir.open("a", create=True)
    syncs = []
    for position in range(30):
        syncs += [log_dir.append(file, position, [b"x"]), log_dir.fsync(file)]
    read = log_dir.read(file, 0, 99)
    await asyncio.gather(*syncs)
    assert await read == b"x" * 30
    assert reports.errors == []
    entered.set()
    with pytest.raises(LogDirError, match="ETIMEDOUT"):
        await log_dir.fsync(file)
    hang.set()


async def with_ten_bytes(make_log_dir: MakeLogDir, *, timeout_ms: int) -> tuple[RealLogDir, LogFile, Reports]:
    """Returns a directory, a file of ten bytes in it, and the errors that the directory reports."""
    log_dir = await make_log_dir(timeout_ms=timeout_ms)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"0123456789"])
    return log_dir, file, reports


def slowed(call: Any, seconds: float) -> Any:
    """Wraps a system call so that it is slow but succeeds."""

    def slowly(*arguments: Any) -> Any:
        time.sleep(seconds)
        return call(*arguments)

    return slowly


@pytest.mark.slow
async def test_a_read_that_waited_for_the_writer_has_its_own_time_from_then_on(
    make_log_dir: MakeLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read waits for a slow writer for longer than its deadline. The deadline only begins when the reader can start."""
    log_dir, file, reports = await with_ten_bytes(make_log_dir, timeout_ms=1200)
    monkeypatch.setattr(disk_operations, "_fdatasync", slowed(lambda _fd: None, 0.72))
    monkeypatch.setattr(disk_operations, "_pread", slowed(os.pread, 0.8))
    syncs = [log_dir.fsync(file) for _ in range(2)]
    append = log_dir.append(file, 10, [b"0123456789"])
    assert await log_dir.read(file, 0, 20) == b"01234567890123456789"
    await asyncio.gather(*syncs, append)
    assert reports.errors == []


@pytest.mark.slow
async def test_a_truncation_is_as_patient_as_the_reads_that_it_waits_for(
    make_log_dir: MakeLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a truncation nor an operation queued after it times out while the operations ahead of it make progress."""
    log_dir, file, reports = await with_ten_bytes(make_log_dir, timeout_ms=600)
    monkeypatch.setattr(disk_operations, "_pread", slowed(os.pread, 0.15))
    monkeypatch.setattr(disk_operations, "_ftruncate", slowed(os.ftruncate, 0.15))
    reads = [log_dir.read(file, 0, 10) for _ in range(6)]
    cut = log_dir.truncate(file, 5)
    append = log_dir.append(file, 5, [b"abc"])
    assert await log_dir.read(file, 0, 10) == b"01234abc"
    assert await asyncio.gather(*reads) == [b"0123456789"] * 6
    await asyncio.gather(cut, append)
    assert reports.errors == []


@pytest.mark.slow
async def test_closing_is_as_patient_as_the_reads_that_it_waits_for(
    make_log_dir: MakeLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """close waits for reads that together take longer than one deadline. Neither thread counts as hung."""
    log_dir, file, reports = await with_ten_bytes(make_log_dir, timeout_ms=600)
    monkeypatch.setattr(disk_operations, "_pread", slowed(os.pread, 0.15))
    reads = [log_dir.read(file, 0, 10) for _ in range(6)]
    await log_dir.close()
    assert await asyncio.gather(*reads) == [b"0123456789"] * 6
    assert reports.errors == []


@pytest.mark.slow
async def test_a_writer_that_hangs_is_found_while_the_reader_gets_on(
    make_log_dir: MakeLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncation waits for a read and then hangs on the disk. Reads of another file must not extend its deadline."""
    log_dir = await make_log_dir(timeout_ms=300)
    file, other = await log_dir.open("a", create=True), await log_dir.open("b", create=True)
    await log_dir.append(file, 0, [b"0123456789"])
    blocked_truncation = Blocker(os.ftruncate)
    monkeypatch.setattr(disk_operations, "_ftruncate", blocked_truncation)
    log_dir.read(file, 0, 10)
    cut = asyncio.ensure_future(log_dir.truncate(file, 5))
    reads = 0
    while not cut.done() and reads < 1_000_000:
        await log_dir.read(other, 0, 1)
        reads += 1
    blocked_truncation.release.set()
    with pytest.raises(LogDirError, match="ETIMEDOUT"):
        await cut


async def test_other_directories_do_not_notice_a_hung_one(make_log_dir: MakeLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads and queues are per directory, so a hung write on one does not affect appends and reads of another."""
    hung, healthy = await make_log_dir("hung"), await make_log_dir("healthy")
    hung_file, file = await hung.open("a", create=True), await healthy.open("a", create=True)
    entered, release = threading.Event(), threading.Event()

    def block_first(fd: int, buffers: list[bytes], position: int) -> int:
        if not entered.is_set():
            entered.set()
            assert release.wait(30)
        return os.pwritev(fd, buffers, position)

    monkeypatch.setattr(disk_operations, "_pwritev", block_first)
    stuck = hung.append(hung_file, 0, [b"x"])
    await asyncio.get_running_loop().run_in_executor(None, entered.wait)
    for i in range(50):
        await healthy.append(file, i, [b"y"])
    assert await healthy.read(file, 0, 99) == b"y" * 50
    release.set()
    await stuck


@pytest.mark.slow
async def test_a_process_that_stood_still_does_not_blame_the_disk(
    env: RealEnvironment, make_log_dir: MakeLogDir, blocked_write: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process is stopped, the timer fires very late. A write then gets more time, as the disk may not be at fault."""
    monkeypatch.setattr("common.environment.disk_lanes._STALL_NS", 0)
    log_dir = await make_log_dir(timeout_ms=400)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    append = log_dir.append(file, 0, [b"x"])
    await asyncio.get_running_loop().run_in_executor(None, blocked_write.entered.wait)
    await env.sleep_until(env.now_ns() + 600_000_000)
    blocked_write.release.set()
    await append
    assert reports.errors == []


@pytest.mark.slow
async def test_a_disk_in_trouble_is_reported_even_if_nobody_waits_any_more(
    make_log_dir: MakeLogDir, blocked_write: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that waited for an append was cancelled. A missed deadline or a disk error is reported anyway."""
    log_dir = await make_log_dir(timeout_ms=500)
    reports = Reports(log_dir)
    file = await log_dir.open("a", create=True)
    stuck = asyncio.ensure_future(log_dir.append(file, 0, [b"x"]))
    stuck.cancel()
    with pytest.raises(LogDirError):
        await log_dir.stat("a")
    assert reports.codes == [("append", errno.ETIMEDOUT), ("stat", errno.ETIMEDOUT)]
    blocked_write.release.set()
    await log_dir.stat("a")

    def failing(*_arguments: object) -> int:
        raise OSError(errno.EIO, "dead")

    monkeypatch.setattr(disk_operations, "_pwritev", failing)
    asyncio.ensure_future(log_dir.append(file, 0, [b"x"])).cancel()
    await log_dir.stat("a")
    assert reports.codes[2:] == [("append", errno.EIO)]


# --- going offline ---------------------------------------------------------------------------------------------------
async def test_offline_fails_everything_and_closes_everything(log_dir: RealLogDir, tmp_path: Path) -> None:
    """Pending and later operations raise the given error. The threads close all files, the lock and the directory."""
    await log_dir.lock()
    file = await log_dir.open("a", create=True)
    reports = Reports(log_dir)
    pending = log_dir.append(file, 0, [b"x"])
    error = LogDirError(log_dir.path, "probe", errno.EIO)
    log_dir.take_offline(error)
    log_dir.take_offline(LogDirError(log_dir.path, "probe", errno.EROFS))
    for operation in (
        pending,
        log_dir.append(file, 1, [b"y"]),
        log_dir.read(file, 0, 1),
        log_dir.stat("a"),
        log_dir.probe(),
    ):
        with pytest.raises(LogDirError) as caught:
            await operation
        assert caught.value is error
    await log_dir.released
    assert open_descriptors(tmp_path) == []
    assert PROCESS.held_locks == {}
    # The error came from the owner, so it is not reported back.
    assert reports.errors == []
    await log_dir.close()


async def test_offline_from_inside_on_error(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner may take the directory offline within the call that reports the first error. No later error is reported."""

    def failing(*_arguments: object) -> int:
        raise OSError(errno.EIO, "dead")

    monkeypatch.setattr(disk_operations, "_pwritev", failing)
    reports = Reports(log_dir, offline=True)
    file = await log_dir.open("a", create=True)
    appends = [log_dir.append(file, i * 10, [b"x"]) for i in range(5)]
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert [getattr(error, "errno_code", None) for error in results] == [errno.EIO] * 5
    assert reports.codes == [("append", errno.EIO)]
    await log_dir.released


async def test_a_stuck_thread_is_abandoned_and_keeps_its_descriptors(
    make_log_dir: MakeLogDir, blocked_write: Blocker, tmp_path: Path
) -> None:
    """The directory goes offline while a thread is stuck in the kernel. Nothing waits for the thread.

    The lock can be released immediately. The descriptors are closed only when the system call returns, because the number
    of a descriptor that it still uses must not be reused.
    """
    log_dir = await make_log_dir()
    await log_dir.lock()
    file = await log_dir.open("a", create=True)
    stuck = log_dir.append(file, 0, [b"x"])
    await asyncio.get_running_loop().run_in_executor(None, blocked_write.entered.wait)
    unwritten = log_dir.append(file, 1, [b"y"])
    log_dir.take_offline(LogDirError(log_dir.path, "append", errno.ETIMEDOUT))
    for pending in (stuck, unwritten):
        with pytest.raises(LogDirError):
            await pending
    assert not log_dir.released.done()
    assert str(tmp_path / "disk/a") in open_descriptors(tmp_path)
    log_dir.release_lock_now()
    assert lock_from_another_process(tmp_path / "disk") == "free"
    blocked_write.release.set()
    await log_dir.released
    assert open_descriptors(tmp_path) == []
    # The thread finished its write and did not start the next one.
    assert (tmp_path / "disk/a").read_bytes() == b"x"


async def test_offline_frees_a_writer_that_waits_for_a_stuck_reader(make_log_dir: MakeLogDir, blocked_read: Blocker) -> None:
    """A truncation waits for a read. When the directory goes offline, the writer must stop waiting."""
    log_dir = await make_log_dir()
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [b"x"])
    read, cut = log_dir.read(file, 0, 1), log_dir.truncate(file, 0)
    await asyncio.get_running_loop().run_in_executor(None, blocked_read.entered.wait)
    log_dir.take_offline(LogDirError(log_dir.path, "read", errno.ETIMEDOUT))
    blocked_read.release.set()
    await log_dir.released
    for pending in (read, cut):
        with pytest.raises(LogDirError):
            await pending


async def test_close_finishes_what_is_queued(log_dir: RealLogDir, tmp_path: Path) -> None:
    """Close loses nothing that is queued, and refuses later operations."""
    await log_dir.lock()
    file = await log_dir.open("a", create=True)
    appends = [log_dir.append(file, i, [b"x"]) for i in range(100)]
    await log_dir.close()
    assert all(future.done() for future in appends)  # type: ignore[attr-defined]
    assert (tmp_path / "disk/a").read_bytes() == b"x" * 100
    assert open_descriptors(tmp_path) == []
    with pytest.raises(LogDirError) as caught:
        await log_dir.stat("a")
    assert caught.value.errno_code == errno.EBADF


@pytest.mark.slow
async def test_close_meets_its_deadline_too(make_log_dir: MakeLogDir, blocked_write: Blocker) -> None:
    """A disk that hangs at shutdown must not block the process. The directory can still be taken offline."""
    log_dir = await make_log_dir(timeout_ms=500)
    reports = Reports(log_dir, offline=True)
    file = await log_dir.open("a", create=True)
    stuck = log_dir.append(file, 0, [b"x"])
    with pytest.raises(LogDirError) as caught:
        await log_dir.close()
    assert caught.value.errno_code == errno.ETIMEDOUT
    assert reports.codes == [("append", errno.ETIMEDOUT)]
    with pytest.raises(LogDirError):
        await stuck
    blocked_write.release.set()
    await log_dir.released


async def test_operations_before_attach_fail(env: RealEnvironment, tmp_path: Path) -> None:
    """No operation may touch a directory that is not attached. A missing directory makes attach fail."""
    log_dir = env.log_dir(str(tmp_path / "absent"), operation_timeout_ns=10**10)
    with pytest.raises(LogDirError) as caught:
        await log_dir.stat("a")
    assert caught.value.errno_code == errno.EBADF
    with pytest.raises(LogDirError) as caught:
        await log_dir.attach()
    assert (caught.value.operation, caught.value.errno_code) == ("attach", errno.ENOENT)
    await log_dir.close()


async def test_the_queue_is_bounded(log_dir: RealLogDir, blocked_write: Blocker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that cannot keep up must not use up the memory. An excess append gets ENOMEM; the directory stays online."""
    monkeypatch.setattr("common.environment.disk_lanes._BYTES_MAX", 1000)
    file = await log_dir.open("a", create=True)
    accepted = log_dir.append(file, 0, [bytes(900)])
    with pytest.raises(LogDirError) as caught:
        await log_dir.append(file, 900, [bytes(101)])
    assert caught.value.errno_code == errno.ENOMEM
    blocked_write.release.set()
    await accepted
    await log_dir.append(file, 900, [bytes(101)])


# --- lock and probe --------------------------------------------------------------------------------------------------
def lock_from_another_process(folder: Path) -> str:
    """Tries to lock `.lock` in another process, as Kafka does. Returns "held" or "free"."""
    script = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "try:\n    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    print('held')\nelse:\n    print('free')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder / ".lock")], check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip()


@contextmanager
def lock_held_by_another_process(folder: Path) -> Iterator[None]:
    """Holds `.lock` in another process for the duration of the block."""
    script = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.stdin.close()


async def test_the_lock_is_seen_by_other_processes(log_dir: RealLogDir, tmp_path: Path) -> None:
    """The lock is a record lock that is held until the directory is closed."""
    await log_dir.lock()
    assert lock_from_another_process(tmp_path / "disk") == "held"
    await log_dir.close()
    assert lock_from_another_process(tmp_path / "disk") == "free"


async def test_a_lock_of_another_process_is_respected(log_dir: RealLogDir, tmp_path: Path) -> None:
    """The lock can be taken once the other process has released it."""
    with lock_held_by_another_process(tmp_path / "disk"):
        with pytest.raises(LogDirLocked, match="another process"):
            await log_dir.lock()
        assert PROCESS.held_locks == {}
    await log_dir.lock()


async def test_two_nodes_of_one_process_conflict(log_dir: RealLogDir, make_log_dir: MakeLogDir, tmp_path: Path) -> None:
    """Record locks do not conflict within a process. The second node must fail anyway, under any path to the directory.

    Its attempt must not drop the first node's lock.
    """
    await log_dir.lock()
    (tmp_path / "alias").symlink_to(tmp_path / "disk")
    second = await make_log_dir("alias")
    with pytest.raises(LogDirLocked, match="this process"):
        await second.lock()
    assert lock_from_another_process(tmp_path / "disk") == "held"
    await log_dir.close()
    await second.lock()


async def test_a_healthy_directory_passes_the_probe_and_keeps_nothing_of_it(log_dir: RealLogDir) -> None:
    """The probe creates, writes, fsyncs and renames a file, reads the file without the page cache, and unlinks it."""
    await log_dir.probe()
    await log_dir.probe()
    assert await log_dir.list() == []


async def test_the_probe_notices_a_directory_that_was_swapped_or_vanished(log_dir: RealLogDir, tmp_path: Path) -> None:
    """The path is gone or leads elsewhere, but every descriptor still works. The directory must not be used any longer."""
    (tmp_path / "disk").rename(tmp_path / "away")
    with pytest.raises(LogDirError) as caught:
        await log_dir.probe()
    assert (caught.value.errno_code, caught.value.detail) == (errno.ESTALE, "the path is gone")
    (tmp_path / "disk").mkdir()
    with pytest.raises(LogDirError) as caught:
        await log_dir.probe()
    assert (caught.value.errno_code, caught.value.detail) == (errno.ESTALE, "another directory is at this path")
    assert list((tmp_path / "disk").iterdir()) == []


@pytest.mark.parametrize(
    ("seam", "code", "detail"), [("_pwritev", errno.EROFS, ""), ("_fsync", errno.ENOSPC, "fsync"), ("_open", errno.EIO, "")]
)
async def test_the_probe_reports_each_step(
    log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, seam: str, code: int, detail: str
) -> None:
    """Whichever step fails, the error has the kernel's errno, and its detail says if the step was an fsync."""

    def failing(*_arguments: object, **_keywords: object) -> int:
        raise OSError(code, "injected")

    monkeypatch.setattr(disk_operations, seam, failing)
    with pytest.raises(LogDirError) as caught:
        await log_dir.probe()
    assert (caught.value.operation, caught.value.errno_code, caught.value.detail) == ("probe", code, detail)


async def test_the_probe_compares_what_it_reads(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that returns wrong bytes without an error counts as dead too."""
    monkeypatch.setattr(disk_operations.HeldDirectory, "_read_around_cache", lambda *_: bytes(4096))
    with pytest.raises(LogDirError) as caught:
        await log_dir.probe()
    assert caught.value.errno_code == errno.EIO


async def test_the_probe_without_direct_io(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """If O_DIRECT is refused, the pages are dropped from the cache and read again."""

    def no_direct(path: str, flags: int, *arguments: Any, **keywords: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct I/O here")
        return os.open(path, flags, *arguments, **keywords)

    monkeypatch.setattr(disk_operations, "_open", no_direct)
    await log_dir.probe()


async def test_a_disk_that_does_not_answer_a_read_around_the_cache_is_silent(
    log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client has asked for anything. What the page cache has of the file does not help."""
    await log_dir.replace_file("a", b"cached")
    release, preadv = threading.Event(), os.preadv

    def hang_if_direct(fd: int, *arguments: Any) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            assert release.wait(timeout=30)
        return preadv(fd, *arguments)

    monkeypatch.setattr(os, "preadv", hang_if_direct)
    reading = log_dir.read_around_cache("a")
    try:
        before_ns = log_dir.silence_ns
        assert log_dir.silence_ns > before_ns > 0
    finally:
        release.set()
    await reading
    assert log_dir.silence_ns == 0


async def test_the_probe_where_direct_io_takes_larger_blocks(log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system opens the file for direct I/O, and refuses to read so few bytes."""
    preadv = os.preadv

    def refuse_direct(fd: int, *arguments: Any) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not a multiple of the block size")
        return preadv(fd, *arguments)

    monkeypatch.setattr(os, "preadv", refuse_direct)
    await log_dir.probe()


async def test_a_failure_that_nobody_awaits_reaches_the_owner_and_not_the_loop(log_dir: RealLogDir) -> None:
    """The error of an operation that nothing awaits must not reach the event loop's exception handler, which ends the
    daemon."""
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context))
    reports = Reports(log_dir)
    log_dir.mkdir("absent/x")
    await log_dir.stat("a")
    assert reports.codes == [("mkdir", errno.ENOENT)]
    assert seen == []


@pytest.mark.parametrize("started", [0, 2])
async def test_a_process_without_threads_to_spare_is_not_a_failed_disk(
    env: RealEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    """Some of the directory's threads start and the next one does not. The error counts as trouble of the process, and the
    threads that did start leave."""
    real_start = threading.Thread.start
    threads: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if len(threads) == started:
            raise RuntimeError("can't start new thread")
        threads.append(thread)
        real_start(thread)

    log_dir = env.log_dir(str(tmp_path / "disk"), operation_timeout_ns=10**10)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(LogDirError, match="can't start new thread") as caught:
            await log_dir.attach(create=True)
    assert classify(caught.value) is Verdict.PROCESS_TROUBLE
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    if threads:
        # Nothing is waited for that never started.
        assert isinstance(log_dir, RealLogDir)
        await asyncio.wait_for(log_dir.released, 10)
