"""How long `diskraft reports disk-failures` takes for a million records on two cores.

    python -m tests.benchmarks.bench_report [--records 1000000] [--rounds 2]

The history: 60,000 partitions on nine brokers with four disks each. Replicas fall behind and catch up until the log is long
enough; then a disk dies. `session` is the time to start Spark, `first` that of the report in a fresh session (the command
takes the sum of both), `warm` that of the fastest later report in the same session. Needs the extra `analytics` and Java.
Prints one line of JSON and one human-readable line.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from analytics.disk_failures import report_disk_failures
from analytics.export import export_metadata
from analytics.spark import spark_session
from common.ids import Uuid
from common.metadata.state import MetadataState
from common.protocol.numbering import Numbering
from common.records.metadata_frame import encode_record
from common.records.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    KnownRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from common.records.record import encode_values_batch
from tests.benchmarks.bench_metadata_replay import directory, make_failures, make_records, replay
from tests.unit.analytics.metadata_dirs import newest_version

PARTITIONS, BROKERS, DISKS, CORES = 60_000, 9, 4, 2


def ordinary_life(partitions: list[PartitionRecord]) -> Iterator[KnownRecord]:
    """Yields changes without end: in one partition after the other, the last ISR member leaves the ISR and rejoins it."""
    while True:
        for each in partitions:
            yield PartitionChangeRecord(partition_id=each.partition_id, topic_id=each.topic_id, isr=each.isr[:-1])
            yield PartitionChangeRecord(partition_id=each.partition_id, topic_id=each.topic_id, isr=each.isr)


def make_history(count: int) -> tuple[list[KnownRecord], int]:
    """Returns the records, and how many partitions the failure at their end affects."""
    records = make_records(PARTITIONS, BROKERS, DISKS)
    # Only broker 0 loses a disk, its first.
    failure = make_failures(replay(records, MetadataState()), 1)
    left = [Uuid(directory(0, disk)) for disk in range(1, DISKS)]
    life = ordinary_life([record for record in records if isinstance(record, PartitionRecord)])
    between = list(islice(life, max(0, count - len(records) - len(failure) - 3) // 2 * 2))
    change = BrokerRegistrationChangeRecord(broker_id=0, log_dirs=left)
    return [*records, *between, BeginTransactionRecord(), *failure, change, EndTransactionRecord()], len(failure)


def encode_log(records: list[KnownRecord]) -> bytes:
    """Encodes the records in batches of a thousand."""
    frames = [encode_record(record, newest_version(record), Numbering.KIP858) for record in records]
    log = bytearray()
    for start in range(0, len(frames), 1000):
        batch = frames[start : start + 1000]
        log += encode_values_batch(batch, base_offset=start, leader_epoch=1, timestamp_ms=start)
    return bytes(log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()

    history, disturbed = make_history(arguments.records)
    with tempfile.TemporaryDirectory() as folder:
        segment = Path(folder) / "__cluster_metadata-0" / f"{0:020d}.log"
        segment.parent.mkdir()
        segment.write_bytes(encode_log(history))
        out = Path(folder) / "out"
        export_metadata(Path(folder), out)
        started = time.perf_counter()
        with spark_session("benchmark", threads=CORES) as spark:
            session_seconds = time.perf_counter() - started
            seconds = []
            for _ in range(arguments.rounds + 1):
                started = time.perf_counter()
                (failure,) = report_disk_failures(spark, out)
                seconds.append(time.perf_counter() - started)
    assert len(failure.partitions) == disturbed, "the report names what the history holds"
    result = {
        "benchmark": "disk_failures_report",
        "records": len(history),
        "cores": CORES,
        "partitions_reported": len(failure.partitions),
        "session_s": round(session_seconds, 1),
        "first_s": round(seconds[0], 1),
        "warm_s": round(min(seconds[1:]), 1),
    }
    print(json.dumps(result))
    print(
        f"report of failed disks, {result['records']:,} records on {CORES} cores: {result['session_s']} s to start Spark, "
        f"{result['first_s']} s for the report, {result['warm_s']} s when warm"
    )


if __name__ == "__main__":
    main()
