"""Normal operation of a log on a simulated disk: appending, reading, rolling, flushing, closing, searching by time."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from common.ids import LeaderEpoch, Offset
from common.records.batch import Record, TruncatedBatch, encode_batch, read_header
from common.storage.errors import LogClosed, LogExists, OffsetOutOfRange, UnexpectedOffset
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.offset_index import OffsetIndex
from common.storage.time_index import TimeIndex
from common.storage.timestamp_search import OPENED_BYTES_MAX, TimestampOffset
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    SMALL,
    TOPIC_ID,
    all_offsets,
    append,
    append_batches,
    append_fetched,
    attached,
    batch,
    concatenated,
    content,
    created,
    fill,
    log_files,
    offsets_in,
    read_in_one_step,
)


def test_a_new_log_is_durable_files_with_kafkas_names() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world), FOLDER, SMALL, TOPIC_ID, start_offset=Offset(7))
        assert sorted(log_files(world.disk(PATH))) == ["00000000000000000007.log", "partition.metadata"]
        assert (log.log_start_offset, log.log_end_offset, log.written_offset, log.recovery_point) == (7, 7, 7, 7)
        with pytest.raises(LogExists):
            await Log.create(log.log_dir, FOLDER, SMALL, TOPIC_ID)

    SimulatedWorld(1).run(scenario)


def test_offsets_are_assigned_at_the_call_and_readers_see_only_what_is_written() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        first, second = append(log, records=3), append(log, records=2, epoch=1)
        assert (first.first_offset, first.last_offset) == (0, 2)
        assert (second.first_offset, second.last_offset) == (3, 4)
        assert (log.log_end_offset, log.written_offset) == (5, 0)
        assert (await log.read(0, max_bytes=10_000)).parts == []
        await second.written
        assert first.written.done()
        assert log.written_offset == 5
        read = await log.read(0, max_bytes=10_000)
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
        data = await log.read_bytes(0, max_bytes=10_000)
        assert offsets_in(data) == [(0, 2), (3, 3), (4, 7)]
        assert read_header(data).partition_leader_epoch == 5
        assert log.leader_epochs.entries == [(5, 0)]

    SimulatedWorld(1).run(scenario)


def test_a_read_starts_with_the_batch_that_holds_the_offset_and_keeps_its_limits() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig())
        await fill(log, 9, records=2)
        size = read_header(await log.read_bytes(0, max_bytes=1)).size

        async def read(offset: int, max_bytes: int, upper: int = 20, *, min_one: bool = True) -> list[tuple[int, int]]:
            found = await log.read(offset, max_bytes=max_bytes, upper_offset=upper, min_one_batch=min_one)
            assert found.size == len(content(found))
            return offsets_in(content(found))

        assert await read(3, 2 * size) == [(2, 3), (4, 5)]
        assert await read(3, 3 * size - 1) == [(2, 3), (4, 5)]
        assert await read(0, 10 * size) == [(offset, offset + 1) for offset in range(0, 20, 2)]
        # The first batch is returned whole even if it exceeds max_bytes, unless the caller passes min_one_batch=False.
        assert await read(4, 1) == [(4, 5)]
        assert await read(4, 1, min_one=False) == []
        # The high watermark bounds the read, even in the middle of a batch.
        assert await read(4, 10 * size, upper=8) == [(4, 5), (6, 7)]
        assert await read(4, 10 * size, upper=7) == [(4, 5)]
        assert await read(4, 10 * size, upper=5) == []
        assert await read(4, 10 * size, upper=4) == []
        assert await read(20, size) == []
        for outside in (-1, 21):
            with pytest.raises(OffsetOutOfRange) as error:
                await read(outside, size)
            assert (error.value.log_start_offset, error.value.log_end_offset) == (0, 20)

    SimulatedWorld(1).run(scenario)


def test_a_log_rolls_by_size_and_every_segment_is_read_alike() -> None:
    # Makes small and large reads from every offset, in older segments (their indexes are on disk) and in the newest one.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 39, records=2)
        assert len(log.segment_base_offsets) > 3
        assert log.size_bytes == sum(
            len(data) for name, data in log_files(world.disk(PATH)).items() if name.endswith(".log")
        )
        for max_bytes in (1, 150, 400, 10_000):
            assert await all_offsets(log, max_bytes=max_bytes) == [(offset, offset + 1) for offset in range(0, 80, 2)]
        for offset in range(80):
            data = await log.read_bytes(offset, max_bytes=400)
            assert offsets_in(data)[0] == (offset - offset % 2, offset - offset % 2 + 1)
            assert len(data) <= 400
            upper = await log.read_bytes(offset, max_bytes=10_000, upper_offset=offset + 3)
            assert offsets_in(upper)[-1][1] < offset + 3

    SimulatedWorld(1).run(scenario)


def test_a_roll_writes_kafkas_indexes_and_moves_the_recovery_point() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(index_interval_bytes=150))
        for number in range(4):
            append(log, timestamp=1000 + number)
        size = log.size_bytes // 4
        assert await log.roll() == 4
        # The rolled segment was synced after its appends, so the records count as durable.
        assert log.recovery_point == 4
        files = log_files(world.disk(PATH))
        # Each batch is about 100 bytes long. The third one starts after more than 150 bytes, so it gets an index entry with
        # its last offset.
        assert 75 < size <= 150
        assert files["00000000000000000000.index"] == b"\0\0\0\2" + (2 * size).to_bytes(4, "big")
        assert files["00000000000000000000.timeindex"] == bytes.fromhex(
            "00000000000003ea 00000002 00000000000003eb 00000003"
        )
        assert sorted(files)[-1] == "partition.metadata"
        assert await log.roll() == 4

    SimulatedWorld(1).run(scenario)


def test_a_log_rolls_by_time_of_its_records_and_when_the_index_is_full() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(roll_ms=1000))
        for timestamp in (5000, 5600, 6000, 6001, 5000, 7001, 7002):
            append(log, timestamp=timestamp)
        assert log.segment_base_offsets == [0, 3, 6]
        log.config = LogConfig(index_interval_bytes=0, segment_index_bytes=24)
        for _ in range(4):
            append(log, timestamp=7003)
        # An index of 24 bytes holds two time index entries or three offset index entries.
        assert log.segment_base_offsets == [0, 3, 6, 10]
        await append(log).written

    SimulatedWorld(1).run(scenario)


def test_flush_syncs_everything_appended_before_it() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        for _ in range(30):
            append(log)
        end = log.log_end_offset
        flushing = asyncio.ensure_future(log.flush())
        # Appends go on while the sync is under way.
        await append(log).written
        assert await flushing >= end
        assert log.written_offset >= end
        assert await log.flush(Offset(3)) == log.recovery_point
        assert await log.flush() == log.log_end_offset == 31

    SimulatedWorld(1).run(scenario)


def test_what_keeps_up_is_read_without_the_disk() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30)
        tail = read_in_one_step(log, log.log_end_offset - 1, max_bytes=1000)
        assert tail is not None
        assert offsets_in(content(tail)) == [(30, 30)]
        # A read in an older segment needs one search on disk. After that, a sequential reader continues without one.
        assert read_in_one_step(log, 1, max_bytes=1000) is None
        read = await log.read(1, max_bytes=300)
        rest = read_in_one_step(log, read.next_offset, max_bytes=10_000)
        assert rest is not None
        assert rest.first_offset == read.next_offset

    SimulatedWorld(1).run(scenario)


def test_the_tail_in_memory_is_bounded_and_what_lies_before_it_is_found_on_disk() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(index_interval_bytes=1000))
        await fill(log, 8500, size=1)
        assert read_in_one_step(log, 3, max_bytes=100) is None
        assert offsets_in(await log.read_bytes(3, max_bytes=1)) == [(3, 3)]
        assert read_in_one_step(log, 8400, max_bytes=100) is not None

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
        assert offsets_in(await log.read_bytes(5, max_bytes=1)) == [(10, 11)]
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


def test_a_gap_at_the_end_of_a_segment_is_read_across() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        append_fetched(log, concatenated([batch(2, offset=0)]))
        await log.roll()
        await append_fetched(log, concatenated([batch(2, offset=10)])).written
        await log.roll()
        await append_fetched(log, concatenated([batch(2, offset=20)])).written
        assert log.segment_base_offsets == [0, 2, 12]
        for offset in (2, 5, 10):
            assert offsets_in(await log.read_bytes(offset, max_bytes=1000)) == [(10, 11)]
        assert offsets_in(await log.read_bytes(13, max_bytes=1000)) == [(20, 21)]

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
            assert offsets_in(await log.read_bytes(offset, max_bytes=1000)) == [(far, far + 1)]

    SimulatedWorld(1).run(scenario)


def test_a_closed_log_loads_as_it_was_and_refuses_everything() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 25, records=2)
        append(log, epoch=3)
        await log.close()
        assert log.recovery_point == log.log_end_offset == 53
        with pytest.raises(LogClosed):
            append(log)
        with pytest.raises(LogClosed):
            await log.read(0, max_bytes=1)
        await log.close()
        loaded = await Log.load(log.log_dir, FOLDER, SMALL, recovery_point=log.recovery_point, clean=True)
        assert not loaded.recovery.lost_anything
        assert loaded.recovery.validated_segments == 0
        assert (loaded.log_end_offset, loaded.written_offset, loaded.recovery_point) == (53, 53, 53)
        assert loaded.topic_id == TOPIC_ID
        assert loaded.leader_epochs.entries == [(0, 0), (3, 52)]
        assert loaded.segment_base_offsets == log.segment_base_offsets
        assert loaded.size_bytes == log.size_bytes
        await fill(loaded, 20, epoch=4)
        assert [first for first, _ in await all_offsets(loaded)] == [*range(0, 52, 2), *range(52, 74)]
        assert await loaded.offset_for_timestamp(400) == TimestampOffset(400, Offset(40), LeaderEpoch(0))

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("records", [0, 1, 25])
def test_a_log_that_has_not_changed_since_its_load_writes_nothing_when_it_is_closed(records: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, records)
        await log.close()
        before = log_files(world.disk(PATH))
        loaded = await Log.load(log.log_dir, FOLDER, SMALL, recovery_point=log.recovery_point, clean=True)
        operations: list[str] = []
        world.operation_watchers.append(lambda _, kind, name: operations.append(f"{kind} {name}"))
        await loaded.close()
        assert operations == []
        assert log_files(world.disk(PATH)) == before

    SimulatedWorld(1).run(scenario)


def test_a_log_without_records_has_no_index_files() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        operations: list[str] = []
        world.operation_watchers.append(lambda _, kind, name: operations.append(f"{kind} {name}"))
        await log.close()
        assert operations == []

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("change", ["append", "truncate", "truncate and append the same"])
def test_a_log_that_has_changed_since_its_load_writes_its_index_files_when_it_is_closed(change: str) -> None:
    """The indexes may have as many entries as before, and other ones."""

    async def scenario(world: SimulatedWorld) -> None:
        config = LogConfig(index_interval_bytes=0)
        log = await created(world, config)
        await fill(log, 5)
        await log.close()
        loaded = await Log.load(log.log_dir, FOLDER, config, recovery_point=log.recovery_point, clean=True)
        if change != "append":
            await loaded.truncate_to(Offset(3))
        if change != "truncate":
            await fill(loaded, 2, records=2)
        await loaded.close()
        again = await Log.load(log.log_dir, FOLDER, config, recovery_point=loaded.recovery_point, clean=True)
        assert again.log_end_offset == loaded.log_end_offset
        times = TimeIndex.from_bytes(
            log_files(world.disk(PATH))["00000000000000000000.timeindex"], base_offset=0, end_offset=loaded.log_end_offset
        )
        newest = await again.offset_of_max_timestamp()
        assert newest is not None and times.last == (newest.timestamp, newest.offset)
        positions = OffsetIndex.from_bytes(
            log_files(world.disk(PATH))["00000000000000000000.index"],
            base_offset=0,
            end_offset=loaded.log_end_offset,
            segment_size=loaded.size_bytes,
        )
        assert positions.last_offset == loaded.log_end_offset - 1

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("damage", ["nothing", "missing", "empty", "torn", "zeros at the end", "entry of other batches"])
def test_the_newest_timestamp_of_an_old_segment_is_that_of_its_batches(damage: str) -> None:
    """Retention asks for it. Only the last entry of the time index is read, unless that cannot be right."""

    async def scenario(world: SimulatedWorld) -> None:
        config = LogConfig(index_interval_bytes=0)
        log = await created(world, config)
        await fill(log, 5)
        await log.roll()
        await log.close()
        name = "00000000000000000000.timeindex"
        good = log_files(world.disk(PATH))[name]
        contents = {
            "nothing": good,
            "missing": b"",
            "empty": b"",
            "torn": good[:-5],
            "zeros at the end": good + bytes(12),
            "entry of other batches": good[:-12] + struct.pack(">qi", 10**15, 77),
        }
        await log.log_dir.replace_file(f"{FOLDER}/{name}", contents[damage])
        if damage == "missing":
            await log.log_dir.remove(f"{FOLDER}/{name}")
        loaded = await Log.load(log.log_dir, FOLDER, config, recovery_point=log.recovery_point, clean=True)
        operations: list[str] = []
        world.operation_watchers.append(lambda _, kind, name: operations.append(kind))
        assert await loaded.durable_segments()[0].load_max_timestamp() == 50
        assert damage != "nothing" or operations == ["stat", "read_file"]

    SimulatedWorld(1).run(scenario)


def test_records_are_found_by_time() -> None:
    # Searches for the timestamp of every record, for timestamps in between, and for timestamps outside the range.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30)
        for offset in range(31):
            for timestamp in (offset * 10, offset * 10 - 5):
                found = await log.offset_for_timestamp(timestamp)
                assert found == TimestampOffset(offset * 10, Offset(offset), LeaderEpoch(0))
        assert await log.offset_for_timestamp(301) is None
        assert await log.offset_of_max_timestamp() == TimestampOffset(300, Offset(30), LeaderEpoch(0))
        assert (await created_empty(log)).log_end_offset == 0

    async def created_empty(log: Log) -> Log:
        empty = await Log.create(log.log_dir, "e-0", SMALL, TOPIC_ID)
        assert await empty.offset_for_timestamp(0) is None
        assert await empty.offset_of_max_timestamp() is None
        return empty

    SimulatedWorld(1).run(scenario)


def test_times_that_go_back_are_searched_in_offset_order() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(index_interval_bytes=0))
        for timestamp in (50, 20, 70, 60, 70, 10):
            append(log, timestamp=timestamp, records=3)
        await append(log, timestamp=0).written
        assert await log.offset_for_timestamp(21) == TimestampOffset(50, Offset(0), LeaderEpoch(0))
        assert await log.offset_for_timestamp(52) == TimestampOffset(52, Offset(2), LeaderEpoch(0))
        assert await log.offset_for_timestamp(53) == TimestampOffset(70, Offset(6), LeaderEpoch(0))
        assert await log.offset_of_max_timestamp() == TimestampOffset(72, Offset(8), LeaderEpoch(0))
        # Records below the log start do not count.
        log.raise_log_start_offset(Offset(9))
        assert await log.offset_for_timestamp(0) == TimestampOffset(60, Offset(9), LeaderEpoch(0))

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize(
    ("compress", "first_offset"),
    [
        pytest.param(cramjam.zstd.compress, 1, id="exact"),
        pytest.param(lambda _: b"no zstd", 0, id="damaged"),
        pytest.param(lambda _: cramjam.zstd.compress(bytes(OPENED_BYTES_MAX + 1)), 0, id="too large to be opened"),
    ],
)
def test_a_compressed_batch_is_searched_record_by_record(compress: Callable[[bytes], Any], first_offset: int) -> None:
    """If the batch cannot be decompressed, the search returns its first offset, so a consumer misses nothing."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        records = [Record(None, b"x", 100 + number) for number in (0, 2, 1)]
        view = memoryview(encode_batch(records, attributes=4, compress=lambda plain: bytes(compress(bytes(plain)))))
        await append_batches(log, [(read_header(view), view)], epoch=0).written
        expected = TimestampOffset(102, Offset(first_offset), LeaderEpoch(0))
        assert await log.offset_for_timestamp(101) == expected
        assert await log.offset_of_max_timestamp() == expected

    SimulatedWorld(1).run(scenario)


def test_others_get_their_turn_while_a_large_batch_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        records = [Record(None, None, 0)] * 5000 + [Record(None, None, 1)]
        view = memoryview(encode_batch(records))
        await append_batches(log, [(read_header(view), view)], epoch=0).written
        monkeypatch.setattr(asyncio, "sleep", pause)
        assert await log.offset_for_timestamp(1) == TimestampOffset(1, Offset(5000), LeaderEpoch(0))

    SimulatedWorld(1).run(scenario)
    assert pauses == [0] * 5


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


def test_an_epoch_is_stored_before_the_recovery_point_moves_and_not_at_its_beginning() -> None:
    # A broker may become leader of thousands of partitions at once. If each partition
    # synced its new epoch immediately, every append would be delayed.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 3, epoch=2)
        log.begin_epoch(LeaderEpoch(5))
        await append(log, epoch=6).written
        assert "leader-epoch-checkpoint" not in log_files(world.disk(PATH))
        await log.roll()
        assert log.recovery_point == log.log_end_offset
        assert log_files(world.disk(PATH))["leader-epoch-checkpoint"] == b"0\n2\n2 0\n6 4\n"
        log.begin_epoch(LeaderEpoch(7))
        await log.close()
        assert log_files(world.disk(PATH))["leader-epoch-checkpoint"].endswith(b"\n7 5\n")

    SimulatedWorld(1).run(scenario)


def test_a_log_to_be_deleted_gets_its_new_name_with_everything_in_it() -> None:
    # The log is renamed while a roll is under way and index files and epochs are being written. No write may fail because
    # its folder has a new name.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        for number in range(30):
            append(log, epoch=number)
        name = await log.delete_rename(bytes(range(16)))
        assert name == log.name == "t-0.000102030405060708090a0b0c0d0e0f-delete"
        assert world.disk(PATH).folders() == [name]
        with pytest.raises(LogClosed):
            append(log)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_reads_under_way_survive_the_deletion_of_their_segments(seed: int) -> None:
    # Segments are removed while reads are suspended at various points. Each read returns the right batch or raises
    # OffsetOutOfRange. None fails on a closed descriptor or a missing file.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 60)
        out_of_range: list[int] = []

        async def read(offset: int) -> bool:
            try:
                found = await log.read(offset, max_bytes=10)
            except OffsetOutOfRange:
                out_of_range.append(offset)
                return offset < log.log_start_offset
            return offsets_in(content(found)) == [(offset, offset)]

        reading = []
        for base in log.segment_base_offsets[1:]:
            reading += [asyncio.ensure_future(read(offset)) for offset in range(log.log_start_offset, base)]
            await world.sleep(0.00001 * (seed % 10))
            await log.delete_segments_before(base)
        answers = await asyncio.gather(*reading)
        assert all(answers)
        assert len(out_of_range) < len(answers)

    SimulatedWorld(seed).run(scenario)


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


def test_appends_during_a_flush_are_not_covered_by_it() -> None:
    """The sync of a flush takes a second, in which appends go on. The recovery point stops where the log ended when the sync
    began, because a power cut may take what came later."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 1)
        # Stores the leader epochs, too.
        await log.flush()
        await append(log).written
        world.disk(PATH).be_busy(NS_PER_S)
        end = log.log_end_offset
        flushing = asyncio.ensure_future(log.flush())
        await world.sleep(0.01)
        await append(log).written
        assert not flushing.done()
        assert await flushing == log.recovery_point == end
        assert log.written_offset == end + 1
        assert await log.flush() == end + 1

    SimulatedWorld(1).run(scenario)


def test_appends_go_on_while_a_full_segment_is_synced() -> None:
    """A busy disk syncs nothing for a second. The log rolls again and again; each append takes as long as any other, and the
    recovery point follows when the segments are durable."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        world.disk(PATH).be_busy(NS_PER_S)
        began_ns = world.now_ns()
        await fill(log, 40)
        assert len(log.segment_base_offsets) > 3
        assert world.now_ns() - began_ns < NS_PER_S // 10
        assert log.recovery_point == 0
        await world.sleep(3)
        assert log.recovery_point == log.segment_base_offsets[-1]

    SimulatedWorld(1).run(scenario)
