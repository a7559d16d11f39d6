"""VerifiableProducer and VerifiableConsumer, from Apache Kafka's own system tests, while a disk dies and another one hangs.

There is a group for each assignor of both group protocols. Each group has two members, in every other group with
group.instance.id, and reads the topic while it is written. One member of each group ends and comes back. The programs print
what they have sent and read: each group must read every acknowledged record, where it was acknowledged, and nothing else.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import until
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.apache_kafka_tools import Kafka
from tests.interop.java_programs import JavaProgram
from tests.interop.loop_cluster import disk_with_a_leader, loop_cluster
from tests.interop.topics import create_topic
from tools.lab.disk_faults import freeze
from tools.lab.disk_lab import kill_disk

TOPIC, PARTITIONS = "t", 6
RECORDS_PER_SECOND = 100
DYING, HANGING = 2, 3
# Longer than a disk may hang before clients get errors for it, and shorter than until it counts as dead.
HANGS_SECONDS = 5.0
STORY_SECONDS = 180.0
SESSION_MS = 10_000
# The topic has records in every partition all the time, so that every member reads.
KEYS = 20

CLASSIC = {
    name: ["--session-timeout", str(SESSION_MS), "--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
    for name, assignor in (
        ("range", "RangeAssignor"),
        ("round-robin", "RoundRobinAssignor"),
        ("sticky", "StickyAssignor"),
        ("cooperative", "CooperativeStickyAssignor"),
    )
}
CONSUMER = {
    name: ["--group-protocol", "consumer", "--group-remote-assignor", assignor]
    for name, assignor in (("consumer-uniform", "uniform"), ("consumer-range", "range"))
}
GROUPS = CLASSIC | CONSUMER

pytestmark = [
    pytest.mark.stories,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * STORY_SECONDS),
]


@dataclass(frozen=True, slots=True)
class Verifiable:
    """One of the programs, and what it has printed in all its lives."""

    program: JavaProgram
    log: Path

    def events(self, name: str) -> Iterator[dict[str, Any]]:
        """Returns the events with this name, oldest first."""
        for line in self.log.read_text().splitlines():
            # A killed program may have left half a line, and the last one may be half written.
            with contextlib.suppress(json.JSONDecodeError):
                if line.startswith("{") and (event := json.loads(line))["name"] == name:
                    yield event


def verifiable_producer(kafka: Kafka, bootstrap: str, folder: Path) -> Verifiable:
    # By itself the program gives up at the first error.
    settings = folder / "producer.properties"
    settings.write_text("enable.idempotence=true\nretries=2147483647\n")
    command = kafka.command(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--acks", "-1"),
        *("--throughput", str(RECORDS_PER_SECOND), "--repeating-keys", str(KEYS), "--producer.config", str(settings)),
    )
    return Verifiable(JavaProgram(command, folder / "producer.log"), folder / "producer.log")


def verifiable_consumers(kafka: Kafka, bootstrap: str, folder: Path) -> dict[str, tuple[Verifiable, Verifiable]]:
    """Returns two members of each group."""

    def member(group: str, number: int, *, is_static: bool) -> Verifiable:
        command = kafka.command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", group),
            *("--reset-policy", "earliest", "--verbose", *GROUPS[group]),
            *(("--group-instance-id", f"{group}-{number}") if is_static else ()),
        )
        log = folder / f"{group}-{number}.log"
        return Verifiable(JavaProgram(command, log), log)

    return {
        group: (member(group, 1, is_static=index % 2 == 1), member(group, 2, is_static=index % 2 == 1))
        for index, group in enumerate(GROUPS)
    }


def records_read(members: tuple[Verifiable, ...]) -> dict[tuple[int, int], str]:
    """Returns what the group has read at each partition and offset."""
    found: dict[tuple[int, int], str] = {}
    for member in members:
        for event in member.events("record_data"):
            value = found.setdefault((event["partition"], event["offset"]), event["value"])
            assert value == event["value"], event
    return found


def until_reads(member: Verifiable) -> None:
    """Waits until the member has read one record more than now."""
    count = len([*member.events("record_data")])

    def has_read() -> bool:
        member.program.check()
        return len([*member.events("record_data")]) > count

    until(has_read, f"{member.log.stem} reads", seconds=STORY_SECONDS)


def until_read(group: str, members: tuple[Verifiable, ...], records: dict[tuple[int, int], str]) -> None:
    until(lambda: records_read(members) == records, f"{group} has read everything", seconds=STORY_SECONDS)


def test_every_group_reads_every_acknowledged_record(kafka: Kafka, tmp_path: Path) -> None:
    with loop_cluster(tmp_path) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=3)
        producer = verifiable_producer(kafka, cluster.bootstrap, tmp_path)
        groups = verifiable_consumers(kafka, cluster.bootstrap, tmp_path)
        everyone = [producer, *(member for members in groups.values() for member in members)]
        try:
            for each in everyone:
                each.program.start()
            for members in groups.values():
                for member in members:
                    until_reads(member)
            for group, (leaving, _) in groups.items():
                # The consumer protocol has no shorter session than the 45 s of the brokers, and refuses another member with
                # the same group.instance.id that long.
                if group in CLASSIC:
                    leaving.program.kill()
                else:
                    leaving.program.end(seconds=STORY_SECONDS)
            kill_disk(disk_with_a_leader(cluster, TOPIC, DYING))
            for returning, _ in groups.values():
                returning.program.start()
            freeze(disk_with_a_leader(cluster, TOPIC, HANGING), HANGS_SECONDS)
            for returned, _ in groups.values():
                until_reads(returned)
            producer.program.end(seconds=STORY_SECONDS)
            acknowledged = {
                (event["partition"], event["offset"]): event["value"] for event in producer.events("producer_send_success")
            }
            for group, members in groups.items():
                until_read(group, members, acknowledged)
            for each in everyone[1:]:
                each.program.end(seconds=STORY_SECONDS)
        finally:
            for each in everyone:
                each.program.kill()
        refused = [*producer.events("producer_send_error")]
        unfinished = [each.log.stem for each in everyone if not [*each.events("shutdown_complete")]]
    assert (refused, unfinished) == ([], [])
    assert len({*acknowledged.values()}) == len(acknowledged), "records were written twice"
