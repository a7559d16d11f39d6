"""Tests the checkers of cordons (I29) on a running cluster: what is lawful passes, and planted bugs are found."""

import asyncio
import re

import pytest

from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.history import History
from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.test_cordons import cordon, raise_level
from tests.simulation.violations import InvariantViolated


async def create(client: SimulatedClient, name: str) -> None:
    """Creates a topic on as many brokers as will have it."""
    for replication_factor in (2, 1):
        topic = CreatableTopic(name=name, num_partitions=4, replication_factor=replication_factor)
        await client.ask(2, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))


async def move(cluster: SimulatedCluster, client: SimulatedClient) -> None:
    """Asks for moves of all replicas to the first directory of broker 1."""
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0, 1, 2, 3]) for name in ("before", "after")]
    await client.ask(1, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/b1/d1", topics=topics)]))
    await cluster.world.sleep(1)


async def course(world: SimulatedWorld) -> None:
    """Cordons one directory of a broker, then both, and creates topics and moves replicas each time."""
    cluster = SimulatedCluster(world, brokers=2, disks=2)
    await cluster.start()
    checkers = Checkers(cluster, History())
    checkers.install()
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)
        await raise_level(client)
        await create(client, "before")
        await cordon(cluster, client, "/b1/d1")
        await create(client, "after")
        await move(cluster, client)
        await cordon(cluster, client, "*")
        await create(client, "last")
        await checkers.at_quiescence()
        client.close()
    checkers.stop()


def test_what_is_lawful_passes() -> None:
    SimulatedWorld(seed=1).run(course)


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("a cordoned directory gets new replicas", "broker 1 creates"),
        ("a replica moves into a cordoned directory", "broker 1 moves"),
        ("a broker whose directories are all cordoned gets new replicas", "gets a replica on broker 1"),
    ],
)
def test_a_mistake_is_found(bug: str, found: str) -> None:
    with next(each for each in PLANTED_BUGS if each.name == bug).planted(), pytest.raises(InvariantViolated) as caught:
        SimulatedWorld(seed=1).run(course)
    assert re.match(f"I29: .*{found}", str(caught.value))
