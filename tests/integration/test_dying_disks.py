"""Disks die under load (shutdown ioctl): every partition with a live in-sync replica stays writable, and nothing is lost."""

from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, directory_id, until, watched_cluster
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("loop_disks")]

TOPIC = "t"
PARTITIONS = 9
# Broker 1 is the preferred leader of the first three partitions, broker 2 of the next three. With this assignment every
# broker spreads the partitions over its three disks in the same way, so that six disks can die and every partition keeps a
# replica.
ASSIGNMENTS = {index: [1 + (index // 3 + turn) % 3 for turn in range(3)] for index in range(PARTITIONS)}


def test_disks_dying_one_after_another(tmp_path: Path) -> None:
    """Six of nine disks die, one at a time, so that each partition keeps a live replica. After each death every partition
    acknowledges (acks=all), and every leader outside the dead directory keeps leading in the same epoch."""
    with watched_cluster(tmp_path) as cluster:
        configs = {"min.insync.replicas": "1"}
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, configs=configs, assignments=ASSIGNMENTS)
        places = cluster.until_placed(TOPIC, 3 * PARTITIONS)
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as writer:
            writer.wait_for_acks()
            for broker_id, path in victims(cluster, places):
                kill_and_check(cluster, writer, places, broker_id, path)
            writer.stop()
        assert len(places) == PARTITIONS
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        assert writer.errors == {}
        assert None not in [node.pid for node in cluster.nodes.values()]


def victims(cluster: WatchedCluster, places: dict[tuple[int, int], str]) -> list[tuple[int, str]]:
    """Picks two disks of each broker so that every partition keeps a replica on the remaining disks. Returns first one disk
    of each broker, then the second one of each."""
    chosen: list[tuple[int, str]] = []
    for turn in range(2):
        for broker in cluster.brokers:
            dead = {path for _, path in chosen}
            for path in broker.files.data_dirs[turn:] + broker.files.data_dirs[:turn]:
                left = {index for (_, index), place in places.items() if place not in dead | {path}}
                if path not in dead and len(left) == PARTITIONS:
                    chosen.append((broker.files.node_id, path))
                    break
    assert len(chosen) == 6
    return chosen


def kill_and_check(
    cluster: WatchedCluster, writer: Writer, places: dict[tuple[int, int], str], broker_id: int, path: str
) -> None:
    """Kills one disk and checks the consequences. Removes the dead replicas from `places`."""
    lost = {index for (owner, index), place in places.items() if owner == broker_id and place == path}
    before = cluster.leadership(TOPIC)
    led = {index for index in lost if before[index][0] == broker_id}
    id_text = directory_id(path)
    kill_disk(Path(path))
    offline = cluster.broker(broker_id).wait_for("log_dir_offline", directory_id=id_text)
    assert offline["replicas"] == len(lost)
    cluster.controller.wait_for("leaders_moved", directory_id=id_text)
    for index in lost:
        del places[broker_id, index]
    writer.wait_for_acks()

    def is_told() -> bool:
        parts = cluster.partitions(TOPIC)
        return all(
            set(part.isr_nodes) == {owner for owner, index in places if index == part.partition_index}
            for part in parts.values()
        )

    # The next disk may die only once every ISR consists of the live replicas.
    until(is_told, f"every ISR is what lives after {path} died")
    after = cluster.leadership(TOPIC)
    assert {index: was for index, was in after.items() if index not in led} == {
        index: was for index, was in before.items() if index not in led
    }
    assert all(after[index][0] != broker_id for index in led)


def test_the_last_disk_takes_the_broker_with_it(tmp_path: Path) -> None:
    """When its last data directory dies, the broker exits with status 1 and one reason. The others keep serving."""
    with watched_cluster(tmp_path, disks=2) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=4, configs={"min.insync.replicas": "2"})
        broker = cluster.broker(1)
        cluster.expect_end(broker, "^the last log directory .* failed: .*EIO")
        with Writer(cluster.bootstrap, TOPIC, partitions=4) as writer:
            writer.wait_for_acks()
            for path in broker.files.data_dirs:
                kill_disk(Path(path))
            assert broker.wait_until_ended() == 1
            writer.wait_for_acks()
            # The broker informs the controller before it exits, so clients need not wait until its session times out.
            assert cluster.controller.wait_for("broker_fenced")["reason"] == "every log directory is lost"
            writer.stop()
        halts = [event for event in cluster.all_events(broker) if event["event"] == "node_halted"]
        assert len(halts) == 1
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(4))
