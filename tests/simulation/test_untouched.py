"""Tests which faults the lab withholds so that every partition keeps an untouched in-sync replica."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.faults import EXCHANGED, SWAPPED, Fault, Lab
from tests.simulation.untouched import UntouchedReplicas

REPLACED = Fault(at_ns=0, kind="disk dies and is replaced", node=1, disk="d1")


async def two_brokers_with_a_topic(world: SimulatedWorld) -> SimulatedCluster:
    """Starts two brokers and creates partition t-0, whose replicas on both brokers are in sync."""
    cluster = SimulatedCluster(world, brokers=2, disks=1, overrides={"default.replication.factor": "2"})
    await cluster.start()
    async with asyncio.TaskGroup() as group:
        client = SimulatedClient(cluster, group)
        await client.create_topic("t", partitions=1, replication_factor=2)
        client.close()
    return cluster


def test_a_disk_stays_while_the_other_replica_waits_to_be_registered() -> None:
    """The controller is paused. Its image still has broker 2's previous incarnation in the ISR. Broker 2 will leave the ISR
    when its new incarnation registers. So the lab must not replace broker 1's disk until broker 2 is in sync again (seed
    30102)."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = await two_brokers_with_a_topic(world)
        untouched = UntouchedReplicas(cluster)
        untouched.look()
        assert untouched.why_not(REPLACED) is None
        cluster.pause(CONTROLLER_ID)
        cluster.crash(2)
        cluster.start_node(2)
        await world.sleep(1)
        assert not cluster.env(2).is_dead
        assert untouched.why_not(REPLACED) == "t-0"
        cluster.resume(CONTROLLER_ID)
        await cluster.until_registered_again(2)
        await cluster.until_in_sync("t")
        untouched.look()
        assert untouched.why_not(REPLACED) is None

    SimulatedWorld(seed=1).run(scenario)


@pytest.mark.parametrize("kind", ["power cut", "node paused"])
def test_the_controller_stays_while_a_disk_with_a_replica_in_sync_is_replaced(kind: str) -> None:
    """While broker 1's disk is being replaced, the controller must suffer no fault. Otherwise broker 2, which has all
    records, could be fenced because it does not find the controller again in time. Then broker 1 with its empty disk would
    be the only ISR member (seed 110530). The link between broker 1 and the controller may be cut."""
    fault = Fault(at_ns=0, kind=kind, node=CONTROLLER_ID)

    async def scenario(world: SimulatedWorld) -> None:
        cluster = await two_brokers_with_a_topic(world)
        untouched = UntouchedReplicas(cluster)
        await world.sleep(5)
        untouched.look()
        assert untouched.why_not(fault) is None
        untouched.begin(REPLACED)
        assert untouched.why_not(fault) == "t-0"
        assert untouched.why_not(Fault(at_ns=0, kind="link cut", node=1, peer=CONTROLLER_ID)) is None
        assert untouched.why_not(Fault(at_ns=0, kind="link cut", node=CONTROLLER_ID, peer=2)) == "t-0"

    SimulatedWorld(seed=1).run(scenario)


def test_disks_in_other_brokers_are_left_alone() -> None:
    """Brokers 1 and 2 have exchanged a disk. Neither may lose power or have its disks swapped, because the lab could not
    tell any more which disk belongs to which broker (seed 80021). Broker 3 and the network may fail."""
    exchanged = Fault(at_ns=0, kind=EXCHANGED, node=1, disk="d1", peer=2, other_disk="d2")

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=2)
        await cluster.start()
        untouched = UntouchedReplicas(cluster)
        await world.sleep(5)
        untouched.look()
        untouched.begin(exchanged)
        for node, is_withheld in ((1, True), (2, True), (3, False)):
            for kind in ("power cut", SWAPPED):
                reason = untouched.why_not(Fault(at_ns=0, kind=kind, node=node))
                assert (reason is not None) == is_withheld, (kind, node, reason)
            assert untouched.why_not(Fault(at_ns=0, kind="link cut", node=node, peer=CONTROLLER_ID)) is None
        untouched.end(exchanged)
        assert untouched.why_not(Fault(at_ns=0, kind=SWAPPED, node=1)) is None

    SimulatedWorld(seed=1).run(scenario)


def test_a_disk_that_waits_for_its_format_gets_it_although_it_was_in_another_broker() -> None:
    """Broker 2's new disk is in broker 1 when the lab wants to format it. When the disk is back in broker 2, the lab must
    still format it (seed 110547)."""

    async def until_the_lab_has_looked(cluster: SimulatedCluster) -> None:
        await cluster.world.event("not_formatted")

    exchange_a_disk_to_be_formatted(until_the_lab_has_looked)


def test_a_disk_that_waits_for_its_format_is_not_forgotten_for_the_dead_one_in_its_place() -> None:
    """As above, but broker 1's disk in place of broker 2's cannot be read, so formatting skips it. That must not count as a
    format of broker 2's disk (seed 90238)."""

    async def with_a_dead_disk(cluster: SimulatedCluster) -> None:
        cluster.disk(2, 1).fail_with(errno.EIO)
        await cluster.world.sleep(3)
        cluster.disk(2, 1).heal()

    exchange_a_disk_to_be_formatted(with_a_dead_disk, disks=2)


def exchange_a_disk_to_be_formatted(meanwhile: Callable[[SimulatedCluster], Awaitable[None]], *, disks: int = 1) -> None:
    """Replaces broker 2's first disk and exchanges it with that of broker 1. Takes the exchange back after `meanwhile`.
    Then the lab must format the disk."""
    replaced = Fault(at_ns=0, kind="disk dies and is replaced", node=2, disk="d1")
    exchanged = Fault(at_ns=0, kind=EXCHANGED, node=1, disk="d1", peer=2, other_disk="d1")

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=2, disks=disks)
        await cluster.start()
        lab = Lab(cluster)
        await lab.mend(replaced)
        lab.apply(exchanged)
        async with asyncio.TaskGroup() as group:
            group.create_task(lab.supervise())
            await meanwhile(cluster)
            await lab.mend(exchanged)
            await cluster.until_registered_again(2)
            await cluster.until_running()
            lab.end()

    SimulatedWorld(seed=1).run(scenario)


def test_only_replicas_that_a_reassignment_leaves_count() -> None:
    """A reassignment is about to remove broker 2's replica. Only broker 1's replica would be left, so broker 1's disk must
    not be replaced until the reassignment is over. While broker 1's disk is being replaced, no reassignment may begin that
    would leave only broker 1's replica."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = await two_brokers_with_a_topic(world)
        untouched = UntouchedReplicas(cluster)
        untouched.look()
        assert not untouched.begin_reassignment("unknown", 0, [1])
        assert untouched.begin_reassignment("t", 0, [1])
        assert untouched.why_not(REPLACED) == "t-0"
        untouched.end_reassignment("t", 0, is_certain=False)
        assert untouched.why_not(REPLACED) == "t-0"
        untouched.end_reassignment("t", 0, is_certain=True)
        assert untouched.why_not(REPLACED) == "t-0"
        await world.sleep(5)
        assert untouched.why_not(REPLACED) is None
        untouched.begin(REPLACED)
        assert not untouched.begin_reassignment("t", 0, [1])
        assert untouched.begin_reassignment("t", 0, [2, 1])

    SimulatedWorld(seed=1).run(scenario)
