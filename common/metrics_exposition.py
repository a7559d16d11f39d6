"""The Prometheus exposition: a collector over one immutable snapshot (shell).

The event loop publishes a new snapshot once a second. A scrape runs on its own thread and only reads the newest snapshot, so
it succeeds even while the event loop is blocked; the snapshot's age is a metric too. A scrape must not touch live state,
because it runs concurrently with the event loop. Metric names follow the stock jmx_exporter KRaft rules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric. For a counter, `name` excludes `_total`."""

    name: str
    help: str
    value: float
    labels: Labels = ()
    counter: bool = False


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All exposed metrics as of `taken_at_ns` on the monotonic clock."""

    taken_at_ns: int
    samples: Sequence[Sample] = field(default=())


def gauge(name: str, help_text: str, value: float, **labels: str) -> Sample:
    """Makes a gauge sample. Labels keep their case, as Kafka's MBean keys do."""
    return Sample(name, help_text, value, tuple(labels.items()))


def counter(name: str, help_text: str, value: float, **labels: str) -> Sample:
    """Makes a counter sample."""
    return Sample(name, help_text, value, tuple(labels.items()), counter=True)


class SnapshotCollector(Collector):
    """Exposes the newest published snapshot to prometheus-client."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._snapshot = MetricsSnapshot(taken_at_ns=now_ns())

    def publish(self, samples: Sequence[Sample]) -> None:
        """Replaces the snapshot. Called on the event loop."""
        self._snapshot = MetricsSnapshot(self._now_ns(), tuple(samples))

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield from _families(snapshot.samples).values()
        yield GaugeMetricFamily(
            "diskraft_metrics_snapshot_age_seconds",
            "How long ago the loop published the metrics of this answer.",
            value=(self._now_ns() - snapshot.taken_at_ns) / 1e9,
        )


def _families(samples: Sequence[Sample]) -> Mapping[str, Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for sample in samples:
        family = families.get(sample.name)
        if family is None:
            kind = CounterMetricFamily if sample.counter else GaugeMetricFamily
            family = kind(sample.name, sample.help, labels=[name for name, _ in sample.labels])
            families[sample.name] = family
        family.add_metric([value for _, value in sample.labels], sample.value)
    return families
