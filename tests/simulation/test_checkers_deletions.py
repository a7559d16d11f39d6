"""Tests the checker of deleted records (I30) on a running cluster: the true state passes, planted mistakes are found."""

import asyncio
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.hosting.partition import Partition
from common.ids import Offset, TopicIdPartition
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.history import History, Outcome, RecordDeletion
from tests.simulation.trims import delete_records
from tests.simulation.violations import InvariantViolated
from tests.simulation.workload import WorkloadClient

TOPIC = "trimmed-1"


async def delete_three_of_five(cluster: SimulatedCluster, history: History, client: WorkloadClient) -> RecordDeletion:
    await client.create_topic(TOPIC, partitions=1, min_insync_replicas="2")
    await cluster.until_in_sync(TOPIC)
    produced = None
    while produced is None or produced.outcome is not Outcome.OK:
        produced = await client.produce(TOPIC, 0, records=5)
    deleted = await delete_records(client, TOPIC, 0, 3)
    assert deleted is not None
    return deleted


@contextmanager
def begins_at(partition: Partition, offset: int) -> Iterator[None]:
    """Moves the log start of a replica for a while."""
    true_start, partition.log.log_start_offset = partition.log.log_start_offset, Offset(offset)
    try:
        yield
    finally:
        partition.log.log_start_offset = true_start


@contextmanager
def deposed(checkers: Checkers, key: TopicIdPartition) -> Iterator[None]:
    """Lets the metadata have another leader, of which the brokers have not heard yet."""
    partitions = checkers.image.image.partitions
    before = partitions[key]
    partitions[key] = dataclasses.replace(before, leader_epoch=before.leader_epoch + 1)
    try:
        yield
    finally:
        partitions[key] = before


def test_deletions_that_go_too_far_or_come_back() -> None:
    """I30: a deletion is acknowledged and passes. Then a leader begins before what is deleted, as if records had come back;
    a replica begins beyond it, as if others had been lost; and an acknowledgement promises less than it was asked for."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=1)
        await cluster.start()
        history = History()
        checkers = Checkers(cluster, history)
        checkers.install()
        async with asyncio.TaskGroup() as group:
            client = WorkloadClient(cluster, history, "client", group)
            deleted = await delete_three_of_five(cluster, history, client)
            assert (deleted.outcome, deleted.low_watermark) == (Outcome.OK, 3)
            await checkers.at_quiescence()
            client.close()
        checkers.stop()
        deletions, brokers = checkers.deletions, checkers.brokers()
        key = next(iter(checkers.image.image.partitions))
        leader = brokers[checkers.image.image.partitions[key].leader].replicas._partitions[key]

        def look() -> None:
            deletions.look(brokers, checkers.image.image, world.now_ns())

        look()
        with begins_at(leader, 0), pytest.raises(InvariantViolated, match=r"I30.*begins at 0, it began at 3"):
            look()
        deletions._starts.clear()
        with begins_at(leader, 2), pytest.raises(InvariantViolated, match=r"I30.*leads from 2 on, .* below 3"):
            look()
        with begins_at(leader, 2), deposed(checkers, key):
            look()
        deletions._starts.clear()
        with begins_at(leader, 4), pytest.raises(InvariantViolated, match=r"I30.*begins at 4, no deletion goes beyond 3"):
            look()
        deleted.end_ns, deleted.offset = world.now_ns(), 4
        history.deletions.append(deleted)
        with pytest.raises(InvariantViolated, match=r"I30.*deleted up to 3 only, not 4"):
            look()

    SimulatedWorld(seed=1).run(scenario)
