"""Appending to a log on a simulated disk, as leader and as follower: offsets, gaps, and the order of completion."""

import asyncio
from functools import partial

import pytest

from common.ids import LeaderEpoch, Offset
from common.records.batch import TruncatedBatch, read_header
from common.storage.errors import UnexpectedOffset
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    SMALL,
    all_offsets,
    append,
    append_batches,
    append_fetched,
    attached,
    batch,
    concatenated,
    content,
    crash_after,
    created,
    fill,
    log_files,
    offsets_in,
)


def test_offsets_are_assigned_at_the_call_and_readers_see_only_what_is_written() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        first, second = append(log, records=3), append(log, records=2, epoch=1)
        assert (first.first_offset, first.last_offset) == (0, 2)
        assert (second.first_offset, second.last_offset) == (3, 4)
        assert (log.log_end_offset, log.written_offset) == (5, 0)
        assert (await log.read(0, ReadLimits(max_bytes=10_000))).parts == []
        await second.written
        assert first.written.done()
        assert log.written_offset == 5
        read = await log.read(0, ReadLimits(max_bytes=10_000))
        assert offsets_in(content(read)) == [(0, 2), (3, 4)]
        assert [read_header(content(read)).partition_leader_epoch] == [0]
        assert (read.first_offset, read.next_offset, read.size) == (0, 5, len(content(read)))

    SimulatedWorld(1).run(scenario)


def test_several_batches_of_one_request_follow_each_other() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        appended = append_batches(log, [batch(3), batch(1), batch(4)], epoch=5)
        await appended.written
        assert (appended.first_offset, appended.last_offset) == (0, 7)
        data = await log.read_bytes(0, ReadLimits(max_bytes=10_000))
        assert offsets_in(data) == [(0, 2), (3, 3), (4, 7)]
        assert read_header(data).partition_leader_epoch == 5
        assert log.leader_epochs.entries == [(5, 0)]

    SimulatedWorld(1).run(scenario)


def test_a_follower_takes_batches_as_they_are() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        first = append_fetched(log, concatenated([batch(2, offset=0, epoch=3), batch(1, offset=2, epoch=4)]))
        assert (first.first_offset, first.last_offset, log.log_end_offset) == (0, 2, 3)
        # The next batch follows after a gap in the offsets, as left by compaction.
        second = append_fetched(log, concatenated([batch(2, offset=10, epoch=4)]))
        await second.written
        assert (second.first_offset, second.last_offset) == (10, 11)
        assert log.leader_epochs.entries == [(3, 0), (4, 2)]
        assert await all_offsets(log) == [(0, 1), (2, 2), (10, 11)]
        assert offsets_in(await log.read_bytes(5, ReadLimits(max_bytes=1))) == [(10, 11)]
        for wrong in (
            [batch(2, offset=11)],
            [batch(2, offset=12), batch(1, offset=13)],
            [],
        ):
            with pytest.raises(UnexpectedOffset):
                append_fetched(log, concatenated(wrong))
        with pytest.raises(TruncatedBatch):
            append_fetched(log, concatenated([batch(2, offset=12)])[:-1])
        assert log.log_end_offset == 12

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("first", [0, 1])
def test_a_gap_too_wide_for_the_indexes_begins_a_segment(first: int) -> None:
    # The indexes store relative offsets of 31 bits, so the batch after the gap needs a new segment. If `first` is 0, the
    # old segment stays empty.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        for number in range(first):
            append_fetched(log, concatenated([batch(1, offset=number)]))
        far = 2**31 + 7
        await append_fetched(log, concatenated([batch(2, offset=far)])).written
        assert log.segment_base_offsets == [0, far + 1 - (2**31 - 1)]
        assert await all_offsets(log) == [(number, number) for number in range(first)] + [(far, far + 1)]
        for offset in (first, 5, far - 1, far, far + 1):
            assert offsets_in(await log.read_bytes(offset, ReadLimits(max_bytes=1000))) == [(far, far + 1)]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("ending", ["kill", "power cut"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_gap_too_wide_for_the_indexes_is_no_loss(first: int, ending: str) -> None:
    # A gap between two segments counts as lost records unless their index files show that nothing is missing. Whatever
    # moment a crash hits, and although the recovery point was not stored, the log keeps what was acknowledged (kill) or
    # flushed (power cut).
    far = 2**31 + 7
    starts = [*range(first), far, far + 2]

    async def write(log: Log, kept: list[int]) -> None:
        for start in starts:
            await append_fetched(log, concatenated([batch(2 if start >= far else 1, offset=start)])).written
            if ending == "kill":
                kept.append(start)
        await log.flush()
        kept[:] = starts

    async def scenario(world: SimulatedWorld, crash_at: int) -> bool:
        log = await created(world)
        kept: list[int] = []
        crashed = asyncio.ensure_future(crash_after(world, crash_at, ending).wait())
        writing = asyncio.ensure_future(write(log, kept))
        await asyncio.wait([crashed, writing], return_when=asyncio.FIRST_COMPLETED)
        is_complete = not crashed.done()
        if is_complete:
            (world.crash if ending == "kill" else world.power_cut)("a")
        for task in (crashed, writing):
            task.cancel()
        await asyncio.wait([crashed, writing])
        world.operation_watchers.clear()
        loaded = await Log.load(await attached(world), FOLDER, SMALL)
        found = [base for base, _ in await all_offsets(loaded)]
        assert found == starts[: len(found)]
        assert len(found) >= len(kept), loaded.recovery
        return is_complete

    crash_at = 0
    while not SimulatedWorld(crash_at).run(partial(scenario, crash_at=crash_at)):
        crash_at += 1
    assert crash_at > 5


def test_what_follows_a_gap_that_a_copy_has_skipped_is_no_loss() -> None:
    # The source of the copy ends in a gap that a broker of Apache Kafka has left.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 3)
        await log.skip_to(Offset(10))
        await append(log).written
        world.crash("a")
        loaded = await Log.load(await attached(world), FOLDER, SMALL)
        assert loaded.recovery.reason is None
        assert await all_offsets(loaded) == [(0, 0), (1, 1), (2, 2), (3, 3), (10, 10)]

    SimulatedWorld(1).run(scenario)


def test_a_new_leaders_epoch_is_known_before_its_first_record() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 3, epoch=2)
        log.begin_epoch(LeaderEpoch(5))
        assert log.leader_epochs.end_offset_for(LeaderEpoch(2), log.log_end_offset) == (2, 4)
        assert log.leader_epochs.end_offset_for(LeaderEpoch(5), log.log_end_offset) == (5, 4)
        await append(log, epoch=5).written
        await log.flush()
        assert log_files(world.disk(PATH))["leader-epoch-checkpoint"] == b"0\n2\n2 0\n5 4\n"

    SimulatedWorld(1).run(scenario)


def test_whoever_awaits_an_append_may_be_cancelled() -> None:
    # The client has disconnected, so no task awaits its append. The append continues, and later ones are not disturbed.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)

        async def wait(written: "asyncio.Future[None]") -> None:
            await written

        task = asyncio.ensure_future(wait(append(log).written))
        await asyncio.sleep(0)
        task.cancel()
        await append(log).written
        assert log.written_offset == 2
        await log.truncate_to(Offset(1))
        assert log.log_end_offset == 1

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_pipelined_appends_through_many_rolls_complete_in_order(seed: int) -> None:
    # Each append begins a new segment. The files may be opened in any order, but the appends complete in offset order.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=150))
        done: list[int] = []
        for _ in range(30):
            appended = append(log)
            appended.written.add_done_callback(lambda _, offset=appended.first_offset: done.append(offset))  # type: ignore[misc]
        await log.flush()
        assert done == list(range(30))
        assert len(log.segment_base_offsets) == 30
        assert log.recovery_point == 30
        assert await all_offsets(log) == [(offset, offset) for offset in range(30)]

    SimulatedWorld(seed).run(scenario)
