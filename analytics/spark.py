"""The Spark session of the reports: local, small and quiet (shell).

The session binds to the loopback address, uses one thread per processor but at most four, and has no web UI. Without
PYSPARK_PYTHON, Spark's workers would use the PATH's `python3`, which lacks our packages. The default of 200 shuffle
partitions would cost more than the reports themselves.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from analytics.quiet_launch import without_incubator_warning

THREADS_MAX = 4
_LOG4J = Path(__file__).with_name("log4j2.properties")


@contextmanager
def spark_session(name: str, *, threads: int | None = None) -> Iterator[SparkSession]:
    """Opens a session and stops it at the end of the block."""
    count = threads or min(THREADS_MAX, len(os.sched_getaffinity(0)))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark's launcher reads this variable before any configuration. Without it, Spark prints its banner on stderr.
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options -Dlog4j2.configurationFile={_LOG4J.as_uri()} pyspark-shell"
    with tempfile.TemporaryDirectory(prefix="diskraft-spark-") as scratch:
        builder = (
            SparkSession.builder.appName(f"diskraft {name}")
            .master(f"local[{count}]")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.local.dir", scratch)
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.warehouse.dir", scratch)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
        )
        with without_incubator_warning():
            session: SparkSession = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
