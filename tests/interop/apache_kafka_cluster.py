"""Runs a cluster of Apache Kafka: a controller and brokers in processes of their own, as `diskraft local` runs ours.

For benchmarks that compare both. Every node gets the options of Java that Kafka's own start script gives it.
"""

import subprocess
import time
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.interop.apache_kafka import (
    CLUSTER_ID,
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    find_jars,
    find_java,
    logging_option,
)
from tools.lab.local_cluster import free_ports

CONTROLLER_ID = 100
JAVA_OPTIONS = (
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


class ApacheKafkaCluster:
    """Use it in a with statement, which stops it at the end. `folder` must be empty or absent. The constructor raises NoJars
    if the jars or Java are missing."""

    def __init__(self, folder: Path, *, brokers: int, overrides: dict[str, str]) -> None:
        self._java, self._jars = find_java(), find_jars()
        folder.mkdir(parents=True, exist_ok=True)
        self._logging = logging_option(folder)
        ports = free_ports(brokers + 1)
        self._voters = f"{CONTROLLER_ID}@127.0.0.1:{ports[-1]}"
        self.broker_ids = list(range(1, brokers + 1))
        self._addresses = {number: f"127.0.0.1:{ports[number - 1]}" for number in self.broker_ids}
        self._folders = {number: folder / f"node-{number}" for number in (*self.broker_ids, CONTROLLER_ID)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for number, home in self._folders.items():
            home.mkdir()
            is_controller = number == CONTROLLER_ID
            listener = f"CONTROLLER://127.0.0.1:{ports[-1]}" if is_controller else f"PLAINTEXT://{self._addresses[number]}"
            properties = {
                "process.roles": "controller" if is_controller else "broker",
                "node.id": str(number),
                "controller.quorum.voters": self._voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": listener,
                "log.dirs": str(home / "disk-1"),
                "metadata.log.dir": str(home / "metadata"),
            }
            text = "".join(f"{key}={value}\n" for key, value in (properties | overrides).items())
            (home / "server.properties").write_text(text)

    @property
    def bootstrap(self) -> str:
        return ",".join(self._addresses.values())

    @property
    def pids(self) -> list[int]:
        """The processes of the brokers."""
        return [self._processes[number].pid for number in self.broker_ids]

    def __enter__(self) -> "ApacheKafkaCluster":
        for home in self._folders.values():
            command = self._command(
                "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(home / "server.properties")
            )
            subprocess.run(command, check=True, capture_output=True, timeout=START_SECONDS_MAX)
        try:
            for number in self._folders:
                self.start_node(number)
            self._wait_until_ready()
        except AssertionError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(STOP_SECONDS_MAX)

    def start_node(self, number: int) -> None:
        """Starts a node without waiting until it is ready."""
        home = self._folders[number]
        with (home / "output.log").open("ab") as output:
            self._processes[number] = subprocess.Popen(
                self._command("kafka.Kafka", str(home / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def stop_node(self, number: int) -> None:
        """Shuts a node down cleanly."""
        self._processes[number].terminate()
        self._processes[number].wait(STOP_SECONDS_MAX)

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        java = [self._java, *JAVA_OPTIONS, self._logging]
        return [*java, "-cp", f"{self._jars}/*", main_class, *arguments]

    def _wait_until_ready(self) -> None:
        # Connections are refused while the nodes start. Do not let librdkafka log each refusal.
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            for number, process in self._processes.items():
                output = self._folders[number] / "output.log"
                assert process.poll() is None, f"node {number} of Apache Kafka ended: {output.read_text()}"
            assert time.monotonic() < deadline, f"Apache Kafka is not ready after {START_SECONDS_MAX} s"
            try:
                # A fenced broker is not listed.
                if len(client.list_topics(timeout=1.0).brokers) == len(self.broker_ids):
                    return
            except KafkaException:
                continue
