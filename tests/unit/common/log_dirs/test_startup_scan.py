"""The start-up scan of directories that are good, unformatted, broken, locked, or of another cluster or node."""

import errno
from collections.abc import Mapping

import pytest

from common.ids import BrokerEpoch, DirectoryId, Uuid, uuid_text
from common.log_dirs.directories import NodeDirectories
from common.log_dirs.startup_scan import StartupError, scan_directories
from common.storage.clean_shutdown import format_clean_shutdown
from common.storage.meta_properties import MetaProperties, format_meta_properties, parse_meta_properties
from tests.simulation.environment import SimulatedWorld

IDS = {"/m": b"m" * 16, "/d1": b"1" * 16, "/d2": b"2" * 16}
CLUSTER = "cluster-of-the-tests--"


def formatted(path: str, *, node_id: int = 1, cluster_id: str = CLUSTER, with_id: bool = True) -> bytes:
    directory_id = DirectoryId(Uuid(IDS[path])) if with_id else None
    return format_meta_properties(MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id))


def world_with(contents: Mapping[str, bytes | None]) -> SimulatedWorld:
    """Builds a world whose disks hold these contents of meta.properties. None means an empty disk."""
    world = SimulatedWorld(seed=1)
    for path, content in contents.items():
        disk = world.disk(path)
        if content is not None:
            disk.write("meta.properties", content)
    return world


async def scan_node(world: SimulatedWorld) -> NodeDirectories:
    return await scan_directories(
        world.node("n1"), node_id=1, log_dirs=("/d1", "/d2"), metadata_log_dir="/m", operation_timeout_ns=10**9
    )


def scan(world: SimulatedWorld) -> NodeDirectories:
    return world.run(scan_node)


def refused(world: SimulatedWorld) -> str:
    with pytest.raises(StartupError) as caught:
        scan(world)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_good_directories_are_all_online() -> None:
    """The scan of three formatted directories, two for data and one for metadata, finds none offline."""
    directories = scan(world_with({path: formatted(path) for path in IDS}))
    assert list(directories.known.online) == [IDS["/d1"], IDS["/d2"]]
    assert directories.metadata.path == "/m"
    assert directories.metadata_directory_id == IDS["/m"]
    assert directories.cluster_id == CLUSTER
    assert not directories.known.any_offline
    assert directories.known.previous_broker_epoch is None
    assert [log_dir.path for log_dir in directories.log_dirs.values()] == ["/d1", "/d2", "/m"]


def test_a_missing_directory_id_is_added_and_kept() -> None:
    """The second start finds the id that the first one wrote."""
    world = world_with({path: formatted(path, with_id=path != "/d1") for path in IDS})

    async def scenario(_: SimulatedWorld) -> None:
        await scan_node(world)
        first = parse_meta_properties(world.disk("/d1").files()["meta.properties"]).directory_id
        assert first is not None
        world.crash("n1")
        assert first in (await scan_node(world)).known.online

    world.run(scenario)


def test_an_unreadable_data_directory_starts_offline() -> None:
    """One disk returns EIO. The node starts with the other one and lists the failed path as offline."""
    world = world_with({path: formatted(path) for path in IDS})
    world.disk("/d2").fail_with(errno.EIO)
    directories = scan(world)
    assert list(directories.known.online) == [IDS["/d1"]]
    assert [each.path for each in directories.known.offline] == ["/d2"]
    assert directories.known.any_offline


def test_a_read_only_disk_starts_offline_though_it_reads_well() -> None:
    """meta.properties can be read; only a write shows that the disk is broken."""
    world = world_with({path: formatted(path) for path in IDS})
    world.disk("/d2").fail_with(errno.EROFS, operations=["probe", "append", "fsync", "mkdir", "rename", "replace_file"])
    directories = scan(world)
    assert [each.path for each in directories.known.offline] == ["/d2"]


def test_the_metadata_directory_must_work() -> None:
    """Without a working metadata directory the node cannot run at all."""
    world = world_with({path: formatted(path) for path in IDS})
    world.disk("/m").fail_with(errno.EIO)
    assert "/m" in refused(world)


def test_garbage_in_meta_properties_takes_the_directory_offline() -> None:
    """A malformed file means that the disk is broken, not that it is new. The cause names the file."""
    world = world_with({"/m": formatted("/m"), "/d1": formatted("/d1"), "/d2": b"version=x\n"})
    (offline,) = scan(world).known.offline
    assert offline.path == "/d2"
    assert offline.cause == "/d2/meta.properties is damaged: version is 'x', which is not a number"


def test_an_unformatted_directory_among_formatted_ones_is_fatal() -> None:
    """The disk is probably not mounted, so the directory must not get a new id."""
    text = refused(world_with({"/m": formatted("/m"), "/d1": formatted("/d1"), "/d2": None}))
    assert "/d2" in text
    assert "kafka-storage format" in text


def test_a_directory_of_another_cluster_or_node_is_fatal() -> None:
    """The error names the directory's cluster or node and the expected one."""
    other_cluster = {"/m": formatted("/m"), "/d1": formatted("/d1"), "/d2": formatted("/d2", cluster_id="another")}
    assert "/d2" in refused(world_with(other_cluster))
    other_node = {"/m": formatted("/m"), "/d1": formatted("/d1", node_id=9), "/d2": formatted("/d2")}
    text = refused(world_with(other_node))
    assert "/d1" in text
    assert "9" in text


def test_a_copied_directory_is_fatal() -> None:
    """Two paths have the same directory.id. The error names both paths."""
    text = refused(world_with({"/m": formatted("/m"), "/d1": formatted("/d1"), "/d2": formatted("/d1")}))
    assert "/d1" in text
    assert "/d2" in text
    assert uuid_text(IDS["/d1"]) in text


def test_a_directory_in_use_is_fatal_and_the_others_are_released() -> None:
    """A node cannot start on a disk that another node has locked. The failed scan releases its own locks, so the node can
    start once the other node has closed the directory."""
    world = world_with({path: formatted(path) for path in IDS})

    async def scenario(_: SimulatedWorld) -> None:
        holder = world.node("n2").log_dir("/d2", operation_timeout_ns=10**9)
        await holder.attach()
        await holder.lock()
        with pytest.raises(StartupError, match=r"/d2 is in use"):
            await scan_node(world)
        await holder.close()
        assert len((await scan_node(world)).known.online) == 2

    world.run(scenario)


def test_a_metadata_log_in_the_wrong_place_is_fatal() -> None:
    """metadata.log.dir was changed without moving the log. Starting would create an empty log."""
    world = world_with({path: formatted(path) for path in IDS})
    world.disk("/d1").write("__cluster_metadata-0/quorum-state", b"{}")
    text = refused(world)
    assert "/d1" in text
    assert "metadata.log.dir" in text


def test_the_previous_epoch_counts_only_when_every_directory_agrees() -> None:
    """The scan returns the epoch in the clean-shutdown markers, or None if one data directory has no marker."""
    world = world_with({path: formatted(path) for path in IDS})
    for path in ("/d1", "/d2"):
        world.disk(path).write(".kafka_cleanshutdown", format_clean_shutdown(BrokerEpoch(5)))

    async def scenario(_: SimulatedWorld) -> None:
        assert (await scan_node(world)).known.previous_broker_epoch == 5
        world.crash("n1")
        world.disk("/d2").delete(".kafka_cleanshutdown")
        assert (await scan_node(world)).known.previous_broker_epoch is None

    world.run(scenario)


def test_a_full_directory_starts_online_and_its_free_space_is_known() -> None:
    """There is no space for the probe's file, but all data on the disk can be read. The scan reports that the disk is full,
    so placement avoids it from the start."""
    world = world_with({path: formatted(path) for path in IDS})
    world.disk("/d2").capacity_bytes = world.disk("/d2").used_bytes()
    directories = scan(world)
    assert list(directories.known.online) == [IDS["/d1"], IDS["/d2"]]
    usable = [each.space.usable_bytes for each in directories.known.data_dirs if each.space is not None]
    assert usable[0] > 0
    assert usable[1:] == [0]
    assert [event.fields["log_dir"] for event in world.events_named("log_dir_warning")] == ["/d2"]


@pytest.mark.parametrize("operation", ["stat", "replace_file"])
def test_a_directory_that_fails_after_it_was_opened_starts_offline(operation: str) -> None:
    """A disk that fails during the scan is treated like one that failed before the scan."""
    world = world_with({path: formatted(path, with_id=path != "/d2") for path in IDS})
    world.disk("/d2").fail_with(errno.EIO, operations=[operation])
    directories = scan(world)
    assert list(directories.known.online) == [IDS["/d1"]]
    assert [each.path for each in directories.known.offline] == ["/d2"]


@pytest.mark.parametrize("operation", ["attach", "lock", "read_file", "probe"])
def test_a_process_that_is_short_of_files_does_not_start_without_a_healthy_disk(operation: str) -> None:
    """The process has too many open files (EMFILE), so the start fails. Otherwise the node would run without a healthy disk
    until the next restart, and each partition on that disk would lack a replica."""
    world = world_with({path: formatted(path) for path in IDS})
    world.disk("/d2").fail_next(operation, errno.EMFILE)

    async def scenario(world: SimulatedWorld) -> None:
        with pytest.raises(StartupError, match=r"/d2.*short of files.*ulimit"):
            await scan_node(world)
        assert list((await scan_node(world)).known.online) == [IDS["/d1"], IDS["/d2"]]

    world.run(scenario)
