"""Disks fail in the middle of a move's swap, and the broker starts again with some of them or all (I15).

The partition has a single replica, so nothing repairs what the broker forgets. In every case the disks are well in the end,
and so is every acknowledged record, whichever of the two logs was served in between.
"""

import asyncio
import errno
from collections.abc import Collection
from functools import partial

import pytest

from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedWorld
from tests.simulation.test_move_crash_points import (
    ACKS,
    OVERRIDES,
    RECORDS_BEFORE,
    REPLICATED,
    SEGMENT_BYTES,
    SINGLE,
    VALUE_BYTES,
    AtPoint,
    Replica,
    Writers,
    current_logs,
    move,
    start,
)

pytestmark = pytest.mark.slow


def fail(disks: Collection[SimulatedDisk]) -> None:
    for disk in disks:
        disk.fail_with(errno.EIO)


async def _case(world: SimulatedWorld, point: str, failing: str, missing: str) -> None:
    cluster = SimulatedCluster(world, brokers=3, disks=3, overrides=OVERRIDES)
    await cluster.start()
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)
        await client.create_topic(REPLICATED, partitions=1, min_insync_replicas="2", segment_bytes=SEGMENT_BYTES)
        await client.create_topic(SINGLE, partitions=1, replication_factor=1, segment_bytes=SEGMENT_BYTES)
        broker_id = cluster.partition(SINGLE, 0).leader
        replica = Replica(cluster, broker_id, SINGLE)
        for number in range(RECORDS_BEFORE):
            await client.produce(SINGLE, 0, b"before %d" % number + bytes(VALUE_BYTES), acks=1)
        disks = {"source": replica.source, "target": replica.target}
        struck = [disks[each] for each in failing.split("+")]
        failure = AtPoint(cluster, broker_id, replica, point, partial(fail, struck))
        writers = Writers(cluster, client, group)
        await move(client, broker_id, [replica])
        await world.until(lambda: failure.is_over)
        # Time for the failure to be reported, the move to be undone, and the old log to take records.
        await world.sleep(5)
        if not cluster.env(broker_id).is_dead:
            cluster.crash(broker_id)
        for disk in disks.values():
            disk.heal()
        if missing:
            disks[missing].fail_with(errno.EIO)
            await start(cluster, broker_id)
            await world.sleep(3)
            cluster.crash(broker_id)
            disks[missing].heal()
        await start(cluster, broker_id)
        for name in ACKS:
            await cluster.until_in_sync(name)
        await writers.stop()
        await client.produce(SINGLE, 0, b"after", acks=1)
        await client.assert_nothing_lost()
        client.close()
    assert not world.events_named("node_not_started")
    assert current_logs(cluster, broker_id, replica) == 1


@pytest.mark.parametrize(
    ("failing", "missing"),
    [("source", "target"), ("target", ""), ("target", "source"), ("source+target", ""), ("source+target", "source")],
)
@pytest.mark.parametrize("point", ["source renamed", "target renamed"])
def test_no_acknowledged_record_is_lost_when_disks_fail_in_a_swap(point: str, failing: str, missing: str) -> None:
    SimulatedWorld(seed=1).run(lambda world: _case(world, point, failing, missing))
