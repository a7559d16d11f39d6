"""After power cuts, kills and failed fsyncs a log is a prefix of what was appended and keeps all it reported as durable.

Each seed gives a random series of runs of one log, with appends, rolls, flushes, truncations and deletions. A run ends with
a kill or with a power cut, sometimes after a close or a failed fsync. The owner stores the recovery point and the log start
like a broker's checkpoints: now and then, and always before it appends to a truncated log. With flush.messages, what is
written is durable but for fewer records than that.
"""

import asyncio
import errno
import random
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from common.environment.interface import LogDirError
from common.ids import LeaderEpoch, Offset
from common.records.batch import split_batches
from common.records.record import iterate_records
from common.storage.log import Log
from common.storage.log_config import NEVER, LogConfig
from common.storage.read_limits import ReadLimits
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    SMALL,
    TOPIC_ID,
    all_offsets,
    append,
    append_batches,
    attached,
    batch,
    created,
    fill,
)

SETTINGS = LogConfig(segment_bytes=600, index_interval_bytes=150)


class Lives:
    """One log and its owner, through several runs."""

    def __init__(self, world: SimulatedWorld, flush_messages: int) -> None:
        self.world = world
        self.settings = replace(SETTINGS, flush_messages=flush_messages)
        # Where the log was written up to when its last life ended.
        self.written_offset = Offset(0)
        self.rng = random.Random(f"{world.seed}/lives")
        self.disk = world.disk(PATH)
        self.epoch = 0
        # Leader epoch and timestamp of the record at each offset.
        self.appended: dict[int, tuple[int, int]] = {}
        # The same for records that were truncated, lost or deleted. Until their removal is synced, they may come back.
        self.cut_off: set[tuple[int, tuple[int, int]]] = set()
        self.next_value = 0
        self.recovery_point = self.log_start = Offset(0)
        self.is_clean = False

    async def run(self) -> None:
        log = await Log.create(await attached(self.world), FOLDER, self.settings, TOPIC_ID)
        for _ in range(self.rng.randint(2, 5)):
            for _ in range(self.rng.randint(1, 12)):
                await self.act(log)
            await self.end(log)
            self.written_offset = log.written_offset
            log = await self.begin()

    async def act(self, log: Log) -> None:
        way = self.rng.choice(("append", "append", "append", "flush", "truncate", "delete", "epoch", "checkpoint"))
        if way == "append":
            self.append(log)
            if self.rng.random() < 0.7:
                await self.world.sleep(self.rng.choice((0.0001, 0.01)))
        elif way == "flush":
            await log.flush()
        elif way == "truncate":
            await self.truncate(log)
        elif way == "delete":
            await log.delete_segments_before(Offset(self.rng.randint(log.log_start_offset, log.written_offset)))
        elif way == "epoch":
            self.epoch += self.rng.randint(1, 3)
            log.begin_epoch(LeaderEpoch(self.epoch))
        else:
            self.checkpoint(log)

    def append(self, log: Log) -> None:
        batches = []
        for _ in range(self.rng.randint(1, 8)):
            records = self.rng.randint(1, 3)
            batches.append(batch(records, timestamp=self.next_value, size=self.rng.randint(0, 60)))
            self.next_value += records
        offset: int = log.log_end_offset
        for header, view in batches:
            for number, record in enumerate(iterate_records(view)):
                self.appended[offset + number] = (self.epoch, record.timestamp_ms)
            offset += header.last_offset_delta + 1
        append_batches(log, batches, epoch=self.epoch)

    async def truncate(self, log: Log) -> None:
        cut_at = Offset(self.rng.randint(max(log.log_start_offset, log.log_end_offset - 40), log.log_end_offset))
        log.lower_recovery_point(cut_at)
        self.lower_checkpoint(log)
        end = await log.truncate_to(cut_at)
        self.cut_off |= {(offset, record) for offset, record in self.appended.items() if offset >= end}
        self.appended = {offset: record for offset, record in self.appended.items() if offset < end}
        # Records that replace the truncated ones have a later epoch, as under a new leader.
        self.epoch += 1
        self.lower_checkpoint(log)

    def lower_checkpoint(self, log: Log) -> None:
        if self.recovery_point > log.recovery_point:
            self.checkpoint(log)

    def checkpoint(self, log: Log) -> None:
        self.recovery_point, self.log_start = log.recovery_point, log.log_start_offset

    async def end(self, log: Log) -> None:
        self.is_clean = self.rng.random() < 0.2
        if self.is_clean:
            await log.close()
            self.checkpoint(log)
        elif self.rng.random() < 0.3:
            self.disk.fail_fsync_once()
            self.append(log)
            with pytest.raises(LogDirError, match="EIO"):
                await log.flush()
        elif self.rng.random() < 0.3:
            self.world.crash("a")
            return
        self.world.power_cut("a")

    async def begin(self) -> Log:
        self.disk.heal()
        log = await Log.load(
            await attached(self.world),
            FOLDER,
            self.settings,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
            clean=self.is_clean,
        )
        if self.is_clean:
            assert not log.recovery.lost_anything
            assert log.log_end_offset == self.recovery_point
        assert log.log_end_offset >= self.recovery_point, "lost what it vouched for"
        assert self.written_offset - log.log_end_offset < self.settings.flush_messages, "lost what it should have synced"
        assert log.log_start_offset <= max(self.log_start, log.segment_base_offsets[0])
        found = await self.read(log)
        self.check(log, found)
        self.cut_off |= {(offset, record) for offset, record in self.appended.items() if offset not in found}
        self.appended = found
        self.epoch += 1
        return log

    async def read(self, log: Log) -> dict[int, tuple[int, int]]:
        """Reads every record and checks that the offsets are consecutive."""
        found: dict[int, tuple[int, int]] = {}
        offset: int = log.log_start_offset
        while data := await log.read_bytes(Offset(offset), ReadLimits(max_bytes=500)):
            for header, view in split_batches(memoryview(bytearray(data))):
                for record in iterate_records(view):
                    if record.offset < log.log_start_offset:
                        continue
                    assert record.offset == offset, f"a hole: {record.offset} follows {offset - 1}"
                    found[offset] = (header.partition_leader_epoch, record.timestamp_ms)
                    offset += 1
        assert offset == log.log_end_offset
        return found

    def check(self, log: Log, found: dict[int, tuple[int, int]]) -> None:
        epoch = -1
        # The first offset with a known epoch. If a raised log start was not stored before the crash, the log begins
        # below that offset.
        first = log.leader_epochs.entries[0][1] if log.leader_epochs.entries else log.log_end_offset
        for offset, record in found.items():
            is_kept = self.appended.get(offset) == record
            assert is_kept or (offset, record) in self.cut_off, f"{record} was never at {offset}"
            assert is_kept or offset >= self.recovery_point, f"{record} at {offset} is back from below the recovery point"
            assert epoch <= record[0], f"{record} at {offset} follows epoch {epoch}"
            epoch = record[0]
            assert offset < first or log.leader_epochs.epoch_at(Offset(offset)) == epoch


@pytest.mark.slow
@pytest.mark.parametrize("flush_messages", [1, 10, NEVER])
@pytest.mark.parametrize("first", range(0, 200, 100))
def test_a_log_is_a_prefix_of_what_was_appended_and_has_all_it_vouched_for(first: int, flush_messages: int) -> None:
    """No holes, no record at a wrong offset, no wrong leader epoch, and no loss below the recovery point."""
    for seed in range(first, first + 100):
        world = SimulatedWorld(seed)
        try:
            world.run(lambda world: Lives(world, flush_messages).run())
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("steps", range(2, 30, 6))
def test_a_power_cut_while_segments_are_deleted_or_cut_off_leaves_no_hole(steps: int) -> None:
    """Each removal changes a directory entry, and a power cut may lose any of these changes on its own.

    Without a sync in between, an older segment could come back while the one after it does not. Recovery would then
    discard everything past the hole, or not notice a hole below the recovery point.
    """

    async def cut_short(world: SimulatedWorld, changed: asyncio.Future[object]) -> None:
        await world.sleep(steps * 0.000_5)
        world.power_cut("a")
        changed.cancel()

    async def scenario(world: SimulatedWorld) -> None:
        for is_deletion in (True, False):
            world.disk(PATH).wipe()
            log = await created(world)
            await fill(log, 60)
            end, recovery_point = log.log_end_offset, await log.flush()
            middle = log.segment_base_offsets[4]
            changing: Coroutine[None, None, object]
            changing = log.delete_segments_before(middle) if is_deletion else log.truncate_to(middle)
            await cut_short(world, asyncio.ensure_future(changing))
            log = await Log.load(
                await attached(world), FOLDER, SMALL, recovery_point=Offset(0 if is_deletion else recovery_point)
            )
            assert log.recovery.reason is None
            offsets = await all_offsets(log)
            assert [first for first, _ in offsets] == list(range(log.log_start_offset, log.log_end_offset))
            assert log.log_end_offset == end if is_deletion else log.log_start_offset == 0
            world.crash("a")

    for seed in range(10):
        SimulatedWorld(100 * steps + seed).run(scenario)


def test_records_that_a_failed_fsync_lost_are_not_believed_by_the_next_life() -> None:
    """After a failed fsync the kernel still shows the lost records, and the next sync succeeds.

    If the next run took the lost records for durable, the next power cut would turn them into zeros below the recovery
    point, where recovery does not look.
    """

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 3)
        await log.flush()
        synced = log.log_end_offset
        await fill(log, 3)
        world.disk(PATH).fail_fsync_once(errno.ENOSPC)
        with pytest.raises(LogDirError):
            await log.flush()
        world.crash("a")
        log = await Log.load(await attached(world), FOLDER, SETTINGS)
        assert log.log_end_offset == synced
        assert log.recovery.lost_anything
        await append(log).written
        assert await log.flush() == synced + 1
        world.power_cut("a")
        log = await Log.load(await attached(world), FOLDER, SETTINGS, recovery_point=Offset(synced + 1))
        assert (log.log_end_offset, log.recovery.reason) == (synced + 1, None)

    SimulatedWorld(1).run(scenario)
