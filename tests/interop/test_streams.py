"""Kafka Streams with exactly_once_v2 on our brokers, while a disk is lost and an instance of the application is killed.

An application of Kafka Streams uses nearly everything that brokers offer: transactions across partitions, offsets committed
in them, a group with an assignor of its own, internal topics that it creates and from which it deletes records, compacted
changelogs from which it restores its state. If a record were processed twice, lost, or its transaction torn, a count would
skip or repeat a number.
"""

import struct
from pathlib import Path

import pytest

from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.java_programs import JavaProgram, source_command
from tests.interop.loop_cluster import disk_with_a_leader, loop_cluster
from tests.interop.records import committed_records, write
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk

POM, SOURCE = Path(__file__).with_name("streams_pom.xml"), Path(__file__).with_name("WordCount.java")
JARS = "kafka-streams-4.4.0"
LINES, COUNTS, PARTITIONS = "lines", "counts", 4
# Where Kafka Streams keeps what is counted so far.
CHANGELOG = f"count-{LINES}-counts-changelog"
WORDS, LINES_EACH = 20, 1500
STORY_SECONDS = 240.0
VICTIM = 2

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 2 * STORY_SECONDS)]


@pytest.fixture
def word_count(tmp_path: Path) -> list[str]:
    """The command of the application, without its arguments."""
    return source_command(POM, SOURCE, JARS, tmp_path, "-Xmx256m")


def lines(numbers: range) -> list[str]:
    """Each line has the same two words and one of WORDS others."""
    return [f"each every w{number % WORDS}" for number in numbers]


def counted(bootstrap: str) -> dict[str, list[int]]:
    """Returns the committed counts of each word, in order."""
    found: dict[str, list[int]] = {}
    for message in committed_records(bootstrap, COUNTS, partitions=PARTITIONS):
        word, count = message.key(), message.value()
        assert word is not None and count is not None
        found.setdefault(word.decode(), []).extend(struct.unpack(">q", count))
    return found


def until_all_counted(bootstrap: str, count: int) -> dict[str, list[int]]:
    def look() -> dict[str, list[int]] | None:
        found = counted(bootstrap)
        return found if sum(map(len, found.values())) >= 3 * count else None

    return until(look, f"{count} lines are counted", seconds=STORY_SECONDS)


def test_each_word_is_counted_exactly_once(word_count: list[str], tmp_path: Path) -> None:
    with loop_cluster(tmp_path) as cluster:
        for topic in (LINES, COUNTS):
            create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replication_factor=3)
        instances = [
            JavaProgram([*word_count, cluster.bootstrap, LINES, COUNTS, str(tmp_path / name)], tmp_path / f"{name}.log")
            for name in ("first", "second")
        ]
        try:
            for instance in instances:
                instance.start()
            for instance in instances:
                instance.until_says("STATE RUNNING", seconds=STORY_SECONDS)
            write(cluster.bootstrap, LINES, lines(range(LINES_EACH)))
            # In the middle of its work.
            instances[0].kill()
            kill_disk(disk_with_a_leader(cluster, CHANGELOG, VICTIM))
            write(cluster.bootstrap, LINES, lines(range(LINES_EACH, 2 * LINES_EACH)))
            instances[0].start()
            instances[0].until_says("STATE RUNNING", seconds=STORY_SECONDS)
            write(cluster.bootstrap, LINES, lines(range(2 * LINES_EACH, 3 * LINES_EACH)))
            found = until_all_counted(cluster.bootstrap, 3 * LINES_EACH)
        finally:
            for instance in instances:
                instance.kill()
    count = 3 * LINES_EACH
    assert found == {
        **{word: [*range(1, count + 1)] for word in ("each", "every")},
        **{f"w{number}": [*range(1, count // WORDS + 1)] for number in range(WORDS)},
    }
