"""What a log does for a move between directories: its folder is renamed while the log is open, and a copy takes over."""

import asyncio
import errno
import random

import pytest

from common.environment.interface import LogDirError
from common.ids import LeaderEpoch, Offset
from common.storage.errors import LogClosed
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
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
    created,
    fill,
)

FUTURE = f"{FOLDER}.{'ab' * 16}-future"
DELETED = f"{FOLDER}.{'ab' * 16}-delete"


async def copied(current: Log, *, start_offset: Offset, config: LogConfig = SMALL) -> Log:
    """Creates a future log and copies the records from `start_offset` on into it."""
    future = await Log.create(current.log_dir, FUTURE, config, TOPIC_ID, start_offset=start_offset)
    while data := await current.read_bytes(future.log_end_offset, ReadLimits(max_bytes=700)):
        await append_fetched(future, memoryview(data)).written
    return future


# --- renaming ----------------------------------------------------------------------------------------------------------


def test_a_renamed_log_is_used_as_before() -> None:
    """Every operation after the rename finds its files: reading with an index on disk, rolling, truncating, deleting
    segments and closing."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 60)
        await log.rename(FUTURE)
        assert (log.name, log.failure) == (FUTURE, None)
        assert world.disk(PATH).folders() == [FUTURE]
        assert (await log.read(3, ReadLimits(max_bytes=100))).first_offset == 3
        await fill(log, 39, epoch=1)
        await log.truncate_to(Offset(90))
        await log.delete_segments_before(Offset(40))
        expected = await all_offsets(log)
        assert expected == [(offset, offset) for offset in range(40, 90)]
        await log.close()
        loaded = await Log.load(log.log_dir, FUTURE, SMALL, log_start_offset=Offset(40), clean=True)
        assert not loaded.recovery.lost_anything
        assert loaded.leader_epochs.entries == [(0, 40), (1, 61)]
        assert await all_offsets(loaded) == expected
        assert world.disk(PATH).folders() == [FUTURE]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("seed", range(20))
def test_a_rename_waits_for_what_is_under_way(seed: int) -> None:
    """When the rename begins, rolls, index files and epochs are still being written, and readers wait for the disk. No
    operation may look for a file in the folder's old place: the error would take the directory offline."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 60)
        errors: list[LogDirError] = []
        log.log_dir.on_error = errors.append
        for number in range(30):
            append(log, epoch=number)
        reads = [asyncio.ensure_future(log.read_bytes(offset, ReadLimits(max_bytes=1))) for offset in range(60)]
        await world.sleep(random.Random(seed).random() / 1000)
        await asyncio.gather(log.rename(FUTURE), log.flush(), *reads)
        await log.rename(FOLDER)
        assert errors == []
        assert all(read.result() for read in reads)
        assert log.recovery_point == log.log_end_offset == 91

    SimulatedWorld(seed).run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_a_rename_is_durable_when_it_returns(seed: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 20)
        await log.flush()
        await log.rename(FUTURE)
        world.power_cut("a")
        loaded = await Log.load(await attached(world, node="b"), FUTURE, SMALL, recovery_point=Offset(21))
        assert loaded.log_end_offset == 21
        assert world.disk(PATH).folders() == [FUTURE]

    SimulatedWorld(seed).run(scenario)


@pytest.mark.parametrize(("operation", "name"), [("rename", FOLDER), ("fsync_dir", FUTURE)])
def test_a_rename_that_fails_leaves_a_usable_log(operation: str, name: str) -> None:
    """The rename fails because the process is out of memory. The log knows which of the two names its folder has, and can be
    renamed again."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 20)
        # Wait until no roll is in progress. Otherwise the roll's own sync of the folder might be the one that fails.
        await log.flush()
        world.disk(PATH).fail_next(operation, errno.ENOMEM)
        with pytest.raises(LogDirError, match="ENOMEM"):
            await log.rename(FUTURE)
        assert (log.name, log.failure) == (name, None)
        assert world.disk(PATH).folders() == [name]
        await log.rename(DELETED)
        await fill(log, 20)
        assert len(await all_offsets(log)) == 42

    SimulatedWorld(1).run(scenario)


def test_a_rename_whose_caller_is_cancelled_runs_to_its_end() -> None:
    """The log is closed right after the cancellation, as in a shutdown. Closing must write the index files into the renamed
    folder."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 5)
        renaming = asyncio.ensure_future(log.rename(FUTURE))
        await asyncio.sleep(0)
        renaming.cancel()
        await log.close()
        assert log.name == FUTURE
        assert f"{FUTURE}/00000000000000000000.index" in world.disk(PATH).files()

    SimulatedWorld(1).run(scenario)


def test_nobody_may_append_in_the_middle_of_a_rename() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        renaming = asyncio.ensure_future(log.rename(FUTURE))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="append while"):
            append(log)
        await renaming
        assert append(log).first_offset == 0

    SimulatedWorld(1).run(scenario)


def test_a_closed_log_is_neither_renamed_nor_taken_over() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        future = await copied(log, start_offset=Offset(0))
        await log.close()
        with pytest.raises(LogClosed):
            await log.rename(FUTURE)
        await future.close()
        with pytest.raises(LogClosed):
            await future.take_over(log)

    SimulatedWorld(1).run(scenario)


# --- taking over -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_takes_over_everything_durably(seed: int) -> None:
    """The copy takes over the current log's epochs, including those without records. It also takes over the log start, which
    has moved since the copying began. After a power cut, every record below the recovery point is there."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30, epoch=1)
        log.begin_epoch(LeaderEpoch(3))
        log.begin_epoch(LeaderEpoch(4))
        await fill(log, 30, epoch=5)
        future = await copied(log, start_offset=Offset(0))
        log.begin_epoch(LeaderEpoch(7))
        await log.delete_segments_before(Offset(25))
        assert future.leader_epochs.entries == [(1, 0), (5, 31)]
        await future.take_over(log)
        assert future.leader_epochs.entries == log.leader_epochs.entries == [(1, 25), (5, 31), (7, 62)]
        assert future.log_start_offset == 25
        assert future.segment_base_offsets[1] > 25
        assert future.recovery_point == future.log_end_offset == future.written_offset == 62
        # The copy has its own list of epochs. A new epoch of the old log does not appear in it.
        log.begin_epoch(LeaderEpoch(8))
        assert future.leader_epochs.latest_epoch == 7
        world.power_cut("a")
        loaded = await Log.load(
            await attached(world, node="b"), FUTURE, SMALL, recovery_point=Offset(62), log_start_offset=Offset(25)
        )
        assert not loaded.recovery.lost_anything
        assert await all_offsets(loaded) == [(offset, offset) for offset in range(25, 62)]
        # No record has epoch 7, so loading drops the epoch. That is the case for any log.
        assert loaded.leader_epochs.entries == [(1, 25), (5, 31)]

    SimulatedWorld(seed).run(scenario)


def test_a_copy_that_starts_later_keeps_its_start() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 20, epoch=1)
        await fill(log, 20, epoch=2)
        future = await copied(log, start_offset=Offset(10))
        await future.take_over(log)
        assert future.log_start_offset == 10
        assert future.leader_epochs.entries == [(1, 10), (2, 21)]

    SimulatedWorld(1).run(scenario)


def test_an_epoch_in_the_middle_without_records_is_taken_over() -> None:
    """The leader of epoch 2 lost its leadership before its first append. Epoch 3 then began at a higher offset on another
    leader."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 9, epoch=1)
        log.leader_epochs.assign(LeaderEpoch(2), Offset(7))
        await fill(log, 9, epoch=3)
        future = await copied(log, start_offset=Offset(0))
        assert future.leader_epochs.entries == [(1, 0), (3, 10)]
        await future.take_over(log)
        assert future.leader_epochs.entries == [(1, 0), (2, 7), (3, 10)]
        await future.close()
        loaded = await Log.load(log.log_dir, FUTURE, SMALL, clean=True)
        assert loaded.leader_epochs.entries == [(1, 0), (2, 7), (3, 10)]

    SimulatedWorld(1).run(scenario)


def test_only_a_full_copy_takes_over() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 9)
        future = await copied(log, start_offset=Offset(0))
        await append(log).written
        with pytest.raises(AssertionError, match="not complete"):
            await future.take_over(log)

    SimulatedWorld(1).run(scenario)
