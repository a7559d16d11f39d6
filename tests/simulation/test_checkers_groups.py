"""Tests the checkers of groups on histories written by hand, and the members on a cluster without trouble."""

import asyncio

import pytest

from tests.simulation.checkers import Checkers
from tests.simulation.checkers.groups import check_groups
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.group_member import read_position
from tests.simulation.history import Assignment, History, OffsetCommit, OffsetRead, Outcome, UnexpectedError
from tests.simulation.plans import SHORT_CONSUMER_SESSIONS
from tests.simulation.violations import InvariantViolated
from tests.simulation.workload import MIXED_GROUP_SEEDS, Workload, WorkloadClient, WorkloadSettings


def assignment(member: str, *indexes: int, generation: int = 1, group: str = "g") -> Assignment:
    return Assignment(group=group, generation=generation, member_id=member, indexes=indexes, at_ns=0)


def commit(offset: int, begin: int, end: int | None, *, index: int = 0, outcome: Outcome = Outcome.OK) -> OffsetCommit:
    return OffsetCommit(
        client="c",
        begin_ns=begin,
        end_ns=end,
        outcome=outcome,
        group="g",
        topic="t",
        index=index,
        generation=1,
        member_id="m",
        offset=offset,
    )


def read(offset: int, begin: int) -> OffsetRead:
    return OffsetRead(
        client="r", begin_ns=begin, end_ns=begin + 1, outcome=Outcome.OK, group="g", topic="t", index=0, offset=offset
    )


def test_a_partition_with_two_owners_is_found() -> None:
    """Two members of one generation may not own the same partition. The same member may learn its assignment twice, and
    another generation or group may have other owners."""
    fine = [
        assignment("a", 0, 1),
        assignment("b", 2),
        assignment("a", 0, 1),
        assignment("b", 0, 1, generation=2),
        assignment("c", 0, group="h"),
    ]
    check_groups(History(assignments=fine))
    with pytest.raises(InvariantViolated, match="I23"):
        check_groups(History(assignments=[*fine, assignment("b", 1)]))


def test_an_error_that_no_client_expects_is_found() -> None:
    error = UnexpectedError(client="c", request="Heartbeat", error="COORDINATOR_LOAD_IN_PROGRESS", at_ns=0)
    with pytest.raises(InvariantViolated, match="I27: c got COORDINATOR_LOAD_IN_PROGRESS for Heartbeat"):
        check_groups(History(unexpected_errors=[error]))


@pytest.mark.parametrize(
    "later",
    [commit(4, 21, 30), read(4, 21), read(-1, 21)],
    ids=["a later owner began too low", "a reader sees an older position", "a reader sees none"],
)
def test_a_commit_that_is_lost_or_goes_back_is_found(later: OffsetCommit | OffsetRead) -> None:
    """Only what was acknowledged before the operation began counts: what overlaps with it, and what was not acknowledged,
    may or may not be there."""
    commits = [
        commit(5, 10, 20),
        commit(9, 15, 40),
        commit(8, 11, 12, outcome=Outcome.UNKNOWN),
        commit(7, 11, 12, index=1),
    ]
    check_groups(History(offset_commits=commits, offset_reads=[read(5, 21), read(9, 41)]))
    history = History(offset_commits=commits)
    if isinstance(later, OffsetCommit):
        history.offset_commits.append(later)
    else:
        history.offset_reads.append(later)
    with pytest.raises(InvariantViolated, match="I24"):
        check_groups(history)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, MIXED_GROUP_SEEDS, 5 * MIXED_GROUP_SEEDS])
def test_groups_work_on_a_healthy_cluster(seed: int) -> None:
    """Without faults members join, commit, leave and crash; every commit of a member is acknowledged unless the group
    rebalances or its coordinator moves at that moment. No invariant is broken, and the last positions can be read."""
    history = History()

    async def scenario(world: SimulatedWorld) -> None:
        overrides = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
        overrides["group.min.session.timeout.ms"] = "1000"
        overrides.update(SHORT_CONSUMER_SESSIONS)
        cluster = SimulatedCluster(world, brokers=3, disks=2, overrides=overrides)
        await cluster.start()
        checkers = Checkers(cluster, history)
        checkers.install()
        async with asyncio.TaskGroup() as group:
            settings = WorkloadSettings(groups=2, passing_topics=0, member_pause=0.1)
            workload = Workload(cluster, history, settings, group)
            await workload.start()
            await world.sleep(6)
            await workload.stop()
            client = WorkloadClient(cluster, history, "client-last", group)
            for name in workload.groups:
                while (await read_position(client, name, workload.lasting_topics[0], 0)).outcome is not Outcome.OK:
                    await world.sleep(0.1)
            client.close()
        await checkers.at_quiescence()
        checkers.at_end()

    SimulatedWorld(seed=seed).run(scenario)
    # A client makes the id of a member of the consumer protocol; the coordinator puts its name before that of a classic one.
    has_client_name = {each.member_id.startswith("client") for each in history.assignments if each.group == "group-1"}
    assert has_client_name == ({True, False} if seed % MIXED_GROUP_SEEDS == 0 else {seed % 2 == 1})
    assert {each.group for each in history.assignments} == {"group-1", "group-2"}
    assert max(each.generation for each in history.assignments) > 1
    errors = {each.error for each in history.offset_commits if each.outcome is not Outcome.OK}
    assert errors <= {
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
        "ILLEGAL_GENERATION",
        "NOT_COORDINATOR",
        "STALE_MEMBER_EPOCH",
    }
    assert sum(each.outcome is Outcome.OK for each in history.offset_commits) > 20
