"""Every client with its default settings, while a disk is lost and the broker of the group coordinator is killed.

One story for each client (`clients/story.py`), all at once on a cluster of their own. What is asserted is about records:
everything acknowledged is read (by a client whose default is acks=1, what is left of it), no committed offset is lost, and
the group goes on. No wait is judged, only bounded.
"""

import gc
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.blocking_admin import BlockingAdmin
from tests.interop.clients.commits import OFFSETS_TOPIC, CommitWatcher, LostCommit, coordinator_of_all
from tests.interop.clients.interface import Client, NotHere
from tests.interop.clients.programs import PROGRAMS
from tests.interop.clients.python_clients import PYTHON_CLIENTS
from tests.interop.clients.story import COORDINATOR, DISK, WRITING_SECONDS, Rendezvous, Story
from tools.lab.disk_lab import kill_disk, why_no_loop_disks
from tools.lab.local_cluster import LocalCluster, LocalNode

CLIENTS = {client.name: client for client in [*PYTHON_CLIENTS, *PROGRAMS]}
OFFSETS_PARTITION = f"{OFFSETS_TOPIC}-0"
STORY_SECONDS_MAX = 500

pytestmark = [
    pytest.mark.stories,
    pytest.mark.timeout(900),
    # The Python clients leave connections to a killed broker to the garbage collector, which warns.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@dataclass(frozen=True, slots=True)
class Told:
    """What came of all stories. `absent` has the clients that cannot run here, with the reason."""

    stories: dict[str, Story]
    absent: dict[str, str]
    lost_commits: list[LostCommit]
    watched: set[str]


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Plays the stories of the clients that were chosen (all, or those that `-k` names) and run here."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    present, absent = _prepared([client for name, client in CLIENTS.items() if name in chosen])
    folder = tmp_path_factory.mktemp("every-client")
    is_loop = why_no_loop_disks(folder) is None
    cluster = LocalCluster.create(
        folder / "cluster",
        brokers=3,
        disks=2,
        loop=is_loop,
        overrides={
            # One partition, so that all groups have the same coordinator and lose it together.
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "500",
            "broker.session.timeout.ms": "6000",
            # Two dozen clients share the machine with the brokers, and a disk that waits for its turn is not a dead one.
            "diskraft.log.dir.operation.timeout.ms": "120000",
            "broker.heartbeat.interval.ms": "500",
        },
    )
    try:
        cluster.start()
        # While a broker is dead, some clients log a line for every attempt to reach it: tens of thousands.
        logging.disable(logging.CRITICAL)
        played = _play(cluster, present, absent, is_loop=is_loop)
        yield played
        played.stories.clear()
    finally:
        logging.disable(logging.NOTSET)
        cluster.kill()
        cluster.remove_disks()
        # What the Python clients left behind is collected here, where the warnings about it are ignored.
        gc.collect()


def _prepared(clients: list[Client]) -> tuple[list[Client], dict[str, str]]:
    present, absent = [], {}
    for client in clients:
        try:
            client.prepare()
            present.append(client)
        except NotHere as error:
            absent[client.name] = str(error)
    return present, absent


def _play(cluster: LocalCluster, clients: list[Client], absent: dict[str, str], *, is_loop: bool) -> Told:
    rendezvous = Rendezvous(len(clients))
    stories = [Story(client, cluster.bootstrap, rendezvous) for client in clients]
    watcher = CommitWatcher(cluster.bootstrap, [story.group for story in stories])
    watcher.start()
    for story in stories:
        story.before_delete = watcher.forget
        story.start()
    # The producers write for some seconds; the fault comes in the middle of that.
    if rendezvous.open(DISK):
        stories[0].join(WRITING_SECONDS / 4)
        _lose_disk(_coordinator(cluster), is_loop=is_loop)
    if rendezvous.open(COORDINATOR):
        stories[0].join(WRITING_SECONDS / 4)
        _coordinator(cluster).kill()
    for story in stories:
        story.join(STORY_SECONDS_MAX)
    watcher.end()
    watched = {group for group, _ in watcher.highest}
    return Told({story.client.name: story for story in stories}, absent, watcher.lost, watched)


def _coordinator(cluster: LocalCluster) -> LocalNode:
    """The broker that coordinates all groups."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        broker_id = coordinator_of_all(admin)
    assert broker_id is not None
    return cluster.broker(broker_id)


def _lose_disk(broker: LocalNode, *, is_loop: bool) -> None:
    """Kills the disk that holds the broker's copy of the committed offsets, and waits until the broker has noticed."""
    (path,) = (each for each in map(Path, broker.files.data_dirs) if (each / OFFSETS_PARTITION).is_dir())
    if is_loop:
        kill_disk(path)
    else:
        path.rename(path.with_name(path.name + "-gone"))
        path.mkdir()
    broker.wait_for("log_dir_failed", log_dir=str(path))


@pytest.mark.parametrize("name", list(CLIENTS))
def test_a_client_tells_its_story(name: str, told: Told) -> None:
    """Create, list, every compression type, three members, one leaves and one joins, commit, resume and delete."""
    if name in told.absent:
        message = f"{name} DID NOT RUN: {told.absent[name]}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    story = told.stories[name]
    assert not story.is_alive(), f"{name} is still at: {story.step}"
    if story.failure is not None:
        raise AssertionError(f"{name} failed at: {story.step}") from story.failure


def test_no_committed_offset_is_lost(told: Told) -> None:
    """Neither with the coordinator's disk nor with its broker. The watcher must have seen commits of every group."""
    assert told.lost_commits == []
    assert told.watched == {story.group for story in told.stories.values()}
