"""Measures moves of replicas between two directories of one broker, compared with `cp` and Apache Kafka.

    python -m tests.benchmarks.bench_moves [--quick] [--megabytes 400] [--rounds 5] [--partitions 1000] [--folder FOLDER]

One broker of ours and one node of Apache Kafka keep their directories on the same file system. Apache Kafka is left out if
its jars or Java are missing. kafka-python sends AlterReplicaLogDirs to both. The time of a move runs from the request until
the replica's folder is in the target directory. The rounds alternate between the brokers; only the ratios are meaningful.

copy         moves one replica at full speed and, for comparison, copies its folder with `cp -r`. Before each
             of the two, the source is synced, and read into the page cache ("warm") or dropped from it ("cold").
             "copied" ends when our broker has copied everything but synced nothing, like `cp`. "moved" ends when the move
             does. It includes the syncs, so it is also compared with `cp` plus an fsync of each file. Apache Kafka does not
             sync. The goal is at least half of the rate of `cp`.
throttle     counts the bytes copied in the first 10 s of a throttled move. The goal is to be within 10 % of the given rate.
latency      writes single records at a low rate to four partitions and moves one of the partitions. The goal is that a move
             at full speed at most doubles the p99 of the latency before the move.
pause        measures how long a swap holds appends back, according to the broker's events, while a client writes to all the
             partitions that move. The goal is a p99 below 50 ms.
many         moves 1,000 replicas with one request, and measures the time until the last of them has moved.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError, ReplicaNotAvailableError

from tests.benchmarks.bench_produce_fetch import recycle_memory
from tests.benchmarks.measuring import percentile, print_result, spread
from tests.integration.event_tail import EventTail
from tests.interop.apache_kafka import ApacheKafkaNode, NoJars
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

PARTS = ("copy", "throttle", "latency", "pause", "many")
BROKER_ID = 1
RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
# Delete the folders of finished moves soon. Otherwise many rounds would fill the disk.
OVERRIDES = {"log.segment.delete.delay.ms": "1000"}
VALUE_BYTES = 1024
SECONDS_MAX = 300.0
POLL_SECONDS = 0.001
MB = 1_000_000

COPY_GOAL = 0.5
THROTTLE_RATES_MB_S = (2, 20)
THROTTLE_SECONDS = 10.0
THROTTLE_GOAL = 0.1
LATENCY_RATE = 500
LATENCY_PARTITIONS = 4
LATENCY_GOAL = 2.0
BEFORE_SECONDS = 3.0
PAUSE_PARTITIONS = 20
PAUSE_GOAL_MS = 50.0


@dataclass(slots=True)
class Target:
    """A broker with two directories, and the results of its measurements."""

    name: str
    bootstrap: str
    disks: Sequence[Path]
    events: Callable[[], EventTail] | None
    """Returns the events of the broker from now on. None if the broker has no such events."""
    admin: Any
    copied_mb_s: dict[str, list[float]] = field(default_factory=lambda: {"warm": [], "cold": []})
    moved_mb_s: dict[str, list[float]] = field(default_factory=lambda: {"warm": [], "cold": []})
    cp_mb_s: dict[str, list[float]] = field(default_factory=lambda: {"warm": [], "cold": []})
    cp_synced_mb_s: dict[str, list[float]] = field(default_factory=lambda: {"warm": [], "cold": []})
    throttle_deviation: dict[int, list[float]] = field(default_factory=dict)
    """By the rate asked for, in MB/s: how far the measured rate is from it, as a fraction."""
    before_p99_ms: list[float] = field(default_factory=list)
    during_p99_ms: list[float] = field(default_factory=list)
    during_max_ms: list[float] = field(default_factory=list)
    pauses_ms: list[float] = field(default_factory=list)
    many_seconds: list[float] = field(default_factory=list)

    def directory_of(self, topic: str, partition: int = 0) -> Path:
        # At the end of a move Apache Kafka has the partition's folder in both directories for a moment.
        while len(found := [disk for disk in self.disks if (disk / f"{topic}-{partition}").is_dir()]) != 1:
            time.sleep(POLL_SECONDS)
        return found[0]

    def other(self, disk: Path) -> Path:
        return next(each for each in self.disks if each != disk)

    def start_move(self, topic: str, partitions: Iterable[int], to: Path) -> None:
        """Sends AlterReplicaLogDirs. Raises AssertionError if the broker refuses to move any of the replicas."""
        asked = {(topic, partition, BROKER_ID): str(to) for partition in partitions}
        deadline = time.monotonic() + SECONDS_MAX
        while asked:
            answers = self.admin.alter_replica_log_dirs(asked)
            assert set(answers.values()) <= {NoError, ReplicaNotAvailableError}, f"{self.name}: {answers}"
            assert time.monotonic() < deadline, f"{self.name}: {answers}"
            # The broker may still be finishing this replica's previous move. Then ask again.
            asked = {tuple(replica): str(to) for replica, error in answers.items() if error is not NoError}

    def move(self, topic: str, partitions: Iterable[int], to: Path) -> float:
        """Moves replicas and waits until all of them are in the target directory. Returns how many seconds that took."""
        asked = list(partitions)
        started = time.perf_counter()
        self.start_move(topic, asked, to)
        self.wait_until_moved(topic, asked, to)
        return time.perf_counter() - started

    def wait_until_moved(self, topic: str, partitions: Iterable[int], to: Path) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        for partition in partitions:
            while not (to / f"{topic}-{partition}").is_dir():
                assert time.monotonic() < deadline, f"{self.name}: {topic}-{partition} is not in {to.name}"
                time.sleep(POLL_SECONDS)

    def wait_until_deleted(self) -> None:
        """Waits until the broker has deleted the folders of finished moves, then syncs everything."""
        deadline = time.monotonic() + SECONDS_MAX
        while any(path.name.endswith("-delete") for disk in self.disks for path in disk.iterdir()):
            assert time.monotonic() < deadline, f"{self.name} does not delete the old copies"
            time.sleep(0.05)
        os.sync()

    def set_rate(self, bytes_per_s: int | None) -> None:
        """Sets the rate at which replicas are copied; None removes the limit."""
        if bytes_per_s is None:
            entry = ConfigEntry(RATE_KEY, None, incremental_operation=AlterConfigOpType.DELETE)
        else:
            entry = ConfigEntry(RATE_KEY, str(bytes_per_s), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(BROKER_ID), incremental_configs=[entry])
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in client.incremental_alter_configs([resource]).values():
            future.result()


def fill(target: Target, topic: str, megabytes: float, partitions: Sequence[int] = (0,)) -> None:
    """Writes this many megabytes to the topic, spread evenly over the partitions."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 5, "acks": "all"})
    value = os.urandom(VALUE_BYTES)
    for _ in range(max(int(megabytes * MB / VALUE_BYTES / len(partitions)), 1)):
        for partition in partitions:
            while True:
                try:
                    producer.produce(topic, value, partition=partition)
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
    assert producer.flush(SECONDS_MAX) == 0, "records are left"


def data_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix == ".log"]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in data_files(folder))


# --- copy --------------------------------------------------------------------------------------------------------


def measure_copy(target: Target, topic: str, cache: str, *, cp_first: bool) -> None:
    """Copies the replica's folder with `cp`, and moves the replica, each once."""
    for turn in (_measure_cp, _measure_move) if cp_first else (_measure_move, _measure_cp):
        source = target.directory_of(topic)
        folder = source / f"{topic}-0"
        _prepare(target, folder, cache)
        turn(target, folder, target.other(source), cache)


def _measure_cp(target: Target, folder: Path, to: Path, cache: str) -> None:
    megabytes = size_of(folder) / MB
    # Not inside the directory: a broker may not expect a folder that it did not create.
    copied = to.with_name(f"{to.name}-cp")
    copied.mkdir()
    started = time.perf_counter()
    subprocess.run(["cp", "-r", str(folder), str(copied)], check=True)
    target.cp_mb_s[cache].append(megabytes / (time.perf_counter() - started))
    for path in data_files(copied / folder.name):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    target.cp_synced_mb_s[cache].append(megabytes / (time.perf_counter() - started))
    shutil.rmtree(copied)


def _measure_move(target: Target, folder: Path, to: Path, cache: str) -> None:
    megabytes = size_of(folder) / MB
    topic = folder.name.rpartition("-")[0]
    events = None if target.events is None else target.events()
    sent = time.time()
    target.moved_mb_s[cache].append(megabytes / target.move(topic, [0], to))
    if events is not None:
        target.copied_mb_s[cache].append(megabytes / (events.wait_for("move_caught_up", partition=folder.name) - sent))


def _prepare(target: Target, folder: Path, cache: str) -> None:
    target.wait_until_deleted()
    recycle_memory(target.disks[0].parent, size_of(folder) / MB * 1.2)
    for path in data_files(folder):
        with path.open("rb") as file:
            if cache == "cold":
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while file.read(MB):
                    pass


# --- throttle ----------------------------------------------------------------------------------------------------


def measure_throttle(target: Target, topic: str, rate_mb_s: int) -> None:
    """Measures how many bytes are copied in the first seconds of a throttled move. Then lets the move finish at full
    speed."""
    target.wait_until_deleted()
    to = target.other(target.directory_of(topic))
    target.set_rate(rate_mb_s * MB)
    try:
        target.start_move(topic, [0], to)
        future = _wait_for_future(to, topic)
        started = time.perf_counter()
        time.sleep(THROTTLE_SECONDS)
        measured = size_of(future) / (time.perf_counter() - started)
    finally:
        target.set_rate(None)
    target.wait_until_moved(topic, [0], to)
    target.throttle_deviation.setdefault(rate_mb_s, []).append(measured / (rate_mb_s * MB) - 1)


def _wait_for_future(to: Path, topic: str) -> Path:
    """Waits for the first bytes of the copy, and returns the copy's folder."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        for folder in to.glob(f"{topic}-0.*-future"):
            if size_of(folder):
                return folder
        assert time.monotonic() < deadline, "the move does not start"
        time.sleep(POLL_SECONDS)


# --- latency and pause -------------------------------------------------------------------------------------------


class SteadyWriter:
    """Writes single records at a low rate to the partitions in turn. Notes when each record was due and how long it took."""

    def __init__(self, target: Target, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0})
        self._topic = topic
        self._partitions = partitions
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self.latencies: list[tuple[float, float]] = []
        """When the record was due on the performance counter, and the milliseconds until it was acknowledged."""
        self.failures: list[str] = []

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
            left = self._producer.flush(SECONDS_MAX)
        assert left == 0 and not self.failures, (left, self.failures[:1])

    def between(self, start: float, end: float) -> list[float]:
        """Returns the latencies, in milliseconds, of the records that were due between these two times."""
        return [latency for due, latency in self.latencies if start <= due < end]

    def _write(self) -> None:
        value = os.urandom(VALUE_BYTES)
        started = time.perf_counter()
        number = 0
        while not self._stopped.is_set():
            due = started + number / LATENCY_RATE
            while (wait := due - time.perf_counter()) > 0:
                self._producer.poll(wait)
            partition = number % self._partitions
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered(due))
            number += 1

    def _delivered(self, due: float) -> Callable[[Any, Any], None]:
        def callback(error: Any, _: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            self.latencies.append((due, (time.perf_counter() - due) * 1000))

        return callback


def measure_latency(target: Target, topic: str) -> None:
    """Writes for a while. Then moves the first partition to the other directory and back while writing continues."""
    target.wait_until_deleted()
    # The first touch of memory that the host has yet to provide takes long. Both copies of this replica need some.
    folder = target.directory_of(topic) / f"{topic}-0"
    recycle_memory(target.disks[0].parent, 2 * size_of(folder) / MB * 1.2)
    writer = SteadyWriter(target, topic, LATENCY_PARTITIONS)
    with writer.writing():
        # Do not count the first records. They wait until the client has connected.
        time.sleep(0.5)
        quiet = time.perf_counter()
        time.sleep(BEFORE_SECONDS)
        started = time.perf_counter()
        for _ in range(2):
            target.move(topic, [0], target.other(target.directory_of(topic)))
        ended = time.perf_counter()
    before, during = writer.between(quiet, started), writer.between(started, ended)
    target.before_p99_ms.append(percentile(before, 0.99))
    target.during_p99_ms.append(percentile(during, 0.99))
    target.during_max_ms.append(max(during))


def measure_pauses(target: Target, topic: str) -> None:
    """Moves all partitions to the other directory while a client writes to all of them."""
    assert target.events is not None
    target.wait_until_deleted()
    to = target.other(target.directory_of(topic))
    partitions = range(PAUSE_PARTITIONS)
    events = target.events()
    with SteadyWriter(target, topic, PAUSE_PARTITIONS).writing():
        target.move(topic, partitions, to)
    for partition in partitions:
        target.pauses_ms.append(events.wait_for_event("move_finished", partition=f"{topic}-{partition}")["pause_ms"])


# --- rounds ------------------------------------------------------------------------------------------------------


@contextmanager
def our_broker(folder: Path) -> Iterator[Target]:
    cluster = LocalCluster.create(folder, brokers=1, disks=2, loop=False, overrides=OVERRIDES)
    try:
        cluster.start()
        broker = cluster.broker(BROKER_ID)
        disks = list(map(Path, broker.files.data_dirs))
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        yield Target("diskraft", cluster.bootstrap, disks, lambda: EventTail(broker), admin)
        admin.close()
    finally:
        cluster.kill()
        cluster.delete()


@contextmanager
def apache_kafka(folder: Path) -> Iterator[Target | None]:
    """Yields the node. If Apache Kafka cannot be run here, prints the reason and yields None."""
    try:
        node = ApacheKafkaNode(folder, disks=2, overrides=OVERRIDES)
    except NoJars as reason:
        print(f"  without Apache Kafka: {reason}", file=sys.stderr, flush=True)
        yield None
        return
    with node:
        admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
        yield Target("apache_kafka", node.bootstrap, node.disks, None, admin)
        admin.close()


def gather(target: Target, topic: str, partitions: int) -> None:
    """Moves all partitions of a new topic into the first directory."""
    away = [each for each in range(partitions) if target.directory_of(topic, each) != target.disks[0]]
    target.move(topic, away, target.disks[0])


def take_turns(targets: Sequence[Target], arguments: argparse.Namespace) -> None:
    """Measures everything in alternating rounds. A moment in which the machine is busy then affects both brokers alike."""
    only = arguments.only or PARTS
    for target in targets:
        create_topic(target.bootstrap, "copy", partitions=1, replication_factor=1)
        fill(target, "copy", arguments.megabytes)
        create_topic(target.bootstrap, "latency", partitions=LATENCY_PARTITIONS, replication_factor=1)
        fill(target, "latency", arguments.megabytes)
        create_topic(target.bootstrap, "pause", partitions=PAUSE_PARTITIONS, replication_factor=1)
        fill(target, "pause", arguments.megabytes / 4, range(PAUSE_PARTITIONS))
        gather(target, "pause", PAUSE_PARTITIONS)
        # Do not measure the first move. It only warms the broker up.
        target.move("copy", [0], target.other(target.directory_of("copy")))
    for number in range(arguments.rounds):
        for target in targets:
            if "copy" in only:
                for cache in ("warm", "cold"):
                    # The host may cache what this machine reads from its disk, so neither is always the first to read.
                    measure_copy(target, "copy", cache, cp_first=number % 2 == 0)
            if "latency" in only:
                measure_latency(target, "latency")
            if "pause" in only and target.events is not None:
                measure_pauses(target, "pause")
            if "throttle" in only and number < arguments.throttle_rounds:
                for rate in THROTTLE_RATES_MB_S:
                    measure_throttle(target, "copy", rate)
    if "many" in only:
        for target in targets:
            create_topic(target.bootstrap, "many", partitions=arguments.partitions, replication_factor=1)
            fill(target, "many", 0, range(arguments.partitions))
            gather(target, "many", arguments.partitions)
        for _ in range(arguments.many_rounds):
            for target in targets:
                target.wait_until_deleted()
                to = target.other(target.directory_of("many"))
                target.many_seconds.append(target.move("many", range(arguments.partitions), to))


# --- figures -----------------------------------------------------------------------------------------------------


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns the median of the ratios ours/theirs, one ratio for each round."""
    return round(statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True)), 2)


def figures_of(target: Target) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for cache in ("warm", "cold"):
        if not target.moved_mb_s[cache]:
            continue
        cp, moved, copied = target.cp_mb_s[cache], target.moved_mb_s[cache], target.copied_mb_s[cache]
        figures[f"copy_{cache}"] = {
            "cp_mb_s": spread(cp),
            "moved_mb_s": spread(moved),
            "moved_ratio_to_cp": ratio(moved, cp),
            "moved_ratio_to_cp_and_fsync": ratio(moved, target.cp_synced_mb_s[cache]),
        }
        if copied:
            figures[f"copy_{cache}"] |= {"copied_mb_s": spread(copied), "copied_ratio_to_cp": ratio(copied, cp)}
    if target.throttle_deviation:
        figures["throttle_deviation"] = {
            f"{rate}_mb_s": spread(values, 3) for rate, values in target.throttle_deviation.items()
        }
    if target.before_p99_ms:
        figures["latency"] = {
            "before_p99_ms": spread(target.before_p99_ms, 2),
            "during_p99_ms": spread(target.during_p99_ms, 2),
            "during_max_ms": spread(target.during_max_ms, 2),
            "p99_ratio": ratio(target.during_p99_ms, target.before_p99_ms),
        }
    if target.pauses_ms:
        figures["pause_ms"] = {
            "count": len(target.pauses_ms),
            "p50": round(percentile(target.pauses_ms, 0.5), 1),
            "p99": round(percentile(target.pauses_ms, 0.99), 1),
            "max": round(max(target.pauses_ms), 1),
        }
    if target.many_seconds:
        figures["many_seconds"] = spread(target.many_seconds)
    return figures


def text_of(target: Target, partitions: int) -> str:
    """Returns the medians as readable text."""
    parts: list[str] = []
    for cache in ("warm", "cold"):
        cp, moved, copied = target.cp_mb_s[cache], target.moved_mb_s[cache], target.copied_mb_s[cache]
        if moved:
            text = f"moves {statistics.median(moved):.0f} MB/s ({cache}) = {ratio(moved, cp)} of cp"
            if copied:
                text += (
                    f" and {ratio(moved, target.cp_synced_mb_s[cache])} of cp and fsync, copies {ratio(copied, cp)} of cp"
                )
            parts.append(text)
    for rate, values in target.throttle_deviation.items():
        parts.append(f"{rate} MB/s asked, {100 * statistics.median(values):+.1f} %")
    if target.before_p99_ms:
        before, during = statistics.median(target.before_p99_ms), statistics.median(target.during_p99_ms)
        parts.append(
            f"produce p99 {before:.1f} ms before and {during:.1f} ms during a move "
            f"({ratio(target.during_p99_ms, target.before_p99_ms)})"
        )
    if target.pauses_ms:
        parts.append(f"pause p99 {percentile(target.pauses_ms, 0.99):.1f} ms of {len(target.pauses_ms)}")
    if target.many_seconds:
        parts.append(f"{partitions} replicas in {statistics.median(target.many_seconds):.1f} s")
    return f"{target.name}: {', '.join(parts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds, for a first look")
    parser.add_argument("--megabytes", type=float, help="the size of the replica that is copied (default 400)")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--throttle-rounds", type=int, help="how many of the rounds measure the throttle (default 3)")
    parser.add_argument("--many-rounds", type=int, help="how often many replicas are moved by one request (default 1)")
    parser.add_argument("--partitions", type=int, help="replicas moved by one request (default 1000)")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure only this; may be given several times")
    parser.add_argument("--folder", type=Path, help="where the directories lie (default: a new temporary folder)")
    arguments = parser.parse_args()
    arguments.megabytes = arguments.megabytes or 400.0
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    arguments.throttle_rounds = arguments.throttle_rounds or (1 if arguments.quick else 3)
    arguments.many_rounds = arguments.many_rounds or 1
    arguments.partitions = arguments.partitions or (200 if arguments.quick else 1000)
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name, ExitStack() as stack:
        folder = Path(name)
        found = [stack.enter_context(our_broker(folder / "ours")), stack.enter_context(apache_kafka(folder / "apache"))]
        targets = [target for target in found if target is not None]
        take_turns(targets, arguments)
    figures = {
        "megabytes": arguments.megabytes,
        "rounds": arguments.rounds,
        "partitions": arguments.partitions,
        "goals": {
            "copied_ratio_to_cp": COPY_GOAL,
            "throttle_deviation": THROTTLE_GOAL,
            "latency_p99_ratio": LATENCY_GOAL,
            "pause_p99_ms": PAUSE_GOAL_MS,
        },
    } | {target.name: figures_of(target) for target in targets}
    text = "; ".join(text_of(target, arguments.partitions) for target in targets)
    print_result("moves", "python -m tests.benchmarks.bench_moves", figures, text)


if __name__ == "__main__":
    main()
