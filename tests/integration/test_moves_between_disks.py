"""Replicas move from disk to disk under load, by kafka-python's AdminClient, while disks die.

Moves inside a broker only. A rate makes each move last for some seconds, so that the disks die in the middle of it.
test_plan_of_kip_113 goes through KIP-113's own test plan, where disks die after the moves.
"""

import warnings
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, until, watched_cluster
from tests.integration.traffic import Writer, assert_nothing_lost, write_some
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk, revive_disk
from tools.lab.local_cluster import LocalNode

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaStorageError, NoError

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "t"
# The first replica of partition 0 is on broker 1, that of partition 1 on broker 2, and so on.
ASSIGNMENTS = {index: [1 + (index + turn) % 3 for turn in range(3)] for index in range(4)}
BYTES_PER_PARTITION = 8 << 20
BYTES_PER_S = 1_500_000
RECORD_BYTES = 4096
OVERRIDES = {
    "replica.alter.log.dirs.io.max.bytes.per.second": str(BYTES_PER_S),
    # Long, because these tests are not about session timeouts and the machine may be busy.
    "broker.session.timeout.ms": "18000",
}


def move(cluster: WatchedCluster, targets: dict[tuple[int, int], str]) -> dict[tuple[int, int], type[Exception]]:
    """Asks for all these moves: (broker, partition) -> path. Returns the error of each."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        wanted = {(TOPIC, index, broker_id): path for (broker_id, index), path in targets.items()}
        answers = admin.alter_replica_log_dirs(wanted)
    finally:
        admin.close()
    return {(replica.broker_id, replica.partition): error for replica, error in answers.items()}


def write_much(cluster: WatchedCluster, partitions: int) -> dict[tuple[int, int], int]:
    count = partitions * BYTES_PER_PARTITION // RECORD_BYTES
    return write_some(cluster.bootstrap, TOPIC, partitions=partitions, count=count, size=RECORD_BYTES)


def until_half_copied(target: str, index: int) -> None:
    """Waits until the copy in this directory is between a tenth and all of the partition."""

    def is_on_its_way() -> bool:
        segments = Path(target).glob(f"{TOPIC}-{index}.*-future/*.log")
        return sum(segment.stat().st_size for segment in segments) > BYTES_PER_PARTITION // 10

    until(is_on_its_way, f"a part of {TOPIC}-{index} in {target}")


def finished(node: LocalNode, index: int) -> None:
    node.wait_for("move_finished", partition=f"{TOPIC}-{index}", seconds=120)


@pytest.mark.usefixtures("loop_disks")
def test_replicas_move_while_a_target_and_a_source_die(tmp_path: Path) -> None:
    """The replicas of two partitions move to other disks on all three brokers. One target and one source die half-way. The
    other four moves finish, the replica with the dead target stays where it was, and the one with the dead source leaves
    the ISR, until its disk is back: then its move goes on. Clients get every acknowledged record, and no error."""
    with watched_cluster(tmp_path, disks=4, overrides=OVERRIDES) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=4, assignments=ASSIGNMENTS, configs={"min.insync.replicas": "1"})
        places = cluster.until_placed(TOPIC, 12)
        for broker in cluster.brokers:
            mine = [places[broker.files.node_id, index] for index in range(4)]
            assert len(set(mine)) == 4, "each replica of a broker is on a disk of its own"
        # Partition 0 joins partition 2 on its disk, and partition 1 joins partition 3.
        targets = {(broker_id, index): places[broker_id, index + 2] for broker_id in (1, 2, 3) for index in (0, 1)}
        promises = write_much(cluster, 4)
        with Writer(cluster.bootstrap, TOPIC, partitions=4, first=len(promises)) as writer:
            writer.wait_for_acks()
            assert set(move(cluster, targets).values()) == {NoError}
            dead_target, dead_source = targets[1, 0], places[2, 1]
            until_half_copied(dead_target, 0)
            until_half_copied(targets[2, 1], 1)
            kill_disk(Path(dead_target))
            kill_disk(Path(dead_source))
            cluster.broker(1).wait_for("move_failed", partition=f"{TOPIC}-0")
            cluster.broker(2).wait_for("move_interrupted", partition=f"{TOPIC}-1")
            for broker_id, index in targets.keys() - {(1, 0), (2, 1)}:
                finished(cluster.broker(broker_id), index)
            # The disk that died under the copy of partition 0 had the replica of partition 2 too.
            lost = {(1, 2), (2, 1)}
            expected = {replica: path for replica, path in (places | targets).items() if replica not in lost}
            expected[1, 0] = places[1, 0]
            until(lambda: cluster.places(TOPIC) == expected, "every replica where it should be")
            until(lambda: set(cluster.partitions(TOPIC)[1].isr_nodes) == {1, 3}, "broker 2 out of the ISR of t-1")
            assert move(cluster, {(1, 0): dead_target, (2, 1): places[2, 0]}) == dict.fromkeys(
                [(1, 0), (2, 1)], KafkaStorageError
            )
            writer.wait_for_acks()

            cluster.broker(2).stop()
            revive_disk(Path(dead_source))
            cluster.broker(2).start()
            finished(cluster.broker(2), 1)
            cluster.until_in_sync(TOPIC, partitions=[0, 1, 3])
            until(lambda: cluster.places(TOPIC) == expected | {(2, 1): targets[2, 1]}, "the interrupted move is done")
            writer.wait_for_acks()
            writer.stop()
        assert writer.errors == {}
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises | writer.acknowledged, partitions=range(4))


def test_a_target_that_may_no_longer_be_written(tmp_path: Path) -> None:
    """An ordinary user's broker loses the permission on the target half-way (mode 000, as in KIP-113). The move ends, the
    replica stays where it is and keeps acknowledging, and the broker leads on with its other directory."""

    def make_ordinary(cluster: WatchedCluster) -> None:
        for node in cluster.brokers:
            # Root without these capabilities is bound by permissions like the owner of the files that it is.
            node.prefix = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--")

    with watched_cluster(tmp_path, disks=2, loop=False, overrides=OVERRIDES, prepare=make_ordinary) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=1, assignments={0: [1, 2, 3]})
        source = cluster.until_placed(TOPIC, 3)[1, 0]
        (target,) = set(cluster.broker(1).files.data_dirs) - {source}
        promises = write_much(cluster, 1)
        with Writer(cluster.bootstrap, TOPIC, partitions=1, first=len(promises)) as writer:
            writer.wait_for_acks()
            assert move(cluster, {(1, 0): target}) == {(1, 0): NoError}
            until_half_copied(target, 0)
            Path(target).chmod(0o000)
            failed = cluster.broker(1).wait_for("log_dir_failed", log_dir=target)
            assert "EACCES" in failed["cause"]
            cluster.broker(1).wait_for("move_failed", partition=f"{TOPIC}-0")
            assert move(cluster, {(1, 0): target}) == {(1, 0): KafkaStorageError}
            writer.wait_for_acks()
            writer.stop()
        assert writer.errors == {}
        assert cluster.places(TOPIC)[1, 0] == source
        assert cluster.leadership(TOPIC) == {0: (1, 0)}
        cluster.until_in_sync(TOPIC)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises | writer.acknowledged, partitions=[0])
