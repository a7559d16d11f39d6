"""Mounts that vanish or change places under a running broker: the path still works, but leads to another disk.

Writes to such a path would succeed, because an empty folder of the parent file system accepts them too. The broker notices
only by comparing the open directory with the path. The probe does this even when the disk is idle.
"""

import os
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, directory_id, open_files_under, until, watched_cluster
from tests.integration.traffic import Promises, assert_nothing_lost, write_some
from tests.interop.topics import create_topic
from tools.lab.disk_faults import swap

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("loop_disks")]

TOPIC = "t"
FAST = {"broker.heartbeat.interval.ms": "500"}


def test_swapped_mounts_are_noticed_on_idle_disks(tmp_path: Path) -> None:
    """Two disks of a broker change places. Both directories go offline although they are idle, and the third keeps serving.
    After a restart the broker identifies each disk by its meta.properties, and all records are there."""
    with watched_cluster(tmp_path, overrides=FAST) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=9, configs={"min.insync.replicas": "2"})
        promises = write_some(cluster.bootstrap, TOPIC, partitions=9, count=900)
        broker = cluster.broker(1)
        first, second, third = (Path(path) for path in broker.files.data_dirs)
        ids = {path: directory_id(str(path)) for path in (first, second)}
        swap(first, second)
        assert [directory_id(str(first)), directory_id(str(second))] == [ids[second], ids[first]]
        for path in (first, second):
            failed = broker.wait_for("log_dir_failed", log_dir=str(path))
            assert "ESTALE" in failed["cause"]
            cluster.controller.wait_for("log_dir_reported_offline", directory_id=ids[path])
        assert set(cluster.places(TOPIC, only=1).values()) == {str(third)}
        promises |= write_some(cluster.bootstrap, TOPIC, partitions=9, count=900, first=900)
        comes_back_with_everything(cluster, promises)


def comes_back_with_everything(cluster: WatchedCluster, promises: Promises) -> None:
    broker = cluster.broker(1)
    assert broker.stop() == 0
    broker.start()
    broker.wait_for("broker_running")
    cluster.until_in_sync(TOPIC)
    assert len(cluster.places(TOPIC, only=1)) == 9
    for other in (2, 3):
        assert cluster.broker(other).stop() == 0
    cluster.until_in_sync(TOPIC, size=1)
    assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(9))


def test_a_renamed_directory_is_noticed(tmp_path: Path) -> None:
    """Renames a plain directory away and puts an empty one in its place, as the demo does without root."""
    with watched_cluster(tmp_path, loop=False, overrides=FAST) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=9, configs={"min.insync.replicas": "2"})
        broker = cluster.broker(1)
        path = Path(broker.files.data_dirs[2])
        id_text = directory_id(str(path))
        gone = path.with_name("gone")
        path.rename(gone)
        path.mkdir()
        failed = broker.wait_for("log_dir_failed", log_dir=str(path))
        assert "ESTALE" in failed["cause"]
        cluster.controller.wait_for("log_dir_reported_offline", directory_id=id_text)
        until(lambda: not open_files_under(broker, str(gone)), f"every descriptor in {gone} closed")
        assert os.listdir(path) == []
        write_some(cluster.bootstrap, TOPIC, partitions=9, count=90)
