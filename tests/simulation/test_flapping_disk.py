"""A disk that hangs again and again, and goes on for a moment in between, holds up only what needs it (I31)."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.cluster import NotAcknowledged, SimulatedClient, SimulatedCluster, run
from tests.simulation.disk_trial import DiskTrial
from tests.simulation.environment import SimulatedWorld
from tests.simulation.faults import Fault, Lab
from tests.simulation.history import History
from tests.simulation.workload import WorkloadClient

SEED = 98556
# The directory is suspected after 0.5 s.
HANG_MS = (600, 1_400)
LONG_HANG_MS = (1_800, 2_200)
PAUSE_NS = 50 * NS_PER_MS
FLAPPING_SECONDS = 12
# Longer than replica.lag.time.max.ms.
LAGGING_SECONDS = 20
FLAPPING = Fault(at_ns=0, kind="disk hangs", node=1, disk="d1", duration_ns=FLAPPING_SECONDS * NS_PER_S)


class FlappingLab(Lab):
    """Lets the disk of a fault hang, not once but again and again."""

    def __init__(self, cluster: SimulatedCluster, hang_ms: tuple[int, int]) -> None:
        super().__init__(cluster)
        self._hang_ms = hang_ms
        self._rng = random.Random(f"{cluster.world.seed}/flapping")
        self._cancel: Callable[[], None] = lambda: None

    def apply(self, fault: Fault) -> None:
        super().apply(fault)
        self._later(self._rng.randint(*self._hang_ms) * NS_PER_MS, lambda: self._pause(fault))

    def _pause(self, fault: Fault) -> None:
        self.disk(fault).thaw()
        self._later(PAUSE_NS, lambda: self.apply(fault))

    def _later(self, delay_ns: int, act: Callable[[], None]) -> None:
        loop = self.world.loop
        self._cancel = loop.call_at_ns(loop.now_ns + delay_ns, act).cancel

    async def mend(self, fault: Fault) -> None:
        self._cancel()
        await super().mend(fault)


@pytest.mark.slow
def test_a_leader_whose_disk_hangs_again_and_again_keeps_its_followers() -> None:
    """They lag, because they can hardly read from it. Without them, the disk would be the only one with the partition."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        world = cluster.world
        await client.create_topic("t", partitions=1)
        await client.produce("t", 0, b"before")
        before = cluster.partition("t", 0)
        disk = cluster.disk_of_replica(before.leader, "t")
        fault = Fault(at_ns=0, kind="disk hangs", node=before.leader, disk=disk.path.rpartition("/")[2], duration_ns=0)
        lab = FlappingLab(cluster, LONG_HANG_MS)
        lab.apply(fault)
        until_ns = world.now_ns() + LAGGING_SECONDS * NS_PER_S
        while world.now_ns() < until_ns:
            with suppress(NotAcknowledged):
                await client.produce_once("t", 0, b"meanwhile", acks=1)
            await world.sleep(0.05)
        assert not world.events_named("isr_change_proposed")
        await lab.mend(fault)
        await client.produce("t", 0, b"after")
        assert cluster.partition("t", 0).isr == before.isr

    run(scenario, diskraft_log_dir_operation_timeout_ms="10000")


@pytest.mark.slow
def test_healthy_partitions_go_on_beside_a_disk_that_hangs_again_and_again() -> None:
    """A client that has waited for the disk once does not wait for it in its next requests."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, overrides={"diskraft.log.dir.operation.timeout.ms": "10000"})
        await cluster.start()
        history = History()
        lab = FlappingLab(cluster, HANG_MS)
        async with asyncio.TaskGroup() as group:
            admin = WorkloadClient(cluster, history, "client-admin", group)
            await admin.create_topic("t", partitions=9)
            await cluster.until_in_sync("t")
            admin.close()
        await DiskTrial(cluster, lab, history, "t").run(FLAPPING)
        await cluster.until_in_sync("t")

    SimulatedWorld(SEED).run(scenario)
