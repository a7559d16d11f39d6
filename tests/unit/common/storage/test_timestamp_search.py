"""Searching a log on a simulated disk by time."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from common.ids import LeaderEpoch, Offset
from common.records.batch import BATCH_OVERHEAD, assemble_batch, read_header, split_batches
from common.records.record import Record, encode_batch
from common.storage import timestamp_search
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
from common.storage.timestamp_search import OPENED_BYTES_MAX, TimestampOffset
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    SMALL,
    TOPIC_ID,
    append,
    append_batches,
    batch,
    created,
    fill,
    log_files,
)


@pytest.mark.parametrize("damage", ["nothing", "missing", "empty", "torn", "zeros at the end", "entry of other batches"])
def test_the_newest_timestamp_of_an_old_segment_is_that_of_its_batches(damage: str) -> None:
    """Retention asks for it. Only the last entry of the time index is read, unless that cannot be right."""

    async def scenario(world: SimulatedWorld) -> None:
        config = LogConfig(index_interval_bytes=0)
        log = await created(world, config)
        await fill(log, 5)
        await log.roll()
        await log.close()
        name = "00000000000000000000.timeindex"
        good = log_files(world.disk(PATH))[name]
        contents = {
            "nothing": good,
            "missing": b"",
            "empty": b"",
            "torn": good[:-5],
            "zeros at the end": good + bytes(12),
            "entry of other batches": good[:-12] + struct.pack(">qi", 10**15, 77),
        }
        await log.log_dir.replace_file(f"{FOLDER}/{name}", contents[damage])
        if damage == "missing":
            await log.log_dir.remove(f"{FOLDER}/{name}")
        loaded = await Log.load(log.log_dir, FOLDER, config, recovery_point=log.recovery_point, clean=True)
        operations: list[str] = []
        world.operation_watchers.append(lambda _, kind, name: operations.append(kind))
        assert await loaded.durable_segments()[0].load_max_timestamp() == 50
        assert damage != "nothing" or operations == ["stat", "read_file"]

    SimulatedWorld(1).run(scenario)


def test_records_are_found_by_time() -> None:
    # Searches for the timestamp of every record, for timestamps in between, and for timestamps outside the range.
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await fill(log, 30)
        for offset in range(31):
            for timestamp in (offset * 10, offset * 10 - 5):
                found = await log.offset_for_timestamp(timestamp)
                assert found == TimestampOffset(offset * 10, Offset(offset), LeaderEpoch(0))
        assert await log.offset_for_timestamp(301) is None
        assert await log.offset_of_max_timestamp() == TimestampOffset(300, Offset(30), LeaderEpoch(0))
        assert (await created_empty(log)).log_end_offset == 0

    async def created_empty(log: Log) -> Log:
        empty = await Log.create(log.log_dir, "e-0", SMALL, TOPIC_ID)
        assert await empty.offset_for_timestamp(0) is None
        assert await empty.offset_of_max_timestamp() is None
        return empty

    SimulatedWorld(1).run(scenario)


def test_times_that_go_back_are_searched_in_offset_order() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(index_interval_bytes=0))
        for timestamp in (50, 20, 70, 60, 70, 10):
            append(log, timestamp=timestamp, records=3)
        await append(log, timestamp=0).written
        assert await log.offset_for_timestamp(21) == TimestampOffset(50, Offset(0), LeaderEpoch(0))
        assert await log.offset_for_timestamp(52) == TimestampOffset(52, Offset(2), LeaderEpoch(0))
        assert await log.offset_for_timestamp(53) == TimestampOffset(70, Offset(6), LeaderEpoch(0))
        assert await log.offset_of_max_timestamp() == TimestampOffset(72, Offset(8), LeaderEpoch(0))
        # Records below the log start do not count.
        log.raise_log_start_offset(Offset(9))
        assert await log.offset_for_timestamp(0) == TimestampOffset(60, Offset(9), LeaderEpoch(0))
        assert await log.offset_of_max_timestamp() == TimestampOffset(72, Offset(14), LeaderEpoch(0))
        # The middle of the batch whose first record is the newest of the log.
        log.raise_log_start_offset(Offset(16))
        assert await log.offset_of_max_timestamp() == TimestampOffset(12, Offset(17), LeaderEpoch(0))

    SimulatedWorld(1).run(scenario)


def test_a_batch_that_claims_a_timestamp_of_no_record_does_not_hold_up_the_search() -> None:
    """The header comes from the producer, and only its checksum is checked."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        await append(log, timestamp=50).written
        for claimed in (900, 800):
            _, view = batch(timestamp=claimed - 100 * log.log_end_offset)
            struct.pack_into(">q", view, 35, claimed)
            struct.pack_into(">I", view, 17, crc32c(view[21:]))
            await append_batches(log, [(read_header(view), view)], epoch=0).written
        batches = split_batches(await log.read_bytes(0, ReadLimits(max_bytes=1000)))
        assert [each.max_timestamp for each, _ in batches] == [50, 900, 800]
        search = asyncio.ensure_future(log.offset_of_max_timestamp())
        await world.sleep(60)
        assert search.done(), "the search does not end"
        assert search.result() == TimestampOffset(800, Offset(1), LeaderEpoch(0))
        assert await log.offset_for_timestamp(850) is None

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("claims_max", [1000, 5])
def test_many_false_timestamps_are_searched_once(claims_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a hundred batches claims another time that no record has. The search goes through them a few times, not once
    for each, also if it cannot remember what they claim. The first batch is partly below the log start. At the end, one
    claims too little, and one cannot be decompressed."""
    monkeypatch.setattr(timestamp_search, "_CLAIMS_MAX", claims_max)
    honest = encode_batch([Record(b"k", b"v", timestamp) for timestamp in (1005, 1001, 1003)])

    async def add(log: Log, **fields: int) -> None:
        changed = assemble_batch(read_header(honest)._replace(**fields), honest[BATCH_OVERHEAD:])
        await append_batches(log, [(read_header(changed), memoryview(changed))], epoch=0).written

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=1 << 20, index_interval_bytes=4096))
        await add(log)
        log.raise_log_start_offset(Offset(1))
        for number in range(100):
            await add(log, max_timestamp=5000 + number)
        reads: list[str] = []
        world.operation_watchers.append(lambda _, kind, name: reads.append(kind))
        assert await log.offset_of_max_timestamp() == TimestampOffset(1005, Offset(3), LeaderEpoch(0))
        assert len(reads) < 250
        await add(log, max_timestamp=900, base_timestamp=9000)
        await add(log, max_timestamp=4000, attributes=4)
        assert await log.offset_of_max_timestamp() == TimestampOffset(4000, Offset(306), LeaderEpoch(0))

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize(
    ("compress", "first_offset"),
    [
        pytest.param(cramjam.zstd.compress, 1, id="exact"),
        pytest.param(lambda _: b"no zstd", 0, id="damaged"),
        pytest.param(lambda _: cramjam.zstd.compress(bytes(OPENED_BYTES_MAX + 1)), 0, id="too large to be opened"),
    ],
)
def test_a_compressed_batch_is_searched_record_by_record(compress: Callable[[bytes], Any], first_offset: int) -> None:
    """If the batch cannot be decompressed, the search returns its first offset, so a consumer misses nothing."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        records = [Record(None, b"x", 100 + number) for number in (0, 2, 1)]
        view = memoryview(encode_batch(records, attributes=4, compress=lambda plain: bytes(compress(bytes(plain)))))
        await append_batches(log, [(read_header(view), view)], epoch=0).written
        expected = TimestampOffset(102, Offset(first_offset), LeaderEpoch(0))
        assert await log.offset_for_timestamp(101) == expected
        assert await log.offset_of_max_timestamp() == expected

    SimulatedWorld(1).run(scenario)


def test_others_get_their_turn_while_a_large_batch_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world)
        records = [Record(None, None, 0)] * 5000 + [Record(None, None, 1)]
        view = memoryview(encode_batch(records))
        await append_batches(log, [(read_header(view), view)], epoch=0).written
        monkeypatch.setattr(asyncio, "sleep", pause)
        assert await log.offset_for_timestamp(1) == TimestampOffset(1, Offset(5000), LeaderEpoch(0))

    SimulatedWorld(1).run(scenario)
    assert pauses == [0] * 5
