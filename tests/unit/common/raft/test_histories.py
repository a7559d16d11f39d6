"""Random histories of one controller and two observers: nothing committed is lost, and all logs agree.

Each seed is one history of appends, crashes (some with a torn log tail), snapshots after which the log is cut, and pauses.
At the end every node is restarted, and all of them must agree.
"""

import random

import pytest

from common.raft.errors import NotLeader
from common.records.batch import BATCH_OVERHEAD, read_header
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.raft.nodes import Config, QuorumNode

STEPS = 40
CONFIG = Config(metadata_max_retention_bytes=2_000, metadata_log_max_record_bytes_between_snapshots=1_500)


class History:
    def __init__(self, world: SimulatedWorld, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.controller = QuorumNode(world, "one", 1, config=CONFIG)
        self.observers = [QuorumNode(world, f"observer-{number}", number, config=CONFIG) for number in (101, 102)]
        self.scheduled = 0
        # The topics whose commit the controller has seen, and may have acknowledged to clients.
        self.acknowledged: set[str] = set()

    async def run(self) -> None:
        for node in (self.controller, *self.observers):
            await node.start()
        await self.controller.leads()
        for _ in range(STEPS):
            await self.rng.choices(
                [self.append, self.pause, self.crash_controller, self.crash_observer, self.snapshot], [10, 3, 1, 1, 1]
            )[0]()
        await self.agree()

    async def append(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            names = [f"{self.scheduled:04d}-{number}" for number in range(self.rng.randrange(1, 5))]
            self.scheduled += 1
            try:
                self.controller.schedule(*names)
            except NotLeader:
                continue

    async def pause(self) -> None:
        await self.world.sleep(self.rng.choice([0.0001, 0.002, 0.05, 0.7]))

    async def crash_controller(self) -> None:
        committed = self.controller.driver.high_watermark
        self.acknowledged.update(self.controller.listener.topics)
        self.controller.crash()
        if self.rng.random() < 0.5:
            self.tear(self.controller, committed)
        await self.world.sleep(self.rng.choice([0, 0.1, 3]))
        await self.controller.start()
        await self.controller.leads()

    async def crash_observer(self) -> None:
        node = self.rng.choice(self.observers)
        applied = node.driver.high_watermark
        node.crash()
        # An observer does not sync its log, so a power cut may lose any part of it.
        if self.rng.random() < 0.5:
            self.tear(node, self.rng.randrange(applied + 1))
        await node.start()

    async def snapshot(self) -> None:
        await self.rng.choice([self.controller, *self.observers]).driver.write_snapshot()

    def tear(self, node: QuorumNode, kept_offset: int) -> None:
        """Simulates a power cut: truncates the newest segment anywhere at or after `kept_offset`."""
        name = max(name for name in node.files() if name.endswith(".log"))
        entry = node.file(name)
        content = entry.content
        position = 0
        while len(content) - position >= BATCH_OVERHEAD:
            header = read_header(content, position)
            if header.next_offset > kept_offset or position + header.size > len(content):
                break
            position += header.size
        entry.rewrite(content[: self.rng.randrange(position, len(content) + 1)])

    async def agree(self) -> None:
        await self.controller.add("the-end")
        for node in self.observers:
            await self.world.until(lambda node=node: "the-end" in node.listener.topics)  # type: ignore[misc]
        told = self.controller.listener.topics
        for node in self.observers:
            assert sorted(node.listener.topics) == sorted(told)
            assert node.failure is None
        assert self.controller.failure is None
        assert self.acknowledged <= set(told)
        assert len(set(told)) == len(told)
        for node in (self.controller, *self.observers):
            await node.restart()
        await self.controller.leads()
        await self.controller.add("after-the-end")
        for node in (self.controller, *self.observers):
            await self.world.until(lambda node=node: "after-the-end" in node.listener.topics)  # type: ignore[misc]
            assert sorted(node.listener.topics) == sorted([*told, "after-the-end"])


@pytest.mark.parametrize("seed", range(25))
def test_what_is_committed_stays(seed: int) -> None:
    """At the end every acknowledged record is present exactly once, and all nodes have the same set."""

    async def scenario(world: SimulatedWorld) -> None:
        await History(world, seed).run()

    SimulatedWorld(seed).run(scenario)
