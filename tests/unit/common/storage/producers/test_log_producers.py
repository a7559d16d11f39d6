"""The producers of a log through its life: rolls, restarts, damaged snapshots, truncation, deletion, moves, failed appends.

The log is full of batches of two producers. What it knows about them is compared with what its batches say.
"""

import errno
from unittest.mock import patch

import pytest

from common.environment.interface import LogDirError
from common.ids import Offset
from common.records.batch import BatchHeader
from common.slices import ELEMENTS_PER_SLICE, at_once
from common.storage.append_pipeline import AwaitedAppend
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.names import producer_snapshot_file
from common.storage.producers.log_producers import LogProducers
from common.storage.producers.snapshot import decode_producer_snapshot, encode_producer_snapshot
from common.storage.producers.state import OutOfOrderSequence, ProducedBatch, ProducerEntry, ProducerState
from common.storage.read_limits import ReadLimits
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    TOPIC_ID,
    append,
    append_batches,
    append_fetched,
    attached,
    concatenated,
    log_files,
    watched_pauses,
)
from tests.unit.common.storage.producers.headers import header, produced_batch

# Room for five batches in a segment.
FIVE = LogConfig(segment_bytes=5 * 82, index_interval_bytes=150)
FIRST, SECOND = 1, 2


async def created(world: SimulatedWorld) -> Log:
    return await Log.create(await attached(world), FOLDER, FIVE, TOPIC_ID)


async def produce(log: Log, count: int, *, epoch: int = 0) -> None:
    """Appends `count` batches of one record, by both producers in turn. Offset n has the sequence number n // 2."""
    for _ in range(count):
        offset = log.log_end_offset
        await append_batches(log, [produced_batch(FIRST + offset % 2, offset // 2, epoch=epoch)], epoch=0).written


def found_at(log: Log, batch: BatchHeader) -> tuple[int, int] | None:
    """Returns the offsets of the batch that this one is a duplicate of."""
    found = log.find_duplicate(batch)
    return None if found is None else (found.first_offset, found.last_offset)


def state_of_batches(end: int) -> dict[int, ProducerEntry]:
    state = ProducerState()
    for offset in range(end):
        state.note(header(FIRST + offset % 2, offset // 2), offset)
    return {**state.entries}


def snapshots(disk: SimulatedDisk) -> list[int]:
    return sorted(int(name[:20]) for name in log_files(disk) if name.endswith(".snapshot"))


def snapshot_path(offset: int) -> str:
    return f"{FOLDER}/{producer_snapshot_file(offset)}"


async def load(world: SimulatedWorld, log: Log, node: str, *, clean: bool = False) -> Log:
    return await Log.load(await attached(world, node=node), FOLDER, FIVE, recovery_point=log.recovery_point, clean=clean)


def test_every_roll_writes_a_snapshot_of_the_batches_before_it() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 13)
        await log.flush()
        assert snapshots(world.disk(PATH)) == log.producers.snapshot_offsets == [5, 10] == log.segment_base_offsets[1:]
        for offset in (5, 10):
            content = world.disk(PATH).files()[snapshot_path(offset)]
            assert at_once(decode_producer_snapshot(content)) == state_of_batches(offset)
        assert log.producers.state.entries == state_of_batches(13)

    SimulatedWorld(1).run(scenario)


def test_a_snapshot_is_encoded_when_it_is_written_and_has_the_state_of_the_roll() -> None:
    """The thread that writes it does so: for thousands of producers that takes too long for the event loop."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        producers = LogProducers(log_dir)
        for offset in range(3):
            producers.state.note(header(FIRST, offset), offset)
        with patch.object(log_dir, "replace_file") as replace_file:
            next(producers.store_steps(FOLDER, 3))
        known = {**producers.state.entries}
        producers.state.note(header(FIRST, 3), 3)
        producers.state.note(header(SECOND, 0), 4)
        _, encode = replace_file.call_args.args
        assert at_once(decode_producer_snapshot(encode())) == known == {FIRST: ProducerEntry(0, known[FIRST].batches, 1000)}
        assert len(known[FIRST].batches) == 3

    SimulatedWorld(1).run(scenario)


def test_a_clean_restart_reads_only_the_snapshot_at_the_end() -> None:
    """The next restart needs no other snapshot of a clean close, so the log keeps one at most."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        for life, count in enumerate((7, 1, 1)):
            await produce(log, count)
            await log.close()
            world.crash("a" if life == 0 else f"a{life}")
            log = await load(world, log, f"a{life + 1}", clean=True)
            entries = {**log.producers.state.entries}
            assert entries == state_of_batches(log.log_end_offset)
            # The retries of all five batches that a client may have in flight are known.
            assert sum(len(entry.batches) for entry in entries.values()) == log.log_end_offset
            assert snapshots(world.disk(PATH)) == [5, log.log_end_offset]
        await log.close()
        assert snapshots(world.disk(PATH)) == [5, 9]

    SimulatedWorld(1).run(scenario)


def test_a_snapshot_of_thousands_of_producers_is_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop runs in between."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        entries = {
            number: ProducerEntry(0, [ProducedBatch(0, 0, number, number, 1)], 1) for number in range(3 * ELEMENTS_PER_SLICE)
        }
        log.producers.state = ProducerState(entries, end_offset=0)
        await append(log, records=len(entries)).written
        await log.close()
        world.crash("a")
        pauses = watched_pauses(monkeypatch)
        log = await load(world, log, "b", clean=True)
        assert log.producers.state.entries == entries
        assert len(pauses) == 3

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_after_a_crash_the_batches_beyond_the_snapshot_are_read(is_flushed: bool) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 13)
        if is_flushed:
            await log.flush()
        world.crash("a")
        loaded = await load(world, log, "b")
        assert loaded.log_end_offset == 13
        entries = {**loaded.producers.state.entries}
        assert entries == state_of_batches(13)
        with pytest.raises(OutOfOrderSequence):
            loaded.find_duplicate(header(FIRST, 9))
        assert found_at(loaded, header(SECOND, 5)) == (11, 11)
        assert loaded.find_duplicate(header(SECOND, 6)) is None

    SimulatedWorld(1).run(scenario)


def test_a_damaged_snapshot_is_removed_and_an_older_one_is_used() -> None:
    """First the newest snapshot is damaged, then an older one too, and in the end all of them."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 23)
        await log.close()
        disk = world.disk(PATH)
        assert snapshots(disk) == [5, 10, 15, 20, 23]
        damaged: list[int] = []
        for life, offset in enumerate((23, 15, 20, 5, 10)):
            disk.corrupt(snapshot_path(offset), 12)
            damaged.append(offset)
            log = await load(world, log, f"b{life}", clean=True)
            assert {**log.producers.state.entries} == state_of_batches(23)
            await log.close()
            world.crash(f"b{life}")
            # Closing the log has written the newest one again. A damaged one below a good one is not found.
            assert 23 in snapshots(disk)
            disk.corrupt(snapshot_path(23), 9)
        assert snapshots(disk) == [23]

    SimulatedWorld(1).run(scenario)


def test_a_log_is_loaded_although_both_a_snapshot_and_the_batches_before_an_older_one_are_damaged() -> None:
    """The older snapshot lies within a segment, and the way to its offset leads over the damaged batch. One log with damaged
    batches must not keep the broker from starting: its readers get the error."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 3)
        await log.close()
        log = await Log.load(log.log_dir, FOLDER, FIVE, recovery_point=Offset(3), clean=True)
        await produce(log, 9)
        await log.flush()
        disk = world.disk(PATH)
        assert log.segment_base_offsets == [0, 5, 10]
        world.crash("a")
        magic_of_the_third = 2 * 82 + 16
        disk.corrupt(f"{FOLDER}/{0:020d}.log", magic_of_the_third)
        for offset in (5, 10):
            disk.corrupt(f"{FOLDER}/{producer_snapshot_file(offset)}", 20)
        loaded = await Log.load(await attached(world, node="b"), FOLDER, FIVE, recovery_point=Offset(10))
        assert loaded.log_end_offset == 12
        # The rest of the first segment cannot be read. The last batches are after it.
        known = {each: entry.batches for each, entry in loaded.producers.state.entries.items()}
        assert {each: batches[-3:] for each, batches in known.items()} == {
            each: entry.batches[-3:] for each, entry in state_of_batches(12).items()
        }

    SimulatedWorld(1).run(scenario)


def test_a_snapshot_beyond_the_end_is_never_used() -> None:
    """A power cut can keep the snapshot of a roll and lose the batches that it covers."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 3)
        await log.flush()
        world.crash("a")
        foreign = ProducerState()
        foreign.note(header(FIRST, 77), 4)
        world.disk(PATH).write(snapshot_path(5), encode_producer_snapshot(foreign.entries))
        loaded = await load(world, log, "b")
        # A removal that a power cut could undo would be too little: the log is about to grow beyond 5.
        assert snapshot_path(5) not in world.disk(PATH).durable_files()
        assert loaded.producers.state.entries == state_of_batches(3)

    SimulatedWorld(1).run(scenario)


def test_a_log_without_snapshots_is_read_once_after_a_crash_and_not_at_all_after_a_clean_stop() -> None:
    """Logs of a version that knew no producers have no snapshots. After a crash the batches are read from the first on, and
    a snapshot is written, so that this happens once."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 13)
        await log.flush()
        world.crash("a")
        disk = world.disk(PATH)
        for offset in snapshots(disk):
            await (await attached(world, node="z")).remove(snapshot_path(offset))
        loaded = await load(world, log, "b")
        assert {**loaded.producers.state.entries} == state_of_batches(13)
        assert snapshots(disk) == [13]
        world.crash("b")
        await (await attached(world, node="y")).remove(snapshot_path(13))
        loaded = await load(world, log, "c", clean=True)
        assert not loaded.producers.state.entries
        assert snapshots(disk) == []

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("end", range(14))
def test_truncation_goes_back_to_the_state_of_the_remaining_batches(end: int) -> None:
    """At every offset. A snapshot at the end itself stays; those beyond it are gone before anything is appended."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 13)
        # The snapshots are written in the background.
        await log.flush()
        log.lower_recovery_point(Offset(end))
        await log.truncate_to(Offset(end))
        assert snapshots(world.disk(PATH)) == [offset for offset in (5, 10) if offset <= end]
        assert {**log.producers.state.entries} == state_of_batches(min(end, 13))
        await produce(log, 5)
        assert {**log.producers.state.entries} == state_of_batches(min(end, 13) + 5)
        world.crash("a")
        loaded = await load(world, log, "b")
        assert {**loaded.producers.state.entries} == state_of_batches(min(end, 13) + 5)

    SimulatedWorld(1).run(scenario)


def test_truncating_batches_without_producers_reads_nothing() -> None:
    """The state stays as it is, with all of a producer's batches, if none of them is cut off."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 4)
        for _ in range(4):
            await append(log, size=10).written
        await log.truncate_to(Offset(4))
        assert log.producers.state.entries == state_of_batches(4)
        await log.truncate_to(Offset(3))
        assert {**log.producers.state.entries} == state_of_batches(3)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("offset", [0, 8, 40])
def test_a_log_that_starts_over_has_no_producers(offset: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 13)
        await log.truncate_fully_and_start_at(Offset(offset))
        assert not log.producers.state.entries
        assert snapshots(world.disk(PATH)) == []
        await append_batches(log, [produced_batch(FIRST, 30)], epoch=0).written
        await log.close()
        world.crash("a")
        loaded = await load(world, log, "b", clean=True)
        assert list(loaded.producers.state.entries) == [FIRST]

    SimulatedWorld(1).run(scenario)


def test_deleting_segments_keeps_their_producers_and_removes_their_snapshots() -> None:
    """As in Kafka since 2.4: a producer whose batches are all deleted can still go on. A restart finds it in a later
    snapshot."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append_batches(log, [produced_batch(9, 4)], epoch=0).written
        for _ in range(12):
            await append(log, size=10).written
        await log.delete_segments_before(Offset(11))
        assert snapshots(world.disk(PATH)) == [10]
        assert found_at(log, header(9, 4)) == (0, 0)
        world.crash("a")
        loaded = await load(world, log, "b")
        assert found_at(loaded, header(9, 4)) == (0, 0)
        with pytest.raises(OutOfOrderSequence):
            loaded.find_duplicate(header(9, 6))

    SimulatedWorld(1).run(scenario)


def test_a_follower_notes_what_it_fetches() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        fetched = [produced_batch(FIRST + offset % 2, offset // 2, offset=offset) for offset in range(4)]
        await append_fetched(log, concatenated(fetched)).written
        assert log.producers.state.entries == state_of_batches(4)

    SimulatedWorld(1).run(scenario)


def test_a_copy_takes_over_producers_that_have_no_batches_left() -> None:
    """The copy of a move begins at the log start. It would not know a producer whose batches were deleted before."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append_batches(log, [produced_batch(9, 4)], epoch=0).written
        for _ in range(12):
            await append(log, size=10).written
        await log.delete_segments_before(Offset(10))
        future = await Log.create(
            log.log_dir, f"{FOLDER}.{'ab' * 16}-future", FIVE, TOPIC_ID, start_offset=log.log_start_offset
        )
        await append_fetched(future, memoryview(await log.read_bytes(10, ReadLimits(max_bytes=10_000)))).written
        assert not future.producers.state.entries
        await future.take_over(log)
        assert found_at(future, header(9, 4)) == (0, 0)
        await append_batches(future, [produced_batch(9, 5)], epoch=0).written
        assert log.find_duplicate(header(9, 5)) is None

    SimulatedWorld(1).run(scenario)


def test_a_duplicate_waits_until_its_original_is_written() -> None:
    """The disk hangs, and the producer retries. Once the disk goes on, the original is acknowledged first."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        batch = produced_batch(FIRST, 0)
        world.disk(PATH).hang()
        original, repeated = append_batches(log, [batch], epoch=0), AwaitedAppend()
        assert found_at(log, batch[0]) == (0, 0)
        log.when_written(on_written=repeated.written, on_failed=repeated.failed)
        await world.sleep(0.5)
        assert not original.written.done()
        assert not repeated.ended.done()
        world.disk(PATH).thaw()
        await repeated.ended
        assert original.written.done()
        again = AwaitedAppend()
        log.when_written(on_written=again.written, on_failed=again.failed)
        await again.ended
        assert log.written_offset == log.log_end_offset == 1

    SimulatedWorld(1).run(scenario)


def test_a_duplicate_fails_with_its_original() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        world.disk(PATH).fail_next("append", errno.EIO)
        original = append_batches(log, [produced_batch(FIRST, 0)], epoch=0)
        repeated = AwaitedAppend()
        log.when_written(on_written=repeated.written, on_failed=repeated.failed)
        for ended in (original.written, repeated.ended):
            with pytest.raises(LogDirError):
                await ended
        with pytest.raises(LogDirError):
            log.find_duplicate(header(FIRST, 0))

    SimulatedWorld(1).run(scenario)


def test_a_log_that_was_cut_in_a_gap_remembers_its_producers_after_a_clean_shutdown() -> None:
    """The loaded log ends with its last batch. A snapshot beyond that end would be taken for one of a longer log."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await produce(log, 2)
        _, beyond = produced_batch(FIRST, 1, offset=10)
        await append_fetched(log, beyond).written
        assert await log.truncate_to(Offset(6)) == 2
        await log.close()
        loaded = await Log.load(log.log_dir, FOLDER, FIVE, recovery_point=log.recovery_point, clean=True)
        assert loaded.log_end_offset == 2
        assert {**loaded.producers.state.entries} == state_of_batches(2)

    SimulatedWorld(1).run(scenario)
