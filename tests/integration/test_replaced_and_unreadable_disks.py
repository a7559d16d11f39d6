"""Replaces a dead disk as docs/operations.md describes, and starts brokers with a disk that cannot be used."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, directory_id, run_tool, watched_cluster
from tests.integration.traffic import Writer, assert_nothing_lost, write_some
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("loop_disks")]

TOPIC = "t"


def test_a_replaced_disk_is_filled_again_and_nobody_starts_empty(tmp_path: Path) -> None:
    """Under load: stops the broker, puts in an empty disk, runs format --ignore-formatted and starts the broker. The
    replicas come back by replication. Then the other brokers stop, so that this one leads every partition: it must have
    every record."""
    with watched_cluster(tmp_path) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=9, configs={"min.insync.replicas": "1"})
        broker = cluster.broker(1)
        path = broker.files.data_dirs[1]
        old_id = directory_id(path)
        hosted = {index for (_, index), place in cluster.until_placed(TOPIC, 27).items() if place == path}
        assert hosted
        with Writer(cluster.bootstrap, TOPIC, partitions=9) as writer:
            writer.wait_for_acks()
            kill_disk(Path(path))
            cluster.controller.wait_for("leaders_moved", directory_id=old_id)
            writer.wait_for_acks()
            assert broker.stop() == 0
            replaced = run_tool("tools.diskraft", "disks", "replace", path)
            assert (replaced.returncode, replaced.stderr) == (0, "")
            told = cluster.format(broker).stdout
            assert f"Formatting data directory {path} with metadata.version" in told
            assert "Formatting data directory" not in told.replace(f"Formatting data directory {path}", "")
            assert directory_id(path) != old_id
            broker.start()
            broker.wait_for("broker_running")
            cluster.until_in_sync(TOPIC)
            writer.wait_for_acks()
            writer.stop()
        # A replica from the dead disk may be in any directory of this broker now, but only in one.
        assert len(cluster.places(TOPIC, only=1)) == 9
        for other in (2, 3):
            assert cluster.broker(other).stop() == 0
        cluster.until_in_sync(TOPIC, size=1)
        assert {part.leader_id for part in cluster.partitions(TOPIC).values()} == {1}
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(9))


def shut_down(path: Path) -> None:
    kill_disk(path)


def remount_read_only(path: Path) -> None:
    mount = shutil.which("mount")
    assert mount is not None
    subprocess.run([mount, "-o", "remount,ro", str(path)], check=True, timeout=60)


def write_garbage(path: Path) -> None:
    (path / "meta.properties").write_bytes(b"version=one\n\xff\xfe")


@pytest.mark.parametrize("spoil", [shut_down, remount_read_only, write_garbage])
def test_a_broker_with_one_of_two_disks_unusable(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    """The broker starts. Its replicas on the unusable disk do not lead and are in no ISR. Its replicas on the other disk
    lead and follow as before, and every partition can be written."""
    with watched_cluster(tmp_path, disks=2) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=6, configs={"min.insync.replicas": "2"})
        places = cluster.until_placed(TOPIC, 18)
        promises = write_some(cluster.bootstrap, TOPIC, partitions=6, count=300)
        broker = cluster.broker(1)
        path = broker.files.data_dirs[1]
        dead = {index for (owner, index), place in places.items() if owner == 1 and place == path}
        alive = set(range(6)) - dead
        assert dead
        assert alive
        assert broker.stop() == 0
        spoil(Path(path))
        broker.start()
        offline = broker.wait_for("log_dir_offline_at_start", log_dir=path)
        assert path in offline["cause"], "the cause names what is wrong where"
        broker.wait_for("broker_running")
        cluster.until_in_sync(TOPIC, partitions=sorted(alive))
        promises |= write_some(cluster.bootstrap, TOPIC, partitions=6, count=300, first=300)
        parts = cluster.partitions(TOPIC)
        for index in dead:
            assert parts[index].leader_id != 1
            assert 1 not in parts[index].isr_nodes
            assert parts[index].offline_replicas == [1]
        assert {index for (owner, index), _ in cluster.places(TOPIC, only=1).items() if owner == 1} == alive
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(6))
        # With the other brokers stopped, this broker leads every partition that has a replica on its usable disk.
        stop_the_others(cluster)
        after = cluster.partitions(TOPIC)
        assert {index for index, part in after.items() if part.leader_id == 1} == alive
        assert {index for index, part in after.items() if part.leader_id == -1} == dead
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=sorted(alive))


def stop_the_others(cluster: WatchedCluster) -> None:
    for other in (2, 3):
        assert cluster.broker(other).stop() == 0
