"""A broker crashes at every point of a move between its directories, and starts again (I15).

There are twelve crash points. At each point the broker is killed, loses power, or is killed and then starts without its
source or its target disk: 48 cases. The crash interrupts the move of a replicated partition (acks=all), or the move of a
partition with a single replica (acks=1), in turn, so that each point meets both and each ending meets both. The other
partition moves and takes records at the same time. In every case the broker must recover without manual intervention.
"""

import asyncio
from enum import Enum, auto

import pytest

from common.ids import BrokerId
from common.storage.names import MOVE_ORIGIN_FILE
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.history import History
from tests.simulation.move_points import (
    ACKS,
    BYTES_BEFORE,
    OVERRIDES,
    POINTS,
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
)

pytestmark = pytest.mark.slow


class Ending(Enum):
    """How the broker ends, and which disk is missing when it starts again."""

    KILL = auto()
    POWER_CUT = auto()
    SOURCE_GONE = auto()
    TARGET_GONE = auto()


class Crash(AtPoint):
    """Ends the broker when the move reaches the crash point."""

    def __init__(self, cluster: SimulatedCluster, broker_id: BrokerId, replica: Replica, point: str, end: Ending) -> None:
        super().__init__(cluster, broker_id, replica, point, self._end_broker)
        self.promised = 0
        """The offset below which the only replica was synced when the broker ended."""
        self._end = end

    def _end_broker(self) -> None:
        single = next(each for each in self._replica.broker.replicas._partitions.values() if each.topic == SINGLE)
        self.promised = single.log.recovery_point
        if self._end is Ending.POWER_CUT:
            self._cluster.power_cut(self._broker_id)
        else:
            self._cluster.crash(self._broker_id)


async def _case(world: SimulatedWorld, topic: str, point: str, end: Ending) -> None:
    cluster = SimulatedCluster(world, brokers=3, disks=2, overrides=OVERRIDES)
    await cluster.start()
    checkers = Checkers(cluster, History())
    checkers.install()
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)
        await create_topics(client)
        broker_id = cluster.partition(SINGLE, 0).leader
        replicas = {name: Replica(cluster, broker_id, name) for name in ACKS}
        for number in range(RECORDS_BEFORE):
            for name, acks in ACKS.items():
                await client.produce(name, 0, b"before %d" % number + bytes(BYTES_BEFORE), acks=acks)
        writers = Writers(cluster, client, group)
        crash = Crash(cluster, broker_id, replicas[topic], point, end)
        await move(client, broker_id, replicas.values())
        await world.until(lambda: crash.is_over and cluster.env(broker_id).is_dead)
        if end is Ending.POWER_CUT:
            # Records at or above the recovery point were only in the page cache, so the power cut may have lost them.
            written = client.acknowledged[SINGLE, 0]
            client.acknowledged[SINGLE, 0] = {at: value for at, value in written.items() if at < crash.promised}
        missing = {Ending.SOURCE_GONE: replicas[topic].source, Ending.TARGET_GONE: replicas[topic].target}.get(end)
        if missing is None:
            # Stop the writers. The moves must finish even without new records.
            await writers.stop()
        else:
            await live_without(cluster, broker_id, missing, client)
            assert all(current_logs(cluster, broker_id, each) <= 1 for each in replicas.values())
        await start(cluster, broker_id)
        for name in ACKS:
            await cluster.until_in_sync(name)
        await writers.stop()
        await checkers.at_quiescence()
        for name, acks in ACKS.items():
            await client.produce(name, 0, b"after", acks=acks)
        checkers.stop()
        await client.assert_nothing_lost()
        client.close()
    assert not world.events_named("node_not_started")
    for replica in replicas.values():
        assert current_logs(cluster, broker_id, replica) == 1
        disks = (replica.source, replica.target)
        await world.until(lambda: not any(replica.folders(disk, "-delete") for disk in disks))  # noqa: B023
        assert not any(replica.folders(disk, mark) for disk in disks for mark in ("-future", "-stray"))
        await world.until(lambda: not any(name.endswith(MOVE_ORIGIN_FILE) for disk in disks for name in disk.files()))  # noqa: B023


CASES = [
    pytest.param(point, end, topic, id=f"{point}-{end.name.lower()}-{topic}")
    for number, point in enumerate(POINTS)
    for turn, end in enumerate(Ending, start=number)
    for topic in [(REPLICATED, SINGLE)[turn % 2]]
]


@pytest.mark.parametrize(("point", "end", "topic"), CASES)
def test_one_replica_is_current_after_a_crash(point: str, end: Ending, topic: str) -> None:
    """The broker starts and serves the replica from one of the two directories, with every acknowledged record. The move
    finishes, and no -future, -delete or -stray folder remains, nor a note of the move's origin."""
    SimulatedWorld(seed=1).run(lambda world: _case(world, topic, point, end))
