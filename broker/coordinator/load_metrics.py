"""The metrics of loads that both coordinators have, each under the name of its own (shell without I/O).

Counterpart of Kafka's CoordinatorRuntimeMetrics.
"""

from collections.abc import Iterator
from typing import Any

from broker.coordinator.coordinator_runtime import CoordinatorRuntime
from common.metrics_exposition import Sample, counter, gauge


def load_samples(coordinator: CoordinatorRuntime[Any], name: str) -> Iterator[Sample]:
    """Yields the current values. `name` is what the names of the metrics begin with."""
    partitions = coordinator.loaded_and_loading()
    active = sum(each.is_loaded for each in partitions)
    for state, count in (("active", active), ("loading", len(partitions) - active)):
        yield gauge(f"{name}_num_partitions", f"Partitions of {coordinator.topic}, by what they do.", count, state=state)
    counts = coordinator.load_counts
    yield gauge(f"{name}_partition_load_time_max", "Longest load since the start, in ms.", counts.load_time_ns_max / 1e6)
    yield gauge(
        f"{name}_partition_load_time_avg",
        "Mean duration of a load since the start, in ms.",
        counts.load_time_ns_sum / 1e6 / max(counts.loaded, 1),
    )
    yield counter(f"{name}_partition_load_failures", "Loads that failed.", counts.failed)
