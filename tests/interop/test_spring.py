"""Listeners of Spring for Apache Kafka on our brokers, while a disk dies, another one hangs, and the program is killed.

Spring gives each thread of a listener a transactional producer of its own, aborts transactions when a batch is rolled back,
pauses and seeks consumers, acknowledges in another thread, and makes its retry topics itself.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.copying import COPY, LINES, PARTITIONS, STORY_SECONDS, copied, until_copied
from tests.interop.java_programs import JavaProgram, source_command
from tests.interop.loop_cluster import disk_with_a_leader, loop_cluster
from tests.interop.records import being_written
from tests.interop.topics import create_topic
from tools.lab.disk_faults import freeze
from tools.lab.disk_lab import kill_disk

POM, SOURCE, JARS = (
    Path(__file__).with_name("spring_pom.xml"),
    Path(__file__).with_name("SpringListeners.java"),
    "spring-kafka-4.0.0",
)
# Every line with such a number is refused, until it is in the dead letter topic.
REFUSED = 200
DYING, HANGING = 2, 3
# Longer than a disk may hang before clients get errors for it, and shorter than until it counts as dead.
HANGS_SECONDS = 5.0

pytestmark = [
    pytest.mark.stories,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * STORY_SECONDS),
]


@pytest.fixture
def java(tmp_path: Path) -> list[str]:
    """The command of the program, without its argument."""
    # Otherwise the JVM spends most of each start on compiling.
    quick = "-XX:TieredStopAtLevel=1"
    return source_command(POM, SOURCE, JARS, tmp_path, "-Xmx512m", quick)


def said(log: Path, what: str) -> set[str]:
    """Returns the lines of which the program said this in all its lives."""
    return {line.removeprefix(what) for line in log.read_text().splitlines() if line.startswith(what)}


def test_no_listener_misses_a_line(java: list[str], tmp_path: Path) -> None:
    log = tmp_path / "listeners.log"
    with loop_cluster(tmp_path) as cluster:
        for topic in (LINES, COPY):
            create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replication_factor=3)
        program = JavaProgram([*java, cluster.bootstrap], log)
        try:
            with being_written(cluster.bootstrap, LINES) as end_of_lines:
                program.start()
                until_copied(cluster.bootstrap, program, 1)
                kill_disk(disk_with_a_leader(cluster, COPY, DYING))
                until_copied(cluster.bootstrap, program, copied(cluster.bootstrap).total() + 1)
                program.kill()
                program.start()
                until_copied(cluster.bootstrap, program, copied(cluster.bootstrap).total() + 1)
                freeze(disk_with_a_leader(cluster, LINES, HANGING), HANGS_SECONDS)
                program.until_says("ROLLS BACK", seconds=STORY_SECONDS)
                count = end_of_lines()
            lines = [f"line {number}" for number in range(count)]
            found = until_copied(cluster.bootstrap, program, count)
            until(lambda: said(log, "READ ") == {*lines}, "all lines are read", seconds=STORY_SECONDS)
            given_up = {*lines[::REFUSED]}
            until(lambda: said(log, "GIVES UP ") == given_up, "what is refused is given up", seconds=STORY_SECONDS)
            program.check()
        finally:
            program.kill()
    assert found == Counter(line.encode() for line in lines)
