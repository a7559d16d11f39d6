"""Finds the jars of Apache Kafka, and runs one node of Apache Kafka.

The jars come from KAFKA_HOME. Without KAFKA_HOME, Maven downloads them into build/ within a time limit. This module serves
the tests that run Apache Kafka's tools against our brokers, and the benchmarks that compare its broker with ours.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.interop.downloads import alone_with
from tests.interop.our_tools import ROOT
from tools.lab.local_cluster import free_ports

POM = Path(__file__).with_name("apache_kafka_pom.xml")


def _release() -> str:
    """Returns the release of Apache Kafka that the POM asks for."""
    found = re.search(r"<artifactId>kafka_2[^<]*</artifactId>\s*<version>([^<]+)</version>", POM.read_text())
    assert found is not None
    return found[1]


# Another release takes another folder, so that jars of an earlier one are not taken for it.
JARS = ROOT / "build" / f"apache-kafka-{_release()}"
DOWNLOAD_SECONDS_MAX = 240
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
# Every node is a cluster of its own, so all of them may use the same id.
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class NoJars(Exception):
    """The jars or Java are missing. The message gives the reason."""


def find_java() -> str:
    """Returns the path of Java. Raises NoJars if Java is not installed."""
    java = shutil.which("java")
    if java is None:
        raise NoJars("java is missing (Debian: apt install openjdk-17-jre-headless)")
    return java


def find_jars() -> Path:
    """Returns the folder with the jars. Downloads them if needed. Raises NoJars."""
    home = os.environ.get("KAFKA_HOME")
    try:
        folder = Path(home) / "libs" if home else download(POM, JARS)
    except NoJars as error:
        raise NoJars(f"{error}, and KAFKA_HOME is not set") from None
    if not any(folder.glob("kafka_2.*.jar")):
        raise NoJars(f"{folder} holds no kafka_2.*.jar")
    return folder


def logging_option(folder: Path, *, info: Sequence[str] = ()) -> str:
    """Writes a log4j configuration that prints errors to stderr, and from the loggers named in `info` everything from level
    INFO on. Returns the option with which Java uses it."""
    path = folder / "log4j2.properties"
    levels = "".join(f"logger.{number}.name={name}\nlogger.{number}.level=info\n" for number, name in enumerate(info))
    path.write_text(
        "appender.stderr.type=Console\n"
        "appender.stderr.name=stderr\n"
        "appender.stderr.target=SYSTEM_ERR\n"
        "appender.stderr.layout.type=PatternLayout\n"
        "appender.stderr.layout.pattern=%m%n\n"
        "rootLogger.level=error\n"
        "rootLogger.appenderRef.stderr.ref=stderr\n"
        f"{levels}"
    )
    return f"-Dlog4j2.configurationFile={path}"


def download(pom: Path, folder: Path, *options: str) -> Path:
    """Returns the folder with what the POM depends on. Downloads it if the folder does not exist. A failed download leaves
    no folder behind. Raises NoJars."""
    with alone_with(folder):
        if not folder.is_dir():
            _download(pom, folder, options)
    return folder


def _download(pom: Path, folder: Path, options: Sequence[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars("mvn is missing (Debian: apt install maven)")
    unfinished = folder.with_name(f"{folder.name}-{os.getpid()}")
    command = [
        maven,
        "-q",
        "-B",
        "-f",
        str(pom),
        *options,
        "dependency:copy-dependencies",
        f"-DoutputDirectory={unfinished}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS_MAX, check=False)
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines()
            raise NoJars(f"mvn failed: {lines[0] if lines else f'exit status {done.returncode}'}")
        unfinished.rename(folder)
    except subprocess.TimeoutExpired:
        raise NoJars(f"mvn took longer than {DOWNLOAD_SECONDS_MAX} s") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


class ApacheKafkaNode:
    """A node of Apache Kafka that is both broker and controller. Use it in a with statement, which stops it at the end.

    The constructor creates the node's files in `folder`, which must be empty or absent. It raises NoJars if the jars or Java
    are missing."""

    def __init__(self, folder: Path, *, disks: int, overrides: dict[str, str]) -> None:
        self._java, self._jars = find_java(), find_jars()
        port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        self.disks = [folder / f"disk-{number}" for number in range(1, disks + 1)]
        metadata = folder / "metadata"
        for path in (metadata, *self.disks):
            path.mkdir(parents=True)
        self._logging = logging_option(folder)
        self._output = folder / "output.log"
        self._config = folder / "server.properties"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "log.dirs": ",".join(map(str, self.disks)),
            "metadata.log.dir": str(metadata),
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in (properties | overrides).items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> "ApacheKafkaNode":
        """Formats the directories, starts the node and waits until it is ready for clients."""
        format_command = self._command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config))
        subprocess.run(format_command, check=True, capture_output=True, timeout=START_SECONDS_MAX)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                # Kafka's own start script also gives a broker this much memory.
                self._command("kafka.Kafka", str(self._config), heap="1g"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except AssertionError:
            self._stop()
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._stop()

    def _command(self, main_class: str, *arguments: str, heap: str = "256m") -> list[str]:
        java = [self._java, f"-Xmx{heap}", f"-Xms{heap}", self._logging]
        return [*java, "-cp", f"{self._jars}/*", main_class, *arguments]

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        # Connections are refused while the node starts. Do not let librdkafka log each refusal.
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process.poll() is None, f"Apache Kafka ended: {self._output.read_text()}"
            assert time.monotonic() < deadline, f"Apache Kafka is not ready after {START_SECONDS_MAX} s"
            try:
                # A fenced broker is not listed, so the list is empty until the broker is unfenced.
                if client.list_topics(timeout=1.0).brokers:
                    return
            except KafkaException:
                continue

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
