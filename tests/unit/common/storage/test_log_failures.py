"""Logs on a failing disk. After one append fails to be written, neither it nor any later append is acknowledged."""

import asyncio
import errno

import pytest

from common.environment.interface import LogDirError
from common.ids import Offset
from common.storage.errors import LogClosed
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.log_syncs import ROLLED_AHEAD_MAX
from common.storage.read_limits import ReadLimits
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    SMALL,
    TOPIC_ID,
    Awaited,
    all_offsets,
    append,
    attached,
    created,
    fill,
    log_files,
)


async def outcome(appended: Awaited) -> bool:
    try:
        await appended.written
    except LogDirError:
        return False
    return True


def test_one_failed_append_breaks_the_log_for_all_behind_it() -> None:
    # The second of four appends fails. The disk writes the third and fourth, but they fail too, because they follow a hole.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        assert await outcome(append(log))
        world.disk(PATH).fail_next("append", errno.EIO)
        pipelined = [append(log) for _ in range(3)]
        assert [await outcome(appended) for appended in pipelined] == [False, False, False]
        assert log.written_offset == 1
        assert log.failure is not None
        assert log.failure.errno_code == errno.EIO
        with pytest.raises(LogDirError):
            append(log)
        with pytest.raises(LogDirError):
            await log.read(0, ReadLimits(max_bytes=1))
        with pytest.raises(LogDirError):
            await log.flush()
        with pytest.raises(LogDirError):
            await log.close()

    SimulatedWorld(1).run(scenario)


def test_a_failure_that_nobody_awaits_is_not_lost_and_not_fatal() -> None:
    # No task awaits these appends. `on_error` reports the failure, and the unretrieved exceptions must not end the daemon.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        seen: list[LogDirError] = []
        log.log_dir.on_error = seen.append
        world.disk(PATH).fail_with(errno.EIO)
        for _ in range(30):
            append(log)
        await world.sleep(1)
        assert log.failure is not None
        assert log.failure in seen

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("operation", ["open", "fsync_dir", "fsync", "replace_file"])
def test_a_roll_that_fails_breaks_the_log_and_leaves_the_recovery_point(operation: str) -> None:
    """The flush has synced the records and not the indexes of the segment. If the log is loaded again, it must check it."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append(log).written
        await log.flush()
        world.disk(PATH).fail_next(operation, errno.EIO)
        with pytest.raises(LogDirError):
            await log.roll()
        assert (log.recovery_point, log.recovery_start) == (1, 0)
        with pytest.raises(LogDirError):
            append(log)

    SimulatedWorld(1).run(scenario)


def test_a_failed_fsync_leaves_the_recovery_point_and_breaks_the_log() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append(log).written
        await log.flush()
        await append(log).written
        world.disk(PATH).fail_next("fsync", errno.EIO)
        with pytest.raises(LogDirError):
            await log.flush()
        assert log.recovery_point == 1
        # A second fsync might succeed although data is lost, so it is never tried.
        with pytest.raises(LogDirError):
            await log.flush()

    SimulatedWorld(1).run(scenario)


def test_a_node_that_dies_leaves_nobody_waiting_and_nothing_acknowledged() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        appended = append(log)
        world.crash("a")
        await world.sleep(1)
        assert appended.written.cancelled()
        with pytest.raises(LogClosed):
            append(log)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize(
    ("operation", "behind"),
    [("append", 1), ("append", 30), ("open", 30), ("fsync_dir", 30), ("fsync", 30), ("replace_file", 30)],
)
def test_a_log_that_failed_for_want_of_something_is_loaded_again(operation: str, behind: int) -> None:
    # The process briefly has too many open files. Unwritten appends are lost, written ones stay, and the reloaded log works.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=300, index_interval_bytes=100))
        await fill(log, 10)
        await log.flush()
        world.disk(PATH).fail_next(operation, errno.EMFILE)
        pipelined = [append(log, epoch=number // 5) for number in range(behind)]
        written = [await outcome(appended) for appended in pipelined]
        await world.sleep(1)
        assert log.failure is not None
        end = log.written_offset
        assert end == 11 + sum(written)
        await log.abandon()
        log = await Log.load(log.log_dir, FOLDER, log.config, recovery_point=log.recovery_point)
        # Appends queued after the failure may have reached the disk anyway, but the log has no hole.
        assert log.log_end_offset >= end
        end = log.log_end_offset
        assert await all_offsets(log) == [(offset, offset) for offset in range(end)]
        assert log.leader_epochs.latest_epoch <= max(0, (end - 12) // 5)
        for number in range(30):
            append(log, epoch=20 + number)
        await log.flush()
        assert log.recovery_point == end + 30
        loaded = await Log.load(log.log_dir, FOLDER, SMALL)
        assert not loaded.recovery.lost_anything
        assert await all_offsets(loaded) == [(offset, offset) for offset in range(end + 30)]
        assert loaded.leader_epochs.entries == log.leader_epochs.entries

    SimulatedWorld(behind).run(scenario)


def test_a_crash_in_the_middle_of_creation_leaves_a_whole_log_or_none_to_speak_of() -> None:
    # The node crashes at different moments of the creation. The next run finds no folder, or one that it can load.
    for moment in range(12):

        async def scenario(world: SimulatedWorld, moment: int = moment) -> None:
            log_dir = await attached(world)
            world.node("a").start(lambda _: Log.create(log_dir, FOLDER, SMALL, TOPIC_ID))  # type: ignore[arg-type,return-value]
            await world.sleep(0.0003 * moment)
            world.crash("a")
            again = await attached(world, node="b")
            if await again.stat(FOLDER) is None:
                assert log_files(world.disk(PATH)) == {}
                return
            loaded = await Log.load(again, FOLDER, SMALL)
            assert (loaded.log_start_offset, loaded.log_end_offset) == (0, 0)
            assert loaded.topic_id in (None, TOPIC_ID)
            assert append(loaded).first_offset == Offset(0)

        SimulatedWorld(moment).run(scenario)


def test_a_failed_write_back_breaks_the_log() -> None:
    # The caller that started the write-back is notified when it ends. The log has failed, so later syncs fail and do not
    # move the recovery point.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        assert await outcome(append(log))
        await log.write_back()
        assert log.failure is None
        assert log.recovery_point == 0, "only a flush moves it"
        assert await outcome(append(log))
        world.disk(PATH).fail_next("write_back", errno.EIO)
        await log.write_back()
        assert log.failure is not None
        assert (log.failure.operation, log.failure.errno_code) == ("write_back", errno.EIO)
        with pytest.raises(LogDirError):
            await log.flush()
        with pytest.raises(LogDirError):
            log.write_back()
        assert log.recovery_point == 0

    SimulatedWorld(1).run(scenario)


def test_a_failed_write_back_keeps_the_recovery_point_below_a_rolled_segment() -> None:
    # The segment is rolled and synced while its write-back is in progress. The kernel reports a failed write only once, so
    # the second sync succeeds although the write has failed.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        assert await outcome(append(log))
        world.disk(PATH).fail_next("write_back", errno.EIO)
        ended = log.write_back()
        with pytest.raises(LogDirError):
            await log.roll()
        await ended
        assert log.recovery_point == 0

    SimulatedWorld(1).run(scenario)


def test_a_flush_does_not_count_if_a_write_back_may_have_got_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel reports a failed write to only one sync. Here that is the write-back of a move, which began during the
    # periodic flush of the log and ends after it.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        assert await outcome(append(log))
        flushed = await log.flush()
        assert await outcome(append(log))
        write_back = world.loop.create_future()
        monkeypatch.setattr(log.log_dir, "write_back", lambda _file, *, forget: write_back)
        world.disk(PATH).be_busy(NS_PER_S)
        flush = asyncio.ensure_future(log.flush())
        await world.sleep(0.5)
        ended = log.write_back()
        await world.sleep(1)
        write_back.set_exception(LogDirError(PATH, "write_back", errno.EIO))
        await ended
        with pytest.raises(LogDirError):
            await flush
        assert log.recovery_point == flushed

    SimulatedWorld(1).run(scenario)


async def outrunning_its_syncs(world: SimulatedWorld) -> Log:
    """Returns a log with more rolled segments than may await their syncs, of which none ends."""
    log = await created(world)
    world.disk(PATH).hang({"fsync"})
    while not log.outruns_syncs:
        assert len(log.segment_base_offsets) <= ROLLED_AHEAD_MAX + 2
        await fill(log, 10)
    return log


def test_a_log_that_outruns_its_syncs_has_caught_up_when_they_end() -> None:
    # The wait ends after some of the syncs, without any further append. Up to the limit nobody has to wait.
    async def scenario(world: SimulatedWorld) -> None:
        log = await outrunning_its_syncs(world)
        assert len(log.segment_base_offsets) > ROLLED_AHEAD_MAX + 1
        waiting = asyncio.ensure_future(log.wait_for_rolled())
        await world.sleep(1)
        assert not waiting.done()
        world.disk(PATH).thaw()
        await waiting
        assert not log.outruns_syncs
        assert log.recovery_point > 0
        await log.wait_for_rolled()

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("end", ["failed sync", "deadline", "offline", "deleted"])
def test_nobody_waits_for_the_syncs_of_a_log_that_has_come_to_its_end(end: str) -> None:
    # A copy must not wait forever: the log fails, its directory goes offline, or the log is deleted meanwhile.
    async def scenario(world: SimulatedWorld) -> None:
        log = await outrunning_its_syncs(world)
        waiting = asyncio.ensure_future(log.wait_for_rolled())
        await world.sleep(0.001)
        disk = world.disk(PATH)
        match end:
            case "failed sync":
                disk.fail_with(errno.EIO)
                disk.thaw()
            case "offline":
                log.log_dir.take_offline(LogDirError(PATH, "probe", errno.EIO))
            case "deleted":
                disk.thaw()
                await log.delete_rename(bytes(16))
        await waiting
        assert not log.outruns_syncs
        await log.wait_for_rolled()

    SimulatedWorld(1).run(scenario)
