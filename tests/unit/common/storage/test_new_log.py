"""Logs that are created together: what they share, what a power cut leaves of them, and what happens to taken names."""

import errno
import random

import pytest

from common.environment.interface import LogDirError
from common.ids import LeaderEpoch, TopicId, Uuid
from common.storage.errors import LogExists
from common.storage.log import Log
from common.storage.new_log import NewLog
from common.storage.partition_metadata import MalformedPartitionMetadata, load_partition_metadata
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.unit.common.storage.batches import PATH, SMALL, append, attached

NEW = [NewLog(f"t-{index}", SMALL, TopicId(Uuid(bytes([index + 1]) * 16))) for index in range(5)]


def operations(world: SimulatedWorld) -> list[tuple[str, str]]:
    """Returns a list to which every operation on the disk is added, with the name that it is about."""
    seen: list[tuple[str, str]] = []
    world.operation_watchers.append(lambda _, kind, name: seen.append((kind, name)))
    return seen


def test_all_logs_are_durable_and_share_their_syncs() -> None:
    """Whatever a power cut leaves, each log has its topic id and the records that were synced."""

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        seen = operations(world)
        logs = await Log.create_all(log_dir, NEW)
        assert [kind for kind, _ in seen if kind != "open"] == [
            "create_folders",
            "fsync_folders",
        ]
        for log in logs:
            await append(log, records=3).written
            assert await log.flush() == 3
        world.power_cut("a")
        log_dir = await attached(world, node="b")
        for new in NEW:
            log = await Log.load(log_dir, new.name, SMALL, recovery_point=logs[0].recovery_point)
            assert (log.topic_id, log.log_end_offset) == (new.topic_id, 3)

    for seed in range(1, 11):
        SimulatedWorld(seed).run(scenario)


def test_of_a_creation_that_loses_power_no_folder_has_a_wrong_topic_id() -> None:
    """Any part of the folders may be left. A topic id is the right one, missing or unreadable, and no log has a record."""
    left: set[str] = set()

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        node = world.node("a")

        async def create(_: SimulatedEnvironment) -> None:
            await Log.create_all(log_dir, NEW)

        node.start(create)
        await world.sleep(random.Random(world.seed).uniform(0, 0.003))
        world.power_cut("a")
        log_dir = await attached(world, node="b")
        for new in NEW:
            if await log_dir.stat(new.name) is None:
                left.add("nothing")
                continue
            try:
                topic_id = await load_partition_metadata(log_dir, new.name)
            except MalformedPartitionMetadata:
                left.add("unreadable")
                continue
            left.add("no topic id" if topic_id is None else "topic id")
            assert topic_id in (None, new.topic_id)
            files = world.disk(PATH).files_in(new.name)
            assert all(not content for name, content in files.items() if name.endswith(".log"))

    for seed in range(1, 101):
        SimulatedWorld(seed).run(scenario)
    assert left == {"nothing", "unreadable", "no topic id", "topic id"}


def test_if_one_name_is_taken_nothing_is_created() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await Log.create_all(log_dir, NEW[1:3])
        with pytest.raises(LogExists) as raised:
            await Log.create_all(log_dir, NEW)
        assert raised.value.names == ["t-1", "t-2"]
        assert world.disk(PATH).folders() == ["t-1", "t-2"]

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("operation", ["create_folders", "open", "fsync_folders"])
def test_if_one_operation_fails_no_log_is_returned(operation: str) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        world.disk(PATH).fail_next(operation, errno.EMFILE)
        with pytest.raises(LogDirError, match=f"{operation} .* EMFILE"):
            await Log.create_all(log_dir, NEW)

    SimulatedWorld(1).run(scenario)


def test_an_empty_list_creates_nothing() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        assert await Log.create_all(await attached(world), []) == []

    SimulatedWorld(1).run(scenario)


def test_a_new_log_can_be_used_at_once() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log = (await Log.create_all(await attached(world), NEW))[4]
        log.begin_epoch(LeaderEpoch(3))
        await append(log, epoch=3).written
        assert world.disk(PATH).files()["t-4/00000000000000000000.log"]

    SimulatedWorld(1).run(scenario)
