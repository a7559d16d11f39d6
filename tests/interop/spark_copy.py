"""A job of Spark's structured streaming that copies a topic: to another topic, and into Parquet files.

    python -m tests.interop.spark_copy --bootstrap … --source TOPIC --sink TOPIC --folder FOLDER --jars A,B [--to-the-end]

Run by tests/interop/test_spark.py in a process of its own, which it kills. Each of the two queries has its checkpoint in the
folder. Without --to-the-end they run until they are killed, in small batches; with it, until they have copied what is there.
"""

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

BATCH_MAX = 300


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--to-the-end", action="store_true")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.appName("copy")
        .master("local[2]")
        .config("spark.jars", arguments.jars)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(arguments.folder / "scratch"))
        .config("spark.sql.warehouse.dir", str(arguments.folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_MAX)
        .load()
        .selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    )
    trigger = {"availableNow": True} if arguments.to_the_end else {"processingTime": "500 milliseconds"}
    queries = [
        records.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.sink)
        .option("checkpointLocation", str(arguments.folder / "checkpoint-kafka"))
        .trigger(**trigger)
        .start(),
        records.writeStream.format("parquet")
        .option("path", str(arguments.folder / "parquet"))
        .option("checkpointLocation", str(arguments.folder / "checkpoint-parquet"))
        .trigger(**trigger)
        .start(),
    ]
    for query in queries:
        query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main()
