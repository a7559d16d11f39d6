"""`diskraft demo`: a disk dies during writes, leaders move, and a count proves that no data was lost (shell).

Everything is real: daemons in their own processes, librdkafka as the client, and a loop-mounted file system that is shut
down. If loop mounts are not possible, a directory is renamed and an empty one put in its place. Times come from the daemons'
events and the client's callbacks, relative to the kill. A delivery reported after the kill may still come from the dead
leader, so the first acknowledgement that counts is the first one after the leaders moved.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from admin.client import AdminClient
from admin.errors import RequestFailed
from admin.topics import NewTopic, PartitionDescription
from common.protocol.errors import ErrorCode
from tools.arguments import int32, seconds
from tools.errors import ToolError
from tools.kafka.admin_run import run_admin
from tools.lab import demo_report
from tools.lab.disk_lab import kill_disk, why_no_loop_disks
from tools.lab.local_cluster import LocalCluster, make_own_folder
from tools.text_table import text_table

TOPIC = "demo"
PARTITIONS = 30
REPLICATION_FACTOR = 3
MIN_INSYNC = 2
BROKERS = 3
DISKS = 3
CREATION_MS = 120_000
LEADERS_SECONDS = 20.0
FIRST_ACK_SECONDS_MAX = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--dir", type=Path, help="a new or empty folder for the cluster (default: a temporary one)")
    parser.add_argument("--rate", type=_positive, default=1000, metavar="N", help="records per second (default 1000)")
    parser.add_argument("--before", type=seconds, default=4.0, metavar="S", help="seconds of writing before the disk dies")
    parser.add_argument("--after", type=seconds, default=6.0, metavar="S", help="seconds of writing after the disk has died")
    parser.add_argument(
        "--report", action="store_true", help="export the metadata afterwards and check Spark's report on it"
    )
    parser.add_argument("--plain", action="store_true", help="use plain directories even if loop-mounted disks are possible")


def _positive(text: str) -> int:
    number = int32(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not valid; it takes at least 1")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo. Returns exit status 0 only if no acknowledged record was lost and healthy partitions kept their
    leaders."""
    if arguments.report:
        demo_report.require()
    folder = (arguments.dir or Path(tempfile.mkdtemp(prefix="diskraft-demo-"))).absolute()
    make_own_folder(folder)
    reason = "because of --plain" if arguments.plain else why_no_loop_disks(folder)
    loop = reason is None
    if loop:
        say("disks: loop-mounted ext4; the kernel will shut the victim down, and every operation on it will fail with EIO")
    else:
        say(f"disks: plain directories ({reason}); the victim will be renamed and an empty directory put in its place")
    with _cluster(folder, loop=loop, keep=arguments.keep) as cluster:
        report = _demonstrate(cluster, arguments, loop=loop)
        _print_table(report)
        differences = _report_differences(cluster, report) if arguments.report else []
        print(json.dumps(report.as_json()), flush=True)
        return 0 if report.lost == 0 and not report.disturbed and not differences else 1


def _report_differences(cluster: LocalCluster, report: "Report") -> list[str]:
    failure = demo_report.ExpectedFailure(report.broker_id, report.directory_id, TOPIC, report.hosted)
    return demo_report.run(Path(cluster.controller.files.metadata_dir), cluster.folder.parent / "export", failure)


@contextmanager
def _cluster(folder: Path, *, loop: bool, keep: bool) -> Iterator[LocalCluster]:
    say(f"starting a controller and {BROKERS} brokers with {DISKS} disks each in {folder}")
    cluster = LocalCluster.create(folder / "cluster", brokers=BROKERS, disks=DISKS, loop=loop, disk_mib=128)
    succeeded = False
    try:
        cluster.start()
        yield cluster
        succeeded = True
    finally:
        if not succeeded:
            cluster.kill()
            cluster.remove_disks()
            say(f"logs kept in {cluster.folder}")
        elif keep:
            say(f"the cluster keeps running: bootstrap servers {cluster.bootstrap}")
            say(f"stop and remove it with: diskraft local down --delete --dir {cluster.folder}")
        else:
            cluster.kill()
            cluster.delete()
            shutil.rmtree(folder, ignore_errors=True)


# --- what happened ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """What the demo measured: counts, and times in milliseconds since the kill. A time is None if its event was not seen."""

    victim: str = ""
    broker_id: int = -1
    directory_id: str = ""
    hosted: frozenset[int] = frozenset()
    acknowledged: int = 0
    read_back: int = 0
    lost: int = 0
    duplicated: int = 0
    partitions_in_failed_directory: int = 0
    detect_ms: float | None = None
    leaders_moved_ms: float | None = None
    first_ack_ms: float | None = None
    disturbed: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        keys = (
            "acknowledged",
            "read_back",
            "lost",
            "duplicated",
            "partitions_in_failed_directory",
            "detect_ms",
            "leaders_moved_ms",
            "first_ack_ms",
        )
        return {key: getattr(self, key) for key in keys}


@dataclass(slots=True)
class Leadership:
    """The leader and the leader epoch of each partition."""

    leaders: dict[int, tuple[int | None, int]]


def _demonstrate(cluster: LocalCluster, arguments: argparse.Namespace, *, loop: bool) -> Report:
    report = Report()
    run_admin(cluster.bootstrap, _create_topic)
    before, places = run_admin(cluster.bootstrap, _await_all_replicas)
    broker_id, path, hosted = _choose_victim(before, places)
    report.victim, report.broker_id, report.hosted = path, broker_id, hosted
    report.partitions_in_failed_directory = len(hosted)
    led = {partition for partition in hosted if before.leaders[partition][0] == broker_id}
    say(f"topic {TOPIC}: {PARTITIONS} partitions, {REPLICATION_FACTOR} replicas each, min.insync.replicas {MIN_INSYNC}")
    say(f"victim: {path} of broker {broker_id}, {len(hosted)} partitions, leader of {len(led)} of them")
    with Writer(cluster.bootstrap, arguments.rate) as writer:
        _progress(writer, arguments.before)
        before = run_admin(cluster.bootstrap, _leadership)
        report.directory_id = directory_id = _directory_id(Path(path))
        killed_at = _kill(Path(path), loop=loop)
        timeline(0.0, f"the disk {path} dies")
        _follow_failure(cluster, broker_id, directory_id, killed_at, report)
        _progress(writer, arguments.after)
        report.first_ack_ms = _await_first_ack(writer, led, killed_at, report.leaders_moved_ms)
        if report.first_ack_ms is not None:
            timeline(report.first_ack_ms, "first record acknowledged by a new leader")
        writer.stop()
        report.acknowledged = len(writer.acknowledged)
        after = run_admin(cluster.bootstrap, _leadership)
    report.disturbed = [
        f"{TOPIC}-{partition}: leader {was[0]} (epoch {was[1]}) became {after.leaders[partition][0]}"
        for partition, was in sorted(before.leaders.items())
        if partition not in led and after.leaders[partition] != was
    ]
    say("reading all records back")
    found = _read_back(cluster.bootstrap)
    report.read_back = sum(found.values())
    report.lost = sum(1 for number in writer.acknowledged if number not in found)
    report.duplicated = sum(count - 1 for count in found.values())
    return report


async def _create_topic(admin: AdminClient) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, REPLICATION_FACTOR, configs={"min.insync.replicas": str(MIN_INSYNC)})
    await admin.create_topics([topic], timeout_ms=CREATION_MS).all()


async def _partitions(admin: AdminClient) -> tuple[PartitionDescription, ...]:
    """Returns the topic's partitions, or none while the broker that answers does not know the topic yet."""
    try:
        return (await admin.describe_topics([TOPIC])[TOPIC]).partitions
    except RequestFailed as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return ()


async def _leadership(admin: AdminClient) -> Leadership:
    return Leadership({part.partition: (part.leader, part.leader_epoch) for part in await _partitions(admin)})


@dataclass(frozen=True, slots=True)
class Place:
    """One directory and the partitions of the demo's topic in it."""

    broker_id: int
    path: str
    partitions: frozenset[int]


async def _await_all_replicas(admin: AdminClient) -> tuple[Leadership, list[Place]]:
    """Waits until every replica has its log in a directory and is in sync."""
    deadline = time.monotonic() + LEADERS_SECONDS
    while True:
        places = await _places(admin)
        in_sync = sum(len(part.isr) for part in await _partitions(admin) if part.leader is not None)
        if sum(len(place.partitions) for place in places) == in_sync == PARTITIONS * REPLICATION_FACTOR:
            return await _leadership(admin), places
        if time.monotonic() > deadline:
            raise ToolError(f"not all replicas of the topic are in sync after {LEADERS_SECONDS:g} s")
        await asyncio.sleep(0.05)


async def _places(admin: AdminClient) -> list[Place]:
    described = await admin.describe_log_dirs((await admin.describe_cluster()).broker_ids).all()
    return [
        Place(broker_id, path, frozenset(each.partition for each in log_dir.replica_infos if each.topic == TOPIC))
        for broker_id, log_dirs in described.items()
        for path, log_dir in log_dirs.items()
    ]


def _choose_victim(leadership: Leadership, places: list[Place]) -> tuple[int, str, frozenset[int]]:
    """Returns the directory with the most leaders (the first one on a tie): broker id, path, and its
    partitions."""

    def leaders(place: Place) -> int:
        return sum(1 for partition in place.partitions if leadership.leaders[partition][0] == place.broker_id)

    victim = max(places, key=leaders)
    if leaders(victim) == 0:
        raise ToolError("no directory holds a leader")
    return victim.broker_id, victim.path, victim.partitions


def _directory_id(path: Path) -> str:
    lines = (path / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


def _kill(path: Path, *, loop: bool) -> float:
    """Kills the disk. Returns the wall-clock time just before the kill, because a busy broker may see the error before this
    function returns."""
    began = time.time()
    if loop:
        kill_disk(path)
    else:
        path.rename(path.with_name(path.name + "-gone"))
        path.mkdir()
    return began


def _follow_failure(cluster: LocalCluster, broker_id: int, directory_id: str, killed_at: float, report: Report) -> None:
    broker, controller = cluster.broker(broker_id), cluster.controller

    def since(event: dict[str, Any]) -> float:
        return (datetime.fromisoformat(event["timestamp"]).timestamp() - killed_at) * 1000

    failed = broker.wait_for("log_dir_failed", log_dir=report.victim)
    timeline(since(failed), f"broker {broker_id} sees the error: {failed['cause']}")
    offline = broker.wait_for("log_dir_offline", directory_id=directory_id)
    report.detect_ms = round(since(offline), 1)
    timeline(since(offline), f"directory {directory_id} is offline, {offline['replicas']} replicas stopped")
    reported = controller.wait_for("log_dir_reported_offline", directory_id=directory_id)
    timeline(since(reported), "the controller has the heartbeat that reports it")
    moved = controller.wait_for("leaders_moved", directory_id=directory_id)
    report.leaders_moved_ms = round(since(moved), 1)
    timeline(since(moved), f"leader changes committed ({moved['partitions']} partitions)")


def _await_first_ack(writer: "Writer", led: set[int], killed_at: float, moved_ms: float | None) -> float | None:
    """Goes on writing until a new leader has acknowledged a record. Returns when the first one was, or None after
    FIRST_ACK_SECONDS_MAX."""
    deadline = time.monotonic() + FIRST_ACK_SECONDS_MAX
    while (found := _first_ack(writer, led, killed_at, moved_ms)) is None and time.monotonic() < deadline:
        _progress(writer, 0.1)
    return found


def _first_ack(writer: "Writer", led: set[int], killed_at: float, moved_ms: float | None) -> float | None:
    threshold = killed_at + (moved_ms or 0.0) / 1000
    later = [at for partition, at in list(writer.deliveries) if partition in led and at >= threshold]
    return round((min(later) - killed_at) * 1000, 1) if later else None


# --- the client ------------------------------------------------------------------------------------------------------


class Writer:
    """A librdkafka producer that writes numbered records at a steady rate until it is stopped."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
            }
        )
        self._rate = rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self.sent = 0
        self.acknowledged: list[int] = []
        self.deliveries: list[tuple[int, float]] = []
        """Partition and wall-clock time of every acknowledgement."""
        self.errors: Counter[str] = Counter()

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def stop(self) -> None:
        """Stops sending and waits for the acknowledgements of what was sent."""
        self._stopped.set()
        self._thread.join()
        if self._producer.flush(60) > 0:
            self.errors["still unacknowledged at the end"] += 1

    def _write(self) -> None:
        started = time.monotonic()
        while not self._stopped.is_set():
            is_due = self.sent < int((time.monotonic() - started) * self._rate)
            if is_due and self._may_send(self.sent):
                self.sent += 1
            else:
                self._producer.poll(0.005)

    def _may_send(self, number: int) -> bool:
        """Sends the record, unless the client's queue is full. It drains as acknowledgements come in."""
        try:
            self._producer.produce(
                TOPIC, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._delivered(number)
            )
        except BufferError:
            return False
        return True

    def _delivered(self, number: int) -> Callable[[Any, Any], None]:
        def callback(error: Any, message: Any) -> None:
            if error is not None:
                self.errors[str(error)] += 1
                return
            self.acknowledged.append(number)
            self.deliveries.append((message.partition(), time.time()))

        return callback


def _read_back(bootstrap: str) -> Counter[int]:
    """Returns every number in the topic and how often it occurs."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    found: Counter[int] = Counter()
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)[1]
        for partition in range(PARTITIONS)
    }
    waiting = {partition for partition, end in ends.items() if end > 0}
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in sorted(waiting)])
    deadline = time.monotonic() + 60
    while waiting:
        if time.monotonic() > deadline:
            raise ToolError(f"partitions {sorted(waiting)} could not be read to the end")
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is not None:
                raise ToolError(f"reading back failed: {message.error()}")
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and value is not None, "a message without an error has them"
            found[int(value)] += 1
            if offset + 1 >= ends[partition]:
                waiting.discard(partition)
    consumer.close()
    return found


# --- what a person sees ----------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def timeline(at_ms: float, text: str) -> None:
    say(f"  {at_ms:9.1f} ms  {text}")


def _progress(writer: Writer, seconds: float) -> None:
    """Waits for `seconds`. On a terminal, shows the writer's counts meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if sys.stderr.isatty():
            print(
                f"\r  written {writer.sent:,}  acknowledged {len(writer.acknowledged):,}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(0.1)
    if sys.stderr.isatty():
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr, flush=True)


def _print_table(report: Report) -> None:
    rows = [
        ("disk that died", report.victim),
        ("partitions in it", report.partitions_in_failed_directory),
        ("records acknowledged", report.acknowledged),
        ("records read back", report.read_back),
        ("acknowledged but lost", report.lost),
        ("duplicated by client retries", report.duplicated),
        ("directory offline after", _ms(report.detect_ms)),
        ("leaders moved after", _ms(report.leaders_moved_ms)),
        ("first new acknowledgement after", _ms(report.first_ack_ms)),
        ("leader changes in healthy directories", len(report.disturbed)),
    ]
    say("what happened:")
    say(text_table(("", name, str(value)) for name, value in rows).rstrip("\n"))
    for line in report.disturbed:
        say(f"  {line}")


def _ms(value: float | None) -> str:
    return f"{value:.1f} ms" if value is not None else "not seen"
