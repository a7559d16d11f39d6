"""The cluster of tests/interop: a controller and three brokers in their own processes, on plain directories.

All tests of a process share it (pytest-xdist runs several processes), so each creates its own topics. After every test all
four daemons must still be running. At the end each must shut down cleanly, without a critical event in its log.
"""

import itertools
import re
from collections.abc import Callable, Iterator

import pytest

from tests.blocking_admin import BlockingAdmin
from tests.interop.apache_kafka import NoJars
from tests.interop.apache_kafka_tools import Kafka, prepare_kafka
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

BROKERS = 3
DISKS = 3

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The running cluster. Clients may bootstrap from any of its brokers."""
    made = LocalCluster.create(
        tmp_path_factory.mktemp("interop") / "cluster",
        brokers=BROKERS,
        disks=DISKS,
        loop=False,
        # Metadata snapshots are written often, so that tests find some to read.
        # Leaders change only when a test says so. Groups wait for no further members, and those of the consumer protocol
        # learn quickly what they are assigned.
        # Tests write records with timestamps of years ago, which must not be deleted before they are read.
        overrides={
            "metadata.log.max.record.bytes.between.snapshots": "2048",
            "auto.leader.rebalance.enable": "false",
            "log.retention.check.interval.ms": "86400000",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.heartbeat.interval.ms": "500",
        },
    )
    try:
        made.start()
        with BlockingAdmin(made.bootstrap) as admin:
            admin.wait_until_known(range(1, BROKERS + 1))
        yield made
        made.stop()
        critical = [event for node in made.nodes.values() for event in node.events() if event.get("level") == "critical"]
        assert critical == []
    finally:
        made.kill()
    made.delete()


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    return cluster.bootstrap


@pytest.fixture(scope="session")
def kafka(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    """The tools of Apache Kafka. Without Java or the jars the test is skipped with a message."""
    try:
        return prepare_kafka(tmp_path_factory.mktemp("kafka"), cluster.bootstrap)
    except NoJars as reason:
        pytest.skip(f"NOTHING WAS TESTED AGAINST APACHE KAFKA: {reason}")


@pytest.fixture(autouse=True)
def _every_daemon_lives(cluster: LocalCluster) -> Iterator[None]:
    """No test may kill a daemon."""
    pids = {name: node.pid for name, node in cluster.nodes.items()}
    yield
    assert {name: node.pid for name, node in cluster.nodes.items()} == pids
    assert None not in pids.values()
    with BlockingAdmin(cluster.bootstrap) as admin:
        assert sorted(admin.brokers()) == list(range(1, BROKERS + 1))


@pytest.fixture
def new_topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Returns names that no other test uses."""
    base = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name.removeprefix("test_"))[:80].strip("-")
    return lambda: f"{base}-{next(_numbers)}"


@pytest.fixture
def topic(cluster: LocalCluster, new_topic_name: Callable[[], str]) -> str:
    """A new topic of three partitions with three replicas each, all in sync."""
    return create_topic(cluster.bootstrap, new_topic_name())
