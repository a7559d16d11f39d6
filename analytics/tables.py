"""Exported records as Spark tables (shell).

The records of a metadata transaction are applied together. So are the records of a batch outside any transaction. Records
that are applied together have the same value in the column `group`: the offset of the first of them. The rows of a snapshot
share one offset, so sort by `offset, position`. The records of a transaction count only once it has ended; use `settled` to
drop the records of aborted and unfinished transactions.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from analytics.errors import AnalyticsError

# A Parquet file ends with it.
_MAGIC: Final = b"PAR1"


def load_records(spark: SparkSession, folder: Path) -> DataFrame:
    """Loads every record of an export, with the column `group`. Raises AnalyticsError if the folder holds no export, or a
    file that is not whole."""
    paths = sorted(folder.glob("records-*.parquet")) if folder.is_dir() else []
    if not paths:
        raise AnalyticsError(f"{folder} holds no export; make one with: diskraft metadata export --out {folder} …")
    for path in paths:
        _check_is_whole(path)
    records: DataFrame = spark.read.parquet(str(folder / "records-*.parquet"))
    return records.withColumn("group", f.coalesce("transaction_offset", "batch_offset"))


def _check_is_whole(path: Path) -> None:
    # Spark would report a damaged file in a hundred lines.
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - len(_MAGIC)))
            is_whole = file.read() == _MAGIC
    except OSError as error:
        raise AnalyticsError(f"{path} cannot be read: {error.strerror}") from error
    if not is_whole:
        raise AnalyticsError(f"{path} is damaged; remove it and the files after it, and export again")


def settled(records: DataFrame, unsettled_groups: Collection[int]) -> DataFrame:
    """Returns the records without those of transactions that were aborted or have not ended."""
    return records.where(~f.col("group").isin(*unsettled_groups)) if unsettled_groups else records


def log_order() -> list[Column]:
    """The columns that sort records into replay order."""
    return [f.col("offset"), f.coalesce("position", f.lit(0))]
