"""A controller of Diskraft and one of Apache Kafka behind the same interface, each alone in a process, for benchmarks.

The brokers of its cluster are scripted (`scripted_brokers`). Both get the same configuration and the same
metadata.version, and Java the options of Kafka's own start script.
"""

import re
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.benchmarks.bench_scale import WatchedNode
from tests.benchmarks.measuring import resident_bytes
from tests.benchmarks.scripted_brokers import Address
from tests.interop.apache_kafka import (
    CLUSTER_ID,
    JARS,
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    find_jars,
    find_java,
    logging_option,
)
from tests.interop.apache_kafka_cluster import CONTROLLER_ID, JAVA_OPTIONS
from tools.lab.local_cluster import LocalCluster, free_ports

# Diskraft formats with this metadata.version.
RELEASE_VERSION = "3.9"
POLL_SECONDS = 0.02
# Scripted brokers send few heartbeats, and a short stop of the controller is measured instead of fencing them.
PROPERTIES = {
    "broker.session.timeout.ms": "600000",
    # A snapshot is only written when the benchmark asks for one.
    "metadata.log.max.record.bytes.between.snapshots": str(1024**3),
    "metadata.log.max.snapshot.interval.ms": "0",
}


class MeasuredController(Protocol):
    """The only controller of a cluster. The constructor formats it; `kill` ends it in any case."""

    name: str
    address: Address
    cluster_id: str
    # The folder of the metadata log.
    log_folder: Path

    def start(self) -> None:
        """Starts the process. Returns when it accepts connections; it may not be the active controller yet."""

    def stop(self) -> None:
        """Shuts the process down in order."""

    def kill(self) -> None: ...

    def configure(self, properties: Mapping[str, str]) -> None:
        """Changes the configuration for the next start."""

    def memory_bytes(self) -> int:
        """Returns the memory that the metadata take, together with whatever does not depend on them."""

    def longest_step(self, phase: str) -> float | None:
        """Returns the longest step of the event loop since the last call in milliseconds; None if it cannot be seen."""


class DiskraftController:
    """Its memory is the resident memory of the process."""

    name = "Diskraft"

    def __init__(self, folder: Path) -> None:
        # No broker of its own: the replication factors of the internal topics have no meaning.
        internal = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}
        self._cluster = LocalCluster.create(
            folder / "cluster", brokers=0, disks=0, loop=False, overrides=internal | PROPERTIES
        )
        self._node = self._cluster.controller
        self._watched = WatchedNode(self._node, folder)
        self.address = (self._node.files.host, self._node.files.port)
        self.cluster_id = self._cluster.cluster_id
        self.log_folder = Path(self._node.files.metadata_dir) / "__cluster_metadata-0"

    def start(self) -> None:
        self._node.start()
        _wait_until_listening(self.address)

    def stop(self) -> None:
        self._node.stop()

    def kill(self) -> None:
        self._cluster.kill()
        self._cluster.delete()

    def configure(self, properties: Mapping[str, str]) -> None:
        _configure(Path(self._node.files.config), properties)

    def memory_bytes(self) -> int:
        assert self._node.pid is not None
        return resident_bytes(self._node.pid)

    def longest_step(self, phase: str) -> float | None:
        return self._watched.longest_step(phase)


class ApacheController:
    """Its memory is what is alive on the heap after a full collection. The constructor raises NoJars if the jars or Java are
    missing."""

    name = JARS.name.replace("apache-kafka-", "Apache Kafka ")

    def __init__(self, folder: Path) -> None:
        self._java, self._jars = find_java(), find_jars()
        self._logging = logging_option(folder)
        self._output = folder / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        (port,) = free_ports(1)
        self.address = ("127.0.0.1", port)
        self.cluster_id = CLUSTER_ID
        metadata = folder / "metadata"
        self.log_folder = metadata / "__cluster_metadata-0"
        self._config = folder / "server.properties"
        own = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "log.dirs": str(metadata),
        }
        _configure(self._config, own | PROPERTIES)
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self._config), "--release-version", RELEASE_VERSION)
        command = self._command("kafka.tools.StorageTool", *arguments)
        subprocess.run(command, check=True, capture_output=True, timeout=START_SECONDS_MAX)

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._config)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        _wait_until_listening(self.address)

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)

    def configure(self, properties: Mapping[str, str]) -> None:
        _configure(self._config, properties)

    def memory_bytes(self) -> int:
        assert self._process is not None
        # The histogram counts live objects only, after a full collection.
        command = ["jcmd", str(self._process.pid), "GC.class_histogram"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=STOP_SECONDS_MAX)
        found = re.search(r"^Total\s+\d+\s+(\d+)", done.stdout, re.MULTILINE)
        assert found is not None, done.stdout
        return int(found[1])

    def longest_step(self, phase: str) -> float | None:
        return None

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        return [self._java, *JAVA_OPTIONS, self._logging, "-cp", f"{self._jars}/*", main_class, *arguments]


def _configure(path: Path, properties: Mapping[str, str]) -> None:
    lines = path.read_text().splitlines() if path.exists() else []
    before = dict(line.split("=", 1) for line in lines)
    path.write_text("".join(f"{key}={value}\n" for key, value in (before | dict(properties)).items()))


def _wait_until_listening(address: Address) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(address).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"the controller does not listen after {START_SECONDS_MAX} s"
            time.sleep(POLL_SECONDS)
        else:
            return
