"""The size of the heartbeat that reports a failed directory, with 10 and with 2,000 partitions in it.

    python -m tests.benchmarks.bench_heartbeat [--quick] [--folder FOLDER]

A controller and a broker run in their own processes; a relay between them splits the broker's stream into frames. To make
the directory fail, the benchmark renames it and puts an empty one in its place. KIP-858 wants the report to grow with disks
and never with partitions: the benchmark fails unless both sizes are equal. It also shows the size of a heartbeat before the
failure.
"""

import argparse
import contextlib
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.ids import uuid_text
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode
from common.protocol.framing import LENGTH_SIZE, parse_request
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.benchmarks.measuring import print_result
from tests.blocking_admin import BlockingAdmin
from tests.frames import Frames
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

DISKS = 2
SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat's size on the wire, including the length prefix, and the offline directories that it reports."""

    size: int
    offline_log_dirs: tuple[str, ...]


class Relay:
    """Relays connections to the controller and records the heartbeats."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._seen: list[Heartbeat] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def wait_for(self, *, reporting: bool) -> Heartbeat:
        """Returns the newest heartbeat that reports a failed directory, or the newest that reports none."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._newest(reporting), SECONDS_MAX)
        assert found is not None, f"no heartbeat with reporting={reporting} came within {SECONDS_MAX:g} s"
        return found

    def _newest(self, reporting: bool) -> Heartbeat | None:
        return next((each for each in reversed(self._seen) if bool(each.offline_log_dirs) == reporting), None)

    def _accept(self) -> None:
        # Closing the listener ends this loop.
        with contextlib.suppress(OSError):
            while True:
                broker, _ = self._listener.accept()
                try:
                    controller = socket.create_connection(("127.0.0.1", self._target_port))
                except ConnectionRefusedError:
                    # The controller does not listen yet; the broker will retry.
                    broker.close()
                    continue
                for source, target, reads in ((broker, controller, True), (controller, broker, False)):
                    threading.Thread(target=self._pass_on, args=(source, target, reads), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, reads: bool) -> None:
        frames = Frames()
        # Either side may close the connection at any time, for example when the cluster is stopped.
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                if reads:
                    for frame in frames.receive(data):
                        self._look_at(frame)
                target.sendall(data)

    def _look_at(self, frame: memoryview) -> None:
        if int.from_bytes(frame[:2], "big") != ApiKey.BROKER_HEARTBEAT:
            return
        header, body = parse_request(frame)
        request = decode(BrokerHeartbeatRequest, body, header.request_api_version)
        with self._changed:
            self._seen.append(Heartbeat(LENGTH_SIZE + len(frame), tuple(map(uuid_text, request.offline_log_dirs))))
            self._changed.notify_all()


@contextmanager
def running_cluster(folder: Path) -> Iterator[tuple[LocalCluster, Relay]]:
    """Runs a cluster with one broker that reaches its controller through the relay."""
    cluster = LocalCluster.create(folder, brokers=1, disks=DISKS, loop=False)
    relay = Relay(cluster.controller.files.port)
    try:
        config = Path(cluster.brokers[0].files.config)
        config.write_text(config.read_text().replace(f":{cluster.controller.files.port}\n", f":{relay.port}\n"))
        cluster.start()
        yield cluster, relay
    finally:
        cluster.kill()
        relay.close()
        cluster.delete()


def measure(folder: Path, partitions_in_directory: int) -> tuple[Heartbeat, Heartbeat, int]:
    """Returns a heartbeat from before the failure, the one that reports it, and the number of partitions in the failed
    directory."""
    with running_cluster(folder) as (cluster, relay):
        create_topic(cluster.bootstrap, "bench", partitions=DISKS * partitions_in_directory, replication_factor=1)
        with BlockingAdmin(cluster.bootstrap) as admin:
            (broker_id,) = admin.brokers()
            result = admin.log_dirs(broker_id)[0]
        held = sum(len(topic.partitions) for topic in result.topics)
        before = relay.wait_for(reporting=False)
        path = Path(result.log_dir)
        path.rename(path.with_name(path.name + "-gone"))
        path.mkdir()
        return before, relay.wait_for(reporting=True), held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200 partitions instead of 2,000")
    parser.add_argument("--folder", type=Path, help="where the brokers write (default: a new temporary folder)")
    arguments = parser.parse_args()
    reports: list[tuple[int, Heartbeat]] = []
    with tempfile.TemporaryDirectory(prefix="diskraft-bench-", dir=arguments.folder) as name:
        for partitions in (10, 200 if arguments.quick else 2000):
            before, report, held = measure(Path(name) / str(partitions), partitions)
            reports.append((held, report))
    (few, small), (many, large) = reports
    figures = {
        "heartbeat_bytes": before.size,
        f"bytes_with_{few}_partitions": small.size,
        f"bytes_with_{many}_partitions": large.size,
        "equal": small.size == large.size,
    }
    text = (
        f"a heartbeat has {before.size} bytes; one that reports a failed directory has {small.size} with {few} partitions "
        f"in it and {large.size} with {many}"
    )
    print_result("heartbeat", "python -m tests.benchmarks.bench_heartbeat", figures, text)
    if small.size != large.size:
        sys.exit("the heartbeat grows with partitions")


if __name__ == "__main__":
    main()
