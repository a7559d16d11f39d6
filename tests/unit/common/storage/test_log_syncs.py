"""Rolling and flushing a log on a simulated disk, and how the recovery point follows."""

import asyncio
import errno

import pytest

from common.environment.interface import LogDirError
from common.ids import LeaderEpoch, Offset
from common.storage.log_config import LogConfig
from common.storage.log_syncs import ROLLED_MAX
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    PATH,
    append,
    created,
    fill,
    log_files,
)


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
        # A time index of 24 bytes has room for one entry and for that of the seal. Apache Kafka's broker does not start if
        # it has to recover a segment with more.
        assert log.segment_base_offsets == [0, 3, 6, 8, 10]
        await append(log).written

    SimulatedWorld(1).run(scenario)


def test_segments_roll_at_different_ages_if_there_is_jitter() -> None:
    """Otherwise all logs of a broker that began together would roll and sync together, week after week."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(roll_ms=1000, roll_jitter_ms=600))
        timestamp, ages = 5000, []
        for _ in range(10):
            first, bases = timestamp, len(log.segment_base_offsets)
            while len(log.segment_base_offsets) == bases:
                append(log, timestamp=timestamp)
                timestamp += 10
            timestamp -= 10
            ages.append(timestamp - first)
            await append(log, timestamp=timestamp).written
        assert 400 < min(ages) < max(ages) <= 1010
        assert len(set(ages)) > 5

    SimulatedWorld(1).run(scenario)


def test_appends_wait_while_very_many_rolled_segments_await_their_syncs() -> None:
    """A log of small segments rolls faster than the disk syncs. Beyond the limit it opens no further files, and the clients
    wait. Once the syncs have ended, all appends are written."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=100))
        disk = world.disk(PATH)
        disk.hang({"fsync"})
        appends = [append(log) for _ in range(ROLLED_MAX)]
        await appends[-1].written
        more = [append(log) for _ in range(10)]
        await world.sleep(1)
        assert len([name for name in log_files(disk) if name.endswith(".log")]) == ROLLED_MAX + 1
        assert log.written_offset == ROLLED_MAX + 1
        disk.thaw()
        await more[-1].written
        assert await log.flush() == log.log_end_offset == ROLLED_MAX + 10

    SimulatedWorld(1).run(scenario)


def test_a_log_that_failed_while_appends_waited_for_syncs_fails_them() -> None:
    """No sync opens the held segment any more. The log can be deleted all the same."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=100))
        disk = world.disk(PATH)
        disk.hang({"fsync"})
        appends = [append(log) for _ in range(ROLLED_MAX + 10)]
        await appends[ROLLED_MAX].written
        disk.fail_next("fsync", errno.EIO)
        disk.thaw()
        with pytest.raises(LogDirError):
            await appends[-1].written
        await log.delete_rename(bytes(16))

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
