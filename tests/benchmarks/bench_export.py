"""How many metadata records per second `diskraft metadata export` writes as Parquet, including the last fsync.

    python -m tests.benchmarks.bench_export [--partitions 100000] [--rounds 3]

The log is that of `bench_metadata_replay`: a record for each partition, then a change for each one with a lost replica.
Needs the extra `analytics`. Prints one line of JSON and one human-readable line.
"""

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path

from analytics.export import export_metadata
from common.metadata.state import MetadataState
from tests.benchmarks.bench_metadata_replay import encode_log, make_failures, make_records, replay
from tests.benchmarks.measuring import is_optimized_build

BROKERS, DISKS = 9, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    records = make_records(arguments.partitions, BROKERS, DISKS)
    history = [*records, *make_failures(replay(records, MetadataState()), BROKERS)]
    with tempfile.TemporaryDirectory() as folder:
        segment = Path(folder) / "__cluster_metadata-0" / f"{0:020d}.log"
        segment.parent.mkdir()
        segment.write_bytes(encode_log(history))
        seconds = cpu_seconds = float("inf")
        for number in range(arguments.rounds):
            started, cpu_started = time.perf_counter(), time.process_time()
            export_metadata(Path(folder), Path(folder) / f"out-{number}")
            seconds = min(seconds, time.perf_counter() - started)
            cpu_seconds = min(cpu_seconds, time.process_time() - cpu_started)
        bytes_written = sum(path.stat().st_size for path in Path(folder, "out-0").glob("*.parquet"))
        log_bytes = segment.stat().st_size
    result = {
        "benchmark": "metadata_export",
        "records": len(history),
        "records_per_s": round(len(history) / seconds),
        "records_per_cpu_s": round(len(history) / cpu_seconds),
        "log_bytes_per_record": round(log_bytes / len(history), 1),
        "parquet_bytes_per_record": round(bytes_written / len(history), 1),
        "python": platform.python_version(),
        "optimized_build": is_optimized_build(),
    }
    print(json.dumps(result))
    print(
        f"metadata export, {result['records']:,} records: {result['records_per_s']:,} records/s "
        f"({result['records_per_cpu_s']:,} per second of CPU), {result['log_bytes_per_record']} bytes a record in the log, "
        f"{result['parquet_bytes_per_record']} in Parquet "
        f"(CPython {result['python']}, {'PGO' if result['optimized_build'] else 'no PGO'})"
    )


if __name__ == "__main__":
    main()
