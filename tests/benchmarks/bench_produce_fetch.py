"""How many MB/s one producer and one consumer move through a broker, compared with a sink that only answers.

    python -m tests.benchmarks.bench_produce_fetch [--quick] [--megabytes 300] [--rounds 5] [--folder FOLDER]

librdkafka writes and reads records of 1 KB in one partition. Rounds alternate between the sink, a broker with replication
factor 1 (acks=1) and, in a separate cluster, replication factor 3 with acks=all. The sink checks and stores nothing, so its
MB/s are the client's ceiling on this machine. What counts is the ratio of the medians, and the broker's CPU time per MB.
Client and brokers share the machine. One MB is 10^6 bytes of values. Latency is measured for single records at a low rate,
from `produce` to the delivery callback.

Before each round, the benchmark uses as much memory as the round will write, and frees it again. A virtual machine that has
returned free memory to the host pays for every page that it gets back (`fresh_page_write_mb_s` is the speed of plain file
writes to such pages). Without this step, we would measure that cost instead of the broker.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.benchmarks.measuring import cpu_seconds, percentile, print_result, spread
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

VALUE_BYTES = 1024
SECONDS_MAX = 120.0
LATENCY_RATE = 500


@dataclass(slots=True)
class Target:
    """The sink or a cluster, and the results of its measurements."""

    name: str
    bootstrap: str
    pids: Sequence[int]
    """The processes whose CPU time counts."""
    acks: str
    new_topic: Callable[[str], str]
    replicas: int = 0
    """The number of copies kept of what is written."""
    produce_mb_s: list[float] = field(default_factory=list)
    produce_cpu_ms: list[float] = field(default_factory=list)
    produce_client_cpu_ms: list[float] = field(default_factory=list)
    fetch_mb_s: list[float] = field(default_factory=list)
    fetch_cpu_ms: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)

    def cpu(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def figures(self) -> dict[str, Any]:
        return {
            "produce_mb_s": spread(self.produce_mb_s),
            "produce_cpu_ms_per_mb": spread(self.produce_cpu_ms, 3),
            "client_cpu_ms_per_mb": spread(self.produce_client_cpu_ms, 3),
            "fetch_mb_s": spread(self.fetch_mb_s),
            "fetch_cpu_ms_per_mb": spread(self.fetch_cpu_ms, 3),
            "latency_p50_ms": round(percentile(self.latency_ms, 0.5), 2),
            "latency_p99_ms": round(percentile(self.latency_ms, 0.99), 2),
        }


def produce(target: Target, topic: str, megabytes: float) -> None:
    """Writes this many MB as fast as the client can, and records the rate."""
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "acks": target.acks,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 200_000,
            "message.timeout.ms": int(SECONDS_MAX * 1000),
        }
    )
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    # Before the measurement, one record makes the client find the leader and connect to it.
    producer.produce(topic, b"first", partition=0, on_delivery=delivered)
    assert producer.flush(SECONDS_MAX) == 0
    value = os.urandom(VALUE_BYTES)
    count = int(megabytes * 1e6 / VALUE_BYTES)
    cpu, client_cpu, started = target.cpu(), time.process_time(), time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
            except BufferError:
                producer.poll(0.01)
            else:
                break
    assert producer.flush(SECONDS_MAX) == 0, "records are left"
    seconds = time.perf_counter() - started
    assert not failures, failures[0]
    sent = count * VALUE_BYTES / 1e6
    target.produce_mb_s.append(sent / seconds)
    target.produce_cpu_ms.append((target.cpu() - cpu) * 1000 / sent)
    target.produce_client_cpu_ms.append((time.process_time() - client_cpu) * 1000 / sent)


def fetch(target: Target, topic: str, megabytes: float) -> None:
    """Reads this many MB from the beginning, and records the rate. The clock starts when the first message arrives."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = int(megabytes * 1e6 / VALUE_BYTES)
    deadline = time.monotonic() + SECONDS_MAX
    while not (first := consumer.consume(1, timeout=1.0)):
        assert time.monotonic() < deadline, "nothing can be read"
    assert first[0].error() is None, first[0].error()
    read, cpu, started = 1, target.cpu(), time.perf_counter()
    while read < count:
        # `consume` waits for all requested messages, so do not request more than are left.
        messages = consumer.consume(min(1_000, count - read), timeout=1.0)
        assert messages or time.monotonic() < deadline, f"{read} of {count} messages came"
        for message in messages:
            assert message.error() is None, message.error()
        read += len(messages)
    seconds = time.perf_counter() - started
    cpu = target.cpu() - cpu
    consumer.close()
    target.fetch_mb_s.append(read * VALUE_BYTES / 1e6 / seconds)
    target.fetch_cpu_ms.append(cpu * 1000 / (read * VALUE_BYTES / 1e6))


def measure_latency(target: Target, topic: str, seconds: float) -> None:
    """Sends single records at a fixed low rate, and measures each one's latency from its due time."""
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": target.acks, "linger.ms": 0})
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    value = os.urandom(VALUE_BYTES)
    started = time.perf_counter()

    def timed_from(due: float) -> Callable[[Any, Any], None]:
        def delivered(error: Any, _: Any) -> None:
            assert error is None, error
            target.latency_ms.append((time.perf_counter() - due) * 1000)

        return delivered

    for number in range(int(seconds * LATENCY_RATE)):
        due = started + number / LATENCY_RATE
        while (wait := due - time.perf_counter()) > 0:
            producer.poll(wait)
        producer.produce(topic, value, partition=0, on_delivery=timed_from(due))
    assert producer.flush(SECONDS_MAX) == 0


@contextmanager
def sink() -> Iterator[Target]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.sink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Target("sink", f"127.0.0.1:{port}", [process.pid], acks="1", new_topic=lambda name: name)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def cluster(folder: Path, brokers: int, *, acks: str) -> Iterator[Target]:
    """Runs a separate cluster with one disk per broker, and deletes it at the end."""
    made = LocalCluster.create(folder, brokers=brokers, disks=1, loop=False)
    try:
        made.start()
        pids = [node.pid for node in made.brokers if node.pid is not None]

        def new_topic(name: str) -> str:
            return create_topic(made.bootstrap, name, partitions=1, replication_factor=brokers)

        name = f"rf{brokers}_acks_{acks}"
        yield Target(name, made.bootstrap, pids, acks=acks, new_topic=new_topic, replicas=brokers)
    finally:
        made.kill()
        made.delete()


def recycle_memory(folder: Path, megabytes: float) -> float:
    """Fills this much of the page cache and frees it again. Returns the write rate in MB/s."""
    path = folder / "filling"
    block = os.urandom(1_000_000)
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(int(megabytes)):
            file.write(block)
    seconds = time.perf_counter() - started
    path.unlink()
    return megabytes / seconds


def take_turns(
    targets: Sequence[Target], folder: Path, *, megabytes: float, rounds: int, latency_seconds: float
) -> list[float]:
    """Measures in alternating rounds, so that a busy moment of the machine affects all alike. The first round warms up and
    is discarded.

    Returns the MB/s of plain writes to fresh pages.
    """
    fresh: list[float] = []
    for number in range(rounds + 1):
        for target in targets:
            topic = target.new_topic(f"round-{number}")
            fresh.append(recycle_memory(folder, megabytes * max(1, target.replicas) * 1.2))
            produce(target, topic, megabytes)
            fetch(target, topic, megabytes)
            measure_latency(target, target.new_topic(f"latency-{number}"), latency_seconds)
            if number == 0:
                for values in (
                    target.produce_mb_s,
                    target.produce_cpu_ms,
                    target.produce_client_cpu_ms,
                    target.fetch_mb_s,
                    target.fetch_cpu_ms,
                    target.latency_ms,
                ):
                    values.clear()
    return fresh


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns the ratio of the medians."""
    return round(median(ours) / median(theirs), 2)


def run(arguments: argparse.Namespace, folder: Path) -> tuple[list[Target], list[float]]:
    with ExitStack() as stack:
        ceiling = stack.enter_context(sink())
        with cluster(folder / "one", 1, acks="1") as single:
            fresh = take_turns(
                [ceiling, single],
                folder,
                megabytes=arguments.megabytes,
                rounds=arguments.rounds,
                latency_seconds=arguments.latency_seconds,
            )
        with cluster(folder / "three", 3, acks="all") as replicated:
            fresh += take_turns(
                [replicated],
                folder,
                megabytes=arguments.megabytes / 2,
                rounds=arguments.rounds,
                latency_seconds=arguments.latency_seconds,
            )
    return [ceiling, single, replicated], fresh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds, for a first look")
    parser.add_argument("--megabytes", type=float, help="how much is written and read in one round (default 300)")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--latency-seconds", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, help="where the brokers write (default: a new temporary folder)")
    arguments = parser.parse_args()
    arguments.megabytes = arguments.megabytes or (50.0 if arguments.quick else 300.0)
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name:
        targets, fresh = run(arguments, Path(name))
    ceiling, single, replicated = targets
    figures = {
        "record_bytes": VALUE_BYTES,
        "megabytes_per_round": arguments.megabytes,
        "rounds": arguments.rounds,
        "produce_ratio_to_sink": ratio(single.produce_mb_s, ceiling.produce_mb_s),
        "fetch_ratio_to_sink": ratio(single.fetch_mb_s, ceiling.fetch_mb_s),
        "goal_ratio_to_sink": 0.6,
        "fresh_page_write_mb_s": spread(fresh),
    } | {target.name: target.figures() for target in targets}
    text = (
        f"produce {median(single.produce_mb_s):.0f} MB/s = {figures['produce_ratio_to_sink']} of the sink's "
        f"{median(ceiling.produce_mb_s):.0f}, broker {median(single.produce_cpu_ms):.2f} ms CPU/MB (sink "
        f"{median(ceiling.produce_cpu_ms):.2f}); fetch {median(single.fetch_mb_s):.0f} MB/s = "
        f"{figures['fetch_ratio_to_sink']} of the sink's {median(ceiling.fetch_mb_s):.0f}, "
        f"{median(single.fetch_cpu_ms):.2f} ms CPU/MB (sink {median(ceiling.fetch_cpu_ms):.2f}); three replicas with "
        f"acks=all: produce {median(replicated.produce_mb_s):.0f} MB/s, {median(replicated.produce_cpu_ms):.2f} ms CPU/MB "
        f"over all three, fetch {median(replicated.fetch_mb_s):.0f} MB/s; latency at {LATENCY_RATE}/s p99 "
        f"{percentile(single.latency_ms, 0.99):.1f} ms (sink {percentile(ceiling.latency_ms, 0.99):.1f}, three replicas "
        f"{percentile(replicated.latency_ms, 0.99):.1f})"
    )
    print_result("produce_fetch", "python -m tests.benchmarks.bench_produce_fetch", figures, text)


if __name__ == "__main__":
    main()
