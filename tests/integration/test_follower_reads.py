"""Real clients read from the follower in their rack (KIP-392), also while the disk of that follower dies."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from common.configuration.server import RACK_AWARE_SELECTOR
from tests.integration.cluster import SECONDS_MAX, WatchedCluster, until, watched_cluster
from tests.integration.test_metrics import value
from tests.integration.traffic import Writer, write_some
from tests.interop.apache_kafka import NoJars, find_jars, find_java
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk
from tools.lab.local_cluster import free_ports

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("loop_disks")]

TOPIC = "t"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
# Broker 1 leads in a rack of its own, brokers 2 and 3 follow in the consumers' rack.
RACKS = {1: "far", 2: "near", 3: "near"}


@contextmanager
def racks(folder: Path) -> Iterator[tuple[WatchedCluster, dict[int, int]]]:
    """Runs a cluster with racks and one partition led by broker 1. Yields it with the metrics port of each broker."""
    ports = dict(zip(RACKS, free_ports(len(RACKS)), strict=True))

    def prepare(cluster: WatchedCluster) -> None:
        for broker_id, rack in RACKS.items():
            cluster.set_properties(
                cluster.broker(broker_id),
                broker_rack=rack,
                replica_selector_class=RACK_AWARE_SELECTOR,
                diskraft_prometheus_listener=f"127.0.0.1:{ports[broker_id]}",
            )

    with watched_cluster(folder, prepare=prepare, disks=2) as cluster:
        create_topic(
            cluster.bootstrap, TOPIC, partitions=1, configs={"min.insync.replicas": "1"}, assignments={0: [1, 2, 3]}
        )
        yield cluster, ports


def sent_by(ports: dict[int, int]) -> dict[int, float]:
    """Returns how many bytes of the topic each broker has sent to consumers."""
    return {broker_id: value(port, BYTES_OUT, topic=TOPIC) or 0.0 for broker_id, port in ports.items()}


class RackConsumer:
    """A librdkafka consumer in rack `near`, from the start of the partition. Collects the offsets that it got."""

    def __init__(self, bootstrap: str) -> None:
        self.offsets: list[int] = []
        self.errors: list[str] = []
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "client.rack": "near",
            "auto.offset.reset": "error",
        }
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 2_000})
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read(self) -> bool:
        """Takes what has arrived. Returns True, so that a wait can begin with it."""
        for message in self._consumer.consume(1_000, timeout=0.1):
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
                self.offsets.append(offset)
            else:
                self.errors.append(str(error))
        return True

    def read_until(self, count: int) -> None:
        until(lambda: self.read() and len(self.offsets) >= count, f"{count} records read")

    def close(self) -> None:
        self._consumer.close()


def test_librdkafka_reads_from_the_follower_whose_disk_then_dies(tmp_path: Path) -> None:
    """The leader sends nothing but the answer that names a follower. When that follower's disk dies under load, the consumer
    goes on without a gap and without a repeated record, and from then on the other follower in the rack serves it."""
    with racks(tmp_path) as (cluster, ports):
        places = cluster.until_placed(TOPIC, 3)
        first = len(write_some(cluster.bootstrap, TOPIC, partitions=1, count=2_000, size=500))
        consumer = RackConsumer(cluster.bootstrap)
        consumer.read_until(first)
        until(lambda: sum(sent_by(ports).values()) >= first * 500, "the counters of the brokers")
        sent = sent_by(ports)
        assert sent[1] == 0, sent
        # The leader chose one of the two. Which one, depends on who had fetched last.
        chosen, other = sorted((2, 3), key=lambda broker_id: -sent[broker_id])
        with Writer(cluster.bootstrap, TOPIC, partitions=1) as writer:
            writer.wait_for_acks()
            consumer.read_until(first + 10)
            kill_disk(Path(places[chosen, 0]))
            cluster.broker(chosen).wait_for("log_dir_failure_acknowledged")
            before = sent_by(ports)[other]
            until(lambda: consumer.read() and sent_by(ports)[other] > before, "the other follower serves the consumer")
            writer.wait_for_acks()
            writer.stop()
        last = max(offset for _, offset in writer.acknowledged)
        consumer.read_until(last + 1)
        consumer.close()
        assert consumer.offsets == list(range(len(consumer.offsets)))
        assert consumer.errors == []


def test_the_java_consumer_reads_from_the_follower(tmp_path: Path) -> None:
    """Kafka's own consumer, with client.rack as its only setting."""
    try:
        java, jars = find_java(), find_jars()
    except NoJars as reason:
        pytest.skip(f"Kafka's consumer was NOT tested: {reason}")
    with racks(tmp_path) as (cluster, ports):
        count = len(write_some(cluster.bootstrap, TOPIC, partitions=1, count=2_000, size=500))
        done = subprocess.run(
            [
                *(java, "-Xmx256m", "-cp", f"{jars}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
                *("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--from-beginning"),
                *("--max-messages", str(count), "--timeout-ms", "60000", "--consumer-property", "client.rack=near"),
            ],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX + 30,
            check=False,
            cwd=tmp_path,
        )
        assert (done.returncode, len(done.stdout.splitlines())) == (0, count), done.stderr[-2_000:]
        until(lambda: sum(sent_by(ports).values()) >= count * 500, "the counters of the brokers")
        assert sent_by(ports)[1] == 0
