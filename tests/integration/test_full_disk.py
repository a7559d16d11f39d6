"""A disk that fills up (a small image): its directory goes offline as full, and what was acknowledged is elsewhere."""

from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, directory_id, remake_disk, watched_cluster
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.topics import create_topic

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(150), pytest.mark.usefixtures("loop_disks")]

TOPIC = "t"
PARTITIONS = 6
SMALL_MIB = 24
# New replicas are placed on small disks too.
OVERRIDES = {"diskraft.log.dir.free.bytes.floor": "0", "broker.heartbeat.interval.ms": "500"}


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """One disk of one broker is small. Writing goes on through its end: the append that no longer fits takes that
    directory offline with the cause full, its leaders move, nothing acknowledged is lost, other disks notice nothing."""

    def with_a_small_disk(cluster: WatchedCluster) -> None:
        broker = cluster.broker(1)
        remake_disk(broker.files.data_dirs[0], size_mib=SMALL_MIB)
        cluster.format(broker)

    with watched_cluster(tmp_path, disks=2, disk_mib=256, overrides=OVERRIDES, prepare=with_a_small_disk) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        places = cluster.until_placed(TOPIC, 3 * PARTITIONS)
        broker = cluster.broker(1)
        path = broker.files.data_dirs[0]
        id_text = directory_id(path)
        inside = {index for (owner, index), place in places.items() if owner == 1 and place == path}
        assert inside, "the small disk holds nothing"
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS, rate=600, size=20_000) as writer:
            writer.wait_for_acks()
            before = cluster.leadership(TOPIC)
            led = {index for index in inside if before[index][0] == 1}
            failed = broker.wait_for("log_dir_failed", log_dir=path)
            assert "ENOSPC" in failed["cause"]
            assert failed["is_full"] is True
            cluster.controller.wait_for("leaders_moved", directory_id=id_text)
            writer.wait_for_acks()
            writer.stop()
        after = cluster.leadership(TOPIC)
        assert {index: after[index] for index in range(PARTITIONS) if index not in led} == {
            index: before[index] for index in range(PARTITIONS) if index not in led
        }
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        assert broker.pid is not None
        assert writer.errors == {}
        make_room_and_restart(cluster, path)
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))


def make_room_and_restart(cluster: WatchedCluster, path: str) -> None:
    """The operator's way out: stop, put a larger disk in its place, format, start."""
    broker = cluster.broker(1)
    assert broker.stop() == 0
    remake_disk(path, size_mib=256)
    cluster.format(broker)
    broker.start()
    broker.wait_for("broker_running")
    cluster.until_in_sync(TOPIC)
