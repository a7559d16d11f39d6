"""Tests what each fault of a simulated disk does: errnos, what stays readable, and what a power cut may leave.

The expected behaviour was measured on real disks. A power cut has many possible outcomes, so these tests collect the
outcomes of many draws. No forbidden outcome may occur, and each required outcome must occur.
"""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine

import pytest

from common.environment.disk_errors import FSYNC_STEP, Verdict, classify
from common.environment.interface import LogDir, LogDirError, LogFile
from common.time_units import NS_PER_S
from tests.simulation.disk import CATCHING_UP_NS, SimulatedDisk
from tests.simulation.environment import SimulatedWorld

PATH = "/a/1"
TIMEOUT_NS = 10 * NS_PER_S
DRAWS = 300

Prepare = Callable[[LogDir], Coroutine[None, None, None]]


async def attached(world: SimulatedWorld, node: str = "a", path: str = PATH) -> LogDir:
    world.disk(path)
    log_dir = world.node(node).log_dir(path, operation_timeout_ns=TIMEOUT_NS)
    await log_dir.attach()
    return log_dir


async def written(log_dir: LogDir, name: str, content: bytes) -> LogFile:
    """Creates a file with this content and returns it. Nothing is synced."""
    file = await log_dir.open(name, create=True)
    await log_dir.append(file, 0, [content])
    return file


async def synced(log_dir: LogDir, name: str, content: bytes) -> LogFile:
    """Creates a file with this content and returns it. Its content and its name are synced."""
    file = await written(log_dir, name, content)
    await log_dir.fsync(file)
    await log_dir.fsync_dir(name.rpartition("/")[0])
    return file


async def failing(operation: Awaitable[object]) -> LogDirError:
    with pytest.raises(LogDirError) as failed:
        await operation
    return failed.value


def run(scenario: Callable[[SimulatedWorld], Coroutine[None, None, None]]) -> None:
    SimulatedWorld(1).run(scenario)


def left_by_power_cuts(prepare: Prepare) -> list[dict[str, bytes]]:
    """Returns what the disk may hold after `prepare` and a power cut: the distinct outcomes of many draws."""
    outcomes: dict[str, dict[str, bytes]] = {}

    async def scenario(world: SimulatedWorld) -> None:
        await prepare(await attached(world))
        world.power_cut("a")
        left = world.disk(PATH).files()
        assert left == world.disk(PATH).durable_files()
        outcomes[repr(left)] = left

    for seed in range(DRAWS):
        SimulatedWorld(seed).run(scenario)
    return list(outcomes.values())


# --- power cuts ------------------------------------------------------------------------------------------------------


def test_what_is_synced_survives_every_power_cut() -> None:
    """Bytes written before the last fsync of the file, names made before the last fsync of the folder, and what replace_file
    wrote are synced."""

    async def prepare(log_dir: LogDir) -> None:
        await log_dir.mkdir("t-0")
        await log_dir.fsync_dir()
        file = await synced(log_dir, "t-0/log", b"synced")
        await log_dir.replace_file("meta.properties", b"first")
        await log_dir.replace_file("meta.properties", b"second")
        await log_dir.append(file, 6, [b"unsynced"])

    for left in left_by_power_cuts(prepare):
        assert left["meta.properties"] == b"second"
        assert left["t-0/log"].startswith(b"synced")


def test_an_unsynced_write_survives_whole_in_part_or_not_at_all() -> None:
    """Two unsynced writes follow synced bytes. Each may survive without the other, with zeros in place of the missing one,
    and each may be torn."""

    async def prepare(log_dir: LogDir) -> None:
        file = await synced(log_dir, "log", b"#")
        await log_dir.append(file, 1, [b"a" * 600])
        await log_dir.append(file, 601, [b"b" * 600])

    tails = [left["log"][1:] for left in left_by_power_cuts(prepare)]
    assert b"" in tails
    assert b"a" * 600 in tails
    assert b"a" * 600 + b"b" * 600 in tails
    assert bytes(600) + b"b" * 600 in tails
    assert any(0 < len(tail) < 600 for tail in tails), "a torn first write"
    assert any(tail[:600] == b"a" * 600 and 600 < len(tail) < 1200 for tail in tails), "a torn second write"
    # The second sector survived without the first one. It begins at byte 511 of the first write, because the file begins
    # with one synced byte.
    assert any(tail[:511] == bytes(511) and tail[511:600] == b"a" * 89 for tail in tails), "sectors in any order"
    assert any(tail and set(tail) == {0} for tail in tails), "a size without its bytes"
    for tail in tails:
        assert set(tail[:600]) <= set(b"a\0")
        assert set(tail[600:]) <= set(b"b\0")


def test_an_unsynced_truncation_may_be_undone() -> None:
    """A file was truncated and written again. The old tail may be back after the new bytes, but bytes below the cut never
    change."""

    async def prepare(log_dir: LogDir) -> None:
        file = await synced(log_dir, "log", b"keep" + b"old" * 4)
        await log_dir.truncate(file, 4)
        await log_dir.append(file, 4, [b"new"])

    contents = [left["log"] for left in left_by_power_cuts(prepare)]
    assert {b"keepnew", b"keep", b"keepoldoldoldold", b"keepnewoldoldold"} <= set(contents)
    assert all(content.startswith(b"keep") for content in contents)


def test_unsynced_names_survive_each_on_its_own() -> None:
    """Names were made, renamed and removed: each change may survive without the others. An fsync of a file does not sync its
    name, and a rename is never half done."""

    async def prepare(log_dir: LogDir) -> None:
        for name in ("renamed", "removed"):
            await synced(log_dir, name, name.encode())
        await log_dir.fsync(await written(log_dir, "made", b"made"))
        await log_dir.rename("renamed", "new")
        await log_dir.remove("removed")

    outcomes = [frozenset(left.items()) for left in left_by_power_cuts(prepare)]
    made, removed = ("made", b"made"), ("removed", b"removed")
    expected = {
        frozenset({rename, *([made] if is_made else []), *([removed] if is_there else [])})
        for rename in (("renamed", b"renamed"), ("new", b"renamed"))
        for is_made in (False, True)
        for is_there in (False, True)
    }
    assert set(outcomes) == expected


def test_a_file_that_was_renamed_over_is_never_lost() -> None:
    """An unsynced file was renamed over an old one. That name has the old content, or any part of the new content, but it
    always exists. This is why replace_file syncs before it renames."""

    async def prepare(log_dir: LogDir) -> None:
        await synced(log_dir, "checkpoint", b"old")
        await written(log_dir, "checkpoint.tmp", b"new")
        await log_dir.rename("checkpoint.tmp", "checkpoint")

    contents = {left["checkpoint"] for left in left_by_power_cuts(prepare)}
    assert {b"old", b"new", b""} <= contents
    assert all(content == b"old" or b"new".startswith(content) or set(content) == {0} for content in contents)


def test_a_folder_whose_name_was_not_synced_takes_everything_with_it() -> None:
    """The files in a new folder are synced, with their names, but the folder's own name is not."""

    async def prepare(log_dir: LogDir) -> None:
        await log_dir.mkdir("t-0")
        await synced(log_dir, "t-0/log", b"synced")

    outcomes = left_by_power_cuts(prepare)
    assert sorted(outcomes, key=len) == [{}, {"t-0/log": b"synced"}]


def test_a_folder_that_is_being_removed_may_keep_any_of_its_files() -> None:
    """A removal deletes the files of a folder one by one and the folder last. A power cut may undo each of these
    deletions."""

    async def prepare(log_dir: LogDir) -> None:
        await log_dir.mkdir("t-0")
        await log_dir.fsync_dir()
        for name in ("t-0/a", "t-0/b"):
            await synced(log_dir, name, b"")
        await log_dir.remove("t-0")

    outcomes = [sorted(left) for left in left_by_power_cuts(prepare)]
    assert sorted(outcomes) == [[], ["t-0/a"], ["t-0/a", "t-0/b"], ["t-0/b"]]


def test_a_crash_keeps_what_the_page_cache_has_until_the_power_goes() -> None:
    """kill -9 loses nothing that was written: the next life of the node can read it. A power cut in that life may lose it. A
    second power cut loses nothing more."""

    async def scenario(world: SimulatedWorld) -> None:
        await written(await attached(world), "log", b"cached")
        world.crash("a")
        assert await (await attached(world)).read_file("log") == b"cached"
        assert world.disk(PATH).durable_files() == {}
        world.power_cut("a")
        left = world.disk(PATH).files()
        world.power_cut("a")
        assert world.disk(PATH).files() == left
        outcomes.add(left.get("log"))

    outcomes: set[bytes | None] = set()
    for seed in range(DRAWS):
        SimulatedWorld(seed).run(scenario)
    assert {None, b"", b"cac", b"cached", bytes(6)} <= outcomes


def test_a_kill_may_come_between_the_steps_of_an_operation() -> None:
    """A kill in replace_file leaves the old content or the new one, and perhaps the temporary file. A kill in an append
    leaves any part of the bytes. A kill in a removal may come before or after the file is gone."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.replace_file("checkpoint", b"old")
        await log_dir.mkdir("t-0")
        file = await written(log_dir, "t-0/log", b"")
        operation = world.seed % 3
        if operation == 0:
            log_dir.replace_file("checkpoint", b"new")
        elif operation == 1:
            log_dir.append(file, 0, [b"record"])
        else:
            log_dir.remove("t-0")
        await world.sleep(0.000_001)
        world.crash("a")
        outcomes[operation].add(tuple(sorted(world.disk(PATH).files().items())))

    outcomes: list[set[tuple[tuple[str, bytes], ...]]] = [set(), set(), set()]
    for seed in range(DRAWS):
        SimulatedWorld(seed).run(scenario)
    replaced = [dict(outcome) for outcome in outcomes[0]]
    assert {left["checkpoint"] for left in replaced} == {b"old", b"new"}
    assert {left.get("checkpoint.tmp") for left in replaced} == {None, b"", b"n", b"new"}
    assert {dict(outcome)["t-0/log"] for outcome in outcomes[1]} == {b"record"[:size] for size in range(7)}
    assert {("t-0/log" in dict(outcome)) for outcome in outcomes[2]} == {True, False}


def test_a_power_cut_is_drawn_by_the_seed() -> None:
    """The same seed leaves the same bytes and the same fingerprint."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await synced(log_dir, "log", b"")
        for number in range(20):
            await log_dir.append(file, 700 * number, [bytes([number]) * 700])
        world.power_cut("a")
        contents.append(world.disk(PATH).files()["log"])
        hashes.append(world.trace_hash())

    contents: list[bytes] = []
    hashes: list[str] = []
    for seed in (3, 3, 4):
        SimulatedWorld(seed).run(scenario)
    assert contents[0] == contents[1]
    assert hashes[0] == hashes[1] != hashes[2]


def test_what_a_power_cut_might_leave_is_told_without_one() -> None:
    """files_after_a_power_cut draws one possible outcome, which always has the synced bytes. The disk itself does not
    change."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await synced(log_dir, "log", b"synced")
        await log_dir.append(file, 6, [b"unsynced"])
        await written(log_dir, "new", b"")
        disk = world.disk(PATH)
        before = disk.files(), disk.durable_files()
        rng = random.Random(1)
        left = [disk.files_after_a_power_cut(rng) for _ in range(50)]
        assert all(files["log"].startswith(b"synced") for files in left)
        assert {len(files) for files in left} == {1, 2}
        assert {b"synced", b"syncedunsynced"} < {files["log"] for files in left}
        assert (disk.files(), disk.durable_files()) == before
        await log_dir.fsync(file)
        assert disk.durable_files()["log"] == b"syncedunsynced"

    run(scenario)


def test_a_power_cut_ends_what_hung_and_takes_the_locks() -> None:
    """A write hangs in the kernel. If its process was killed, the write takes effect when the disk thaws. After a power cut
    it never does. The lock is free again in both cases."""

    async def scenario(world: SimulatedWorld) -> None:
        disk = world.disk(PATH)
        for cut in (world.crash, world.power_cut):
            log_dir = await attached(world)
            await log_dir.lock()
            file = await synced(log_dir, "log", b"")
            await log_dir.truncate(file, 0)
            await log_dir.fsync(file)
            disk.hang()
            log_dir.append(file, 0, [b"stuck"])
            await world.sleep(1)
            cut("a")
            disk.thaw()
            contents.append(disk.files()["log"])
            await (await attached(world)).lock()
            world.crash("a")

    contents: list[bytes] = []
    run(scenario)
    assert contents == [b"stuck", b""]


# --- fsync -----------------------------------------------------------------------------------------------------------


def test_an_fsync_that_fails_once_has_lost_its_data_although_the_next_one_succeeds() -> None:
    """fsyncgate: one fsync fails and later ones succeed. The data stays readable until the cache is dropped, then it reads
    as zeros. A retry that succeeds would hide the loss, so a failed fsync always fails the directory, whatever its errno."""

    async def scenario(world: SimulatedWorld) -> None:
        disk = world.disk(PATH)
        for errno_code in (errno.EIO, errno.ENOSPC):
            name = f"log-{errno_code}"
            log_dir = await attached(world)
            file = await synced(log_dir, name, b"before")
            await log_dir.append(file, 6, [b"dirty"])
            disk.fail_fsync_once(errno_code)
            await log_dir.probe()
            error = await failing(log_dir.fsync(file))
            assert (error.errno_code, classify(error)) == (errno_code, Verdict.DIRECTORY_FAILED)
            await log_dir.append(file, 11, [b"after"])
            await log_dir.fsync(file)
            assert await log_dir.read(file, 0, 100) == b"beforedirtyafter"
            assert disk.durable_files()[name] == b"before\0\0\0\0\0after"
            disk.drop_clean_pages()
            assert await log_dir.read(file, 0, 100) == b"before\0\0\0\0\0after"

    run(scenario)


def test_an_fsync_inside_replace_file_fails_once() -> None:
    """The old file stays, and the error names the fsync step."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.replace_file("checkpoint", b"old")
        world.disk(PATH).fail_fsync_once()
        error = await failing(log_dir.replace_file("checkpoint", b"new"))
        assert error.detail == FSYNC_STEP
        assert await log_dir.read_file("checkpoint") == b"old"
        await log_dir.replace_file("checkpoint", b"new")
        assert await log_dir.read_file("checkpoint") == b"new"

    run(scenario)


def test_an_error_of_an_fsync_names_the_step() -> None:
    """A failed fsync fails the directory, as on a real disk. EMFILE is the exception: it means that the process could not
    open a folder, so the disk may be fine."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await synced(log_dir, "log", b"before")
        disk = world.disk(PATH)
        for errno_code, verdict in (
            (errno.EIO, Verdict.DIRECTORY_FAILED),
            (errno.ENOMEM, Verdict.DIRECTORY_FAILED),
            (errno.EMFILE, Verdict.PROCESS_TROUBLE),
        ):
            disk.fail_with(errno_code, {"fsync", "fsync_dir"})
            for operation in (log_dir.fsync(file), log_dir.sync_and_forget(file), log_dir.fsync_dir()):
                assert classify(await failing(operation)) is verdict
            disk.heal()

    run(scenario)


# --- read-only, full, unreadable, rotten, slow ------------------------------------------------------------------------


def test_a_read_only_disk_refuses_every_change_and_goes_on_reading() -> None:
    """Every change fails with EROFS: writes, fsync, and opening a new file. The probe fails too. After a restart the files
    can still be read."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await synced(log_dir, "log", b"there")
        await log_dir.append(file, 5, [b"dirty"])
        disk = world.disk(PATH)
        disk.make_read_only()
        changes = [
            log_dir.append(file, 10, [b"x"]),
            log_dir.fsync(file),
            log_dir.truncate(file, 0),
            log_dir.open("new", create=True),
            log_dir.mkdir("folder"),
            log_dir.rename("log", "other"),
            log_dir.remove("log"),
            log_dir.fsync_dir(),
            log_dir.replace_file("checkpoint", b""),
            log_dir.probe(),
            log_dir.lock(),
        ]
        assert {(await failing(change)).errno_code for change in changes} == {errno.EROFS}
        again = await attached(world)
        assert await again.read_file("log") == await log_dir.read(file, 0, 100) == b"theredirty"
        assert [entry.name for entry in await again.list()] == ["log"]
        assert await again.open("log", create=True)
        assert disk.durable_files() == {"log": b"there"}
        disk.heal()
        await log_dir.fsync(file)
        assert disk.durable_files() == {"log": b"theredirty"}

    run(scenario)


def test_a_full_disk_takes_a_part_and_then_nothing() -> None:
    """An append that does not fit fails and is truncated, but after a power cut a part of it may be on the platter."""

    async def prepare(log_dir: LogDir) -> None:
        file = await synced(log_dir, "log", b"-" * 1000)
        disks[-1].fill(room_bytes=300)
        assert (await log_dir.statvfs()).usable_bytes == 300
        error = await failing(log_dir.append(file, 1000, [b"x" * 600]))
        assert classify(error) == Verdict.DIRECTORY_FULL
        assert await log_dir.read(file, 1000, 1000) == b""
        assert (await failing(log_dir.replace_file("checkpoint", b"y" * 301))).errno_code == errno.ENOSPC
        assert (await failing(log_dir.probe())).errno_code == errno.ENOSPC
        await log_dir.append(file, 0, [b"+" * 1000])
        await log_dir.append(file, 1000, [b"z" * 300])
        assert (await failing(log_dir.mkdir("folder"))).errno_code == errno.ENOSPC
        disks[-1].free_space()
        await log_dir.mkdir("folder")

    async def scenario(world: SimulatedWorld) -> None:
        disks.append(world.disk(PATH))
        await prepare(await attached(world))
        world.power_cut("a")
        tails.add(disks[-1].files()["log"][1000:1001])

    disks: list[SimulatedDisk] = []
    tails: set[bytes] = set()
    for seed in range(100):
        SimulatedWorld(seed).run(scenario)
    assert tails == {b"", b"x", b"z", b"\0"}


def test_a_disk_that_cannot_be_read_fails_reads_that_miss_the_cache() -> None:
    """Reads fail with EIO unless the bytes are in the page cache, for example because they were just written. Writes and
    fsyncs still succeed."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await synced(log_dir, "log", b"cold")
        await log_dir.append(file, 4, [b"dirty"])
        world.disk(PATH).fail_reads()
        assert (await failing(log_dir.read(file, 0, 4))).errno_code == errno.EIO
        assert (await failing(log_dir.read_file("log"))).errno_code == errno.EIO
        assert (await failing(log_dir.probe())).errno_code == errno.EIO
        await log_dir.append(file, 9, [b"hot"])
        await log_dir.fsync(file)
        assert await log_dir.read(file, 4, 8) == b"dirtyhot"
        assert await log_dir.stat("log")
        world.disk(PATH).heal()
        assert await log_dir.read_file("log") == b"colddirtyhot"

    run(scenario)


def test_rotten_bytes_are_read_without_an_error() -> None:
    """Reads return wrong bytes until those bytes are written again, even after a power cut."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await synced(log_dir, "log", b"\x00\x01\x02\x03")
        disk = world.disk(PATH)
        disk.corrupt("log", 1, 2)
        assert await log_dir.read_file("log") == b"\x00\xfe\xfd\x03"
        await log_dir.probe()
        world.power_cut("a")
        log_dir = await attached(world)
        file = await log_dir.open("log")
        assert await log_dir.read(file, 0, 4) == b"\x00\xfe\xfd\x03"
        await log_dir.append(file, 0, [b"\x00\x01"])
        assert await log_dir.read(file, 0, 4) == b"\x00\x01\xfd\x03"

    run(scenario)


def test_a_slow_disk_takes_a_multiple_of_its_time() -> None:
    """A slow disk completes every operation, but later."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        times: list[int] = []
        for factor in (1, 1000):
            world.disk(PATH).slow_down(factor)
            start_ns = world.now_ns()
            for _ in range(5):
                await log_dir.fsync(file)
            times.append(world.now_ns() - start_ns)
        assert times[1] > 50 * times[0]

    run(scenario)


def test_what_waits_behind_a_slow_sync_is_done_at_the_usual_speed_once_the_disk_is_well() -> None:
    """Hundreds of syncs wait in the queue of the thread while each takes up to a second and more. The disk does not know
    them yet, so they take as long as any other when it is well again. They keep their order."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        await log_dir.fsync_dir()
        disk = world.disk(PATH)
        disk.slow_down(1000)
        ended: list[int] = []
        syncs: list[asyncio.Future[None]] = []
        for number in range(300):
            append = log_dir.append(file, number, [b"x"])
            sync = asyncio.ensure_future(log_dir.fsync(file))
            sync.add_done_callback(lambda _, number=number: ended.append(number))  # type: ignore[misc]
            syncs += [asyncio.ensure_future(append), sync]
        removal = log_dir.remove("absent")
        await syncs[1]
        assert disk.durable_files()["log"] in (b"x" * size for size in range(1, 301))
        disk.heal()
        healed_ns = world.now_ns()
        await asyncio.gather(*syncs, removal)
        assert ended == [*range(300)]
        assert disk.durable_files()["log"] == b"x" * 300
        assert disk.loop.now_ns - healed_ns < CATCHING_UP_NS
        assert not disk.is_well
        await world.sleep(CATCHING_UP_NS / NS_PER_S)
        assert disk.is_well

    run(scenario)


def test_a_sync_on_a_disk_that_is_well_again_still_covers_the_slow_write_before_it() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        file = await log_dir.open("log", create=True)
        await log_dir.fsync_dir()
        world.disk(PATH).slow_down(1000)
        append, sync = log_dir.append(file, 0, [b"x"]), log_dir.fsync(file)
        world.disk(PATH).heal()
        await sync
        assert world.disk(PATH).durable_files()["log"] == b"x"
        await append

    run(scenario)


# --- the path and what is at it ---------------------------------------------------------------------------------------


def test_a_vanished_mount_shows_an_empty_directory_of_another_file_system() -> None:
    """A LogDir that has the disk open keeps it, and its probe fails with ESTALE. A LogDir attached by path finds an empty
    directory, and what it writes there is hidden below the mount when the disk is back."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.lock()
        file = await synced(log_dir, "log", b"mine")
        disk = world.disk(PATH)
        disk.unmount()
        await log_dir.append(file, 4, [b"+"])
        assert (await failing(log_dir.probe())).errno_code == errno.ESTALE
        other = await attached(world, node="b")
        assert await other.list() == []
        await other.lock()
        await other.replace_file("meta.properties", b"written past the disk")
        await other.probe()
        assert disk.files() == {".lock": b"", "log": b"mine+"}
        disk.mount()
        await log_dir.probe()
        assert (await failing(other.probe())).errno_code == errno.ESTALE
        assert await (await attached(world, node="c")).read_file("meta.properties") is None

    run(scenario)


def test_swapped_disks_are_at_each_others_paths() -> None:
    """Content, faults and latency move with the disk. The probe of a LogDir that has a disk open finds another one at its
    path."""

    async def scenario(world: SimulatedWorld) -> None:
        one, two = await attached(world, path="/a/1"), await attached(world, path="/a/2")
        await one.replace_file("name", b"one")
        await two.replace_file("name", b"two")
        world.disk("/a/2").fail_with(errno.EIO, {"append"})
        world.swap_disks("/a/1", "/a/2")
        assert (await failing(one.probe())).errno_code == errno.ESTALE
        assert await one.read_file("name") == b"one"
        again = await attached(world, path="/a/1")
        assert await again.read_file("name") == b"two"
        file = await again.open("log", create=True)
        assert (await failing(again.append(file, 0, [b"x"]))).errno_code == errno.EIO
        assert world.disk("/a/2").path == "/a/2"

    run(scenario)


def test_a_replaced_and_a_cloned_disk() -> None:
    """After wipe() the path has a fresh, empty disk, and the probe of a LogDir that has the old one open fails. A clone
    starts with the same files and is independent from then on."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.replace_file("meta.properties", b"directory.id=x")
        clone = world.disk("/a/2")
        clone.copy_from(world.disk(PATH))
        world.disk(PATH).wipe()
        assert (await failing(log_dir.probe())).errno_code == errno.ESTALE
        assert await (await attached(world)).list() == []
        clone.lose_unsynced(random.Random(1))
        assert clone.files() == {"meta.properties": b"directory.id=x"}

    run(scenario)
