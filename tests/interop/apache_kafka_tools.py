"""Runs the command line tools of Apache Kafka, each in a Java of its own, as a user does."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.interop.apache_kafka import find_jars, find_java, logging_option
from tests.interop.our_tools import Done

TOOL_SECONDS_MAX = 120
# A tool lives for a second, a node of a test for seconds. So a quick start is worth more than quick code.
JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class Kafka:
    """Runs the main classes of Apache Kafka."""

    java: tuple[str, ...]
    class_path: str

    def run(self, main_class: str, *arguments: str, given: str = "") -> Done:
        """Runs a tool and returns the result."""
        done = subprocess.run(
            self.command(main_class, *arguments),
            input=given,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )
        return Done(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """Returns the command that runs a tool."""
        return [*self.java, "-cp", self.class_path, main_class, *arguments]


def prepare_kafka(folder: Path, bootstrap: str) -> Kafka:
    """Returns Kafka's tools, which log only errors, to stderr. Raises NoJars.

    Half of what a tool computes is the loading of its classes. So a first tool lists the groups of the cluster and leaves an
    archive of the classes it has loaded in `folder`, which later ones share. Without an archive they load what they need."""
    class_path = f"{find_jars()}/*"
    java: tuple[str, ...] = (find_java(), *JAVA_OPTIONS, logging_option(folder))
    archive = folder / "classes.jsa"
    first = Kafka((*java, f"-XX:ArchiveClassesAtExit={archive}"), class_path)
    first.run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap, "--list")
    if archive.exists():
        # With -Xlog:disable, because Java complains on stdout about an archive that it cannot use.
        java = (*java, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")
    return Kafka(java, class_path)
