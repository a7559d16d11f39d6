"""The simulated LogDir: order of operations, errors, hangs, locks, and what a crash leaves."""

import asyncio
import errno
from functools import partial

import pytest

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import DirectoryEntry, LogDir, LogDirError, LogDirLocked
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld

TIMEOUT_NS = 10 * NS_PER_S


async def attached(world: SimulatedWorld, node: str = "a", path: str = "/a/1") -> LogDir:
    world.disk(path)
    log_dir = world.node(node).log_dir(path, operation_timeout_ns=TIMEOUT_NS)
    await log_dir.attach()
    return log_dir


def test_files_are_written_and_read_in_the_order_of_the_calls() -> None:
    # Operations that are queued without an await between them take effect in the order of the calls.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        made, opened = log_dir.mkdir("t-0"), log_dir.open("t-0/0.log", create=True)
        await made
        file = await opened
        waits = [log_dir.append(file, 10 * number, [b"%d" % number, memoryview(b"-" * 9)]) for number in range(10)]
        cut = log_dir.truncate(file, 95)
        read = log_dir.read(file, 80, 1000)
        log_dir.close_file(file)
        await asyncio.gather(*waits, cut, log_dir.fsync_dir("t-0"))
        assert await read == b"8---------9----"
        assert await log_dir.list("t-0") == [DirectoryEntry("0.log", is_directory=False)]
        stat = await log_dir.stat("t-0/0.log")
        assert stat is not None
        assert stat.size == 95
        with pytest.raises(LogDirError) as failed:
            await log_dir.read(file, 0, 1)
        assert failed.value.errno_code == errno.EBADF

    for seed in range(10):
        SimulatedWorld(seed).run(scenario)


def test_cached_bytes_are_read_at_once_if_the_disk_answers() -> None:
    """Most reads find what was written in the page cache, where a seed asks for that. Nothing is found if the pages were
    evicted, the disk hangs or fails, or the directory is closed."""

    async def scenario(world: SimulatedWorld) -> None:
        world.answers_cached_reads = world.seed > 0
        log_dir = await attached(world)
        disk = world.disk("/a/1")
        file = await log_dir.open("log", create=True)
        await log_dir.append(file, 0, [b"0123456789"])
        found = [log_dir.read_cached(file, 2, 3) for _ in range(100)]
        assert set(found) == ({b"234", None} if world.seed > 0 else {None})
        assert found.count(None) < 50 or world.seed == 0
        for break_it, mend_it in ((disk.hang, disk.thaw), (partial(disk.fail_with, errno.EIO), disk.heal)):
            break_it()
            assert not any(log_dir.read_cached(file, 2, 3) for _ in range(100))
            mend_it()
        await log_dir.fsync(file)
        disk.drop_clean_pages()
        await log_dir.append(file, 10, [b"more"])
        assert not any(log_dir.read_cached(file, 9, 2) for _ in range(100))
        assert any(log_dir.read_cached(file, 10, 2) for _ in range(100)) is (world.seed > 0)
        await log_dir.close()
        assert not any(log_dir.read_cached(file, 10, 2) for _ in range(100))

    for seed in range(5):
        SimulatedWorld(seed).run(scenario)


def test_names_behave_as_in_a_file_system() -> None:
    # Files are replaced, renamed and removed. Operations on missing names fail with ENOENT.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.replace_file("meta.properties", b"one")
        await log_dir.replace_file("meta.properties", b"two")
        assert await log_dir.read_file("meta.properties") == b"two"
        assert await log_dir.read_file("nothing") is None
        assert await log_dir.stat("nothing") is None
        await log_dir.mkdir("t-0")
        file = await log_dir.open("t-0/log", create=True)
        await log_dir.rename("t-0", "t-0.gone-delete")
        await log_dir.append(file, 0, [b"still there"])
        assert world.disk("/a/1").files() == {"meta.properties": b"two", "t-0.gone-delete/log": b"still there"}
        await log_dir.remove("t-0.gone-delete")
        await log_dir.remove("t-0.gone-delete")
        assert world.disk("/a/1").folders() == []
        codes = []
        for wait in (log_dir.open("t-0/log"), log_dir.rename("x", "y"), log_dir.list("x"), log_dir.mkdir("x/y")):
            with pytest.raises(LogDirError) as failed:
                await wait
            codes.append(failed.value.errno_code)
        assert codes == [errno.ENOENT] * 4

    SimulatedWorld(1).run(scenario)


def test_a_missing_directory_is_an_error_or_made() -> None:
    # attach fails on a missing directory, and creates it with create=True.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = world.node("a").log_dir("/none", operation_timeout_ns=TIMEOUT_NS)
        with pytest.raises(LogDirError, match="attach on /none failed with ENOENT"):
            await log_dir.attach()
        await log_dir.attach(create=True)
        assert await log_dir.list() == []

    SimulatedWorld(1).run(scenario)


def test_a_dead_disk_fails_everything_that_needs_it() -> None:
    # A dead disk fails with EIO until it is healed. Each failure is reported to on_error. Listing still works, as on a dead
    # ext4. fail_next fails one operation only.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        heard: list[str] = []
        log_dir.on_error = lambda error: heard.append(error.operation)
        world.disk("/a/1").fail_with(errno.EIO)
        for operation in (log_dir.append(file, 0, [b"x"]), log_dir.fsync(file), log_dir.probe()):
            with pytest.raises(LogDirError):
                await operation
        assert sorted(heard) == ["append", "fsync", "probe"]
        assert len(await log_dir.list()) == 1
        world.disk("/a/1").heal()
        await log_dir.append(file, 0, [b"x"])
        world.disk("/a/1").fail_next("fsync", errno.ENOSPC)
        with pytest.raises(LogDirError, match="ENOSPC"):
            await log_dir.fsync(file)
        await log_dir.fsync(file)

    SimulatedWorld(1).run(scenario)


def test_an_append_that_fails_takes_those_behind_it_along() -> None:
    # Appends queued after a failed one must fail too. Otherwise they would leave a hole in the file. An append at the failed
    # offset, or a truncation, clears the error.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        world.disk("/a/1").fail_next("append", errno.ENOMEM)
        waits = [log_dir.append(file, 0, [b"a"]), log_dir.append(file, 1, [b"b"])]
        synced, after = log_dir.fsync(file), log_dir.append(file, 2, [b"c"])
        results = await asyncio.gather(*waits, after, return_exceptions=True)
        await synced
        assert [getattr(result, "errno_code", None) for result in results] == [errno.ENOMEM] * 3
        await log_dir.append(file, 0, [b"a"])
        await log_dir.append(file, 1, [b"b"])
        assert world.disk("/a/1").files() == {"log": b"ab"}

    SimulatedWorld(1).run(scenario)


def test_a_process_that_is_short_of_files_gets_none_for_a_share_of_what_it_asks() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        world.disk("/a/1").run_short(0.5)
        errors = set()
        outcomes = []
        for number in range(40):
            for asked in (log_dir.replace_file("file", b"x"), log_dir.append(file, number, [b"x"]), log_dir.fsync(file)):
                [outcome] = await asyncio.gather(asked, return_exceptions=True)
                outcomes.append(outcome)
                if isinstance(outcome, LogDirError):
                    errors.add((outcome.operation, outcome.errno_code, classify(outcome)))
        assert None in outcomes
        trouble = Verdict.PROCESS_TROUBLE
        assert errors == {("replace_file", errno.EMFILE, trouble), ("append", errno.ENOMEM, trouble)}
        world.disk("/a/1").heal()
        await log_dir.replace_file("file", b"y")

    SimulatedWorld(1).run(scenario)


def test_taking_offline_fails_everything_with_the_error_given() -> None:
    # When a directory is taken offline, pending and later operations fail with the given error, queued ones have no effect,
    # and the lock is released.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.lock()
        file = await log_dir.open("log", create=True)
        pending = log_dir.append(file, 0, [b"lost"])
        error = LogDirError("/a/1", "probe", errno.EIO)
        log_dir.take_offline(error)
        for wait in (pending, log_dir.list()):
            with pytest.raises(LogDirError) as failed:
                await wait
            assert failed.value is error
        await world.sleep(1)
        assert world.disk("/a/1").files()["log"] == b""
        assert world.disk("/a/1").lock_holder is None

    SimulatedWorld(1).run(scenario)


def test_a_hung_disk_meets_the_deadline_and_may_finish_late() -> None:
    # When a disk hangs, its operations time out at the deadline, and the directory goes offline. When the disk thaws, only
    # the call that hung in the kernel takes effect. The lock is held until then.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.lock()
        file = await log_dir.open("log", create=True)
        log_dir.on_error = log_dir.take_offline
        disk = world.disk("/a/1")
        disk.hang()
        start_ns = world.now_ns()
        stuck, queued = log_dir.append(file, 0, [b"stuck"]), log_dir.append(file, 5, [b"queued"])
        await world.sleep(3)
        assert log_dir.oldest_operation_age_ns == 3 * NS_PER_S
        for wait in (stuck, queued):
            with pytest.raises(LogDirError) as failed:
                await wait
            assert failed.value.errno_code == errno.ETIMEDOUT
        assert world.now_ns() == start_ns + TIMEOUT_NS
        assert disk.lock_holder is log_dir
        disk.thaw()
        await world.sleep(1)
        assert disk.files()["log"] == b"stuck"
        assert disk.lock_holder is None

    SimulatedWorld(1).run(scenario)


def test_a_disk_that_thaws_in_time_goes_on_in_order() -> None:
    # If a disk thaws before the deadline, its operations only take longer and keep their order.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        world.disk("/a/1").hang({"append"})
        waits = [log_dir.append(file, 0, [b"one"]), log_dir.append(file, 3, [b"two"])]
        read = log_dir.read(file, 0, 6)
        assert await log_dir.stat("log.other") is None
        await world.sleep(1)
        world.disk("/a/1").thaw()
        await asyncio.gather(*waits)
        assert await read == b"onetwo"
        assert log_dir.oldest_operation_age_ns == 0

    SimulatedWorld(1).run(scenario)


def test_appends_go_on_during_a_sync_which_covers_only_what_came_before_it() -> None:
    # The disk writes something else, so a sync takes a second. Appends to its file and to others take no longer than before,
    # and a power cut right after the sync may lose those that came after its start.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        disk = world.disk("/a/1")
        full, other = await log_dir.open("full", create=True), await log_dir.open("other", create=True)
        await log_dir.fsync_dir()
        disk.be_busy(NS_PER_S)
        covered = log_dir.append(full, 0, [b"covered"])
        sync = asyncio.ensure_future(log_dir.fsync(full))
        named = asyncio.ensure_future(log_dir.replace_file("checkpoint", b"1"))
        await covered
        await world.sleep(0.01)
        before_ns = world.now_ns()
        await log_dir.append(full, 7, [b"+"])
        await log_dir.append(other, 0, [b"other"])
        assert await log_dir.read(full, 0, 99) == b"covered+"
        assert await log_dir.stat("checkpoint") is None
        assert world.now_ns() - before_ns < NS_PER_S // 10
        assert log_dir.silence_ns == 0
        assert not sync.done()
        await sync
        assert disk.durable_files()["full"] == b"covered"
        await named
        await log_dir.fsync(full)
        assert disk.durable_files() == {"full": b"covered+", "other": b"", "checkpoint": b"1"}

    for seed in range(10):
        SimulatedWorld(seed).run(scenario)


def test_a_sync_of_a_folder_covers_only_the_names_that_came_before_it() -> None:
    # A file is created while the folder is being synced.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        disk = world.disk("/a/1")
        await log_dir.open("before", create=True)
        disk.be_busy(NS_PER_S)
        sync = asyncio.ensure_future(log_dir.fsync_dir())
        await world.sleep(0.01)
        await log_dir.open("during", create=True)
        await sync
        assert list(disk.durable_files()) == ["before"]

    SimulatedWorld(1).run(scenario)


def test_operations_keep_their_order_on_a_busy_disk() -> None:
    # A rename needs no sync, but comes after the one that was called before it. A removal and the close come last.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("a", create=True)
        ended: list[str] = []
        world.disk("/a/1").be_busy(NS_PER_S)
        pending = {
            "fsync": log_dir.fsync(file),
            "rename": log_dir.rename("a", "b"),
            "fsync_dir": log_dir.fsync_dir(),
            "remove": log_dir.remove("b"),
            "close": log_dir.close(),
        }

        async def note(name: str) -> None:
            await pending[name]
            ended.append(name)

        await asyncio.gather(*map(note, pending))
        assert ended == list(pending)
        assert world.disk("/a/1").files() == {}

    SimulatedWorld(1).run(scenario)


def test_a_sync_has_a_deadline_of_its_own_and_a_probe_tells_busy_from_dead() -> None:
    # The disk is busy for longer than an operation may take. Then it hangs.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        disk = world.disk("/a/1")
        file = await log_dir.open("a", create=True)
        disk.be_busy(2 * TIMEOUT_NS)
        await asyncio.gather(log_dir.probe(), log_dir.fsync(file))
        disk.hang()
        began_ns = world.now_ns()
        with pytest.raises(LogDirError) as failed:
            await log_dir.probe()
        assert failed.value.errno_code == errno.ETIMEDOUT
        assert world.now_ns() - began_ns == TIMEOUT_NS

    SimulatedWorld(1).run(scenario)


def test_a_lock_is_held_by_one() -> None:
    # While one node holds the lock of a directory, other nodes are refused until the holder closes its LogDir or dies. The
    # holder may lock it twice.
    async def scenario(world: SimulatedWorld) -> None:
        first, second = await attached(world), await attached(world, node="b")
        await first.lock()
        await first.lock()
        with pytest.raises(LogDirLocked):
            await second.lock()
        await first.close()
        await second.lock()
        third = await attached(world, node="c")
        with pytest.raises(LogDirLocked):
            await third.lock()
        world.crash("b")
        await third.lock()

    SimulatedWorld(1).run(scenario)


def test_a_thread_that_hung_taking_the_lock_lets_it_go_when_it_comes_back() -> None:
    # A thread hangs in lock() while its process takes the directory offline. When lock() returns, the thread releases the
    # lock, and another node can take it.
    async def scenario(world: SimulatedWorld) -> None:
        first = await attached(world)
        world.disk("/a/1").hang()
        first.lock()
        await world.sleep(1)
        first.take_offline(LogDirError("/a/1", "lock", errno.ETIMEDOUT))
        world.disk("/a/1").thaw()
        await world.sleep(1)
        second = await attached(world, node="b")
        await second.lock()

    SimulatedWorld(1).run(scenario)


def test_a_crash_loses_what_is_queued_and_keeps_what_is_done() -> None:
    # The disk survives a crash of its node, but an append that was still queued is lost.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        await log_dir.append(file, 0, [b"done"])
        queued = log_dir.append(file, 4, [b"queued"])
        world.crash("a")
        with pytest.raises(asyncio.CancelledError):
            await queued
        again = await attached(world)
        assert await again.read_file("log") == b"done"

    SimulatedWorld(1).run(scenario)


def test_a_full_disk_says_so() -> None:
    # An append beyond the capacity fails with ENOSPC and leaves the file as it was.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        world.disk("/a/1").capacity_bytes = 100
        file = await log_dir.open("log", create=True)
        await log_dir.append(file, 0, [b"x" * 60])
        with pytest.raises(LogDirError, match="ENOSPC"):
            await log_dir.append(file, 60, [b"x" * 60])
        assert world.disk("/a/1").files() == {"log": b"x" * 60}
        assert (await log_dir.statvfs()).usable_bytes == 40

    SimulatedWorld(1).run(scenario)


def test_buffers_of_an_append_must_not_change() -> None:
    # The caller must not change the buffers of a queued append. The simulation checks this, because a real disk could write
    # the old content or the new one.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        buffer = bytearray(b"promised")
        written = log_dir.append(file, 0, [buffer])
        buffer[0] = 0
        await written

    with pytest.raises(Exception, match="changed before it was done"):
        SimulatedWorld(1).run(scenario)
