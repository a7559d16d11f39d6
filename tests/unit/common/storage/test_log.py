"""The life of a log on a simulated disk: creating, closing, loading, deleting."""

import pytest

from common.ids import LeaderEpoch, Offset
from common.storage.errors import LogClosed, LogExists
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.offset_index import OffsetIndex
from common.storage.read_limits import ReadLimits
from common.storage.time_index import TimeIndex
from common.storage.timestamp_search import TimestampOffset
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    SMALL,
    TOPIC_ID,
    all_offsets,
    append,
    attached,
    created,
    fill,
    log_files,
)


def test_a_new_log_is_durable_files_with_kafkas_names() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world), FOLDER, SMALL, TOPIC_ID, start_offset=Offset(7))
        assert sorted(log_files(world.disk(PATH))) == ["00000000000000000007.log", "partition.metadata"]
        assert (log.log_start_offset, log.log_end_offset, log.written_offset, log.recovery_point) == (7, 7, 7, 7)
        with pytest.raises(LogExists):
            await Log.create(log.log_dir, FOLDER, SMALL, TOPIC_ID)

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
            await log.read(0, ReadLimits(max_bytes=1))
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
