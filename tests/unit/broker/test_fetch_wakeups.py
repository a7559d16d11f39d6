"""No fetch waits while there is something to answer it with.

Three brokers replicate a partition over links that fail for moments, so a follower fetches many batches at once. The leader
changes, and consumers read from followers, too (KIP-392). So the high watermark advances by one write and by many, inside of
what a follower has fetched at once, and inside of what a new leader has taken over.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from common.protocol.errors import ErrorCode
from common.records.batch import split_batches
from common.time_units import NS_PER_MS
from tests.unit.broker.cluster import Cluster, batch, run, values
from tests.unit.broker.test_follower_reads import RACK_AWARE

BROKERS = (1, 2, 3)
# How long an answer may take: a few turns of the event loop, a read, and the way of the request.
PATIENCE_NS = 50 * NS_PER_MS


@dataclass(slots=True)
class Reader:
    """A consumer, and the fetch that it is waiting for."""

    broker_id: int = 1
    offset: int = 0
    min_bytes: int = 1
    is_waiting: bool = False
    # Since when there has been enough to answer the fetch with. None while there is not.
    overdue_ns: int | None = None


@dataclass
class Story:
    cluster: Cluster
    rng: random.Random
    readers: list[Reader] = field(default_factory=lambda: [Reader() for _ in range(4)])
    is_over: bool = False
    answers: int = 0

    async def produce(self) -> None:
        """Produces with acks=1, so that the high watermark falls behind."""
        while not self.is_over:
            leader = self.cluster.controller.partition().leader
            records = batch(*["v" * self.rng.randint(1, 100)] * self.rng.randint(1, 3))
            await self.cluster.produce(leader, records=records, acks=1)
            await self.cluster.world.sleep(self.rng.choice([0.001] * 20 + [0.5]))

    async def read(self, reader: Reader) -> None:
        while not self.is_over:
            reader.broker_id, reader.min_bytes = self.rng.choice(BROKERS), self.rng.choice([1, 1, 300, 2000])
            reader.is_waiting, reader.overdue_ns = True, None
            data = await self.cluster.fetch(
                reader.broker_id,
                reader.offset,
                min_bytes=reader.min_bytes,
                max_wait_ms=3000,
                isolation_level=self.rng.randint(0, 1),
            )
            reader.is_waiting = False
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # A change of leaders has cut off what this consumer had read (acks=1).
                reader.offset = 0
            elif data.records:
                self.answers += 1
                reader.offset += len(values(data.records))

    async def trouble(self) -> None:
        while not self.is_over:
            await self.cluster.world.sleep(self.rng.uniform(0.05, 0.5))
            if self.rng.random() < 0.5:
                self.cluster.controller.change(leader=self.rng.choice(BROKERS))
            else:
                one, other = (f"broker-{each}" for each in self.rng.sample(BROKERS, 2))
                self.cluster.world.network.cut(one, other)
                await self.cluster.world.sleep(self.rng.uniform(0.01, 0.3))
                self.cluster.world.network.mend(one, other)

    async def watch(self) -> None:
        """Fails when a fetch has waited for too long with enough to answer it."""
        while not self.is_over:
            now_ns = self.cluster.world.now_ns()
            for reader in self.readers:
                if not (reader.is_waiting and self._readable_bytes(reader) >= reader.min_bytes):
                    reader.overdue_ns = None
                elif reader.overdue_ns is None:
                    reader.overdue_ns = now_ns
                assert reader.overdue_ns is None or now_ns - reader.overdue_ns < PATIENCE_NS, reader
            await self.cluster.world.sleep(0.005)

    def _readable_bytes(self, reader: Reader) -> int:
        end_offset = self.cluster[reader.broker_id].partition().high_watermark
        log = split_batches(self.cluster.log_bytes(reader.broker_id), allow_partial_tail=True)
        return sum(header.size for header, _ in log if reader.offset < header.next_offset <= end_offset)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 6])
def test_no_fetch_waits_while_there_is_enough_to_answer_it(seed: int) -> None:
    """Four consumers with different min.bytes read from any broker. Each fetch is answered as soon as its bytes are below
    the high watermark of the broker that it waits at, whatever happened to the partition before."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in BROKERS:
            await cluster.start(broker_id)
        cluster.controller.create_topic([*BROKERS])
        await cluster.started()
        story = Story(cluster, random.Random(seed))
        async with asyncio.TaskGroup() as group:
            group.create_task(story.produce())
            for _ in range(3):
                group.create_task(story.trouble())
            group.create_task(story.watch())
            for reader in story.readers:
                group.create_task(story.read(reader))
            await cluster.world.sleep(5)
            story.is_over = True
        assert story.answers > 20

    run(scenario, seed=seed, **RACK_AWARE)
