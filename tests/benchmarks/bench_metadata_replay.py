"""How many metadata records per second are decoded and replayed into a MetadataState with its indexes.

    python -m tests.benchmarks.bench_metadata_replay [--partitions 100000] [--brokers 9] [--disks 4] [--rounds 3]

The records are those of a cluster of that size in which each broker loses one directory: a PartitionRecord per partition,
then a PartitionChangeRecord for each replica in a lost directory. `replay` starts from decoded records, `decode_replay` from
the bytes of the metadata log's batches (as on startup), `snapshot_load` from the bytes of a snapshot's records. Prints one
line of JSON and one human-readable line.
"""

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable, Sequence

from common.ids import BrokerId, DirectoryId, Offset, TopicId, TopicIdPartition, Uuid
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState
from common.protocol.numbering import Numbering
from common.records.batch import split_batches
from common.records.metadata_frame import encode_record
from common.records.metadata_records import (
    FeatureLevelRecord,
    KnownRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from common.records.record import encode_values_batch, iterate_values
from tests.benchmarks.measuring import is_optimized_build

PARTITIONS_PER_TOPIC = 30
RECORDS_PER_BATCH = 1000
VERSIONS = {RegisterBrokerRecord: 3, PartitionRecord: 1, PartitionChangeRecord: 1}


def directory(broker: int, disk: int) -> DirectoryId:
    return DirectoryId(Uuid(b"\x40" + (broker * 1000 + disk).to_bytes(15, "big")))


def make_records(partitions: int, brokers: int, disks: int) -> list[KnownRecord]:
    """Returns records of features, broker registrations, and topics with replication factor 3."""
    records: list[KnownRecord] = [
        FeatureLevelRecord(name="metadata.version", feature_level=21),
        FeatureLevelRecord(name="diskraft.directory.numbering", feature_level=1),
    ]
    for broker in range(brokers):
        log_dirs = [Uuid(directory(broker, disk)) for disk in range(disks)]
        records.append(RegisterBrokerRecord(broker_id=broker, broker_epoch=broker, fenced=False, log_dirs=log_dirs))
    for number in range(partitions):
        topic, index = divmod(number, PARTITIONS_PER_TOPIC)
        topic_id = TopicId(Uuid(b"\x70" + topic.to_bytes(15, "big")))
        if index == 0:
            records.append(TopicRecord(name=f"topic-{topic}", topic_id=topic_id))
        replicas = [(number + step) % brokers for step in range(3)]
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=list(replicas),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory(broker, (number // brokers + broker) % disks) for broker in replicas],
            )
        )
    return records


def make_failures(state: MetadataState, brokers: int) -> list[KnownRecord]:
    """Returns the changes made when every broker loses its first directory: the replicas in it leave the ISR unless they are
    the last member, and the first remaining member leads."""
    records: list[KnownRecord] = []
    remaining: dict[TopicIdPartition, list[int]] = {}
    for broker in range(brokers):
        for key in state.partitions_in_directory(BrokerId(broker), directory(broker, 0)):
            partition = state.topics[key.topic_id].partitions[key.partition]
            isr = remaining.setdefault(key, list(partition.isr))
            if len(isr) > 1:
                isr.remove(broker)
                records.append(
                    PartitionChangeRecord(partition_id=key.partition, topic_id=key.topic_id, isr=list(isr), leader=isr[0])
                )
    return records


def encode_log(records: Sequence[KnownRecord]) -> bytes:
    """Encodes the records as batches of the metadata log."""
    frames = [encode_record(record, VERSIONS.get(type(record), 0), Numbering.KIP858) for record in records]
    log = bytearray()
    for start in range(0, len(frames), RECORDS_PER_BATCH):
        log += encode_values_batch(
            frames[start : start + RECORDS_PER_BATCH], base_offset=start, leader_epoch=1, timestamp_ms=0
        )
    return bytes(log)


def replay(records: Sequence[KnownRecord], state: MetadataState) -> MetadataState:
    for offset, record in enumerate(records):
        state.replay(record, offset=Offset(offset))
    return state


def decode_replay(log: bytes) -> MetadataState:
    reader, state = MetadataRecordReader(), MetadataState()
    for _, view in split_batches(log):
        for offset, value in iterate_values(view):
            state.replay(reader.decode(value), offset=Offset(offset))
    return state


def load(frames: Sequence[bytes]) -> MetadataState:
    reader, state = MetadataRecordReader(), MetadataState()
    for frame in frames:
        state.replay(reader.decode(frame), offset=Offset(0))
    return state


def best_seconds(rounds: int, work: Callable[[], object]) -> float:
    """Returns the time of the fastest of several rounds. Garbage collection is off during a round, because the daemons
    exempt their loaded metadata from it."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
        gc.enable()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--brokers", type=int, default=9)
    parser.add_argument("--disks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    records = make_records(arguments.partitions, arguments.brokers, arguments.disks)
    state = replay(records, MetadataState())
    failures = make_failures(state, arguments.brokers)
    history = [*records, *failures]
    log = encode_log(history)
    snapshot = list(generate_snapshot_records(replay(failures, state)))
    frames = [encode_record(each.record, each.version, Numbering.KIP858) for each in snapshot]
    rounds = arguments.rounds
    result = {
        "benchmark": "metadata_replay",
        "partitions": arguments.partitions,
        "records": len(history),
        "partition_changes": len(failures),
        "replay_records_per_s": round(len(history) / best_seconds(rounds, lambda: replay(history, MetadataState()))),
        "decode_replay_records_per_s": round(len(history) / best_seconds(rounds, lambda: decode_replay(log))),
        "snapshot_records_per_s": round(len(frames) / best_seconds(rounds, lambda: list(generate_snapshot_records(state)))),
        "snapshot_load_records_per_s": round(len(frames) / best_seconds(rounds, lambda: load(frames))),
        "log_bytes_per_record": round(len(log) / len(history), 1),
        "python": platform.python_version(),
        "optimized_build": is_optimized_build(),
    }
    print(json.dumps(result))
    print(
        f"metadata replay, {result['partitions']:,} partitions: {result['replay_records_per_s']:,} records/s replayed, "
        f"{result['decode_replay_records_per_s']:,}/s decoded and replayed, "
        f"{result['snapshot_load_records_per_s']:,}/s loaded from a snapshot "
        f"(CPython {result['python']}, {'PGO' if result['optimized_build'] else 'no PGO'})"
    )


if __name__ == "__main__":
    main()
