"""Flink's Kafka source and exactly-once sink on our brokers, while a disk is lost and the job is killed.

The sink uses transactions as no other client does. A checkpoint has the ids and epochs of the producers whose transactions
are to be committed with it. A job that starts from the checkpoint gives them to producers of its own and commits. It aborts
what else the dead job has left open: by InitProducerId for each transactional id that may have been used, until one is new
(INCREMENTING), or after DescribeProducers and ListTransactions (POOLING). Here it also starts with another parallelism.
"""

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.copying import COPY, LINES, PARTITIONS, STORY_SECONDS, copied, until_copied
from tests.interop.java_programs import JavaProgram, source_command
from tests.interop.loop_cluster import disk_with_a_leader, loop_cluster
from tests.interop.records import being_written
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk

POM, SOURCE, JARS = (
    Path(__file__).with_name("flink_pom.xml"),
    Path(__file__).with_name("ExactlyOnceCopy.java"),
    "flink-2.2.1",
)

pytestmark = [
    pytest.mark.stories,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * STORY_SECONDS),
]


@pytest.fixture
def java(tmp_path: Path) -> list[str]:
    """The command of the job, without its arguments."""
    # Otherwise the JVM spends most of each start on compiling.
    quick = "-XX:TieredStopAtLevel=1"
    return source_command(POM, SOURCE, JARS, tmp_path, "-Xmx512m", quick)


def kill_at_a_checkpoint(job: JavaProgram, folder: Path) -> None:
    """Kills the job when it has completed a checkpoint, which mostly is before it commits the transactions of this one."""

    def completed() -> set[Path]:
        job.check()
        return {*folder.glob("*/chk-*/_metadata")}

    before = completed()
    deadline = time.monotonic() + STORY_SECONDS
    # Without a pause, because the commit follows within milliseconds.
    while completed() <= before:
        assert time.monotonic() < deadline, "the job completes no checkpoint"
    job.kill()


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_a_topic_is_copied_exactly_once(java: list[str], tmp_path: Path, naming: str) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    with loop_cluster(tmp_path) as cluster:
        for topic in (LINES, COPY):
            create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replication_factor=3)
        arguments = [cluster.bootstrap, LINES, COPY, str(checkpoints), naming]
        first, second, third = jobs = [
            JavaProgram([*java, *arguments, str(parallelism)], tmp_path / f"job-{parallelism}.log")
            for parallelism in (2, 3, 1)
        ]
        try:
            with being_written(cluster.bootstrap, LINES) as end_of_lines:
                first.start()
                until_copied(cluster.bootstrap, first, 1)
                kill_disk(disk_with_a_leader(cluster, COPY))
                until_copied(cluster.bootstrap, first, copied(cluster.bootstrap).total() + 1)
                kill_at_a_checkpoint(first, checkpoints)
                second.start()
                until_copied(cluster.bootstrap, second, copied(cluster.bootstrap).total() + 1)
                kill_at_a_checkpoint(second, checkpoints)
                third.start()
                count = end_of_lines()
            found = until_copied(cluster.bootstrap, third, count)
        finally:
            for job in jobs:
                job.kill()
    assert found == Counter(f"line {number}".encode() for number in range(count))
