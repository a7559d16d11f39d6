"""Truncation and deletion: what is removed, what stays readable, and what a crash in the middle leaves."""

import asyncio
from dataclasses import replace

import pytest

from common.ids import LeaderEpoch, Offset
from common.storage.errors import OffsetOutOfRange
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
from common.storage.retention import Expiry
from common.storage.segment_deletion import DeletedSegment
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    SMALL,
    TOPIC_ID,
    all_offsets,
    append,
    append_fetched,
    attached,
    batch,
    concatenated,
    content,
    created,
    fill,
    log_files,
)

KEEP_ALL = Expiry(retention_ms=-1, retention_bytes=-1)


@pytest.mark.parametrize("offset", [0, 1, 2, 7, 15, 16, 29, 39, 40])
def test_a_log_is_cut_at_the_start_of_a_batch_and_goes_on_from_there(offset: int) -> None:
    # Truncates at the start and in the middle of two-record batches, in old segments and in the newest one.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 20, records=2, epoch=1)
        append(log, epoch=2)
        end = offset - offset % 2
        assert await log.truncate_to(Offset(offset)) == end
        assert (log.log_end_offset, log.written_offset) == (end, end)
        assert await all_offsets(log) == [(first, first + 1) for first in range(0, end, 2)]
        assert log.leader_epochs.entries == ([(1, 0)] if end else [])
        await fill(log, 20, records=2, epoch=3)
        assert [first for first, _ in await all_offsets(log)] == list(range(0, end + 42, 2))
        # The files on disk agree with the log in memory.
        await log.close()
        loaded = await Log.load(log.log_dir, FOLDER, SMALL, clean=True)
        assert not loaded.recovery.lost_anything
        assert loaded.log_end_offset == end + 42
        assert [first for first, _ in await all_offsets(loaded)] == list(range(0, end + 42, 2))
        recovered = await Log.load(log.log_dir, FOLDER, SMALL, clean=False)
        assert not recovered.recovery.lost_anything
        assert recovered.leader_epochs.entries == loaded.leader_epochs.entries == log.leader_epochs.entries

    SimulatedWorld(1).run(scenario)


def test_truncation_waits_for_what_is_under_way_and_lowers_the_recovery_point() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 20)
        await log.flush()
        assert log.recovery_point == 21
        for _ in range(20):
            append(log, epoch=1)
        await log.truncate_to(Offset(15))
        assert (log.log_end_offset, log.recovery_point) == (15, 15)
        assert await log.truncate_to(Offset(15)) == 15
        assert await log.truncate_to(Offset(99)) == 15
        assert log.leader_epochs.entries == [(0, 0)]

    SimulatedWorld(1).run(scenario)


def test_an_epoch_without_records_goes_although_nothing_is_cut() -> None:
    # A leader records its epoch before it appends. If it loses the leadership at once and has to truncate to its own log
    # end, it must drop that epoch. Otherwise every fetch would report the same divergence.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 20)
        log.begin_epoch(LeaderEpoch(7))
        assert log.leader_epochs.latest_epoch == 7
        assert await log.truncate_to(Offset(99)) == 21
        assert log.leader_epochs.entries == [(0, 0), (7, 21)]
        assert await log.truncate_to(Offset(21)) == 21
        assert log.leader_epochs.entries == [(0, 0)]
        await log.close()
        loaded = await Log.load(log.log_dir, FOLDER, SMALL, clean=True)
        assert loaded.leader_epochs.entries == [(0, 0)]

    SimulatedWorld(1).run(scenario)


def test_nobody_may_append_in_the_middle_of_a_truncation() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 20)
        truncating = asyncio.ensure_future(log.truncate_to(Offset(3)))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="append while"):
            append(log)
        await truncating
        assert append(log).first_offset == 3

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("start", [None, 3], ids=["starting over", "cutting"])
def test_a_log_can_be_used_after_the_task_that_truncates_it_is_cancelled(start: int | None) -> None:
    """The owner appends at once, while the files are still being changed. So a segment is rolled whose file is not even
    open, and the next one may have the name of a segment that is still to be removed. The new one must not get the old one's
    file, and nothing that follows waits forever."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 40)
        await log.flush()
        change = log.truncate_fully_and_start_at(Offset(100)) if start is None else log.truncate_to(Offset(start))
        truncating = asyncio.ensure_future(change)
        has_begun = asyncio.Event()
        world.operation_watchers.append(lambda _, kind, name: has_begun.set() if kind in ("remove", "rename") else None)
        await has_begun.wait()
        truncating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await truncating
        while len(log.segment_base_offsets) < 3:
            last = append(log)
        rolled = log.segment_base_offsets[:2]
        await last.written
        assert await log.flush() == log.log_end_offset
        assert (await all_offsets(log))[-1] == (last.first_offset, last.last_offset)
        deleted = await log.delete_segments_before(last.last_offset)
        assert [each.base_offset for each in deleted] == rolled

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("is_rolled", [False, True])
def test_a_log_that_is_cut_in_a_gap_ends_with_its_last_batch(is_rolled: bool) -> None:
    """With an end inside the gap, a leader would wait for followers that have all of its records, and a kill would move the
    end back to the last batch."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append_fetched(log, batch(2, offset=0)[1]).written
        if is_rolled:
            await log.roll()
        await append_fetched(log, batch(2, offset=10)[1]).written
        assert await log.truncate_to(Offset(6)) == 2
        assert (log.log_end_offset, log.written_offset) == (2, 2)
        await append(log).written
        world.crash("a")
        loaded = await Log.load(await attached(world, node="b"), FOLDER, SMALL)
        assert not loaded.recovery.lost_anything
        assert await all_offsets(loaded) == [(0, 1), (2, 2)]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("empty", [[], [2], [2, 6], [6]])
def test_a_log_that_is_cut_where_a_gap_between_segments_ends_ends_with_its_last_batch(empty: list[int]) -> None:
    """Compaction by a broker of Apache Kafka leaves such gaps, and segments without batches in them."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.mkdir(FOLDER)
        for base_offset, data in [(0, batch(2)[1]), *((each, b"") for each in empty), (10, batch(2, offset=10)[1])]:
            world.disk(PATH).write(f"{FOLDER}/{base_offset:020d}.log", bytes(data))
        log = await Log.load(log_dir, FOLDER, SMALL, recovery_point=Offset(12), clean=True)
        assert log.log_end_offset == 12
        log.lower_recovery_point(Offset(10))
        assert await log.truncate_to(Offset(10)) == 2
        assert (log.log_end_offset, log.written_offset, log.recovery_point) == (2, 2, 2)
        await append(log).written
        world.crash("a")
        loaded = await Log.load(await attached(world, node="b"), FOLDER, SMALL, recovery_point=Offset(2))
        assert not loaded.recovery.lost_anything
        assert await all_offsets(loaded) == [(0, 1), (2, 2)]

    SimulatedWorld(1).run(scenario)


def test_a_log_is_cut_at_the_end_of_a_damaged_segment() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=1000))
        await fill(log, 20)
        end = log.segment_base_offsets[1]
        await log.flush()
        first, second = (f"{FOLDER}/{each:020d}" for each in log.segment_base_offsets[:2])
        world.disk(PATH).delete(f"{first}.index")
        magic = 16
        world.disk(PATH).corrupt(f"{first}.log", magic)
        assert await log.truncate_to(end) == end
        assert f"{second}.log" in world.disk(PATH).files()
        await append(log).written

    SimulatedWorld(1).run(scenario)


def test_a_log_that_is_cut_in_the_gap_where_it_starts_keeps_its_start() -> None:
    """No record is left between the log start and the cut. If the log ended before its start, it would give the offsets of
    deleted records to new ones."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append_fetched(log, concatenated([batch(2, offset=0), batch(2, offset=10)])).written
        log.raise_log_start_offset(Offset(5))
        assert await log.truncate_to(Offset(6)) == 5
        assert (log.log_start_offset, log.log_end_offset, log.written_offset) == (5, 5, 5)
        await append(log).written
        assert await all_offsets(log) == [(5, 5)]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("start", [0, 10, 100])
def test_a_log_starts_over_behind_or_before_what_it_had(start: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world), FOLDER, SMALL, TOPIC_ID, start_offset=Offset(10))
        await fill(log, 20)
        await log.truncate_fully_and_start_at(Offset(start))
        assert (log.log_start_offset, log.log_end_offset, log.written_offset) == (start, start, start)
        assert log.leader_epochs.entries == []
        with pytest.raises(OffsetOutOfRange):
            await log.read(start + 1, ReadLimits(max_bytes=1))
        await fill(log, 5, epoch=4)
        assert [first for first, _ in await all_offsets(log)] == list(range(start, start + 6))
        names = sorted(name for name in log_files(world.disk(PATH)) if not name.startswith(("leader", "partition")))
        assert names == [f"{start:020d}.log"]

    SimulatedWorld(1).run(scenario)


def test_truncation_below_the_first_segment_starts_over_there() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world), FOLDER, SMALL, TOPIC_ID, start_offset=Offset(10))
        await fill(log, 5)
        assert await log.truncate_to(Offset(4)) == 4
        assert (log.log_start_offset, log.segment_base_offsets) == (4, [4])

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("seed", range(15))
def test_a_crash_during_a_truncation_leaves_a_log_without_holes(seed: int) -> None:
    # The node dies at a point chosen by the seed. The next run finds a prefix of the old log that has at least
    # the records that the truncation keeps.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 40)
        await log.flush()
        truncating = asyncio.ensure_future(log.truncate_to(Offset(9)))
        await world.sleep(0.0002 * seed)
        world.crash("a")
        await asyncio.gather(truncating, return_exceptions=True)
        loaded = await Log.load(await attached(world, node="b"), FOLDER, SMALL)
        assert 9 <= loaded.log_end_offset <= 41
        assert await all_offsets(loaded) == [(offset, offset) for offset in range(loaded.log_end_offset)]

    SimulatedWorld(seed).run(scenario)


def test_segments_below_an_offset_go_and_the_newest_one_stays() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30)
        bases, size = log.segment_base_offsets, log.size_bytes
        assert len(bases) >= 4
        assert await log.delete_segments_before(Offset(bases[1] - 1)) == []
        removed = await log.delete_segments_before(Offset(bases[2] + 1))
        assert [segment.base_offset for segment in removed] == bases[:2]
        assert log.size_bytes + sum(segment.size for segment in removed) == size
        assert log.log_start_offset == bases[2] + 1
        assert log.leader_epochs.entries == [(0, bases[2] + 1)]
        with pytest.raises(OffsetOutOfRange):
            await log.read(bases[2], ReadLimits(max_bytes=1))
        kept = {name[:20] for name in log_files(world.disk(PATH)) if name[0] == "0"}
        assert kept == {f"{base:020d}" for base in bases[2:]}
        await log.delete_segments_before(log.log_end_offset)
        assert log.segment_base_offsets == bases[-1:]
        with pytest.raises(OffsetOutOfRange):
            log.raise_log_start_offset(Offset(log.log_end_offset + 1))
        assert not log.raise_log_start_offset(Offset(3))

    SimulatedWorld(1).run(scenario)


def test_retention_by_time_takes_the_oldest_up_to_the_high_watermark() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30)
        bases = log.segment_base_offsets
        expiry = Expiry(retention_ms=100, retention_bytes=-1)
        end = log.log_end_offset
        assert await log.delete_expired(KEEP_ALL, now_ms=10**12, high_watermark=end) == []
        # The timestamp of the first segment's newest record is ten times the record's offset.
        first_dies = (bases[1] - 1) * 10 + 101
        assert await log.delete_expired(expiry, now_ms=first_dies - 1, high_watermark=end) == []
        removed = await log.delete_expired(expiry, now_ms=first_dies, high_watermark=end)
        assert [segment.base_offset for segment in removed] == bases[:1]
        assert log.log_start_offset == bases[1]
        below = await log.delete_expired(expiry, now_ms=10**9, high_watermark=bases[2])
        assert [segment.base_offset for segment in below] == bases[1:2]

    SimulatedWorld(1).run(scenario)


def test_retention_rolls_a_newest_segment_that_is_too_old() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30)
        expiry = Expiry(retention_ms=100, retention_bytes=-1)
        await log.delete_expired(expiry, now_ms=10**9, high_watermark=log.log_end_offset)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (31, 31, 0)
        assert log.segment_base_offsets == [31]
        assert await log.delete_expired(expiry, now_ms=10**9, high_watermark=log.log_end_offset) == []
        assert append(log).first_offset == 31

    SimulatedWorld(1).run(scenario)


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30)
        expiry = Expiry(retention_ms=-1, retention_bytes=1200)
        removed = await log.delete_expired(expiry, now_ms=0, high_watermark=log.log_end_offset)
        assert removed != []
        assert 1200 <= log.size_bytes < 1200 + removed[0].size
        assert isinstance(removed[0], DeletedSegment)

    SimulatedWorld(1).run(scenario)


def test_records_without_timestamps_age_with_their_file() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append(log, timestamp=-1).written
        await log.roll()
        modified = await log.log_dir.stat(f"{FOLDER}/{0:020d}.log")
        assert modified is not None
        expiry = Expiry(retention_ms=100, retention_bytes=-1)
        assert await log.delete_expired(expiry, now_ms=modified.modified_ms + 100, high_watermark=Offset(1)) == []
        assert len(await log.delete_expired(expiry, now_ms=modified.modified_ms + 101, high_watermark=Offset(1))) == 1

    SimulatedWorld(1).run(scenario)


def test_a_segment_without_timestamps_takes_no_appends_after_segment_ms() -> None:
    """Otherwise records that have none, but come often, would make their file look new, and would never be deleted."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, replace(SMALL, roll_ms=500))

        async def check(now_ms: int) -> list[Offset]:
            await log.delete_expired(KEEP_ALL, now_ms=now_ms, high_watermark=log.log_end_offset)
            return log.segment_base_offsets

        assert await check(1000) == await check(2000) == [0]
        append(log, timestamp=-1)
        assert await check(3000) == [0]
        # The clock was set back, so the time starts again.
        assert await check(1000) == [0]
        append(log, timestamp=-1)
        assert await check(1500) == [0]
        assert await check(1501) == await check(3000) == [0, 2]
        # The appends themselves see the age of segments with timestamps.
        append(log, timestamp=1000)
        assert await check(3000) == await check(9000) == [0, 2]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("expiry", [Expiry(retention_ms=1, retention_bytes=-1), Expiry(retention_ms=-1, retention_bytes=50)])
def test_retention_goes_past_segments_without_records(expiry: Expiry) -> None:
    """A compaction by a broker of Apache Kafka leaves such segments. If retention stopped there, the log would grow for
    ever."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.mkdir(FOLDER)
        for base_offset, data in [(0, b""), (5, batch(2, offset=5)[1]), (7, b""), (10, batch(2, offset=10)[1])]:
            world.disk(PATH).write(f"{FOLDER}/{base_offset:020d}.log", bytes(data))
        log = await Log.load(log_dir, FOLDER, SMALL, recovery_point=Offset(12), clean=True)
        # It is so much newer that it begins another segment.
        append(log, timestamp=10**13)
        removed = await log.delete_expired(expiry, now_ms=10**13, high_watermark=Offset(12))
        assert [segment.base_offset for segment in removed] == [0, 5, 7, 10]
        assert (log.log_start_offset, log.segment_base_offsets) == (12, [12])

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_structural_changes_never_meet_a_file_that_another_one_took(seed: int) -> None:
    # Rolls, flushes, deletions, reads and truncations run at the same time. Any ENOENT would take the directory offline.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=300, index_interval_bytes=100))
        errors: list[object] = []
        log.log_dir.on_error = errors.append

        async def appending() -> None:
            for number in range(60):
                append(log, epoch=number // 7)
                await world.sleep(0.0003)

        async def deleting() -> None:
            for _ in range(10):
                await log.delete_segments_before(Offset(max(log.log_start_offset, log.written_offset - 10)))
                await world.sleep(0.001)

        async def flushing() -> None:
            for _ in range(10):
                await log.flush()

        async def reading() -> None:
            for _ in range(20):
                await log.read(log.log_start_offset, ReadLimits(max_bytes=1000))
                await world.sleep(0.0005)

        await asyncio.gather(appending(), deleting(), flushing(), reading())
        await asyncio.gather(log.truncate_to(Offset(log.log_end_offset - 3)), flushing(), reading(), deleting())
        append(log, epoch=99)
        await log.delete_rename(bytes(16))
        assert errors == []
        assert log.leader_epochs.latest_epoch == LeaderEpoch(99)

    SimulatedWorld(seed).run(scenario)


# --- *.deleted -------------------------------------------------------------------------------------------------------
def deleted_files(world: SimulatedWorld) -> list[str]:
    return [name for name in log_files(world.disk(PATH)) if name.endswith(".deleted")]


@pytest.mark.parametrize("way", ["retention", "truncation", "start over"])
def test_removed_segments_wait_as_deleted_files(way: str) -> None:
    """The files of removed segments are renamed at once and durably, and removed when the owner says so. A reader that has
    found its records before goes on reading them."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 40)
        handed_over: list[str] = []
        log.on_deleted = handed_over.extend
        bases = log.segment_base_offsets
        read = await log.read(bases[2] if way == "truncation" else 0, ReadLimits(max_bytes=100))
        before = content(read)
        if way == "retention":
            await log.delete_segments_before(Offset(bases[2]))
            removed = bases[:2]
        elif way == "truncation":
            log.lower_recovery_point(Offset(bases[2]))
            await log.truncate_to(Offset(bases[1]))
            removed = bases[2:]
        else:
            await log.truncate_fully_and_start_at(Offset(1000))
            removed = bases
        assert sorted(handed_over) == deleted_files(world) == [f"{base:020d}.log.deleted" for base in removed]
        assert content(read) == before
        # A start that comes before the owner's time removes them, and loads none of them.
        durable = {name for name in world.disk(PATH).durable_files() if name.startswith(FOLDER)}
        assert not durable & {f"{FOLDER}/{base:020d}.log" for base in removed if base != log.segment_base_offsets[0]}
        assert log.remove_deleted(handed_over)
        await log.close()
        assert deleted_files(world) == []
        loaded = await Log.load(log.log_dir, FOLDER, SMALL, clean=True)
        assert loaded.segment_base_offsets == log.segment_base_offsets

    SimulatedWorld(1).run(scenario)


def test_a_start_removes_deleted_files() -> None:
    """The process dies before the delay of the files has passed. The next start does not take them for segments."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 40)
        log.on_deleted = lambda _: None
        await log.delete_segments_before(Offset(log.segment_base_offsets[3]))
        bases = log.segment_base_offsets
        assert len(deleted_files(world)) == 3
        world.crash("a")
        log_dir = await attached(world, node="b")
        loaded = await Log.load(log_dir, FOLDER, SMALL, log_start_offset=log.log_start_offset)
        assert loaded.segment_base_offsets == bases
        assert deleted_files(world) == []

    SimulatedWorld(1).run(scenario)


def test_deleted_files_are_found_under_the_new_name_of_the_folder() -> None:
    """While a log is renamed, nothing is removed in it. Afterwards the files are in the new folder."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 40)
        handed_over: list[str] = []
        log.on_deleted = handed_over.extend
        await log.delete_segments_before(Offset(log.segment_base_offsets[2]))
        renaming = asyncio.ensure_future(log.rename("moved-0"))
        await asyncio.sleep(0)
        assert not log.remove_deleted(handed_over)
        await renaming
        assert log.remove_deleted(handed_over)
        await log.close()
        assert not [name for name in world.disk(PATH).files() if name.endswith(".deleted")]
        assert log.remove_deleted(handed_over), "there is nothing left to do for a log that is closed"

    SimulatedWorld(1).run(scenario)


# --- a log that rolls faster than its segments become durable --------------------------------------------------------
@pytest.mark.parametrize("what", ["retention", "log start", "flush"])
def test_a_log_that_rolls_all_the_time_is_shortened_and_flushed(what: str) -> None:
    """On a busy disk the log rolls again before the last roll is durable. If a deletion or a flush waited until nothing is
    under way, it would never begin, and the directory would become full."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 60)
        await log.flush()
        bases = log.segment_base_offsets

        async def produce() -> None:
            while True:
                await append(log, size=200, timestamp=10**12).written
                await asyncio.sleep(0.0015)

        producing = asyncio.ensure_future(produce())
        await asyncio.sleep(0.1)
        assert log._background.count > 1
        end = log.log_end_offset
        async with asyncio.timeout(5):
            if what == "flush":
                assert await log.flush() >= end
            elif what == "log start":
                await log.delete_segments_before(bases[1])
            else:
                expiry = Expiry(retention_ms=1000, retention_bytes=-1)
                await log.delete_expired(expiry, now_ms=10**12, high_watermark=bases[1])
        assert log._background.count > 1
        assert log.segment_base_offsets[0] == bases[0 if what == "flush" else 1]
        producing.cancel()

    SimulatedWorld(1).run(scenario)
