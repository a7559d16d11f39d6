"""Compaction compared with a model: random keys, tombstones, batch sizes, codecs, rolls, compactions, kills and power cuts.

The model is the list of everything that was written. Whatever happens, what a reader of the log ends up with for each key is
what the model has, every record that is found is the one written at its offset, and a tombstone that has gone left nothing.
"""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import Offset
from common.storage.compaction.log_compaction import Compacted, CompactionSettings
from common.storage.errors import LogClosed
from common.storage.log import Log
from tests.property.profiles import examples
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, PATH, attached, created, log_files
from tests.unit.common.storage.test_log_compaction import CONFIG, Pair, compact, latest, put, records_of

HORIZON_MS = 1000


class Run:
    """One log through appends, compactions and crashes."""

    def __init__(self, world: SimulatedWorld, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.written: dict[int, Pair] = {}
        self.first_dirty = 0
        self.now_ms = 0
        self.settings = CompactionSettings(
            segment_bytes=rng.choice([600, 1300, 5000]),
            segment_index_bytes=10 * 1024**2,
            index_interval_bytes=150,
            delete_retention_ms=HORIZON_MS,
            producer_expiration_ms=500,
            keys_max=rng.choice([3, 1000]),
            io_buffer_bytes=rng.choice([100, 10_000]),
        )

    async def run(self) -> None:
        log = await created(self.world, CONFIG)
        for _ in range(self.rng.randint(2, 5)):
            await self.append(log)
            self.now_ms += self.rng.choice([0, HORIZON_MS // 2, 2 * HORIZON_MS])
            if self.rng.random() < 0.4:
                log = await self.crash_during_a_compaction(log)
            else:
                self.first_dirty = (await self.compact(log)).end_offset
            await self.check(log)

    async def append(self, log: Log) -> None:
        for _ in range(self.rng.randint(5, 25)):
            pairs: list[Pair] = []
            for _ in range(self.rng.randint(1, 5)):
                value = None if self.rng.random() < 0.2 else f"v{log.log_end_offset + len(pairs)}"
                pairs.append((f"key {self.rng.randint(0, 6)}" + "." * self.rng.choice([0, 30]), value))
            self.written |= dict(enumerate(pairs, start=log.log_end_offset))
            producer = (self.rng.randint(1, 3), len(self.written)) if self.rng.random() < 0.3 else None
            await put(log, *pairs, compression=self.rng.choice([0, 0, 1, 4]), producer=producer)
        if self.rng.random() < 0.5:
            await log.roll()
        await log.flush()

    async def compact(self, log: Log) -> Compacted:
        return await compact(log, self.first_dirty, now_ms=self.now_ms, settings=self.settings)

    async def crash_during_a_compaction(self, log: Log) -> Log:
        recovery_point = self.rng.choice([log.recovery_point, Offset(0)])
        ended = asyncio.Event()
        left = self.rng.randint(0, 60)
        end = self.rng.choice([self.world.crash, self.world.power_cut])

        def count(_path: str, _kind: str, _name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                end("a")
                ended.set()

        self.world.operation_watchers.append(count)
        running = asyncio.ensure_future(self.compact(log))
        waiting = asyncio.ensure_future(ended.wait())
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not ended.is_set():
            end("a")
        for task in (running, waiting):
            task.cancel()
        results = await asyncio.gather(running, waiting, return_exceptions=True)
        assert not [each for each in results if isinstance(each, Exception) and not isinstance(each, LogClosed)]
        self.world.operation_watchers.clear()
        again = await Log.load(await attached(self.world), FOLDER, CONFIG, recovery_point=recovery_point)
        assert not again.recovery.lost_anything
        return again

    async def check(self, log: Log) -> None:
        found = await records_of(log)
        assert log.log_end_offset == len(self.written)
        assert all(self.written[offset] == pair for offset, pair in found.items())
        assert values(found) == values(self.written)
        assert not [name for name in log_files(self.world.disk(PATH)) if name.endswith((".cleaned", ".swap", ".deleted"))]


def values(found: dict[int, Pair]) -> dict[str, str | None]:
    """What a reader of the whole log has for each key, without the keys that are deleted."""
    return {key: value for key, value in latest(found).items() if value is not None}


@given(seed=st.integers(0, 2**32))
@pytest.mark.slow
@examples(60)
def test_the_latest_value_of_each_key_survives(seed: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        await Run(world, random.Random(seed)).run()

    SimulatedWorld(seed).run(scenario)
