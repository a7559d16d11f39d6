"""Runs Apache Kafka's own tools and clients on our brokers and our files. Our tools must print the same as Kafka's.

Needs Java and Apache Kafka's jars, from KAFKA_HOME or fetched by Maven into build/ within a time limit. Without them, every
test here is skipped with a message.
"""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX, NoJars, find_jars, find_java, write_logging
from tests.interop.metadata_files import copy_metadata
from tests.interop.our_tools import Done, run_tool
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

ATTEMPTS_MAX = 5
TOOL_SECONDS_MAX = 120
SEGMENT = "0".zfill(20)

pytestmark = pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * TOOL_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Kafka:
    """Runs the main classes of Apache Kafka."""

    java: str
    class_path: str
    logging: Path

    def run(self, main_class: str, *arguments: str, given: str = "") -> Done:
        """Runs a tool and returns the result. Of the tool's log messages, only errors go to stderr."""
        done = subprocess.run(
            [
                *(self.java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{self.logging}"),
                *("-cp", self.class_path, main_class, *arguments),
            ],
            input=given,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )
        return Done(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    try:
        java, folder = find_java(), find_jars()
    except NoJars as reason:
        pytest.skip(f"NOTHING WAS TESTED AGAINST APACHE KAFKA: {reason}")
    return Kafka(java, f"{folder}/*", write_logging(tmp_path_factory.mktemp("kafka")))


def replica_folder(cluster: LocalCluster, name: str) -> Path:
    """Returns the folder of that partition's only replica."""
    (found,) = [
        Path(path) / name
        for node in cluster.brokers
        for path in node.files.data_dirs
        if (Path(path) / name / f"{SEGMENT}.log").exists()
    ]
    return found


def test_kafka_topics_creates_describes_lists_and_deletes_as_ours_does(
    kafka: Kafka, bootstrap: str, new_topic_name: Callable[[], str]
) -> None:
    """kafka-topics creates, lists and deletes; its describe output equals ours to the byte."""
    name, server = new_topic_name(), ("--bootstrap-server", bootstrap)
    tool = "org.apache.kafka.tools.TopicCommand"
    created = kafka.run(
        *(tool, *server, "--create", "--topic", name, "--partitions", "3", "--replication-factor", "2"),
        *("--config", "retention.ms=86400000", "--config", "min.insync.replicas=2"),
    )
    assert (created.status, created.lines[-1]) == (0, f"Created topic {name}."), created
    described = kafka.run(tool, *server, "--describe", "--topic", name)
    assert described.status == 0
    assert len(described.lines) == 4
    assert described.lines == run_tool("topics", *server, "--describe", "--topic", name).lines
    assert name in kafka.run(tool, *server, "--list").lines
    assert kafka.run(tool, *server, "--delete", "--topic", name).status == 0
    assert name not in run_tool("topics", *server, "--list").lines


def test_kafka_configs_changes_and_describes_as_ours_does(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """Both tools print the same output when they change or describe configuration. They also refuse a change for the same
    reason."""
    server, tool = ("--bootstrap-server", bootstrap), "kafka.admin.ConfigCommand"
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    of_broker = ("--entity-type", "brokers", "--entity-name", "2")
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    throttled = "leader.replication.throttled.replicas=[0:1,1:2]"
    changes = (
        (of_topic, ("--add-config", f"{throttled},retention.ms=86400000")),
        (of_broker, ("--add-config", f"{rate}=1000000")),
    )
    for entity, change in changes:
        theirs = kafka.run(tool, *server, "--alter", *entity, *change)
        assert theirs == run_tool("configs", *server, "--alter", *entity, *change)
        assert theirs.status == 0
        theirs = kafka.run(tool, *server, "--describe", *entity)
        assert theirs == run_tool("configs", *server, "--describe", *entity)
        assert len(theirs.lines) > 1
    theirs = kafka.run(tool, *server, "--describe", "--all", *of_topic)
    assert theirs == run_tool("configs", *server, "--describe", "--all", *of_topic)
    deleted = kafka.run(tool, *server, "--alter", *of_broker, "--delete-config", rate)
    assert deleted.lines == ["Completed updating config for broker 2."]
    assert run_tool("configs", *server, "--describe", *of_broker).lines == ["Dynamic configs for broker 2 are:"]
    refused = kafka.run(tool, *server, "--alter", *of_broker, "--add-config", "node.id=7")
    assert refused.status == 1
    assert any("Cannot update these configs dynamically: Set(node.id)" in line for line in refused.errors), refused


def test_kafka_topics_adds_partitions_as_ours_does(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """Neither tool prints anything when it adds partitions. If the controller refuses, both print its reason."""
    alter = ("--bootstrap-server", bootstrap, "--alter", "--topic", topic, "--partitions")
    tool = "org.apache.kafka.tools.TopicCommand"
    assert kafka.run(tool, *alter, "4") == Done(0, [], [])
    assert run_tool("topics", *alter, "5") == Done(0, [], [])
    reason = (
        f"Error while executing topic command : The topic {topic} currently has 5 partition(s); 4 would not be an increase."
    )
    theirs, ours = kafka.run(tool, *alter, "4"), run_tool("topics", *alter, "4")
    assert (theirs.status, theirs.lines) == (1, [reason]), theirs
    assert ours == Done(1, [], [reason])


def test_kafka_leader_election_says_the_same_as_ours(
    kafka: Kafka, bootstrap: str, new_topic_name: Callable[[], str], tmp_path: Path
) -> None:
    """Tests each outcome of an election: not needed, successful and failed. The partition is named by options or in a
    file."""
    name = create_topic(bootstrap, new_topic_name(), partitions=1, assignments={0: [1, 2, 3]})
    tool, elect = "org.apache.kafka.tools.LeaderElectionCommand", ("--bootstrap-server", bootstrap, "--election-type")
    one = (*elect, "preferred", "--topic", name, "--partition", "0")
    theirs = kafka.run(tool, *one)
    assert theirs == run_tool("leader_election", *one)
    assert theirs.lines == [f"Valid replica already elected for partitions {name}-0"]
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0}]}))
    elected = Done(0, [f"Successfully completed leader election (PREFERRED) for partitions {name}-0"], [])
    for replicas, run in ([2, 1, 3], kafka_runner(kafka, tool)), ([3, 1, 2], our_runner("leader_election")):
        reorder(bootstrap, name, replicas)
        assert run(*elect, "preferred", "--path-to-json-file", str(path)) == elected
    unknown = (*elect, "unclean", "--topic", name, "--partition", "9")
    theirs, ours = kafka.run(tool, *unknown), run_tool("leader_election", *unknown)
    assert (theirs.status, theirs.lines, theirs.errors[0]) == (1, ours.lines, "1 replica(s) could not be elected")
    assert (ours.status, ours.errors) == (1, theirs.errors[:1])


def kafka_runner(kafka: Kafka, main_class: str) -> Callable[..., Done]:
    return lambda *arguments: kafka.run(main_class, *arguments)


def our_runner(tool: str) -> Callable[..., Done]:
    return lambda *arguments: run_tool(tool, *arguments)


def reorder(bootstrap: str, topic: str, replicas: list[int]) -> None:
    """Changes the order of partition 0's replicas, and so its preferred leader."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[partition])])
    with BlockingAdmin(bootstrap) as admin:
        response: AlterPartitionReassignmentsResponse = admin.send(request)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE


def replicas_of(admin: BlockingAdmin, topic: str) -> dict[int, list[int]]:
    (described,) = admin.metadata([topic]).topics
    return {part.partition_index: part.replica_nodes for part in described.partitions}


def test_kafka_reassign_partitions_moves_replicas(
    kafka: Kafka, bootstrap: str, new_topic_name: Callable[[], str], tmp_path: Path
) -> None:
    """Apache Kafka's tool starts a reassignment, verifies that it is complete and lists no reassignment in progress. It
    reports an impossible reassignment as an error."""
    name = create_topic(bootstrap, new_topic_name(), partitions=2, replication_factor=2, assignments={0: [1, 2], 1: [2, 3]})
    tool, server = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", ("--bootstrap-server", bootstrap)
    path = tmp_path / "reassignment.json"
    targets = {0: [3, 2], 1: [1, 2]}
    partitions = [{"topic": name, "partition": index, "replicas": replicas} for index, replicas in targets.items()]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    file = ("--reassignment-json-file", str(path))
    executed = kafka.run(tool, *server, *file, "--execute")
    assert executed.status == 0, executed
    assert f"Successfully started partition reassignments for {name}-0,{name}-1" in executed.lines
    with BlockingAdmin(bootstrap) as admin:
        # Not until two replicas are in sync: those that will leave are that at the beginning.
        until(lambda: replicas_of(admin, name) == targets, f"{name} on {targets}")
    verified = kafka.run(tool, *server, *file, "--verify")
    assert verified.status == 0, verified
    assert [f"Reassignment of partition {name}-{index} is completed." in verified.lines for index in targets] == [True] * 2
    assert "No partition reassignments found." in kafka.run(tool, *server, "--list").lines
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [1, 77]}]}))
    refused = kafka.run(tool, *server, *file, "--execute")
    assert refused.status == 1
    assert any("77" in line for line in (*refused.lines, *refused.errors)), refused


def test_kafka_reassign_partitions_says_the_same_as_ours(
    kafka: Kafka, cluster: LocalCluster, bootstrap: str, new_topic_name: Callable[[], str], tmp_path: Path
) -> None:
    """Both move a replica to a directory of another broker and back, verify it, find nothing to cancel, and refuse the same
    for the same reason. Ours prints the current directories as releases after this Apache Kafka do, and ends its lines."""
    name = create_topic(bootstrap, new_topic_name(), partitions=1, replication_factor=2, assignments={0: [1, 2]})
    tool, path = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", tmp_path / "reassignment.json"

    def wish(replicas: list[int], log_dirs: list[str]) -> None:
        entry = {"topic": name, "partition": 0, "replicas": replicas, "log_dirs": log_dirs}
        path.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    arguments = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(path))
    theirs, ours = partial(kafka.run, tool, *arguments), partial(run_tool, "reassign_partitions", *arguments)
    there, here = cluster.broker(3).files.data_dirs[1], cluster.broker(1).files.data_dirs[1]
    # Both are throttled, so that all lines are printed, but not so much that it matters.
    throttled = ("--throttle", "100000000", "--replica-alter-log-dirs-throttle", "100000000")
    for broker_id, log_dir in ((3, there), (1, here)):
        wish([broker_id, 2], [log_dir, "any"])
        first, second = (theirs, ours) if broker_id == 3 else (ours, theirs)
        executed = first("--execute", *throttled)
        assert (executed.status, executed.lines[-1]) == (
            0,
            f"Successfully started moving log directory to {log_dir} for replica {name}-0 with broker {broker_id} ",
        ), executed
        until(lambda: any("completed successfully" in each for each in ours("--verify").lines), f"the move to {log_dir}")
        assert theirs("--verify") == ours("--verify")
        # The second finds everything where it should be, and says what the first said.
        again = second("--execute", *throttled)
        assert (again.status, again.lines[:2], again.lines[3:]) == (0, executed.lines[:2], executed.lines[3:])
        assert theirs("--verify") == ours("--verify")
    assert "".join(theirs("--cancel").lines) == "".join(ours("--cancel").lines)
    wish([1, 2], [there, "any"])
    assert theirs("--verify") == ours("--verify")
    refused = theirs("--execute")
    assert (refused.status, ours("--execute").status) == (1, 1)
    assert f"Error: Failed to alter dir for {name}-0-1" in refused.lines
    for replicas, log_dirs in (([1, 77], ["any", "any"]), ([1], ["any", "any"]), ([1, 1], ["any", "any"]), ([], [])):
        wish(replicas, log_dirs)
        reason = ours("--execute").errors
        assert len(reason) == 1
        assert reason[0] in theirs("--execute").lines


def test_kafka_log_dirs_says_the_same_as_ours(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """kafka-log-dirs prints the same as ours, except for the order inside the JSON."""
    arguments = ("--bootstrap-server", bootstrap, "--describe", "--topic-list", topic, "--broker-list", "1,3")
    before = run_tool("log_dirs", *arguments)
    theirs = kafka.run("org.apache.kafka.tools.LogDirsCommand", *arguments)
    ours = run_tool("log_dirs", *arguments)
    for _ in range(ATTEMPTS_MAX):
        if before.lines == ours.lines:
            break
        # A replica of the new topic got its log in between, so the two tools saw different states.
        before, theirs = ours, kafka.run("org.apache.kafka.tools.LogDirsCommand", *arguments)
        ours = run_tool("log_dirs", *arguments)
    assert theirs.status == ours.status == 0
    assert theirs.lines[:2] == ours.lines[:2]

    assert _without_order(theirs.lines[2]) == _without_order(ours.lines[2])


def _without_order(described: str) -> dict[tuple[int, str], object]:
    """Returns each broker's directories; neither tool guarantees an order of the replicas in a directory."""
    content = json.loads(described)
    assert content["version"] == 1
    return {
        (broker["broker"], each["logDir"]): (each["error"], sorted(each["partitions"], key=itemgetter("partition")))
        for broker in content["brokers"]
        for each in broker["logDirs"]
    }


def test_console_producer_and_consumer(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """Kafka's Java clients write with keys and read back by assignment. Idempotent producers are not supported yet."""
    given = "".join(f"key {number}:value {number}\n" for number in range(50))
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    written = kafka.run(
        *("kafka.tools.ConsoleProducer", *server, "--compression-codec", "zstd"),
        *("--producer-property", "enable.idempotence=false", "--producer-property", "acks=all"),
        *("--property", "parse.key=true", "--property", "key.separator=:"),
        given=given,
    )
    assert (written.status, written.errors) == (0, []), written
    offsets = kafka.run("org.apache.kafka.tools.GetOffsetShell", *server)
    counts = {int(partition): int(count) for _, partition, count in (line.split(":") for line in offsets.lines)}
    assert sum(counts.values()) == 50
    read: list[str] = []
    for partition, count in counts.items():
        if count == 0:
            continue
        consumed = kafka.run(
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--partition", str(partition)),
            *("--offset", "earliest", "--max-messages", str(count), "--timeout-ms", "60000"),
            *("--property", "print.key=true", "--property", "key.separator=:"),
        )
        assert consumed.status == 0, consumed
        read += consumed.lines
    assert sorted(read) == sorted(given.splitlines())


def test_a_consumer_group_is_refused(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """Groups are not supported yet: Kafka's consumer exits and names the request that our brokers lack."""
    done = kafka.run(
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic),
        *("--group", "group", "--timeout-ms", "20000"),
    )
    assert any("UnsupportedVersionException" in line and "FIND_COORDINATOR" in line for line in done.errors), done


def test_kafkas_tools_find_the_cluster_id_and_the_quorum(kafka: Kafka, cluster: LocalCluster, bootstrap: str) -> None:
    """Kafka's tools print the cluster id and the metadata quorum: its leader, its voter and the brokers as observers."""
    server = ("--bootstrap-server", bootstrap)
    identified = kafka.run("org.apache.kafka.tools.ClusterTool", "cluster-id", *server)
    assert (identified.status, identified.lines) == (0, [f"Cluster ID: {cluster.cluster_id}"])
    quorum = kafka.run("org.apache.kafka.tools.MetadataQuorumCommand", *server, "describe", "--status")
    assert quorum.status == 0, quorum
    status = {key: value.strip() for key, _, value in (line.partition(":") for line in quorum.lines)}
    controller = cluster.controller.files
    assert (status["ClusterId"], status["LeaderId"]) == (cluster.cluster_id, str(controller.node_id))
    (voter,) = json.loads(status["CurrentVoters"])
    assert (voter["id"], voter["endpoints"]) == (controller.node_id, [f"CONTROLLER://127.0.0.1:{controller.port}"])
    assert sorted(observer["id"] for observer in json.loads(status["CurrentObservers"])) == [1, 2, 3]


def test_kafka_dump_log_finds_our_segments_and_indexes_consistent(
    kafka: Kafka, cluster: LocalCluster, bootstrap: str, new_topic_name: Callable[[], str]
) -> None:
    """Apache Kafka reads our segments and indexes, finds them consistent, and prints the same as our kafka-dump-log, to the
    byte."""
    configs = {"segment.bytes": "60000", "index.interval.bytes": "2000"}
    topic = create_topic(bootstrap, new_topic_name(), partitions=1, replication_factor=1, configs=configs)
    for compression, count in (("none", 700), ("gzip", 100), ("snappy", 100), ("zstd", 100)):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": compression, "batch.num.messages": 7})
        for number in range(count):
            # Half of the data is compressible.
            value = os.urandom(100).hex() if compression == "none" else f"value {number} " * 30
            producer.produce(topic, value, f"key {number}", headers=[("number", str(number))])
        assert producer.flush(TOOL_SECONDS_MAX) == 0
    folder = replica_folder(cluster, f"{topic}-0")
    segments = ",".join(map(str, sorted(folder.glob("*.log"))))
    # Only the indexes of closed segments are complete: our broker writes the newest segment's index on shutdown. (Kafka
    # preallocates it.)
    closed = [path.stem for path in sorted(folder.glob("*.log"))[:-1]]
    assert len(closed) >= 2
    indexes = ",".join(str(folder / f"{stem}{suffix}") for stem in closed for suffix in (".index", ".timeindex"))
    for arguments in (("--print-data-log", "--files", segments), ("--files", indexes)):
        theirs = kafka.run("kafka.tools.DumpLogSegments", *arguments)
        assert (theirs.status, theirs.errors) == (0, []), theirs
        ours = run_tool("dump_log", *arguments)
        assert ours == theirs
    codecs = {word for word in " ".join(kafka_words(folder)).split() if word in {"gzip", "snappy", "zstd"}}
    assert codecs == {"gzip", "snappy", "zstd"}


def kafka_words(folder: Path) -> list[str]:
    """Returns the batch lines of all segments."""
    files = ",".join(map(str, sorted(folder.glob("*.log"))))
    return [line for line in run_tool("dump_log", "--files", files).lines if line.startswith("baseOffset:")]


def test_kafka_dump_log_reads_our_metadata_log_and_snapshots(
    kafka: Kafka, cluster: LocalCluster, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Apache Kafka's metadata decoder reads our metadata log, the bootstrap snapshot and later snapshots, and prints what
    ours prints. Only the lines about leader changes differ: Kafka 3.9 prints the record's name, ours the content too, as
    newer versions of Kafka do."""
    # Both tools read one copy, because the log may grow between the two runs.
    files = copy_metadata(Path(cluster.controller.files.metadata_dir), tmp_path / "metadata")
    assert sum(path.suffix == ".checkpoint" for path in files) >= 2, "the cluster of these tests makes snapshots often"
    arguments = ("--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    theirs = kafka.run("kafka.tools.DumpLogSegments", *arguments)
    assert (theirs.status, theirs.errors) == (0, []), theirs
    ours = run_tool("dump_log", *arguments)
    assert ours.status == 0

    def without_leader_change(lines: list[str]) -> list[str]:
        return [line for line in lines if "LEADER_CHANGE" not in line and "LeaderChange" not in line]

    assert without_leader_change(ours.lines) == without_leader_change(theirs.lines)
    assert any('"type":"PARTITION_RECORD"' in line for line in theirs.lines)
    assert any(topic in line for line in theirs.lines)


def test_kafka_storage_finds_our_directories_formatted(kafka: Kafka, cluster: LocalCluster) -> None:
    """Apache Kafka's kafka-storage finds a broker's directories formatted, with the same ids as ours."""
    config = cluster.broker(1).files.config
    theirs = kafka.run("kafka.tools.StorageTool", "info", "-c", config)
    ours = run_tool("storage", "info", "--config", config)
    assert theirs.status == ours.status == 0, (theirs, ours)
    metadata = [line for line in theirs.lines if line.startswith("Found metadata: ")]
    assert metadata == [line for line in ours.lines if line.startswith("Found metadata: ")]
    assert f"cluster.id={cluster.cluster_id}" in metadata[0]
