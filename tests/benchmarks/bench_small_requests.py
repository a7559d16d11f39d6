"""What a request of one record costs a broker: requests per second, latency, and the event loop's CPU time for each.

    python -m tests.benchmarks.bench_small_requests [--quick] [--requests 30000] [--rounds 5] [--depth 64] [--folder FOLDER]

One connection keeps 64 requests in flight and sends the next one with each answer. The requests are encoded beforehand, so
that the client costs little: Produce of one record with acks=1, a Fetch of one of the two newest records in turn, a Fetch of
one of two old ones, which are in the page cache but whose positions no broker knows by heart, and Metadata of one topic. The
kinds take turns, and so do the current broker and that of an earlier commit (`tests/benchmarks/baseline.py`). Client and
broker share the machine; the CPU time of the broker's main thread, which runs the event loop, is what other load disturbs
least. Both brokers run on the interpreter of this process.
"""

import argparse
import socket
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from common.ids import Uuid
from common.parts import FileRegion
from common.protocol.api_keys import ApiKey
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.headers import RequestHeader
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.registry import APIS
from common.protocol.schema import Struct
from common.records.record import Record, encode_batch
from tests.benchmarks.baseline import COMMIT, baseline_cluster, comparison
from tests.benchmarks.measuring import percentile, print_result, spread
from tests.interop.topics import create_topic
from tests.request_frames import encode_request_frame
from tests.response_frames import parse_response
from tools.lab.local_cluster import LocalCluster

VALUE_BYTES = 100
VERSIONS = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 12, ApiKey.METADATA: 12}
GOALS_PER_SECOND = {"produce": 25_000, "fetch": 20_000, "fetch_old": 20_000}
RECEIVE_BYTES = 1 << 20
# More than the broker keeps positions of in memory.
STORED_RECORDS = 20_000
# Two, so that no request asks for what the one before has asked for: a broker remembers that.
OLD_OFFSETS = (7_777, 12_345)


@dataclass(slots=True)
class Kind:
    """One kind of request, and its measurements."""

    name: str
    api_key: ApiKey
    frames: tuple[bytes, ...]
    """Sent in turn."""
    per_second: list[float] = field(default_factory=list)
    loop_us: list[float] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {
            "requests_per_second": spread(self.per_second, 0),
            "loop_us_per_request": spread(self.loop_us),
            "latency_p50_ms": round(percentile(self.latency_ms, 0.5), 2),
            "latency_p99_ms": round(percentile(self.latency_ms, 0.99), 2),
        }

    def clear(self) -> None:
        self.per_second.clear()
        self.loop_us.clear()
        self.latency_ms.clear()


def frame(message: Struct, api_key: ApiKey) -> bytes:
    version = VERSIONS[api_key]
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=1, client_id="small")
    parts = encode_request_frame(header, message, version)
    return b"".join(part for part in parts if not isinstance(part, FileRegion))


def produce_frame(topic: str) -> bytes:
    records = encode_batch([Record(key=None, value=b"x" * VALUE_BYTES, timestamp_ms=1_700_000_000_000)])
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), ApiKey.PRODUCE)


def fetch_frame(topic: str, offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    return frame(FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=topics), ApiKey.FETCH)


def kinds(topic: str, stored: str) -> list[Kind]:
    """Returns the kinds of requests. Records are written to `topic` and read from `stored`, which has STORED_RECORDS."""
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=topic, topic_id=Uuid(bytes(16)))])
    return [
        Kind("produce", ApiKey.PRODUCE, (produce_frame(topic),)),
        Kind("fetch", ApiKey.FETCH, tuple(fetch_frame(stored, STORED_RECORDS - back) for back in (1, 2))),
        Kind("fetch_old", ApiKey.FETCH, tuple(fetch_frame(stored, offset) for offset in OLD_OFFSETS)),
        Kind("metadata", ApiKey.METADATA, (frame(metadata, ApiKey.METADATA),)),
    ]


class Answers:
    """Counts whole frames in what arrives, and keeps the newest one."""

    def __init__(self) -> None:
        self._pending = b""
        self.last = b""

    def receive(self, data: bytes) -> int:
        """Returns how many frames have become complete."""
        pending, position, count = self._pending + data, 0, 0
        while len(pending) - position >= 4:
            (size,) = struct.unpack_from(">i", pending, position)
            if len(pending) - position - 4 < size:
                break
            self.last = pending[position + 4 : position + 4 + size]
            position += 4 + size
            count += 1
        self._pending = pending[position:]
        return count


def ask(connection: socket.socket, kind: Kind, count: int, depth: int) -> None:
    """Sends `count` requests, `depth` at a time, and keeps the latency of each."""
    answers = Answers()
    sent_at: deque[float] = deque()

    frames = cycle(kind.frames)

    def send(number: int) -> None:
        sent_at.extend([time.perf_counter()] * number)
        connection.sendall(b"".join(islice(frames, number)))

    started = min(depth, count)
    send(started)
    answered = 0
    while answered < count:
        received = connection.recv(RECEIVE_BYTES)
        assert received, f"the broker has closed the connection after {answered} of {count} answers"
        arrived = answers.receive(received)
        now = time.perf_counter()
        for _ in range(arrived):
            kind.latency_ms.append((now - sent_at.popleft()) * 1000)
        answered += arrived
        more = min(arrived, count - started)
        if more:
            started += more
            send(more)
    check(kind, answers.last)


def check(kind: Kind, answer: bytes) -> None:
    """Makes sure that the requests were served and not refused."""
    _, message = parse_response(APIS[kind.api_key].response, answer, VERSIONS[kind.api_key])
    response: Any = message
    match kind.name:
        case "produce":
            assert response.responses[0].partition_responses[0].error_code == 0
        case "fetch" | "fetch_old":
            assert len(response.responses[0].partitions[0].records) > VALUE_BYTES
        case _:
            assert response.topics[0].error_code == 0


def loop_seconds(pid: int) -> float:
    """Returns the CPU time of the main thread."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


@dataclass(slots=True)
class Contender:
    """A broker, and the requests that measure it."""

    connection: socket.socket
    pid: int
    kinds: list[Kind]

    def measure(self, kind: Kind, *, requests: int, depth: int) -> None:
        cpu, began = loop_seconds(self.pid), time.perf_counter()
        ask(self.connection, kind, requests, depth)
        kind.per_second.append(requests / (time.perf_counter() - began))
        kind.loop_us.append((loop_seconds(self.pid) - cpu) * 1e6 / requests)


@contextmanager
def contender(bootstrap: str, pid: int) -> Iterator[Contender]:
    """Connects to a broker and makes its topics."""
    topic = create_topic(bootstrap, "small", partitions=1, replication_factor=1)
    stored = create_topic(bootstrap, "stored", partitions=1, replication_factor=1)
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask(connection, Kind("produce", ApiKey.PRODUCE, (produce_frame(stored),)), STORED_RECORDS, 64)
        yield Contender(connection, pid, kinds(topic, stored))


@contextmanager
def current_broker(folder: Path) -> Iterator[Contender]:
    """Runs a cluster of one broker with one disk."""
    cluster = LocalCluster.create(folder, brokers=1, disks=1, loop=False)
    try:
        cluster.start()
        [node] = cluster.brokers
        assert node.pid is not None
        with contender(cluster.bootstrap, node.pid) as current:
            yield current
    finally:
        cluster.kill()
        cluster.delete()


@contextmanager
def earlier_broker(folder: Path) -> Iterator[Contender | None]:
    """Runs the same of the earlier commit. Yields None if its source cannot be had."""
    with baseline_cluster(folder) as cluster:
        if cluster is None:
            yield None
            return
        with contender(cluster.bootstrap, cluster.broker_pids[0]) as earlier:
            yield earlier


def in_turns(contenders: list[Contender], rounds: int, measure: Callable[[Contender, Kind], None]) -> None:
    """Measures the kinds of all contenders in turns. The first round warms up and is discarded."""
    for number in range(rounds + 1):
        for together in zip(*(each.kinds for each in contenders), strict=True):
            for each, kind in zip(contenders, together, strict=True):
                if number == 1:
                    kind.clear()
                measure(each, kind)


def text_of(kind: Kind, before: Kind | None) -> str:
    requests = comparison(
        kind.name,
        "requests/s",
        now=median(kind.per_second),
        goal=GOALS_PER_SECOND.get(kind.name),
        before=None if before is None else median(before.per_second),
    )
    loop = comparison(
        "loop",
        "us each",
        now=median(kind.loop_us),
        goal=None,
        before=None if before is None else median(before.loop_us),
    )
    p99 = f"p99 {percentile(kind.latency_ms, 0.99):.2f} ms"
    return f"{requests}, {loop}, {p99}" + (
        "" if before is None else f" ({COMMIT} {percentile(before.latency_ms, 0.99):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer requests and rounds, for a first look")
    parser.add_argument("--requests", type=int, help="requests of each kind in one round (default 30000)")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--depth", type=int, default=64, help="requests in flight (default 64)")
    parser.add_argument("--folder", type=Path, help="where the broker writes (default: a new temporary folder)")
    arguments = parser.parse_args()
    requests = arguments.requests or (5_000 if arguments.quick else 30_000)
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    with (
        tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name,
        current_broker(Path(name) / "current") as current,
        earlier_broker(Path(name) / "earlier") as earlier,
    ):
        in_turns(
            [current] if earlier is None else [current, earlier],
            rounds,
            lambda each, kind: each.measure(kind, requests=requests, depth=arguments.depth),
        )
    before = {} if earlier is None else {kind.name: kind for kind in earlier.kinds}
    figures = {
        "value_bytes": VALUE_BYTES,
        "depth": arguments.depth,
        "requests_per_round": requests,
        "rounds": rounds,
        "goal_requests_per_second": GOALS_PER_SECOND,
        "earlier_commit": COMMIT,
    }
    figures |= {kind.name: kind.figures() for kind in current.kinds}
    figures |= {f"earlier_{name}": kind.figures() for name, kind in before.items()}
    text = "; ".join(text_of(kind, before.get(kind.name)) for kind in current.kinds)
    print_result("small_requests", "python -m tests.benchmarks.bench_small_requests", figures, text)


if __name__ == "__main__":
    main()
