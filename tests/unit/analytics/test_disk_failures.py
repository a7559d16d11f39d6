"""Spark's report on an exported log with known failures. All tests share one Spark session."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analytics.errors import AnalyticsError
from analytics.requirements import missing
from common.ids import uuid_text
from common.metadata.directory_ids import UNASSIGNED
from common.protocol.numbering import Numbering
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from tests.unit.analytics.extras import need
from tests.unit.analytics.metadata_dirs import START_MS, MetadataDir, numbered
from tests.unit.common.metadata.builders import directory, register, topic, topic_id

need(*missing())

from pyspark.sql import SparkSession  # noqa: E402

from analytics.disk_failures import report_disk_failures  # noqa: E402
from analytics.export import export_metadata  # noqa: E402
from analytics.spark import spark_session  # noqa: E402

# Starting Spark alone takes seconds, and longer on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests", threads=2) as session:
        yield session


def partition(number: int, places: dict[int, int], *, isr: list[int], topic_number: int = 1) -> PartitionRecord:
    """`places` maps each replica to its directory, 0 for UNASSIGNED. The first ISR member leads."""
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id(topic_number),
        replicas=list(places),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory(place) if place else UNASSIGNED for place in places.values()],
    )


def change(number: int, *, topic_number: int = 1, **fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=number, topic_id=topic_id(topic_number), **fields)


def online(broker_id: int, *directories: int) -> BrokerRegistrationChangeRecord:
    """Returns a registration change with the directories that are still online."""
    return BrokerRegistrationChangeRecord(broker_id=broker_id, log_dirs=[directory(each) for each in directories])


def disturbed(name: str, leaders: tuple[int, int], isr: tuple[list[int], list[int]], ms: int) -> dict[str, Any]:
    topic_name, _, number = name.rpartition("-")
    return {
        "topic": topic_name,
        "partition": int(number),
        "leader_before": leaders[0],
        "leader_after": leaders[1],
        "isr_before": isr[0],
        "isr_after": isr[1],
        "ms": ms,
    }


def dead(directories: dict[int, int]) -> list[tuple[str, int]]:
    return [(uuid_text(directory(each)), broker_id) for each, broker_id in directories.items()]


def begin(path: Path, numbering: Numbering = Numbering.KIP858) -> MetadataDir:
    """Writes three brokers (directory 1x belongs to broker 1, and so on), and partitions of the topics `a` and `late`."""
    made = MetadataDir(path, numbering=numbering)
    made.append(*numbered(numbering))
    made.append(register(1, directories=[directory(11), directory(12), directory(13)]))
    made.append(register(2, directories=[directory(21), directory(22)]))
    made.append(register(3, directories=[directory(31), directory(32)]))
    made.append(
        topic(1, "a"),
        partition(0, {1: 11, 2: 21, 3: 31}, isr=[1, 2, 3]),
        partition(1, {2: 21, 1: 11, 3: 31}, isr=[2, 1, 3]),
        partition(2, {1: 12, 2: 22}, isr=[1, 2]),
        partition(3, {1: 11}, isr=[1]),
        partition(4, {2: 21, 1: 11}, isr=[2]),
        partition(5, {1: 13, 3: 31}, isr=[1, 3]),
        topic(2, "late"),
        partition(0, {1: 0, 2: 21}, isr=[1, 2], topic_number=2),
    )
    # Ordinary changes before any failure: a replica falls behind and catches up, and a replica is added without directories.
    made.append(change(0, isr=[2, 3], leader=2))
    made.append(change(0, isr=[1, 2, 3], leader=1))
    made.append(change(5, replicas=[1, 3, 2]))
    made.append(change(5, isr=[1, 3, 2]))
    return made


def fail_11(made: MetadataDir) -> int:
    """Fails directory 11 of broker 1, in the same batch as an unrelated change. A late directory assignment follows. Returns
    the time of the failure."""
    made.append(
        change(0, isr=[2, 3], leader=2),
        change(1, isr=[2, 3]),
        change(3, leader=-1),
        change(2, isr=[2], leader=2),  # a change in directory 12, which has not failed
        online(1, 12, 13),
    )
    failed_ms = made.now_ms
    made.append(change(0, topic_number=2, directories=[directory(11), directory(21)], isr=[2], leader=2), after_ms=1500)
    made.append(change(1, isr=[2]), after_ms=500)  # broker 3 falls behind
    return failed_ms


FAILED_11 = [
    disturbed("a-0", (1, 2), ([1, 2, 3], [2, 3]), 0),
    disturbed("a-1", (2, 2), ([2, 1, 3], [2, 3]), 0),
    disturbed("a-3", (1, -1), ([1], [1]), 0),
    disturbed("late-0", (1, 2), ([1, 2], [2]), 1500),
]


def report(spark: SparkSession, made: MetadataDir, out: Path) -> list[dict[str, Any]]:
    export_metadata(made.path, out)
    return [failure.as_json() for failure in report_disk_failures(spark, out)]


@pytest.mark.parametrize("numbering", list(Numbering))
def test_a_failed_directory_and_exactly_what_it_disturbed(spark: SparkSession, tmp_path: Path, numbering: Numbering) -> None:
    """The report leaves out the change in another directory, the ISR changes before and after the failure, and the partition
    whose ISR did not have the replica."""
    made = begin(tmp_path / "metadata", numbering)
    failed_ms = fail_11(made)
    (found,) = report(spark, made, tmp_path / "out")
    assert found["partitions"] == FAILED_11
    assert [(found["directory_id"], found["broker_id"])] == dead({11: 1})
    assert found["time"] == f"2023-11-14T22:13:{20 + (failed_ms - START_MS) // 1000:02d}.000Z"
    assert (found["partition_count"], found["leaders_moved"], found["leaderless"]) == (4, 3, 1)
    assert found["last_change_ms"] == 1500


def test_transactions_repeated_reports_restarts_and_snapshots(spark: SparkSession, tmp_path: Path) -> None:
    """A long history. Later events only add failures to the report, or partitions to a failure. The rest of the report stays
    as it was."""
    made = begin(tmp_path / "metadata")
    fail_11(made)
    # Directory 22 does not fail: the transaction is aborted.
    made.append(BeginTransactionRecord(), change(2, leader=1), online(2, 21), AbortTransactionRecord())
    # Directory 21 fails in a transaction of two batches.
    made.append(BeginTransactionRecord(name="many"))
    made.append(change(0, isr=[3], leader=3), after_ms=30)
    made.append(
        change(1, leader=-1), change(0, topic_number=2, leader=-1), online(2, 22), EndTransactionRecord(), after_ms=20
    )
    export_metadata(made.path, tmp_path / "out")
    # Broker 2 reports the same failure again. It leads partition 4 in the dead directory, and the controller takes that
    # leadership away, too.
    made.append(change(4, leader=-1), after_ms=150)
    # Two directories fail at once, and one of them is empty. Partition 5 kept its directories when a replica was added.
    made.append(change(5, isr=[3, 2], leader=3), online(1, 12))
    # Broker 2 restarts with both directories. Later changes in directory 21 do not belong to the failure.
    made.append(register(2, directories=[directory(21), directory(22)], incarnation=2, epoch=200))
    made.append(change(0, topic_number=2, leader=2))
    made.append(change(0, topic_number=2, leader=-1))
    assert len(report(spark, made, tmp_path / "out")) == 3
    # Retention deletes records before they are exported. The snapshot in their place says that directory 32 is lost, too.
    made.append(online(3, 31))
    made.snapshot(
        *numbered(Numbering.KIP858),
        register(1, directories=[directory(12)], lost=[directory(11), directory(13)]),
        register(3, directories=[directory(31)], lost=[directory(32)]),
        topic(1, "a"),
        partition(2, {1: 12, 2: 22}, isr=[2]),
    )
    made.segment.unlink()
    made.roll()
    made.append(change(2, isr=[2, 1]))
    found = report(spark, made, tmp_path / "out")
    assert [(each["directory_id"], each["broker_id"]) for each in found] == dead({11: 1, 21: 2, 13: 1, 32: 3})
    assert [each["source"] for each in found] == ["segment", "segment", "segment", "snapshot"]
    assert found[0]["partitions"] == FAILED_11
    assert found[1]["partitions"] == [
        disturbed("a-0", (2, 3), ([2, 3], [3]), 30),
        disturbed("a-1", (2, -1), ([2], [2]), 50),
        disturbed("a-4", (2, -1), ([2], [2]), 200),
        disturbed("late-0", (2, -1), ([2], [2]), 50),
    ]
    assert found[2]["partitions"] == [disturbed("a-5", (1, 3), ([1, 3, 2], [3, 2]), 0)]
    assert found[3]["partitions"] == []


def test_a_log_without_failures(spark: SparkSession, tmp_path: Path) -> None:
    """The report is an empty list. A folder without an export is an error."""
    assert report(spark, begin(tmp_path / "metadata"), tmp_path / "out") == []
    with pytest.raises(AnalyticsError, match="holds no export"):
        report_disk_failures(spark, tmp_path / "nothing")


def test_an_export_with_a_damaged_file(spark: SparkSession, tmp_path: Path) -> None:
    """A file that was cut short, or is empty, is one line, and not Spark's hundred."""
    assert report(spark, begin(tmp_path / "metadata"), tmp_path / "out") == []
    (exported,) = (tmp_path / "out").glob("*.parquet")
    for content in (exported.read_bytes()[:-1], b""):
        exported.write_bytes(content)
        with pytest.raises(AnalyticsError, match=f"{exported.name} is damaged; remove it"):
            report_disk_failures(spark, tmp_path / "out")
