"""Logs of a directory are created in groups, and in the right order among the other jobs of the directory."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence

import pytest

from broker.hosting.directory_lane import DirectoryLane
from broker.hosting.log_creation import LogCreation
from common.ids import TopicId, TopicIdPartition, Uuid
from common.protocol.errors import ErrorCode
from common.storage.new_log import LOGS_PER_CREATION_MAX
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.cluster import TOPIC, Cluster, path, run

OTHER = TopicId(Uuid(b"O" * 16))


def replica(index: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, index)


def run_lane(scenario: Callable[[DirectoryLane, LogCreation, list[str]], Awaitable[None]]) -> None:
    """Runs a scenario with a lane, and a creation that adds "create <indexes>" to the list for each of its jobs."""

    async def main(world: SimulatedWorld) -> None:
        done: list[str] = []
        lane = DirectoryLane()

        async def create(keys: Sequence[TopicIdPartition]) -> None:
            await world.sleep(0.01)
            done.append(f"create {','.join(str(key.partition) for key in keys)}")

        async with asyncio.TaskGroup() as group:
            group.create_task(lane.run())
            await scenario(lane, LogCreation(lane, create), done)
            lane.stop()

    SimulatedWorld(1).run(main)


def test_logs_that_wait_are_created_together() -> None:
    """A log that arrives while a group is being created starts the next group."""

    async def scenario(lane: DirectoryLane, creation: LogCreation, done: list[str]) -> None:
        creation.add(replica(0))
        creation.add(replica(1))
        await asyncio.sleep(0)
        creation.add(replica(2))
        creation.add(replica(3))
        await lane.drained()
        assert done == ["create 0,1", "create 2,3"]

    run_lane(scenario)


def test_a_group_is_bounded() -> None:
    async def scenario(lane: DirectoryLane, creation: LogCreation, done: list[str]) -> None:
        for index in range(2 * LOGS_PER_CREATION_MAX + 1):
            creation.add(replica(index))
        await lane.drained()
        assert [line.count(",") + 1 for line in done] == [LOGS_PER_CREATION_MAX, LOGS_PER_CREATION_MAX, 1]

    run_lane(scenario)


def test_no_log_overtakes_another_job() -> None:
    """The other job may be the deletion of an earlier log of the same name."""

    async def scenario(lane: DirectoryLane, creation: LogCreation, done: list[str]) -> None:
        async def delete() -> None:
            done.append("delete 1")

        creation.add(replica(0))
        lane.submit(delete)
        creation.add(replica(1))
        creation.add(replica(2))
        await lane.drained()
        assert done == ["create 0", "delete 1", "create 1,2"]

    run_lane(scenario)


# --- in a broker -------------------------------------------------------------------------------------------------


def test_a_hundred_partitions_need_few_syncs() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        syncs: list[str] = []
        cluster.world.operation_watchers.append(lambda _, kind, name: syncs.append(name) if "fsync" in kind else None)
        cluster.controller.create_topic(*[[1]] * 100)
        for index in range(100):
            await cluster.started(index)
        assert 2 <= len(syncs) <= 10

    run(scenario)


def test_a_topic_that_is_deleted_and_created_again_in_one_go() -> None:
    """The new logs wait for the deletion of the old ones, although others are about to be created already."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1], [1])
        for index in (0, 1):
            await cluster.started(index)
            assert (await cluster.produce(1, "old", index=index)).error_code == ErrorCode.NONE
        cluster.controller.remove_topic()
        cluster.controller.create_topic([1], [1], [1], topic_id=OTHER)
        for index in (0, 1, 2):
            await cluster.started(index, OTHER)
        for index in (0, 1):
            assert await cluster.read_all(1, index=index, topic_id=OTHER) == []
        folders = cluster.world.disk(path(1, "a")).folders()
        assert sorted(name.rpartition("-")[2] for name in folders) == ["0", "1", "2", "delete", "delete"]
        assert cluster.world.events_named("stray_log_put_aside") == []

    run(scenario)


def test_a_group_in_which_one_name_is_taken() -> None:
    """A folder in the way is put aside, and all logs of the group are created."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.world.disk(path(1, "a")).write("t-1/00000000000000000000.log", b"records")
        cluster.controller.create_topic([1], [1], [1])
        for index in range(3):
            await cluster.started(index)
        assert len(cluster.world.events_named("stray_log_put_aside")) == 1

    run(scenario)


@pytest.mark.parametrize("operation", ["create_folders", "fsync_folders"])
def test_a_disk_that_fails_takes_the_whole_group_with_it(operation: str) -> None:
    """The logs are created in the other directory."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, "ab")
        cluster.world.disk(path(1, "a")).fail_next(operation, errno.EIO)
        cluster.controller.create_topic(*[[1]] * 6)
        for index in range(6):
            await cluster.started(index)
            assert (await cluster.produce(1, "x", index=index)).error_code == ErrorCode.NONE
        folders = cluster.world.disk(path(1, "b")).folders()
        assert sorted(folders) == [f"t-{index}" for index in range(6)]

    run(scenario)


@pytest.mark.slow
def test_a_broker_that_loses_power_while_it_creates_logs() -> None:
    """The next start removes or loads what is left of them, and finds nothing to put aside."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic(*[[1]] * 4)
        await cluster.world.sleep(cluster.world.node("test").rng.uniform(0, 0.005))
        cluster.brokers.clear()
        cluster.world.power_cut("broker-1")
        await cluster.start(1)
        cluster.controller.change(0, leader=1)
        assert cluster.world.events_named("stray_log_put_aside") == []
        assert not cluster[1].directories.any_offline

    for seed in range(1, 41):
        run(scenario, seed=seed)


@pytest.mark.slow
def test_a_log_that_a_kill_left_unsynced_is_synced_before_it_is_used() -> None:
    """The broker is killed while it creates logs, and starts again. Then its page cache has logs that the disk does not
    have. A power cut after that must not take away a log in which records were synced."""
    left: list[int] = []

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)

        def kill(_: str, kind: str, __: str) -> None:
            if kind == "create_folders":
                cluster.crash(1)

        cluster.world.operation_watchers.append(kill)
        cluster.controller.create_topic(*[[1]] * 4)
        await cluster.until(lambda: not cluster.brokers)
        cluster.world.operation_watchers.clear()
        await cluster.start(1)
        hosted = sorted(key.partition for key in cluster[1].replicas.hosted_directories())
        left.extend(hosted)
        for index in hosted:
            assert (await cluster.produce(1, "x", index=index)).error_code == ErrorCode.NONE
            await cluster[1].partition(index).log.flush()
        cluster.brokers.clear()
        cluster.world.power_cut("broker-1")
        await cluster.start(1)
        for index in hosted:
            assert await cluster.read_all(1, index=index) == ["x"]

    for seed in range(1, 21):
        run(scenario, seed=seed)
    assert left
