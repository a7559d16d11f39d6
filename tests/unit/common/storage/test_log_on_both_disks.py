"""The same scenarios on a simulated and on a real directory. A log must behave the same on both."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from common.environment.interface import LogDir, LogDirError
from common.environment.real import RealEnvironment
from common.ids import BrokerEpoch, LeaderEpoch, Offset
from common.storage.checkpoints import load_offset_checkpoint, store_offset_checkpoint
from common.storage.clean_shutdown import load_clean_shutdown, remove_clean_shutdown, store_clean_shutdown
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.names import RECOVERY_POINT_CHECKPOINT_FILE
from common.storage.read_limits import ReadLimits
from common.storage.retention import Expiry
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, SMALL, TOPIC_ID, all_offsets, append, append_fetched, attached, fill

Scenario = Callable[[LogDir], Awaitable[None]]


async def an_orderly_life(log_dir: LogDir) -> None:
    log = await Log.create(log_dir, FOLDER, SMALL, TOPIC_ID)
    for number in range(40):
        append(log, epoch=number // 15, timestamp=10 * number)
    await log.flush()
    assert log.recovery_point == 40
    assert await all_offsets(log) == [(offset, offset) for offset in range(40)]
    found = await log.offset_for_timestamp(155)
    assert found is not None
    assert (found.offset, found.leader_epoch) == (16, 1)
    await log.close()
    loaded = await Log.load(log_dir, FOLDER, SMALL, recovery_point=log.recovery_point, clean=True)
    assert loaded.topic_id == TOPIC_ID
    assert loaded.leader_epochs.entries == [(0, 0), (1, 15), (2, 30)]
    assert await all_offsets(loaded) == [(offset, offset) for offset in range(40)]
    await loaded.close()


async def a_torn_tail(log_dir: LogDir) -> None:
    log = await Log.create(log_dir, FOLDER, SMALL, TOPIC_ID)
    await fill(log, 20)
    newest = f"{FOLDER}/{log.segment_base_offsets[-1]:020d}.log"
    stat = await log_dir.stat(newest)
    assert stat is not None
    file = await log_dir.open(newest)
    await log_dir.append(file, stat.size, [b"\0" * 1000])
    loaded = await Log.load(log_dir, FOLDER, SMALL)
    assert loaded.recovery.truncated_bytes == 1000
    assert loaded.log_end_offset == 21
    after = await log_dir.stat(newest)
    assert after is not None
    assert after.size == stat.size
    await fill(loaded, 20)
    assert await all_offsets(loaded) == [(offset, offset) for offset in range(42)]


async def truncation_and_deletion(log_dir: LogDir) -> None:
    log = await Log.create(log_dir, FOLDER, LogConfig(segment_bytes=300, index_interval_bytes=100), TOPIC_ID)
    await fill(log, 40)
    await log.truncate_to(Offset(25))
    await fill(log, 9, epoch=1)
    await log.delete_segments_before(Offset(11))
    assert await all_offsets(log) == [(offset, offset) for offset in range(11, 35)]
    assert log.leader_epochs.entries == [(0, 11), (1, 25)]
    expiry = Expiry(retention_ms=1, retention_bytes=-1)
    await log.delete_expired(expiry, now_ms=10**15, high_watermark=log.log_end_offset)
    assert (log.size_bytes, log.log_start_offset, log.log_end_offset) == (0, 35, 35)
    await log.truncate_fully_and_start_at(Offset(1000))
    assert append(log).first_offset == 1000
    name = await log.delete_rename(bytes(16))
    assert [entry.name for entry in await log_dir.list()] == [name]
    await log_dir.remove(name)
    assert await log_dir.list() == []


async def a_move(log_dir: LogDir) -> None:
    current = await Log.create(log_dir, FOLDER, SMALL, TOPIC_ID)
    await fill(current, 40)
    current.begin_epoch(LeaderEpoch(3))
    folder = f"{FOLDER}.{'0' * 32}-future"
    future = await Log.create(log_dir, folder, SMALL, TOPIC_ID)
    while data := await current.read_bytes(future.log_end_offset, ReadLimits(max_bytes=500)):
        await append_fetched(future, memoryview(data)).written
    await future.take_over(current)
    assert future.recovery_point == 41
    await current.rename(f"{FOLDER}.{'0' * 32}-delete")
    await future.rename(FOLDER)
    assert [entry.name for entry in await log_dir.list()] == sorted([FOLDER, current.name])
    await fill(future, 40, epoch=3)
    # The old log is still open under its new name and can be read.
    assert await all_offsets(current) == [(offset, offset) for offset in range(41)]
    assert await all_offsets(future) == [(offset, offset) for offset in range(82)]
    await future.close()
    loaded = await Log.load(log_dir, FOLDER, SMALL, clean=True)
    assert loaded.leader_epochs.entries == [(0, 0), (3, 41)]
    await loaded.close()
    await current.close()


async def appends_that_wait_for_syncs(log_dir: LogDir) -> None:
    log = await Log.create(log_dir, FOLDER, LogConfig(segment_bytes=2000, flush_messages=1), TOPIC_ID)
    written: list[Offset] = []

    async def client(number: int) -> None:
        for _ in range(10):
            appended = append(log, epoch=0, size=number)
            await appended.written
            assert appended.last_offset < log.synced_offset
            written.append(appended.last_offset)

    await asyncio.gather(*[client(number) for number in range(20)])
    assert sorted(written) == list(range(200))
    assert len(log.segment_base_offsets) > 5
    assert await all_offsets(log) == [(offset, offset) for offset in range(200)]
    await log.close()


async def everything_at_once(log_dir: LogDir) -> None:
    log = await Log.create(log_dir, FOLDER, LogConfig(segment_bytes=2000, index_interval_bytes=100), TOPIC_ID)
    errors: list[LogDirError] = []
    log_dir.on_error = errors.append

    for number in range(20):
        start = log.log_start_offset
        await asyncio.gather(
            *(append(log, epoch=number).written for _ in range(20)),
            *(
                log.read_bytes(offset, ReadLimits(max_bytes=5000))
                for offset in range(log.log_end_offset - 20, log.log_end_offset)
            ),
            log.delete_segments_before(Offset(max(start, log.written_offset - 50))),
            log.flush(),
        )
    assert log.log_start_offset == 330
    await log.truncate_to(Offset(390))
    assert log.leader_epochs.end_offset_for(LeaderEpoch(19), log.log_end_offset) == (19, 390)
    assert (await all_offsets(log))[-1] == (389, 389)
    await log.close()
    assert errors == []


async def small_files(log_dir: LogDir) -> None:
    await store_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE, {("t", 0): 7})
    assert await load_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE) == {("t", 0): 7}
    assert await load_clean_shutdown(log_dir) is None
    await store_clean_shutdown(log_dir, BrokerEpoch(5))
    marker = await load_clean_shutdown(log_dir)
    assert marker is not None
    assert marker.broker_epoch == 5
    await remove_clean_shutdown(log_dir)
    assert await load_clean_shutdown(log_dir) is None


SCENARIOS = [
    an_orderly_life,
    a_torn_tail,
    truncation_and_deletion,
    a_move,
    appends_that_wait_for_syncs,
    everything_at_once,
    small_files,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_the_simulated_disk(scenario: Scenario) -> None:
    async def run(world: SimulatedWorld) -> None:
        await scenario(await attached(world))

    SimulatedWorld(1).run(run)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_a_real_disk(scenario: Scenario, tmp_path: Path) -> None:
    async def run() -> None:
        log_dir = RealEnvironment("test").log_dir(str(tmp_path / "disk"), operation_timeout_ns=10**10)
        await log_dir.attach(create=True)
        await scenario(log_dir)
        await log_dir.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
