"""Segments, indexes and leader epochs compared with naive models, under every truncation and random damage.

The real code writes each log on a simulated disk; the model is the list of its batches. A recovered log must be the longest
prefix of that list that the damage allows. It must then serve reads and grow as if it had never been longer.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import LeaderEpoch, Offset
from common.records.batch import read_header
from common.storage.errors import OffsetOutOfRange
from common.storage.leader_epochs import LeaderEpochs
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.names import parse_segment_file
from common.storage.read_limits import ReadLimits
from tests.property.profiles import examples
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    TOPIC_ID,
    all_offsets,
    append,
    append_fetched,
    attached,
    batch,
    concatenated,
    log_files,
    offsets_in,
)

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=150)
Scenario = Callable[[SimulatedWorld], Coroutine[None, None, None]]


@dataclass(frozen=True)
class Written:
    """The files of a log, and its batches as (first offset, last offset)."""

    files: dict[str, bytes]
    batches: tuple[tuple[int, int], ...]
    epochs: tuple[tuple[int, int], ...]


@cache
def written_log(*, closed: bool) -> Written:
    """A log with three segments, several epochs and batch sizes, either closed cleanly or left by a crash."""
    result: list[Written] = []

    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world), FOLDER, CONFIG, TOPIC_ID)
        for number in range(14):
            append(log, epoch=number // 4, records=1 + number % 3, timestamp=100 * number, size=5 * (number % 5))
        await log.flush()
        batches = tuple(await all_offsets(log))
        assert len(log.segment_base_offsets) == 3
        if closed:
            await log.close()
        result.append(Written(log_files(world.disk(PATH)), batches, tuple(log.leader_epochs.entries)))

    SimulatedWorld(1).run(scenario)
    return result[0]


async def load(world: SimulatedWorld, files: dict[str, bytes], *, clean: bool = False, recovery_point: int = 0) -> Log:
    log_dir = await attached(world)
    for name, content in files.items():
        world.disk(PATH).write(f"{FOLDER}/{name}", content)
    return await Log.load(log_dir, FOLDER, CONFIG, recovery_point=Offset(recovery_point), clean=clean)


async def check_serves_and_grows(log: Log, batches: list[tuple[int, int]]) -> None:
    """The log holds exactly these batches, finds them from every offset, and can append more that survive the next start."""
    end = batches[-1][1] + 1 if batches else 0
    assert (log.log_end_offset, log.written_offset) == (end, end)
    assert await all_offsets(log) == batches
    for first, last in batches:
        for offset in range(first, last + 1):
            assert offsets_in(await log.read_bytes(offset, ReadLimits(max_bytes=1))) == [(first, last)]
    for _ in range(8):
        append(log, epoch=9)
    await log.flush()
    more = [*batches, *((end + number, end + number) for number in range(8))]
    assert await all_offsets(log) == more
    again = await Log.load(log.log_dir, FOLDER, CONFIG)
    assert not again.recovery.lost_anything
    assert await all_offsets(again) == more
    assert again.leader_epochs.entries == log.leader_epochs.entries


def segments_of(written: Written) -> list[str]:
    return sorted(name for name in written.files if name.endswith(".log"))


def whole_batches(written: Written, segment: str, size: int) -> list[tuple[int, int]]:
    """Returns all batches before `segment`, and the batches that lie entirely within the first `size` bytes of `segment`."""
    parsed = parse_segment_file(segment)
    assert parsed is not None
    kept = [found for found in written.batches if found[0] < parsed[0]]
    position, data = 0, written.files[segment]
    while position < len(data) and position + read_header(data, position).size <= size:
        header = read_header(data, position)
        kept.append((header.base_offset, header.last_offset))
        position += header.size
    return kept


@pytest.mark.slow
@pytest.mark.parametrize(("segment_number", "clean"), [(0, False), (1, False), (2, False), (2, True)])
def test_a_segment_cut_at_any_point_gives_its_whole_batches(segment_number: int, clean: bool) -> None:
    # Cut the segment to every length from zero to one byte less than its size. With the clean-shutdown marker recovery looks
    # only at the newest segment, so only that one is cut.
    written = written_log(closed=clean)
    segment = segments_of(written)[segment_number]
    for size in range(len(written.files[segment])):
        expected = whole_batches(written, segment, size)

        async def scenario(world: SimulatedWorld, size: int = size, expected: list[tuple[int, int]] = expected) -> None:
            log = await load(world, {**written.files, segment: written.files[segment][:size]}, clean=clean)
            assert await all_offsets(log) == expected
            is_boundary = expected != whole_batches(written, segment, size - 1) or size == 0
            # If the newest segment is cut between two batches, recovery cannot detect the loss. The log looks as if the
            # crash had happened before the missing batches were written.
            assert log.recovery.lost_anything == (not is_boundary or segment_number != 2)
            assert log.leader_epochs.entries == [
                entry for entry in written.epochs if expected and entry[1] <= expected[-1][1]
            ]
            if size % 7 == 0:
                await check_serves_and_grows(log, expected)

        SimulatedWorld(size).run(scenario)


def test_zeros_and_garbage_behind_the_end_are_cut_off() -> None:
    # After a power cut, file systems may leave zeros or garbage after the last byte that was written.
    written = written_log(closed=False)
    segment = segments_of(written)[-1]
    for tail in (bytes(1), bytes(61), bytes(5000), b"\xff" * 100, written.files[segment][:-1]):

        async def scenario(world: SimulatedWorld, tail: bytes = tail) -> None:
            log = await load(world, {**written.files, segment: written.files[segment] + tail})
            assert log.recovery.lost_anything
            assert log.recovery.truncated_bytes == len(tail)
            await check_serves_and_grows(log, list(written.batches))

        SimulatedWorld(1).run(scenario)


@pytest.mark.slow
@examples(150)
@given(st.data())
def test_a_flipped_byte_costs_what_lies_behind_it_and_nothing_else(data: st.DataObject) -> None:
    written = written_log(closed=data.draw(st.booleans()))
    name = data.draw(st.sampled_from(sorted(written.files)))
    content = bytearray(written.files[name])
    if not content or name == "partition.metadata":
        return
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))

    async def scenario(world: SimulatedWorld) -> None:
        log = await load(world, {**written.files, name: bytes(content)})
        expected = list(written.batches)
        if name.endswith(".log"):
            expected = whole_batches(written, name, position)
            found = await all_offsets(log)
            assert found[: len(expected)] == expected
            if is_outside_the_checksum(written.files[name], position):
                # Recovery cannot tell a damaged base offset from a gap, nor a damaged epoch from an election, so it may cut
                # off the batches that follow.
                return
        await check_serves_and_grows(log, expected)

    SimulatedWorld(1).run(scenario)


def is_outside_the_checksum(segment: bytes, position: int) -> bool:
    """Whether the byte belongs to a base offset or a leader epoch. The leader stamps these fields, so the checksum does not
    cover them."""
    start = 0
    while start + read_header(segment, start).size <= position:
        start += read_header(segment, start).size
    return position - start in (*range(8), *range(12, 16))


@pytest.mark.slow
@examples(60)
@given(st.data())
def test_missing_or_damaged_indexes_and_epochs_are_rebuilt(data: st.DataObject) -> None:
    # With the clean-shutdown marker nothing is validated on startup: indexes are checked on the first read.
    written = written_log(closed=True)
    files = dict(written.files)
    for name in sorted(files):
        if name.endswith(".log") or name == "partition.metadata":
            continue
        damage = data.draw(st.sampled_from(["keep", "remove", "cut", "zeros", "garbage"]), label=name)
        if damage == "remove":
            del files[name]
        elif damage == "cut":
            files[name] = files[name][: data.draw(st.integers(0, max(0, len(files[name]) - 1)))]
        elif damage == "zeros":
            files[name] = bytes(data.draw(st.integers(0, 40)))
        elif damage == "garbage":
            files[name] = data.draw(st.binary(max_size=40))

    async def scenario(world: SimulatedWorld) -> None:
        log = await load(world, files, clean=True)
        assert not log.recovery.lost_anything
        last = await log.offset_of_max_timestamp()
        assert last is not None
        assert last.offset == written.batches[-1][1]
        await check_serves_and_grows(log, list(written.batches))

    SimulatedWorld(1).run(scenario)


def test_a_lost_segment_in_the_middle_ends_the_log_before_it() -> None:
    # A power cut may keep a newer file and lose an older, unsynced one. The log must end before the lost segment.
    written = written_log(closed=False)
    for lost in segments_of(written)[:2]:
        files = {name: content for name, content in written.files.items() if name != lost}
        for kept_empty in (False, True):
            left = files | {lost: b""} if kept_empty else files

            async def scenario(
                world: SimulatedWorld, lost: str = lost, kept_empty: bool = kept_empty, left: dict[str, bytes] = left
            ) -> None:
                log = await load(world, left)
                expected = whole_batches(written, lost, 0)
                if expected or kept_empty:
                    assert log.recovery.lost_anything
                    await check_serves_and_grows(log, expected)
                else:
                    # If the oldest segment vanishes entirely, the log looks as if retention had deleted that segment.
                    assert log.log_start_offset == log.segment_base_offsets[0] > 0

            SimulatedWorld(1).run(scenario)


def test_what_lies_below_the_recovery_point_is_not_validated() -> None:
    # Segments below the recovery point are trusted. Damage in them is only noticed when they are read.
    written = written_log(closed=False)
    names = segments_of(written)
    parsed = parse_segment_file(names[2])
    assert parsed is not None
    damaged = bytearray(written.files[names[0]])
    damaged[62] ^= 1

    async def scenario(world: SimulatedWorld) -> None:
        log = await load(world, {**written.files, names[0]: bytes(damaged)}, recovery_point=parsed[0])
        assert log.recovery.validated_segments == 1
        assert not log.recovery.lost_anything
        assert log.recovery_point == parsed[0]
        assert await all_offsets(log) == list(written.batches)
        assert log.leader_epochs.entries == list(written.epochs)

    SimulatedWorld(1).run(scenario)


def test_a_log_that_lost_everything_above_its_start_begins_there_anew() -> None:
    written = written_log(closed=False)

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        for name, content in written.files.items():
            world.disk(PATH).write(f"{FOLDER}/{name}", content)
        log = await Log.load(log_dir, FOLDER, CONFIG, log_start_offset=Offset(100))
        assert log.recovery.lost_anything
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (100, 100, 0)
        assert append(log).first_offset == 100

    SimulatedWorld(1).run(scenario)


def test_leftovers_of_an_earlier_life_go() -> None:
    written = written_log(closed=True)
    leftovers = {
        f"{0:020d}.log.deleted": b"x",
        f"{7:020d}.index": b"x",
        f"{7:020d}.timeindex": b"x",
        f"{7:020d}.log.cleaned": b"x",
        "leader-epoch-checkpoint.tmp": b"x",
    }

    async def scenario(world: SimulatedWorld) -> None:
        log = await load(world, written.files | leftovers | {"somebody.elses": b"y"})
        left = log_files(world.disk(PATH))
        assert not leftovers.keys() & left.keys()
        assert left["somebody.elses"] == b"y"
        await check_serves_and_grows(log, list(written.batches))

    SimulatedWorld(1).run(scenario)


def test_an_empty_folder_is_an_empty_log() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.mkdir(FOLDER)
        log = await Log.load(log_dir, FOLDER, CONFIG, log_start_offset=Offset(5))
        assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (5, 5, None)
        assert append(log).first_offset == 5

    SimulatedWorld(1).run(scenario)


# --- reads against a naive scan -----------------------------------------------------------------------------------
batch_shapes = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 120), st.integers(0, 50)), min_size=1, max_size=40
)


@pytest.mark.slow
@examples(120)
@given(
    shapes=batch_shapes,
    segment_bytes=st.sampled_from([200, 600, 10_000]),
    index_interval=st.sampled_from([0, 100, 500]),
    queries=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 900), st.floats(0, 1), st.booleans()), min_size=5, max_size=30
    ),
    life=st.sampled_from(["running", "closed", "crashed"]),
)
def test_reads_and_searches_by_time_equal_a_scan(
    shapes: list[tuple[int, int, int, int]],
    segment_bytes: int,
    index_interval: int,
    queries: list[tuple[float, int, float, bool]],
    life: str,
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval)

    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world), FOLDER, config, TOPIC_ID)
        model: list[tuple[int, int, int, int]] = []  # first, last, size, timestamp of the first record
        for records, gap, size, timestamp in shapes:
            header, view = batch(records, offset=log.log_end_offset + gap, epoch=0, size=size, timestamp=timestamp)
            append_fetched(log, concatenated([(header, view)]))
            model.append((header.base_offset, header.last_offset, header.size, timestamp))
        await log.flush()
        if life == "closed":
            await log.close()
        if life != "running":
            log = await Log.load(log.log_dir, FOLDER, config, clean=life == "closed")
        end = log.log_end_offset
        for where, max_bytes, upper_where, min_one in queries:
            offset, upper = round(where * end), round(upper_where * (end + 1))
            data = await log.read_bytes(offset, ReadLimits(max_bytes=max_bytes, upper_offset=upper, min_one_batch=min_one))
            check_read(model, offset, max_bytes, upper, min_one, log.segment_base_offsets, offsets_in(data))
        for timestamp in range(0, 60, 7):
            found = await log.offset_for_timestamp(timestamp)
            exact = next(
                (
                    (time + number, first + number)
                    for first, last, _, time in model
                    for number in range(last - first + 1)
                    if time + number >= timestamp
                ),
                None,
            )
            assert (None if found is None else (found.timestamp, found.offset)) == exact
        newest = await log.offset_of_max_timestamp()
        times = [(time + last - first, -last) for first, last, _, time in model]
        assert newest is not None
        assert (newest.timestamp, -newest.offset) == max(times)
        with pytest.raises(OffsetOutOfRange):
            await log.read(end + 1, ReadLimits(max_bytes=1))

    SimulatedWorld(1).run(scenario)


def check_read(
    model: list[tuple[int, int, int, int]],
    offset: int,
    max_bytes: int,
    upper: int,
    min_one: bool,
    bases: list[Offset],
    found: list[tuple[int, int]],
) -> None:
    """A read must return the batches that a scan of the model finds, up to the end of a segment."""
    first = next((number for number, entry in enumerate(model) if entry[1] >= offset), len(model))
    expected: list[tuple[int, int]] = []
    room = max_bytes
    for base_offset, last_offset, size, _ in model[first:]:
        is_other_segment = expected and any(expected[-1][1] < base <= base_offset for base in bases)
        fits = size <= room or (min_one and not expected)
        if is_other_segment or not fits or last_offset >= upper or offset >= upper:
            break
        expected.append((base_offset, last_offset))
        room -= size
    assert found == expected


# --- leader epochs ------------------------------------------------------------------------------------------------
class NaiveEpochs:
    """Every record's epoch, in a plain dictionary."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.start = 0
        self.end = 0

    def append(self, epoch: int, records: int) -> None:
        for offset in range(self.end, self.end + records):
            self.epochs[offset] = epoch
        self.end += records

    def truncate_from_end(self, end: int) -> None:
        self.end = min(self.end, end)
        self.epochs = {offset: epoch for offset, epoch in self.epochs.items() if offset < self.end}

    def truncate_from_start(self, start: int) -> None:
        self.start = start
        self.epochs = {offset: epoch for offset, epoch in self.epochs.items() if offset >= start}

    def end_offset_for(self, asked: int) -> tuple[int, int]:
        if asked > max(self.epochs.values()):
            return -1, -1
        known = [epoch for epoch in self.epochs.values() if epoch <= asked]
        higher = [offset for offset, epoch in self.epochs.items() if epoch > asked]
        return (max(known) if known else asked), (min(higher) if higher else self.end)


@examples(200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 5)),
            st.tuples(st.just("cut"), st.integers(0, 10), st.just(0)),
            st.tuples(st.just("start"), st.integers(0, 10), st.just(0)),
        ),
        max_size=25,
    )
)
def test_leader_epochs_equal_a_record_by_record_model(steps: list[tuple[str, int, int]]) -> None:
    cache, model = LeaderEpochs(), NaiveEpochs()
    epoch = 0
    for step, amount, records in steps:
        if step == "append":
            epoch += amount
            cache.assign(LeaderEpoch(epoch), Offset(model.end))
            model.append(epoch, records)
        elif step == "cut":
            cut = max(model.start, model.end - amount)
            cache.truncate_from_end(Offset(cut))
            model.truncate_from_end(cut)
        elif model.epochs:
            start = min(model.start + amount, model.end - 1)
            cache.truncate_from_start(Offset(start))
            model.truncate_from_start(start)
        if not model.epochs:
            continue
        for asked in range(epoch + 2):
            assert cache.end_offset_for(LeaderEpoch(asked), Offset(model.end)) == model.end_offset_for(asked)
        assert [cache.epoch_at(Offset(offset)) for offset in sorted(model.epochs)] == [
            model.epochs[offset] for offset in sorted(model.epochs)
        ]
        assert LeaderEpochs.parse(cache.format()).entries == cache.entries
