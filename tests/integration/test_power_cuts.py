"""All disks of a cluster lose power at once: what a topic with flush.messages=1 has acknowledged is still there."""

from pathlib import Path

import pytest

from tests.integration.cluster import watched_cluster
from tests.integration.traffic import Writer, assert_nothing_lost, read_all
from tests.interop.topics import create_topic
from tools.lab import disk_faults
from tools.lab.disk_lab import revive_disk

PARTITIONS = 6
SAFE, FAST = "safe", "fast"
RECORDS_MIN = 2_000

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.usefixtures("loop_disks")]


def test_what_was_synced_before_it_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    """The same traffic to a topic that syncs as Kafka does by default loses records, so the power was really cut."""
    with watched_cluster(tmp_path, disks=2) as cluster:
        create_topic(cluster.bootstrap, FAST, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        create_topic(
            cluster.bootstrap, SAFE, partitions=PARTITIONS, configs={"min.insync.replicas": "2", "flush.messages": "1"}
        )
        fast = Writer(cluster.bootstrap, FAST, partitions=PARTITIONS, rate=2_000, size=300)
        with fast, Writer(cluster.bootstrap, SAFE, partitions=PARTITIONS, rate=2_000, size=300) as safe:
            while min(len(fast.acknowledged), len(safe.acknowledged)) < RECORDS_MIN:
                fast.wait_for_acks()
                safe.wait_for_acks()
            cluster.kill()
            before = dict(fast.acknowledged)
            for path in (Path(each) for broker in cluster.brokers for each in broker.files.data_dirs):
                disk_faults.cut_power(path)
                revive_disk(path)
            cluster.start()
            cluster.until_in_sync(SAFE)
            safe.wait_for_acks()
        assert safe.errors == {}
        assert_nothing_lost(cluster.bootstrap, SAFE, safe.acknowledged, partitions=range(PARTITIONS))
        kept = read_all(cluster.bootstrap, FAST, partitions=range(PARTITIONS))
        lost = sum(kept.get(place) != number for place, number in before.items())
        print(f"{SAFE}: none of {len(safe.acknowledged)} is lost; {FAST}: {lost} of {len(before)}")
        assert lost > 0
