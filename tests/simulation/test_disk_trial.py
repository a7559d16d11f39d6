"""Tests the trial of a broken disk (I31): a true cluster passes, and clients that wait for the disk are found out."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

import pytest

from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.disk_trial import BROKEN_SECONDS, HANG_SECONDS, DiskTrial
from tests.simulation.disk_trial_changes import Work
from tests.simulation.environment import SimulatedWorld
from tests.simulation.faults import Fault, Lab
from tests.simulation.history import History
from tests.simulation.planted_bugs import DIRECTED_BUGS, PLANTED_BUGS
from tests.simulation.violations import InvariantViolated
from tests.simulation.workload import WorkloadClient

# Some transactions are about to be committed when the disk hangs.
SEED = 4
PARTITIONS = 9
OVERRIDES = {
    "offsets.topic.num.partitions": "9",
    "transaction.state.log.num.partitions": "9",
    # So a move that waits for the hung disk can hold up another.
    "num.replica.alter.log.dirs.threads": "1",
    # Longer than any hang: the trial does not restart a broker that has given a directory up.
    "diskraft.log.dir.operation.timeout.ms": "10000",
}
HANG = Fault(at_ns=0, kind="disk hangs", node=1, disk="d1", duration_ns=round(HANG_SECONDS * NS_PER_S))
LONG_HANG = replace(HANG, duration_ns=round(BROKEN_SECONDS * NS_PER_S))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug_name", "waits", "answers_cached_reads"),
    [
        (None, "", False),
        (None, "", True),
        ("nobody suspects a silent disk", "produce|fetch|commit|transact", False),
        ("nobody suspects a silent disk", "produce|fetch|commit|transact", True),
        ("what waits for a silent disk is not answered", "produce|transact", True),
        ("a follower keeps its silent disk to itself", "produce|commit|transact", False),
        ("what waits for a follower with a silent disk is not answered", "produce|commit|transact", False),
        ("what waits for a coordinator's silent disk is not answered", "commit|transact", True),
        ("transaction markers wait for a silent disk", "transact", True),
        ("a fetch waits for a silent disk", "fetch", False),
        ("a fetch waits for a silent disk", "fetch", True),
    ],
)
def test_a_client_that_waits_for_a_hung_disk_is_found_out(
    bug_name: str | None, waits: str, answers_cached_reads: bool
) -> None:
    """I31: one disk of three hangs, on one of three brokers. Partitions that have no replica on it go on."""

    world = SimulatedWorld(SEED)
    world.answers_cached_reads = answers_cached_reads
    if bug_name is None:
        world.run(trial(HANG))
        return
    bug = next(bug for bug in PLANTED_BUGS if bug.name == bug_name)
    with bug.planted(), pytest.raises(InvariantViolated, match=rf"I31: a client could not ({waits}) for"):
        world.run(trial(HANG))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug_name", "works", "violation"),
    [
        (None, Work, ""),
        (
            "a move keeps its turn while its source hangs",
            (Work.MOVES, Work.MOVES_OF_THE_DISK),
            "a client could not move a replica for",
        ),
        (
            "a suspected directory gets new replicas",
            (Work.TOPICS, Work.PARTITIONS),
            "a replica of .* was placed on a disk that is suspected",
        ),
        (
            "a follower without a log keeps its silent disk to itself",
            (Work.TOPICS, Work.PARTITIONS),
            "a client could not (produce|create a topic|add partitions) for",
        ),
    ],
)
def test_a_change_that_waits_for_a_hung_disk_is_found_out(
    bug_name: str | None, works: Iterable[Work], violation: str
) -> None:
    """I31: one disk of three hangs, on one of three brokers. Moves between other disks, new topics, changes of settings and
    deletions of records go on."""
    if bug_name is None:
        SimulatedWorld(SEED).run(trial(LONG_HANG, *works))
        return
    bug = next(bug for bug in DIRECTED_BUGS if bug.name == bug_name)
    with bug.planted(), pytest.raises(InvariantViolated, match=f"I31: {violation}"):
        SimulatedWorld(SEED).run(trial(LONG_HANG, *works))


def trial(fault: Fault, *works: Work) -> Callable[[SimulatedWorld], Coroutine[Any, Any, None]]:
    """Returns a scenario with one trial."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=3, overrides=OVERRIDES)
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
        await DiskTrial(cluster, Lab(cluster), history, "t", works).run(fault)
        await cluster.until_in_sync("t")

    return scenario
