"""Appends that count as written only when they are synced (flush.messages), on a simulated disk.

Goal: what a log calls written survives a power cut, appends share their syncs, and every append ends.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import partial

import pytest

from common.environment.interface import LogDirError
from common.ids import Offset
from common.storage.append_pipeline import AwaitedAppend
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    all_offsets,
    append,
    append_batches,
    append_fetched,
    attached,
    batch,
    concatenated,
    crash_after,
    created,
)

EACH = LogConfig(flush_messages=1)
THIRD = LogConfig(flush_messages=3)
# Each of its batches begins a segment.
SEGMENTS = LogConfig(flush_messages=1, segment_bytes=150)

Scenario = Callable[[SimulatedWorld], Coroutine[None, None, None]]


def run(scenario: Scenario, seed: int = 1) -> None:
    SimulatedWorld(seed).run(scenario)


def syncs_of(world: SimulatedWorld) -> list[str]:
    """Returns a list that gets the name of each segment file that is synced from now on."""
    syncs: list[str] = []

    def watch(_path: str, kind: str, name: str) -> None:
        if kind == "fsync":
            syncs.append(name.partition("/")[2])

    world.operation_watchers.append(watch)
    return syncs


@pytest.mark.parametrize("as_leader", [True, False])
def test_an_append_is_written_once_it_is_synced(as_leader: bool) -> None:
    """The disk syncs nothing for a second. The kernel has the record meanwhile, but no reader gets it."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        world.disk(PATH).be_busy(NS_PER_S)
        appended = append(log) if as_leader else append_fetched(log, concatenated([batch(1)]))
        await world.sleep(0.5)
        assert world.disk(PATH).files()[f"{FOLDER}/00000000000000000000.log"]
        assert not appended.written.done()
        assert (log.written_offset, log.log_end_offset) == (0, 1)
        assert (await log.read(0, ReadLimits(max_bytes=1000))).parts == []
        await appended.written
        assert world.now_ns() > NS_PER_S
        assert await all_offsets(log) == [(0, 0)]
        world.power_cut("a")
        assert await all_offsets(await Log.load(await attached(world), FOLDER, EACH)) == [(0, 0)]

    run(scenario)


def test_by_default_nothing_is_synced() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig())
        syncs = syncs_of(world)
        for _ in range(10):
            await append(log).written
        await world.sleep(1)
        assert syncs == []

    run(scenario)


def test_appends_share_their_syncs() -> None:
    """A hundred appends arrive one after the other while the disk takes a second for a sync: the first is synced alone, and
    all that came meanwhile share the next one."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        syncs = syncs_of(world)
        world.disk(PATH).be_busy(NS_PER_S)
        appends = []
        for _ in range(100):
            appends.append(append(log))
            await world.sleep(0.001)
        assert (log.written_offset, len(syncs)) == (0, 0)
        await appends[0].written
        assert (log.written_offset, len(syncs)) == (1, 1)
        await appends[1].written
        assert (log.written_offset, len(syncs)) == (100, 2)
        # Those of one turn of the event loop share one from the start.
        appends = [append(log) for _ in range(50)]
        await appends[0].written
        assert (log.written_offset, log.synced_offset, len(syncs)) == (150, 150, 3)
        await world.sleep(1)
        assert len(syncs) == 3

    run(scenario)


def test_the_append_that_completes_the_number_waits_for_a_sync() -> None:
    """Records count, not batches. Appends after it are written after it, and count for the next one."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, THIRD)
        syncs = syncs_of(world)
        await append(log, records=2).written
        assert syncs == []
        world.disk(PATH).be_busy(NS_PER_S)
        third, fourth = append(log), append(log)
        await world.sleep(0.5)
        assert not third.written.done()
        assert not fourth.written.done()
        await fourth.written
        assert (third.written.done(), log.written_offset, len(syncs)) == (True, 4, 1)
        await append(log).written
        assert len(syncs) == 1
        await append(log, records=20).written
        assert (log.written_offset, len(syncs)) == (25, 2)

    run(scenario)


def test_a_flush_counts_as_a_sync() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, THIRD)
        await append(log, records=2).written
        await log.flush()
        syncs = syncs_of(world)
        await append(log, records=2).written
        assert syncs == []
        await append(log).written
        assert len(syncs) == 1

    run(scenario)


def test_a_copy_is_not_synced_append_by_append() -> None:
    """Nothing relies on it before `take_over`."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        syncs = syncs_of(world)
        for number in range(3):
            (each,) = [batch(1, offset=number)]
            end = AwaitedAppend()
            log.append_as_follower([each], each[1], is_copy=True, on_written=end.written, on_failed=end.failed)
            await end.ended
        assert syncs == []
        await append(log).written
        assert len(syncs) == 1

    run(scenario)


def test_a_duplicate_is_acknowledged_with_the_append_that_it_repeats() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        world.disk(PATH).be_busy(NS_PER_S)
        append(log)
        again = AwaitedAppend()
        log.when_written(on_written=again.written, on_failed=again.failed)
        await world.sleep(0.5)
        assert not again.ended.done()
        await again.ended
        assert log.written_offset == 1

    run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_appends_through_many_rolls_complete_in_order(seed: int) -> None:
    """Each append begins a segment, so most are durable with their segment, without a sync of their own."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, SEGMENTS)
        done: list[int] = []
        for _ in range(30):
            appended = append(log)
            appended.written.add_done_callback(lambda _, offset=appended.first_offset: done.append(offset))  # type: ignore[misc]
            if seed % 2:
                await world.sleep(0.0005)
        await appended.written
        assert done == list(range(30))
        assert len(log.segment_base_offsets) == 30
        world.power_cut("a")
        loaded = await Log.load(await attached(world), FOLDER, SEGMENTS)
        assert await all_offsets(loaded) == [(offset, offset) for offset in range(30)]

    run(scenario, seed)


def test_an_append_in_a_new_segment_waits_until_the_old_one_is_durable() -> None:
    """The records in the old segment did not have to be synced. Without them, the newer one would be lost as well, because
    recovery ends the log at a hole."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=150))
        await append(log).written
        log.config = SEGMENTS
        world.disk(PATH).be_busy(NS_PER_S)
        appended = append(log)
        await world.sleep(0.5)
        assert (log.segment_base_offsets, log.written_offset) == ([0, 1], 1)
        await appended.written
        world.power_cut("a")
        assert await all_offsets(await Log.load(await attached(world), FOLDER, EACH)) == [(0, 0), (1, 1)]

    run(scenario)


def test_an_append_to_a_segment_whose_name_is_not_durable_waits() -> None:
    """The new segment's file is there, but not yet the sync of its folder."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, SEGMENTS)
        await append(log).written
        world.disk(PATH).hang({"fsync_dir"})
        appended = append(log)
        await world.sleep(1)
        assert world.disk(PATH).files()[f"{FOLDER}/00000000000000000001.log"]
        assert not appended.written.done()
        world.disk(PATH).thaw()
        await appended.written

    run(scenario)


@pytest.mark.parametrize("hung", ["fsync", "fsync_dir"])
def test_an_append_to_a_log_that_starts_over_waits_for_the_new_segment(hung: str) -> None:
    """The caller has given up waiting, so appends come before the new segment is there. The first sync of the segment must
    wait until its name is durable."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        await append(log).written
        disk = world.disk(PATH)
        disk.hang({hung})
        starting = asyncio.ensure_future(log.truncate_fully_and_start_at(Offset(5)))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        appended = append(log)
        await world.sleep(1)
        assert disk.files()[f"{FOLDER}/00000000000000000005.log"]
        assert not appended.written.done()
        disk.thaw()
        await appended.written
        assert await all_offsets(log) == [(5, 5)]

    run(scenario)


def test_an_append_to_a_log_that_is_being_truncated_waits_for_that() -> None:
    """The caller has given up waiting, and the segment holds the append until it is cut."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        for _ in range(3):
            await append(log).written
        disk = world.disk(PATH)
        disk.hang({"truncate"})
        truncating = asyncio.ensure_future(log.truncate_to(Offset(1)))
        await world.sleep(0.1)
        truncating.cancel()
        await asyncio.wait([truncating])
        appended = append(log)
        await world.sleep(1)
        assert (log.written_offset, log.log_end_offset) == (1, 2)
        disk.thaw()
        await appended.written
        assert await all_offsets(log) == [(0, 0), (1, 1)]

    run(scenario)


def test_a_flush_counts_for_appends_that_wait() -> None:
    """The recovery point is never beyond what is written."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        await append(log).written
        # Stores the leader epochs, so that the next flush begins at once.
        await log.flush()
        appended = append(log)
        assert await log.flush() == 2
        assert log.written_offset == 2
        await appended.written

    run(scenario)


def test_a_failed_sync_fails_the_appends_and_the_log() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        await append(log).written
        world.disk(PATH).fail_fsync_once()
        appends = [append(log) for _ in range(3)]
        for appended in appends:
            with pytest.raises(LogDirError, match="EIO"):
                await appended.written
        assert log.failure is not None
        assert log.written_offset == 1
        with pytest.raises(LogDirError):
            append(log)
        await log.abandon()
        assert (await Log.load(log.log_dir, FOLDER, EACH)).log_end_offset == 1

    run(scenario)


def test_a_failed_append_fails_those_that_wait_for_a_sync() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        world.disk(PATH).be_busy(NS_PER_S)
        first = append(log)
        await world.sleep(0.1)
        world.disk(PATH).fail_next("append", errno.EMFILE)
        second = append(log)
        for appended in (first, second):
            with pytest.raises(LogDirError, match="EMFILE"):
                await appended.written
        await log.abandon()
        loaded = await Log.load(log.log_dir, FOLDER, EACH)
        assert loaded.log_end_offset == 1
        await append(loaded).written

    run(scenario)


def test_a_sync_does_not_count_if_a_write_back_may_have_got_its_error() -> None:
    """The kernel reports a failed write to only one sync, and here it is that of the write-back."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        world.disk(PATH).be_busy(NS_PER_S)
        appended = append(log)
        await world.sleep(0.1)
        world.disk(PATH).fail_next("write_back", errno.EIO)
        log.write_back()
        with pytest.raises(LogDirError):
            await appended.written
        assert log.written_offset == 0

    run(scenario)


def test_appends_go_on_after_a_write_back() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        world.disk(PATH).be_busy(NS_PER_S)
        first = append(log)
        await world.sleep(0.1)
        ended = log.write_back()
        second = append(log)
        await ended
        await first.written
        await second.written

    run(scenario)


@pytest.mark.parametrize("end", ["close", "delete", "rename", "truncate", "start over", "take over", "roll"])
@pytest.mark.parametrize("pause", [0, 0.1])
def test_what_ends_or_changes_a_log_waits_for_its_syncs(end: str, pause: float) -> None:
    """No append is left waiting, whether its sync is about to begin or under way."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        other = await Log.create(log.log_dir, "o-0", EACH, log.topic_id) if end == "take over" and log.topic_id else log
        world.disk(PATH).be_busy(NS_PER_S)
        appends = [append(log) for _ in range(3)]
        if other is not log:
            await asyncio.gather(*[append(other).written for _ in range(3)])
        if pause:
            await world.sleep(pause)
            appends.append(append(log))
            if other is not log:
                await append(other).written
        match end:
            case "close":
                await log.close()
            case "delete":
                await log.delete_rename(bytes(16))
            case "rename":
                await log.rename("t-0.0-future")
            case "truncate":
                assert await log.truncate_to(Offset(1)) == 1
            case "start over":
                await log.truncate_fully_and_start_at(Offset(7))
            case "take over":
                await log.take_over(other)
            case _:
                await log.roll()
        await asyncio.wait_for(asyncio.gather(*[each.written for each in appends]), 1)
        if end not in ("close", "delete"):
            assert log.written_offset == log.log_end_offset
            await append(log).written
            await log.close()

    run(scenario)


@pytest.mark.parametrize("end", ["node", "directory"])
def test_the_end_of_a_node_or_directory_ends_the_wait(end: str) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        world.disk(PATH).hang({"fsync"})
        appended = append(log)
        await world.sleep(0.1)
        if end == "node":
            world.crash("a")
            await world.sleep(0.1)
            assert appended.written.cancelled()
        else:
            log.lose_directory()
            with pytest.raises(LogDirError):
                await appended.written

    run(scenario)


def test_a_truncated_log_counts_from_its_new_end() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, THIRD)
        for _ in range(6):
            await append(log).written
        await log.truncate_to(Offset(1))
        assert log.synced_offset == 1
        syncs = syncs_of(world)
        await append(log).written
        await append(log).written
        assert syncs == []
        await append(log).written
        assert len(syncs) == 1

    run(scenario)


def test_a_change_of_the_number_counts_for_later_appends() -> None:
    """Appends that wait go on waiting for their sync only. After a lower number, the next append makes all earlier ones
    durable, too."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, EACH)
        world.disk(PATH).be_busy(NS_PER_S)
        waiting = append(log)
        log.config = LogConfig()
        later = append(log)
        await waiting.written
        await later.written
        syncs = syncs_of(world)
        for _ in range(5):
            await append(log).written
        assert syncs == []
        log.config = LogConfig(flush_messages=4)
        await append(log).written
        assert len(syncs) == 1
        world.power_cut("a")
        assert (await Log.load(await attached(world), FOLDER, EACH)).log_end_offset == 8

    run(scenario)


def test_after_a_start_the_first_records_count_as_synced() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, THIRD)
        for _ in range(4):
            await append(log).written
        await log.close()
        log = await Log.load(log.log_dir, FOLDER, THIRD, recovery_point=log.recovery_point, clean=True)
        syncs = syncs_of(world)
        await append(log, records=2).written
        assert syncs == []
        await append(log).written
        assert len(syncs) == 1

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("segment_bytes", [150, 400, 100_000])
@pytest.mark.parametrize("flush_messages", [1, 4])
def test_what_is_written_survives_a_power_cut_after_any_operation(segment_bytes: int, flush_messages: int) -> None:
    """The power goes after the first disk operation, after the second, and so on. What the log has called written is there,
    except for less than flush.messages, and although no recovery point was stored."""
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=150, flush_messages=flush_messages)

    async def write(log: Log) -> None:
        for epoch in range(4):
            appends = [append_batches(log, [batch(1 + number % 2)], epoch=epoch) for number in range(3)]
            await appends[0].written
            appends.append(append(log, epoch=epoch))
            await appends[-1].written

    async def scenario(world: SimulatedWorld, crash_at: int) -> bool:
        log = await created(world, config)
        crashed = asyncio.ensure_future(crash_after(world, crash_at, "power cut").wait())
        writing = asyncio.ensure_future(write(log))
        await asyncio.wait([crashed, writing], return_when=asyncio.FIRST_COMPLETED)
        is_complete = not crashed.done()
        if is_complete:
            world.power_cut("a")
        written_offset = log.written_offset
        for task in (crashed, writing):
            task.cancel()
        await asyncio.wait([crashed, writing])
        world.operation_watchers.clear()
        loaded = await Log.load(await attached(world), FOLDER, config)
        assert written_offset - loaded.log_end_offset < flush_messages, loaded.recovery
        return is_complete

    crash_at = 0
    while not SimulatedWorld(crash_at).run(partial(scenario, crash_at=crash_at)):
        crash_at += 1
    assert crash_at > 5
