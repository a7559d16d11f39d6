"""The directories of a node change hands between Diskraft and Apache Kafka, after clean shutdowns and after kills.

Both read one server.properties, so the node keeps its id, its addresses and its directories, and only the software that runs
changes. What a broker acknowledged and what a controller decided must be there afterwards.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from analytics.requirements import missing_package
from common.ids import uuid_text
from common.metadata.directory_ids import LOST
from common.protocol.numbering import TO_APACHE
from common.storage.meta_properties import parse_meta_properties
from tests.integration.cluster import until
from tests.integration.traffic import QUIET, Promises, assert_nothing_lost, write_some
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.metadata_files import records
from tests.interop.mixed.cluster import READY_SECONDS, MixedCluster, Node, mixed_cluster
from tests.interop.mixed.copier import committed
from tests.interop.mixed.releases import Release
from tests.interop.our_tools import run_diskraft, run_tool
from tests.interop.topics import create_topic

TOPIC, PARTITIONS = "t", 4
COUNT = 400
IN_TRANSACTIONS, GROUP = "in-transactions", "g"
SCRAM_USER = "alice"
CREDENTIAL = f"SCRAM-SHA-256=[name={SCRAM_USER},password=secret]"
SNAPSHOT_PARTITIONS = 60
CLIENT_SECONDS = 60.0
CONTROLLER, BROKER = 101, 1
STORY_SECONDS = 400
ALONE = {
    "broker.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "diskraft.log.dir.free.bytes.floor": "0",
    # Segments and snapshots come and go while the software changes.
    "log.segment.bytes": "1048576",
    "metadata.log.max.record.bytes.between.snapshots": "4096",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + STORY_SECONDS)]


def test_a_brokers_directories_change_hands(newest: Release, tmp_path: Path) -> None:
    """Each writes records, some of them in transactions, and commits an offset; the next one finds all of that. The broker
    is alone, so nobody could have given it the records again."""
    nodes = [Node(CONTROLLER, "controller", disks=0), Node(BROKER, "broker", newest, disks=2)]
    with mixed_cluster(tmp_path, nodes, overrides=ALONE) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=1)
        create_topic(cluster.bootstrap, IN_TRANSACTIONS, partitions=1, replication_factor=1)
        ids = directory_ids(cluster)
        promises = write_more(cluster, {}, 0)
        for number, (end, release) in enumerate(changes(newest), start=1):
            change_hands(cluster, BROKER, end, release)
            assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(PARTITIONS))
            assert_transactions(cluster.bootstrap, number)
            promises = write_more(cluster, promises, number)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(PARTITIONS))
        assert directory_ids(cluster) == ids


def test_a_controllers_directory_changes_hands(newest: Release, tmp_path: Path) -> None:
    """Each creates a topic, finds those of the others, and writes a snapshot that holds everything, also the credential that
    Diskraft only keeps, the voters, which only the log names, and a replica whose directory is LOST. It was Apache Kafka's
    controller to which the broker reported that, and no controller lets the replica lead before its directory is back."""
    options = ("--standalone", "--add-scram", CREDENTIAL)
    nodes = [Node(CONTROLLER, "controller", newest, disks=0, format_options=options), Node(BROKER, "broker", disks=2)]
    with mixed_cluster(tmp_path, nodes, overrides=ALONE, has_fixed_voters=False) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=1)
        promises = write_some(cluster.bootstrap, TOPIC, partitions=PARTITIONS, count=COUNT)
        lost = take_out_a_directory(cluster)
        snapshot = create_enough(cluster, "topic-0", None)
        assert lost_in(snapshot) == lost
        if missing_package("pyarrow") is None:
            assert lost_in_export(cluster, tmp_path / "history") == lost
        for number, (end, release) in enumerate(changes(newest), start=1):
            change_hands(cluster, CONTROLLER, end, release)
            snapshot = create_enough(cluster, f"topic-{number}", snapshot)
            listed = run_tool("topics", "--bootstrap-server", cluster.bootstrap, "--list").lines
            assert listed == [TOPIC, *(f"topic-{each}" for each in range(number + 1))]
            assert lost_in(snapshot) == lost == leaderless(cluster)
        restart_with(cluster, *cluster.nodes[BROKER].files.data_dirs)
        until(lambda: not leaderless(cluster), "the replicas that were lost lead again", seconds=READY_SECONDS)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(PARTITIONS))


def take_out_a_directory(cluster: MixedCluster) -> set[int]:
    """Starts the broker without its second directory, and returns the partitions whose only replica was in it, once the
    controller has recorded that."""
    first, second = cluster.nodes[BROKER].files.data_dirs
    lost = {index for index, place in cluster.places(TOPIC, BROKER).items() if place == second}
    assert 0 < len(lost) < PARTITIONS
    restart_with(cluster, first)
    until(lambda: leaderless(cluster) == lost, f"partitions {lost} are lost", seconds=READY_SECONDS)
    return lost


def restart_with(cluster: MixedCluster, *log_dirs: str) -> None:
    cluster.shut_down(BROKER)
    cluster.set_property(BROKER, "log.dirs", ",".join(log_dirs))
    cluster.start(BROKER)


def leaderless(cluster: MixedCluster) -> set[int]:
    return {index for index, part in cluster.partitions(TOPIC).items() if part.leader_id < 0}


def lost_in_export(cluster: MixedCluster, out: Path) -> set[int]:
    """Returns the partitions whose only replica is LOST in the export of the controller's metadata log."""
    # Only where the extra `analytics` is installed.
    from pyarrow.parquet import read_table

    metadata = cluster.nodes[CONTROLLER].files.metadata_dir
    done = run_diskraft("metadata", "export", "--metadata-log-dir", metadata, "--out", str(out))
    assert done.status == 0, done
    rows = [row for path in sorted(out.glob("*.parquet")) for row in read_table(path).to_pylist()]
    return {row["partition"] for row in rows if row["directories"] == ["LOST"]}


def lost_in(snapshot: Path) -> set[int]:
    """Returns the topic's partitions whose replica is LOST in the snapshot, as our tool prints Apache Kafka's number."""
    found = [(each["type"], each["data"]) for each in records([snapshot])]
    (topic_id,) = (data["topicId"] for kind, data in found if kind == "TOPIC_RECORD" and data["name"] == TOPIC)
    partitions = [data for kind, data in found if kind == "PARTITION_RECORD" and data["topicId"] == topic_id]
    lost = uuid_text(TO_APACHE[LOST])
    return {data["partitionId"] for data in partitions if data["directories"] == [lost] and data["leader"] < 0}


def create_enough(cluster: MixedCluster, name: str, before: Path | None) -> Path:
    """Creates so many partitions that the controller writes another snapshot, and returns that."""
    create_topic(cluster.bootstrap, name, partitions=SNAPSHOT_PARTITIONS, replication_factor=1)
    folder = Path(cluster.nodes[CONTROLLER].files.metadata_dir) / "__cluster_metadata-0"

    def look() -> Path | None:
        newest = max(folder.glob("*.checkpoint"), default=None)
        return None if newest == before else newest

    found = until(look, f"a snapshot after {before}")
    assert SCRAM_USER.encode() in found.read_bytes()
    return found


def changes(newest: Release) -> list[tuple[Callable[[MixedCluster, int], object], Release | None]]:
    """How the process ends, and what takes its place. A node of Apache Kafka is the first."""
    return [
        (MixedCluster.shut_down, None),
        (MixedCluster.kill, newest),
        (MixedCluster.kill, None),
        (MixedCluster.shut_down, newest),
    ]


def change_hands(
    cluster: MixedCluster, node_id: int, end: Callable[[MixedCluster, int], object], release: Release | None
) -> None:
    """Ends the node's process and starts the other software on the same files."""
    end(cluster, node_id)
    cluster.use(cluster.nodes[node_id].files, release)
    cluster.start(node_id)


def write_more(cluster: MixedCluster, promises: Promises, stage: int) -> Promises:
    """Writes records, and the transactions of this stage. Returns all promises so far."""
    write_transactions(cluster.bootstrap, stage)
    return promises | write_some(cluster.bootstrap, TOPIC, partitions=PARTITIONS, count=COUNT, first=len(promises))


def write_transactions(bootstrap: str, stage: int) -> None:
    """One that is aborted, and one that also commits the group's offset: the number of transactions so far."""
    producer = Producer(QUIET | {"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(CLIENT_SECONDS)
    producer.begin_transaction()
    producer.produce(IN_TRANSACTIONS, f"aborted {stage}")
    assert producer.flush(CLIENT_SECONDS) == 0
    producer.abort_transaction(CLIENT_SECONDS)
    producer.begin_transaction()
    producer.produce(IN_TRANSACTIONS, f"committed {stage}")
    consumer = Consumer(QUIET | {"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        offsets = [TopicPartition(IN_TRANSACTIONS, 0, stage + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CLIENT_SECONDS)
        producer.commit_transaction(CLIENT_SECONDS)
    finally:
        consumer.close()


def assert_transactions(bootstrap: str, count: int) -> None:
    """Checks that the records of the committed transactions are there, no others, and the offset of the last one."""
    consumer = Consumer(QUIET | {"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        (offset,) = consumer.committed([TopicPartition(IN_TRANSACTIONS, 0)], CLIENT_SECONDS)
        assert offset.offset == count
    finally:
        consumer.close()
    assert committed(bootstrap, IN_TRANSACTIONS) == [f"committed {stage}" for stage in range(count)]


def directory_ids(cluster: MixedCluster) -> list[object]:
    files = cluster.nodes[BROKER].files
    paths = [Path(each) / "meta.properties" for each in (files.metadata_dir, *files.data_dirs)]
    return [parse_meta_properties(path.read_bytes()).directory_id for path in paths]
