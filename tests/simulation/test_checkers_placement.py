"""Tests the checker of placement (I20): an even spread passes whatever existed before, and an uneven one is found."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.core.placement import ReplicaKind
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid
from tests.simulation.checkers import Checkers
from tests.simulation.checkers.placement import miscounts
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.history import History
from tests.simulation.violations import InvariantViolated


def run_settled(plant: Any) -> None:
    """Runs three brokers with three disks each, whose replicas are spread unevenly before topic t is created. Then calls
    `plant(checkers, id of t)`."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=3)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic("before", partitions=4)
            await client.create_topic("t", partitions=9)
            await checkers.at_quiescence()
            client.close()
        checkers.stop()
        plant(checkers, cluster.topic_id("t"))

    SimulatedWorld(seed=1).run(scenario)


def test_an_uneven_spread() -> None:
    """On broker 1, first all preferred leaders of the topic move to one disk, then all its followers."""

    def plant(checkers: Checkers, topic_id: TopicId) -> None:
        checkers.check_spread(topic_id)
        partitions = checkers.image.image.partitions
        for kind in ("PREFERRED_LEADER", "FOLLOWER"):
            before = dict(partitions)
            crowded: Uuid | None = None
            for key, part in before.items():
                is_kind = part.replicas[0] == 1 if kind == "PREFERRED_LEADER" else 1 in part.replicas[1:]
                if key.topic_id == topic_id and is_kind:
                    crowded = crowded or part.directory(1)
                    moved = [crowded if id_ == 1 else part.directory(id_) for id_ in part.replicas]
                    partitions[key] = replace(part, directories=tuple(moved))
            with pytest.raises(InvariantViolated, match=f"I20.*broker 1, {kind}"):
                checkers.check_spread(topic_id)
            partitions.update(before)
        checkers.check_spread(topic_id)

    run_settled(plant)


def test_a_wrong_count() -> None:
    """A replica is not counted in its own directory, or is counted in another one."""

    def plant(checkers: Checkers, topic_id: TopicId) -> None:
        replicas = checkers.brokers()[1].replicas
        assert list(miscounts(replicas)) == []
        key = TopicIdPartition(topic_id, 0)
        here: DirectoryId = replicas.hosted_directories()[key]
        directories = {each.directory_id: each for each in replicas._hosted.online_directories()}
        elsewhere = next(id_ for id_ in directories if id_ != here)
        directories[here].replicas.remove(key)
        assert len(list(miscounts(replicas))) == 1
        replicas._creation.note_kind(key)
        assert list(miscounts(replicas)) == []
        for kind in ReplicaKind:
            directories[elsewhere].replicas.place(key, kind)
            assert len(list(miscounts(replicas))) == 1

    run_settled(plant)
