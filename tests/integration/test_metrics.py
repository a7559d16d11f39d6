"""Scrapes the metrics endpoints of a broker and the controller, as Prometheus does, while disks die and hang."""

import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.hanging_disks import frozen
from tests.integration.cluster import WatchedCluster, directory_id, until, watched_cluster
from tests.integration.traffic import Writer
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk
from tools.lab.local_cluster import free_ports

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("loop_disks")]

TOPIC = "t"
OFFLINE = "kafka_log_logmanager_logdirectoryoffline"


def scrape(port: int, *, seconds: float = 60) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Scrapes the endpoint. Returns the value of every sample by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=seconds) as answer:
        assert answer.status == 200
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(port: int, name: str, **labels: str) -> float | None:
    return scrape(port).get((name, frozenset(labels.items())))


def test_metrics_tell_of_a_dead_disk_and_answer_while_another_hangs(tmp_path: Path) -> None:
    """logdirectoryoffline of the dead disk goes from 0 to 1 and stays there, and the counts of offline directories and
    replicas agree with it. While another disk hangs, before and after the operation's deadline, every scrape is answered.
    Before the deadline the metrics show how long the operation has waited."""
    broker_port, controller_port = free_ports(2)

    def with_metrics(cluster: WatchedCluster) -> None:
        cluster.set_properties(cluster.broker(1), diskraft_prometheus_listener=f"127.0.0.1:{broker_port}")
        cluster.set_properties(cluster.controller, diskraft_prometheus_listener=f"127.0.0.1:{controller_port}")

    overrides = {"diskraft.log.dir.operation.timeout.ms": "10000", "broker.heartbeat.interval.ms": "500"}
    with watched_cluster(tmp_path, prepare=with_metrics, overrides=overrides) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=6, configs={"min.insync.replicas": "2"})
        broker = cluster.broker(1)
        healthy, dead, hung = broker.files.data_dirs
        dead_id = directory_id(dead)
        with Writer(cluster.bootstrap, TOPIC, partitions=6) as writer:
            writer.wait_for_acks()
            until(lambda: value(broker_port, "kafka_server_replicamanager_partitioncount") == 6, "6 replicas counted")
            assert value(broker_port, "kafka_server_kafkaserver_brokerstate") == 3
            assert [value(broker_port, OFFLINE, logDirectory=path) for path in (healthy, dead, hung)] == [0, 0, 0]
            assert value(broker_port, "kafka_log_logdir_partitions", logDirectory=dead, directoryId=dead_id) == 2
            kill_disk(Path(dead))
            broker.wait_for("log_dir_offline", directory_id=dead_id)
            until(lambda: value(broker_port, OFFLINE, logDirectory=dead) == 1, "the dead disk shows")
            assert [value(broker_port, OFFLINE, logDirectory=path) for path in (healthy, dead, hung)] == [0, 1, 0]
            assert value(broker_port, "kafka_log_logmanager_offlinelogdirectorycount") == 1
            assert value(broker_port, "kafka_server_replicamanager_offlinereplicacount") == 2
            errors = [
                number
                for (name, labels), number in scrape(broker_port).items()
                if name == "kafka_log_logdir_io_errors_total" and ("logDirectory", dead) in labels
            ]
            assert sum(errors) >= 1
            with frozen(Path(hung)):
                until(lambda: shows_waiting(broker_port, hung), "the waiting operation shows")
                until(lambda: value(broker_port, OFFLINE, logDirectory=hung) == 1, "the hung disk shows")
                assert value(broker_port, OFFLINE, logDirectory=healthy) == 0
            writer.stop()
        assert value(broker_port, OFFLINE, logDirectory=dead) == 1, "it must not resolve itself"
        assert value(controller_port, "kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert value(controller_port, "kafka_controller_kafkacontroller_activebrokercount") == 3
        assert value(controller_port, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0


def shows_waiting(port: int, path: str) -> bool:
    """Whether the directory is online, and its oldest operation has waited for more than a second."""
    found = scrape(port)
    labels = {"logDirectory": path, "directoryId": directory_id(path)}
    age = found[("kafka_log_logdir_oldest_operation_age_seconds", frozenset(labels.items()))]
    return age > 1 and found[(OFFLINE, frozenset({"logDirectory": path}.items()))] == 0
