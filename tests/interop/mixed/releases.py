"""Releases of Apache Kafka: their jars from Maven, their tools, and a node of one in place of one of ours.

The jars of each release go into a folder of their own in build/. A node is a `LocalNode`, so a test starts, stops and kills
it as it does ours, and both read the same server.properties.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.interop.apache_kafka import NoJars, download, find_java
from tests.interop.apache_kafka_tools import JAVA_OPTIONS, Kafka
from tests.interop.our_tools import ROOT
from tools.lab.local_cluster import LocalNode, NodeFiles

POM = Path(__file__).with_name("releases_pom.xml")
NEWEST = "4.4.0"
# The last release with ZooKeeper, and the first one's level 3.9-IV0 that Diskraft has by default.
OLDER = "3.9.1"
# KIP-858 came with 3.7, so this one does not know directory.id.
BEFORE_DIRECTORY_IDS = "3.6.2"


@dataclass(frozen=True, slots=True)
class Release(Kafka):
    """A release of Apache Kafka that can be run."""

    version: str

    def format(self, config: str, cluster_id: str, *options: str) -> None:
        """Formats the directories of a node."""
        done = self.run("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config, *options)
        assert done.status == 0, done


def find_release(version: str, folder: Path) -> Release:
    """Returns the release, which logs from the level WARN on to stderr. `folder` gets its configuration of logging.

    Raises NoJars."""
    options = [f"-Dkafka.version={version}", *(["-Dshell"] if version == OLDER else [])]
    jars = download(POM, ROOT / "build" / f"apache-kafka-releases-{version}", *options)
    if not any(jars.glob(f"kafka_2.*-{version}.jar")):
        raise NoJars(f"{jars} holds no kafka_2.*-{version}.jar")
    java = (find_java(), *JAVA_OPTIONS, *_logging_options(folder))
    return Release(java=java, class_path=f"{jars}/*", version=version)


def _logging_options(folder: Path) -> list[str]:
    """Until 3.9 it is log4j 1 that logs, afterwards log4j 2."""
    pattern = "%d{ISO8601} %p %c %m%n"
    first, second = folder / "log4j.properties", folder / "log4j2.properties"
    first.write_text(
        "log4j.rootLogger=WARN, stderr\n"
        "log4j.appender.stderr=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.stderr.target=System.err\n"
        "log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\n"
        f"log4j.appender.stderr.layout.ConversionPattern={pattern}\n"
    )
    second.write_text(
        "appender.stderr.type=Console\n"
        "appender.stderr.name=stderr\n"
        "appender.stderr.target=SYSTEM_ERR\n"
        "appender.stderr.layout.type=PatternLayout\n"
        f"appender.stderr.layout.pattern={pattern}\n"
        "rootLogger.level=warn\n"
        "rootLogger.appenderRef.stderr.ref=stderr\n"
    )
    return [f"-Dlog4j.configuration=file:{first}", f"-Dlog4j2.configurationFile={second}"]


class ApacheNode(LocalNode):
    """A node of Apache Kafka with the files of a LocalNode. It logs no events, so wait for what it does."""

    def __init__(self, files: NodeFiles, release: Release) -> None:
        super().__init__(files)
        self.release = release

    def command(self) -> list[str]:
        return self.release.command("kafka.Kafka", self.files.config)
