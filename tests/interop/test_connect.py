"""Kafka Connect and MirrorMaker 2, both exactly once, while a disk is lost and the process that copies is killed.

A worker of Connect keeps its configuration, its status and its sources' offsets in compacted topics, forms a group with a
protocol of its own, fences the producers of its dead predecessors, and writes records and their offsets in transactions.
MirrorMaker also reads and writes the configuration of topics and the offsets of groups through the admin API.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX, logging_option
from tests.interop.java_programs import JavaProgram, need_jars
from tests.interop.loop_cluster import disk_with_a_leader, loop_cluster
from tests.interop.our_tools import run_tool
from tests.interop.records import committed_records, write
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk
from tools.lab.local_cluster import LocalCluster, free_ports

POM, JARS = Path(__file__).with_name("connect_pom.xml"), "kafka-connect-4.3.0"
LINES = "lines"
COUNT = 3000
STORY_SECONDS = 180.0
SECONDS_PER_LINE = 0.002
REQUIRED = {"exactly.once.support": "required"}
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


def mirror(java: list[str], source: str, target: str, folder: Path) -> JavaProgram:
    path = folder / "mirror.properties"
    topics = (
        "checkpoints.topic",
        "heartbeats.topic",
        "offset-syncs.topic",
        "offset.storage",
        "status.storage",
        "config.storage",
    )
    path.write_text(
        "clusters=source,target\n"
        f"source.bootstrap.servers={source}\n"
        f"target.bootstrap.servers={target}\n"
        "source->target.enabled=true\n"
        f"source->target.topics={LINES}\n"
        "target->source.enabled=false\n"
        "target.exactly.once.source.support=enabled\n"
        "replication.factor=1\n"
        "sync.group.offsets.enabled=true\n"
        "offset.lag.max=10\n"
        "session.timeout.ms=6000\n"
        "heartbeat.interval.ms=1000\n"
        + "".join(f"{topic}.replication.factor=1\n" for topic in topics)
        + "".join(
            f"{task}.interval.seconds=1\n"
            for task in ("sync.group.offsets", "emit.checkpoints", "refresh.topics", "refresh.groups", "sync.topic.configs")
        )
    )
    return JavaProgram([*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(path)], folder / "mirror.log")


def test_a_topic_is_mirrored_exactly_once(java: list[str], tmp_path: Path) -> None:
    mirrored = f"source.{LINES}"
    target = LocalCluster.create(tmp_path / "target", brokers=1, disks=2, loop=False)
    with loop_cluster(tmp_path) as source:
        try:
            target.start()
            create_topic(source.bootstrap, LINES, partitions=1, replication_factor=3, configs={"retention.ms": "987654321"})
            write(source.bootstrap, LINES, lines(COUNT))
            program = mirror(java, source.bootstrap, target.bootstrap, tmp_path)
            try:
                program.start()
                until(lambda: has_topic(target, mirrored), "the mirrored topic is there", seconds=STORY_SECONDS)
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


def has_topic(cluster: LocalCluster, name: str) -> bool:
    with BlockingAdmin(cluster.bootstrap) as admin:
        (found,) = admin.metadata([name]).topics
        return not found.error_code
