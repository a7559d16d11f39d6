"""A start looks at all logs several times, and the event loop runs in between."""

import asyncio

import pytest

from broker.hosting.directory_logs import DirectoryContent, LoadedLog, find_superfluous
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.loading_progress import LoadingProgress
from broker.hosting.replica_loading import ReplicaLoading
from common.configuration.topic import TopicConfig
from common.ids import BrokerId, Offset, TopicIdPartition
from common.log_dirs.log_directories import LogDirectories, LogDirectory
from common.storage.log import Log
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.cluster import TOPIC, directory, path
from tests.unit.common.storage.batches import append


class RecordingHosted(Hosted):
    """Notes in which step of the loop each look at the online directories was taken."""

    def __init__(self, log_directories: LogDirectories) -> None:
        super().__init__(log_directories)
        self.step = 0
        self.looks: list[int] = []

    def online_directories(self) -> list[HostedDirectory]:
        self.looks.append(self.step)
        asyncio.get_running_loop().call_soon(self._note_next_step)
        return super().online_directories()

    def _note_next_step(self) -> None:
        self.step += 1


def test_each_look_at_all_logs_has_a_step_of_the_loop_for_itself() -> None:
    """Each look notes the step that it is in. What is returned is decided in the same step as the last look: in a later one,
    a directory may have gone offline."""

    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("broker-1")
        hosted = RecordingHosted(
            LogDirectories(
                [
                    LogDirectory(path=path(1, "a"), directory_id=directory(1, "a")),
                    LogDirectory(path=path(1, "metadata"), directory_id=directory(1, "metadata")),
                ],
                data_dirs=[path(1, "a")],
                metadata_dir=path(1, "metadata"),
            )
        )
        world.disk(path(1, "a"))
        log_dir = env.log_dir(path(1, "a"), operation_timeout_ns=10**9)
        await log_dir.attach()
        hosted.add(HostedDirectory(directory(1, "a"), log_dir))
        loading = ReplicaLoading(
            env,
            hosted,
            broker_id=BrokerId(1),
            placed_here=lambda _key: None,
            config_of=lambda _topic: TopicConfig(),
            topic_ids={},
            progress=LoadingProgress(env),
        )
        found = await loading.load()
        assert [each.directory_id for each, _ in found] == [directory(1, "a")]
        load, superfluous, moved, futures, *attached = hosted.looks
        assert load < superfluous < moved < futures < attached[0]
        assert set(attached) == {hosted.step}

    SimulatedWorld(1).run(scenario)


def test_what_the_checkpoint_files_name_is_collected_one_by_one() -> None:
    """The files may name thousands of replicas, and other directories are loaded meanwhile. Topics that are gone leave no
    trace, because a new topic of the name has another id."""
    content = DirectoryContent(
        checkpoints={"one": {("t", 0): 7, ("gone", 0): 7}, "other": {("t", 0): 8, ("t", 1): 8}}, strays=[("t", 2)]
    )
    traces: set[TopicIdPartition] = set()
    assert len(list(content.collect_traces({"t": TOPIC}, traces))) == 4
    assert traces == {TopicIdPartition(TOPIC, index) for index in range(3)}


@pytest.mark.parametrize(
    ("named", "other", "kept"),
    [
        ("0:0-3", "0:0-5", "other"),
        ("0:0-3", "0:0-3 1:3-5", "other"),
        ("0:0-3 1:3-4", "0:0-5", "named"),
        ("1:0-3", "0:0-5", "named"),
        ("0:0-3", "0:0-3", "named"),
        ("0:0-5", "0:0-3", "named"),
        ("0:0-0", "0:0-3", "named"),
        ("0:0-3", "0:3-5", "named"),
        ("0:0-3", "0:2-5", "other"),
    ],
)
def test_the_log_that_the_metadata_names_is_kept_unless_another_one_continues_it(named: str, other: str, kept: str) -> None:
    """Each log is given by its epochs, each with its first offset and its end."""

    async def loaded(world: SimulatedWorld, letter: str, epochs: str) -> LoadedLog:
        world.disk(path(1, letter))
        log_dir = world.node("broker-1").log_dir(path(1, letter), operation_timeout_ns=10**9)
        await log_dir.attach()
        parsed = [(int(epoch), *map(int, span.split("-"))) for epoch, span in (each.split(":") for each in epochs.split())]
        log = await Log.create(log_dir, "t-0", TopicConfig(), TOPIC, start_offset=Offset(parsed[0][1]))
        for epoch, start, end in parsed:
            for _ in range(start, end):
                await append(log, epoch=epoch).written
        return LoadedLog("t", TOPIC, 0, log, Offset(0), Offset(0))

    async def scenario(world: SimulatedWorld) -> None:
        found = {
            directory(1, "b"): [await loaded(world, "b", other)],
            directory(1, "a"): [await loaded(world, "a", named)],
        }
        [(superfluous, _)] = find_superfluous(found, named_by_metadata=lambda _: directory(1, "a"), is_in_isr=lambda _: True)
        assert superfluous == directory(1, "b" if kept == "named" else "a")

    SimulatedWorld(1).run(scenario)
