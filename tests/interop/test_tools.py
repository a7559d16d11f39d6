"""Runs our own tools on the cluster: they print Kafka's output, exit with its status, and report user errors in one line."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from tests.interop.metadata_files import copy_metadata
from tests.interop.our_tools import run_tool
from tests.interop.topics import create_topic, wait_until_listed
from tests.interop.waiting import until_equal
from tools.lab.local_cluster import LocalCluster, LocalNode

SECONDS_MAX = 60.0
SEGMENT = "0".zfill(20)


def write(bootstrap: str, topic: str, records: list[tuple[str, str]], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 500} | settings)
    for key, value in records:
        producer.produce(topic, value, key, partition=0, headers=[("origin", b"test")])
    assert producer.flush(SECONDS_MAX) == 0


def replica_folder(cluster: LocalCluster, broker_id: int, name: str) -> Path:
    """Returns the folder of this broker's replica, which must be in exactly one of its directories."""
    (found,) = [Path(path) / name for path in cluster.broker(broker_id).files.data_dirs if (Path(path) / name).is_dir()]
    return found


def test_topics_from_creation_to_deletion(bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """kafka-topics creates, refuses to create twice, lists, describes with tabs as Kafka does, and deletes."""
    name = new_topic_name()
    server = ("--bootstrap-server", bootstrap)
    create = (*server, "--create", "--topic", name, "--partitions", "2", "--replication-factor", "3")
    created = run_tool("topics", *create, "--config", "retention.ms=86400000", "--config", "min.insync.replicas=2")
    assert (created.status, created.lines, created.errors) == (0, [f"Created topic {name}."], [])
    again = run_tool("topics", *create)
    assert (again.status, again.lines, len(again.errors)) == (1, [], 1)
    assert "exists" in again.errors[0]
    assert run_tool("topics", *create, "--if-not-exists").status == 0

    wait_until_listed(bootstrap, name)
    listed = run_tool("topics", *server, "--list", "--topic", re.escape(name))
    assert (listed.status, listed.lines) == (0, [name])

    described = run_tool("topics", *server, "--describe", "--topic", re.escape(name))
    assert described.status == 0
    head, *partitions = described.lines
    topic_id = re.escape(name) + r"\tTopicId: [\w-]{22}"
    configs = r"min\.insync\.replicas=2,retention\.ms=86400000"
    assert re.fullmatch(rf"Topic: {topic_id}\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: {configs}", head)
    for number, line in enumerate(partitions):
        match = re.fullmatch(
            rf"\tTopic: {re.escape(name)}\tPartition: {number}\tLeader: (\d)\tReplicas: ((?:\d,?)+)\tIsr: ((?:\d,?)+)"
            r"\tElr: \tLastKnownElr: ",
            line,
        )
        assert match is not None, line
        leader, replicas, isr = match.groups()
        assert replicas.split(",")[0] == leader
        assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"]
    healthy = run_tool("topics", *server, "--describe", "--topic", re.escape(name), "--under-replicated-partitions")
    assert (healthy.status, healthy.lines) == (0, [])

    deleted = run_tool("topics", *server, "--delete", "--topic", re.escape(name))
    assert (deleted.status, deleted.errors) == (0, [])

    def describe() -> tuple[int, int]:
        gone = run_tool("topics", *server, "--describe", "--topic", re.escape(name))
        return gone.status, len(gone.errors)

    until_equal(describe, (1, 1))


def test_wrong_requests_are_one_line(bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """A user error is one line on stderr and status 1: never a traceback, never a partially created topic."""
    name = new_topic_name()
    wrong: list[tuple[str, ...]] = [
        ("topics", "--bootstrap-server", bootstrap, "--create", "--topic", name, "--replication-factor", "9"),
        ("topics", "--bootstrap-server", bootstrap, "--create", "--topic", name, "--config", "segment.bytes=many"),
        ("topics", "--bootstrap-server", bootstrap, "--create", "--topic", "not/a name"),
        ("log_dirs", "--bootstrap-server", bootstrap, "--describe", "--broker-list", "9"),
        ("cluster", "cluster-id", "--bootstrap-server", "nowhere"),
        ("dump_log", "--files", "/nowhere/00000000000000000000.log"),
    ]
    for module, *arguments in wrong:
        done = run_tool(module, *arguments)
        assert (done.status, len(done.errors)) == (1, 1), (module, arguments, done)
        assert "Traceback" not in done.errors[0]
    listed = run_tool("topics", "--bootstrap-server", bootstrap, "--list")
    assert name not in listed.lines


def test_an_address_where_nothing_listens(tmp_path: Path) -> None:
    """The tool logs a warning at once. When its timeout expires, it prints one line in the words of Kafka's tool."""
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=500\n")
    done = run_tool("topics", "--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", str(config))
    assert (done.status, done.lines, len(done.errors)) == (1, [], 2)
    assert "node_unavailable" in done.errors[0]
    assert "Timed out waiting for a node assignment. Call: listTopics" in done.errors[1]


def test_log_dirs_as_one_line_of_json(cluster: LocalCluster, bootstrap: str, topic: str) -> None:
    """kafka-log-dirs prints Kafka's two lines and its JSON, with the sizes of the files."""
    write(bootstrap, topic, [("key", "value")])
    done = run_tool(
        "log_dirs",
        *("--bootstrap-server", bootstrap, "--describe", "--broker-list", "1,3", "--topic-list", topic),
    )
    assert done.status == 0
    assert done.lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1,3",
    ]
    (text,) = done.lines[2:]
    described = json.loads(text)
    assert text == json.dumps(described, separators=(",", ":"))
    assert described["version"] == 1
    assert [broker["broker"] for broker in described["brokers"]] == [1, 3]
    for broker in described["brokers"]:
        assert [each["logDir"] for each in broker["logDirs"]] == list(cluster.broker(broker["broker"]).files.data_dirs)
        assert {each["error"] for each in broker["logDirs"]} == {None}
        sizes = {part["partition"]: part["size"] for each in broker["logDirs"] for part in each["partitions"]}
        for name, size in sizes.items():
            assert size == (replica_folder(cluster, broker["broker"], name) / f"{SEGMENT}.log").stat().st_size
        assert sorted(sizes) == [f"{topic}-{number}" for number in range(3)]
        assert all(
            (part["offsetLag"], part["isFuture"]) == (0, False) for each in broker["logDirs"] for part in each["partitions"]
        )


def test_log_dirs_in_the_schema_of_the_kip(cluster: LocalCluster, bootstrap: str, topic: str) -> None:
    """kafka-log-dirs --schema kip-113 prints one line. It contains the same facts about the broker as Kafka's schema."""
    done = run_tool("log_dirs", "--bootstrap-server", bootstrap, "--describe", "--broker-list", "2", "--topic-list", topic)
    (broker,) = json.loads(done.lines[-1])["brokers"]
    kip = ("--schema", "kip-113", "--broker", "2", "--topics", topic)
    done = run_tool("log_dirs", "--bootstrap-server", bootstrap, "--describe", *kip)
    assert (done.status, len(done.lines)) == (0, 1)
    described = json.loads(done.lines[0])
    assert described["version"] == 1
    assert [(each["is_live"], each["path"]) for each in described["log_dirs"]] == [
        (True, path) for path in cluster.broker(2).files.data_dirs
    ]
    assert [
        [
            {
                "partition": f"{each['topic']}-{each['partition']}",
                "size": each["size"],
                "offsetLag": each["offset_lag"],
                "isFuture": each["is_temporary"],
            }
            for each in log_dir["partitions"]
        ]
        for log_dir in described["log_dirs"]
    ] == [log_dir["partitions"] for log_dir in broker["logDirs"]]


def test_kafka_cluster_prints_the_cluster_id(cluster: LocalCluster, bootstrap: str) -> None:
    """kafka-cluster cluster-id, a usual health check, prints the cluster's id."""
    done = run_tool("cluster", "cluster-id", "--bootstrap-server", bootstrap)
    assert (done.status, done.lines) == (0, [f"Cluster ID: {cluster.cluster_id}"])


def test_dump_of_a_segment(cluster: LocalCluster, bootstrap: str, topic: str) -> None:
    """kafka-dump-log reads a segment that is being written: batches with their checksum, records with key and value."""
    # librdkafka sends a batch compressed only if that makes it smaller, so these values are long. It must not send the first
    # record before it has the second one, however long the machine stands still.
    settings = {"compression.type": "zstd", "linger.ms": 60_000}
    write(bootstrap, topic, [("a", "one" * 100), ("b", "two" * 100)], **settings)
    write(bootstrap, topic, [("c", "three")])
    dumps = []
    for broker_id in (1, 2, 3):
        path = replica_folder(cluster, broker_id, f"{topic}-0") / f"{SEGMENT}.log"
        done = run_tool("dump_log", "--print-data-log", "--files", str(path))
        assert (done.status, done.errors) == (0, [])
        assert done.lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
        dumps.append(done.lines[2:])
    # acks=all: acknowledged records are the same in all three replicas, including epochs.
    assert dumps[0] == dumps[1] == dumps[2]
    first, one, two, second, three = dumps[0]
    for line, offsets, codec in ((first, (0, 1, 2), "zstd"), (second, (2, 2, 1), "none")):
        base, last, count = offsets
        assert line.startswith(f"baseOffset: {base} lastOffset: {last} count: {count} baseSequence: -1 lastSequence: -1 ")
        assert f" magic: 2 compresscodec: {codec} crc: " in line
        assert line.endswith(" isvalid: true")
    for line, offset, key, value in ((one, 0, "a", "one" * 100), (two, 1, "b", "two" * 100), (three, 2, "c", "three")):
        assert line.startswith(f"| offset: {offset} CreateTime: ")
        assert line.endswith(f" headerKeys: [origin] key: {key} payload: {value}")


def test_dump_of_the_metadata_log(
    cluster: LocalCluster, bootstrap: str, new_topic_name: Callable[[], str], tmp_path: Path
) -> None:
    """The dump of the running controller's metadata log shows the topic's records as JSON, and so does a broker's copy."""
    topic = create_topic(bootstrap, new_topic_name(), partitions=2)

    def story(node: LocalNode) -> dict[int, str]:
        """Returns the records by offset; those of the two snapshots have negative offsets. Of the snapshots of the log only
        the newest is read: with the segments it tells everything, and earlier tests have made hundreds of them."""
        files = copy_metadata(Path(node.files.metadata_dir), tmp_path / node.files.name)
        bootstrap, *snapshots = [path for path in files if path.suffix == ".checkpoint"]
        chosen = [bootstrap, *snapshots[-1:], *(path for path in files if path.suffix == ".log")]
        done = run_tool("dump_log", "--cluster-metadata-decoder", "--files", ",".join(map(str, chosen)))
        assert (done.status, done.errors) == (0, [])
        assert [line for line in done.lines if line.startswith("Dumping ")] == [f"Dumping {path}" for path in chosen]
        assert not any(" isvalid: false" in line for line in done.lines)
        records: dict[int, str] = {}
        is_log = False
        for line in done.lines:
            if line.startswith("Dumping "):
                is_log = line.endswith(".log")
            elif " payload: " in line:
                offset = int(line.split()[2]) if is_log else -1 - len(records)
                records[offset] = line.partition(" payload: ")[2]
        return records

    records = story(cluster.controller)
    payloads = [json.loads(text) for text in records.values()]
    topics = {each["data"]["name"]: each["data"]["topicId"] for each in payloads if each["type"] == "TOPIC_RECORD"}
    partitions = {
        each["data"]["partitionId"]: each["data"]["replicas"]
        for each in payloads
        if each["type"] == "PARTITION_RECORD" and each["data"]["topicId"] == topics[topic]
    }
    assert sorted(partitions) == [0, 1]
    assert all(sorted(replicas) == [1, 2, 3] for replicas in partitions.values())
    assert {each["type"] for each in payloads} >= {"REGISTER_BROKER_RECORD", "FEATURE_LEVEL_RECORD"}
    # A broker is an observer: it has the same record at the same offset.
    copy = story(cluster.broker(1))
    common = sorted(offset for offset in records.keys() & copy.keys() if offset >= 0)
    assert common
    assert [records[offset] for offset in common] == [copy[offset] for offset in common]
