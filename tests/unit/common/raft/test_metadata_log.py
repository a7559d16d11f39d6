"""The metadata log of a node that ended during its very first start."""

import random

from common.environment.interface import LogDir
from common.raft.core.offsets import METADATA_LOG_FOLDER
from common.raft.metadata_log import MetadataLog
from common.storage.partition_metadata import MalformedPartitionMetadata, load_partition_metadata
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.unit.common.raft.nodes import Config

PATH = "/metadata"


async def attached(env: SimulatedEnvironment) -> LogDir:
    env.world.disk(PATH)
    log_dir = env.log_dir(PATH, operation_timeout_ns=10**10)
    await log_dir.attach()
    return log_dir


def test_a_power_cut_during_the_creation_leaves_nothing_that_a_start_stumbles_over() -> None:
    """partition.metadata may be missing, empty or torn. The next start begins again."""
    left: set[str] = set()

    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        log_dir = await attached(env)

        async def load(env: SimulatedEnvironment) -> None:
            await MetadataLog.load(env, log_dir, Config())

        env.start(load)
        await world.sleep(random.Random(world.seed).uniform(0, 0.003))
        world.power_cut("a")
        log_dir = await attached(world.node("a"))
        try:
            topic_id = await load_partition_metadata(log_dir, METADATA_LOG_FOLDER)
            left.add("none" if topic_id is None else "whole")
        except MalformedPartitionMetadata:
            left.add("torn")
        metadata_log = await MetadataLog.load(world.node("a"), log_dir, Config())
        assert metadata_log.log.log_end_offset == 0
        assert await load_partition_metadata(log_dir, METADATA_LOG_FOLDER) is not None

    for seed in range(1, 61):
        SimulatedWorld(seed).run(scenario)
    assert left == {"none", "torn", "whole"}


def test_a_log_that_a_kill_left_unsynced_is_synced_at_the_next_start() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("a")
        log_dir = await attached(env)

        async def load(env: SimulatedEnvironment) -> None:
            await MetadataLog.load(env, log_dir, Config())

        world.operation_watchers.append(lambda _, kind, __: world.crash("a") if kind == "create_folders" else None)
        env.start(load)
        await world.until(lambda: env.is_dead)
        world.operation_watchers.clear()
        assert world.disk(PATH).durable_files() == {}
        log_dir = await attached(world.node("a"))
        await MetadataLog.load(world.node("a"), log_dir, Config())
        assert len(world.disk(PATH).durable_files()) == 2

    SimulatedWorld(1).run(scenario)
