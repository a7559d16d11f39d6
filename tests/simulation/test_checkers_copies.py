"""Tests the checkers of copies and of ISR proposals on a settled cluster: the true state passes, planted losses are
found."""

import asyncio
from dataclasses import replace

import pytest

from common.ids import Offset
from tests.simulation.checkers import Checkers
from tests.simulation.checkers.copies import check_proposal
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.history import History, Outcome
from tests.simulation.violations import InvariantViolated
from tests.simulation.workload import WorkloadClient


def test_too_few_copies_and_a_proposal_that_comes_too_early() -> None:
    """I1: a batch acknowledged with acks=all is missing on two of three replicas, or on one of two that are left. I8: a
    proposed ISR member lacks a committed record; a proposed broker that is not running is not checked."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=1)
        await cluster.start()
        history = History()
        checkers = Checkers(cluster, history)
        checkers.install()
        async with asyncio.TaskGroup() as group:
            client = WorkloadClient(cluster, history, "client", group)
            await client.create_topic("t", partitions=1, min_insync_replicas="2")
            await cluster.until_in_sync("t")
            produced = None
            while produced is None or produced.outcome is not Outcome.OK:
                produced = await client.produce("t", 0)
            await checkers.at_quiescence()
            client.close()
        checkers.stop()
        brokers, image = checkers.brokers(), checkers.image.image
        key = next(iter(image.partitions))
        leader, *others = sorted(image.partitions[key].replicas, key=lambda id_: id_ != image.partitions[key].leader)
        proposal = SimulatedEvent(
            0, f"broker-{leader}", "info", "isr_change_proposed", {"partition": "t-0", "isr": others, "committed_isr": []}
        )
        check_proposal(proposal, brokers)
        for other in others:
            brokers[other].replicas._partitions[key].log._appends.written_offset = Offset(0)
        with pytest.raises(InvariantViolated, match=r"I8.*proposes broker \d, which has 0 of 1"):
            check_proposal(proposal, brokers)
        check_proposal(proposal, {leader: brokers[leader]})
        history.produces.append(produced)
        with pytest.raises(InvariantViolated, match=r"I1.*1 copies, min.insync.replicas is 2"):
            checkers.copies.look(brokers, image, world.now_ns())
        # One of the two with a copy was taken away after the batch had been sent (seed 15322).
        gone, left = others
        brokers[gone].replicas._partitions[key].log._appends.written_offset = Offset(1)
        part = image.partitions[key]
        image.partitions[key] = replace(part, replicas=(leader, left), directories=part.directories[:2])
        history.produces.append(produced)
        checkers.copies.look(brokers, image, world.now_ns())
        history.produces.append(replace(produced, begin_ns=world.now_ns()))
        with pytest.raises(InvariantViolated, match=r"I1.*1 copies, min.insync.replicas is 2"):
            checkers.copies.look(brokers, image, world.now_ns())

    SimulatedWorld(seed=1).run(scenario)
