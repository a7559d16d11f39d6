"""Compaction of a log on a simulated disk: what survives, what is left of the files, and what ends it early."""

import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest

from common.ids import Offset
from common.records.batch import (
    BATCH_OVERHEAD,
    BatchError,
    CompressedBatch,
    InvalidRecordBatch,
    assemble_batch,
    read_header,
    split_batches,
)
from common.records.compression import compress
from common.records.decompression import decompress
from common.records.record import Record, encode_batch, iterate_records
from common.storage.compaction import log_compaction
from common.storage.compaction.log_compaction import Compacted, CompactionEnded, CompactionSettings, LogCompaction
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.log_segments import LogRead
from common.storage.read_limits import ReadLimits
from common.storage.segment import Segment
from tests.simulation.disk_store import FileNode
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    all_offsets,
    append_batches,
    attached,
    created,
    log_files,
)

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150)
SETTINGS = CompactionSettings(
    segment_bytes=1300,
    segment_index_bytes=10 * 1024**2,
    index_interval_bytes=150,
    delete_retention_ms=1000,
    producer_expiration_ms=10_000,
    keys_max=1000,
    io_buffer_bytes=200,
)
Pair = tuple[str, str | None]


async def put(
    log: Log, *pairs: Pair, timestamp: int = 100, compression: int = 0, producer: tuple[int, int] | None = None
) -> None:
    """Appends one batch of these keys and values."""
    producer_id, sequence = producer or (-1, -1)
    encoded = encode_batch(
        [Record(key.encode(), None if value is None else value.encode(), timestamp) for key, value in pairs],
        attributes=compression,
        compress=(lambda payload: compress(compression, payload)) if compression else None,
        producer_id=producer_id,
        producer_epoch=-1 if producer is None else 0,
        base_sequence=sequence,
    )
    await append_batches(log, [(read_header(encoded), memoryview(encoded))], epoch=0).written


async def compact(
    log: Log,
    first_dirty: int = 0,
    end: int | None = None,
    *,
    now_ms: int = 5000,
    settings: CompactionSettings = SETTINGS,
) -> Compacted:
    """Compacts everything up to the newest segment."""

    async def at_once(_size: int) -> None:
        return None

    await log.flush()
    compaction = LogCompaction(log, settings, now_ms=now_ms, pace=at_once, is_wanted=lambda: True, has_room=lambda _: True)
    return await compaction.run(first_dirty, log.log_end_offset if end is None else end)


async def records_of(log: Log) -> dict[int, Pair]:
    """Reads the whole log and returns the key and the value at each offset."""
    found: dict[int, Pair] = {}
    offset = log.log_start_offset
    while offset < log.written_offset:
        data = await log.read_bytes(offset, ReadLimits(max_bytes=500))
        for header, view in split_batches(data):
            for record in iterate_records(view, decompress=lambda code, view: decompress(code, view, size_max=1 << 20)):
                assert record.key is not None
                value = None if record.value is None else bytes(record.value).decode()
                found[record.offset] = (bytes(record.key).decode(), value)
            offset = Offset(header.next_offset)
    return found


def latest(found: Mapping[int, Pair]) -> dict[str, str | None]:
    return dict(found[offset] for offset in sorted(found))


async def filled(log: Log, count: int = 40, keys: int = 3, producer: tuple[int, int] | None = None) -> None:
    for number in range(count):
        await put(log, (f"k{number % keys}", f"v{number}"), producer=producer)


def test_the_latest_record_of_each_key_survives_at_its_offset() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        before, segments = await records_of(log), log.segment_base_offsets
        result = await compact(log)
        after = await records_of(log)
        assert result.end_offset == segments[-1]
        assert latest(after) == latest(before)
        assert all(before[offset] == pair for offset, pair in after.items())
        clean = [offset for offset in after if offset < result.end_offset]
        assert clean == list(range(result.end_offset - 3, result.end_offset))
        assert result.records_removed == result.end_offset - 3
        # Two segments become one.
        assert len(log.segment_base_offsets) < len(segments)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("offset", range(40))
def test_a_read_from_inside_a_hole_returns_what_follows(offset: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        await compact(log)
        batches = await all_offsets(log)
        data = await log.read_bytes(offset, ReadLimits(max_bytes=1))
        assert (read_header(data).base_offset, read_header(data).last_offset) == next(
            each for each in batches if each[1] >= offset
        )

    SimulatedWorld(1).run(scenario)


async def _read_at_once(log: Log, offset: int, limits: ReadLimits) -> LogRead:
    read = log.read_at_once(offset, limits)
    return await log.read(offset, limits) if read is None else read


async def _read_with_aborted(log: Log, offset: int, limits: ReadLimits) -> LogRead:
    return (await log.read_with_aborted(offset, limits._replace(upper_offset=log.written_offset)))[0]


@pytest.mark.parametrize("read", [Log.read, _read_at_once, _read_with_aborted])
def test_a_consumer_is_not_sent_the_batches_without_records_that_end_segments(
    read: Callable[..., Awaitable[LogRead]],
) -> None:
    """librdkafka reports an error after ten responses with nothing but such a batch, and kafka-go waits forever."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log, count=80)
        # No two segments become one.
        await compact(log, settings=replace(SETTINGS, segment_bytes=1))
        empty_ends = {last + 1 for base, last in await all_offsets(log) if last + 1 in log.segment_base_offsets}
        assert len(empty_ends) > 5
        await _every_read_has_records(log, read)
        # A follower's log gets them, and a consumer whose fetch may go no further.
        assert (await read(log, 0, ReadLimits(max_bytes=200))).size == BATCH_OVERHEAD
        end = min(empty_ends)
        if read is not _read_with_aborted:
            found = await read(log, 0, ReadLimits(max_bytes=200, upper_offset=end, skips_empty=True))
            assert (found.size, found.next_offset) == (BATCH_OVERHEAD, end)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("read", [Log.read, _read_at_once, _read_with_aborted])
@pytest.mark.parametrize("is_cached", [True, False])
def test_a_consumer_is_not_sent_only_batches_that_tell_of_producers(
    read: Callable[..., Awaitable[LogRead]], is_cached: bool
) -> None:
    """Each record is of another producer, whose last batch stays without it. So a segment has nothing but such batches."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        for number in range(80):
            await put(log, (f"k{number % 3}", f"v{number}"), producer=(number, 0))
        await compact(log, settings=replace(SETTINGS, segment_bytes=1))
        assert len(log.segment_base_offsets) > 5
        await _every_read_has_records(log, read)
        assert (await read(log, 0, ReadLimits(max_bytes=200))).size == 3 * BATCH_OVERHEAD
        if read is not _read_with_aborted:
            # Nothing else comes below the end, so the consumer gets the last batch, and goes on there.
            end = log.segment_base_offsets[1]
            found = await read(log, 0, ReadLimits(max_bytes=200, upper_offset=end, skips_empty=True))
            assert (found.size, found.next_offset) == (BATCH_OVERHEAD, end)

    world = SimulatedWorld(1)
    world.answers_cached_reads = is_cached
    world.run(scenario)


def test_hundreds_of_batches_without_records_are_skipped_together() -> None:
    """A read of few bytes does not look them up one after the other."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig())
        for number in range(500):
            await put(log, ("k", "v"), producer=(number, 0))
        await log.roll()
        await put(log, ("k", "v"))
        await compact(log, settings=replace(SETTINGS, io_buffer_bytes=100_000))
        reads: list[str] = []
        world.operation_watchers.append(lambda _path, kind, name: reads.append(name) if kind == "read" else None)
        found = await log.read(0, ReadLimits(max_bytes=2 * BATCH_OVERHEAD, skips_empty=True))
        assert found.next_offset == 500
        assert len(reads) < 20

    SimulatedWorld(1).run(scenario)


async def _every_read_has_records(log: Log, read: Callable[..., Awaitable[LogRead]]) -> None:
    offset, with_records = 0, [*await records_of(log)]
    while offset < log.written_offset:
        found = await read(log, offset, ReadLimits(max_bytes=200, skips_empty=True))
        assert [each for each in with_records if offset <= each < found.next_offset]
        offset = found.next_offset


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_compacted_log_loads_as_it_was(is_closed: bool) -> None:
    """Without a clean shutdown and a recovery point, the whole log is validated. The holes must not end it."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        await compact(log)
        before, bases = await records_of(log), log.segment_base_offsets
        if is_closed:
            await log.close()
        again = await Log.load(await attached(world), FOLDER, CONFIG, clean=is_closed)
        assert not again.recovery.lost_anything
        assert await records_of(again) == before
        assert again.segment_base_offsets == bases
        assert again.log_end_offset == 40
        assert not [name for name in log_files(world.disk(PATH)) if name.endswith((".cleaned", ".swap", ".deleted"))]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_gap_that_apache_kafka_left_between_two_segments_is_no_loss(is_clean: bool) -> None:
    """It leaves out the last batch of a compacted segment if nothing of it is left; here every batch is. Below the first
    dirty offset nothing is missing. Beyond it a power cut may have taken the batches away."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        result = await compact(log)
        before, (first, *bases) = await records_of(log), log.segment_base_offsets
        await log.close()
        disk = world.disk(PATH)
        disk.write(f"{FOLDER}/{first:020d}.log", b"")
        left = {offset: pair for offset, pair in before.items() if offset >= bases[0]}
        again = await Log.load(
            await attached(world), FOLDER, CONFIG, first_dirty_offset=Offset(result.end_offset), clean=is_clean
        )
        assert not again.recovery.lost_anything
        assert (await records_of(again), again.segment_base_offsets) == (left, [first, *bases])
        assert (again.log_start_offset, again.log_end_offset) == (0, 40)
        await put(again, ("k", "v"))
        assert len(await records_of(again)) == len(left) + 1
        await again.close()
        if not is_clean:
            cut = await Log.load(await attached(world), FOLDER, CONFIG, first_dirty_offset=Offset(bases[0] - 1))
            assert (cut.recovery.lost_anything, cut.log_end_offset) == (True, 0)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize(
    ("missing", "renamed", "is_lost"),
    [
        ((), (), False),
        ((1, ".index"), (), True),
        ((0, ".timeindex"), (), True),
        ((), (".log", ".index", ".timeindex"), False),
        ((), (".index", ".timeindex"), False),
    ],
)
def test_a_gap_between_two_segments_with_indexes_is_no_loss(
    missing: tuple[int, str] | tuple[()], renamed: tuple[str, ...], is_lost: bool
) -> None:
    """A follower of Apache Kafka has such gaps where its leader has compacted the log, and a compaction that was killed
    leaves one before the first dirty offset has moved. An index that is missing shows that the segment was not synced; one
    may still have the name that it had in a swap."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        before, (first, second, *_) = await records_of(log), log.segment_base_offsets
        await log.close()
        disk, kept = world.disk(PATH), b""
        for header, view in [*split_batches(log_files(disk)[f"{first:020d}.log"])][:-1]:
            kept += bytes(view)
            end_offset = header.next_offset
        disk.write(f"{FOLDER}/{first:020d}.log", kept)
        for suffix in renamed:
            name = f"{FOLDER}/{first:020d}{suffix}"
            disk.write(f"{name}.swap", log_files(disk)[f"{first:020d}{suffix}"])
            disk.delete(name)
        if missing:
            number, suffix = missing
            disk.delete(f"{FOLDER}/{(first, second)[number]:020d}{suffix}")
        again = await Log.load(await attached(world), FOLDER, CONFIG)
        assert again.recovery.lost_anything == is_lost
        left = {offset: pair for offset, pair in before.items() if offset < end_offset or (offset >= second and not is_lost)}
        assert await records_of(again) == left
        assert not [name for name in log_files(disk) if name.endswith(".swap")]

    SimulatedWorld(1).run(scenario)


def test_a_torn_segment_after_a_gap_stays_at_the_next_start() -> None:
    """The first start cuts off the torn batch and removes what the index says of it. The second one follows a kill."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        before, bases = await records_of(log), log.segment_base_offsets
        await log.close()
        disk, kept = world.disk(PATH), b""
        for _, view in [*split_batches(log_files(disk)[f"{bases[-2]:020d}.log"])][:-1]:
            kept += bytes(view)
        disk.write(f"{FOLDER}/{bases[-2]:020d}.log", kept)
        newest = f"{bases[-1]:020d}.log"
        disk.write(f"{FOLDER}/{newest}", log_files(disk)[newest][:-1])
        torn = await Log.load(await attached(world), FOLDER, CONFIG)
        assert torn.log_end_offset == max(before)
        world.crash("a")
        again = await Log.load(await attached(world, node="b"), FOLDER, CONFIG)
        assert (again.recovery.lost_anything, again.log_end_offset) == (False, max(before))

    SimulatedWorld(1).run(scenario)


def test_a_second_compaction_uses_what_the_first_one_left() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        first = await compact(log)
        await filled(log, count=30, keys=2)
        before = latest(await records_of(log))
        second = await compact(log, first.end_offset)
        assert second.end_offset > first.end_offset
        after = await records_of(log)
        assert latest(after) == before
        # Every key has a later record, so no record of the first part is left.
        assert min(after) > first.end_offset
        assert (await compact(log, second.end_offset)).records_removed == 0

    SimulatedWorld(1).run(scenario)


def test_a_tombstone_goes_after_its_time_and_not_before() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await put(log, ("gone", "value"), ("kept", "value"))
        await put(log, ("gone", None), timestamp=200)
        await filled(log, count=20)
        result = await compact(log, now_ms=5000)
        found = await records_of(log)
        assert found[1] == ("kept", "value")
        assert found[2] == ("gone", None)
        header = read_header(await log.read_bytes(2, ReadLimits(max_bytes=1)))
        assert header.delete_horizon_ms == 6000
        assert header.max_timestamp == 200
        await compact(log, result.end_offset, now_ms=5999)
        assert 2 in await records_of(log)
        await compact(log, result.end_offset, now_ms=6000)
        assert 2 not in await records_of(log)

    SimulatedWorld(1).run(scenario)


def test_timestamps_survive_the_delete_horizon() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await put(log, ("a", None), ("b", "x"), timestamp=77)
        await filled(log, count=20)
        await compact(log)
        [record, other] = iterate_records(await log.read_bytes(0, ReadLimits(max_bytes=1)))
        assert (record.timestamp_ms, other.timestamp_ms) == (77, 77)

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_a_compressed_batch_keeps_its_codec(compression: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await put(log, ("a", "1" * 50), ("b", "2"), ("a", "3"), compression=compression)
        await filled(log, count=20)
        await compact(log)
        data = await log.read_bytes(0, ReadLimits(max_bytes=1))
        header = read_header(data)
        assert (header.compression, header.record_count, header.last_offset) == (compression, 2, 2)
        with pytest.raises(CompressedBatch):
            list(iterate_records(data))
        assert (await records_of(log))[2] == ("a", "3")

    SimulatedWorld(1).run(scenario)


def test_the_last_batch_of_a_producer_stays_without_records_until_it_expires() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await put(log, ("k0", "early"), producer=(7, 0))
        await put(log, ("k0", "late"), producer=(7, 1))
        await filled(log)
        result = await compact(log, now_ms=5000)
        header = read_header(await log.read_bytes(0, ReadLimits(max_bytes=1)))
        assert (header.base_offset, header.record_count, header.producer_id, header.base_sequence) == (1, 0, 7, 1)
        await compact(log, result.end_offset, now_ms=50_000)
        assert read_header(await log.read_bytes(0, ReadLimits(max_bytes=1))).producer_id == -1

    SimulatedWorld(1).run(scenario)


def test_a_full_map_compacts_a_part_and_the_next_one_goes_on() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        for number in range(40):
            await put(log, (f"k{number // 2}", f"v{number}"))
        before = latest(await records_of(log))
        small = CompactionSettings(
            segment_bytes=600,
            segment_index_bytes=10 * 1024**2,
            index_interval_bytes=150,
            delete_retention_ms=1000,
            producer_expiration_ms=1000,
            keys_max=4,
            io_buffer_bytes=200,
        )
        first = await compact(log, settings=small)
        assert first.end_offset == 8
        dirty, last = 8, 0
        while dirty != last:
            last, dirty = dirty, (await compact(log, dirty, settings=small)).end_offset
        assert dirty == log.segment_base_offsets[-1]
        found = await records_of(log)
        assert latest(found) == before
        assert [offset for offset in found if offset < dirty] == [offset for offset in range(dirty) if offset % 2]

    SimulatedWorld(1).run(scenario)


def test_nothing_at_or_beyond_the_end_is_compacted() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        bases = log.segment_base_offsets
        result = await compact(log, end=bases[2] - 1)
        assert result.end_offset == bases[1]
        assert set(range(bases[1], 40)) <= set(await records_of(log))

    SimulatedWorld(1).run(scenario)


def test_the_newest_record_is_found_after_a_newer_one_has_gone() -> None:
    """The segment keeps the timestamp of what was removed, because retention counts from it."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await put(log, ("a", "kept"), timestamp=300)
        await put(log, ("k0", "removed"), timestamp=900)
        await log.roll()
        await put(log, ("b", "kept"), timestamp=500)
        await filled(log, count=20)
        await compact(log, settings=replace(SETTINGS, segment_bytes=1))
        assert 1 not in await records_of(log)
        found = await log.offset_of_max_timestamp()
        assert found is not None
        assert (found.timestamp, found.offset) == (500, 2)
        assert await log.durable_segments()[0].load_max_timestamp() == 900
        assert await log.offset_for_timestamp(600) is None

    SimulatedWorld(1).run(scenario)


def test_records_without_keys_go() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        encoded = encode_batch([Record(None, b"no key"), Record(b"k", b"v")])
        await append_batches(log, [(read_header(encoded), memoryview(encoded))], epoch=0).written
        await filled(log, count=20)
        await compact(log)
        assert min(await records_of(log)) == 1

    SimulatedWorld(1).run(scenario)


def test_a_truncation_ends_the_compaction() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        await log.flush()
        is_cut = False

        async def cut_then_go_on(_size: int) -> None:
            nonlocal is_cut
            if not is_cut:
                is_cut = True
                log.lower_recovery_point(Offset(20))
                await log.truncate_to(Offset(20))

        compaction = LogCompaction(
            log, SETTINGS, now_ms=0, pace=cut_then_go_on, is_wanted=lambda: True, has_room=lambda _: True
        )
        with pytest.raises(CompactionEnded):
            await compaction.run(0, 40)
        assert sorted(await records_of(log)) == list(range(20))

    SimulatedWorld(1).run(scenario)


def test_a_truncation_after_the_last_read_ends_the_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last group stays as it is, and while its file is discarded the log is cut below it. What follows the cut is not
    clean."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log, keys=1000)
        discard_cleaned = log.discard_cleaned

        async def cut_meanwhile(cleaned: Segment) -> None:
            if cleaned.base_offset == log.durable_segments()[-1].base_offset:
                log.lower_recovery_point(Offset(20))
                await log.truncate_to(Offset(20))
            await discard_cleaned(cleaned)

        monkeypatch.setattr(log, "discard_cleaned", cut_meanwhile)
        with pytest.raises(CompactionEnded):
            await compact(log, settings=replace(SETTINGS, segment_bytes=600))
        assert sorted(await records_of(log)) == list(range(20))

    SimulatedWorld(1).run(scenario)


def test_a_truncation_just_before_a_swap_ends_the_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap waits for the truncation, which leaves the group as it is, and cuts or removes later segments. They must not
    be read."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        swap_in = log.swap_in

        async def cut_first(cleaned: Segment, replaced: list[Segment]) -> bool:
            log.lower_recovery_point(Offset(20))
            await log.truncate_to(Offset(20))
            return await swap_in(cleaned, replaced)

        monkeypatch.setattr(log, "swap_in", cut_first)
        with pytest.raises(CompactionEnded):
            await compact(log, settings=replace(SETTINGS, segment_bytes=600))
        assert max(await records_of(log)) == 19

    SimulatedWorld(1).run(scenario)


def test_a_group_that_has_lost_a_segment_is_not_swapped_in() -> None:
    """Retention may remove segments after the last one was read."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log)
        await log.flush()
        group = log.durable_segments()[:2]
        cleaned = await log.create_cleaned(group[0].base_offset)
        await log.delete_segments_before(Offset(group[1].base_offset))
        before = log_files(world.disk(PATH)).keys()
        assert not await log.swap_in(cleaned, group)
        await log.discard_cleaned(cleaned)
        assert before - log_files(world.disk(PATH)).keys() == {f"{group[0].base_offset:020}.log.cleaned"}
        assert len(await records_of(log)) == 40 - group[1].base_offset

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("when", range(0, 110, 3))
@pytest.mark.parametrize("first_dirty", [0, 16])
def test_retention_does_not_end_the_compaction(when: int, first_dirty: int) -> None:
    """Retention removes the oldest segment in the midst of a compaction, after this many pieces. The compaction gets to its
    end, unless it is at work on the group of that segment. In no case does a value come back."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        await filled(log, 12)
        await put(log, ("k0", None))
        await filled(log, 28, keys=5)
        await log.flush()
        pieces = 0
        is_at_work = False

        async def delete_then_go_on(_size: int) -> None:
            nonlocal pieces, is_at_work
            pieces += 1
            if pieces == when + 1:
                is_at_work = f"{0:020}.log.cleaned" in log_files(world.disk(PATH))
                await log.delete_segments_before(Offset(log.segment_base_offsets[1]))

        before = latest(await records_of(log))
        end = log.segment_base_offsets[-1]
        settings = replace(SETTINGS, segment_bytes=600, delete_retention_ms=0)
        compaction = LogCompaction(
            log, settings, now_ms=5000, pace=delete_then_go_on, is_wanted=lambda: True, has_room=lambda _: True
        )
        is_ended_early = False
        try:
            assert (await compaction.run(first_dirty, end)).end_offset == end
        except CompactionEnded:
            is_ended_early = True
        assert is_ended_early == is_at_work
        assert (log.log_start_offset > 0) == (when < pieces)
        assert latest(await records_of(log)) == before

    SimulatedWorld(1).run(scenario)


def test_a_segment_that_would_grow_too_large_ends_the_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index could not hold the positions, and the error would end the broker. Here the limit is 500 bytes. The delete
    horizon makes the timestamps of tombstones longer."""
    monkeypatch.setattr(log_compaction, "SEGMENT_BYTES_MAX", 500)

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, LogConfig(segment_bytes=500, index_interval_bytes=150))
        for first in range(0, 100, 25):
            await put(log, *((f"k{first + number}", None) for number in range(25)), timestamp=10**12)
        await log.roll()
        before, files = await records_of(log), log_files(world.disk(PATH)).keys()
        assert max(len(data) for data in log_files(world.disk(PATH)).values()) <= 500
        with pytest.raises(CompactionEnded, match="larger than 2 GiB"):
            await compact(log)
        assert await records_of(log) == before
        assert log_files(world.disk(PATH)).keys() == files

    SimulatedWorld(1).run(scenario)


def damage_base_offset(world: SimulatedWorld, offset: int, bit: int) -> None:
    """Flips one bit of the base offset of the batch at this offset. No checksum covers it."""
    for name in log_files(world.disk(PATH)):
        node = world.disk(PATH).store.find(f"{FOLDER}/{name}")
        assert isinstance(node, FileNode)
        position = 0
        while name.endswith(".log") and position < len(node.content):
            base_offset, length = struct.unpack_from(">qi", node.content, position)
            if base_offset == offset:
                struct.pack_into(">q", node.content, position, base_offset ^ (1 << bit))
                return
            position += length + 12
    raise AssertionError(f"no batch begins at {offset}")


@pytest.mark.parametrize("bit", [3, 4, 5, 31, 40])
def test_a_damaged_offset_ends_the_compaction(bit: int) -> None:
    """With a wrong offset, an older record of the key would count as the latest."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        for number in range(40):
            await put(log, ("K", f"v{number}") if number in (10, 20, 27, 29) else (f"k{number}", f"v{number}"))
        await log.flush()
        files = log_files(world.disk(PATH))
        damage_base_offset(world, 29, bit)
        with pytest.raises(BatchError):
            await compact(log)
        assert log_files(world.disk(PATH)).keys() == files.keys()

    SimulatedWorld(1).run(scenario)


def test_a_damaged_record_is_reported_and_nothing_is_replaced() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await created(world, CONFIG)
        encoded = encode_batch([Record(b"k", b"v")])
        header = read_header(encoded)
        # The record claims to be longer than it is, and the checksum is right.
        broken = bytearray(encoded)
        broken[61] += 2
        again = assemble_batch(header, broken[61:])
        await append_batches(log, [(read_header(again), memoryview(again))], epoch=0).written
        for number in range(20):
            await put(log, (f"k{number}", "v"))
        segments = log.segment_base_offsets
        with pytest.raises(InvalidRecordBatch):
            await compact(log)
        assert log.segment_base_offsets == segments
        assert not [name for name in log_files(world.disk(PATH)) if "cleaned" in name]

    SimulatedWorld(1).run(scenario)
