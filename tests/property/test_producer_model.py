"""What a log knows about its producers, under any sequence of operations, restarts and power cuts.

The model is the list of all batches that the log was ever given and did not lose. After each step, the log must know exactly
the producers of these batches: their epochs, their last batches, and no batch that is not in the list. A snapshot keeps one
batch of each producer, so the log may know fewer batches than the model, but always the last one.
"""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import Offset
from common.records.batch import BatchHeader
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.producers.state import ProducerRefused, ProducerState
from common.storage.read_limits import ReadLimits
from tests.property.profiles import examples
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, PATH, TOPIC_ID, append_batches, append_fetched, attached
from tests.unit.common.storage.producers.headers import produced_batch

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=120)
NO_PRODUCER = -1

# (what, producer id, what is special about the batch)
PRODUCE = st.tuples(
    st.just("produce"),
    st.sampled_from([NO_PRODUCER, 1, 1, 2, 3]),
    st.sampled_from(["next", "next", "next", "several", "epoch", "repeat", "gap", "stale"]),
)
OTHERS = st.tuples(
    st.sampled_from(["roll", "flush", "close", "crash", "power cut", "start over", "truncate", "truncate", "delete"]),
    st.integers(0, 12),
    st.just(""),
)
STEPS = st.lists(st.one_of(PRODUCE, PRODUCE, PRODUCE, OTHERS), max_size=40)


class Model:
    """The batches as (first offset, header), and the log's start and end."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, BatchHeader]] = []
        self.start = 0
        self.end = 0

    def state(self) -> ProducerState:
        state = ProducerState()
        for offset, header in self.batches:
            if header.producer_id != NO_PRODUCER:
                state.note(header, offset)
        return state

    def append(self, header: BatchHeader) -> None:
        self.batches.append((self.end, header))
        self.end += header.last_offset_delta + 1

    def cut(self, end: int) -> None:
        self.batches = [each for each in self.batches if each[0] + each[1].last_offset_delta < end]
        self.end = end
        self.start = min(self.start, end)


def drawn_batch(model: Model, producer_id: int, kind: str) -> tuple[BatchHeader, memoryview]:
    entry = model.state().entries.get(producer_id)
    if producer_id == NO_PRODUCER:
        return produced_batch(NO_PRODUCER, -1, epoch=-1)
    epoch, sequence = (0, 0) if entry is None else (entry.epoch, entry.last_sequence + 1)
    match kind:
        case "several":
            return produced_batch(producer_id, sequence, epoch=epoch, records=3)
        case "epoch":
            return produced_batch(producer_id, 0, epoch=epoch + 1)
        case "gap":
            return produced_batch(producer_id, sequence + 1, epoch=epoch)
        case "stale":
            return produced_batch(producer_id, 0, epoch=epoch - 1)
        case "repeat" if entry is not None:
            last = entry.batches[-1]
            records = last.last_offset - last.first_offset + 1
            return produced_batch(producer_id, last.first_sequence, epoch=epoch, records=records)
    return produced_batch(producer_id, sequence, epoch=epoch)


async def produce(log: Log, model: Model, producer_id: int, kind: str) -> None:
    header, view = drawn_batch(model, producer_id, kind)
    if producer_id != NO_PRODUCER:
        expected = actual = None
        with suppress(ProducerRefused):
            expected = model.state().find_duplicate(header) or "new"
        with suppress(ProducerRefused):
            actual = log.find_duplicate(header) or "new"
        if isinstance(expected, tuple):
            assert isinstance(actual, tuple)
            assert (actual.first_offset, actual.last_offset) == (expected.first_offset, expected.last_offset)
        else:
            assert actual == expected
        if actual != "new":
            return
    model.append(header)
    await append_batches(log, [(header, view)], epoch=0).written


class Run:
    """One log through several lives."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.model = Model()
        self.life = 0

    async def step(self, log: Log, what: str, amount: int) -> Log:
        model = self.model
        if what == "roll":
            await log.roll()
        elif what == "flush":
            await log.flush()
        elif what == "truncate":
            offset = max(log.segment_base_offsets[0], model.end - amount)
            if offset < model.end:
                log.lower_recovery_point(Offset(offset))
                model.cut(await log.truncate_to(Offset(offset)))
        elif what == "delete":
            model.start = min(model.end, model.start + amount)
            await log.delete_segments_before(Offset(model.start))
        elif what == "start over":
            await log.truncate_fully_and_start_at(Offset(model.end + amount))
            self.model = Model()
            self.model.start = self.model.end = log.log_end_offset
        elif what == "close":
            await log.close()
            log = await self.load(log, clean=True)
        else:
            self.world.crash(f"a{self.life}")
            if what == "power cut":
                self.world.disk(PATH).lose_unsynced(random.Random(amount))
            log = await self.load(log, clean=False)
        return log

    async def load(self, log: Log, *, clean: bool) -> Log:
        self.life += 1
        log_dir = await attached(self.world, node=f"a{self.life}")
        recovery_point, start = log.recovery_point, Offset(self.model.start)
        loaded = await Log.load(log_dir, FOLDER, CONFIG, recovery_point=recovery_point, log_start_offset=start, clean=clean)
        if loaded.recovery.lost_anything and loaded.log_end_offset == start and not loaded.producers.state.entries:
            # What was left ended below the log start, so the log has started over.
            self.model = Model()
        self.model.cut(loaded.log_end_offset)
        self.model.start = loaded.log_start_offset
        return loaded


def check(log: Log, model: Model) -> None:
    known, expected = log.producers.state.entries, model.state().entries
    assert known.keys() == expected.keys()
    for producer_id, entry in known.items():
        assert entry.epoch == expected[producer_id].epoch
        assert entry.last_timestamp == expected[producer_id].last_timestamp
        assert entry.batches == expected[producer_id].batches[-len(entry.batches) :]
        assert entry.batches


@pytest.mark.slow
@examples(150)
@given(STEPS)
def test_a_log_knows_the_producers_of_its_batches(steps: list[tuple[str, int, str]]) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world, node="a0"), FOLDER, CONFIG, TOPIC_ID)
        run = Run(world)
        for what, amount, kind in steps:
            if what == "produce":
                await produce(log, run.model, amount, kind)
            else:
                log = await run.step(log, what, amount)
            check(log, run.model)
        start = (await log.read(log.log_start_offset, ReadLimits(max_bytes=1))).first_offset
        follower = await Log.create(log.log_dir, "t-1", CONFIG, TOPIC_ID, start_offset=start)
        while data := await log.read_bytes(max(log.log_start_offset, follower.log_end_offset), ReadLimits(max_bytes=300)):
            await append_fetched(follower, memoryview(data)).written
        for producer_id, entry in follower.producers.state.entries.items():
            assert entry.batches[-1:] == log.producers.state.entries[producer_id].batches[-1:]

    SimulatedWorld(1).run(scenario)
