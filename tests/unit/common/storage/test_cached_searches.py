"""Searches in the page cache. They find what a search on disk finds, and never wait."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from common.environment.interface import LogFile
from common.environment.real import RealEnvironment
from common.environment.real_log_dir import RealLogDir
from common.storage.batch_search import Span, locate_in_page_cache, locate_on_disk
from common.storage.cached_headers import PIECE, PIECES_MAX
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
from tests.simulation.environment import SimulatedWorld
from tests.simulation.log_dir import SimulatedLogDir, SimulatedLogFile
from tests.unit.common.storage.batches import FOLDER, TOPIC_ID, append, batch, created, fill


class PageCache:
    """Lets a simulated disk have all files in the page cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[int] = []
        # The numbers of the reads, from 0, whose pages are missing.
        self.missing: set[int] = set()
        monkeypatch.setattr(SimulatedLogDir, "read_cached", lambda _, file, position, size: self.read(file, position, size))

    def read(self, file: LogFile, position: int, size: int) -> bytes | None:
        assert isinstance(file, SimulatedLogFile)
        self.reads.append(size)
        if len(self.reads) - 1 in self.missing:
            return None
        return bytes(file.node.content[position : position + size])


def forget_positions(log: Log) -> None:
    """Forgets the positions in memory, apart from the index."""
    for segment in log._segments:
        segment._resume_points.clear()
        if segment.tail is not None:
            segment.tail.covered_from = segment.next_offset


def at_once(log: Log, offset: int, limits: ReadLimits) -> Span | None:
    forget_positions(log)
    return locate_in_page_cache(log._segments, offset, limits)


@pytest.mark.parametrize("seed", range(20))
def test_a_search_finds_the_same_in_the_page_cache_as_on_disk(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Any offset and any limits, with batches of all sizes. Where the search in the page cache gives up, nothing is wrong,
    but with everything cached it mostly succeeds."""
    PageCache(monkeypatch)

    async def scenario(world: SimulatedWorld) -> None:
        rng = random.Random(seed)
        interval = rng.choice([100, 1000, 4096])
        log = await created(world, LogConfig(segment_bytes=rng.choice([3000, 200_000]), index_interval_bytes=interval))
        for _ in range(60):
            await append(log, records=rng.randint(1, 4), size=rng.choice([10, 100, 3000])).written
        await log.flush()
        found = 0
        for _ in range(200):
            offset = rng.randrange(log.log_end_offset)
            limits = ReadLimits(
                max_bytes=rng.choice([1, 500, 5000, 1 << 20]),
                upper_offset=rng.choice([log.log_end_offset, rng.randint(offset + 1, log.log_end_offset)]),
                min_one_batch=rng.random() < 0.8,
            )
            await log._segments.holding(offset).load_index()
            span = at_once(log, offset, limits)
            forget_positions(log)
            expected = await locate_on_disk(log._segments, offset, limits)
            if span is not None:
                found += 1
                assert span == expected
        assert found > 120

    SimulatedWorld(seed).run(scenario)


@pytest.mark.parametrize("missing", [None, 0, 1])
def test_what_is_not_cached_is_searched_on_disk(monkeypatch: pytest.MonkeyPatch, missing: int | None) -> None:
    """The pages where the read begins or where it ends are missing. The reader gets the same."""
    cache = PageCache(monkeypatch)

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=1 << 20, index_interval_bytes=4096))
        for _ in range(300):
            await append(log, size=100).written
        forget_positions(log)
        cache.missing = set() if missing is None else {missing}
        read = await log.read(100, ReadLimits(max_bytes=20_000))
        assert (read.first_offset, read.next_offset) == (100, 100 + 20_000 // batch(size=100)[0].size)
        assert len(cache.reads) == (2 if missing is None else missing + 1)

    SimulatedWorld(1).run(scenario)


def test_a_search_that_would_take_long_is_left_to_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without index entries the search walks through all batches before the offset, so the event loop gives up soon."""
    cache = PageCache(monkeypatch)

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=1 << 30, index_interval_bytes=1 << 30))
        for _ in range(3 * PIECE * PIECES_MAX // 1000):
            await append(log, size=900).written
        last = log.log_end_offset - 1
        assert at_once(log, last, ReadLimits(max_bytes=1, upper_offset=last + 1)) is None
        assert len(cache.reads) == PIECES_MAX
        read = await log.read(last, ReadLimits(max_bytes=1))
        assert (read.first_offset, read.next_offset) == (last, last + 1)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("offset", [12, 60])
def test_damage_is_left_to_the_search_that_reports_it(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """A byte that is wrong in the length of a batch, and an index whose batches should end earlier."""
    PageCache(monkeypatch)

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=1 << 20, index_interval_bytes=1000))
        for _ in range(100):
            await append(log, size=100).written
        segment = log._segments.newest
        assert segment.index is not None
        limits = ReadLimits(max_bytes=1, upper_offset=100)
        assert at_once(log, offset, limits) is not None
        indexed = segment.index.batch_for(offset)
        assert indexed is not None
        if offset == 12:
            file: Any = segment.file
            file.handle.node.content[indexed.position + 8] = 0xFF
        else:
            segment.base_offset -= 1
            segment.index.base_offset -= 1
        assert at_once(log, offset, limits) is None

    SimulatedWorld(1).run(scenario)


def test_a_real_disk_is_searched_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of an old record ends without a wait. A closed log is read no more."""

    async def scenario() -> None:
        log_dir = RealEnvironment("test").log_dir(str(tmp_path), operation_timeout_ns=10**10, sync_timeout_ns=10**10)
        assert isinstance(log_dir, RealLogDir)
        await log_dir.attach()
        log = await Log.create(log_dir, FOLDER, LogConfig(segment_bytes=1 << 20, index_interval_bytes=4096), TOPIC_ID)
        await fill(log, 500)
        forget_positions(log)
        file = log._segments.newest.file
        assert file is not None
        if log_dir.read_cached(file.handle, 0, 100) is None:
            pytest.skip("this kernel or file system does not answer cachestat and RWF_NOWAIT")
        monkeypatch.setattr(RealLogDir, "read", lambda *_: pytest.fail("the reader thread was asked"))
        read = await log.read(200, ReadLimits(max_bytes=1))
        assert (read.first_offset, read.next_offset) == (200, 201)
        handle = file.handle
        await log.close()
        assert log_dir.read_cached(handle, 0, 100) is None
        await log_dir.close()
        await log_dir.released

    asyncio.run(scenario())
