"""Spark's own Kafka source and sink, from Maven, on our brokers: a streaming job is killed and resumes from its checkpoint.

Needs the extra `analytics` (PySpark), Java, and Maven, which fetches the jars of PySpark's version into build/. Without them
the test is skipped with a message.

Spark reads every offset exactly once, by its checkpoint. What a sink shows is another matter: files appear once, while the
Kafka sink is at-least-once, as Spark documents: a batch that was killed between its write and its commit is written again.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from analytics.requirements import missing
from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX, NoJars, download
from tests.interop.our_tools import ROOT
from tests.interop.topics import create_topic

POM = Path(__file__).with_name("spark_kafka_pom.xml")
PARTITIONS = 3
FIRST, SECOND = 6000, 1000
# As in spark_copy, which cannot be imported without PySpark.
BATCH_MAX = 300
JOB_SECONDS_MAX = 180.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * JOB_SECONDS_MAX)]


@pytest.fixture(scope="module")
def jars() -> str:
    reasons = missing()
    if not reasons:
        spark = version("pyspark")
        try:
            folder = download(POM, ROOT / "build" / f"spark-kafka-{spark}", f"-Dspark.version={spark}")
            return ",".join(map(str, sorted(folder.glob("*.jar"))))
        except NoJars as error:
            reasons = [f"the Kafka source of Spark {spark}: {error}"]
    pytest.skip(f"NOTHING WAS TESTED WITH SPARK: {'; '.join(reasons)}")


def write(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, f"value {number}".encode(), key=f"key {number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(JOB_SECONDS_MAX) == 0


def read(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Returns key and value of every record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    found: list[tuple[bytes, bytes]] = []
    try:
        count = 0
        for index in range(PARTITIONS):
            count += consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=JOB_SECONDS_MAX)[1]
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        while len(found) < count:
            for message in consumer.consume(500, timeout=1.0):
                assert message.error() is None, message.error()
                found.append((message.key() or b"", message.value() or b""))
    finally:
        consumer.close()
    return found


def copied(bootstrap: str, topic: str) -> int:
    """Returns how many records the topic has."""
    return len(read(bootstrap, topic))


def job(bootstrap: str, source: str, sink: str, folder: Path, jars: str, *options: str) -> "subprocess.Popen[bytes]":
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.interop.spark_copy", "--bootstrap", bootstrap, "--source", source),
                *("--sink", sink, "--folder", str(folder), "--jars", jars, *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            # Java is a child of this process, and is killed with it.
            start_new_session=True,
        )


def kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def batches(checkpoint: Path, topic: str) -> list[dict[str, int]]:
    """Returns the end offsets of each batch in the checkpoint, by partition, in the order of the batches. Each batch begins
    where the one before has ended."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    assert numbers == list(range(len(numbers)))
    assert sorted(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()) == numbers
    lines = [(checkpoint / "offsets" / str(number)).read_text().splitlines() for number in numbers]
    return [json.loads(each[-1])[topic] for each in lines]


def parquet_keys(folder: Path) -> list[str]:
    """Returns the keys in the files that Spark has committed: a killed batch leaves other files, which are no part of it."""
    import pyarrow.parquet

    names: set[str] = set()
    for path in (folder / "_spark_metadata").iterdir():
        if path.name.split(".")[0].isdigit():
            entries = [json.loads(line) for line in path.read_text().splitlines()[1:]]
            names |= {entry["path"].rpartition("/")[2] for entry in entries}
    return [key for name in sorted(names) for key in pyarrow.parquet.read_table(folder / name)["key"].to_pylist()]


def test_a_streaming_job_is_killed_and_goes_on_from_its_checkpoint(
    jars: str, bootstrap: str, new_topic_name: Callable[[], str], tmp_path: Path
) -> None:
    """The job copies a topic into another and into files. It is killed in the middle, more is written, and it goes on to the
    end. The offsets of its batches follow each other from 0 to the end; the files have every record once; the other topic
    has every record, and only those of the batch that was killed may be there twice."""
    source = create_topic(bootstrap, new_topic_name(), partitions=PARTITIONS)
    sink = create_topic(bootstrap, new_topic_name(), partitions=PARTITIONS)
    write(bootstrap, source, range(FIRST))
    first = job(bootstrap, source, sink, tmp_path, jars)
    try:

        def has_begun() -> bool:
            assert first.poll() is None, (tmp_path / "output").read_text(errors="replace")[-3000:]
            return copied(bootstrap, sink) > BATCH_MAX

        until(has_begun, "the job copies records", seconds=JOB_SECONDS_MAX)
    finally:
        kill(first)
    assert BATCH_MAX < copied(bootstrap, sink) < FIRST, "the job was not killed in the middle"
    write(bootstrap, source, range(FIRST, FIRST + SECOND))
    second = job(bootstrap, source, sink, tmp_path, jars, "--to-the-end")
    try:
        status = second.wait(JOB_SECONDS_MAX)
    finally:
        kill(second)
    assert status == 0, (tmp_path / "output").read_text(errors="replace")[-3000:]
    ends = {str(index): len(range(index, FIRST + SECOND, PARTITIONS)) for index in range(PARTITIONS)}
    for checkpoint in ("checkpoint-kafka", "checkpoint-parquet"):
        assert batches(tmp_path / checkpoint, source)[-1] == ends
    keys = {f"key {number}" for number in range(FIRST + SECOND)}
    kept = parquet_keys(tmp_path / "parquet")
    assert (len(kept), set(kept)) == (FIRST + SECOND, keys)
    found = Counter(read(bootstrap, sink))
    assert set(found) == {(f"key {number}".encode(), f"value {number}".encode()) for number in range(FIRST + SECOND)}
    repeated = [count for count in found.values() if count > 1]
    assert set(repeated) <= {2}
    assert len(repeated) <= BATCH_MAX
