"""The report `disk-failures`: which directories failed, and how that affected partitions (shell; KIP-858).

`directory_failures` defines what a failure is and how long it lasts. A failure affects a partition if the broker's replica
is assigned to the failed directory and a record written during the failure takes the broker out of the partition's ISR or
leadership. Most of these records are in the same batch or metadata transaction as the registration change, and the
controller writes them *before* that change. Others come later, when a repeated report or a late assignment repairs the
remaining partitions. Nothing else can cause such a record, because a replica in an offline directory never rejoins an ISR.

Times are batch times relative to the first batch of the failure. A change record holds only what it changes, so leader, ISR
and directories are carried forward from all records before it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from analytics.directory_failures import (
    REGISTRATION_CHANGE,
    SNAPSHOT,
    TYPES,
    DirectoryFailure,
    DisturbedPartition,
    Step,
    find_directory_failures,
    unsettled_groups,
)
from analytics.tables import load_records, log_order, settled

PARTITION = "PARTITION_RECORD"
PARTITION_CHANGE = "PARTITION_CHANGE_RECORD"
TOPIC = "TOPIC_RECORD"
KEYS = ("topic_id", "partition")
_STEP_COLUMNS = [name for name in Step.__dataclass_fields__ if name != "time"]


def report_disk_failures(spark: SparkSession, folder: Path) -> list[DirectoryFailure]:
    """Returns the failed directories in order of failure. Raises AnalyticsError."""
    records = load_records(spark, folder)
    steps = _steps(records)
    failures = find_directory_failures(steps)
    # A snapshot shows a partition's final state, not what happened to it. So a failure found in a snapshot has an
    # empty list of partitions.
    told = {(each.directory_id, each.group): each for each in failures if each.source != SNAPSHOT}
    if told:
        for row in _disturbed_partitions(spark, settled(records, unsettled_groups(steps)), list(told.values())).collect():
            told[row["directory_id"], row["failed_group"]].partitions.append(_disturbed(row))
    return failures


def _steps(records: DataFrame) -> list[Step]:
    """Collects the records that `directory_failures` needs. They fit in memory: there are only a few per broker start and
    per failure."""
    is_change = f.col("type") == REGISTRATION_CHANGE
    rows = records.where(f.col("type").isin(*TYPES) & (~is_change | f.col("log_dirs").isNotNull())).sort(*log_order())
    # Select the time as a number, because a collected timestamp would be in this process's local time.
    return [_step(row) for row in rows.select(*_STEP_COLUMNS, f.unix_millis("time").alias("ms")).collect()]


def _step(row: Row) -> Step:
    time = datetime.fromtimestamp(row["ms"] / 1000, UTC)
    return Step(time=time, **{name: row[name] for name in _STEP_COLUMNS})


def _disturbed(row: Row) -> DisturbedPartition:
    return DisturbedPartition(
        topic=row["topic_name"] or row["topic_id"],
        partition=row["partition"],
        leader_before=row["leader_before"],
        leader_after=row["leader_after"],
        isr_before=list(row["isr_before"]),
        isr_after=list(row["isr_after"]),
        ms=row["ms"],
    )


def _disturbed_partitions(spark: SparkSession, records: DataFrame, failures: Sequence[DirectoryFailure]) -> DataFrame:
    """Returns one row per failure and partition: the state before the first change, the state after the last one, and the
    time of the last one."""
    told = f.broadcast(_failures_table(spark, failures))
    broker = f.col("broker_id")
    leaves_isr = f.array_contains("isr_before", broker) & ~f.array_contains("isr_after", broker)
    leaves_lead = (f.col("leader_before") == broker) & (f.col("leader_after") != broker)
    is_there = [
        f.element_at(places, broker).eqNullSafe(f.col("directory_id")) for places in ("places_before", "places_after")
    ]
    lasts = f.col("group").between(f.col("failed_group"), f.col("last_group"))
    hits = _changes(records, [each.directory_id for each in failures]).join(
        told, lasts & (is_there[0] | is_there[1]) & (leaves_isr | leaves_lead)
    )
    disturbed = hits.groupBy("directory_id", "failed_group", *KEYS).agg(
        f.min_by("leader_before", "offset").alias("leader_before"),
        f.max_by("leader_after", "offset").alias("leader_after"),
        f.min_by("isr_before", "offset").alias("isr_before"),
        f.max_by("isr_after", "offset").alias("isr_after"),
        f.max(f.unix_millis("time") - f.col("failed_ms")).alias("ms"),
    )
    names = records.where(f.col("type") == TOPIC).select("topic_id", "topic_name").distinct()
    return disturbed.join(names, "topic_id", "left").sort("topic_name", "partition")


def _failures_table(spark: SparkSession, failures: Sequence[DirectoryFailure]) -> DataFrame:
    rows = [
        (
            each.directory_id,
            each.broker_id,
            each.group,
            2**63 - 1 if each.until_group is None else each.until_group - 1,
            round(each.time.timestamp() * 1000),
        )
        for each in failures
    ]
    return spark.createDataFrame(
        rows, "directory_id string, broker_id int, failed_group long, last_group long, failed_ms long"
    )


def _changes(records: DataFrame, directory_ids: Sequence[str]) -> DataFrame:
    """Returns the changes that set an ISR or a leader, with leader, ISR and places (broker -> directory) before and after.

    Covers only partitions that have had a replica in one of the directories.
    """
    partitions = records.where(f.col("type").isin(PARTITION, PARTITION_CHANGE))
    ids = f.array(*(f.lit(each) for each in dict.fromkeys(directory_ids)))
    concerned = partitions.where(f.arrays_overlap("directories", ids)).select(*KEYS).distinct()
    history = Window.partitionBy(*KEYS).orderBy(*log_order())
    so_far = history.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def known(name: str) -> Column:
        return f.last(name, ignorenulls=True).over(so_far)

    states = (
        partitions.join(concerned, list(KEYS), "left_semi")
        .withColumns({"leader_after": known("leader"), "isr_after": known("isr"), "replicas_after": known("replicas")})
        # A record with replicas but no directories leaves the directories unchanged: `places` is null for it, and
        # `places_after` carries the last map forward.
        .withColumn("places", f.when(f.col("directories").isNotNull(), f.map_from_arrays("replicas_after", "directories")))
        .withColumn("places_after", known("places"))
        .withColumns({f"{name}_before": f.lag(f"{name}_after").over(history) for name in ("leader", "isr", "places")})
    )
    is_told = (f.col("type") == PARTITION_CHANGE) & (f.col("isr").isNotNull() | f.col("leader").isNotNull())
    return states.where(is_told & f.col("isr_before").isNotNull()).select(
        "offset",
        "group",
        "time",
        *KEYS,
        *(f"{name}_{when}" for name in ("leader", "isr", "places") for when in ("before", "after")),
    )
