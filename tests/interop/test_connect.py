"""Kafka Connect and MirrorMaker 2, both exactly once, while a disk is lost and the process that copies is killed.

A worker of Connect keeps its configuration, its status and its sources' offsets in compacted topics, forms a group with a
protocol of its own, fences the producers of its dead predecessors, and writes records and their offsets in transactions.
MirrorMaker also reads and writes the configuration of topics and the offsets of groups through the admin API. It mirrors one
cluster of ours into another, and, as while users migrate, a cluster of Apache Kafka and one of ours into each other.
"""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX, ApacheKafkaNode, NoJars, logging_option
from tests.interop.java_programs import JavaProgram, need_jars
from tests.interop.loop_cluster import disk_with_a_leader, loop_cluster
from tests.interop.our_tools import run_tool
from tests.interop.records import being_written, committed_records, write
from tests.interop.topics import create_topic
from tools.lab.disk_faults import freeze
from tools.lab.disk_lab import kill_disk
from tools.lab.local_cluster import LocalCluster, free_ports

POM, JARS = Path(__file__).with_name("connect_pom.xml"), "kafka-connect-4.3.0"
LINES = "lines"
COUNT = 3000
STORY_SECONDS = 180.0
SECONDS_PER_LINE = 0.002
REQUIRED = {"exactly.once.support": "required"}
ORDERS, LATER = "orders", "later"
FLOWS = [("ours", "theirs"), ("theirs", "ours")]
ORDERS_EACH = 30
DYING, HANGING, KILLED = 2, 3, 1
# Longer than a disk may hang before clients get errors for it, and shorter than until it counts as dead.
HANGS_SECONDS = 5.0
# What a cluster of one node needs.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
RETENTION = {"retention.ms": "987654321"}
COMMITTED = {"consumer.override.isolation.level": "read_committed"}

pytestmark = [
    pytest.mark.stories,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * STORY_SECONDS),
]


@pytest.fixture
def java(tmp_path: Path) -> list[str]:
    """The command that runs a class of Connect, without the class."""
    path, jars = need_jars(POM, JARS)
    return [path, "-Xmx384m", f"-Djava.io.tmpdir={tmp_path}", logging_option(tmp_path), "-cp", f"{jars}/*"]


class Worker:
    """A worker of a Connect cluster, with its REST interface."""

    def __init__(self, java: list[str], bootstrap: str, folder: Path, number: int) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        path = folder / f"worker-{number}.properties"
        path.write_text(
            f"bootstrap.servers={bootstrap}\n"
            "group.id=workers\n"
            "key.converter=org.apache.kafka.connect.storage.StringConverter\n"
            "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
            "config.storage.topic=connect-configs\n"
            "offset.storage.topic=connect-offsets\n"
            "status.storage.topic=connect-status\n"
            "offset.flush.interval.ms=1000\n"
            "session.timeout.ms=6000\n"
            "heartbeat.interval.ms=1000\n"
            "scheduled.rebalance.max.delay.ms=0\n"
            "exactly.once.source.support=enabled\n"
            f"listeners=http://{self.address}\n"
        )
        command = [*java, "org.apache.kafka.connect.cli.ConnectDistributed", str(path)]
        self.program = JavaProgram(command, folder / f"worker-{number}.log")

    def start(self) -> None:
        self.program.start()
        until(lambda: self.ask("/connectors") is not None, "the worker answers", seconds=STORY_SECONDS)

    def ask(self, path: str) -> Any:
        """Returns None while the worker is not ready for this question."""
        self.program.check()
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=STORY_SECONDS) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            return None

    def create(self, name: str, settings: dict[str, str]) -> None:
        body = json.dumps({"name": name, "config": settings}).encode()
        request = urllib.request.Request(
            f"http://{self.address}/connectors", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=STORY_SECONDS) as answer:
            assert answer.status == 201

    def until_runs(self, name: str) -> str:
        """Waits until the connector's task runs. Returns the address of its worker."""

        def look() -> str | None:
            status = self.ask(f"/connectors/{name}/status")
            tasks = status["tasks"] if status else []
            return tasks[0]["worker_id"] if tasks and tasks[0]["state"] == "RUNNING" else None

        return until(look, f"{name} runs", seconds=STORY_SECONDS)


def read_all(bootstrap: str, topic: str) -> list[str]:
    values = [message.value() for message in committed_records(bootstrap, topic)]
    return [value.decode() for value in values if value is not None]


def until_read(bootstrap: str, topic: str, count: int) -> list[str]:
    def look() -> list[str] | None:
        found = read_all(bootstrap, topic)
        return found if len(found) >= count else None

    return until(look, f"{topic} has {count} records", seconds=STORY_SECONDS)


@contextmanager
def growing(path: Path) -> Iterator[Callable[[], int]]:
    """Lines are appended to the file all the time. The function ends that and returns their number."""
    over = threading.Event()
    written = 0

    def append() -> None:
        nonlocal written
        with path.open("a", buffering=1) as output:
            while not over.wait(SECONDS_PER_LINE):
                output.write(f"line {written}\n")
                written += 1

    def end() -> int:
        over.set()
        writer.join()
        return written

    writer = threading.Thread(target=append)
    writer.start()
    try:
        yield end
    finally:
        end()


def lines(count: int, *, start: int = 0) -> list[str]:
    return [f"line {number}" for number in range(start, start + count)]


def test_a_file_is_copied_exactly_once(java: list[str], tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    with loop_cluster(tmp_path) as cluster, growing(source) as end_of_file:
        create_topic(cluster.bootstrap, LINES, partitions=1, replication_factor=3)
        workers = [Worker(java, cluster.bootstrap, tmp_path, number) for number in (1, 2)]
        try:
            for worker in workers:
                worker.start()
            workers[0].create(
                "source", {"connector.class": "FileStreamSource", "file": str(source), "topic": LINES} | REQUIRED
            )
            workers[0].create("sink", {"connector.class": "FileStreamSink", "file": str(sink), "topics": LINES} | COMMITTED)
            owner = workers[0].until_runs("source")
            workers[0].until_runs("sink")
            until_read(cluster.bootstrap, LINES, 1)
            victim = next(worker for worker in workers if worker.address == owner)
            victim.program.kill()
            kill_disk(disk_with_a_leader(cluster, LINES))
            seen = len(read_all(cluster.bootstrap, LINES))
            until_read(cluster.bootstrap, LINES, seen + 1)
            victim.start()
            count = end_of_file()
            found = until_read(cluster.bootstrap, LINES, count)
            until(
                lambda: set(sink.read_text().splitlines()) >= set(lines(count)),
                "the sink has written each line at least once",
                seconds=STORY_SECONDS,
            )
        finally:
            for worker in workers:
                worker.program.kill()
    assert found == lines(count)


def commit_offset(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """Returns a negative number if the group has none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=STORY_SECONDS)
        return found.offset
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True)
class Side:
    """A cluster that MirrorMaker reads or writes."""

    bootstrap: str
    replication_factor: int


def mirror(
    java: list[str], sides: Mapping[str, Side], flows: Sequence[tuple[str, str]], topics: Sequence[str], folder: Path
) -> JavaProgram:
    """Each flow goes from one side to another."""
    path = folder / "mirror.properties"
    lines = [
        f"clusters={','.join(sides)}",
        "dedicated.mode.enable.internal.rest=true",
        "listeners=http://127.0.0.1:0",
        "plugin.discovery=service_load",
        "sync.group.offsets.enabled=true",
        "sync.topic.acls.enabled=false",
        "offset.lag.max=10",
        "session.timeout.ms=6000",
        "heartbeat.interval.ms=1000",
        "scheduled.rebalance.max.delay.ms=0",
        *(
            f"{task}.interval.seconds=1"
            for task in ("sync.group.offsets", "emit.checkpoints", "refresh.topics", "refresh.groups", "sync.topic.configs")
        ),
    ]
    for name, side in sides.items():
        lines += [
            f"{name}.bootstrap.servers={side.bootstrap}",
            f"{name}.exactly.once.source.support=enabled",
            # A MirrorMaker that starts waits until the transactions of a killed one are over.
            f"{name}.producer.transaction.timeout.ms=10000",
            f"{name}.consumer.isolation.level=read_committed",
            *(
                f"{name}.{what}.storage.replication.factor={side.replication_factor}"
                for what in ("offset", "status", "config")
            ),
        ]
    for source, target in flows:
        flow, copies = f"{source}->{target}", sides[target].replication_factor
        lines += [
            f"{flow}.enabled=true",
            f"{flow}.topics={','.join(topics)}",
            f"{flow}.replication.factor={copies}",
            f"{flow}.checkpoints.topic.replication.factor={copies}",
            f"{flow}.heartbeats.topic.replication.factor={copies}",
            f"{flow}.offset-syncs.topic.replication.factor={sides[source].replication_factor}",
        ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return JavaProgram([*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(path)], folder / "mirror.log")


def test_a_topic_is_mirrored_exactly_once(java: list[str], tmp_path: Path) -> None:
    mirrored = f"source.{LINES}"
    target = LocalCluster.create(tmp_path / "target", brokers=1, disks=2, loop=False)
    with loop_cluster(tmp_path) as source:
        try:
            target.start()
            create_topic(source.bootstrap, LINES, partitions=1, replication_factor=3, configs=RETENTION)
            write(source.bootstrap, LINES, lines(COUNT))
            program = mirror(
                java,
                {"source": Side(source.bootstrap, 3), "target": Side(target.bootstrap, 1)},
                [("source", "target")],
                [LINES],
                tmp_path,
            )
            try:
                program.start()
                until(lambda: has_topic(target.bootstrap, mirrored), "the mirrored topic is there", seconds=STORY_SECONDS)
                write(source.bootstrap, LINES, lines(COUNT, start=COUNT))
                until_read(target.bootstrap, mirrored, 1)
                program.kill()
                kill_disk(disk_with_a_leader(source, LINES))
                program.start()
                write(source.bootstrap, LINES, lines(COUNT, start=2 * COUNT))
                found = until_read(target.bootstrap, mirrored, 3 * COUNT)
                commit_offset(source.bootstrap, "readers", LINES, 3 * COUNT)
                until(
                    lambda: committed_offset(target.bootstrap, "readers", mirrored) > 0,
                    "the group's offset is mirrored",
                    seconds=STORY_SECONDS,
                )
            finally:
                program.kill()
            described = run_tool("topics", "--bootstrap-server", target.bootstrap, "--describe", "--topic", mirrored)
        finally:
            target.kill()
            target.delete()
    assert found == lines(3 * COUNT)
    assert any("retention.ms=987654321" in line for line in described.lines)


def has_topic(bootstrap: str, name: str) -> bool:
    with BlockingAdmin(bootstrap) as admin:
        (found,) = admin.metadata([name]).topics
        return not found.error_code


def by_partition(bootstrap: str, topic: str) -> list[list[str]]:
    """Returns the committed values of each partition, in order."""
    with BlockingAdmin(bootstrap) as admin:
        (described,) = admin.metadata([topic]).topics
    found: list[list[str]] = [[] for _ in described.partitions]
    for message in committed_records(bootstrap, topic, partitions=len(found)):
        value, partition = message.value(), message.partition()
        assert value is not None and partition is not None
        found[partition].append(value.decode())
    return found


def count_of(bootstrap: str, topic: str) -> int:
    return sum(map(len, by_partition(bootstrap, topic))) if has_topic(bootstrap, topic) else 0


def write_orders(bootstrap: str, start: int) -> None:
    """Writes transactions, of which every third is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders"})
    producer.init_transactions(STORY_SECONDS)
    for number in range(start, start + ORDERS_EACH):
        producer.begin_transaction()
        for item in range(3):
            producer.produce(ORDERS, f"order {number}.{item}")
        if number % 3 == 0:
            assert producer.flush(STORY_SECONDS) == 0
            producer.abort_transaction(STORY_SECONDS)
        else:
            producer.commit_transaction(STORY_SECONDS)


def read_in_group(bootstrap: str, topic: str, wanted: set[str]) -> list[str]:
    """A member of the group reads on from what the group has committed until it has seen all that is wanted, and commits."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    found: list[str] = []
    missing = set(wanted)
    deadline = time.monotonic() + STORY_SECONDS
    try:
        consumer.subscribe([topic])
        while missing:
            assert time.monotonic() < deadline, f"the group misses {sorted(missing)[:10]} of {topic}"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                value = message.value()
                assert value is not None
                found.append(value.decode())
                missing.discard(found[-1])
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


class Mirroring:
    """Two clusters that one MirrorMaker mirrors into each other."""

    def __init__(self, sides: Mapping[str, Side], program: JavaProgram) -> None:
        self.sides = sides
        self.program = program

    def until_more(self, target: str, topic: str = LINES) -> None:
        """Waits until further records of the other side's topic have come."""
        (source,) = self.sides.keys() - {target}
        bootstrap, mirrored = self.sides[target].bootstrap, f"{source}.{topic}"
        seen = count_of(bootstrap, mirrored)
        until(lambda: count_of(bootstrap, mirrored) > seen, f"{target} has more of {mirrored}", seconds=STORY_SECONDS)
        self.program.check()

    def until_equal(self, topic: str) -> None:
        """Waits until each side has all records of the other's topic, each once and in order."""
        for source, target in FLOWS:
            self._until_copied(source, target, topic)
        self.program.check()

    def _until_copied(self, source: str, target: str, topic: str) -> None:
        written = by_partition(self.sides[source].bootstrap, topic)
        count = sum(map(len, written))
        bootstrap, mirrored = self.sides[target].bootstrap, f"{source}.{topic}"
        until(lambda: count_of(bootstrap, mirrored) >= count, f"{mirrored} is complete", seconds=STORY_SECONDS)
        assert by_partition(bootstrap, mirrored) == written

    def move_readers(self, source: str, target: str, written: set[str]) -> None:
        """A group reads all that was written, and goes on on the other side. It misses nothing, and repeats little."""
        own, mirrored = self.sides[source].bootstrap, f"{source}.{LINES}"
        other = self.sides[target].bootstrap
        read = set(read_in_group(own, LINES, written))
        until(
            lambda: committed_offset(other, "readers", mirrored) > 0,
            "the group's offset is mirrored",
            seconds=STORY_SECONDS,
        )
        late = {f"late {number}" for number in range(100)}
        write(own, LINES, late)
        repeated = set(read_in_group(other, mirrored, late)) - late
        assert len(repeated) < len(written) / 2
        assert read | repeated == written


def disturb(mirroring: Mirroring, ours: LocalCluster) -> None:
    """A disk dies, another one hangs, a broker and MirrorMaker are killed. After each, both sides get further records."""
    kill_disk(disk_with_a_leader(ours, f"theirs.{LINES}", DYING))
    mirroring.until_more("ours")
    freeze(disk_with_a_leader(ours, LINES, HANGING), HANGS_SECONDS)
    write_orders(ours.bootstrap, ORDERS_EACH)
    mirroring.until_more("theirs")
    ours.broker(KILLED).kill()
    ours.broker(KILLED).start()
    ours.broker(KILLED).wait_for("broker_running")
    for side in mirroring.sides:
        mirroring.until_more(side)
    mirroring.program.kill()
    write_orders(mirroring.sides["theirs"].bootstrap, ORDERS_EACH)
    mirroring.program.start()
    mirroring.until_more("ours")


def grow(side: Side) -> None:
    """Adds partitions and a topic."""
    grown = ("--alter", "--topic", LINES, "--partitions", "4")
    assert run_tool("topics", "--bootstrap-server", side.bootstrap, *grown).status == 0
    create_topic(side.bootstrap, LATER, replication_factor=side.replication_factor)
    write(side.bootstrap, LATER, lines(10))


def test_two_clusters_are_mirrored_into_each_other(java: list[str], tmp_path: Path) -> None:
    """A group moves from each side to the other, and the topics grow, after a disk died, one hung, and a broker and
    MirrorMaker were killed."""
    with ExitStack() as stack:
        ours = stack.enter_context(loop_cluster(tmp_path))
        try:
            theirs = stack.enter_context(ApacheKafkaNode(tmp_path / "theirs", disks=1, overrides=ALONE))
        except NoJars as error:
            pytest.skip(f"NOTHING WAS TESTED WITH APACHE KAFKA: {error}")
        sides = {"ours": Side(ours.bootstrap, 3), "theirs": Side(theirs.bootstrap, 1)}
        mirroring = Mirroring(sides, mirror(java, sides, FLOWS, [LINES, ORDERS, LATER], tmp_path))
        stack.callback(mirroring.program.kill)
        for side in sides.values():
            for topic in (LINES, ORDERS):
                create_topic(side.bootstrap, topic, replication_factor=side.replication_factor, configs=RETENTION)
        with ExitStack() as writers:
            ends = {name: writers.enter_context(being_written(side.bootstrap, LINES)) for name, side in sides.items()}
            mirroring.program.start()
            for name, side in sides.items():
                write_orders(side.bootstrap, 0)
                mirroring.until_more(name)
            disturb(mirroring, ours)
            for side in sides.values():
                grow(side)
            written = {name: set(lines(end())) for name, end in ends.items()}
        for topic in (LINES, ORDERS, LATER):
            mirroring.until_equal(topic)
        for source, target in FLOWS:
            mirroring.move_readers(source, target, written[source])
            described = run_tool(
                "topics", "--bootstrap-server", sides[target].bootstrap, "--describe", "--topic", f"{source}.{LINES}"
            )
            assert any("PartitionCount: 4" in line and "retention.ms=987654321" in line for line in described.lines)
        mirroring.until_equal(LINES)
    assert "UnsupportedVersionException" not in (tmp_path / "mirror.log").read_text()
