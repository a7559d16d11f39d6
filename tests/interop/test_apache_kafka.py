"""Runs Apache Kafka's own tools and clients on our brokers and our files. Our tools must print the same as Kafka's.

Needs Java and Apache Kafka's jars, from KAFKA_HOME or fetched by Maven into build/ within a time limit. Without them, every
test here is skipped with a message.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from common.metadata.kept_records import KEPT_RECORDS
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from common.protocol.numbering import Numbering
from common.records.metadata_frame import encode_record
from common.records.metadata_records import ProducerIdsRecord
from common.records.record import encode_values_batch
from common.storage.producers.snapshot import encode_producer_snapshot
from common.storage.producers.state import ProducedBatch, ProducerEntry
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX, ApacheKafkaNode
from tests.interop.apache_kafka_tools import TOOL_SECONDS_MAX, Kafka
from tests.interop.metadata_files import copy_metadata
from tests.interop.our_tools import Done, run_tool
from tests.interop.topics import create_topic, wait_until_listed
from tests.interop.waiting import until_equal
from tests.unit.common.records.test_metadata_frame import GOLDEN
from tools.lab.local_cluster import LocalCluster

ATTEMPTS_MAX = 5
# A move of so many records of 1000 bytes at this rate would take minutes. Apache Kafka copies the first megabyte at once.
MOVED_RECORDS = 4000
SLOW_BYTES_PER_SECOND = "10000"
SEGMENT = "0".zfill(20)
# In a second. With the cluster's default interval, a member sends three at most.
HEARTBEATS_OF_A_FAST_MEMBER = 5

pytestmark = pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * TOOL_SECONDS_MAX)


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
    wait_until_listed(bootstrap, name)
    described = kafka.run(tool, *server, "--describe", "--topic", name)
    assert described.status == 0
    assert len(described.lines) == 4
    assert described.lines == run_tool("topics", *server, "--describe", "--topic", name).lines
    assert name in kafka.run(tool, *server, "--list").lines
    assert kafka.run(tool, *server, "--delete", "--topic", name).status == 0
    until_equal(lambda: name in run_tool("topics", *server, "--list").lines, False)


def test_kafka_get_offsets_and_broker_api_versions_print_what_ours_do(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """Some partitions hold records. Of the APIs, the lines of those that both tools know are compared."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(7):
        producer.produce(topic, value=b"x", partition=number % 2, timestamp=1000 + number)
    assert producer.flush(60) == 0
    server = ("--bootstrap-server", bootstrap)
    for flags in (
        ("--topic", topic),
        ("--topic-partitions", f"{topic}:1-,{topic}:0", "--time", "earliest"),
        ("--topic", topic, "--partitions", "0,1", "--time", "1003"),
        ("--topic", topic, "--time", "9999999999999"),
    ):
        theirs = kafka.run("org.apache.kafka.tools.GetOffsetShell", *server, *flags)
        ours = run_tool("get_offsets", *server, *flags)
        assert (ours.status, ours.lines) == (theirs.status, theirs.lines), flags
    theirs = kafka.run("org.apache.kafka.tools.BrokerApiVersionsCommand", *server)
    # In Kafka 4.1 this API has another name.
    renamed = [line.replace("ListClientMetricsResources(74)", "ListConfigResources(74)") for line in theirs.lines]
    served = [line.split(" [")[0] for line in renamed if line.startswith("\t") and "UNSUPPORTED" not in line]
    lines = run_tool("broker_api_versions", *server).lines
    assert served
    assert [line.split(" [")[0] for line in lines if line.startswith("\t") and "UNSUPPORTED" not in line] == served


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
        ours = partial(run_tool, "configs", *server, "--describe", *entity)
        until_equal(lambda ours=ours: len(ours().lines) > 1, True)  # type: ignore[misc]
        assert kafka.run(tool, *server, "--describe", *entity) == ours()
    theirs = kafka.run(tool, *server, "--describe", "--all", *of_topic)
    assert theirs == run_tool("configs", *server, "--describe", "--all", *of_topic)
    deleted = kafka.run(tool, *server, "--alter", *of_broker, "--delete-config", rate)
    assert deleted.lines == ["Completed updating config for broker 2."]
    described = partial(run_tool, "configs", *server, "--describe", *of_broker)
    until_equal(lambda: described().lines, ["Dynamic configs for broker 2 are:"])
    refused = kafka.run(tool, *server, "--alter", *of_broker, "--add-config", "node.id=7")
    assert refused.status == 1
    assert any("Cannot update these configs dynamically: Set(node.id)" in line for line in refused.errors), refused


# Prints once a second how many requests it has sent to the coordinator of its group. It commits nothing, so they are
# heartbeats, once it has joined.
COUNTING_MEMBER = """
import json, sys
from confluent_kafka import Consumer

def print_requests(statistics):
    print(json.loads(statistics)["brokers"].get("GroupCoordinator", {}).get("tx", 0), flush=True)

settings = dict(item.split("=", 1) for item in sys.argv[2:])
consumer = Consumer({**settings, "statistics.interval.ms": 1000, "stats_cb": print_requests})
consumer.subscribe([sys.argv[1]])
while True:
    consumer.poll(0.1)
"""


def until_beating(counts: Iterator[int], *, is_fast: bool) -> None:
    """Waits for a second in which the member, which has sent heartbeats before, is or is not fast."""
    before = next(count for count in counts if count > 0)
    while ((now := next(counts)) - before >= HEARTBEATS_OF_A_FAST_MEMBER) is not is_fast:
        before = now


def test_kafka_configs_gives_a_group_times_of_its_own(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """A librdkafka member of the consumer protocol beats faster once Kafka's tool has shortened the interval of its group.
    Then it is killed, and removed long before the server's 45 s have passed. Both tools print the same."""
    server, tool = ("--bootstrap-server", bootstrap), "kafka.admin.ConfigCommand"
    entity, change = ("--group", f"group-{topic}"), "consumer.heartbeat.interval.ms=100,consumer.session.timeout.ms=2000"
    settings = (
        f"bootstrap.servers={bootstrap}",
        f"group.id={entity[1]}",
        "group.protocol=consumer",
        "enable.auto.commit=false",
    )
    command = [sys.executable, "-c", COUNTING_MEMBER, topic, *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        try:
            counts = map(int, member.stdout)
            until_beating(counts, is_fast=False)
            assert kafka.run(tool, *server, "--alter", *entity, "--add-config", change).status == 0
            until_beating(counts, is_fast=True)
        finally:
            member.kill()
    killed = time.monotonic()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    until_equal(lambda: admin.describe_consumer_groups([entity[1]])[entity[1]].result(60).members, [])
    assert time.monotonic() - killed < 30
    described = kafka.run(tool, *server, "--describe", *entity)
    assert described == run_tool("configs", *server, "--describe", *entity)
    assert len(described.lines) == 3
    described = kafka.run(tool, *server, "--describe", "--all", *entity)
    assert described == run_tool("configs", *server, "--describe", "--all", *entity)
    refused = (*server, "--alter", *entity, "--add-config", "consumer.session.timeout.ms=60001")
    theirs, ours = kafka.run(tool, *refused), run_tool("configs", *refused)
    assert (theirs.status, ours.status) == (1, 1)
    reason = ours.errors[0].partition("command: ")[2]
    assert any(reason in line for line in theirs.errors), (reason, theirs.errors)


@pytest.mark.parametrize("entity_type", ["users", "clients", "client-metrics"])
def test_kafka_configs_finds_no_quotas_and_no_client_metrics(kafka: Kafka, bootstrap: str, entity_type: str) -> None:
    """It asks for quotas, SCRAM credentials and client metrics. There are none, which is no error."""
    server = ("--bootstrap-server", bootstrap)
    done = kafka.run("kafka.admin.ConfigCommand", *server, "--describe", "--entity-type", entity_type)
    assert (done.status, done.lines) == (0, [])


def test_kafka_acls_hears_that_there_is_no_authorizer(kafka: Kafka, bootstrap: str) -> None:
    """MirrorMaker, which copies ACLs by default, goes on after this error and only this one."""
    done = kafka.run("org.apache.kafka.tools.AclCommand", "--bootstrap-server", bootstrap, "--list")
    assert done.status == 1
    assert any("SecurityDisabledException" in line for line in [*done.lines, *done.errors]), done


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
    assert not any(name in line for line in kafka.run(tool, *server, "--list").lines)
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


@dataclass(frozen=True, slots=True)
class Mover:
    """Moves partition 0 of a topic to another directory of broker 1 with Apache Kafka's tools."""

    kafka: Kafka
    bootstrap: str
    topic: str
    source: str
    target: str
    file: Path

    def reassign(self, *arguments: str) -> list[str]:
        """Runs kafka-reassign-partitions and returns its lines, with words for the directories."""
        entry = {"topic": self.topic, "partition": 0, "replicas": [1], "log_dirs": [self.target]}
        self.file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        done = self.kafka.run(
            *("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", self.bootstrap),
            *("--reassignment-json-file", str(self.file), *arguments),
        )
        assert done.status == 0, done
        return [line.replace(self.source, "SOURCE").replace(self.target, "TARGET") for line in done.lines]

    def describe(self) -> dict[str, list[dict[str, object]]]:
        """Runs kafka-log-dirs. Returns the partitions in the two directories."""
        done = self.kafka.run(
            *("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", self.bootstrap, "--describe"),
            *("--broker-list", "1", "--topic-list", self.topic),
        )
        assert done.status == 0, done
        assert done.lines[:2] == [
            "Querying brokers for log directories information",
            "Received log directory information from brokers 1",
        ]
        (broker,) = json.loads(done.lines[2])["brokers"]
        places = {each["logDir"]: each for each in broker["logDirs"]}
        for path, each in places.items():
            assert (each.keys(), each["error"]) == ({"logDir", "error", "partitions"}, None)
            assert path in (self.source, self.target) or each["partitions"] == []
        return {"source": places[self.source]["partitions"], "target": places[self.target]["partitions"]}


def mover(kafka: Kafka, bootstrap: str, disks: Sequence[str | Path], topic: str, file: Path) -> Mover:
    """Creates a topic on broker 1, which has these directories, and fills it."""
    create_topic(bootstrap, topic, partitions=1, replication_factor=1, assignments={0: [1]})
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for _ in range(MOVED_RECORDS):
        producer.produce(topic, b"x" * 1000, partition=0)
    assert producer.flush(TOOL_SECONDS_MAX) == 0
    (source,) = [str(disk) for disk in disks if (Path(disk) / f"{topic}-0").is_dir()]
    return Mover(kafka, bootstrap, topic, source, next(str(disk) for disk in disks if str(disk) != source), file)


def test_kafka_log_dirs_shows_a_move_as_it_does_on_apache_kafka(
    kafka: Kafka, cluster: LocalCluster, new_topic_name: Callable[[], str], tmp_path: Path
) -> None:
    """The same throttled move on our broker and on Apache Kafka's, described, verified and cancelled with Apache Kafka's
    tools. During the move both directories have the partition, the target as a future replica that lags behind."""
    topic, ours = new_topic_name(), cluster.broker(1).files
    with ApacheKafkaNode(tmp_path / "kafka", disks=2, overrides={}) as node:
        movers = {
            "ours": mover(kafka, ours.address, ours.data_dirs, topic, tmp_path / "ours.json"),
            "theirs": mover(kafka, node.bootstrap, node.disks, topic, tmp_path / "theirs.json"),
        }
        started = f"Successfully started moving log directory to TARGET for replica {topic}-0 with broker 1 "
        said: dict[str, list[list[str]]] = {}
        for name, each in movers.items():
            executed = each.reassign("--execute", "--replica-alter-log-dirs-throttle", SLOW_BYTES_PER_SECOND)
            assert executed[-1] == started
            described = each.describe()
            (current,), (future,) = described["source"], described["target"]
            sizes, lags = [current.pop("size"), future.pop("size")], [current.pop("offsetLag"), future.pop("offsetLag")]
            assert current == {"partition": f"{topic}-0", "isFuture": False}, name
            assert future == {"partition": f"{topic}-0", "isFuture": True}, name
            # How much has been copied by now differs. The lag is what has not been.
            assert isinstance(sizes[0], int) and isinstance(sizes[1], int) and 0 <= sizes[1] < sizes[0], (name, sizes)
            assert lags[0] == 0, name
            assert isinstance(lags[1], int) and 0 < lags[1] <= MOVED_RECORDS, (name, lags)
            verified, cancelled = each.reassign("--verify"), each.reassign("--cancel")
            assert f"Reassignment of replica {topic}-0-1 is still in progress." in verified, name
            after = each.describe()
            assert after == {"source": [current | {"size": sizes[0], "offsetLag": 0}], "target": []}, name
            # How many brokers' throttles are cleared is not the same.
            said[name] = [executed, verified, [line for line in cancelled if "broker-level throttles" not in line]]
    assert said["ours"] == said["theirs"]


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
    """Kafka's Java clients write with keys, idempotently as is their default, and read back by assignment. The producer is
    described with its last sequence number in each partition that it wrote to."""
    given = "".join(f"key {number}:value {number}\n" for number in range(50))
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    written = kafka.run(
        *("org.apache.kafka.tools.ConsoleProducer", *server, "--compression-codec", "zstd"),
        *("--property", "parse.key=true", "--property", "key.separator=:"),
        given=given,
    )
    assert (written.status, written.errors) == (0, []), written
    offsets = kafka.run("org.apache.kafka.tools.GetOffsetShell", *server)
    counts = {int(partition): int(count) for _, partition, count in (line.split(":") for line in offsets.lines)}
    assert sum(counts.values()) == 50
    partition, count = next((partition, count) for partition, count in counts.items() if count > 0)
    described = kafka.run(
        *("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", bootstrap, "describe-producers"),
        *("--topic", topic, "--partition", str(partition)),
    )
    (producer,) = [line.split() for line in described.lines[1:]]
    assert (producer[1], producer[3], producer[5]) == ("0", str(count - 1), "None"), described
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


def test_kafka_reads_what_our_brokers_compress(
    kafka: Kafka, cluster: LocalCluster, bootstrap: str, new_topic_name: Callable[[], str]
) -> None:
    """Apache Kafka opens the batches that our leader has compressed, because the topic wants another codec."""
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        configs = {"compression.type": codec}
        topic = create_topic(bootstrap, new_topic_name(), partitions=1, replication_factor=1, configs=configs)
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 500})
        for number in range(200):
            producer.produce(topic, os.urandom(500).hex(), f"key {number}")
        assert producer.flush(TOOL_SECONDS_MAX) == 0
        folder = replica_folder(cluster, f"{topic}-0")
        arguments = ("--deep-iteration", "--files", str(next(folder.glob("*.log"))))
        theirs = kafka.run("kafka.tools.DumpLogSegments", *arguments)
        assert (theirs.status, theirs.errors) == (0, []), theirs
        assert f"compresscodec: {codec}" in " ".join(theirs.lines)
        assert sum(line.startswith("| offset") for line in theirs.lines) == 200


def test_kafka_dump_log_reads_our_producer_snapshots(kafka: Kafka, tmp_path: Path) -> None:
    """Apache Kafka finds the checksums right and prints what ours prints."""
    written = tmp_path / f"{21:020d}.snapshot"
    batches = [ProducedBatch(2**31 - 3, 2**31 - 3, 15, 15, 4650), ProducedBatch(2**31 - 2, 2, 16, 20, 4660)]
    entries = {258: ProducerEntry(3, batches, 4660, 6, 17), 9: ProducerEntry(1, [], 77, 2)}
    written.write_bytes(encode_producer_snapshot(entries))
    empty = tmp_path / f"{22:020d}.snapshot"
    empty.write_bytes(encode_producer_snapshot({}))
    arguments = ("--files", f"{written},{empty}")
    theirs = kafka.run("kafka.tools.DumpLogSegments", *arguments)
    assert (theirs.status, theirs.errors, len(theirs.lines)) == (0, [], 5), theirs
    assert run_tool("dump_log", *arguments) == theirs


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


def test_kafka_dump_log_prints_what_is_only_kept_as_ours_does(kafka: Kafka, tmp_path: Path) -> None:
    """Quotas, ACLs, SCRAM credentials and delegation tokens never occur in our own logs, and producer ids rarely. Both tools
    print one batch of the same text."""
    kept: tuple[type, ...] = (*KEPT_RECORDS, ProducerIdsRecord)
    frames = [
        encode_record(record, version, Numbering.APACHE) for _, record, version, _ in GOLDEN if isinstance(record, kept)
    ]
    assert len(frames) == len(kept)
    segment = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(encode_values_batch(frames, base_offset=0, leader_epoch=1, timestamp_ms=1_700_000_000_000))
    arguments = ("--cluster-metadata-decoder", "--files", str(segment))
    theirs = kafka.run("kafka.tools.DumpLogSegments", *arguments)
    assert theirs == run_tool("dump_log", *arguments)
    assert (theirs.status, len(theirs.lines)) == (0, 3 + len(kept))


def test_kafka_storage_finds_our_directories_formatted(kafka: Kafka, cluster: LocalCluster) -> None:
    """Apache Kafka's kafka-storage finds a broker's directories formatted, with the same ids as ours."""
    config = cluster.broker(1).files.config
    theirs = kafka.run("kafka.tools.StorageTool", "info", "-c", config)
    ours = run_tool("storage", "info", "--config", config)
    assert theirs.status == ours.status == 0, (theirs, ours)
    metadata = [line for line in theirs.lines if line.startswith("Found metadata: ")]
    assert metadata == [line for line in ours.lines if line.startswith("Found metadata: ")]
    assert f"cluster.id={cluster.cluster_id}" in metadata[0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_console_consumer_reads_in_a_group_and_kafka_consumer_groups_shows_it(
    protocol: str, kafka: Kafka, bootstrap: str, topic: str, new_topic_name: Callable[[], str]
) -> None:
    """A consumer of Apache Kafka with its default settings, or with the consumer protocol, joins a group, reads, commits and
    leaves; the next one in this group reads only what is new. Kafka's tool lists, describes, resets and deletes the
    group."""
    group, server = f"group-{new_topic_name()}", ("--bootstrap-server", bootstrap)
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    groups = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *server)
    for values in (["one", "two", "three"], ["four", "five"]):
        producer = Producer({"bootstrap.servers": bootstrap})
        for value in values:
            producer.produce(topic, value, partition=1)
        assert producer.flush(TOOL_SECONDS_MAX) == 0
        read = kafka.run(
            *(consumer, *server, "--topic", topic, "--group", group, "--from-beginning"),
            *("--max-messages", str(len(values)), "--timeout-ms", "60000"),
            *("--consumer-property", f"group.protocol={protocol}"),
        )
        assert read.lines == values, read
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result(TOOL_SECONDS_MAX)
    assert not listed.errors
    assert [each.type.name for each in listed.valid if each.group_id == group] == [protocol.upper()]
    assert group in kafka.run(*groups, "--list").lines
    described = kafka.run(*groups, "--describe", "--group", group)
    rows = {line.split()[2]: line.split()[3:6] for line in described.lines if line.startswith(group)}
    assert rows["1"] == ["5", "5", "0"], described
    reset = kafka.run(*groups, "--group", group, "--topic", f"{topic}:1", "--reset-offsets", "--to-earliest", "--execute")
    assert reset.status == 0, reset
    described = kafka.run(*groups, "--describe", "--group", group)
    rows = {line.split()[2]: line.split()[3:6] for line in described.lines if line.startswith(group)}
    assert rows["1"] == ["0", "5", "5"], described
    deleted = kafka.run(*groups, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in deleted.lines, deleted
    assert group not in kafka.run(*groups, "--list").lines
