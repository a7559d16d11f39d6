"""Searches that wait for the disk while the log changes."""

import asyncio
import contextlib

import pytest

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import LogDirError
from common.storage.errors import LogClosed, OffsetOutOfRange
from common.storage.log import Log
from common.storage.log_segments import LOADED_INDEXES_MAX
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, SMALL, created, fill


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
            else log.read(bases[2] + 1, max_bytes=50)
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
