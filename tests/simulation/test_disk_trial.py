"""Tests the trial of a broken disk (I31): a true cluster passes, and clients that wait for the disk are found out."""

import asyncio

import pytest

from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.disk_trial import HANG_SECONDS, DiskTrial
from tests.simulation.environment import SimulatedWorld
from tests.simulation.faults import Fault, Lab
from tests.simulation.history import History
from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.violations import InvariantViolated
from tests.simulation.workload import WorkloadClient

# Some transactions are about to be committed when the disk hangs.
SEED = 4
PARTITIONS = 18
PARTITIONS_OF_COORDINATORS = {"offsets.topic.num.partitions": "9", "transaction.state.log.num.partitions": "9"}
HANG = Fault(at_ns=0, kind="disk hangs", node=1, disk="d1", duration_ns=round(HANG_SECONDS * NS_PER_S))


@pytest.mark.slow
@pytest.mark.parametrize("answers_cached_reads", [False, True])
@pytest.mark.parametrize(
    ("bug_name", "waits"),
    [
        (None, ""),
        ("nobody suspects a silent disk", "produce|fetch|commit|transact"),
        ("what waits for a silent disk is not answered", "produce|transact"),
        ("a follower keeps its silent disk to itself", "produce|commit|transact"),
        ("what waits for a follower with a silent disk is not answered", "produce|commit|transact"),
        ("what waits for a coordinator's silent disk is not answered", "commit|transact"),
        ("transaction markers wait for a silent disk", "transact"),
        ("a fetch waits for a silent disk", "fetch"),
    ],
)
def test_a_client_that_waits_for_a_hung_disk_is_found_out(
    bug_name: str | None, waits: str, answers_cached_reads: bool
) -> None:
    """I31: one disk of three hangs, on one of three brokers. Partitions that have no replica on it go on."""

    async def scenario(world: SimulatedWorld) -> None:
        world.answers_cached_reads = answers_cached_reads
        cluster = SimulatedCluster(world, brokers=3, disks=3, overrides=PARTITIONS_OF_COORDINATORS)
        await cluster.start()
        history = History()
        async with asyncio.TaskGroup() as group:
            admin = WorkloadClient(cluster, history, "client-admin", group)
            await admin.create_topic("t", partitions=PARTITIONS)
            await cluster.until_in_sync("t")
            for key_type, topic in enumerate(("__consumer_offsets", "__transaction_state")):
                await admin.send(1, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]))
                await cluster.until_in_sync(topic)
            admin.close()
        await DiskTrial(cluster, Lab(cluster), history, "t").run(HANG)
        await cluster.until_in_sync("t")

    if bug_name is None:
        SimulatedWorld(SEED).run(scenario)
        return
    bug = next(bug for bug in PLANTED_BUGS if bug.name == bug_name)
    with bug.planted(), pytest.raises(InvariantViolated, match=rf"I31: a client could not ({waits}) for"):
        SimulatedWorld(SEED).run(scenario)
