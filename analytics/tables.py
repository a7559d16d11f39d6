"""Exported records as Spark tables (shell).

`group` is what is applied at once, a metadata transaction or a batch, as the offset of its first record. Easy to get wrong:
the rows of a snapshot share one offset, so that `offset, position` is the order; and what a transaction holds happened only
if the transaction has ended, which `settled` asks the caller for.
"""

from collections.abc import Collection
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.errors import AnalyticsError


def load_records(spark: SparkSession, folder: Path) -> DataFrame:
    """Every record of an export, with the column `group`. Raises AnalyticsError for a folder without one."""
    if not folder.is_dir() or not any(folder.glob("records-*.parquet")):
        raise AnalyticsError(f"{folder} holds no export; make one with: diskraft metadata export --out {folder} …")
    records: DataFrame = spark.read.parquet(str(folder / "records-*.parquet"))
    return records.withColumn("group", f.coalesce("transaction_offset", "batch_offset"))


def settled(records: DataFrame, unsettled_groups: Collection[int]) -> DataFrame:
    """Without the transactions that were aborted or have not ended."""
    return records.where(~f.col("group").isin(*unsettled_groups)) if unsettled_groups else records


def log_order() -> list[Column]:
    """The order in which records are replayed."""
    return [f.col("offset"), f.coalesce("position", f.lit(0))]
