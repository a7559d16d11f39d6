"""Tests the checker of compactions (I28) on a running cluster: a correct compaction passes, and the planted bug is found."""

import asyncio

import pytest

from common.ids import NO_LEADER
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.history import History
from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.violations import InvariantViolated
from tests.simulation.workload import WorkloadClient

TOPIC = "compacted-1"
BUG = next(bug for bug in PLANTED_BUGS if bug.name == "compaction beyond the high watermark")


async def write_segments(world: SimulatedWorld, *, is_follower_cut_off: bool) -> None:
    """Writes several segments of a compacted topic with acks=1, and lets the cleaner work. If the follower is cut off, they
    stay beyond the high watermark."""
    overrides = {"log.cleaner.backoff.ms": "100", "replica.lag.time.max.ms": "30000"}
    cluster = SimulatedCluster(world, brokers=2, disks=1, overrides=overrides)
    await cluster.start()
    history = History()
    checkers = Checkers(cluster, history)
    checkers.install()
    async with asyncio.TaskGroup() as group:
        client = WorkloadClient(cluster, history, "client", group)
        await client.create_topic(
            TOPIC,
            partitions=1,
            replication_factor=2,
            cleanup_policy="compact",
            segment_bytes="300",
            min_cleanable_dirty_ratio="0.01",
        )
        await cluster.until_in_sync(TOPIC)
        leader = cluster.partitions(TOPIC)[0].leader
        assert leader != NO_LEADER
        if is_follower_cut_off:
            world.network.cut(cluster.name(3 - leader), cluster.name(leader))
        for _ in range(30):
            await client.produce(TOPIC, 0, acks=1)
        await world.sleep(3)
        client.close()
    checkers.stop()
    compacted = [event for event in world.events_named("log_compacted") if event.node == cluster.name(leader)]
    assert bool(compacted) != is_follower_cut_off


@pytest.mark.parametrize("is_follower_cut_off", [False, True])
def test_a_compaction_ends_at_the_last_stable_offset(is_follower_cut_off: bool) -> None:
    """What is replicated is compacted. What is not yet waits."""
    SimulatedWorld(seed=1).run(lambda world: write_segments(world, is_follower_cut_off=is_follower_cut_off))


def test_a_compaction_beyond_the_high_watermark_is_found() -> None:
    """I28: with the planted bug, records that no follower has are compacted."""
    with BUG.planted(), pytest.raises(InvariantViolated, match=r"I28.*compacted-1-0 up to \d+, its last stable offset is"):
        SimulatedWorld(seed=1).run(lambda world: write_segments(world, is_follower_cut_off=True))
