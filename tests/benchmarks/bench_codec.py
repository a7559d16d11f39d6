"""How many messages and partitions per second the codec encodes and decodes, compared with kio and kafka-python.

    python -m tests.benchmarks.bench_codec [--seconds 0.3] [--rounds 5]

The codecs encode and decode every message that they have (kafka-python only has client messages). They take turns, so that a
busy moment of the machine affects all of them. Each codec uses its own classes; ours creates an object per partition. Prints
one human-readable line and one line of JSON per message and direction; `ratio_to_*` is our median divided by theirs.
"""

import argparse
import io
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.serial import entity_reader, entity_writer

from common.ids import Uuid
from common.protocol.codec import decode, encode
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from common.protocol.schema import Struct
from tests.benchmarks.measuring import is_optimized_build
from tests.property import kafka_python_oracle, kio_oracle


@dataclass(frozen=True)
class Subject:
    """A message to be measured. `partitions` is 0 if it has none."""

    label: str
    message: Struct
    version: int
    partitions: int


def uuid_of(number: int) -> Uuid:
    return Uuid(b"\x70" + number.to_bytes(15, "big"))


def assignments(partitions: int, *, directories: int, topics: int) -> AssignReplicasToDirsRequest:
    per_topic = partitions // (directories * topics)
    return AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=2,
        directories=[
            RequestDirectoryData(
                id=uuid_of(1000 + directory),
                topics=[
                    RequestTopicData(
                        topic_id=uuid_of(topic),
                        partitions=[RequestPartitionData(partition_index=index) for index in range(per_topic)],
                    )
                    for topic in range(topics)
                ],
            )
            for directory in range(directories)
        ],
    )


def metadata(topics: int, partitions: int) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=broker, host=f"broker-{broker}", port=9092) for broker in range(3)]
    return MetadataResponse(
        brokers=brokers,
        cluster_id="bench",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{topic}",
                topic_id=uuid_of(topic),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=index % 3, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def subjects() -> list[Subject]:
    healthy = BrokerHeartbeatRequest(broker_id=1, broker_epoch=2, current_metadata_offset=3)
    failed = BrokerHeartbeatRequest(broker_id=1, broker_epoch=2, current_metadata_offset=3, offline_log_dirs=[uuid_of(1)])
    return [
        Subject("BrokerHeartbeatRequest", healthy, 1, 0),
        Subject("BrokerHeartbeatRequest with an offline directory", failed, 1, 0),
        Subject("AssignReplicasToDirsRequest", assignments(2250, directories=5, topics=9), 0, 2250),
        Subject("AssignReplicasToDirsRequest", assignments(100_000, directories=10, topics=50), 0, 100_000),
        Subject("MetadataResponse", metadata(10, 30), 12, 300),
    ]


def encoders(subject: Subject) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {"diskraft": lambda: encode(subject.message, subject.version)}
    theirs = kio_oracle.kio_message(subject.message, subject.version)
    writer = entity_writer(type(theirs))

    def by_kio() -> bytes:
        with io.BytesIO() as buffer:
            writer(buffer, theirs)
            return buffer.getvalue()

    found["kio"] = by_kio
    if kafka_python_oracle.has(type(subject.message), subject.version):
        client: Any = kafka_python_oracle.their_message(subject.message, subject.version)
        found["kafka-python"] = lambda: client.encode(version=subject.version)
    return found


def decoders(subject: Subject) -> dict[str, Callable[[], object]]:
    encoded, message_class = encode(subject.message, subject.version), type(subject.message)
    reader = entity_reader(type(kio_oracle.kio_message(subject.message, subject.version)))
    found: dict[str, Callable[[], object]] = {
        "diskraft": lambda: decode(message_class, encoded, subject.version),
        "kio": lambda: reader(encoded, 0),
    }
    if kafka_python_oracle.has(message_class, subject.version):
        client: Any = type(kafka_python_oracle.their_message(subject.message, subject.version))
        found["kafka-python"] = lambda: client.decode(encoded, version=subject.version)
    return found


def rates(functions: dict[str, Callable[[], object]], *, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Returns the calls per second of each round, sorted."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            calls, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < seconds:
                function()
                calls += 1
            found[name].append(calls / spent)
    return {name: sorted(values) for name, values in found.items()}


def report(subject: Subject, direction: str, found: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in found.items()}
    ours, unit = medians["diskraft"], subject.partitions or 1
    result: dict[str, Any] = {
        "benchmark": "codec",
        "message": subject.label,
        "version": subject.version,
        "partitions": subject.partitions,
        "direction": direction,
        "bytes": len(encode(subject.message, subject.version)),
        "python": platform.python_version(),
        "pgo": is_optimized_build(),
    }
    for name, values in found.items():
        result[name] = {
            "messages_per_s": {"min": round(values[0]), "median": round(medians[name]), "max": round(values[-1])}
        }
        if subject.partitions:
            result[name]["partitions_per_s"] = round(medians[name] * unit)
        if name != "diskraft":
            result[f"ratio_to_{name}"] = round(ours / medians[name], 2)
    what = "partitions/s" if subject.partitions else "messages/s"
    size = f" of {subject.partitions:,} partitions" if subject.partitions else ""
    sides = ", ".join(f"{name} {median * unit:,.0f}" for name, median in medians.items())
    ratios = ", ".join(f"{ours / median:.1f} x {name}" for name, median in medians.items() if name != "diskraft")
    sys.stdout.write(f"{direction} {subject.label} v{subject.version}{size}, {what}: {sides} ({ratios})\n")
    sys.stdout.write(json.dumps(result) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Codec rates beside kio and kafka-python.")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of one round of one codec")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for subject in subjects():
        for direction, functions in (("encode", encoders(subject)), ("decode", decoders(subject))):
            report(subject, direction, rates(functions, seconds=arguments.seconds, rounds=arguments.rounds))


if __name__ == "__main__":
    main()
