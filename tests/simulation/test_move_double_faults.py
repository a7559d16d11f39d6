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
from tests.simulation.move_points import (
    ACKS,
    BYTES_BEFORE,
    OVERRIDES,
    RECORDS_BEFORE,
    REPLICATED,
    SINGLE,
    AtPoint,
    Replica,
    Writers,
    create_topics,
    current_logs,
    live_without,
    move,
    start,
    until_more_is_written,
)

pytestmark = pytest.mark.slow


def fail(disks: Collection[SimulatedDisk]) -> None:
    for disk in disks:
        disk.fail_with(errno.EIO)


async def _until_acknowledged(world: SimulatedWorld, node: str, *, failures: int) -> None:
    """Waits until the controller has acknowledged the failures of this many disks."""
    await world.until(lambda: len(world.events_named("log_dir_failure_acknowledged", node)) == failures)


async def _case(world: SimulatedWorld, point: str, failing: str, missing: str) -> None:
    cluster = SimulatedCluster(world, brokers=3, disks=3, overrides=OVERRIDES)
    await cluster.start()
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)
        await create_topics(client)
        broker_id = cluster.partition(SINGLE, 0).leader
        replica = Replica(cluster, broker_id, SINGLE)
        for number in range(RECORDS_BEFORE):
            await client.produce(SINGLE, 0, b"before %d" % number + bytes(BYTES_BEFORE), acks=1)
        disks = {"source": replica.source, "target": replica.target}
        struck = [disks[each] for each in failing.split("+")]
        failure = AtPoint(cluster, broker_id, replica, point, partial(fail, struck))
        writers = Writers(cluster, client, group)
        await move(client, broker_id, [replica])
        await world.until(lambda: failure.is_over)
        await _until_acknowledged(world, cluster.name(broker_id), failures=len(struck))
        # The move is undone if the target failed, and done if the source failed after the target was renamed. Then the log
        # that remains takes records. Otherwise the partition is offline.
        is_served = failing == "target" or (failing == "source" and point == "target renamed")
        await until_more_is_written(world, client, SINGLE if is_served else REPLICATED)
        assert not cluster.env(broker_id).is_dead
        cluster.crash(broker_id)
        for disk in disks.values():
            disk.heal()
        if missing:
            await live_without(cluster, broker_id, disks[missing], client)
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
