"""A newer release finalized a feature level that this node does not know: the node must end with one log line that says why.

The nodes run the code of `kafka-server-start` on a metadata log with records that only another release would write.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from common.ids import LeaderEpoch, Offset
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, METADATA_VERSION_FEATURE
from common.protocol.numbering import Numbering
from common.raft.bootstrap import bootstrap_records
from common.raft.core.offsets import OffsetAndEpoch, snapshot_path
from common.raft.core.snapshot_content import SnapshotEncoder
from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld

Scenario = Callable[[SimulatedCluster, SimulatedClient], Awaitable[None]]


def run(scenario: Scenario) -> None:
    """Runs the scenario on a cluster with one broker."""

    async def in_world(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2, overrides={"default.replication.factor": "1"})
        await cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await scenario(cluster, client)
            client.close()

    SimulatedWorld(seed=1).run(in_world)


async def until_it_ended_over(cluster: SimulatedCluster, node_id: int, text: str) -> None:
    """Waits until the node has ended. Its status must be 1, and its last words must contain `text`."""
    env = cluster.env(node_id)
    await cluster.world.until(lambda: env.is_dead)
    assert env.exit_code == 1
    assert text in cluster.last_words(node_id)


LEVELS = pytest.mark.parametrize(
    ("name", "level", "line"),
    [
        (METADATA_VERSION_FEATURE, 34, "feature metadata.version is finalized at level 34, this node supports 1 to 33"),
        ("share.version", 1, "feature share.version is finalized at level 1, this node supports 0 to 0"),
        (DIRECTORY_NUMBERING_FEATURE, 2, "diskraft.directory.numbering"),
    ],
)


@LEVELS
def test_a_running_broker_ends(name: str, level: int, line: str) -> None:
    """The broker ends when it fetches the record with the unknown level from the active controller. Started again, it ends
    when it reads its own log."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        cluster.finalize_feature(name, level)
        await until_it_ended_over(cluster, 1, line)
        cluster.start_node(1)
        await until_it_ended_over(cluster, 1, line)

    run(scenario)


@LEVELS
def test_a_controller_that_reads_its_log_ends(name: str, level: int, line: str) -> None:
    """The controller ends while it reads its log, before it becomes active and could write anything."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        cluster.finalize_feature(name, level)
        await until_it_ended_over(cluster, 1, line)
        cluster.crash(CONTROLLER_ID)
        was_active = len(cluster.world.events_named("controller_active"))
        cluster.start_node(CONTROLLER_ID)
        await until_it_ended_over(cluster, CONTROLLER_ID, line)
        assert len(cluster.world.events_named("controller_active")) == was_active

    run(scenario)


def test_a_node_that_loads_a_snapshot_ends() -> None:
    """Only the snapshot contains the unknown level. The snapshot ends beyond the log, so the node loads it."""
    line = "feature metadata.version is finalized at level 34, this node supports 1 to 33"

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        cluster.crash(CONTROLLER_ID)
        encoder = SnapshotEncoder(epoch=LeaderEpoch(1), numbering=Numbering.KIP858, written_ms=0)
        content = [encoder.header(0), *encoder.records(bootstrap_records(34)), encoder.footer()]
        path = snapshot_path(OffsetAndEpoch(Offset(10_000), LeaderEpoch(1)))
        cluster.world.disk("/controller/metadata").write(path, b"".join(content))
        cluster.start_node(CONTROLLER_ID)
        await until_it_ended_over(cluster, CONTROLLER_ID, line)

    run(scenario)


@pytest.mark.parametrize(("name", "level", "lower"), [("share.version", 1, 0), (METADATA_VERSION_FEATURE, 34, 21)])
def test_a_level_that_was_lowered_again_is_no_obstacle(name: str, level: int, lower: int) -> None:
    """Apache Kafka raised the feature, maybe when the cluster was formatted, and lowered it so that Diskraft can take over.
    The log still has both records. A broker that reads all of it and a controller that takes over start as usual."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        cluster.crash(1)
        cluster.finalize_feature(name, level)
        cluster.finalize_feature(name, lower)
        cluster.start_node(1)
        await cluster.until_registered_again(1)
        await cluster.until_running()
        cluster.crash(CONTROLLER_ID)
        cluster.start_node(CONTROLLER_ID)
        await cluster.world.until(lambda: len(cluster.world.events_named("controller_active")) == 2)
        await cluster.until_running()
        await client.create_topic("t", partitions=1, replication_factor=1)
        await client.produce("t", 0, b"x")

    run(scenario)


def test_a_feature_at_level_0_is_absent() -> None:
    """Level 0 means that a newer release removed the feature again, so this node does not need to know the feature."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        cluster.finalize_feature("share.version", 0)
        await client.create_topic("t", partitions=1, replication_factor=1)
        await client.produce("t", 0, b"x")

    run(scenario)
