"""Directories of ours, opened by a release of Apache Kafka that does not know directory.id and ignores it (KIP-858)."""

from pathlib import Path

import pytest

from common.storage.meta_properties import parse_meta_properties
from tests.integration.traffic import assert_nothing_lost, write_some
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX, START_SECONDS_MAX
from tests.interop.mixed.cluster import MixedCluster, Node, mixed_cluster
from tests.interop.mixed.releases import Release
from tests.interop.topics import create_topic

LEVEL = "3.6"
TOPIC, COUNT = "t", 200
ALONE = {"offsets.topic.replication.factor": "1", "diskraft.log.dir.free.bytes.floor": "0"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * START_SECONDS_MAX)]


def test_a_release_without_directory_ids_opens_our_directories(before_directory_ids: Release, tmp_path: Path) -> None:
    """The node has one data directory, because that release can have no more in KRaft. It finds our records and our metadata
    log, adds to both, and leaves the ids as they are; then the node is ours again."""
    node = Node(1, "broker,controller", disks=1)
    with mixed_cluster(tmp_path, [node], overrides=ALONE, level=LEVEL) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=1, replication_factor=1)
        before = meta_properties(cluster)
        assert all(b"directory.id=" in content for content in before)
        promises = write_some(cluster.bootstrap, TOPIC, partitions=1, count=COUNT)
        for end, release in ((MixedCluster.shut_down, before_directory_ids), (MixedCluster.kill, None)):
            end(cluster, 1)
            cluster.use(cluster.nodes[1].files, release)
            cluster.start(1)
            assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=[0])
            promises |= write_some(cluster.bootstrap, TOPIC, partitions=1, count=COUNT, first=len(promises))
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=[0])
        assert [parse_meta_properties(each) for each in meta_properties(cluster)] == [
            parse_meta_properties(each) for each in before
        ]


def meta_properties(cluster: MixedCluster) -> list[bytes]:
    files = cluster.nodes[1].files
    return [(Path(path) / "meta.properties").read_bytes() for path in (files.metadata_dir, *files.data_dirs)]
