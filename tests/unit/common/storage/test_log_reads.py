"""Reading from a log on a simulated disk: limits, segments, gaps, and what is read without the disk."""

import asyncio
import weakref

import pytest

from common.ids import Offset
from common.records.batch import read_header
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    PATH,
    all_offsets,
    append_fetched,
    batch,
    concatenated,
    content,
    created,
    fill,
    log_files,
    offsets_in,
    read_in_one_step,
)


def test_a_read_starts_with_the_batch_that_holds_the_offset_and_keeps_its_limits() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig())
        await fill(log, 9, records=2)
        size = read_header(await log.read_bytes(0, ReadLimits(max_bytes=1))).size

        async def read(offset: int, max_bytes: int, upper: int = 20, *, min_one: bool = True) -> list[tuple[int, int]]:
            found = await log.read(offset, ReadLimits(max_bytes=max_bytes, upper_offset=upper, min_one_batch=min_one))
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


def test_what_all_read_at_the_end_of_the_log_is_looked_up_once() -> None:
    """Until there is more to read, or other records are there after a truncation. What was found before must not keep the
    file open then."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig())
        await fill(log, 2)
        asked = ReadLimits(max_bytes=1000, upper_offset=99)
        found = log.read_at_once(1, asked)
        assert found is not None
        assert offsets_in(content(found)) == [(1, 1), (2, 2)]
        assert log.read_at_once(1, asked) is found
        assert log.read_at_once(2, asked) is not found
        for other in (asked._replace(max_bytes=999), asked._replace(upper_offset=2), asked._replace(min_one_batch=False)):
            assert log.read_at_once(1, other) is not found
        await fill(log, 0)
        longer = log.read_at_once(1, asked)
        assert longer is not None
        assert offsets_in(content(longer)) == [(1, 1), (2, 2), (3, 3)]
        region = weakref.ref(longer.parts[0])
        before = content(longer)
        del longer, found
        await log.truncate_to(Offset(1))
        assert region() is None
        await fill(log, 2, size=31)
        after = log.read_at_once(1, asked)
        assert after is not None
        assert offsets_in(content(after)) == [(1, 1), (2, 2), (3, 3)]
        assert content(after) != before
        region = weakref.ref(after.parts[0])
        del after
        await log.close()
        assert region() is None
        with pytest.raises(LogClosed):
            log.read_at_once(1, asked)

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
            data = await log.read_bytes(offset, ReadLimits(max_bytes=400))
            assert offsets_in(data)[0] == (offset - offset % 2, offset - offset % 2 + 1)
            assert len(data) <= 400
            upper = await log.read_bytes(offset, ReadLimits(max_bytes=10_000, upper_offset=offset + 3))
            assert offsets_in(upper)[-1][1] < offset + 3

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
        read = await log.read(1, ReadLimits(max_bytes=300))
        rest = read_in_one_step(log, read.next_offset, max_bytes=10_000)
        assert rest is not None
        assert rest.first_offset == read.next_offset

    SimulatedWorld(1).run(scenario)


def test_the_tail_in_memory_is_bounded_and_what_lies_before_it_is_found_on_disk() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(index_interval_bytes=1000))
        await fill(log, 8500, size=1)
        assert read_in_one_step(log, 3, max_bytes=100) is None
        assert offsets_in(await log.read_bytes(3, ReadLimits(max_bytes=1))) == [(3, 3)]
        assert read_in_one_step(log, 8400, max_bytes=100) is not None

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
            assert offsets_in(await log.read_bytes(offset, ReadLimits(max_bytes=1000))) == [(10, 11)]
        assert offsets_in(await log.read_bytes(13, ReadLimits(max_bytes=1000))) == [(20, 21)]

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
                found = await log.read(offset, ReadLimits(max_bytes=10))
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
