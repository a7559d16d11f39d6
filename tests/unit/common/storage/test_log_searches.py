"""Searches that wait for the disk while the log changes."""

import asyncio
import contextlib
import random
import struct

import pytest

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import LogDirError
from common.ids import Offset
from common.records.batch import read_header
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.log_segments import LOADED_INDEXES_MAX
from common.storage.read_limits import ReadLimits
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, PATH, SMALL, all_offsets, append, created, fill, log_files

WIDE = LogConfig(segment_bytes=400_000, index_interval_bytes=4_096)


@pytest.mark.parametrize("search", ["time", "max", "offset"])
@pytest.mark.parametrize("how", ["retention", "deletion", "end", "reload"])
def test_a_search_never_goes_on_in_a_file_that_is_closed(how: str, search: str) -> None:
    """A search must not read from a closed descriptor. Its number may already belong to another file, and EBADF would count
    as a bug and halt the node."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 60)
        await log.close()
        log = await Log.load(log.log_dir, FOLDER, SMALL, recovery_point=log.recovery_point, clean=True)
        errors: list[LogDirError] = []
        log.log_dir.on_error = errors.append
        bases = log.segment_base_offsets
        searching: asyncio.Future[object] = asyncio.ensure_future(
            log.offset_of_max_timestamp()
            if search == "max"
            else log.offset_for_timestamp(bases[2] * 10)
            if search == "time"
            else log.read(bases[2] + 1, ReadLimits(max_bytes=50))
        )
        await asyncio.sleep(0)
        match how:
            case "retention":
                await log.delete_segments_before(bases[-1])
            case "deletion":
                await log.delete_rename(bytes(16))
            case "end":
                await log.close()
            case "reload":
                log.failure = LogDirError("/disk", "append", 24)
                await log.abandon()
        with contextlib.suppress(LogDirError, LogClosed, OffsetOutOfRange):
            await searching
        assert [error for error in errors if classify(error) is Verdict.OUR_BUG] == []

    SimulatedWorld(1).run(scenario)


def index_of_whole_appends(content: bytes, base_offset: int, batches_per_append: int) -> bytes:
    """Returns the offset index of a follower of Apache Kafka up to 3.9. It has one entry for a whole append: the last offset
    of the last batch, and the position of the first one."""
    index, position, unindexed_bytes = b"", 0, 0
    while position < len(content):
        start = position
        for _ in range(batches_per_append):
            if position < len(content):
                header = read_header(content, position)
                position += header.size
        if unindexed_bytes > WIDE.index_interval_bytes:
            index += struct.pack(">ii", header.last_offset - base_offset, start)
            unindexed_bytes = 0
        unindexed_bytes += position - start
    return index


@pytest.mark.parametrize("batches_per_append", [1, 20])
def test_the_indexes_of_followers_of_apache_kafka_are_used(batches_per_append: int) -> None:
    """If they counted as damaged, each would be built again from its whole segment whenever it is needed."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, WIDE)
        await fill(log, 20_000)
        await log.close()
        disk = world.disk(PATH)
        for name, content in log_files(disk).items():
            if name.endswith(".log"):
                index = index_of_whole_appends(content, int(name[:20]), batches_per_append)
                disk.write(f"{FOLDER}/{name[:20]}.index", index)
        loaded = await Log.load(log.log_dir, FOLDER, WIDE, recovery_point=log.recovery_point, clean=True)
        operations: list[str] = []
        world.operation_watchers.append(lambda _where, kind, _name: operations.append(kind))
        # More segments in turn than there are indexes in memory.
        offsets = [base_offset + 1_000 + number for number in range(10) for base_offset in loaded.segment_base_offsets[:4]]
        for offset in offsets:
            assert read_header(await loaded.read_bytes(Offset(offset), ReadLimits(max_bytes=100))).base_offset == offset
        assert len(operations) < 5 * len(offsets)

    SimulatedWorld(1).run(scenario)


def test_searches_by_time_keep_few_indexes_in_memory() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 200)
        await log.flush()
        assert len(log.segment_base_offsets) > 2 * LOADED_INDEXES_MAX
        for offset in range(0, 200, 5):
            assert await log.offset_for_timestamp(offset * 10) is not None
        await log.offset_of_max_timestamp()
        assert len([each for each in [*log._segments][:-1] if each.index is not None]) <= LOADED_INDEXES_MAX

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("is_newest", [False, True])
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_damaged_index_never_makes_a_reader_skip_records(*, seed: int, is_newest: bool) -> None:
    """A few bytes of the index files flip, or pieces of them are swapped. Whatever is read or searched is right."""

    async def scenario(world: SimulatedWorld) -> None:
        rng = random.Random(seed)
        config = LogConfig(index_interval_bytes=100, segment_bytes=100_000)
        log = await created(world, config)
        await fill(log, 60)
        if not is_newest:
            await log.roll()
        await log.close()
        end = log.recovery_point
        expected = await all_offsets(await Log.load(log.log_dir, FOLDER, config, recovery_point=end, clean=True))
        for suffix, entry_size in ((".index", 8), (".timeindex", 12)):
            name = f"{FOLDER}/{0:020d}{suffix}"
            content = bytearray(world.disk(PATH).files()[name])
            for _ in range(rng.randint(1, 3)):
                first, second = (entry_size * rng.randrange(len(content) // entry_size) for _ in range(2))
                if rng.random() < 0.5:
                    content[first + rng.randrange(entry_size)] ^= 1 << rng.randrange(8)
                else:
                    moved = content[first : first + entry_size]
                    content[first : first + entry_size] = content[second : second + entry_size]
                    content[second : second + entry_size] = moved
            await log.log_dir.replace_file(name, bytes(content))
        for offset in rng.sample(range(60), 60):
            loaded = await Log.load(log.log_dir, FOLDER, config, recovery_point=end, clean=True)
            read = await loaded.read(Offset(offset), ReadLimits(max_bytes=300))
            assert (read.first_offset, read.next_offset > offset) == (offset, True)
        loaded = await Log.load(log.log_dir, FOLDER, config, recovery_point=end, clean=True)
        assert await all_offsets(loaded) == expected
        assert await loaded.truncate_to(Offset(30)) == 30
        assert await all_offsets(loaded) == expected[:30]

    SimulatedWorld(1).run(scenario)


def test_a_search_by_time_takes_no_index_for_damaged_while_its_last_batches_are_being_written() -> None:
    """The newest segment's indexes name batches that are still on their way to the disk. A rebuild would read the whole
    segment, and would replace the index by one without these batches."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=100_000, index_interval_bytes=100))
        await fill(log, 40)
        segment = log._segments.newest
        index = segment.index
        assert index is not None
        world.disk(PATH).hang(["append"])
        appended = [append(log, timestamp=1000 + number) for number in range(10)]
        entries = index.entries
        assert entries[-1].position > segment.written_size
        assert await log.offset_for_timestamp(1009) is None
        assert segment.index is index
        assert index.entries == entries
        world.disk(PATH).thaw()
        await appended[-1].written
        found = await log.offset_for_timestamp(1009)
        assert found is not None
        assert found.offset == appended[-1].first_offset

    SimulatedWorld(1).run(scenario)
