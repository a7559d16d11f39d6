"""The offset files of a directory while several writes of one file are in flight, on the simulated world."""

import asyncio
import errno
from types import SimpleNamespace
from typing import cast

import pytest

from broker.hosting import directory_logs
from broker.hosting.directory_logs import CheckpointFiles
from broker.hosting.partition import Partition
from common.environment.interface import LogDir, LogDirError
from common.ids import Offset
from common.storage.checkpoints import load_offset_checkpoint, store_offset_checkpoint
from common.storage.names import HIGH_WATERMARK_CHECKPOINT_FILE, LOG_START_OFFSET_CHECKPOINT_FILE
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import attached

NAME = ("t", 0)


def partition(*, log_start_offset: int = 0, high_watermark: int = 0) -> Partition:
    """A partition as far as the files look at it."""
    log = SimpleNamespace(
        log_start_offset=Offset(log_start_offset), recovery_point=Offset(0), log_end_offset=Offset(1 << 20)
    )
    found = SimpleNamespace(
        topic=NAME[0], index=NAME[1], high_watermark=Offset(high_watermark), first_dirty_offset=Offset(0), log=log
    )
    return cast(Partition, found)


def test_nothing_is_forgotten_before_the_write_in_flight_is_durable() -> None:
    """A periodic store without the old log has begun. A new log of the same name must not be created before it ends: after
    a crash the old log start would drop the new records."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        await files.store_log_starts([partition(log_start_offset=7)])
        async with asyncio.TaskGroup() as group:
            group.create_task(files.store_log_starts([]))
            await asyncio.sleep(0)
            await files.forget([NAME], list)
            assert await load_offset_checkpoint(log_dir, LOG_START_OFFSET_CHECKPOINT_FILE) == {}

    SimulatedWorld(seed=1).run(scenario)


def test_a_log_start_is_lowered_before_the_append_behind_it() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        await files.store_log_starts([partition(log_start_offset=7)])
        cut = partition(log_start_offset=3)
        async with asyncio.TaskGroup() as group:
            group.create_task(files.store_log_starts([cut]))
            await asyncio.sleep(0)
            await files.lower(cut, lambda: [cut])
            assert await load_offset_checkpoint(log_dir, LOG_START_OFFSET_CHECKPOINT_FILE) == {NAME: 3}

    SimulatedWorld(seed=1).run(scenario)


def test_a_store_that_succeeds_after_a_failed_one_says_what_the_file_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores of lower offsets overlap, and the first one fails for lack of memory. When the offset has risen again, the
    store of what the file had before must not be taken for done."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        calls = 0

        async def second_fails(log_dir: LogDir, name: str, offsets: dict[tuple[str, int], int]) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                await asyncio.sleep(0)
                raise LogDirError(log_dir.path, "replace_file", errno.ENOMEM, name)
            await store_offset_checkpoint(log_dir, name, offsets)

        monkeypatch.setattr(directory_logs, "store_offset_checkpoint", second_fails)
        await files.store_high_watermarks([partition(high_watermark=9)])
        results = await asyncio.gather(
            files.store_high_watermarks([partition(high_watermark=8)]),
            files.store_high_watermarks([partition(high_watermark=7)]),
            return_exceptions=True,
        )
        assert [type(each) for each in results] == [LogDirError, type(None)]
        await files.store_high_watermarks([partition(high_watermark=9)])
        assert await load_offset_checkpoint(log_dir, HIGH_WATERMARK_CHECKPOINT_FILE) == {NAME: 9}

    SimulatedWorld(seed=1).run(scenario)
