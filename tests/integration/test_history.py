"""A history check in the manner of Jepsen: many clients under disk kills, process kills and pauses, judged by what they saw.

Idempotent producers (librdkafka and kafka-python) and a group of both libraries' consumers work while disks die and are
replaced, daemons and clients are killed with kill -9, and daemons and clients stand still. Every operation is kept in a file
with its begin and its end. When all faults are over, the whole log is read, and the checker of tests/integration/history
judges all of it.

DISKRAFT_HISTORY_MINUTES sets how long faults happen (1 by default; `make history MINUTES=10`). DISKRAFT_HISTORY_SEED, set to
the seed that a run printed, repeats its random choices. The history of a failed run stays in its folder.
"""

import os
import random
import shutil
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.integration.cluster import WatchedCluster, until, watched_cluster
from tests.integration.history.checker import judge, summary
from tests.integration.history.clients import GROUP
from tests.integration.history.faults import OFFSETS_TOPIC, Faults
from tests.integration.history.operations import Place
from tests.integration.history.processes import Clients
from tests.integration.history.recorder import load
from tests.integration.traffic import QUIET, end_offset
from tests.interop.topics import create_topic

MINUTES = float(os.environ.get("DISKRAFT_HISTORY_MINUTES") or "1")
SEED = os.environ.get("DISKRAFT_HISTORY_SEED") or str(random.randrange(1_000_000))
TOPIC = "t"
PARTITIONS = 6
SECONDS_MAX = 120.0
ADD_PARTITIONS_TO_TXN = 24
OVERRIDES = {
    "diskraft.log.dir.operation.timeout.ms": "2000",
    "diskraft.log.dir.free.bytes.floor": "0",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "4000",
    "group.initial.rebalance.delay.ms": "500",
    # For __consumer_offsets too: a commit that only one disk has is lost with it.
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
}
# Small segments, so that logs roll and sync often.
TOPIC_CONFIG = {"min.insync.replicas": "2", "segment.bytes": "65536"}
# What a run must have done at least, for each minute: less would mean that the cluster was mostly unavailable.
MINUTE = {"acknowledged": 2000, "polled": 2000, "commits": 20}
# Small enough to read, large enough to see a pattern.
ANOMALIES_SHOWN = 40

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 90 * MINUTES),
    pytest.mark.usefixtures("loop_disks"),
]


def test_a_history_under_faults_has_no_anomaly(tmp_path: Path) -> None:
    """Faults happen until the time is over. Then everything must come to rest: each producer gets an answer for each of its
    records, the group commits the end of every partition, and no operation contradicts another one."""
    print(f"DISKRAFT_HISTORY_MINUTES={MINUTES:g} DISKRAFT_HISTORY_SEED={SEED}", flush=True)
    folder = tmp_path / "history"
    folder.mkdir()
    with watched_cluster(tmp_path, overrides=OVERRIDES, disk_mib=256) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, configs=TOPIC_CONFIG)
        transactions = serves_transactions(cluster)
        if not transactions:
            print("the brokers serve no transactions: G1a and atomicity were NOT judged", flush=True)
        with Clients(cluster.bootstrap, TOPIC, partitions=PARTITIONS, folder=folder, transactions=transactions) as clients:
            until(lambda: summary(load(folder))["commits"], "the group has committed something")
            faults = Faults(cluster, clients, TOPIC, random.Random(SEED))
            deadline = time.monotonic() + 60 * MINUTES
            rounds = 0
            while time.monotonic() < deadline:
                rounds += 1
                print(f"fault {rounds}: {faults.one_round()}, over at {time.monotonic():.1f} s", flush=True)
                clients.replace_ended()
            for topic in (TOPIC, OFFSETS_TOPIC):
                cluster.until_in_sync(topic, seconds=SECONDS_MAX)
            clients.end("producer")
            # Until then a reader does not see what comes after the records of a producer that was killed in a transaction.
            until(
                lambda: ends_of(cluster.bootstrap) == ends_of(cluster.bootstrap, "read_uncommitted"),
                "every transaction is over",
                seconds=SECONDS_MAX,
            )
            log = read_log(cluster.bootstrap)
            until(lambda: is_all_committed(cluster.bootstrap, log), "the group commits the ends", seconds=SECONDS_MAX)
            clients.end("")
            keep_logs(cluster, folder)
    history = load(folder)
    history.log = log
    anomalies = judge(history)
    told = f"{rounds} faults in {MINUTES:g} minutes: {summary(history)}"
    print(told, flush=True)
    for anomaly in anomalies[:ANOMALIES_SHOWN]:
        print(f"{anomaly.kind}: {anomaly.detail}")
    kinds = dict(Counter(anomaly.kind for anomaly in anomalies))
    assert (kinds, clients.failures) == ({}, []), (
        f"DISKRAFT_HISTORY_MINUTES={MINUTES:g} DISKRAFT_HISTORY_SEED={SEED}, history in {folder}; {told}"
    )
    done = summary(history)
    assert {what: done[what] for what, least in MINUTE.items() if done[what] < least * MINUTES} == {}, "too little was done"


def keep_logs(cluster: WatchedCluster, folder: Path) -> None:
    """Copies the segments of every replica beside the history, because only they show the producer epochs and the sequence
    numbers of the batches."""
    for node in cluster.brokers:
        for segment in (path for data in node.files.data_dirs for path in Path(data).glob(f"{TOPIC}-[0-9]*/*.log")):
            kept = folder / "logs" / node.files.name / segment.parent.name
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(segment, kept)


def serves_transactions(cluster: WatchedCluster) -> bool:
    with cluster.admin() as admin:
        found: ApiVersionsResponse = admin.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    return ADD_PARTITIONS_TO_TXN in {each.api_key for each in found.api_keys}


def ends_of(bootstrap: str, isolation: str = "read_committed") -> list[int]:
    """Returns how far a consumer can read in each partition."""
    with closing(
        Consumer(QUIET | {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": isolation})
    ) as consumer:
        return [end_offset(consumer, TOPIC, index) for index in range(PARTITIONS)]


def read_log(bootstrap: str) -> dict[Place, str]:
    """Returns every record of the topic."""
    consumer = Consumer(QUIET | {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"})
    try:
        ends = {index: end_offset(consumer, TOPIC, index) for index in range(PARTITIONS)}
        waiting = {index for index, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in sorted(waiting)])
        log: dict[Place, str] = {}
        deadline = time.monotonic() + SECONDS_MAX
        while waiting:
            assert time.monotonic() < deadline, f"partitions {sorted(waiting)} cannot be read to their ends {ends}"
            for message in consumer.consume(2000, timeout=0.2):
                assert message.error() is None, message.error()
                index, offset, value = message.partition(), message.offset(), message.value()
                assert index is not None and offset is not None and value is not None
                log[index, offset] = value.decode()
            positions = {each.partition: each.offset for each in consumer.position(consumer.assignment())}
            waiting = {index for index in waiting if positions[index] < ends[index]}
        return log
    finally:
        consumer.close()


def is_all_committed(bootstrap: str, log: dict[Place, str]) -> bool:
    """Whether the group has committed the end of every partition."""
    ends = {partition: max(offset for index, offset in log if index == partition) + 1 for partition in range(PARTITIONS)}
    consumer = Consumer(QUIET | {"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        found = consumer.committed([TopicPartition(TOPIC, partition) for partition in ends], timeout=SECONDS_MAX)
    finally:
        consumer.close()
    return all(each.offset >= ends[each.partition] for each in found)
