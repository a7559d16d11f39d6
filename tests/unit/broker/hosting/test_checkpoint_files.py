"""The offset files of a directory while writes of them are in flight or fail, on the simulated world."""

import asyncio
import errno
from types import SimpleNamespace
from typing import cast

import pytest

from broker.core.changed_offsets import ChangedOffsets
from broker.hosting import checkpoint_files
from broker.hosting.checkpoint_files import CheckpointFiles
from broker.hosting.partition import Partition
from common.environment.interface import LogDir, LogDirError
from common.ids import Offset
from common.storage.checkpoints import load_offset_checkpoint
from common.storage.names import (
    CLEANER_CHECKPOINT_FILE,
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
)
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import PATH, attached

NAME = ("t", 0)


def partition(*, index: int = 0, log_start_offset: int = 0, high_watermark: int = 0) -> Partition:
    """A partition as far as the files look at it."""
    log = SimpleNamespace(
        log_start_offset=Offset(log_start_offset), recovery_start=Offset(0), log_end_offset=Offset(1 << 20)
    )
    found = SimpleNamespace(
        topic_partition=(NAME[0], index),
        high_watermark=Offset(high_watermark),
        first_dirty_offset=Offset(0),
        log=log,
        changed_offsets=ChangedOffsets(),
    )
    return cast(Partition, found)


def set_log_start(replica: Partition, offset: int) -> None:
    """Changes the log start like the log does."""
    replica.log.log_start_offset = Offset(offset)
    replica.changed_offsets.log_starts.add(replica.topic_partition)


def set_high_watermark(replica: Partition, offset: int) -> None:
    replica.high_watermark = Offset(offset)  # type: ignore[misc]  # not a property here
    replica.changed_offsets.high_watermarks.add(replica.topic_partition)


async def log_starts(log_dir: LogDir) -> dict[tuple[str, int], int]:
    return await load_offset_checkpoint(log_dir, LOG_START_OFFSET_CHECKPOINT_FILE)


async def high_watermarks(log_dir: LogDir) -> dict[tuple[str, int], int]:
    return await load_offset_checkpoint(log_dir, HIGH_WATERMARK_CHECKPOINT_FILE)


def test_nothing_is_forgotten_before_the_write_in_flight_is_durable() -> None:
    """A periodic store without the old log has begun. A new log of the same name must not be created before it ends: after
    a crash the old log start would drop the new records."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        old = partition(log_start_offset=7)
        files.add(old)
        await files.store_log_starts()
        files.remove(old)
        async with asyncio.TaskGroup() as group:
            group.create_task(files.store_log_starts())
            await asyncio.sleep(0)
            await files.forget([NAME])
            assert await log_starts(log_dir) == {}

    SimulatedWorld(seed=1).run(scenario)


def test_a_log_start_is_lowered_before_the_append_behind_it() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        cut = partition(log_start_offset=7)
        files.add(cut)
        await files.store_log_starts()
        set_log_start(cut, 3)
        async with asyncio.TaskGroup() as group:
            group.create_task(files.store_log_starts())
            await asyncio.sleep(0)
            await files.lower(cut)
            assert await log_starts(log_dir) == {NAME: 3}

    SimulatedWorld(seed=1).run(scenario)


def test_a_write_that_does_not_concern_the_name_is_not_waited_for() -> None:
    """On a slow disk, a write of a file takes long. A log that no file names can be created, and one whose entries are not
    too high truncated, meanwhile."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        busy, idle = partition(), partition(index=1)
        for each in (busy, idle):
            files.add(each)
        await files.store_all()
        set_log_start(busy, 3)
        world.disk(PATH).hang({"replace_file"})
        async with asyncio.TaskGroup() as group:
            store = group.create_task(files.store_log_starts())
            await asyncio.sleep(0)
            await files.forget([("new", 0)])
            await files.lower(idle)
            assert not store.done()
            world.disk(PATH).thaw()

    SimulatedWorld(seed=1).run(scenario)


def test_a_failed_write_leaves_its_changes_to_the_next_store() -> None:
    """Two stores of lower offsets overlap, and the first one fails for lack of memory. The second one brings the changes of
    both into the file. The third one has nothing to write."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        one, two = partition(high_watermark=9), partition(index=1, high_watermark=9)
        for each in (one, two):
            files.add(each)
        await files.store_high_watermarks()
        world.disk(PATH).fail_next("replace_file", errno.ENOMEM)
        set_high_watermark(one, 8)
        first = asyncio.ensure_future(files.store_high_watermarks())
        await asyncio.sleep(0)
        set_high_watermark(two, 7)
        second = asyncio.ensure_future(files.store_high_watermarks())
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(each) for each in results] == [LogDirError, type(None)]
        assert await high_watermarks(log_dir) == {NAME: 8, ("t", 1): 7}
        world.disk(PATH).fail_with(errno.EIO, {"replace_file"})
        await files.store_high_watermarks()

    SimulatedWorld(seed=1).run(scenario)


def test_a_file_whose_last_write_failed_is_written_again_although_nothing_has_changed() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        files.add(partition(high_watermark=9))
        world.disk(PATH).fail_next("replace_file", errno.ENOMEM)
        with pytest.raises(LogDirError):
            await files.store_high_watermarks()
        await files.store_high_watermarks()
        assert await high_watermarks(log_dir) == {NAME: 9}

    SimulatedWorld(seed=1).run(scenario)


def test_an_entry_that_is_lowered_between_two_slices_is_not_stored_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many entries have changed that they are read in slices. One that was read already is lowered before the last slice,
    and its log truncated: the store that goes on must not bring the higher offset back."""

    async def scenario(world: SimulatedWorld) -> None:
        monkeypatch.setattr(checkpoint_files, "ENTRIES_PER_SLICE", 2)
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        replicas = [partition(index=index, log_start_offset=7) for index in range(9)]
        for each in replicas:
            files.add(each)
        async with asyncio.TaskGroup() as group:
            group.create_task(files.store_log_starts())
            for each in replicas:
                await asyncio.sleep(0)
                set_log_start(each, 3)
                await files.lower(each)
        assert await log_starts(log_dir) == {("t", index): 3 for index in range(9)}

    SimulatedWorld(seed=1).run(scenario)


def test_entries_without_a_log_leave_the_files_with_the_next_store() -> None:
    """A start finds them, for example of topics that were deleted while the broker was down."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        files.loaded({HIGH_WATERMARK_CHECKPOINT_FILE: {("gone", 0): 5, NAME: 9}})
        files.add(partition(high_watermark=9))
        await files.store_high_watermarks()
        assert await high_watermarks(log_dir) == {NAME: 9}

    SimulatedWorld(seed=1).run(scenario)


def test_a_replica_that_left_is_only_noted_for_files_that_name_it() -> None:
    """Replicas come and go in a directory where nothing is compacted, so that the first dirty offsets are never stored.
    Their names must not pile up."""

    async def scenario(world: SimulatedWorld) -> None:
        files = CheckpointFiles(await attached(world))
        for index in range(3):
            replica = partition(index=index)
            files.add(replica)
            notes = replica.changed_offsets
            await files.store_high_watermarks()
            files.remove(replica)
            assert notes.high_watermarks == {(NAME[0], index)}
            assert notes.first_dirty_offsets == set()
        await files.expect(
            NAME,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            high_watermark=Offset(0),
            first_dirty_offset=Offset(0),
        )
        files.note(NAME)
        files.expect_no_more(NAME)
        assert (notes.recovery_points, notes.first_dirty_offsets) == ({NAME}, set())

    SimulatedWorld(seed=1).run(scenario)


def test_an_expected_log_keeps_its_entries_until_it_has_arrived_or_its_move_has_ended() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        offsets = [Offset(each) for each in (4, 3, 2, 1)]
        await files.expect(
            NAME,
            recovery_point=offsets[0],
            log_start_offset=offsets[1],
            high_watermark=offsets[2],
            first_dirty_offset=offsets[3],
        )
        await files.store_all()
        names = (
            RECOVERY_POINT_CHECKPOINT_FILE,
            LOG_START_OFFSET_CHECKPOINT_FILE,
            HIGH_WATERMARK_CHECKPOINT_FILE,
            CLEANER_CHECKPOINT_FILE,
        )
        assert [(await load_offset_checkpoint(log_dir, name))[NAME] for name in names] == offsets
        files.expect_no_more(NAME)
        await files.store_all()
        assert [await load_offset_checkpoint(log_dir, name) for name in names] == [{}] * 4

    SimulatedWorld(seed=1).run(scenario)


def test_a_store_reads_only_what_has_changed_and_writes_only_what_differs() -> None:
    """Of a thousand replicas one has changed, and then one has changed back: the first store reads one high watermark and
    writes, the second one reads one and does not write."""
    reads = 0

    class Counted(SimpleNamespace):
        @property
        def high_watermark(self) -> Offset:
            nonlocal reads
            reads += 1
            return Offset(self.now)

    async def scenario(world: SimulatedWorld) -> None:
        nonlocal reads
        files = CheckpointFiles(await attached(world))
        replicas = [Counted(topic_partition=("t", index), now=5) for index in range(1000)]
        for each in replicas:
            files.add(cast(Partition, each))
        await files.store_high_watermarks()
        writes: list[str] = []
        world.operation_watchers.append(lambda _path, kind, _name: writes.append(kind))
        for offset, written in ((6, ["replace_file"]), (6, [])):
            reads, replicas[3].now = 0, offset
            replicas[3].changed_offsets.high_watermarks.add(("t", 3))
            writes.clear()
            await files.store_high_watermarks()
            assert (reads, writes) == (1, written)

    SimulatedWorld(seed=1).run(scenario)


def test_a_directory_that_failed_stops() -> None:
    """What changes after that is neither read nor written."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        files = CheckpointFiles(log_dir)
        replica = partition(high_watermark=9)
        files.add(replica)
        await files.store_high_watermarks()
        log_dir.take_offline(LogDirError(PATH, "append", errno.EIO))
        set_high_watermark(replica, 10)
        with pytest.raises(LogDirError, match="EIO"):
            await files.store_high_watermarks()
        assert world.disk(PATH).files()[HIGH_WATERMARK_CHECKPOINT_FILE] == b"0\n1\nt 0 9\n"

    SimulatedWorld(seed=1).run(scenario)
