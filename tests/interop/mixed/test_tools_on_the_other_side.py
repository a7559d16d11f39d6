"""The tools of each side on the files and the cluster of the other.

The cluster of Apache Kafka has its newest level, with eligible leader replicas, so its metadata log holds records and fields
that no log of ours does. Our tools, the export and the report read all of it.
"""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from analytics.requirements import missing, missing_package
from common.records.record import encode_values_batch
from tests.integration.cluster import directory_id, until
from tests.integration.traffic import QUIET
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX, START_SECONDS_MAX
from tests.interop.metadata_files import copy_metadata
from tests.interop.mixed.cluster import READY_SECONDS, TERMINATED, MixedCluster, Node, mixed_cluster
from tests.interop.mixed.releases import Release
from tests.interop.our_tools import Done, run_diskraft, run_tool
from tests.interop.topics import create_topic

NEWEST_LEVEL = "4.4"
TOPIC = "t"
# Frame version 1, type 99, version 0, and no tagged fields.
UNKNOWN = bytes((1, 99, 0, 0))
SHELL_ATTEMPTS_MAX = 10
# So many make the controller write a snapshot.
SNAPSHOT_PARTITIONS = 60
ALONE = {
    "offsets.topic.replication.factor": "1",
    "broker.session.timeout.ms": "6000",
    "metadata.log.max.record.bytes.between.snapshots": "4096",
    "diskraft.log.dir.free.bytes.floor": "0",
}
TOPICS, LOG_DIRS = "org.apache.kafka.tools.TopicCommand", "org.apache.kafka.tools.LogDirsCommand"
QUORUM, FEATURES = "org.apache.kafka.tools.MetadataQuorumCommand", "org.apache.kafka.tools.FeatureCommand"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * START_SECONDS_MAX)]


def test_our_tools_on_a_cluster_of_apache_kafka(newest: Release, tmp_path: Path) -> None:
    """A broker has left the ISR and is an eligible leader replica. Both tools print the same, and read the same records in
    the metadata log. The export has a row for each of them, unknown ones included, and the report runs."""
    nodes = [Node(1, "broker,controller", newest, disks=2), Node(2, "broker", newest), Node(3, "broker", starts=False)]
    with mixed_cluster(tmp_path, nodes, overrides=ALONE, level=NEWEST_LEVEL) as cluster:
        server = ("--bootstrap-server", cluster.nodes[1].files.address)
        configs = {"min.insync.replicas": "2"}
        create_topic(cluster.bootstrap, TOPIC, partitions=2, replication_factor=2, configs=configs)
        write_idempotently(cluster.bootstrap)
        refuse_our_broker(cluster)
        cluster.shut_down(2)
        cluster.until_isr(TOPIC, {0: {1}, 1: {1}})
        described = (*server, "--describe", "--topic", TOPIC)
        theirs = newest.run(TOPICS, *described)
        assert any("Elr: 2" in line for line in theirs.lines), theirs
        assert run_tool("topics", *described) == theirs
        placed = (*server, "--describe", "--broker-list", "1", "--topic-list", TOPIC)
        assert run_tool("log_dirs", *placed).lines[:2] == newest.run(LOG_DIRS, *placed).lines[:2]
        status = run_tool("metadata_quorum", *server, "describe", "--status")
        assert (status.status, status.lines[1].split()) == (0, ["LeaderId:", "1"]), status
        assert run_tool("storage", "info", "--config", cluster.nodes[1].files.config).status == 0
        assert cluster.stop() == {1: TERMINATED, 2: TERMINATED, 3: 1}
        metadata = Path(cluster.nodes[1].files.metadata_dir)
        read_their_metadata(newest, metadata, tmp_path / "copy")
        if missing_package("pyarrow") is None:
            export(metadata, tmp_path / "export")


def refuse_our_broker(cluster: MixedCluster) -> None:
    """A broker of ours does not know share groups or Streams groups, ends, and says so in one line."""
    node = cluster.nodes[3]
    cluster.expected_ends.add(3)
    node.start()
    assert node.wait_until_ended(seconds=READY_SECONDS) == 1
    # The controller may refuse it before it has read so far.
    assert "kafka-features" in node.last_line(), node.last_line()


def write_idempotently(bootstrap: str) -> None:
    """Makes the controller allocate producer ids."""
    producer = Producer(QUIET | {"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, b"x")
    assert producer.flush(START_SECONDS_MAX) == 0


def read_their_metadata(release: Release, metadata: Path, copy: Path) -> None:
    """Both kafka-dump-log print the same. The records are there for whose sake the cluster has the newest level."""
    files = copy_metadata(metadata, copy)
    arguments = ("--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    theirs, ours = release.run("org.apache.kafka.tools.DumpLogSegments", *arguments), run_tool("dump_log", *arguments)
    assert (theirs.status, ours.status) == (0, 0), (theirs, ours)
    assert ours.lines == theirs.lines
    text = "\n".join(theirs.lines)
    for what in ("BEGIN_TRANSACTION_RECORD", "PRODUCER_IDS_RECORD", "CLEAR_ELR_RECORD", "eligibleLeaderReplicas"):
        assert what in text, what


def export(metadata: Path, folder: Path) -> None:
    """Adds a record of a type that does not exist yet, as a later release may write it."""
    copy = Path(shutil.copytree(metadata, folder / "metadata"))
    segment = max((copy / "__cluster_metadata-0").glob("*.log"))
    dumped = run_tool("dump_log", "--files", str(segment)).lines
    last = next(line.split() for line in reversed(dumped) if line.startswith("baseOffset:"))
    end, epoch = (int(last[last.index(name) + 1]) for name in ("lastOffset:", "partitionLeaderEpoch:"))
    batch = encode_values_batch([UNKNOWN], base_offset=end + 1, leader_epoch=epoch, timestamp_ms=1_700_000_000_000)
    with segment.open("ab") as file:
        file.write(batch)
    # Only where the extra `analytics` is installed.
    from pyarrow.parquet import read_table

    out = folder / "history"
    done = run_diskraft("metadata", "export", "--metadata-log-dir", str(copy), "--out", str(out))
    assert done.status == 0, done
    rows = [row for path in sorted(out.glob("*.parquet")) for row in read_table(path).to_pylist()]
    assert (rows[-1]["offset"], rows[-1]["type"], rows[-1]["type_number"]) == (end + 1, "UNKNOWN", UNKNOWN[1])
    assert {row["type"] for row in rows[:-1]}.isdisjoint({"UNKNOWN"})
    assert {"CLEAR_ELR_RECORD", "PRODUCER_IDS_RECORD", "PARTITION_CHANGE_RECORD"} <= {row["type"] for row in rows}
    assert any(row["transaction_offset"] is not None for row in rows)
    if not missing():
        report = run_diskraft("reports", "disk-failures", "--input", str(out))
        assert report.status == 0, report


def test_their_tools_on_our_cluster(newest: Release, older: Release, tmp_path: Path) -> None:
    """Apache Kafka's metadata shell reads our snapshot, and its tools find the quorum, the features and the directories."""
    nodes = [Node(101, "controller", disks=0), Node(1, "broker", disks=2)]
    with mixed_cluster(tmp_path, nodes, overrides=ALONE) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap)
        create_topic(cluster.bootstrap, TOPIC, partitions=SNAPSHOT_PARTITIONS, replication_factor=1)
        replication = newest.run(QUORUM, *server, "describe", "--replication")
        assert [(line.split()[0], line.split()[-1]) for line in replication.lines[1:]] == [
            ("101", "Leader"),
            ("1", "Observer"),
        ], replication
        features = newest.run(FEATURES, *server, "describe")
        assert any("metadata.version" in line and "FinalizedVersionLevel: 3.9-IV0" in line for line in features.lines), (
            features
        )
        info = newest.run("kafka.tools.StorageTool", "info", "-c", cluster.nodes[1].files.config)
        assert (info.status, info.errors) == (0, []), info
        folder = Path(cluster.nodes[101].files.metadata_dir) / "__cluster_metadata-0"
        written = until(lambda: max(folder.glob("*.checkpoint"), default=None), "a snapshot")
        # The shell locks the folder of the snapshot's folder, which a running controller holds.
        (tmp_path / "copy" / folder.name).mkdir(parents=True)
        snapshot = Path(shutil.copy(written, tmp_path / "copy" / folder.name))
        ask_the_shell(older, snapshot, f"cat /image/topics/byName/{TOPIC}/0", "PartitionRegistration(replicas=[1]")
        for path in cluster.nodes[1].files.data_dirs:
            ask_the_shell(older, snapshot, "cat /image/cluster/brokers/1", directory_id(path))


def ask_the_shell(release: Release, snapshot: Path, command: str, expected: str) -> None:
    """The shell answers before it has read the snapshot if the machine is slow, so it is asked again."""
    done = Done(0, [], [])
    for _ in range(SHELL_ATTEMPTS_MAX):
        done = release.run("org.apache.kafka.shell.MetadataShell", "--snapshot", str(snapshot), *command.split())
        assert done.status == 0, done
        if any(expected in line for line in done.lines):
            return
    pytest.fail(f"{command} never answers with {expected}: {done}")
