"""Runs integration tests of Apache Kafka that ask for a cluster, each of which gets one of ours.

Their jars come from Maven. `junit/` holds what stands for Kafka's own cluster, and the program that runs the tests.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.apache_kafka import NoJars, download, find_java, logging_option
from tests.interop.client_suites.runner import NoSource, Outcome, Runner, SuiteFailed, read_outcomes, run_logged
from tests.interop.our_tools import ROOT

POM = Path(__file__).with_name("apache_kafka_suites_pom.xml")
SOURCES = Path(__file__).with_name("junit")
JARS = ROOT / "build" / "apache-kafka-suites-and-scala-4.3.1"
COMPILE_SECONDS_MAX = 120
# What a test of several configurations has after its name for all but the first.
NUMBER = " "
# Some tests of Kafka Streams check what these loggers say at level INFO.
READ_BY_TESTS = ("org.apache.kafka.streams", "org.apache.kafka.clients.producer.internals")


@dataclass(frozen=True, slots=True)
class JUnitRunner(Runner):
    """The tests are names of classes, or of methods in them. `by_scala` is whether they have a cluster by the harness in
    Scala. What stands for it takes long to compile."""

    by_scala: bool = False

    def prepare(self, home: Path) -> None:
        javac = shutil.which("javac")
        if javac is None:
            raise NoSource("javac is missing (Debian: apt install openjdk-17-jdk-headless)")
        try:
            jars = download(POM, JARS)
        except NoJars as error:
            raise NoSource(str(error)) from error
        classes = home / "classes"
        _compile(javac, "-cp", f"{jars}/*", "-d", str(classes), sources="*.java")
        if not self.by_scala:
            return
        scalac = (find_java(), "-cp", f"{classes}{os.pathsep}{jars}/*", "scala.tools.nsc.Main", "-usejavacp")
        _compile(*scalac, "-d", str(classes), sources="*.scala")

    def run(
        self, home: Path, tests: Sequence[str], *, bootstrap: str, folder: Path, seconds_max: float
    ) -> dict[str, Outcome]:
        # Some tests make folders in the one that they run in.
        folder, home = folder.resolve(), home.resolve()
        outcomes, output = folder / "outcomes.jsonl", folder / "tests.log"
        server = "\n".join([sys.executable, "-m", "tests.interop.client_suites.cluster_server", str(folder)])
        options = [
            "-XX:+UseSerialGC",
            logging_option(folder, info=READ_BY_TESTS),
            f"-Djava.io.tmpdir={folder}",
            f"-Ddiskraft.cluster.server={server}",
        ]
        names = sorted({test.partition(NUMBER)[0] for test in tests})
        classes = os.pathsep.join([str(home / "classes"), str(SOURCES), f"{JARS}/*"])
        status = run_logged(
            [find_java(), *options, "-cp", classes, "diskraft.RunTests", str(outcomes), *names],
            cwd=folder,
            environment={"PYTHONPATH": str(ROOT)},
            output=output,
            seconds_max=seconds_max,
        )
        if status != 0:
            raise SuiteFailed(f"Java ended with status {status} (see {output})")
        return read_outcomes(outcomes)


def _compile(*command: str, sources: str) -> None:
    files = map(str, sorted(SOURCES.glob(sources)))
    done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise SuiteFailed(f"{SOURCES.name}/{sources} cannot be compiled: {done.stdout}{done.stderr}")
