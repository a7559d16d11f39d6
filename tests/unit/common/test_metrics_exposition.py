"""The collector exposes exactly the newest snapshot, and its age."""

from prometheus_client import CollectorRegistry, generate_latest

from common.metrics_exposition import SnapshotCollector, counter, gauge


def test_the_newest_snapshot_is_exposed_with_its_age() -> None:
    """Publishes twice, moves the clock by hand, and compares all exposed samples."""
    clock = [1_000_000_000]
    collector = SnapshotCollector(lambda: clock[0])
    registry = CollectorRegistry()
    registry.register(collector)
    collector.publish([gauge("a_gauge", "Help.", 1)])
    collector.publish(
        [
            gauge("kafka_log_logmanager_logdirectoryoffline", "Offline.", 0, logDirectory="/d1"),
            gauge("kafka_log_logmanager_logdirectoryoffline", "Offline.", 1, logDirectory="/d2"),
            counter("kafka_server_replicamanager_isrshrinks", "Shrinks.", 3),
        ]
    )
    clock[0] += 500_000_000
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert lines == [
        'kafka_log_logmanager_logdirectoryoffline{logDirectory="/d1"} 0.0',
        'kafka_log_logmanager_logdirectoryoffline{logDirectory="/d2"} 1.0',
        "kafka_server_replicamanager_isrshrinks_total 3.0",
        "diskraft_metrics_snapshot_age_seconds 0.5",
    ]
