"""A log under any sequence of operations and restarts, compared with the list of batches that it should hold.

Each step is applied to the log and to the list. After each step, and after each restart on the simulated disk, both must
agree.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import Offset
from common.storage.log import Log
from common.storage.log_config import LogConfig
from common.storage.read_limits import ReadLimits
from tests.property.profiles import examples
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, TOPIC_ID, all_offsets, append, attached

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=120)

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12)),
    st.tuples(st.sampled_from(["roll", "flush", "close", "crash", "start over"]), st.just(0)),
    st.tuples(st.sampled_from(["truncate", "delete"]), st.integers(0, 25)),
)


class Model:
    """The expected content: the batches as (first offset, last offset), the log's start and end, and each record's epoch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.start = 0
        self.end = 0
        self.epoch = 0

    def readable(self) -> list[tuple[int, int]]:
        return [found for found in self.batches if found[1] >= self.start]

    def truncate(self, offset: int) -> None:
        cut = [found for found in self.batches if found[1] >= offset]
        if offset >= self.end:
            return
        self.end = min(offset, cut[0][0]) if cut else offset
        self.batches = [found for found in self.batches if found[1] < offset]
        self.start = min(self.start, self.end)


async def apply(world: SimulatedWorld, log: Log, model: Model, step: str, amount: int, life: int) -> Log:
    if step == "append":
        model.epoch += amount % 2
        for number in range(amount):
            appended = append(log, epoch=model.epoch, records=1 + number % 3, size=10 * (number % 4))
            model.batches.append((appended.first_offset, appended.last_offset))
            model.end = appended.last_offset + 1
        await appended.written
    elif step == "roll":
        await log.roll()
    elif step == "flush":
        assert await log.flush() == model.end
    elif step == "truncate":
        offset = max(log.segment_base_offsets[0], model.end - amount)
        model.truncate(offset)
        assert await log.truncate_to(Offset(offset)) == model.end
    elif step == "delete":
        model.start = min(model.end, model.start + amount)
        await log.delete_segments_before(Offset(model.start))
    elif step == "start over":
        model.start = model.end = model.end + 3
        model.batches = []
        await log.truncate_fully_and_start_at(Offset(model.end))
    elif step == "close":
        await log.close()
        log = await load(world, log, model, clean=True, life=life)
        assert log.recovery_point == model.end
    else:
        world.crash(f"a{life}")
        log = await load(world, log, model, clean=False, life=life)
    return log


def epochs_with_records(log: Log, model: Model) -> list[tuple[int, int]]:
    """Returns the epochs that have records. A restart may forget the others, as in Apache Kafka."""
    return [entry for entry in log.leader_epochs.entries if entry[1] < model.end]


async def load(world: SimulatedWorld, log: Log, model: Model, *, clean: bool, life: int) -> Log:
    log_dir = await attached(world, node=f"a{life + 1}")
    loaded = await Log.load(
        log_dir, FOLDER, CONFIG, recovery_point=log.recovery_point, log_start_offset=Offset(model.start), clean=clean
    )
    assert not loaded.recovery.lost_anything
    assert loaded.topic_id == TOPIC_ID
    assert epochs_with_records(loaded, model) == epochs_with_records(log, model)
    return loaded


@pytest.mark.slow
@examples(100)
@given(st.lists(STEPS, max_size=20))
def test_a_log_is_the_list_of_its_batches(steps: list[tuple[str, int]]) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = await Log.create(await attached(world, node="a0"), FOLDER, CONFIG, TOPIC_ID)
        model = Model()
        life = 0
        for step, amount in steps:
            log = await apply(world, log, model, step, amount, life)
            life += step in ("close", "crash")
            assert (log.log_start_offset, log.written_offset, log.log_end_offset) == (model.start, model.end, model.end)
            assert log.recovery_point <= model.end
            assert await all_offsets(log) == model.readable()
            assert log.size_bytes >= 0
        for offset in range(model.start, model.end):
            read = await log.read(offset, ReadLimits(max_bytes=1))
            assert (read.first_offset, read.next_offset - 1) in model.batches

    SimulatedWorld(1).run(scenario)
