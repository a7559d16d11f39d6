"""A real Prometheus with the repository's rules watches a real cluster whose disk dies.

The module uses one cluster of three brokers with three loop-mounted disks each. Prometheus scrapes it before and after one
disk dies. The tests then check what Prometheus has recorded.
"""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.monitoring import (
    METRIC_NAME,
    ROOT,
    Prometheus,
    dashboard_expressions,
    exposed_names,
    need_program,
    not_testable,
    prometheus_beside,
    rule_expressions,
    scrape,
    until,
)
from tests.interop.topics import create_topic
from tests.interop.waiting import until_equal
from tools.errors import ToolError
from tools.lab.disk_lab import kill_disk, why_no_loop_disks
from tools.lab.local_cluster import LocalCluster, free_ports

pytestmark = [pytest.mark.root, pytest.mark.slow]

FILES = ROOT / "deploy" / "prometheus"
OFFLINE = "kafka_log_logmanager_logdirectoryoffline"


@dataclass(frozen=True, slots=True)
class Story:
    """A cluster that lost a disk, and what Prometheus recorded."""

    prometheus: Prometheus
    targets: list[str]
    online_before: float | None
    alerts_before: list[dict[str, str]]
    annotated: list[tuple[dict[str, str], float]]
    """What the dashboard's annotation showed soon after the death of the disk. It shows a failure for one minute."""
    victim: str
    victim_target: str


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Runs the cluster, kills a disk, and removes everything afterwards. See the module docstring."""
    need_program("prometheus", "prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    reason = why_no_loop_disks(folder)
    if reason is not None:
        not_testable(f"no loop-mounted disks here: {reason}")
    cluster = LocalCluster.create(folder / "cluster", brokers=3, disks=3, loop=True)
    try:
        targets = serve_metrics(cluster)
        cluster.start()
        create_topic(cluster.bootstrap, "watched", partitions=9)
        with prometheus_beside(cluster, folder / "prometheus", targets) as prometheus:
            yield tell(cluster, prometheus, targets)
        cluster.stop()
    finally:
        cluster.kill()
        with suppress(ToolError):
            cluster.delete()


def serve_metrics(cluster: LocalCluster) -> list[str]:
    """Gives every node a metrics listener. Returns the targets in the order of the nodes."""
    targets = [f"127.0.0.1:{port}" for port in free_ports(len(cluster.nodes))]
    for node, target in zip(cluster.nodes.values(), targets, strict=True):
        with Path(node.files.config).open("a") as lines:
            lines.write(f"diskraft.prometheus.listener={target}\n")
    return targets


def tell(cluster: LocalCluster, prometheus: Prometheus, targets: list[str]) -> Story:
    """Waits until Prometheus has scraped every node, kills one disk, and waits until Prometheus shows the dead disk and the
    alert fires."""
    until(lambda: prometheus.value("sum(up)") == len(targets), "every node is scraped")
    until(lambda: prometheus.query(OFFLINE), "directories are seen")
    until(lambda: prometheus.query("kafka_log_log_size"), "logs are seen")
    online_before = prometheus.value(f"count({OFFLINE} == 0)")
    alerts_before = prometheus.firing("LogDirectoryOffline")
    victim = cluster.broker(2).files.data_dirs[1]
    kill_disk(Path(victim))
    until(lambda: prometheus.value(f"count({OFFLINE} == 1)") == 1, "Prometheus sees the dead disk")
    (annotation,) = [expression for expression in dashboard_expressions() if is_annotation(expression)]
    annotated = until(lambda: prometheus.query(annotation), annotation)
    until(lambda: prometheus.firing("LogDirectoryOffline"), "the alert fires")
    return Story(
        prometheus=prometheus,
        targets=targets,
        online_before=online_before,
        alerts_before=alerts_before,
        annotated=annotated,
        victim=victim,
        victim_target=targets[[node.files.node_id for node in cluster.nodes.values()].index(2)],
    )


def is_annotation(expression: str) -> bool:
    return " unless " in expression


def test_nine_directories_are_online_and_after_one_dies_eight(story: Story) -> None:
    """No alert fires before the disk dies."""
    assert story.online_before == 9
    assert story.alerts_before == []
    # A scrape may be late once, and its series are missing then.
    until_equal(lambda: story.prometheus.value(f"count({OFFLINE} == 0)"), 8)
    until_equal(lambda: story.prometheus.value("sum(kafka_log_logmanager_offlinelogdirectorycount)"), 1)


def test_the_alert_names_the_broker_and_the_disk(story: Story) -> None:
    """Exactly one LogDirectoryOffline alert fires, with the dead directory in its labels."""
    assert story.prometheus.firing("LogDirectoryOffline") == [
        {
            "alertname": "LogDirectoryOffline",
            "instance": story.victim_target,
            "job": "diskraft",
            "logDirectory": story.victim,
            "severity": "critical",
        }
    ]


def test_no_partition_went_offline_and_the_controller_stays(story: Story) -> None:
    """Each affected partition keeps two of its three replicas."""
    until_equal(lambda: story.prometheus.value("max(kafka_controller_kafkacontroller_offlinepartitionscount)"), 0)
    assert story.prometheus.firing("PartitionOffline") == []
    assert story.prometheus.firing("NoActiveController") == []
    assert story.prometheus.firing("NodeDown") == []
    until_equal(lambda: story.prometheus.value("sum(kafka_server_replicamanager_offlinereplicacount)"), 3)


def test_every_expression_names_metrics_that_the_nodes_show(story: Story) -> None:
    """A panel or an alert with a metric that no node exposes would stay empty forever."""
    live = set().union(*(exposed_names(scrape(target)) for target in story.targets))
    expressions = dashboard_expressions() + rule_expressions()
    assert len(expressions) > 20
    wanted = {name for expression in expressions for name in METRIC_NAME.findall(expression)}
    assert wanted - live == set()
    assert [expression for expression in dashboard_expressions() if not METRIC_NAME.search(expression)] == []


def test_every_panel_of_the_dashboard_has_something_to_show(story: Story) -> None:
    """Prometheus finds series for each expression."""
    assert story.annotated
    for expression in dashboard_expressions():
        if is_annotation(expression):
            continue
        until(lambda expression=expression: bool(story.prometheus.query(expression)), expression)  # type: ignore[misc]


def test_the_exposition_passes_promtool(story: Story) -> None:
    """promtool may complain only about Kafka's own spelling of labels and names."""
    promtool = need_program("promtool", "prometheus")
    for target in story.targets:
        done = subprocess.run(
            [promtool, "check", "metrics"], input=scrape(target), capture_output=True, text=True, check=False, timeout=60
        )
        lines = (done.stdout + done.stderr).splitlines()
        kafkas = ("camelCase", "abbreviated units", '"_count" suffix')
        complaints = [line for line in lines if not any(each in line for each in kafkas)]
        assert complaints == []


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")],
    ids=" ".join,
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    """promtool checks the configuration and the alert rules, and runs the unit tests of the rules (alerts_test.yml)."""
    promtool = need_program("promtool", "prometheus")
    done = subprocess.run([promtool, *arguments], cwd=FILES, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
